// SPDX-License-Identifier: GPL-2.0-only

//! Who gets what, live: what `nrsctl top` shows, and how.
//!
//! # Vocabulary
//!
//! - *Source*: where snapshots come from: the module, or a recording ([`source`]).
//! - *Rates*: what differs between two snapshots, per second ([`rates`]).
//! - *Row*: an entity with its rates ([`row`]); *column*: what of it is shown, and sorted by.
//! - *State*: what is shown of which service, and how; keys and snapshots change it ([`state`]).
//! - *View*: a state drawn on a terminal's cells ([`view`]), or as plain text ([`plain`]).
//!
//! ```text
//!   source ──▶ rates ──▶ state ──▶ view ──▶ term (a terminal)
//!                          ▲  └───▶ plain (a table)
//!                        keys
//! ```

pub mod numbers;
pub mod plain;
pub mod rates;
pub mod row;
#[cfg(test)]
pub mod samples;
pub mod source;
pub mod state;
pub mod term;
pub mod view;
