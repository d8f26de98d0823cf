// SPDX-License-Identifier: GPL-2.0-only

//! Configuration files in `/etc/nrs`, and their comparison with the running state.
//!
//! [`nrs_agent::toml`] parses a TOML file into a tree whose keys and values have places. [`read`]
//! turns the files into the wanted [`state::ServiceState`] of each service, device and disk, and
//! collects all [`Fault`]s with file, line, column and key. [`running`] reads the state that the
//! module shows. Both are the text `config`, by which [`carry_out`] replaces all settings at once.
//!
//! ```text
//!   files ────toml────▶ read ──▶ wanted state ──text, carry_out──▶ Kernel
//!   Kernel ──running──▶ running state                        (config)
//!                            └──render──▶ text (save, and the two sides of a diff)
//! ```

pub mod bandwidth;
pub mod carry_out;
pub mod devices;
pub mod edit;
pub mod files;
pub mod keys;
pub mod read;
pub mod render;
pub mod running;
pub mod state;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use nrs_agent::toml::Fault;

use crate::accounts::Accounts;
use crate::failure::{failure, FailureKind, Result};
use crate::kernel::Kernel;
use files::File;
use read::Wanted;

/// Returns the configuration that `files` define together.
///
/// # Errors
///
/// [`FailureKind::Refused`] with a line for each fault.
pub fn wanted(files: &[File], accounts: &Accounts) -> Result<Wanted> {
    let (wanted, faults) = parse(files, accounts);
    if faults.is_empty() {
        return Ok(wanted);
    }
    let lines: Vec<String> = faults.iter().map(Fault::to_string).collect();
    Err(failure!(Refused: "invalid configuration\n{}", lines.join("\n"); "nothing was changed"))
}

/// Returns the configuration that `files` define together, and all faults in the files.
pub fn parse(files: &[File], accounts: &Accounts) -> (Wanted, Vec<Fault>) {
    let files = files.iter();
    read::read(files.map(|file| (&file.name[..], &file.text[..])), accounts)
}

/// Reads the current values of the configurable module parameters.
///
/// # Errors
///
/// Errors of [`Kernel::module_parameter`].
pub fn module(kernel: &dyn Kernel) -> Result<BTreeMap<&'static str, String>> {
    let value = |(name, ..): (&'static str, u64, u64, &str)| {
        match kernel.module_parameter(name) {
            Ok(value) => Some(Ok((name, value.trim().to_string()))),
            // An older module lacks the parameter.
            Err(failure) if failure.kind == FailureKind::NotFound => None,
            Err(failure) => Some(Err(failure)),
        }
    };
    keys::MODULE.into_iter().filter_map(value).collect()
}
