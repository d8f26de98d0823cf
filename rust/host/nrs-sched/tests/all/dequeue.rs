// SPDX-License-Identifier: GPL-2.0-only

//! Requests that are removed from the middle of a queue, for every policy. No other request is
//! removed, none is lost, and no class is charged. The fuzz target `part` tests random removals.

use crate::{
    bench::{read, Bench},
    settings::{self, Setting},
};
use nrs_sched::{
    arena::{pass, Request},
    item::{ByteRange, Cost, Item},
    policy::{
        fairshare::params::{CostModel, Locality, OppThreshold},
        tbf::params::Rate,
        BypassOutcome, Config, Kind, Part, Tunables,
    },
    rng::Rng,
    sim::SECOND,
};
use std::collections::VecDeque;

/// Creates two parts of each policy that finds requests by queues or handles; some use opportunity,
/// and costs that are known late.
fn benches() -> Vec<(Setting, [Bench; 2])> {
    let modes = [
        "uid_fair",
        "gid_then_uid_fair",
        "nid_fair",
        "gid_then_uid_then_jobid_fair",
    ];
    let mut all = settings::all(&modes);
    all.retain(|setting| {
        matches!(
            setting.0,
            Kind::Fifo | Kind::Fairshare | Kind::Tbf | Kind::Qbm
        )
    });
    for (_, mode, tunables) in &mut all {
        if *mode == Some("gid_then_uid_fair") {
            tunables.fairshare.opp_threshold = OppThreshold::new(4).expect("within limits");
            tunables.fairshare.cost_model = CostModel::Time;
        }
    }
    let two = |setting: Setting| {
        let (kind, argument, tunables) = &setting;
        let config = Config::parse(*kind, *argument, tunables).expect("valid");
        let benches = [(); 2].map(|()| Bench::of(&config));
        (setting, benches)
    };
    all.into_iter().map(two).collect()
}

/// Checks that a place of a request in one part is invalid in another part.
#[test]
fn a_place_is_of_one_part() {
    for (_, [mut one, mut other]) in benches() {
        for who in 0..4 {
            assert_eq!(one.bring(who, read(0)), other.bring(who, read(0)));
        }
        for (id, (class, place)) in &other.queued {
            assert!(one.part.dequeue(*class, place, 0).is_none());
            one.take(*id);
        }
        assert_eq!(one.len(), 0);
    }
}

/// Checks that classes are idle once all their requests are removed: they are evicted like others,
/// and their ids become stale.
#[test]
fn emptied_classes_are_evicted() {
    for (setting, [mut bench, _]) in benches() {
        if setting.0 == Kind::Fifo {
            continue;
        }
        let mut classes = Vec::new();
        bench.force = true;
        for round in 0..3 {
            for who in 0..40 {
                let id = bench.bring(who, read(0));
                classes.push(bench.queued[&id].0);
            }
            // The last round is removed: no end of a request makes the classes idle.
            match round {
                1 => assert_eq!(bench.drain().len(), 40),
                _ => (0..40).for_each(|who| bench.take(40 * round + who + 1)),
            }
        }
        assert!(classes.iter().any(|&class| bench.part.is_live(class)));
        while bench.part.age(60 * SECOND, 64) {}
        for class in classes {
            assert!(!bench.part.is_live(class), "{setting:?}");
            let passed = pass(&mut bench.part, class, Cost::of_bytes(1));
            assert_eq!(passed, BypassOutcome::Stale, "{setting:?}");
            // A request that is queued under a stale id is in the default class.
            assert!(bench.part.enqueue(read(0), class, bench.now).is_ok());
        }
        assert_eq!(bench.part.len(), 120);
    }
}

/// Returns the service of three users, pages, who keep 16 requests queued each. Of the first user,
/// one request is removed every `every` turns and replaced.
fn shares(locality: Locality, every: u64, whole: bool) -> [u64; 3] {
    let mut tunables = Tunables::default();
    tunables.fairshare.locality = locality;
    let config = Config::parse(Kind::Fairshare, Some("uid_fair"), &tunables);
    let mut bench = Bench::of(&config.expect("valid"));
    let mut rng = Rng::new(7);
    let (mut served, mut queued) = ([0; 3], [const { Vec::new() }; 3]);
    for turn in 0..30_000 {
        bench.now += 40_000;
        let absent = whole && (turn / 1_000) % 2 == 1;
        let leave = match absent {
            true => queued[0].len(),
            false => usize::from(turn % every == 0).min(queued[0].len()),
        };
        queued[0].drain(..leave).for_each(|id| bench.take(id));
        for (who, queued) in queued.iter_mut().enumerate() {
            while queued.len() < 16 && !(absent && who == 0) {
                let request = Request {
                    owner: who as u32,
                    pages: 1 + rng.below(8) as u32,
                    range: ByteRange::new(0, rng.below(1 << 30) << 12, 4096),
                    ..read(0)
                };
                queued.push(bench.bring(who as u32, request));
            }
        }
        let (item, grant) = bench.get().expect("queued");
        bench.part.stop(&grant, item.cost(), bench.now);
        served[item.owner as usize] += u64::from(item.pages);
        queued[item.owner as usize].retain(|id| *id != item.id);
    }
    served
}

/// Checks that removed requests are neither charged nor an advantage to their user.
#[test]
fn shares_stay() {
    for &locality in Locality::ALL {
        for every in [1, 7] {
            let got = shares(locality, every, false);
            let mean = got.iter().sum::<u64>() as f64 / 3.0;
            for pages in got {
                let off = (pages as f64 - mean).abs() / mean;
                assert!(off < 0.002, "every {every}: {got:?}");
            }
        }
        // For half of the time the first user has no requests: it gets a sixth, and the others
        // share the rest evenly.
        let got = shares(locality, 3, true);
        let all = got.iter().sum::<u64>() as f64;
        let off = (got[1] as f64 - got[2] as f64).abs() / got[2] as f64;
        assert!(off < 0.004, "{got:?}");
        let first = got[0] as f64 / all;
        assert!((first - 1.0 / 6.0).abs() < 0.01, "{got:?}");
    }
}

/// Checks that the token of a removed front is returned: the class gets its rate, and not more.
#[test]
fn tokens_are_returned() {
    let mut tunables = Tunables::default();
    tunables.tbf.rate = Rate::new(100).expect("within limits");
    let config = Config::parse(Kind::Tbf, Some("uid"), &tunables).expect("valid");
    for whole in [false, true] {
        let mut bench = Bench::of(&config);
        let mut queued = VecDeque::new();
        let mut rng = Rng::new(2);
        let mut served = 0;
        for step in 1..=100_000u32 {
            bench.now += SECOND / 1_000;
            while queued.len() < 4 {
                // Costs differ, so that no front inherits the token of another.
                let pages = 1 + (step + queued.len() as u32) % 2;
                queued.push_back(bench.bring(1, Request { pages, ..read(0) }));
            }
            // Fronts, or whole queues, are often removed before they are dispatched.
            if rng.below(100) < 30 {
                let leave = if whole { 4 } else { 1 };
                queued.drain(..leave).for_each(|id| bench.take(id));
            }
            if let Some(id) = bench.serve() {
                assert_eq!(queued.pop_front(), Some(id));
                served += 1;
            }
        }
        // 100 requests/s, and the initial tokens of the bucket.
        assert!((9_900..=10_010).contains(&served), "{whole}: {served}");
    }
}
