// SPDX-License-Identifier: GPL-2.0-only

//! Claiming and losing gates.

use super::*;
use crate::managed::Managed;
use crate::sched::{
    mem::fail_after,
    policy::{
        control::{Keep, Oversee, OverseerOutcome},
        params::ClassesMax,
        Nothing,
    },
    qbm::{plan::Plan, terms::LAST},
};

const COST: Cost = Cost::new(Direction::Write, PAGE);

/// Starts a new client at the rate of its group, and wakes the worker.
#[test]
fn new_clients_start_at_the_rate_of_their_group() {
    let mut bench = QbmBench::new();
    bench.gates.set_start(0, (MIB, 2), NOW);
    assert!(bench.part.need().is_empty());
    let class = bench.class(7, NOW);
    assert!(!bench.part.need().is_empty() && !bench.part.is_live(class));
    let gate = claim_of(&bench.gates, 7);
    let owner = bench.gates.owner(gate.idx()).unwrap();
    assert_eq!(
        (owner.who, owner.group),
        (RequestOwner::of(By::Uid, &attrs(7)), 1)
    );
    assert_eq!((bench.gate(7).rate(), bench.gate(7).rank()), (MIB, 2));
    assert_eq!(bench.pass(class, COST, NOW), BypassOutcome::Counted);
    for _ in 0..2 {
        bench.queue(7, 256, NOW);
    }
    let until = bench.until(NOW);
    assert!((until - NOW).abs_diff(SECOND * PAGE / MIB) < MS, "{until}");
    assert!(bench.gates.take_pending().eq([gate.idx()]) && bench.part.need().is_empty());
    bench.gate(7).set_known(true);
    assert!(bench.part.is_live(class));
    bench.gate(7).set(2 * MIB, 2, NOW);
    bench.part.refresh(0, 64, NOW);
    assert!(bench.until(NOW) < until);
    assert!(bench.get(until).is_some() && bench.part.need().is_empty());
    // A client that left and returns wakes the worker.
    bench.gate(7).set_known(false);
    while bench.part.len() > 0 {
        bench.get(NOW + 2 * SECOND);
    }
    bench.queue(7, 1, NOW + 3 * SECOND);
    assert!(!bench.part.need().is_empty());
    // So does a request that is not queued, whose class is known.
    assert!(bench.get(NOW + 9 * SECOND).is_some() && bench.gates.take_pending().count() == 1);
    let passed = [(); 2].map(|()| bench.pass(class, COST, NOW + 9 * SECOND));
    assert_eq!(passed, [BypassOutcome::Stale, BypassOutcome::Counted]);
    assert!(!bench.part.need().is_empty());
}

/// Revokes a gate: the class claims another gate, and its booking is dropped.
#[test]
fn a_gate_that_was_freed_is_claimed_again() {
    let mut bench = QbmBench::slow(3);
    assert!(bench.get(NOW).is_some());
    let old = claim_of(&bench.gates, 1).idx();
    assert_eq!(bench.gate(1).users(), 1);
    assert!(!bench.gates.close(old), "it has a user");
    bench.gates.set_start(0, (MIB, 1), NOW);
    assert!(bench.until(NOW) > NOW + SECOND / 2);
    bench.gates.revoke(old);
    bench.part.refresh(0, 64, NOW);
    assert!(bench.get(NOW).is_some());
    assert_eq!((bench.gate(1).users(), bench.gate(1).rate()), (1, MIB));
    let mut now = NOW;
    while bench.part.len() > 0 {
        if bench.get(now).is_none() {
            now = bench.until(now);
        }
    }
    let place = claim_of(&bench.gates, 1).idx();
    assert!(bench.gate(1).users() == 0 && bench.gates.close(place));
    assert!(bench.gates.owner(place).is_none());
}

/// Forces a request after its class lost its gate, while another part has drained the gate into
/// debt.
#[test]
fn force_does_not_mind_a_gate_that_is_gone() {
    let gates = gates(1024);
    let mut bench = QbmBench::with(&tunables(), &gates);
    bench.rate(1, MIB, 1, NOW);
    bench.queue(1, 16, NOW);
    gates.revoke(claim_of(&gates, 1).idx());
    gates.set_start(0, (MIB, 1), NOW);
    let mut other = QbmBench::with(&tunables(), &gates);
    for _ in 0..2 {
        other.queue(1, 4096, NOW);
        other.force(NOW);
    }
    assert!(other.gate(1).balance(NOW) < 0);
    bench.force(NOW);
}

