// SPDX-License-Identifier: GPL-2.0-only

//! Properties of `fairshare` on one level: equal shares of cost within a short time, with every
//! selection rule.

use nrs_sched::{
    agent::{Account, FactorPairs},
    arena::attrs,
    attr::Attrs,
    item::ByteRange,
    jobid::JobId,
    mem::Shared,
    policy::{
        fairshare::{
            entity_table::Weights,
            factors::{Factors, ONE},
            params::{CostModel, DeltaMs, Locality, OppThreshold, Select, SizeMax, SizeWindowS},
            Tunables, Update,
        },
        AnyUpdate, Part, ReportBuf,
    },
    sim::{Setup, Sim, Source},
};

/// Creates users 0, 1, ... with requests of `pages`, one list each.
fn users(pages: &[&[u32]]) -> Vec<Source> {
    let users = pages.iter().zip(0..);
    users
        .map(|(pages, uid)| Source::new(attrs(uid)).of(pages))
        .collect()
}

#[test]
fn shares_converge() {
    const ONE: &[u32] = &[1];
    const ENDS: &[&[u32]] = &[&[1], &[256]];
    const MIXED: &[&[u32]] = &[&[1], &[16], &[256], &[3], &[64], &[1], &[128], &[7]];
    let thousand = [ONE; 1000];
    let eight: &[&[u32]] = &[ONE; 8];
    let two: &[&[u32]] = &[ONE; 2];
    type Case<'a> = (&'a str, Select, &'a [&'a [u32]], u64, f64);
    let cases: [Case<'_>; 6] = [
        ("two", Select::Deadline, two, 1_000, 0.0),
        ("eight", Select::Deadline, eight, 1_000, 0.0),
        ("4 KiB and 1 MiB", Select::Deadline, ENDS, 10_000, 2.0),
        ("mixed sizes", Select::Deadline, MIXED, 100_000, 0.5),
        ("1,000", Select::Deadline, &thousand, 10_000, 0.0),
        // A binomial draw: four standard deviations.
        ("eight", Select::Paper, eight, 10_000, 11.0),
    ];
    for (name, select, pages, count, limit) in cases {
        for seed in 1..3 {
            let setup = Setup::new("uid_fair").select(select).seed(seed);
            let mut sim = Sim::new(&setup, users(pages));
            sim.run(count);
            let error = sim.outcome().error;
            assert!(
                error <= limit + 1e-9,
                "{name}, {select}, seed {seed}: {error} %"
            );
        }
    }
}

/// Checks weights of 1 to 100; `paper` uses the published shares.
#[test]
fn weights_count_with_every_selection() {
    // A binomial draw of a hundredth: four standard deviations.
    for (select, limit) in [(Select::Deadline, 0.5), (Select::Paper, 13.0)] {
        let mut sim = Sim::new(&Setup::new("uid_fair").select(select), users(&[&[1], &[1]]));
        sim.weigh("uid:1:100");
        sim.run(101_000);
        let error = sim.outcome().error;
        assert!(error <= limit, "{select}: {error} %");
    }
}

#[test]
fn with_rpcs_a_share_is_a_share_of_requests() {
    let mut setup = Setup::new("uid_fair");
    setup.tunables.fairshare.cost_model = CostModel::Rpcs;
    let mut sim = Sim::new(&setup, users(&[&[1], &[256]]));
    sim.run(1_000);
    let requests: Vec<u64> = sim.sources.iter().map(|source| source.requests).collect();
    assert_eq!(requests, [500, 500]);
}

/// Checks that shares are the same whether requests of an entity are sorted by offset or not.
#[test]
fn locality_leaves_shares() {
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
                    let range = ByteRange::new(sim.rng.below(3), sim.rng.below(1 << 40), 4096);
                    sim.enqueue_at(source, pages, range);
                }
            }
            let (request, grant) = sim.get(0).expect("queued");
            sim.stop(0, &request, &grant);
        }
        let error = sim.outcome().error;
        assert!(error <= 0.2, "{locality:?}: {error} %");
    }
}

/// Checks that factors scale weights as requested, do not appear in accounts, and have no effect
/// after their removal.
#[test]
fn factors_come_and_go() {
    let mut sim = Sim::new(&Setup::new("uid_fair"), users(&[&[1], &[1]]));
    let serve = |sim: &mut Sim, factors: Option<Factors>| {
        let weights = Shared::new(Weights::new()).unwrap();
        let factors = factors.map(|factors| Shared::new(factors).unwrap());
        let update = Update::new(weights, &Tunables::default()).with_factors(factors);
        let now = sim.now;
        drop(sim.part(0).update(AnyUpdate::Fairshare(update), now));
        sim.refresh();
        let before = sim.served();
        sim.run(3000);
        let served = sim.served().into_iter().zip(before);
        let mut served: Vec<u64> = served.map(|(after, before)| after - before).collect();
        served.sort_unstable();
        served
    };
    let accounts = |sim: &mut Sim| {
        let mut reports = ReportBuf::new().unwrap();
        assert_eq!(sim.part(0).reports(0, &mut reports), None);
        let accounts = reports.iter().map(|report| report.account);
        accounts.collect::<Vec<Account>>()
    };
    assert_eq!(serve(&mut sim, None), [1500, 1500]);
    let ids = accounts(&mut sim);
    assert_eq!(ids.len(), 2);
    let low = ids.iter().map(|account| account.id).min().unwrap();
    let pairs = FactorPairs::of([(low, ONE / 4)]).unwrap();
    let factors = Factors::new(pairs, None).unwrap();
    assert_eq!(serve(&mut sim, Some(factors)), [600, 2400]);
    // Factors are in force until they are replaced, and are not checked again.
    let now = sim.now;
    assert!(!sim.part(0).wants_refresh(now));
    assert!(accounts(&mut sim)
        .iter()
        .all(|account| account.weight == 4096));
    assert_eq!(serve(&mut sim, None), [1500, 1500]);
}

/// Checks that parameters that do not affect the layout change in place: requests remain queued,
/// and counters continue.
#[test]
fn parameters_change_in_place() {
    let mut setup = Setup::new("size_fair");
    setup.tunables.fairshare.opp_threshold = OppThreshold::new(1).unwrap();
    let user = |jobid: &str, size| {
        let attrs = Attrs {
            jobid: JobId::new(jobid.as_bytes()),
            size,
            ..Attrs::UNKNOWN
        };
        Source::new(attrs)
    };
    let mut sim = Sim::new(&setup, vec![user("a", 1), user("b", 9)]);
    sim.run(1000);
    assert_eq!(sim.served(), [100, 900]);
    sim.retune(|tunables| {
        tunables.delta_ms = DeltaMs::new(50).unwrap();
        tunables.size_window_s = SizeWindowS::new(20).unwrap();
        tunables.size_max = SizeMax::new(3).unwrap();
    });
    sim.run(1000);
    let served = sim.served();
    assert!(served[0].abs_diff(350) <= 2, "{served:?}");
    sim.retune(|tunables| tunables.opp_threshold = OppThreshold::new(256).unwrap());
    sim.run(1000);
    let counts = sim.rows(0).into_iter().map(|row| row.stats.counts);
    let counts: Vec<_> = counts.collect();
    assert_eq!(counts.iter().map(|one| one.dispatched).sum::<u64>(), 3000);
    assert_eq!(counts.iter().map(|one| one.opportunity).sum::<u64>(), 1000);
}
