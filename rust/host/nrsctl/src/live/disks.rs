// SPDX-License-Identifier: GPL-2.0-only

//! Disks whose I/O scheduler is nrs, from `/sys/block`.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread::sleep;

use super::errno;
use crate::configuration::{carry_out::PAUSE, devices::DEFAULTS};
use crate::kernel::Device;

/// Name of the scheduler.
pub const NRS: &str = "nrs";

/// File in `queue` that selects the scheduler.
pub const SCHEDULER: &str = "scheduler";

/// File in `queue` with the scheduler's number of requests per hardware queue.
const REQUESTS: &str = "nr_requests";

/// Minimum of `nr_requests`. Submitters that wait for a free request get it in order of arrival,
/// whatever the policy. The kernel's default is twice the device's queue depth.
const NR_REQUESTS_MIN: u32 = 256;

/// Number of attempts to write a file of a busy queue, [`PAUSE`] apart.
const TRIES: u32 = 10;

/// Returns true if `errno` of a write to `file` means that another change of the disk is in
/// progress.
fn is_busy(file: &str, errno: i32) -> bool {
    errno == libc::EAGAIN || file == SCHEDULER && errno == libc::EBUSY
}

/// Function that writes a text to a file in sysfs.
type Put = fn(&Path, &str) -> io::Result<()>;

/// Disks of a system.
#[derive(Debug)]
pub struct Disks {
    block: PathBuf,
    dev: PathBuf,
    put: Put,
}

/// A device above a disk that submits requests without their user and cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HidingLayer {
    /// Path of the device.
    pub path: String,
    /// What the device is, such as `raid5`.
    pub kind: String,
}

/// A device above a disk.
#[derive(Debug)]
pub struct Layer {
    /// Name in `/dev`.
    pub name: String,
    /// Level of a RAID of md.
    pub level: Option<String>,
    /// Name of a device of device-mapper.
    pub mapped: Option<String>,
}

/// A failed write.
#[derive(Debug)]
pub struct RefusedWrite {
    /// File name.
    pub file: &'static str,
    /// Error number of the write.
    pub errno: i32,
    /// Error number of the undo, if the undo failed as well.
    pub undo: Option<i32>,
}

impl Disks {
    /// Returns the disks of the system at `root`, written by `put`.
    pub fn new(root: &Path, put: Put) -> Self {
        Self {
            block: root.join("sys/block"),
            dev: root.join("dev"),
            put,
        }
    }

    /// Returns the sysfs name of `path`, which may already be a name.
    pub fn name(&self, path: &str) -> String {
        let node = match path.strip_prefix("/dev/") {
            Some(below) => self.dev.join(below),
            None => return path.replace('/', "!"),
        };
        // Symbolic links, such as the links in /dev/disk/by-id, point to the node.
        let node = fs::canonicalize(&node).unwrap_or(node);
        let name = node.strip_prefix(&self.dev).unwrap_or(Path::new(path));
        name.to_string_lossy().replace('/', "!")
    }

