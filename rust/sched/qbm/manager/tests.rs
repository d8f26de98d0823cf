// SPDX-License-Identifier: GPL-2.0-only

//! Lookups, and the state that other CPUs find in the middle of a change.

use super::*;
use crate::sched::{
    key::Key,
    policy::Nothing,
    qbm::{gate::GateClaim, plan::RequestOwner},
    units::NSEC_PER_SEC as SECOND,
};
use std::cell::Cell;

const NOW: u64 = 100 * SECOND;

thread_local! {
    /// Number of gates examined.
    pub(super) static LOOKS: Cell<u32> = const { Cell::new(0) };
}

fn plan(text: &str) -> Shared<Plan> {
    Shared::new(Plan::parse(text).unwrap()).unwrap()
}

fn manager(text: &str) -> (BandwidthManager, Shared<Gates>) {
    let gates = Shared::new(Gates::new(64, 1).unwrap()).unwrap();
    (
        BandwidthManager::new(plan(text), gates.clone()).unwrap(),
        gates,
    )
}

/// Claims the gate of `party` for a queued request for `target`.
fn queue(gates: &Gates, party: ClientKey, target: u32) -> GateClaim {
    let claim = gates.claim(
        &RequestOwner { party, target },
        &GateClaim::NONE,
        || false,
        NOW,
    );
    if let Some(gate) = gates.get(claim.place()) {
        gate.join(&claim);
    }
    gates.announce(claim.place());
    claim
}

/// Context that counts lookups of terms.
struct Lookups(Cell<u32>);

impl OverseerContext for Lookups {
    fn reschedule(&self) {
        self.0.set(self.0.get() + 1);
    }
}

/// Counts lookups: one per client and plan, and more for devices, whose names change without a new
/// plan.
#[test]
fn lines_are_looked_up_once() {
    let user = |number| ClientKey::Key(Key::Uid(number));
    for (by, party, want) in [
        ("uid", user as fn(u32) -> ClientKey, [8, 8, 8, 16]),
        ("device", ClientKey::Device, [8, 16, 16, 24]),
    ] {
        let text = format!("by {by}; group a capacity=100MB");
        let (mut manager, gates) = manager(&text);
        let lookups = Lookups(Cell::new(0));
        let claims: Vec<GateClaim> = (0..8)
            .map(|number| queue(&gates, party(number), 0))
            .collect();
        manager.look(&lookups, false, NOW).unwrap();
        let mut seen = vec![lookups.0.get()];
        for claim in &claims {
            gates.get(claim.place()).unwrap().leave(claim);
        }
        manager.look(&lookups, true, NOW + 2 * SECOND).unwrap();
        assert!(claims
            .iter()
            .all(|claim| !gates.get(claim.place()).unwrap().is_known()));
        for number in 0..8 {
            queue(&gates, party(number), 0);
        }
        manager.look(&lookups, false, NOW + 3 * SECOND).unwrap();
        seen.push(lookups.0.get());
        manager.look(&lookups, true, NOW + 3 * SECOND).unwrap();
        seen.push(lookups.0.get());
        manager
            .configure(plan(&text), &lookups, NOW + 3 * SECOND)
            .unwrap();
        seen.push(lookups.0.get());
        assert_eq!(seen, want, "{by}");
    }
}

/// Context in which a client of target 2 joins whenever a name is looked up.
struct Joins(Shared<Gates>, Cell<Option<(u64, u8)>>);

impl OverseerContext for Joins {
    fn device_name(&self, _device: u32, _f: &mut dyn FnMut(&[u8])) {
        let claim = queue(&self.0, ClientKey::Device(9), 2);
        let gate = self.0.get(claim.place());
        self.1.set(gate.map(|gate| (gate.rate(), gate.rank())));
    }
}

/// Verifies that a claim in a new group gets the start rate of that group.
#[test]
fn a_group_opens_with_its_rate() {
    let text = "by device; default class=low_share min=50%; group a capacity=100MB target=1";
    let (mut manager, gates) = manager(text);
    let joins = Joins(gates.clone(), Cell::new(None));
    queue(&gates, ClientKey::Device(1), 1);
    manager.look(&joins, false, NOW).unwrap();
    assert_eq!(joins.1.get(), None);
    let text = format!("{text}; group b capacity=40MB target=2");
    manager.configure(plan(&text), &joins, NOW).unwrap();
    assert_eq!(joins.1.get(), Some((20_000_000, 2)));
}

/// Verifies that a client that pauses keeps the gate, and that no class must examine its gate when
/// a client leaves and returns.
#[test]
fn pauses_change_no_other_gate() {
    let (mut manager, gates) = manager("by uid; default min=1MB; group a capacity=100MB");
    let user = ClientKey::Key(Key::Uid(7));
    let claim = queue(&gates, user, 0);
    manager.look(&Nothing, true, NOW).unwrap();
    let gate = gates.get(claim.place()).unwrap();
    assert_eq!(gate.rate(), 1_000_000);
    gate.leave(&claim);
    manager.has_changed();
    for pause in 1..4 {
        let now = NOW + pause * 4 * SECOND;
        manager.look(&Nothing, true, now).unwrap();
        assert!(!gate.is_known() && gates.holds(&claim));
        assert!(gate.join(&claim));
        gates.announce(claim.place());
        manager.look(&Nothing, false, now).unwrap();
        assert!(gate.is_known() && !manager.has_changed(), "{pause}");
        gate.leave(&claim);
        manager.look(&Nothing, true, now).unwrap();
    }
}

/// Counts the gates that the manager examines when a client returns: one, regardless of the number
/// of idle gates.
#[test]
fn a_client_that_comes_back_costs_one_look() {
    let gates = Shared::new(Gates::new(16_384, 1).unwrap()).unwrap();
    let text = plan("by uid; default min=32KiB; group a capacity=1GB");
    let mut manager = BandwidthManager::new(text, gates.clone()).unwrap();
    let user = |number| ClientKey::Key(Key::Uid(number));
    let claims: Vec<GateClaim> = (0..10_000)
        .map(|number| queue(&gates, user(number), 0))
        .collect();
    manager.look(&Nothing, false, NOW).unwrap();
    for claim in &claims {
        gates.get(claim.place()).unwrap().leave(claim);
    }
    let now = NOW + 2 * SECOND;
    manager.look(&Nothing, true, now).unwrap();
    let mut most = 0;
    for claim in claims.iter().step_by(100) {
        let gate = gates.get(claim.place()).unwrap();
        assert!(!gate.is_known() && gate.join(claim));
        gates.announce(claim.place());
        LOOKS.set(0);
        manager.look(&Nothing, false, now).unwrap();
        most = most.max(LOOKS.get());
        assert!(gate.is_known());
    }
    assert_eq!(most, 1, "gates looked at for a client");
}
