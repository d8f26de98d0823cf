// SPDX-License-Identifier: GPL-2.0-only

//! Results of concurrent claims on several CPUs.

use super::*;
use crate::managed::Managed;

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
