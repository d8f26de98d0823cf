// SPDX-License-Identifier: GPL-2.0-only

//! Lookups, and the state that other CPUs find in the middle of a change.

use super::*;
use crate::{
    managed::{plan, user, Managed},
    sched::{qbm::gate::GateClaim, units::NSEC_PER_SEC as SECOND},
};
use std::cell::Cell;

const NOW: u64 = 100 * SECOND;

thread_local! {
    /// Number of gates examined.
    pub(super) static LOOKS: Cell<u32> = const { Cell::new(0) };
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
    for (by, party, want) in [
        ("uid", user as fn(u32) -> ClientKey, [8, 8, 8, 16]),
        ("device", ClientKey::Device, [8, 16, 16, 24]),
    ] {
        let text = format!("by {by}; group a capacity=100MB");
        let mut service = Managed::new(&text, 64);
        let lookups = Lookups(Cell::new(0));
        let join = |service: &Managed| -> Vec<GateClaim> {
            (0..8)
                .map(|number| service.queue(party(number), 0, NOW))
                .collect()
        };
        let claims = join(&service);
        service.look_in(&lookups, false, NOW);
        let mut seen = vec![lookups.0.get()];
        service.leave(&claims);
        service.look_in(&lookups, true, NOW + 2 * SECOND);
        assert!(claims.iter().all(|claim| !service.gate(claim).is_known()));
        join(&service);
        let now = NOW + 3 * SECOND;
        for due in [false, true] {
            service.look_in(&lookups, due, now);
            seen.push(lookups.0.get());
        }
        service
            .manager
            .configure(plan(&text), &lookups, now)
            .unwrap();
        seen.push(lookups.0.get());
        assert_eq!(seen, want, "{by}");
    }
}

/// Verifies that a claim in a new group gets the start rate of that group, although the client
/// joins in the middle of the change: while a name is looked up.
#[test]
fn a_group_opens_with_its_rate() {
    struct Joins(Managed, Cell<Option<(u64, u8)>>);

    impl OverseerContext for Joins {
        fn device_name(&self, _device: u32, _f: &mut dyn FnMut(&[u8])) {
            let claim = self.0.queue(ClientKey::Device(9), 2, NOW);
            let gate = self.0.gates.get(claim.idx());
            self.1.set(gate.map(|gate| (gate.rate(), gate.rank())));
        }
    }

    let text = "by device; default class=low_share min=50%; group a capacity=100MB target=1";
    let joined = Managed::new(text, 64);
    let gates = joined.gates.clone();
    let mut manager = BandwidthManager::new(plan(text), gates).unwrap();
    joined.queue(ClientKey::Device(1), 1, NOW);
    let joins = Joins(joined, Cell::new(None));
    manager.poll(&joins, false, NOW).unwrap();
    assert_eq!(joins.1.get(), None);
    let text = format!("{text}; group b capacity=40MB target=2");
    manager.configure(plan(&text), &joins, NOW).unwrap();
    assert_eq!(joins.1.get(), Some((20_000_000, 2)));
}

/// Verifies that a client that pauses keeps the gate, and that no class must examine its gate when
/// a client leaves and returns.
#[test]
fn pauses_change_no_other_gate() {
    let mut service = Managed::new("by uid; default min=1MB; group a capacity=100MB", 64);
    let claim = service.queue(user(7), 0, NOW);
    service.poll(true, NOW);
    assert_eq!(service.gate(&claim).rate(), 1_000_000);
    service.leave(&[claim]);
    service.manager.has_changed();
    for pause in 1..4 {
        let now = NOW + pause * 4 * SECOND;
        service.poll(true, now);
        assert!(!service.gate(&claim).is_known() && service.gates.holds(&claim));
        assert!(service.gate(&claim).join(&claim));
        service.gates.announce(claim.idx());
        service.poll(false, now);
        let known = service.gate(&claim).is_known();
        assert!(known && !service.manager.has_changed(), "{pause}");
        service.leave(&[claim]);
        service.poll(true, now);
    }
}

/// Counts the gates that the manager examines when a client returns: one, regardless of the number
/// of idle gates.
#[test]
fn a_client_that_comes_back_costs_one_look() {
    let mut service = Managed::new("by uid; default min=32KiB; group a capacity=1GB", 16_384);
    let claims = service.queue_users(10_000, NOW);
    service.poll(false, NOW);
    service.leave(&claims);
    let now = NOW + 2 * SECOND;
    service.poll(true, now);
    let mut most = 0;
    for claim in claims.iter().step_by(100) {
        assert!(!service.gate(claim).is_known() && service.gate(claim).join(claim));
        service.gates.announce(claim.idx());
        LOOKS.set(0);
        service.poll(false, now);
        most = most.max(LOOKS.get());
        assert!(service.gate(claim).is_known());
    }
    assert_eq!(most, 1, "gates looked at for a client");
}
