// SPDX-License-Identifier: GPL-2.0-only

//! The policies that go round, whole: `crrn`, `orr` and `trr`.

pub mod bench;
mod bounds;
mod model;
mod sorting;
mod streams;
