// SPDX-License-Identifier: GPL-2.0-only

//! Recordings: files of snapshots, written by `nrsctl record` and read by `plot` and `top --from`.
//!
//! The format is text with one JSON value per line. The first line is the [`Header`]; each further
//! line is a [`Snapshot`].
//!
//! # Vocabulary
//!
//! - *Whole line*: a line that ends in a line feed. A writer that is ended writes only whole lines.
//!   A writer that is killed, or whose disk is full, may leave a truncated last line. A reader
//!   leaves this line out and reports it.

mod reader;
mod series;
mod writer;

use serde::{Deserialize, Serialize};

use crate::stats::Snapshot;

pub use reader::read;
pub use series::{Series, SeriesKind};
pub use writer::Writer;

/// Version of the format.
pub const VERSION: u32 = 1;

/// First line of a recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// Version of the format.
    pub nrs_recording: u32,
    /// Start time, seconds since 1970.
    pub started_s: u64,
    /// Requested interval of snapshots, s.
    pub interval_s: f64,
}

impl Header {
    /// Creates the header of a recording that starts now.
    pub fn now(interval_s: f64) -> Self {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Self {
            nrs_recording: VERSION,
            started_s: since.map_or(0, |since| since.as_secs()),
            interval_s,
        }
    }
}

/// Contents of a recording file.
#[derive(Clone, Debug, PartialEq)]
pub struct Recording {
    /// First line.
    pub header: Header,
    /// Snapshots in the order of the file.
    pub snapshots: Vec<Snapshot>,
    /// Number of the last line if it was truncated and left out.
    pub cut: Option<u64>,
}

impl Recording {
    /// Returns the names of the recorded services, sorted.
    pub fn services(&self) -> Vec<String> {
        let mut names: Vec<String> = self.snapshots.iter().map(|s| s.service.clone()).collect();
        names.sort();
        names.dedup();
        names
    }

    /// Returns the snapshots of a service.
    pub fn of<'a>(&'a self, service: &'a str) -> impl Iterator<Item = &'a Snapshot> + 'a {
        self.snapshots.iter().filter(move |s| s.service == service)
    }
}
