// SPDX-License-Identifier: GPL-2.0-only

//! Order by place within an entity: batches go up, nobody waits longer than the bound, shares stay.

use nrs_sched::{
    arena::attrs,
    item::Spot,
    policy::fairshare::{
        locality::BATCH,
        params::{Locality, Select},
    },
    sim::{Setup, Sim, Source},
};
use std::collections::HashMap;

fn sim(select: Select, locality: Locality, sources: u32) -> Sim {
    let mut setup = Setup::new("uid_fair").select(select);
    setup.tunables.fairshare.locality = locality;
    Sim::new(
        &setup,
        (0..sources)
            .map(|uid| Source::new(attrs(uid)).off())
            .collect(),
    )
}

fn anywhere(sim: &mut Sim) -> Spot {
    Spot::new(sim.rng.below(3), sim.rng.below(1 << 40), 4096)
}

/// A source keeps 64 requests at random places queued; what it is served comes in runs that go up.
#[test]
fn batches_go_up() {
    for select in Select::ALL {
        let mut sim = sim(*select, Locality::On, 2);
        let mut places = HashMap::new();
        let mut served: [Vec<Spot>; 2] = Default::default();
        for turn in 0..4_000u32 {
            for source in 0..2 {
                while sim.sources[source].queued < 64 {
                    let spot = anywhere(&mut sim);
                    let id = sim.bring_at(source, 1, spot);
                    places.insert(id, (spot, turn));
                }
            }
            let (request, grant) = sim.get(0).expect("queued");
            sim.stop(0, &request, &grant);
            let (spot, arrived) = places.remove(&request.id).expect("queued once");
            let owner = request.owner as usize;
            served[owner].push(spot);
            // 64 before it at most, and the rest of a batch; twice that, with two that take turns.
            if *select == Select::Deadline {
                assert!(turn - arrived <= 2 * (64 + BATCH), "{arrived} to {turn}");
            }
        }
        for served in &served {
            // A run ends where the next place is lower: once per batch, and hardly ever within.
            let ends = served.windows(2).filter(|pair| pair[1] < pair[0]).count();
            let batches = served.len() / BATCH as usize;
            assert!(
                ends.abs_diff(batches) <= 1 + batches / 10,
                "{select}: {ends} of {batches}"
            );
        }
        assert!(served.iter().all(|served| served.len() > 1_000));
    }
}

/// Without it the order is that of arrival.
#[test]
fn off_is_the_order_of_arrival() {
    let mut sim = sim(Select::Deadline, Locality::Off, 2);
    let mut last = [0; 2];
    for _ in 0..2_000 {
        for source in 0..2 {
            while sim.sources[source].queued < 16 {
                let spot = anywhere(&mut sim);
                sim.bring_at(source, 1, spot);
            }
        }
        let (request, grant) = sim.get(0).expect("queued");
        sim.stop(0, &request, &grant);
        let last = &mut last[request.owner as usize];
        assert!(request.id > *last);
        *last = request.id;
    }
}

/// Shares are the same with and without.
#[test]
fn shares_stay() {
    for locality in [Locality::Off, Locality::On] {
        let mut setup = Setup::new("uid_fair");
        setup.tunables.fairshare.locality = locality;
        let sizes: [&[u32]; 4] = [&[4], &[16], &[4, 16], &[16, 32]];
        let who = sizes.iter().zip(0..);
        let who = who
            .map(|(pages, uid)| Source::new(attrs(uid)).of(pages).off())
            .collect();
        let mut sim = Sim::new(&setup, who);
        for _ in 0..20_000 {
            for source in 0..4 {
                while sim.sources[source].queued < 40 {
                    let pages = &sim.sources[source].pages;
                    let pages = pages[(sim.now % pages.len() as u64) as usize];
                    let spot = anywhere(&mut sim);
                    sim.bring_at(source, pages, spot);
                }
            }
            let (request, grant) = sim.get(0).expect("queued");
            sim.stop(0, &request, &grant);
        }
        let error = sim.outcome().error;
        assert!(error <= 0.2, "{locality:?}: {error} %");
    }
}
