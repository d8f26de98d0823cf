// SPDX-License-Identifier: GPL-2.0-only

//! Live view of shares, rates and latencies: `nrsctl top`.
//!
//! # Vocabulary
//!
//! - *Source*: provider of snapshots: the module or a recording ([`source`]).
//! - *Rates*: differences of counters between two snapshots, per second ([`rates`]).
//! - *Row*: an entity with its rates ([`row`]); *column*: a quantity of the entity for display and
//!   sorting.
//! - *State*: displayed service, rows and settings; changed by keys and snapshots ([`state`]).
//! - *View*: the state drawn on a terminal ([`view`]) or written as plain text ([`plain`]).
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