/// Lets clients without a free gate share that of the group until a gate is free.
#[test]
fn clients_without_a_gate_share_one() {
    let gates = gates(16);
    let mut bench = QbmBench::with(&tunables(), &gates);
    let shared = gates.get(0).unwrap();
    gates.set_start(0, (1 << 30, 1), NOW);
    for user in 0..20 {
        bench.queue(user, 64, NOW);
        bench.queue(user, 64, NOW);
    }
    let few = gates.take_full(0);
    assert!(few >= 4 && shared.users() == few, "{few}");
    shared.set(MIB, 3, NOW);
    bench.part.refresh(0, 64, NOW);
    bench.burst(NOW);
    assert!(shared.users() > 2);
    let own = (0..20).map(|user| claim_of(&gates, user));
    let own: Vec<GateClaim> = own.filter(|claim| !claim.is_shared()).collect();
    assert_eq!(own.len() as u64, 20 - few);
    for claim in &own {
        assert!(gates.close(claim.idx()));
        gates.revoke(claim.idx());
    }
    bench.part.refresh(0, 64, NOW);
    assert_eq!(shared.users(), 0);
    bench.burst(NOW);
    assert_eq!(bench.part.len(), 0);
}

/// Gives an idle class that shared a gate its own gate with its next request.
#[test]
fn an_idle_class_claims_a_gate_that_is_free() {
    let gates = gates(16);
    let mut bench = QbmBench::with(&tunables(), &gates);
    let shared = gates.get(0).unwrap();
    let shares = |bench: &mut QbmBench, user| {
        bench.queue(user, 1, NOW);
        shared.users() > 0
    };
    let user = (0..).find(|user| shares(&mut bench, *user)).unwrap();
    bench.burst(NOW);
    (0..user).for_each(|user| gates.revoke(claim_of(&gates, user).idx()));
    assert!(!shares(&mut bench, user));
}

/// Reserves classes and gates for clients that the plan lists; other clients come after all ranks.
#[test]
fn listed_clients_have_reserved_classes_and_gates() {
    let listed = 9_001..9_005;
    let line = |uid| format!("; client {uid} class=first_come min=1MB");
    let lines: String = listed.clone().map(line).collect();
    let plan = Plan::parse(&format!("by uid; group all capacity=100MB{lines}")).unwrap();
    let gates = gates(16);
    gates.keep(plan.listed_max());
    let tunables = Tunables {
        classes_max: ClassesMax::new(64).unwrap(),
        ..tunables()
    };
    let mut bench = QbmBench::with(&tunables, &gates);
    let update = Some((gates.clone(), mem::Shared::new(plan).unwrap()));
    bench.part.update(update, NOW);
    for user in 0..200 {
        bench.queue(user, 1, NOW);
    }
    assert!(bench.part.overflow() > 100 && claim_of(&gates, 300).is_shared());
    assert_eq!(gates.get(0).unwrap().rank(), LAST);
    for user in listed {
        bench.queue(user, 1, NOW);
        assert!(!claim_of(&gates, user).is_shared(), "{user}");
        let who = RequestOwner::of(By::Uid, &attrs(user));
        assert!(bench.part.table.find(&who).is_some(), "{user}");
    }
}

/// Limits a target only while there is a group for it.
#[test]
fn groups_come_and_go() {
    let mut bench = QbmBench::new();
    bench.gates.opened(0);
    assert_eq!(claim_of(&bench.gates, 1).idx(), GateClaim::NONE.idx());
    bench.queue(1, 1024, NOW);
    bench.queue(1, 1024, NOW);
    assert!(bench.get(NOW).is_some() && !bench.gates.has_pending());
    bench.gates.open(0, (5, Some(0)), (MIB, 1), NOW);
    bench.gates.open(1, (6, None), (UNREGULATED, 0), NOW);
    bench.gates.opened(2);
    // A ready front is checked again, too.
    bench.queue(1, 1024, NOW);
    assert!(bench.get(NOW).is_some());
    let until = bench.until(NOW);
    assert!(
        (until - NOW).abs_diff(4 * SECOND) < 50 * MS,
        "{}",
        until - NOW
    );
    let owner = bench.gates.owner(claim_of(&bench.gates, 1).idx()).unwrap();
    assert_eq!(owner.group, 5);
}

