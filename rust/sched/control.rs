// SPDX-License-Identifier: GPL-2.0-only

//! Commands of the control node.
//!
//! | command | effect |
//! |---|---|
//! | `services` | lists the names of the services |
//! | `get SERVICE NAME` | returns the value of a parameter |
//! | `set SERVICE NAME VALUE` | sets a parameter |
//! | `bind SERVICE` | makes the open file the agent of the service |
//! | `accounts`, `accounts all` | lists the accounts of the service: the changed ones, or all |
//! | `names ID...` | lists level and key of each id |
//! | `factors INSTANCE LEASE_MS`, then bytes | sets factors of weights |
//!
//! Words are separated by one blank. The value is everything after the blank after `NAME`; it may
//! contain several lines and may be empty. One newline at the end of a command is ignored. The
//! bytes of `factors` are everything after the first newline. Ids and instances are hexadecimal.

use crate::sched::{
    agent::LEASE_MAX_MS,
    error::{Code, Error, Result},
};
use core::str;

/// Maximum length, bytes, of the words before a value including blanks, and of a command without a
/// value.
pub const WORDS_MAX: usize = 4096;

/// Command written to the control node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeCommand<'a> {
    /// Lists the services.
    Services,
    /// Reads a parameter.
    Get {
        /// Name of the service, which may not exist.
        service: &'a str,
        /// Name of the parameter, which may not exist.
        name: &'a str,
    },
    /// Sets a parameter.
    Set {
        /// Name of the service, which may not exist.
        service: &'a str,
        /// Name of the parameter, which may not exist.
        name: &'a str,
        /// Unparsed value.
        value: &'a str,
    },
    /// Makes the file the agent of a service.
    Bind {
        /// Name of the service, which may not exist.
        service: &'a str,
    },
    /// Lists accounts.
    Accounts {
        /// True: lists all accounts; false: only the changed ones.
        all: bool,
    },
    /// Lists levels and keys of ids.
    Names {
        /// Ids to look up.
        ids: Ids<'a>,
    },
    /// Sets factors of weights.
    Factors {
        /// Instance that the ids belong to.
        instance: u64,
        /// Lease, ms, from 1 to [`LEASE_MAX_MS`].
        lease_ms: u32,
        /// Unparsed ids and factors.
        pairs: &'a [u8],
    },
}

/// Ids, separated by one blank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ids<'a>(&'a str);

impl<'a> Ids<'a> {
    /// Returns the ids in the order of the command.
    pub fn iter(self) -> impl Iterator<Item = u64> + 'a {
        self.0.split(' ').filter_map(hexadecimal)
    }
}

impl<'a> NodeCommand<'a> {
    /// Parses a command.
    ///
    /// # Errors
    ///
    /// `EINVAL`: unknown command or wrong arguments. `E2BIG`: a command of more than [`WORDS_MAX`]
    /// bytes with ids.
    pub fn parse(bytes: &'a [u8]) -> Result<Self> {
        if let Some(rest) = bytes.strip_prefix(b"factors ") {
            return factors(rest);
        }
        let text = str::from_utf8(bytes).map_err(|_| Error::invalid("not UTF-8"))?;
        let text = text.strip_suffix('\n').unwrap_or(text);
        let (verb, rest) = match text.split_once(' ') {
            Some((verb, rest)) => (verb, Some(rest)),
            None => (text, None),
        };
        match (verb, rest) {
            ("services", None) => Ok(Self::Services),
            ("services", Some(_)) => Err(Error::invalid("'services' takes no argument")),
            ("get", rest) => {
                let (service, name) = pair(rest, "usage: get SERVICE NAME")?;
                Ok(Self::Get {
                    service,
                    name: word(name)?,
                })
            }
            ("set", rest) => {
                let (service, rest) = pair(rest, "usage: set SERVICE NAME VALUE")?;
                let (name, value) = rest.split_once(' ').unwrap_or((rest, ""));
                Ok(Self::Set {
                    service,
                    name: word(name)?,
                    value,
                })
            }
            ("bind", Some(service)) => Ok(Self::Bind {
                service: word(service)?,
            }),
            ("bind", None) => Err(Error::invalid("usage: bind SERVICE")),
            ("accounts", None) => Ok(Self::Accounts { all: false }),
            ("accounts", Some("all")) => Ok(Self::Accounts { all: true }),
            ("accounts", Some(_)) => Err(Error::invalid("usage: accounts [all]")),
            ("names", Some(_)) if text.len() > WORDS_MAX => Err(Error::new(
                Code::TooLong,
                "command is too long (limit: 4096 bytes)",
            )),
            ("names", Some(ids)) if ids.split(' ').all(|id| hexadecimal(id).is_some()) => {
                Ok(Self::Names { ids: Ids(ids) })
            }
            ("names", _) => Err(Error::invalid(
                "usage: names ID... (ids of 1 to 16 hexadecimal digits)",
            )),
            ("factors", _) => Err(FACTORS),
            _ => Err(Error::invalid(
                "unknown command (commands: services get set bind accounts names factors)",
            )),
        }
    }
}

