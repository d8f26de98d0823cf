// SPDX-License-Identifier: MIT OR Apache-2.0

//! Agent of a service: reads accounts of service and sets factors of weights through
//! `/dev/nrs-control`.
//!
//! # Vocabulary
//!
//! - *Account*: weight and service of an entity, or of a group of entities ([`Account`]).
//! - *Instance*: number of the scope of ids; after a change the agent discards all ids that it
//!   knows.
//! - *Factor*: multiplier of a weight, units of 2^-31: 1 to [`crate::wire::FACTOR_ONE`].
//! - *Lease*: time for which factors are in effect. Without renewal they return to 1 in ten steps.
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
//! `Documentation/control.md` describes each errno.

use std::{
    error::Error,
    fmt,
    fs::{File, OpenOptions},
    io,
    os::unix::fs::FileExt,
    time::Duration,
};

use crate::wire::{self, WireField};

/// Path of the device node.
pub const NODE: &str = "/dev/nrs-control";

/// Initial size of the answer buffer, bytes.
const ROOM: usize = 64 << 10;

/// Largest number of ids in one command: more do not fit.
const NAMES: usize = 200;

/// The accounts of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accounts {
    /// Scope of the ids.
    pub instance: u64,
    /// Time of reading the accounts, monotonic ns.
    pub time_ns: u64,
    /// Hash of the mode and the cost model, equal on all servers; with `cgroup` in the mode it
    /// differs for each service. 0: there are no accounts.
    pub terms: u64,
    /// Records in ascending order of ids, one for each id.
    pub list: Vec<Account>,
}

/// Service of an entity or of a group of entities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Id of the entity or group.
    pub id: u64,
    /// Id of the group that contains it; 0: none.
    pub parent: u64,
    /// Service so far, units of cost; of a group: what no other record counts.
    pub service: u64,
    /// Weight among siblings, without the factor; 4096 for a weight of 1.
    pub weight: u32,
    /// Factor in effect, units of 2^-31.
    pub factor: u32,
    /// Level; 0 is the outermost.
    pub level: u32,
    /// True for an entity, false for a group.
    pub leaf: bool,
    /// True if the entity has requests, queued or in service.
    pub active: bool,
    /// True if the entity has queued requests.
    pub waiting: bool,
    /// True if the entity is removed; this is the last record.
    pub gone: bool,
}

/// Name of an entity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// Id of the entity.
    pub id: u64,
    /// Name of the level, as in the mode.
    pub level: String,
    /// Key at the level, as in `nrs_fairshare_stats`.
    pub key: String,
}

/// Refusal of a command by the module; the source of an [`io::Error`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Errno of the command.
    pub errno: i32,
    /// Reason from the module, one line; empty if there is none.
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
    /// Answer to the last command.
    answer: Vec<u8>,
}

impl Agent {
    /// Opens the node and becomes the agent of `service` until the `Agent` is dropped.
    ///
    /// # Errors
    ///
    /// The errors of `open`. `EBUSY`: another file is bound. `ENODEV`: no such service.
    pub fn bind(service: &str) -> io::Result<Self> {
        let mut agent = Self::open()?;
        agent.command(format!("bind {service}").as_bytes())?;
        Ok(agent)
    }

    /// Opens the node; the file is not bound.
    ///
    /// # Errors
    ///
    /// The errors of `open`; `EPERM`: the task lacks `CAP_SYS_ADMIN`.
    pub fn open() -> io::Result<Self> {
        Ok(Self {
            file: OpenOptions::new().read(true).write(true).open(NODE)?,
            answer: Vec::new(),
        })
    }

    /// Reads the accounts that changed since the last call, or `all` accounts.
    ///
    /// # Errors
    ///
    /// `ENODEV`: the service is removed. `EFBIG`: too many accounts. `ENOMEM`.
    pub fn accounts(&mut self, all: bool) -> io::Result<Accounts> {
        let command = if all { "accounts all" } else { "accounts" };
        decoded(self.command(command.as_bytes())?)
    }

    /// Returns the names of those `ids` that are known.
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

    /// Replaces all factors by `factors`, in ascending order of ids, and renews the lease.
    ///
    /// # Errors
    ///
    /// `ESTALE`: the service has another instance. `EINVAL`: ids are not ascending, a factor is 0
    /// or above 1, or the lease is 0 or more than one minute. `E2BIG`: more than
    /// [`wire::FACTORS_MAX`] factors. `ENODEV`: the service is removed. `ENOMEM`. On error, nothing
    /// is changed.
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

    /// Executes a command and returns the answer, also for tests of refused commands.
    ///
    /// # Errors
    ///
    /// The error of the command, with a [`Refused`] as its source.
    pub fn command(&mut self, command: &[u8]) -> io::Result<&[u8]> {
        match self.file.write_at(command, 0) {
            Ok(len) if len == command.len() => self.answer(),
            Ok(_) => Err(io::ErrorKind::WriteZero.into()),
            Err(error) => match error.raw_os_error() {
                Some(errno) => {
                    // Without a reason in the answer, the errno alone is reported.
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

/// Parses the name in a line `ID LEVEL KEY`.
fn named(line: &str) -> Option<Name> {
    let mut words = line.splitn(3, ' ');
    Some(Name {
        id: u64::from_str_radix(words.next()?, 16).ok()?,
        level: words.next()?.to_owned(),
        key: words.next()?.to_owned(),
    })
}

/// Decodes the accounts in `bytes`; later modules may have longer records.
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
