// SPDX-License-Identifier: GPL-2.0-only

//! Commands of the control node.
//!
//! | command | what it asks for |
//! |---|---|
//! | `services` | the names of the services |
//! | `get SERVICE NAME` | the value of a parameter |
//! | `set SERVICE NAME VALUE` | that the parameter has this value from now on |
//!
//! Words have one blank between them. The value is all that is behind the blank after `NAME`, whatever that
//! is; it may have lines, and it may be empty. One line end at the end of a command is not part of it.

use crate::sched::error::{Error, Result};

/// Bytes that the words before a value may have with their blanks, at most.
pub const WORDS_MAX: usize = 4096;

/// What was written to the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// Which services there are.
    Services,
    /// The value of a parameter.
    Get {
        /// The service; whether there is one of that name is not known here.
        service: &'a str,
        /// The parameter; whether there is one of that name is not known here.
        name: &'a str,
    },
    /// A new value for a parameter.
    Set {
        /// As above.
        service: &'a str,
        /// As above.
        name: &'a str,
        /// The value, as it was written.
        value: &'a str,
    },
}

impl<'a> Command<'a> {
    /// Parses a command.
    ///
    /// # Errors
    ///
    /// `EINVAL`: no command, or not the words that it takes.
    pub fn parse(text: &'a str) -> Result<Self> {
        let text = text.strip_suffix('\n').unwrap_or(text);
        let (verb, rest) = match text.split_once(' ') {
            Some((verb, rest)) => (verb, Some(rest)),
            None => (text, None),
        };
        match (verb, rest) {
            ("services", None) => Ok(Self::Services),
            ("services", Some(_)) => Err(Error::invalid("'services' takes no word")),
            ("get", rest) => {
                let (service, name) = pair(rest, "expected 'get SERVICE NAME'")?;
                Ok(Self::Get {
                    service,
                    name: word(name)?,
                })
            }
            ("set", rest) => {
                let (service, rest) = pair(rest, "expected 'set SERVICE NAME VALUE'")?;
                let (name, value) = rest.split_once(' ').unwrap_or((rest, ""));
                Ok(Self::Set {
                    service,
                    name: word(name)?,
                    value,
                })
            }
            _ => Err(Error::invalid("expected 'services', 'get' or 'set'")),
        }
    }
}

/// The service that `rest` begins with, and what comes behind the blank after it.
fn pair<'a>(rest: Option<&'a str>, expected: &'static str) -> Result<(&'a str, &'a str)> {
    let (service, rest) = rest
        .and_then(|rest| rest.split_once(' '))
        .ok_or(Error::invalid(expected))?;
    Ok((word(service)?, rest))
}

/// `text`, if it is one word.
fn word(text: &str) -> Result<&str> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic()) {
        Ok(text)
    } else {
        Err(Error::invalid(
            "expected words of printable characters with one blank between them",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set<'a>(service: &'a str, name: &'a str, value: &'a str) -> Result<Command<'a>> {
        Ok(Command::Set {
            service,
            name,
            value,
        })
    }

    #[test]
    fn commands() {
        assert_eq!(Command::parse("services"), Ok(Command::Services));
        assert_eq!(Command::parse("services\n"), Ok(Command::Services));
        let get = Ok(Command::Get {
            service: "ost.io",
            name: "slots",
        });
        assert_eq!(Command::parse("get ost.io slots"), get);
        assert_eq!(Command::parse("get ost.io slots\n"), get);
        assert_eq!(Command::parse("set a slots 8\n"), set("a", "slots", "8"));
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
            assert_eq!(Command::parse(&text), set("a", "b", value), "{text:?}");
        }
        // Without the blank there is no value.
        assert_eq!(Command::parse("set a b"), set("a", "b", ""));
        assert_eq!(Command::parse("set a b\n"), set("a", "b", ""));
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
        ] {
            let refused = Command::parse(text).expect_err(text);
            assert!(!refused.reason.is_empty() && !refused.reason.contains('\n'));
        }
    }
}
