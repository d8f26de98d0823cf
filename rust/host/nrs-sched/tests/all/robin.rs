// SPDX-License-Identifier: GPL-2.0-only

//! Tests of whole round-robin policies: `crrn`, `orr` and `trr`.

use nrs_sched::policy::Kind;

/// The round-robin policies.
const ALL: [Kind; 3] = [Kind::Crrn, Kind::Orr, Kind::Trr];

mod bounds;
mod model;
mod sorting;
mod streams;
