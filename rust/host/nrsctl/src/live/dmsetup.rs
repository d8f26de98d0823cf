// SPDX-License-Identifier: GPL-2.0-only

//! Interface to `dmsetup`: clients of services that are devices of type `nrs`.

use std::collections::BTreeMap;
use std::env;
use std::io;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::errno;
use crate::kernel::Device;

/// Directories of the program, which a user's `PATH` may lack.
const SBIN: &str = ":/usr/sbin:/sbin";

/// Number of attempts to read all tables: `dmsetup` fails if a device disappears meanwhile.
const TABLE_TRIES: u32 = 10;

/// The program and the system on which it works; functions fail with the failure of their run.
#[derive(Debug)]
pub struct Dmsetup {
    program: &'static str,
    /// `None`: the system's program. Under the root of a test it is a script, which is read by a
    /// shell instead of executed: a new script may still be open for writing in a process started
    /// by another thread.
    script: Option<PathBuf>,
    /// File that exists if udev runs and creates the nodes in `/dev/mapper`.
    udev: PathBuf,
}

/// Failure of a run.
#[derive(Debug)]
pub enum DmsetupError {
    /// The program could not be started.
    Unstarted(io::Error),
    /// The program failed: error number (`EIO` if unknown) and error output without
    /// `Command failed.`
    Failed(i32, String),
}

impl DmsetupError {
    /// Returns the failure of a program with the error output `of_description`.
    fn failed(said: &str) -> Self {
        let lines = said.lines().filter(|line| !line.trim().is_empty());
        let lines: Vec<&str> = lines.filter(|line| *line != "Command failed.").collect();
        let errno = lines.iter().find_map(|line| errno::of_description(line));
        Self::Failed(errno.unwrap_or(libc::EIO), lines.join("; "))
    }
}

/// Returns true for a level of RAID that computes parity: its threads submit all writes.
pub fn is_parity(level: &str) -> bool {
    ["raid4", "raid5", "raid6"]
        .iter()
        .any(|parity| level.starts_with(parity))
}

/// Result of runs.
type DmsetupResult<T = ()> = std::result::Result<T, DmsetupError>;

impl Dmsetup {
    /// Creates the interface for the system at `root`; for a root other than `/` the program is the
    /// script there.
    pub fn new(root: &Path) -> Self {
        let script = (root != Path::new("/")).then(|| root.join("sbin/dmsetup"));
        Self {
            program: "dmsetup",
            script,
            udev: root.join("run/udev/control"),
        }
    }

    /// Creates the interface to a program that is not installed.
    #[cfg(test)]
    pub fn missing() -> Self {
        Self {
            program: "/nowhere/dmsetup",
            ..Self::new(Path::new("/"))
        }
    }

    /// Runs the program and returns its output.
    fn run(&self, arguments: &[&str]) -> DmsetupResult<String> {
        let mut command = match &self.script {
            None => Command::new(self.program),
            Some(script) => {
                let mut shell = Command::new("sh");
                shell.arg(script);
                shell
            }
        };
        let mut path = env::var_os("PATH").unwrap_or_default();
        path.push(SBIN);
        command.env("PATH", path).env("LC_ALL", "C").args(arguments);
        // In a process group of its own, the program ends its work after an interrupt from the
        // terminal.
        command.process_group(0);
        let done = command.output().map_err(DmsetupError::Unstarted)?;
        if let Some(signal) = done.status.signal() {
            let message = format!("dmsetup was ended by signal {signal}");
            return Err(DmsetupError::Failed(libc::EINTR, message));
        }
        match done.status.success() {
            true => Ok(String::from_utf8_lossy(&done.stdout).into_owned()),
            false => Err(DmsetupError::failed(&String::from_utf8_lossy(&done.stderr))),
        }
    }

    /// Returns the tables of all devices, a target per line.
    fn tables(&self) -> DmsetupResult<String> {
        let mut tries = 1;
        loop {
            match self.run(&["table"]) {
                Err(DmsetupError::Failed(libc::ENXIO, _)) if tries < TABLE_TRIES => tries += 1,
                done => return done,
            }
        }
    }

    /// Returns the devices of type `nrs` from their tables.
    pub fn devices(&self) -> DmsetupResult<Vec<Device>> {
        let text = self.tables()?;
        let of = |name: &str| {
            let names = text
                .lines()
                .filter_map(|line| Some(line.split_once(": ")?.0));
            names.filter(|other| *other == name).count()
        };
        let mut devices: Vec<Device> = text.lines().filter_map(device).collect();
        for device in &mut devices {
            device.partial = of(&device.name) > 1;
        }
        Ok(devices)
    }

