// SPDX-License-Identifier: GPL-2.0-only

//! Recordings: a file of snapshots, as `nrsctl record` writes it and `plot` and `top --from` read it.
//!
//! Text, one JSON value a line. The first line is the [`Header`]; each other one is a [`Snapshot`].
//!
//! # Vocabulary
//!
//! - *Whole line*: one that ends in a line feed. A writer that is ended hands out whole lines only; one that is killed, or whose
//!   disk is full, may leave a last line that is cut, which a reader leaves out and says so.

mod reader;
mod series;
mod writer;

use serde::{Deserialize, Serialize};

use crate::stats::Snapshot;

pub use reader::read;
pub use series::{Points, Series, What};
pub use writer::Writer;

/// The version of the format.
pub const VERSION: u32 = 1;

/// The first line.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// The version of the format.
    pub nrs_recording: u32,
    /// When it was begun, seconds since 1970.
    pub started_s: u64,
    /// How often snapshots were to be taken, seconds.
    pub interval_s: f64,
}

impl Header {
    /// One of a recording that begins now.
    pub fn now(interval_s: f64) -> Self {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Self {
            nrs_recording: VERSION,
            started_s: since.map_or(0, |since| since.as_secs()),
            interval_s,
        }
    }
}

/// A recording that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Recording {
    /// Its first line.
    pub header: Header,
    /// Its snapshots, in the order of the file.
    pub snapshots: Vec<Snapshot>,
    /// The number of the last line, if that was cut and left out.
    pub cut: Option<u64>,
}

impl Recording {
    /// The services in it, sorted.
    pub fn services(&self) -> Vec<String> {
        let mut names: Vec<String> = self.snapshots.iter().map(|s| s.service.clone()).collect();
        names.sort();
        names.dedup();
        names
    }

    /// The snapshots of a service.
    pub fn of<'a>(&'a self, service: &'a str) -> impl Iterator<Item = &'a Snapshot> + 'a {
        self.snapshots.iter().filter(move |s| s.service == service)
    }
}