/// Error for a malformed first line of `factors`.
const FACTORS: Error = Error::invalid("usage: factors INSTANCE LEASE_MS, a line end and pairs");

/// Parses the text after the verb of `factors`.
fn factors(rest: &[u8]) -> Result<NodeCommand<'_>> {
    let end = rest.iter().position(|byte| *byte == b'\n');
    let (line, pairs) = end
        .and_then(|end| rest.split_at_checked(end))
        .ok_or(FACTORS)?;
    let line = str::from_utf8(line).map_err(|_| FACTORS)?;
    let (instance, lease) = line.split_once(' ').ok_or(FACTORS)?;
    let instance = hexadecimal(instance).ok_or(FACTORS)?;
    let digits = !lease.is_empty() && lease.bytes().all(|byte| byte.is_ascii_digit());
    if !digits {
        return Err(FACTORS);
    }
    let lease_ms = lease.parse::<u32>().ok();
    let lease_ms = lease_ms.filter(|ms| (1..=LEASE_MAX_MS).contains(ms));
    Ok(NodeCommand::Factors {
        instance,
        lease_ms: lease_ms.ok_or(Error::invalid("lease is not from 1 to 60000 ms"))?,
        pairs: pairs.get(1..).unwrap_or_default(),
    })
}

/// Parses a number of 1 to 16 hexadecimal digits.
fn hexadecimal(text: &str) -> Option<u64> {
    let digits = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let fits = digits && (1..=16).contains(&text.len());
    u64::from_str_radix(text, 16).ok().filter(|_| fits)
}

/// Splits `rest` into a service and the text after the blank that follows it.
fn pair<'a>(rest: Option<&'a str>, expected: &'static str) -> Result<(&'a str, &'a str)> {
    let (service, rest) = rest
        .and_then(|rest| rest.split_once(' '))
        .ok_or(Error::invalid(expected))?;
    Ok((word(service)?, rest))
}

