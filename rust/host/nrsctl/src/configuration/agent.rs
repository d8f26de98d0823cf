// SPDX-License-Identifier: GPL-2.0-only

//! Check of the file for the agent, by the agent's own parser.

use std::path::Path;

use nrs_agent::config::{self, Mistake};

use super::fault::{Fault, FilePosition};
use super::files::{File, DIRECTORY};

/// Returns the faults of `file`; in [`DIRECTORY`], also the faults of the files that `file` names.
pub fn faults(file: &File) -> Vec<Fault> {
    let mistakes = match config::parse(&file.text, &config::host()) {
        Ok(config) if Path::new(&file.name).starts_with(DIRECTORY) => config::check_files(&config),
        Ok(_) => Vec::new(),
        Err(mistakes) => mistakes,
    };
    let fault = |mistake: Mistake| {
        let place = FilePosition {
            file: file.name.as_str().into(),
            line: mistake.line,
            column: mistake.column,
        };
        Fault::new(place, mistake.key, mistake.reason)
    };
    mistakes.into_iter().map(fault).collect()
}