/// Replaces the gates: classes make new claims, regardless of their bookings.
#[test]
fn other_gates_mean_other_claims() {
    let mut bench = QbmBench::slow(1);
    bench.queue(1, 1, NOW);
    assert_eq!(bench.get(NOW).map(|request| request.owner), Some(1));
    let _ = bench.until(NOW);
    let other = gates(16);
    let old = bench.part.update(update_of(&other), NOW);
    assert!(old.is_some_and(|(old, _)| old.ptr_eq(&bench.gates)));
    bench.part.refresh(0, 64, NOW);
    assert!(bench.get(NOW).is_some());
    let counted = other.get(claim_of(&other, 1).idx()).unwrap();
    assert_eq!(counted.usage().requests, 1);
    // Without gates no client is limited.
    bench.queue(5, 1, NOW);
    let _ = bench.part.update(None, NOW);
    bench.queue(6, 1, NOW);
    bench.part.refresh(0, 64, NOW);
    assert!(bench.get(NOW).is_some() && bench.get(NOW).is_some());
    assert!(bench.part.need().is_empty());
}

/// Charges requests without a class to the gate of the group of their target, and evicts idle
/// classes.
#[test]
fn a_full_table_and_old_age() {
    let gates = gates(1024);
    let tunables = Tunables {
        classes_max: ClassesMax::new(64).unwrap(),
        ..tunables()
    };
    let mut bench = QbmBench::with(&tunables, &gates);
    for user in 1..=100 {
        bench.queue(user, 1, NOW);
    }
    assert_eq!(bench.part.overflow(), 52);
    assert_eq!(bench.burst(NOW), 100);
    assert_eq!(gates.get(0).unwrap().usage().requests, 52);
    let now = NOW + MS;
    bench.class(200, now);
    assert_eq!(bench.part.overflow(), 52);
    let later = now + 11 * SECOND;
    while bench.part.age(later, 16) {}
    assert_eq!(bench.part.table.len(), 0);
}

/// Charges requests for which not even a shared class can be created to the group of the last
/// target.
#[test]
fn the_default_class_follows_its_target() {
    let gates = gates(16);
    gates.open(1, (2, Some(7)), (UNREGULATED, 0), NOW);
    gates.opened(2);
    let tunables = Tunables {
        classes_max: ClassesMax::new(64).unwrap(),
        ..tunables()
    };
    let mut bench = QbmBench::with(&tunables, &gates);
    let classes = (100..200).chain([7]).map(|target| {
        feed(&mut bench.part);
        let attrs = Attrs {
            target,
            ..attrs(target)
        };
        let request = bench.request(target, 1, NOW);
        let class = bench.part.classify(&attrs, NOW);
        bench.part.enqueue(request, class, NOW).unwrap();
        class
    });
    assert_eq!(classes.last().map(|class| class.idx()), Some(DEFAULT));
    assert_eq!(gates.get(1).unwrap().users(), 1);
}

/// Claims gates for the same clients on many threads, with the same result.
#[test]
fn claims_of_many_threads_agree() {
    let gates = gates(64);
    for round in 0..200u32 {
        let users: Vec<u32> = (0..16).map(|user| round * 16 + user).collect();
        let claims: Vec<Vec<GateClaim>> = std::thread::scope(|scope| {
            let claim = || users.iter().map(|user| claim_of(&gates, *user)).collect();
            let threads = [(); 4].map(|()| scope.spawn(claim));
            threads.map(|thread| thread.join().unwrap()).into()
        });
        // While a thread is interrupted creating a gate, other threads get that of the group, until
        // they claim again.
        let settled = |claims: Vec<GateClaim>| -> Vec<GateClaim> {
            let again = claims.into_iter().zip(&users);
            let again = again.map(|(old, user)| {
                if old.is_shared() {
                    claim_of(&gates, *user)
                } else {
                    old
                }
            });
            again.collect()
        };
        let claims: Vec<Vec<GateClaim>> = claims.into_iter().map(settled).collect();
        let mut places: Vec<u32> = claims[0].iter().map(GateClaim::idx).collect();
        for other in &claims[1..] {
            assert!(other.iter().map(GateClaim::idx).eq(places.iter().copied()));
        }
        places.retain(|place| *place != 0);
        places.sort_unstable();
        places.dedup();
        let own = claims[0].iter().filter(|claim| !claim.is_shared()).count();
        assert_eq!(places.len(), own);
        places.iter().for_each(|place| gates.revoke(*place));
    }
}

