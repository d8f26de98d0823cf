// SPDX-License-Identifier: GPL-2.0-only

//! Results of concurrent claims on several CPUs.

use super::*;
use crate::sched::{
    key::Key,
    mem::Shared,
    policy::Nothing,
    qbm::{
        manager::BandwidthManager,
        plan::{ClientKey, Plan, RequestOwner},
    },
};

/// Verifies that the earlier of two gates of one client remains, if the manager has registered
/// both.
#[test]
fn of_two_gates_one_stays() {
    let plan = Plan::parse("by uid; group all capacity=100MB; default min=1MB").unwrap();
    let gates = Shared::new(Gates::new(64, 1).unwrap()).unwrap();
    let mut manager = BandwidthManager::new(Shared::new(plan).unwrap(), gates.clone()).unwrap();
    let claim = |uid| {
        let party = ClientKey::Key(Key::Uid(uid));
        let claim = gates.claim(
            &RequestOwner { party, target: 0 },
            &GateClaim::NONE,
            || false,
            NOW,
        );
        gates.get(claim.place()).unwrap().join(&claim);
        claim
    };
    let claims: Vec<GateClaim> = (0..32).map(claim).collect();
    let offset = |claim: &GateClaim| (claim.place() as usize - GROUPS_MAX) % BLOCK;
    let late = claims.iter().find(|claim| offset(claim) > 0).unwrap();
    let early = late.place() - offset(late) as u32;
    gates.revoke(early);
    manager.look(&Nothing, true, NOW).unwrap();
    let (late_gate, early_gate) = (gates.get(late.place()), gates.get(early));
    let (late_gate, early_gate) = (late_gate.unwrap(), early_gate.unwrap());
    assert!(late_gate.is_known() && !early_gate.is_known());
    // Simulates the claim of a class that searched before the first claim; the stamp differs.
    for (to, from) in early_gate.party.iter().zip(&late_gate.party) {
        to.store(from.load(Relaxed), Relaxed);
    }
    early_gate.known.store(0, SeqCst);
    let state = late_gate.state.load(SeqCst) ^ (1 << 16);
    early_gate.state.store(state, SeqCst);
    gates.used.fetch_add(1, SeqCst);
    gates.announce(early);
    manager.look(&Nothing, false, NOW).unwrap();
    assert!(late_gate.is_known() && early_gate.is_known());
    manager.look(&Nothing, true, NOW).unwrap();
    assert!(manager.has_changed() && early_gate.is_known() && !gates.has(late));
    let mut clients = 0;
    manager.each(|_, _, _| clients += 1);
    assert_eq!(clients, 31);
}
