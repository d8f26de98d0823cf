// SPDX-License-Identifier: GPL-2.0-only

//! Results of concurrent claims on several CPUs.

use super::*;
use crate::{
    managed::Managed,
    sched::{
        key::Key,
        qbm::plan::{ClientKey, RequestOwner},
        tagged_table::{tests::at_gap, BLOCK},
    },
};
use std::{cell::Cell, rc::Rc};

/// Verifies that the earlier of two gates of one client remains, if the manager has registered
/// both.
#[test]
fn of_two_gates_one_stays() {
    let mut service = Managed::new("by uid; group all capacity=100MB; default min=1MB", 64);
    let gates = service.gates.clone();
    let claims = service.queue_users(32, NOW);
    let offset = |claim: &GateClaim| (claim.idx() as usize - GROUPS_MAX) % BLOCK;
    let late = claims.iter().find(|claim| offset(claim) > 0).unwrap();
    let early = late.idx() - offset(late) as u32;
    gates.revoke(early);
    service.poll(true, NOW);
    let (late_gate, early_gate) = (gates.get(late.idx()), gates.get(early));
    let (late_gate, early_gate) = (late_gate.unwrap(), early_gate.unwrap());
    assert!(late_gate.is_known() && !early_gate.is_known());
    // Simulates the claim of a class that searched before the first claim; the stamp differs.
    for (to, from) in early_gate.party.iter().zip(&late_gate.party) {
        to.set(from.get());
    }
    early_gate.known.set(0);
    let state = late_gate.state.get() ^ (1 << 16);
    early_gate.state.set(state);
    gates.used.add(1);
    gates.announce(early);
    service.poll(false, NOW);
    assert!(late_gate.is_known() && early_gate.is_known());
    service.poll(true, NOW);
    assert!(service.manager.has_changed() && early_gate.is_known() && !gates.has(late));
    let mut clients = 0;
    service.manager.each(|_, _, _| clients += 1);
    assert_eq!(clients, 31);
}

/// Verifies that two claims at the same time get the same gate for one client, and two gates for
/// two clients.
#[test]
fn claims_at_the_same_time() {
    let claim = |gates: &Gates, user| {
        let party = ClientKey::Key(Key::Uid(user));
        let who = RequestOwner { party, target: 0 };
        gates.claim(&who, &GateClaim::NONE, || true, NOW)
    };
    for user in [1, 2] {
        let meets = |&moment: &u32| {
            let gates = Rc::new(Gates::new(4, 1).unwrap());
            gates.open(0, (5, None), (MIB, 1), NOW);
            gates.opened(1);
            let other = Rc::new(Cell::new(GateClaim::NONE));
            let (shared, claimed) = (gates.clone(), other.clone());
            let other_task = move || claimed.set(claim(&shared, user));
            at_gap(moment, other_task, || {
                let (own, other) = (claim(&gates, 1), other.get());
                assert!(gates.has(&own) && gates.has(&other) && !own.is_shared());
                assert!(other.is(&GateClaim::NONE) || own.is(&other) == (user == 1));
            })
        };
        assert!((1..).take_while(meets).count() > BLOCK);
    }
}
