// SPDX-License-Identifier: GPL-2.0-only

//! Client of the manager: a client key in a group, for which a request class has claimed a gate.
//!
//! ```text
//!  a class claims a gate         idle for the idle time        idle for [`KEEP`], or gates scarce
//!  ─────────────────────► here ◄────────────────────────► left ──────────────────────► (removed)
//!                                     busy again
//! ```
//!
//! A client that has left keeps its gate, with the start rate of new clients of the group.

use super::usage::RecentUsage;
use crate::sched::{
    qbm::{
        allocator::ClientId,
        gate::{Gate, GateOwner, Usage},
        plan::{ClientKey, RequestOwner},
        terms::{Entitlement, LAST, UNREGULATED},
    },
    statistics::stats,
    units::NSEC_PER_SEC,
};

/// Time for which a client that left keeps its gate while gates are not scarce, ns.
pub const KEEP: u64 = 10 * NSEC_PER_SEC;

stats! {
    /// Counters of a group; clients have all but the last three.
    GroupCounts {
        requests: Counter Plain "nrs_group_dispatched_requests_total" "Dispatched requests";
        read_bytes: Counter Plain "nrs_group_read_bytes_total" "Bytes read";
        written_bytes: Counter Plain "nrs_group_written_bytes_total" "Bytes written";
        sleeps: Counter Plain "nrs_group_limit_hits_total"
            "Periods in which a client was throttled";
        restores: Counter Plain "" "Requests to restore the allocation after a decrease";
        increases_asked: Counter Plain "" "Requests for an increase of the allocation";
        increases_whole: Counter Plain "" "Increases granted";
        increases_partly: Counter Plain "" "Increases granted in part";
        increases_refused: Counter Plain "" "Increases refused";
        decreases: Counter Plain "" "Decreases of unused allocations";
        losses: Counter Plain "nrs_group_losses_total"
            "Reductions of allocations in favour of other clients";
        taken_by_others: Counter Plain ""
            "Bandwidth lost by reductions in favour of other clients, bytes/s";
        joins: Counter Plain "" "Registrations of clients";
        leaves: Counter Plain "" "Removals of idle clients";
        without_gate: Counter Plain "" "Request classes without a gate of their own";
    }
}

/// Names of the counters that clients do not have.
pub const OF_GROUPS: [&str; 3] = ["joins", "leaves", "without_gate"];

/// Client of a group.
pub struct ManagedClient {
    /// Client key and group; [`crate::sched::key::Key::Default`] for the users of the shared gate.
    pub owner: GateOwner,
    /// Index of the group in the manager's list.
    pub group: u32,
    /// Identifier at the allocator; `None` if the client is only measured, or has left.
    pub id: Option<ClientId>,
    /// Terms; `None` if the client is only measured.
    pub terms: Option<Entitlement>,
    /// Generation of the plan in which `terms` were looked up; 0 forces a new lookup.
    pub planned: u32,
    /// True if the client is registered.
    pub here: bool,
    /// Time of the last request, monotonic ns.
    pub busy: u64,
    /// Number of requests dispatched at the gate until the last tick.
    requests: u64,
    /// True if the client was waiting for tokens at the last tick.
    asleep: bool,
    /// True if the client decreased in this tick.
    pub lowered: bool,
    /// Rate of the gate, bytes/s.
    pub rate: u64,
    /// Time of the last restore, monotonic ns.
    pub restored: u64,
    /// Recent usage.
    pub recent: RecentUsage,
    /// Counters since the last reset, without those of the gate.
    pub counters: GroupCounts,
    /// Counters of the gate at the last reset.
    pub base: Usage,
}

impl ManagedClient {
    /// Creates the client `owner`, with the group at index `group`, registered at `now`.
    pub fn new(owner: GateOwner, group: u32, now: u64) -> Self {
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
            recent: RecentUsage::new(now),
            counters: GroupCounts::ZERO,
            base: Usage::default(),
        }
    }

    /// Sets the terms according to the plan of `generation`. Terms of devices are always looked up
    /// again, because names of devices may change without a new plan.
    pub fn plan(&mut self, terms: Option<Entitlement>, generation: u32) {
        self.terms = terms;
        self.planned = match self.owner.who.party {
            ClientKey::Key(_) => generation,
            ClientKey::Device(_) => 0,
        };
    }

    /// Updates `busy` and the throttled periods since the last tick, at `last`. If the client
    /// waited during all of that time, the periods are counted now, because the gate counts them
    /// only when the request is dispatched.
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

    /// Returns the traffic of `gate` since the last reset.
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

    /// Returns true if requests were dispatched at `gate` since the last tick.
    pub fn has_moved(&self, gate: &Gate) -> bool {
        gate.usage().requests != self.requests
    }

    /// Returns the rank of the client's class: the highest rank if the client is only measured, the
    /// lowest for the shared gate.
    pub fn rank(&self) -> u8 {
        if self.owner.who.party == RequestOwner::SHARED.party {
            return LAST;
        }
        self.terms.map_or(0, |terms| terms.class.rank())
    }

    /// Sets the rate of the gate; returns true if the gate changed.
    pub fn set(&mut self, gate: &Gate, rate: u64, now: u64) -> bool {
        self.recent.slow.allow(self.rate, now);
        self.rate = rate;
        let before = gate.version();
        gate.set(rate, self.rank(), now);
        gate.version() != before
    }
}
