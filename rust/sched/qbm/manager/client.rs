// SPDX-License-Identifier: GPL-2.0-only

//! A client: a party in a group, which a class claimed a gate for.
//!
//! ```text
//!  a class claims a gate          not busy for the idle time          nor for [`KEEP`], or gates are scarce
//!  ─────────────────────► here ◄────────────────────────────────► left ────────────────────────────► (gone)
//!                                        busy again
//! ```
//!
//! A client that left has its gate, and what newcomers of its group start with.

use super::usage::Recent;
use crate::sched::{
    qbm::{
        allocator::ClientId,
        gate::{Gate, Owner, Usage},
        plan::{Party, Who},
        terms::{Terms, LAST, UNREGULATED},
    },
    statistics::stats,
    units::NSEC_PER_SEC,
};

/// How long a client that left keeps its gate while these are not scarce, ns.
pub const KEEP: u64 = 10 * NSEC_PER_SEC;

stats! {
    /// Counters of a group; those of a client without the last three.
    GroupCounts {
        requests: Counter Plain "nrs_group_dispatched_requests_total" "Dispatched requests";
        read_bytes: Counter Plain "nrs_group_read_bytes_total" "Bytes read";
        written_bytes: Counter Plain "nrs_group_written_bytes_total" "Bytes written";
        sleeps: Counter Plain "nrs_group_limit_hits_total" "Waits for an allocation";
        restores: Counter Plain "" "Requests for bandwidth that was given up";
        increases_asked: Counter Plain "" "Requests for more bandwidth";
        increases_whole: Counter Plain "" "Increases granted";
        increases_partly: Counter Plain "" "Increases granted in part";
        increases_refused: Counter Plain "" "Increases refused";
        decreases: Counter Plain "" "Decreases of allocations that were not used";
        losses: Counter Plain "nrs_group_losses_total" "Allocations reduced for other clients";
        taken_by_others: Counter Plain "" "Sum of these reductions, bytes/s";
        joins: Counter Plain "" "Clients that registered";
        leaves: Counter Plain "" "Clients that left";
        seatless: Counter Plain "" "Clients for which there was no gate";
    }
}

/// Counters that clients do not have.
pub const OF_GROUPS: [&str; 3] = ["joins", "leaves", "seatless"];

/// A client.
pub struct Client {
    /// Who it is, and in which group; [`crate::sched::key::Key::Default`]: those that share the gate of the group.
    pub owner: Owner,
    /// Its group, by its place in the manager's list.
    pub group: u32,
    /// Its name at the allocator; `None`: it is only measured, or has left.
    pub id: Option<ClientId>,
    /// What it is promised; `None`: it is only measured.
    pub terms: Option<Terms>,
    /// Generation of the plan that `terms` were looked up in; 0: to be looked up again.
    pub planned: u32,
    /// Whether it is registered.
    pub here: bool,
    /// When it had requests last, monotonic ns.
    pub busy: u64,
    /// Requests that had gone through its gate at the last tick.
    requests: u64,
    /// It waited for tokens at the last tick.
    asleep: bool,
    /// It gave up bandwidth in this tick.
    pub lowered: bool,
    /// What its gate was set to, bytes/s.
    pub rate: u64,
    /// Before this nothing is restored again, monotonic ns.
    pub restored: u64,
    /// What it used of late.
    pub recent: Recent,
    /// What was counted since the last reset, but for what its gate counts.
    pub counters: GroupCounts,
    /// What its gate had counted at the last reset.
    pub base: Usage,
}

impl Client {
    /// The client `owner`, whose group is at `group`, met at `now`.
    pub fn new(owner: Owner, group: u32, now: u64) -> Self {
        Self {
            owner,
            group,
            id: None,
            terms: None,
            planned: 0,
            here: false,
            busy: now,
            requests: 0,
            asleep: false,
            lowered: false,
            rate: UNREGULATED,
            restored: now,
            recent: Recent::new(now),
            counters: GroupCounts::ZERO,
            base: Usage::default(),
        }
    }

    /// Sets what the plan of `generation` promises the client. Names of devices may change without a plan.
    pub fn plan(&mut self, terms: Option<Terms>, generation: u32) {
        self.terms = terms;
        self.planned = match self.owner.who.party {
            Party::Key(_) => generation,
            Party::Device(_) => 0,
        };
    }

    /// Sees at `now` whether the client was busy since the last tick, at `last`; counts periods that it has waited
    /// for tokens in that whole time, which the gate is told of when the request goes.
    pub fn see(&mut self, gate: &Gate, last: u64, now: u64) {
        let requests = gate.usage().requests;
        let went = core::mem::replace(&mut self.requests, requests) != requests;
        let queued = gate.users() > 0;
        if went || gate.is_busy() {
            self.busy = now;
        }
        let asleep = queued && gate.balance(now) < 0;
        if asleep && core::mem::replace(&mut self.asleep, asleep) && !went {
            gate.sleep(last, now);
        }
        self.asleep = asleep;
    }

    /// Returns what `gate` counted since the last reset.
    pub fn traffic(&self, gate: &Gate) -> GroupCounts {
        let usage = gate.usage();
        GroupCounts {
            requests: usage.requests.saturating_sub(self.base.requests),
            read_bytes: usage.read.saturating_sub(self.base.read),
            written_bytes: usage.written.saturating_sub(self.base.written),
            sleeps: usage.sleeps.saturating_sub(self.base.sleeps),
            ..GroupCounts::ZERO
        }
    }

    /// Whether requests went through `gate` since the last tick.
    pub fn has_moved(&self, gate: &Gate) -> bool {
        gate.usage().requests != self.requests
    }

    /// The rank of its class; that of the highest one for a client that is only measured, the last one for those that
    /// share a gate.
    pub fn rank(&self) -> u8 {
        if self.owner.who.party == Who::NOBODY.party {
            return LAST;
        }
        self.terms.map_or(0, |terms| terms.class.rank())
    }

    /// Sets its gate to `rate`; whether the gate changed.
    pub fn set(&mut self, gate: &Gate, rate: u64, now: u64) -> bool {
        self.recent.slow.allow(self.rate, now);
        self.rate = rate;
        let before = gate.version();
        gate.set(rate, self.rank(), now);
        gate.version() != before
    }
}
