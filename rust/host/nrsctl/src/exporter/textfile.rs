// SPDX-License-Identifier: GPL-2.0-only

//! A file for the textfile collector of Prometheus' node exporter.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process;

use crate::failure::{Failure, Kind, Result};

/// Replaces the file at `path` by one with `page` in it: whoever reads it sees the old one or the new one, whole.
///
/// # Errors
///
/// Its directory does not take a file; the old one is as it was.
pub fn write(path: &Path, page: &str) -> Result {
    let failure = |error: std::io::Error| {
        Failure::new(Kind::Other, format!("{}: {error}", path.display()))
            .hint("the directory has to be there, and has to take new files: the page is written beside the file and renamed")
    };
    let name = path.file_name().ok_or_else(|| {
        Failure::new(
            Kind::Usage,
            format!("'{}' is no name of a file", path.display()),
        )
    })?;
    // The collector takes files whose names end in .prom.
    let beside = path.with_file_name(format!(".{}.{}", name.to_string_lossy(), process::id()));
    let written = File::create(&beside).and_then(|mut file| {
        file.write_all(page.as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, path)
    });
    written.map_err(|error| {
        let _ = fs::remove_file(&beside);
        failure(error)
    })
}
