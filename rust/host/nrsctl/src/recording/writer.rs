// SPDX-License-Identifier: GPL-2.0-only

//! Writing a recording.

use std::io::{self, Write};

use serde::Serialize;

use super::Header;
use crate::stats::Snapshot;

/// Writes a recording, line by line, up to a number of bytes.
pub struct Writer<'a> {
    to: &'a mut dyn Write,
    left: u64,
    snapshots: u64,
}

impl<'a> Writer<'a> {
    /// Begins one of at most `bytes_max` bytes.
    ///
    /// # Errors
    ///
    /// What writing returns.
    pub fn new(to: &'a mut dyn Write, header: &Header, bytes_max: u64) -> io::Result<Self> {
        let mut writer = Self {
            to,
            left: bytes_max,
            snapshots: 0,
        };
        writer.line(header)?;
        Ok(writer)
    }

    /// Adds a snapshot; false if there is no room for it, and nothing was written.
    ///
    /// # Errors
    ///
    /// What writing returns.
    pub fn add(&mut self, snapshot: &Snapshot) -> io::Result<bool> {
        let fits = self.line(snapshot)?;
        self.snapshots += u64::from(fits);
        Ok(fits)
    }

    /// How many snapshots were written.
    pub fn snapshots(&self) -> u64 {
        self.snapshots
    }

    /// Writes a line with one call, so that a program that is ended between calls leaves whole ones.
    fn line(&mut self, value: &impl Serialize) -> io::Result<bool> {
        let mut line = serde_json::to_vec(value)?;
        line.push(b'\n');
        let Some(left) = self.left.checked_sub(line.len() as u64) else {
            return Ok(false);
        };
        self.to.write_all(&line)?;
        self.to.flush()?;
        self.left = left;
        Ok(true)
    }
}
