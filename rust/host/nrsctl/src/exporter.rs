// SPDX-License-Identifier: GPL-2.0-only

//! Exporter of snapshots as metrics for Prometheus.
//!
//! # Vocabulary
//!
//! - *Family*: all samples with one name. [`families::FAMILIES`] lists all families; the list in
//!   `Documentation/metrics.md` is generated from it ([`reference`]).
//! - *Sample*: a value of a family for one set of labels.
//! - *Page*: the text of all families that have samples, in Prometheus' text format ([`encode`]).
//! - *Shown* entities: the entities of a policy on a head with the most dispatched requests, up to
//!   a number set by the user.
//! - *Others*: the sum of all remaining entities of that policy on that head ([`others`]).
//!
//! ```text
//!   Kernel ──▶ stats::read ──▶ Snapshots ──▶ page::render ──▶ encode ──▶ http │ file │ stdout
//!                others (counts of earlier pages) ──┘
//! ```
//!
//! The encoder is the project's own: `prometheus-client` writes only OpenMetrics. Prometheus' tools
//! and the textfile collector need the older text format, which Prometheus reads as well.

pub mod encode;
pub mod families;
pub mod family;
pub mod http;
pub mod others;
pub mod page;
pub mod reference;