/// Returns `text` if it is one word.
fn word(text: &str) -> Result<&str> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic()) {
        Ok(text)
    } else {
        Err(Error::invalid(
            "words must be printable and separated by one blank",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set<'a>(service: &'a str, name: &'a str, value: &'a str) -> Result<NodeCommand<'a>> {
        Ok(NodeCommand::Set {
            service,
            name,
            value,
        })
    }

    fn parse(text: &str) -> Result<NodeCommand<'_>> {
        NodeCommand::parse(text.as_bytes())
    }

    #[test]
    fn commands() {
        assert_eq!(parse("services"), Ok(NodeCommand::Services));
        assert_eq!(parse("services\n"), Ok(NodeCommand::Services));
        let get = Ok(NodeCommand::Get {
            service: "ost.io",
            name: "slots",
        });
        assert_eq!(parse("get ost.io slots"), get);
        assert_eq!(parse("get ost.io slots\n"), get);
        assert_eq!(parse("set a slots 8\n"), set("a", "slots", "8"));
        assert_eq!(parse("bind a\n"), Ok(NodeCommand::Bind { service: "a" }));
        for (text, all) in [("accounts", false), ("accounts all\n", true)] {
            assert_eq!(parse(text), Ok(NodeCommand::Accounts { all }));
        }
    }

    #[test]
    fn ids() {
        let ids = |text: &str| match parse(text) {
            Ok(NodeCommand::Names { ids }) => ids.iter().collect::<Vec<_>>(),
            other => panic!("{text:?}: {other:?}"),
        };
        assert_eq!(ids("names 1\n"), [1]);
        assert_eq!(ids("names 00000000000000ff FF 0"), [255, 255, 0]);
        assert_eq!(ids("names ffffffffffffffff"), [u64::MAX]);
        let many = |count| format!("names{}\n", " 0123456789abcdef".repeat(count));
        assert_eq!(ids(&many(240)).len(), 240);
        let refused = |text: &str| parse(text).unwrap_err().code;
        assert_eq!(refused(&many(241)), Code::TooLong);
        for text in [
            "names",
            "names ",
            "names 1 ",
            "names  1",
            "names 1  2",
            "names g",
            "names +1",
            "names 0x1",
            "names 1\n\n",
            "names 11111111111111111",
        ] {
            assert_eq!(refused(text), Code::Invalid, "{text:?}");
        }
    }

    #[test]
    fn factors() {
        let parsed = |instance, lease_ms, pairs| {
            Ok(NodeCommand::Factors {
                instance,
                lease_ms,
                pairs,
            })
        };
        for (bytes, want) in [
            (&b"factors 1 1\n"[..], parsed(1, 1, &b""[..])),
            (
                b"factors 00Ff 60000\n\n\xff\0",
                parsed(255, 60_000, b"\n\xff\0"),
            ),
            (
                b"factors ffffffffffffffff 7\n1\n",
                parsed(u64::MAX, 7, b"1\n"),
            ),
        ] {
            assert_eq!(NodeCommand::parse(bytes), want);
        }
        for text in [
            "factors",
            "factors\n",
            "factors ",
            "factors \n",
            "factors 1\n",
            "factors 1 \n",
            "factors 1 1",
            "factors 1 1 1\n",
            "factors  1 1\n",
            "factors 1  1\n",
            "factors g 1\n",
            "factors 1 +1\n",
            "factors 1 a\n",
            "factors 1 0\n",
            "factors 1 60001\n",
            "factors 1 99999999999\n",
            "factors 11111111111111111 1\n",
            "factors 1 1\r\n",
        ] {
            let refused = parse(text).expect_err(text);
            assert_eq!(refused.code, Code::Invalid, "{text:?}");
            assert!(!refused.reason.is_empty() && !refused.reason.contains('\n'));
        }
        assert!(NodeCommand::parse(b"factors \xff 1\n").is_err());
        assert!(NodeCommand::parse(b"get \xff a").is_err());
    }

    #[test]
    fn values_are_taken_as_they_are() {
        for value in [
            "",
            " ",
            " 8",
            "8 ",
            "a  b",
            "a\nb\n",
            "\n",
            "\0",
            "\u{fc}",
            "set a b c",
        ] {
            let text = format!("set a b {value}\n");
            assert_eq!(parse(&text), set("a", "b", value), "{text:?}");
        }
        // A command without the blank has an empty value.
        assert_eq!(parse("set a b"), set("a", "b", ""));
        assert_eq!(parse("set a b\n"), set("a", "b", ""));
    }

    #[test]
    fn refused() {
        for text in [
            "",
            "\n",
            " ",
            "service",
            "Services",
            "services ",
            "services x",
            " services",
            "services\n\n",
            "get",
            "get ",
            "get a",
            "get a ",
            "get  a b",
            "get a b ",
            "get a b c",
            "get a b\nc",
            "get\ta b",
            "get a\0 b",
            "get \u{fc} b",
            "set",
            "set ",
            "set a",
            "set a ",
            "set  b c",
            "set a  c",
            "set a\nb c d",
            "set a b\nc d",
            "\u{feff}services",
            "bind",
            "bind ",
            "bind a b",
            "bind a\n\n",
            "accounts ",
            "accounts al",
            "accounts all ",
            "accounts all all",
            "accounts\n\n",
        ] {
            let refused = parse(text).expect_err(text);
            assert!(!refused.reason.is_empty() && !refused.reason.contains('\n'));
        }
    }
}