/// Forces a request without tokens, which counts at the current gate of the class.
#[test]
fn a_drain_looks_for_its_gate() {
    let mut bench = QbmBench::slow(2);
    assert!(bench.get(NOW).is_some() && bench.until(NOW) > NOW);
    bench.gates.revoke(claim_of(&bench.gates, 1).idx());
    bench.force(NOW);
    assert_eq!(bench.gate(1).usage().requests, 1);
}

/// Keeps the bandwidth of a client whose requests are in flight for longer than the idle limit.
#[test]
fn a_client_with_requests_in_service_is_not_idle() {
    let text = "by uid; group all capacity=100MB
        client 1 class=first_come min=60MB max=60MB
        client 2 class=first_come min=60MB max=60MB";
    let mut service = Managed::new(text, 64);
    let mut bench = QbmBench::with(&tunables(), &service.gates);
    let mut now = NOW;
    let mut ticks = |service: &mut Managed, count| {
        for _ in 0..count {
            now += 200 * MS;
            service.poll(true, now);
        }
        now
    };
    let rates = |service: &Managed| {
        let mut rates = Vec::new();
        service.manager.each(|_, _, rate| rates.push(rate));
        rates
    };
    bench.queue(1, 1, NOW);
    service.poll(true, NOW);
    let Decision::Item((_, grant)) = bench.part.get(&view(NOW, false)) else {
        panic!("no request is dispatched");
    };
    let now = ticks(&mut service, 20);
    bench.queue(2, 1, now);
    ticks(&mut service, 1);
    let mut got = rates(&service);
    got.sort();
    assert_eq!((got.len(), got[1]), (2, 60_000_000), "{got:?}");
    assert!(got[0] < 1_000_000, "{got:?}");
    // After the end of the request the client is idle and removed.
    bench.part.stop(&grant, COST, now);
    bench.burst(now);
    ticks(&mut service, 20);
    assert!(!rates(&service).contains(&60_000_000));
}

/// Reports changes made before an out-of-memory error in the next look.
#[test]
fn an_examination_without_memory_is_reported_later() {
    let config = Config::parse(None, &tunables()).unwrap();
    let mut kept = <PolicyData as Keep<Config>>::empty().unwrap();
    let text = "by uid; group all capacity=100MB; default class=low_share min=1MB
        client 1 class=fair_share min=2MB; client 2 class=fair_share min=2MB";
    let plan = Plan::parse(text).unwrap();
    kept.plan = mem::Shared::new(plan).unwrap();
    let mut overseer = Overseer::new(&config, &kept, 1).unwrap().unwrap();
    let (gates, _) = overseer.update().flatten().unwrap();
    let claims = [1, 2].map(|user| claim_of(&gates, user));
    for claim in &claims {
        gates.get(claim.idx()).unwrap().join(claim);
    }
    let mut poll = || overseer.poll(NOW, &Nothing, false);
    fail_after(0);
    assert_eq!(poll(), Err(NoMemory));
    let known = |claim: &&GateClaim| gates.get(claim.idx()).unwrap().is_known();
    assert_eq!(claims.iter().filter(known).count(), 1);
    let gone = claims.iter().find(|claim| !known(claim)).unwrap();
    gates.revoke(gone.idx());
    let refresh = OverseerOutcome {
        moved: true,
        refresh: true,
    };
    assert_eq!(poll(), Ok(refresh));
    assert_eq!(poll(), Ok(OverseerOutcome::default()));
}