    /// Returns the devices whose target hides the owners of requests, by their names, and what they
    /// are.
    pub fn hiding(&self) -> DmsetupResult<BTreeMap<String, String>> {
        let kind = |line: &str| {
            let (name, table) = line.split_once(": ")?;
            let mut words = table.split(' ').skip(2);
            let kind = match (words.next()?, words.next()?) {
                ("raid", level) if is_parity(level) => level,
                ("integrity", _) => "dm-integrity",
                ("snapshot-origin", _) => "dm-snapshot",
                _ => return None,
            };
            Some((name.to_owned(), kind.to_owned()))
        };
        Ok(self.tables()?.lines().filter_map(kind).collect())
    }

    /// Runs a command that creates or removes nodes, without waiting for udev if udev does not run.
    fn change(&self, arguments: &[&str]) -> DmsetupResult {
        if self.udev.exists() {
            return self.run(arguments).map(|_| ());
        }
        self.run(&[arguments, &["--noudevsync", "--noudevrules"]].concat())?;
        self.run(&["mknodes"]).map(|_| ())
    }

    /// Creates the device `name`.
    pub fn create(&self, name: &str, table: &str) -> DmsetupResult {
        self.change(&["create", name, "--table", table])
    }

    /// Replaces the table of the device `name`. After a failure the old table stays
    /// in use, or the message says that restoring it failed.
    pub fn reload(&self, name: &str, table: &str) -> DmsetupResult {
        self.run(&["reload", name, "--table", table])?;
        let resumed = self.change(&["resume", name]);
        let Err(DmsetupError::Failed(errno, said)) = resumed else {
            return resumed;
        };
        // After a failed resume the device may stay suspended.
        let cleared = self.run(&["clear", name]);
        let again = cleared.and_then(|_| self.change(&["resume", name]));
        Err(match again {
            Ok(()) => DmsetupError::Failed(errno, said),
            Err(_) => DmsetupError::Failed(
                libc::EIO,
                format!("{said}; resuming the old table failed, too: the device may be suspended"),
            ),
        })
    }

    /// Returns true if the device `name` is open.
    pub fn is_open(&self, name: &str) -> DmsetupResult<bool> {
        let columns = ["info", "-c", "--noheadings", "-o", "open", name];
        Ok(self.run(&columns)?.trim() != "0")
    }

    /// Removes the device `name`; retries for some seconds while it is open, for example in a udev
    /// program.
    pub fn remove(&self, name: &str) -> DmsetupResult {
        self.change(&["remove", "--retry", name])
    }
}

/// Parses a line `NAME: START LEN nrs DEVICE OFFSET SERVICE [COUNT WORD...]`.
fn device(line: &str) -> Option<Device> {
    let (name, table) = line.split_once(": ")?;
    let mut words = table.split_ascii_whitespace();
    let _start = words.next()?;
    let sectors = words.next()?.parse().ok()?;
    (words.next()? == "nrs").then_some(())?;
    let target = words.next()?.to_owned();
    let offset = words.next()?.parse().ok()?;
    let service = words.next()?.to_owned();
    let options: Vec<&str> = words.skip(1).collect();
    let options = options.chunks_exact(2);
    Some(Device {
        name: name.to_owned(),
        service,
        target,
        offset,
        sectors,
        options: options
            .map(|pair| (pair[0].to_owned(), pair[1].to_owned()))
            .collect(),
        ..Device::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let line = "files: 0 2097152 nrs 8:16 2048 ost_io 4 nid 10.0.0.7@tcp jobid_name %e.%u";
        let found = device(line).unwrap();
        assert_eq!((&found.name[..], &found.service[..]), ("files", "ost_io"));
        assert_eq!(
            (&found.target[..], found.offset, found.sectors),
            ("8:16", 2048, 2_097_152)
        );
        assert_eq!(
            (found.options.len(), &*found.options["jobid_name"]),
            (2, "%e.%u")
        );
        let wrong = [
            "",
            "No devices found",
            "a: 0 8 linear 8:16 0",
            "a: 0 x nrs 8:1 0 s",
            "a: 0 8 nrs 8:1",
        ];
        assert!(wrong.iter().all(|line| device(line).is_none()));
        for (said, errno) in [
            (
                "device-mapper: create ioctl on a  failed: Device or resource busy\n\
                 Command failed.\n",
                libc::EBUSY,
            ),
            ("Too many levels of symbolic links.\n", libc::ELOOP),
            ("something else\n", libc::EIO),
        ] {
            let DmsetupError::Failed(found, words) = DmsetupError::failed(said) else {
                panic!("it was started");
            };
            assert!(found == errno && !words.contains("Command failed"));
        }
    }
}
