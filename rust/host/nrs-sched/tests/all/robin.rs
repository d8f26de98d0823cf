// SPDX-License-Identifier: GPL-2.0-only

//! The policies that go round, whole: `crrn`, `orr` and `trr`.

use nrs_sched::policy::Kind;

/// The policies.
const ALL: [Kind; 3] = [Kind::Crrn, Kind::Orr, Kind::Trr];

mod bounds;
mod model;
mod sorting;
mod streams;
