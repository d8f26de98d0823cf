// SPDX-License-Identifier: MIT OR Apache-2.0

//! Agent of a service: reads through `/dev/nrs-control` what the service does for whom, and sets factors of weights.
//!
//! # Vocabulary
//!
//! - *Account*: weight and service of an entity, or of a group of entities ([`Account`]).
//! - *Instance*: number that names what ids are of; after a change the agent drops all that it knows by id.
//! - *Factor*: what a weight is multiplied by, in units of 2^-31: 1 to [`crate::wire::FACTOR_ONE`].
//! - *Lease*: time for which factors are in force. Without renewal they return to one in ten steps.
//!
//! ```no_run
//! use nrs_client::{agent::Agent, wire::FACTOR_ONE};
//! use std::time::Duration;
//!
//! # fn main() -> std::io::Result<()> {
//! let mut agent = Agent::bind("files")?;
//! let accounts = agent.accounts(true)?;
//! let leaves = accounts.list.iter().filter(|account| account.leaf);
//! let mut halves: Vec<_> = leaves.map(|account| (account.id, FACTOR_ONE / 2)).collect();
//! halves.sort_unstable();
//! agent.factors(accounts.instance, Duration::from_secs(3), &halves)?;
//! # Ok(())
//! # }
//! ```
//!
//! What each errno means is in `Documentation/control.md`.

use std::{
    error::Error,
    fmt,
    fs::{File, OpenOptions},
    io,
    os::unix::fs::FileExt,
    time::Duration,
};

use crate::wire::{self, Field};

/// Where the node is.
pub const NODE: &str = "/dev/nrs-control";

/// Bytes of an answer that there is room for at first.
const ROOM: usize = 64 << 10;

/// Ids of one command; more would not fit.
const NAMES: usize = 200;

/// The accounts of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accounts {
    /// What the ids are of.
    pub instance: u64,
    /// When the accounts were read, monotonic ns.
    pub time_ns: u64,
    /// Hash of the mode and the cost model, the same on all servers, but with `cgroup` in the mode another one for each
    /// service; 0: there are no accounts.
    pub terms: u64,
    /// Records in the order of ids, one for each id.
    pub list: Vec<Account>,
}

/// What a service did for an entity, or for a group of entities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// The entity or group.
    pub id: u64,
    /// The group that it is in; 0: none.
    pub parent: u64,
    /// Service so far, units of cost; of a group: what no other record has.
    pub service: u64,
    /// Weight among siblings without the factor; 4096 for a weight of one.
    pub weight: u32,
    /// Factor in force, in units of 2^-31.
    pub factor: u32,
    /// Level, 0: outermost.
    pub level: u32,
    /// Whether it is an entity.
    pub leaf: bool,
    /// Whether it has requests, queued or in service.
    pub active: bool,
    /// Whether it has queued requests.
    pub waiting: bool,
    /// Whether it is removed; this is the last record.
    pub gone: bool,
}

/// What an id is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The id.
    pub id: u64,
    /// Name of the level, as in the mode.
    pub level: String,
    /// Value at the level, as in `nrs_fairshare_stats`.
    pub key: String,
}

/// Why the module refused a command; the source of an [`io::Error`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The error number.
    pub errno: i32,
    /// The reason of the module, one line; empty without one.
    pub reason: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", io::Error::from_raw_os_error(self.errno))?;
        match &*self.reason {
            "" => Ok(()),
            reason => write!(f, ": {reason}"),
        }
    }
}

impl Error for Refused {}

/// An open file of the node.
#[derive(Debug)]
pub struct Agent {
    file: File,
    /// The last answer.
    answer: Vec<u8>,
}

impl Agent {
    /// Opens the node and becomes the agent of `service`, until this is dropped.
    ///
    /// # Errors
    ///
    /// Those of `open`. `EBUSY`: another file is bound. `ENODEV`: no such service.
    pub fn bind(service: &str) -> io::Result<Self> {
        let mut agent = Self::open()?;
        agent.command(format!("bind {service}").as_bytes())?;
        Ok(agent)
    }

    /// Opens the node; the file is not bound.
    ///
    /// # Errors
    ///
    /// Those of `open`; `EPERM`: without `CAP_SYS_ADMIN`.
    pub fn open() -> io::Result<Self> {
        Ok(Self {
            file: OpenOptions::new().read(true).write(true).open(NODE)?,
            answer: Vec::new(),
        })
    }

    /// Reads the accounts that changed since the last time, or `all` of them.
    ///
    /// # Errors
    ///
    /// `ENODEV`: the service is removed. `EFBIG`, `ENOMEM`: too many; no memory.
    pub fn accounts(&mut self, all: bool) -> io::Result<Accounts> {
        let command = if all { "accounts all" } else { "accounts" };
        decoded(self.command(command.as_bytes())?)
    }

    /// Returns what `ids` are of, those that are known.
    ///
    /// # Errors
    ///
    /// `ENODEV`: the service is removed. `ENOMEM`.
    pub fn names(&mut self, ids: &[u64]) -> io::Result<Vec<Name>> {
        let mut names = Vec::new();
        for some in ids.chunks(NAMES) {
            let words = some.iter().map(|id| format!(" {id:016x}"));
            let command = format!("names{}", words.collect::<String>());
            let answer = self.command(command.as_bytes())?;
            let lines = std::str::from_utf8(answer).map_err(|_| bad())?.lines();
            for line in lines {
                names.push(named(line).ok_or_else(bad)?);
            }
        }
        Ok(names)
    }

