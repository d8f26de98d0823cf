// SPDX-License-Identifier: GPL-2.0-only

//! How long messages are under way.
//!
//! * A *link* joins a node to the network; what goes one way does not keep what goes the other way. Without a
//!   bandwidth there are no links. Servers' links are not modelled.

use super::{
    device::transfer,
    item::{Op, Record},
};
use crate::scenario;
use nrs_sched::rng::Rng;

/// When each way of a link is free, ns.
#[derive(Clone, Copy, Default)]
struct Link {
    up: u64,
    down: u64,
}

/// How long a message is under way, ns.
pub fn delay(latency: u64, jitter: u64, rng: &mut Rng) -> u64 {
    match jitter {
        0 => latency,
        jitter => latency + rng.below(jitter + 1),
    }
}

/// Between clients and servers.
pub struct Network {
    latency: u64,
    jitter: u64,
    bandwidth: u64,
    links: Vec<Link>,
    rng: Rng,
}

impl Network {
    /// The network `written`, of `nodes` nodes.
    pub fn new(written: &scenario::Network, nodes: u32, seed: u64) -> Self {
        let bandwidth = written.bandwidth.map_or(0, |rate| rate.0);
        let links = if bandwidth == 0 { 0 } else { nodes as usize };
        Self {
            latency: written.latency.0,
            jitter: written.jitter.0,
            bandwidth,
            links: vec![Link::default(); links],
            rng: Rng::new(seed),
        }
    }

    /// When the request of `record`, sent at `now`, is at its server, ns.
    pub fn request(&mut self, record: &Record, now: u64) -> u64 {
        let mut at = now;
        if let Some(link) = self.links.get_mut(record.node as usize) {
            link.up = link.up.max(now);
            if record.op == Op::Write {
                link.up += transfer(record.bytes, self.bandwidth);
            }
            at = link.up;
        }
        at + delay(self.latency, self.jitter, &mut self.rng)
    }

    /// When the answer to `record`, sent at `now`, is at its client, ns.
    pub fn answer(&mut self, record: &Record, now: u64) -> u64 {
        let at = now + delay(self.latency, self.jitter, &mut self.rng);
        let Some(link) = self.links.get_mut(record.node as usize) else {
            return at;
        };
        link.down = link.down.max(at);
        if record.op == Op::Read {
            link.down += transfer(record.bytes, self.bandwidth);
        }
        link.down
    }
}
