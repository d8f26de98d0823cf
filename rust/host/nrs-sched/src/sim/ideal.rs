// SPDX-License-Identifier: GPL-2.0-only

//! Fluid model: the service that generalised processor sharing would give to each leaf (Parekh and
//! Gallager, 1993).
//!
//! At any time, the service of a node is divided by weight among its children with requests below
//! them, from the root down. The error of a leaf is its service divided by its ideal service, minus
//! one. The gap of a backlogged leaf is its ideal service since its last dispatched request. A fair
//! period is the time in which a leaf's ideal service grows by one largest request. A gap of `n`
//! largest requests is thus a wait of `n` fair periods.

use super::Source;
use crate::{
    key::Key,
    policy::fairshare::{
        entity_table::Weights,
        mode::{Level, Mode},
    },
};
use std::collections::HashMap;

/// Index of the root node.
const ROOT: usize = 0;

#[derive(Debug)]
struct IdealNode {
    parent: usize,
    key: Key,
    /// Size of the job; 1 if the level does not use sizes.
    size: f64,
    weight: f64,
    /// Number of children with requests below them; for a leaf, number of requests.
    busy: u64,
    /// Sum of the weights of the children with requests below them.
    sum: f64,
    share: f64,
    wanted: f64,
    got: f64,
    gap: f64,
}

/// Result of a simulation; each value is that of the worst leaf.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Error, percent.
    pub error: f64,
    /// Longest wait, fair periods.
    pub wait: f64,
    /// Longest wait minus one largest request of each backlogged leaf, fair periods.
    pub over_a_round: f64,
}

/// Tree of the fluid model.
#[derive(Debug)]
pub struct Ideal {
    nodes: Vec<IdealNode>,
    /// Index of the leaf of each source.
    leaves: Vec<usize>,
    /// Leaves with requests.
    busy: Vec<usize>,
    stale: bool,
    largest: f64,
    wait: f64,
    over_a_round: f64,
}

impl Ideal {
    /// Creates the tree of `sources` for `mode`.
    pub fn new(mode: &Mode, weights: &Weights, sources: &[Source]) -> Self {
        let mut ideal = Self {
            nodes: vec![IdealNode::new(ROOT, Key::Default, 1.0)],
            leaves: Vec::new(),
            busy: Vec::new(),
            stale: true,
            largest: 1.0,
            wait: 0.0,
            over_a_round: 0.0,
        };
        let mut index = HashMap::new();
        for source in sources {
            let mut at = ROOT;
            for level in mode.levels() {
                let key = Key::of(level.field(), &source.attrs);
                let size = match level {
                    Level::Size => f64::from(source.attrs.size.max(1)),
                    _ => 1.0,
                };
                at = *index.entry((at, key)).or_insert_with(|| {
                    ideal.nodes.push(IdealNode::new(at, key, size));
                    ideal.nodes.len() - 1
                });
            }
            ideal.leaves.push(at);
            let largest = source.pages.iter().copied().max().unwrap_or(1);
            ideal.largest = ideal.largest.max(f64::from(largest));
        }
        ideal.weigh(weights);
        ideal
    }

    /// Applies `weights` to all nodes.
    pub fn weigh(&mut self, weights: &Weights) {
        for node in &mut self.nodes {
            node.weight = node.size * f64::from(weights.of(&node.key));
        }
        self.stale = true;
    }

    /// Resets the service and the gaps of all nodes.
    pub fn forget(&mut self) {
        for node in &mut self.nodes {
            (node.wanted, node.got, node.gap) = (0.0, 0.0, 0.0);
        }
        (self.wait, self.over_a_round) = (0.0, 0.0);
    }

    pub(super) fn arrives(&mut self, source: usize) {
        self.climb(self.leaves[source], |busy| {
            *busy += 1;
            *busy > 1
        });
    }

    /// Updates `busy` from `leaf` upwards, up to the first node for which `change` returns true:
    /// the node was busy and stays busy.
    fn climb(&mut self, leaf: usize, change: impl Fn(&mut u64) -> bool) {
        let mut at = leaf;
        while at != ROOT && !change(&mut self.nodes[at].busy) {
            self.stale = true;
            at = self.nodes[at].parent;
        }
    }

    /// Credits each backlogged leaf with its share of `pages` in the ideal; `source` is served
    /// `pages`.
    pub(super) fn serves(&mut self, source: usize, pages: u32) {
        if self.stale {
            self.divide();
        }
        let (leaf, pages) = (self.leaves[source], f64::from(pages));
        let gap = self.nodes[leaf].gap;
        self.wait = self.wait.max(gap);
        let round = self.nodes[leaf].share * self.busy.len() as f64 * self.largest;
        self.over_a_round = self.over_a_round.max(gap - round);
        for &at in &self.busy {
            let node = &mut self.nodes[at];
            node.wanted += node.share * pages;
            node.gap += node.share * pages;
        }
        self.nodes[leaf].got += pages;
        self.nodes[leaf].gap = 0.0;
        self.climb(leaf, |busy| {
            *busy -= 1;
            *busy > 0
        });
    }

    /// Computes the share of each node with requests.
    fn divide(&mut self) {
        self.stale = false;
        self.nodes.iter_mut().for_each(|node| node.sum = 0.0);
        for at in 1..self.nodes.len() {
            let node = &self.nodes[at];
            let (parent, weight) = (node.parent, node.weight);
            if node.busy > 0 {
                self.nodes[parent].sum += weight;
            }
        }
        // Parents precede their children.
        for at in 1..self.nodes.len() {
            let node = &self.nodes[at];
            let above = &self.nodes[node.parent];
            self.nodes[at].share = match node.busy {
                0 => 0.0,
                _ => above.share * node.weight / above.sum,
            };
        }
        self.busy.clear();
        for &leaf in &self.leaves {
            if self.nodes[leaf].busy > 0 {
                self.busy.push(leaf);
            } else {
                self.nodes[leaf].gap = 0.0;
            }
        }
        self.busy.sort_unstable();
        self.busy.dedup();
    }

    pub(super) fn outcome(&self) -> Outcome {
        let mut error: f64 = 0.0;
        for &leaf in &self.leaves {
            let IdealNode { got, wanted, .. } = self.nodes[leaf];
            if wanted > 0.0 {
                error = error.max((got / wanted - 1.0).abs() * 100.0);
            }
        }
        Outcome {
            error,
            wait: self.wait / self.largest,
            over_a_round: self.over_a_round / self.largest,
        }
    }
}

impl IdealNode {
    fn new(parent: usize, key: Key, size: f64) -> Self {
        Self {
            parent,
            key,
            size,
            weight: 1.0,
            busy: 0,
            sum: 0.0,
            // Shares of nodes below the root are computed before they are used.
            share: 1.0,
            wanted: 0.0,
            got: 0.0,
            gap: 0.0,
        }
    }
}
