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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::read;
    use crate::top::samples;

    #[test]
    fn what_is_written_is_read_again() {
        let all = [
            samples::fairshare(0),
            samples::tbf(1),
            samples::many(0, 100),
        ];
        let header = Header::now(1.0);
        let mut file = Vec::new();
        let mut writer = Writer::new(&mut file, &header, u64::MAX).unwrap();
        for snapshot in &all {
            assert!(writer.add(snapshot).unwrap());
        }
        assert_eq!(writer.snapshots(), 3);
        let recording = read(&mut &file[..], "f").unwrap();
        assert_eq!(recording.header, header);
        assert_eq!(recording.snapshots, all);
    }

    #[test]
    fn no_more_than_so_many_bytes_and_whole_lines() {
        let snapshot = samples::fairshare(0);
        let length = serde_json::to_vec(&snapshot).unwrap().len() as u64 + 1;
        let header = Header::now(1.0);
        let first = serde_json::to_vec(&header).unwrap().len() as u64 + 1;
        for (room, want) in [(0, 0), (length - 1, 0), (length, 1), (length * 3 + 5, 3)] {
            let mut file = Vec::new();
            let mut writer = Writer::new(&mut file, &header, first + room).unwrap();
            let mut added = 0;
            while writer.add(&snapshot).unwrap() {
                added += 1;
            }
            assert_eq!(added, want);
            assert!(file.len() as u64 <= first + room);
            assert_eq!(read(&mut &file[..], "f").unwrap().snapshots.len(), want);
        }
    }
}
