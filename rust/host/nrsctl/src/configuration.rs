// SPDX-License-Identifier: GPL-2.0-only

//! What files in `/etc/nrs` say the services are to be.
//!
//! # Vocabulary
//!
//! - *Document*: a file of TOML in which everything knows its place ([`document`]).
//! - *Fault*: something wrong, with file, line, column and key ([`fault`]).
//! - *State*: all that can be set of a service, in one form ([`state::State`]).
//! - *Wanted*: the states that files ask for ([`read::Wanted`]).
//! - *Running*: the state that the module shows ([`running`]).
//! - *Step*: one write that leads from one state towards another ([`plan`]).
//!
//! ```text
//!   files ──document──▶ read ──▶ wanted ──┐
//!                                         ├─plan─▶ steps ──carry_out──▶ Kernel
//!   Kernel ──running──▶ running state ────┘
//!                            └──render──▶ text (save, and the two sides of a diff)
//! ```

pub mod agent;
pub mod bandwidth;
pub mod carry_out;
pub mod devices;
pub mod document;
pub mod edit;
pub mod fault;
pub mod files;
pub mod keys;
pub mod plan;
pub mod read;
pub mod render;
pub mod rules;
pub mod running;
pub mod state;
pub mod weights;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crate::accounts::Accounts;
use crate::failure::{Failure, Kind, Result};
use crate::kernel::Kernel;
use fault::Fault;
use files::File;
use read::Wanted;

/// What `files` want together.
///
/// # Errors
///
/// [`Kind::Refused`] with a line for each fault.
pub fn wanted(files: &[File], accounts: &Accounts) -> Result<Wanted> {
    let (wanted, faults) = parse(files, accounts);
    if faults.is_empty() {
        return Ok(wanted);
    }
    let lines: Vec<String> = faults.iter().map(Fault::to_string).collect();
    let message = format!("the configuration is wrong\n{}", lines.join("\n"));
    Err(Failure::new(Kind::Refused, message).hint("nothing was changed"))
}

/// What `files` want together, and all that is wrong with them.
pub fn parse(files: &[File], accounts: &Accounts) -> (Wanted, Vec<Fault>) {
    let files = files.iter();
    read::read(files.map(|file| (&file.name[..], &file.text[..])), accounts)
}

/// The parameters of the module as they are, of those that can be configured.
///
/// # Errors
///
/// What [`Kernel::module_parameter`] returns.
pub fn module(kernel: &dyn Kernel) -> Result<BTreeMap<&'static str, String>> {
    let value = |(name, ..): (&'static str, u64, u64, &str)| {
        let value = kernel.module_parameter(name)?;
        Ok((name, value.trim().to_string()))
    };
    keys::MODULE.into_iter().map(value).collect()
}
