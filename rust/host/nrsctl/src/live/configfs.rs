// SPDX-License-Identifier: GPL-2.0-only

//! Services that were made beforehand: the directories `nrs/SERVICE` in configfs.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::configuration::read::is_service;

/// The directory with one directory per service that was made.
#[derive(Debug)]
pub struct Configfs(PathBuf);

impl Configfs {
    /// That of the system at `root`.
    pub fn new(root: &Path) -> Self {
        Self(root.join("sys/kernel/config/nrs"))
    }

    /// The directory of `service`, be it there or not.
    ///
    /// # Errors
    ///
    /// `ENOENT`: it is no name, so it could lead anywhere.
    fn of(&self, service: &str) -> io::Result<PathBuf> {
        match is_service(service) {
            true => Ok(self.0.join(service)),
            false => Err(io::Error::from_raw_os_error(libc::ENOENT)),
        }
    }

    /// Whether configfs is there, and the module in it.
    pub fn is_there(&self) -> bool {
        self.0.is_dir()
    }

    /// Whether `service` was made.
    pub fn has(&self, service: &str) -> bool {
        self.of(service).is_ok_and(|path| path.is_dir())
    }

    /// Makes `service`.
    ///
    /// # Errors
    ///
    /// What the module says; `EINVAL` for what is no name.
    pub fn make(&self, service: &str) -> io::Result<()> {
        let invalid = |_| io::Error::from_raw_os_error(libc::EINVAL);
        fs::create_dir(self.of(service).map_err(invalid)?)
    }

    /// Removes `service`.
    ///
    /// # Errors
    ///
    /// What the module says; `ENOENT` for what is no name.
    pub fn remove(&self, service: &str) -> io::Result<()> {
        fs::remove_dir(self.of(service)?)
    }

    /// An attribute of `service`, without its line end.
    ///
    /// # Errors
    ///
    /// As of [`Configfs::remove`].
    pub fn get(&self, service: &str, attribute: &str) -> io::Result<String> {
        let text = fs::read_to_string(self.of(service)?.join(attribute))?;
        Ok(text.trim_end().to_owned())
    }

    /// Sets an attribute of `service`.
    ///
    /// # Errors
    ///
    /// As of [`Configfs::remove`].
    pub fn set(&self, service: &str, attribute: &str, value: &str) -> io::Result<()> {
        fs::write(self.of(service)?.join(attribute), format!("{value}\n"))
    }
}
