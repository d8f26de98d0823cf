// SPDX-License-Identifier: GPL-2.0-only

//! Transit times of messages.
//!
//! A *link* connects a node to the network. The two directions do not share the bandwidth. Without
//! a bandwidth there are no links. The links of servers are not modelled.

use super::{
    device::transfer,
    item::{Op, Record},
};
use crate::scenario;
use nrs_sched::rng::Rng;

/// Times at which the two directions of a link become free, ns.
#[derive(Clone, Copy, Default)]
struct Link {
    up: u64,
    down: u64,
}

/// Returns the transit time of a message, ns: the latency plus a uniform part up to `jitter`.
pub fn delay(latency: u64, jitter: u64, rng: &mut Rng) -> u64 {
    match jitter {
        0 => latency,
        jitter => latency + rng.below(jitter + 1),
    }
}

/// Network between clients and servers.
pub struct SimNetwork {
    latency: u64,
    jitter: u64,
    bandwidth: u64,
    links: Vec<Link>,
    rng: Rng,
}

impl SimNetwork {
    /// Creates the network `written` for `nodes` nodes.
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

    /// Returns the time at which the request of `record`, sent at `now`, arrives at its server, ns.
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

    /// Returns the time at which the answer to `record`, sent at `now`, arrives at its client, ns.
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