    /// Replaces all factors by `factors`, in the order of ids, and renews the lease.
    ///
    /// # Errors
    ///
    /// `ESTALE`: the service has another instance now. `EINVAL`: ids that do not ascend, a factor of 0 or above one, a lease
    /// of 0 or more than a minute. `E2BIG`: more than [`wire::FACTORS_MAX`]. `ENODEV`: the service is removed. `ENOMEM`. Nothing
    /// is changed then.
    pub fn factors(
        &mut self,
        instance: u64,
        lease: Duration,
        factors: &[(u64, u32)],
    ) -> io::Result<()> {
        let line = format!("factors {instance:016x} {}\n", lease.as_millis());
        let mut command = line.into_bytes();
        command.reserve(factors.len() * wire::Factor::SIZE);
        for &(id, factor) in factors {
            let pair = wire::Factor {
                id,
                factor,
                reserved: 0,
            };
            command.extend(pair.encode());
        }
        self.command(&command).map(drop)
    }

    /// Has the module carry out a command as it is; returns the answer. For tests of what is refused, too.
    ///
    /// # Errors
    ///
    /// That of the command, whose source is [`Refused`].
    pub fn command(&mut self, command: &[u8]) -> io::Result<&[u8]> {
        match self.file.write_at(command, 0) {
            Ok(len) if len == command.len() => self.answer(),
            Ok(_) => Err(io::ErrorKind::WriteZero.into()),
            Err(error) => match error.raw_os_error() {
                Some(errno) => {
                    // The errno has to do where no reason is answered.
                    let answer = self.answer().unwrap_or_default();
                    let reason = String::from_utf8_lossy(answer).trim_end().to_owned();
                    Err(io::Error::new(error.kind(), Refused { errno, reason }))
                }
                None => Err(error),
            },
        }
    }

    /// Reads the answer to the last command.
    fn answer(&mut self) -> io::Result<&[u8]> {
        let mut len = 0;
        loop {
            if len == self.answer.len() {
                self.answer.resize((len * 2).max(ROOM), 0);
            }
            match self.file.read_at(&mut self.answer[len..], len as u64) {
                Ok(0) => return Ok(&self.answer[..len]),
                Ok(more) => len += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn bad() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

/// The name in a line `ID LEVEL KEY`.
fn named(line: &str) -> Option<Name> {
    let mut words = line.splitn(3, ' ');
    Some(Name {
        id: u64::from_str_radix(words.next()?, 16).ok()?,
        level: words.next()?.to_owned(),
        key: words.next()?.to_owned(),
    })
}

/// The accounts in `bytes`; later modules may have longer records.
fn decoded(mut bytes: &[u8]) -> io::Result<Accounts> {
    let head = wire::Accounts::take(&mut bytes).ok_or_else(bad)?;
    let size = head.record_size as usize;
    if size < wire::Account::SIZE || head.count as usize != bytes.len() / size {
        return Err(bad());
    }
    let mut list = Vec::with_capacity(head.count as usize);
    for mut record in bytes.chunks_exact(size) {
        let record = wire::Account::take(&mut record).ok_or_else(bad)?;
        let is = |flag| record.flags & flag != 0;
        list.push(Account {
            id: record.id,
            parent: record.parent,
            service: record.service,
            weight: record.weight,
            factor: record.factor,
            level: record.level,
            leaf: is(wire::ACCOUNT_LEAF),
            active: is(wire::ACCOUNT_ACTIVE),
            waiting: is(wire::ACCOUNT_WAITING),
            gone: is(wire::ACCOUNT_GONE),
        });
    }
    Ok(Accounts {
        instance: head.instance,
        time_ns: head.time_ns,
        terms: head.terms,
        list,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(size: usize, records: &[wire::Account]) -> Vec<u8> {
        let head = wire::Accounts {
            record_size: size as u32,
            count: records.len() as u32,
            instance: 5,
            time_ns: 6,
            terms: 7,
        };
        let mut bytes = head.encode().to_vec();
        for record in records {
            let end = bytes.len() + size;
            bytes.extend(record.encode());
            bytes.resize(end, 0xff);
        }
        bytes
    }

    #[test]
    fn accounts_are_read() {
        let record = wire::Account {
            id: 1,
            parent: 2,
            service: 3,
            weight: 4,
            flags: wire::ACCOUNT_LEAF | wire::ACCOUNT_WAITING,
            factor: 5,
            level: 6,
        };
        let want = Account {
            id: 1,
            parent: 2,
            service: 3,
            weight: 4,
            factor: 5,
            level: 6,
            leaf: true,
            active: false,
            waiting: true,
            gone: false,
        };
        for size in [40, 48] {
            let accounts = decoded(&answer(size, &[record; 3])).unwrap();
            assert_eq!(
                (accounts.instance, accounts.time_ns, accounts.terms),
                (5, 6, 7)
            );
            assert_eq!(accounts.list, [want; 3]);
        }
        assert!(decoded(&answer(40, &[])).unwrap().list.is_empty());
        let whole = answer(40, &[record; 2]);
        for bytes in [
            &whole[..31],
            &whole[..32],
            &whole[..72],
            &[&whole[..], &[0; 40]].concat()[..],
        ] {
            assert!(decoded(bytes).is_err(), "{}", bytes.len());
        }
        assert!(decoded(&answer(0, &[])).is_err() && decoded(&answer(39, &[])).is_err());
    }

    #[test]
    fn names_are_read() {
        let name = named("00000000000000ff jobid jobid:a b").unwrap();
        assert_eq!(
            (name.id, &*name.level, &*name.key),
            (255, "jobid", "jobid:a b")
        );
        for line in ["", "1", "1 uid", "x uid uid:1"] {
            assert_eq!(named(line), None, "{line:?}");
        }
    }
}
