// SPDX-License-Identifier: GPL-2.0-only

//! A file for the textfile collector of Prometheus' node exporter.

use std::path::Path;

use crate::failure::{Kind, Result};
use crate::replace::replace;

/// Replaces the file at `path` by one with `page` in it: whoever reads it sees the old one or the new one, whole. The
/// collector takes files whose names end in `.prom`, which that beside it meanwhile does not.
///
/// # Errors
///
/// As of [`replace`].
pub fn write(path: &Path, page: &str) -> Result {
    replace(path, page.as_bytes()).map_err(|failure| match failure.kind {
        Kind::NotFound | Kind::Permission => failure.hint("the directory has to be there, and has to take new files: the page is written beside the file and renamed"),
        _ => failure,
    })
}
