// SPDX-License-Identifier: GPL-2.0-only

//! Check of the file for the agent, by the agent's own parser.

use std::path::Path;

use nrs_agent::{config, toml};

use super::fault::{Fault, FilePosition};
use super::files::{File, DIRECTORY};

/// Returns the faults of `file`; in [`DIRECTORY`], also the faults of the files that `file` names.
pub fn faults(file: &File) -> Vec<Fault> {
    let faults = match config::parse(&file.name, &file.text, &config::host()) {
        Ok(config) if Path::new(&file.name).starts_with(DIRECTORY) => config::check_files(&config),
        Ok(_) => Vec::new(),
        Err(faults) => faults,
    };
    let fault = |fault: toml::Fault| {
        let place = FilePosition {
            file: file.name.as_str().into(),
            line: fault.place.line,
            column: fault.place.column,
        };
        Fault::new(place, fault.key, fault.reason)
    };
    faults.into_iter().map(fault).collect()
}
