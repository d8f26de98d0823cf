// SPDX-License-Identifier: GPL-2.0-only

//! Snapshots as metrics for Prometheus.
//!
//! # Vocabulary
//!
//! - *Family*: all samples of one name; [`families::FAMILIES`] lists all there are, and the list in
//!   `Documentation/metrics.md` is written from it ([`reference`]).
//! - *Sample*: a value of a family for one set of labels.
//! - *Page*: the text of all families that have samples, in Prometheus' text format ([`encode`]).
//! - *Shown* entities: those of a policy on a head that were served most, so many as the user wants.
//! - *Others*: all other entities of that policy on that head, summed up as one ([`others`]).
//!
//! ```text
//!   Kernel ──▶ stats::read ──▶ Snapshots ──▶ page::Page ──▶ encode ──▶ http │ a file │ standard output
//!                                  others (what was counted before) ──┘
//! ```
//!
//! The encoder is one of our own: that of `prometheus-client` writes OpenMetrics only, while Prometheus' tools and
//! the textfile collector take the older text format, which Prometheus takes, too.

pub mod encode;
pub mod families;
pub mod http;
pub mod others;
pub mod page;
pub mod reference;
