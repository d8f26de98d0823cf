// SPDX-License-Identifier: GPL-2.0-only

//! Writer of recordings.

use std::io::{self, Write};

use serde::Serialize;

use super::Header;
use crate::stats::Snapshot;

/// Writes a recording line by line, up to a maximum size.
pub struct Writer<'a> {
    to: &'a mut dyn Write,
    left: u64,
    snapshots: u64,
}

impl<'a> Writer<'a> {
    /// Begins a recording of at most `bytes_max` bytes.
    ///
    /// # Errors
    ///
    /// The error of writing.
    pub fn new(to: &'a mut dyn Write, header: &Header, bytes_max: u64) -> io::Result<Self> {
        let mut writer = Self {
            to,
            left: bytes_max,
            snapshots: 0,
        };
        writer.line(header)?;
        Ok(writer)
    }

    /// Adds a snapshot; returns false, without writing, if the snapshot exceeds the maximum size.
    ///
    /// # Errors
    ///
    /// The error of writing.
    pub fn add(&mut self, snapshot: &Snapshot) -> io::Result<bool> {
        let fits = self.line(snapshot)?;
        self.snapshots += u64::from(fits);
        Ok(fits)
    }

    /// Returns the number of written snapshots.
    pub fn snapshots(&self) -> u64 {
        self.snapshots
    }

    /// Writes a line with one call, so that a program ended between calls leaves only whole lines.
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
