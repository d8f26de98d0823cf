// SPDX-License-Identifier: GPL-2.0-only

//! Services that were made beforehand: the directories `nrs/SERVICE` in configfs.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The directory with one directory per service that was made.
#[derive(Debug)]
pub struct Configfs(PathBuf);

impl Configfs {
    /// That of the system at `root`.
    pub fn new(root: &Path) -> Self {
        Self(root.join("sys/kernel/config/nrs"))
    }

    /// Whether configfs is there, and the module in it.
    pub fn is_there(&self) -> bool {
        self.0.is_dir()
    }

    /// The services that were made.
    pub fn services(&self) -> io::Result<Vec<String>> {
        let entries = fs::read_dir(&self.0)?;
        let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        names.collect()
    }

    /// Whether `service` was made.
    pub fn has(&self, service: &str) -> bool {
        self.0.join(service).is_dir()
    }

    /// Makes `service`.
    pub fn make(&self, service: &str) -> io::Result<()> {
        fs::create_dir(self.0.join(service))
    }

    /// Removes `service`.
    pub fn remove(&self, service: &str) -> io::Result<()> {
        fs::remove_dir(self.0.join(service))
    }

    /// An attribute of `service`, without its line end.
    pub fn get(&self, service: &str, attribute: &str) -> io::Result<String> {
        let text = fs::read_to_string(self.0.join(service).join(attribute))?;
        Ok(text.trim_end().to_owned())
    }

    /// Sets an attribute of `service`.
    pub fn set(&self, service: &str, attribute: &str, value: &str) -> io::Result<()> {
        fs::write(self.0.join(service).join(attribute), format!("{value}\n"))
    }
}
