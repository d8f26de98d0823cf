// SPDX-License-Identifier: GPL-2.0-only

//! What other schedulers take for a decision: ranges of several runs, ns, on another machine.

use nrs_report::stat::Spread;

/// A scheduler and what it takes among so many classes.
pub struct Anchor {
    /// What it is, and how it selects.
    pub name: &'static str,
    /// What was measured, and how.
    pub source: &'static str,
    /// Classes, and the least and the most of the runs.
    ns: &'static [(u32, f64, f64)],
}

impl Anchor {
    /// What it takes among `classes`.
    pub fn among(&self, classes: u32) -> Option<Spread> {
        self.spreads()
            .find_map(|(count, ns)| (count == classes).then_some(ns))
    }

    /// Classes, and what it takes.
    pub fn spreads(&self) -> impl Iterator<Item = (u32, Spread)> + Clone {
        self.ns.iter().map(|&(count, low, high)| {
            let median = (low + high) / 2.0;
            (count, Spread { low, median, high })
        })
    }
}

/// All of them.
pub const ANCHORS: [Anchor; 3] = [
    Anchor {
        name: "ThemisIO, random draw",
        source: "FairQueue of the public ThemisIO sources, get + put, -O2",
        ns: &[
            (2, 97.0, 177.0),
            (8, 142.0, 276.0),
            (64, 616.0, 868.0),
            (256, 2_500.0, 3_000.0),
            (1_000, 13_600.0, 18_200.0),
        ],
    },
    Anchor {
        name: "ThemisIO, cycle",
        source: "the same with its other selection, CYCLE",
        ns: &[
            (2, 52.0, 109.0),
            (8, 98.0, 110.0),
            (64, 638.0, 932.0),
            (256, 3_300.0, 3_700.0),
            (1_000, 18_000.0, 21_000.0),
        ],
    },
    Anchor {
        name: "dmclock",
        source: "PullPriorityQueue of ceph/dmclock, pull + add, -O2 -DNDEBUG, 3 runs",
        ns: &[
            (2, 209.0, 405.0),
            (8, 300.0, 532.0),
            (64, 409.0, 620.0),
            (256, 473.0, 785.0),
            (1_000, 657.0, 1_130.0),
            (4_096, 1_200.0, 1_900.0),
        ],
    },
];