    /// Returns the names of all disks, sorted.
    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = names(&self.block).collect();
        names.sort();
        names
    }

    /// Returns true if a disk called `name` exists.
    pub fn exists(&self, name: &str) -> bool {
        self.names().iter().any(|disk| disk == name)
    }

    /// Returns the disk of the partition `name`; `None` if `name` is not a partition.
    pub fn of_partition(&self, name: &str) -> Option<String> {
        let has = |disk: &String| self.block.join(disk).join(name).join("partition").exists();
        self.names().into_iter().find(has)
    }

    /// Returns the devices above `disk` and its partitions, sorted by their names.
    pub fn layers(&self, disk: &str) -> Vec<Layer> {
        let (mut found, mut pending) = (BTreeSet::new(), vec![disk.to_owned()]);
        while let Some(name) = pending.pop() {
            let device = self.block.join(name);
            let parts = names(&device).map(|name| device.join(name));
            let parts = parts.filter(|part| part.join("partition").exists());
            for part in parts.chain([device.clone()]) {
                let new = names(&part.join("holders")).filter(|name| found.insert(name.clone()));
                pending.extend(new);
            }
        }
        let of = |name: &str, file: &str| read(&self.block.join(name).join(file)).ok();
        let layer = |name: String| Layer {
            level: of(&name, "md/level"),
            mapped: of(&name, "dm/name"),
            name,
        };
        found.into_iter().map(layer).collect()
    }

    /// Returns the disks whose scheduler is nrs, sorted; disks removed in the meantime are left
    /// out.
    pub fn devices(&self) -> Vec<Device> {
        let scheduled = |name: &String| self.scheduler(name).is_ok_and(|active| active == NRS);
        let names = self.names().into_iter().filter(scheduled);
        names.filter_map(|name| self.device(name).ok()).collect()
    }

    /// Returns the disk `name` with its scheduler's settings.
    fn device(&self, name: String) -> io::Result<Device> {
        let disk = self.block.join(&name);
        let options = DEFAULTS.into_iter().map(|(option, _)| {
            let value = read(&self.file(&name, option))?;
            Ok((option.to_owned(), value))
        });
        Ok(Device {
            service: read(&self.file(&name, "service"))?,
            // The paths of a multipath NVMe disk are hidden: they have no device number.
            target: read(&disk.join("dev")).unwrap_or_else(|_| name.clone()),
            offset: 0,
            sectors: read(&disk.join("size"))?.parse().unwrap_or_default(),
            options: options.collect::<io::Result<_>>()?,
            scheduled: true,
            partial: false,
            name,
        })
    }

    /// Returns the path of a file of the queue or of the scheduler of `disk`.
    fn file(&self, disk: &str, file: &str) -> PathBuf {
        let queue = self.block.join(disk).join("queue");
        match file {
            SCHEDULER | REQUESTS => queue.join(file),
            _ => queue.join("iosched").join(file),
        }
    }

    /// Returns the available schedulers of `disk` in the format of sysfs.
    pub fn schedulers(&self, disk: &str) -> io::Result<String> {
        read(&self.file(disk, SCHEDULER))
    }

    /// Returns the scheduler of `disk`: the word in brackets, or the only word.
    fn scheduler(&self, disk: &str) -> io::Result<String> {
        let text = self.schedulers(disk)?;
        let mut words = text.split_ascii_whitespace();
        let active = words.find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
        Ok(active.unwrap_or(&text).to_owned())
    }

    /// Returns the current value of a file.
    fn get(&self, disk: &str, file: &str) -> io::Result<String> {
        match file {
            SCHEDULER => self.scheduler(disk),
            _ => read(&self.file(disk, file)),
        }
    }

    /// Writes a file; retries while another change of the disk is in progress.
    fn set(&self, disk: &str, file: &'static str, text: &str) -> io::Result<()> {
        let path = self.file(disk, file);
        let mut tries = 1;
        loop {
            match (self.put)(&path, text) {
                Err(error) if tries < TRIES && is_busy(file, errno::of(&error)) => {
                    tries += 1;
                    sleep(PAUSE);
                }
                done => return done,
            }
        }
    }

    /// Makes nrs the scheduler of `disk.name`, with the options and the service of `disk`.
    ///
    /// # Errors
    ///
    /// The failed write. The old settings are restored, unless the undo failed as well.
    pub fn schedule(&self, disk: &Device) -> Result<(), RefusedWrite> {
        let mut wanted = vec![(SCHEDULER, NRS)];
        for (option, _) in DEFAULTS {
            let value = disk.options.get(option);
            wanted.extend(value.map(|value| (option, &value[..])));
        }
        if !disk.service.is_empty() {
            wanted.push(("service", &disk.service));
        }
        let name = &disk.name;
        let mut before: Vec<(&'static str, String)> = Vec::new();
        for (file, value) in wanted {
            let done = self.get(name, file).and_then(|old| {
                if old == value {
                    return Ok(());
                }
                before.push((file, old));
                self.set(name, file, value)
            });
            if let Err(error) = done {
                let mut undo = None;
                for (file, old) in before.iter().rev() {
                    if self.get(name, file).is_ok_and(|now| now != *old) {
                        let failed = self.set(name, file, old).err();
                        undo = undo.or(failed.as_ref().map(errno::of));
                    }
                }
                return Err(RefusedWrite {
                    file,
                    errno: errno::of(&error),
                    undo,
                });
            }
        }
        self.raise_requests(name);
        Ok(())
    }

    /// Raises the scheduler's number of requests to at least [`NR_REQUESTS_MIN`]. A failure is
    /// ignored: nrs works with fewer requests.
    fn raise_requests(&self, disk: &str) {
        let now = self.get(disk, REQUESTS).ok();
        let now = now.and_then(|now| now.parse::<u32>().ok());
        if now.is_some_and(|now| now < NR_REQUESTS_MIN) {
            let _ = self.set(disk, REQUESTS, &NR_REQUESTS_MIN.to_string());
        }
    }

    /// Replaces nrs by `scheduler` as the scheduler of `disk`.
    ///
    /// # Errors
    ///
    /// The failed write; `ESRCH`: nrs is not the scheduler.
    pub fn unschedule(&self, disk: &str, scheduler: &str) -> Result<(), RefusedWrite> {
        let done = match self.scheduler(disk) {
            Ok(active) if active != NRS => Err(io::Error::from_raw_os_error(libc::ESRCH)),
            Ok(_) => self.set(disk, SCHEDULER, scheduler),
            Err(error) => Err(error),
        };
        done.map_err(|error| RefusedWrite {
            file: SCHEDULER,
            errno: errno::of(&error),
            undo: None,
        })
    }
}

/// Reads a one-line file.
pub fn read(path: &Path) -> io::Result<String> {
    Ok(fs::read_to_string(path)?.trim_end().to_owned())
}

/// Returns the names in a directory, which may not exist.
pub fn names(directory: &Path) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok())
}
