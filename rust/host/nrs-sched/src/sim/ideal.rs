// SPDX-License-Identifier: GPL-2.0-only

//! What fluid sharing would have given to those who had requests.
//!
//! # Vocabulary
//!
//! - *Ideal*: at any time the service is divided among the children of a node that have requests below them,
//!   by weight, and so on from the root down (generalised processor sharing, Parekh and Gallager, 1993).
//! - *Error*: service over ideal service, less one.
//! - *Gap*: the ideal service that a leaf with requests missed between two of its requests.
//! - *Fair period*: the time in which the share of a leaf earns one largest request; a gap of `n` largest
//!   requests is a wait of `n` fair periods.

use super::Source;
use crate::{
    key::Key,
    policy::fairshare::{
        mode::{Level, Mode},
        weights::Weights,
    },
};
use std::collections::HashMap;

/// The node all paths start at.
const ROOT: usize = 0;

#[derive(Debug)]
struct Node {
    parent: usize,
    key: Key,
    /// Size of the job, 1 if the level does not ask for it.
    size: f64,
    weight: f64,
    /// Children with requests below them; requests of a leaf.
    busy: u64,
    /// Weights of the children with requests below them.
    sum: f64,
    share: f64,
    wanted: f64,
    got: f64,
    gap: f64,
}

/// What came out, worst leaf each.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Error, percent.
    pub error: f64,
    /// Longest wait, fair periods.
    pub wait: f64,
    /// The same without one largest request of everybody who has requests.
    pub over_a_round: f64,
}

/// The ideal tree.
#[derive(Debug)]
pub struct Ideal {
    nodes: Vec<Node>,
    /// The leaf of each source.
    leaves: Vec<usize>,
    /// Leaves with requests.
    busy: Vec<usize>,
    stale: bool,
    largest: f64,
    wait: f64,
    over_a_round: f64,
}

impl Ideal {
    /// The tree of `sources` by `mode`.
    pub fn new(mode: &Mode, weights: &Weights, sources: &[Source]) -> Self {
        let mut ideal = Self {
            nodes: vec![Node::new(ROOT, Key::Default, 1.0)],
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
                    ideal.nodes.push(Node::new(at, key, size));
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

    /// Everybody follows `weights`.
    pub fn weigh(&mut self, weights: &Weights) {
        for node in &mut self.nodes {
            node.weight = node.size * f64::from(weights.of(&node.key));
        }
        self.stale = true;
    }

    /// What came before does not count.
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

    /// Changes how busy the nodes above `leaf` are, from the leaf up to the first that `change` says to have been and
    /// to stay busy.
    fn climb(&mut self, leaf: usize, change: impl Fn(&mut u64) -> bool) {
        let mut at = leaf;
        while at != ROOT && !change(&mut self.nodes[at].busy) {
            self.stale = true;
            at = self.nodes[at].parent;
        }
    }

    /// Whoever has requests gets its part of what one of `source` costs, in the ideal.
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

    /// Divides the whole among those who have requests.
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
        // Parents come before their children.
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
            let Node { got, wanted, .. } = self.nodes[leaf];
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

impl Node {
    fn new(parent: usize, key: Key, size: f64) -> Self {
        Self {
            parent,
            key,
            size,
            weight: 1.0,
            busy: 0,
            sum: 0.0,
            // Below the root shares are divided before they are used.
            share: 1.0,
            wanted: 0.0,
            got: 0.0,
            gap: 0.0,
        }
    }
}
