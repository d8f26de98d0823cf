// SPDX-License-Identifier: GPL-2.0-only

//! Bandwidth manager and gates of a service without partitions.

use crate::{
    key::Key,
    mem::Shared,
    policy::Nothing,
    qbm::{
        gate::{Gate, GateClaim, Gates},
        manager::BandwidthManager,
        plan::{ClientKey, OverseerContext, Plan, RequestOwner},
    },
    report::Report,
};
use std::fmt;

/// Returns the YAML text that `write` writes.
///
/// # Panics
///
/// `write` failed.
pub fn yaml(write: impl FnOnce(&mut Report<'_>) -> fmt::Result) -> String {
    let mut text = String::new();
    write(&mut Report::yaml(&mut text)).expect("strings take all");
    text
}

/// Parses a plan.
///
/// # Panics
///
/// `text` is not a plan, or the allocation failed.
pub fn plan(text: &str) -> Shared<Plan> {
    let plan = Plan::parse(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    Shared::new(plan).expect("memory")
}

/// Returns the client key of user `uid`.
pub fn user(uid: u32) -> ClientKey {
    ClientKey::Key(Key::Uid(uid))
}

/// A manager and its gates; all methods panic if an allocation fails.
pub struct Managed {
    pub manager: BandwidthManager,
    pub gates: Shared<Gates>,
}

impl Managed {
    /// Creates a manager with the plan `text` and gates for `count` clients.
    pub fn new(text: &str, count: u32) -> Self {
        let gates = Shared::new(Gates::new(count, 1).expect("memory")).expect("memory");
        let manager = BandwidthManager::new(plan(text), gates.clone()).expect("memory");
        Self { manager, gates }
    }

    /// Claims the gate of `party` for a queued request for `target`.
    pub fn queue(&self, party: ClientKey, target: u32, now: u64) -> GateClaim {
        let who = RequestOwner { party, target };
        let claim = self.gates.claim(&who, &GateClaim::NONE, || false, now);
        if let Some(gate) = self.gates.get(claim.idx()) {
            gate.join(&claim);
        }
        self.gates.announce(claim.idx());
        claim
    }

    /// Claims the gates of users `0..count`, in this order.
    pub fn queue_users(&self, count: u32, now: u64) -> Vec<GateClaim> {
        (0..count)
            .map(|uid| self.queue(user(uid), 0, now))
            .collect()
    }

    /// Returns the gate of a claim.
    pub fn gate(&self, claim: &GateClaim) -> &Gate {
        self.gates.get(claim.idx()).expect("a gate")
    }

    /// Ends the requests of `claims`.
    pub fn leave(&self, claims: &[GateClaim]) {
        claims
            .iter()
            .for_each(|claim| self.gate(claim).leave(claim));
    }

    /// Performs a look, and a tick if `due`.
    pub fn poll(&mut self, due: bool, now: u64) {
        self.look_in(&Nothing, due, now);
    }

    /// Performs a look in `context`.
    pub fn look_in(&mut self, context: &dyn OverseerContext, due: bool, now: u64) {
        self.manager.poll(context, due, now).expect("memory");
    }
}
