// SPDX-License-Identifier: GPL-2.0-only

//! The files `nrs/SERVICE/PARAMETER` in debugfs.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::transport::{Refused, Result, Transport};
use crate::errno;

/// The directory with one directory per service.
#[derive(Debug)]
pub struct Debugfs(PathBuf);

impl Debugfs {
    /// That of the system at `root`.
    pub fn new(root: &Path) -> Self {
        Self(root.join("sys/kernel/debug/nrs"))
    }

    /// The file of a parameter.
    fn path(&self, service: &str, parameter: &str) -> Result<PathBuf> {
        self.services()?
            .iter()
            .any(|name| name == service)
            .then(|| self.0.join(service).join(parameter))
            .ok_or(Refused::NoService)
    }
}

/// Why a file could not be opened. Files of a kernel that is locked down are refused here.
fn opening(error: &io::Error) -> Refused {
    match errno::of(error) {
        errno::EPERM | errno::EACCES => Refused::DENIED,
        errno => Refused::errno(errno),
    }
}

impl Transport for Debugfs {
    fn services(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.0).map_err(|error| Refused::entering(&error))? {
            let entry = entry.map_err(|error| Refused::errno(errno::of(&error)))?;
            if entry.path().is_dir() {
                names.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
        Ok(names)
    }

    fn get(&self, service: &str, parameter: &str) -> Result<String> {
        let path = self.path(service, parameter)?;
        let file = OpenOptions::new().read(true).open(path);
        let file = file.map_err(|error| opening(&error))?;
        io::read_to_string(file).map_err(|error| Refused::errno(errno::of(&error)))
    }

    fn set(&self, service: &str, parameter: &str, value: &str) -> Result {
        let path = self.path(service, parameter)?;
        let file = OpenOptions::new().write(true).truncate(true).open(path);
        let mut file = file.map_err(|error| opening(&error))?;
        // One write is one value.
        let text = format!("{value}\n");
        match file.write(text.as_bytes()) {
            Ok(len) if len == text.len() => {}
            Ok(_) => return Err(Refused::errno(errno::EIO)),
            Err(error) => return Err(Refused::errno(errno::of(&error))),
        }
        drop(file);
        // It is carried out as the file is closed, and what fails then is told here only.
        match parameter {
            "nrs_qbm_config" => self.carried_out(service),
            _ => Ok(()),
        }
    }
}

impl Debugfs {
    /// Says whether the configuration that was written last was carried out.
    fn carried_out(&self, service: &str) -> Result {
        let reason = self.get(service, "nrs_qbm_config_error")?;
        match reason.lines().next() {
            None => Ok(()),
            Some(line) if line.contains("still stopping") => {
                Err(Refused::Errno(errno::EAGAIN, Some(line.to_owned())))
            }
            Some(line) => Err(Refused::Errno(errno::EINVAL, Some(line.to_owned()))),
        }
    }
}
