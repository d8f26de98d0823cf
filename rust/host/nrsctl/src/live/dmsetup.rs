// SPDX-License-Identifier: GPL-2.0-only

//! `dmsetup`: the clients of services, which are devices of type `nrs`.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::transport::{Refused, Result};
use crate::errno;
use crate::kernel::Device;

/// The program, and where the system is that it works on.
#[derive(Debug)]
pub struct Dmsetup {
    /// None: the system's own. In a root of tests it is a script, which is read rather than executed: one that was only
    /// just written may still be open in a process that another thread is starting.
    script: Option<PathBuf>,
    /// What tells that somebody else makes the nodes in `/dev/mapper`.
    udev: PathBuf,
}

/// Why a run failed: an errno, and what was said.
#[derive(Debug)]
pub struct Broken {
    /// The number, as far as it can be told.
    pub errno: i32,
    /// What the program said, without its last line that says that it failed.
    pub said: String,
}

impl Broken {
    fn new(said: &str) -> Self {
        let lines = said.lines().filter(|line| !line.trim().is_empty());
        let lines: Vec<&str> = lines.filter(|line| *line != "Command failed.").collect();
        let errno = lines.iter().find_map(|line| errno::said(line));
        Self {
            errno: errno.unwrap_or(errno::EIO),
            said: lines.join("; "),
        }
    }
}

impl From<Broken> for Refused {
    fn from(broken: Broken) -> Self {
        match broken.errno {
            errno::EACCES | errno::EPERM if broken.said.contains("control") => Refused::DENIED,
            errno => Refused::errno(errno),
        }
    }
}

impl Dmsetup {
    /// That of the system at `root`; with another root than `/` it is the script there.
    pub fn new(root: &Path) -> Self {
        let script = (root != Path::new("/")).then(|| root.join("sbin/dmsetup"));
        Self {
            script,
            udev: root.join("run/udev/control"),
        }
    }

    /// Runs it; returns what it prints.
    ///
    /// # Errors
    ///
    /// [`Refused::ABSENT`] without the program, else what it said.
    fn run(&self, arguments: &[&str]) -> Result<std::result::Result<String, Broken>> {
        let mut command = match &self.script {
            None => Command::new("dmsetup"),
            Some(script) if script.exists() => {
                let mut shell = Command::new("sh");
                shell.arg(script);
                shell
            }
            Some(_) => return Err(Refused::ABSENT),
        };
        command.env("LC_ALL", "C").args(arguments);
        let done = command
            .output()
            .map_err(|error| Refused::entering(&error))?;
        Ok(match done.status.success() {
            true => Ok(String::from_utf8_lossy(&done.stdout).into_owned()),
            false => Err(Broken::new(&String::from_utf8_lossy(&done.stderr))),
        })
    }

    /// The devices of type `nrs`, as their tables say.
    ///
    /// # Errors
    ///
    /// As of [`Dmsetup::message`].
    pub fn devices(&self) -> Result<Vec<Device>> {
        let text = self.run(&["table", "--target", "nrs"])??;
        Ok(text.lines().filter_map(device).collect())
    }

    /// Sends the words of `message` to `device`; returns the answer.
    ///
    /// # Errors
    ///
    /// [`Refused::ABSENT`] without the program, [`Refused::DENIED`] where device-mapper is not for this user, else the errno.
    pub fn message(&self, device: &str, message: &[&str]) -> Result<String> {
        let mut arguments = vec!["message", device, "0"];
        for word in message {
            // What begins so would be an option.
            if word.starts_with('-') && !arguments.contains(&"--") {
                arguments.push("--");
            }
            arguments.push(word);
        }
        Ok(self.run(&arguments)??)
    }

    /// Runs what makes or removes nodes, in a way that does not wait for a udev that is not there.
    ///
    /// # Errors
    ///
    /// As of [`Dmsetup::create`].
    fn change(&self, arguments: &[&str]) -> Result<std::result::Result<(), Broken>> {
        let alone = !self.udev.exists();
        let mut all = arguments.to_vec();
        if alone {
            all.extend(["--noudevsync", "--noudevrules"]);
        }
        let done = self.run(&all)?.map(|_| ());
        if alone && done.is_ok() {
            return Ok(self.run(&["mknodes"])?.map(|_| ()));
        }
        Ok(done)
    }

    /// Makes the device `name`.
    ///
    /// # Errors
    ///
    /// [`Refused::ABSENT`] without the program; within, what the program said.
    pub fn create(&self, name: &str, table: &str) -> Result<std::result::Result<(), Broken>> {
        self.change(&["create", name, "--table", table])
    }

    /// Removes the device `name`.
    ///
    /// # Errors
    ///
    /// As of [`Dmsetup::create`].
    pub fn remove(&self, name: &str) -> Result<std::result::Result<(), Broken>> {
        self.change(&["remove", name])
    }
}

/// The device of a line `NAME: START LEN nrs DEVICE OFFSET SERVICE [COUNT WORD...]`.
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
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_lines() {
        let line = "files: 0 2097152 nrs 8:16 2048 ost_io 4 nid 10.0.0.7@tcp jobid_name %e.%u";
        let device = device(line).unwrap();
        assert_eq!((&device.name[..], &device.service[..]), ("files", "ost_io"));
        assert_eq!((&device.target[..], device.offset), ("8:16", 2048));
        assert_eq!(device.sectors, 2_097_152);
        let words = |word: &str| device.options.get(word).cloned();
        assert_eq!(words("nid").as_deref(), Some("10.0.0.7@tcp"));
        assert_eq!(words("jobid_name").as_deref(), Some("%e.%u"));
        for wrong in [
            "",
            "No devices found",
            "a: 0 8 linear 8:16 0",
            "a: 0 x nrs 8:1 0 s",
            "a: 0 8 nrs 8:1",
        ] {
            assert!(super::device(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn what_it_says_is_an_errno() {
        for (said, errno) in [
            (
                "device-mapper: message ioctl on files  failed: Invalid argument\nCommand failed.\n",
                errno::EINVAL,
            ),
            (
                "device-mapper: create ioctl on a  failed: Device or resource busy\nCommand failed.\n",
                errno::EBUSY,
            ),
            ("something else\n", errno::EIO),
        ] {
            let broken = Broken::new(said);
            assert_eq!(broken.errno, errno);
            assert!(!broken.said.contains("Command failed"));
        }
        let denied = Broken::new("/dev/mapper/control: open failed: Permission denied\nFailure to communicate with kernel device-mapper driver.\n");
        assert_eq!(Refused::from(denied), Refused::DENIED);
    }
}
