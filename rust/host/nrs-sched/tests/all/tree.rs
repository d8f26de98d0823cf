// SPDX-License-Identifier: GPL-2.0-only

//! Shares of trees: groups, their users, and their jobs, by weight and by size.

use nrs_sched::{
    attr::{Attrs, Id},
    jobid::JobId,
    key::Key,
    nid::Nid,
    policy::fairshare::params::{SizeMax, SizeSource, SizeWindowS},
    rng::Rng,
    sim::{assert_shares, Setup, Sim, Source, SECOND},
};
use std::collections::BTreeMap;

/// Returns a job of `uid` in `gid` with `size` nodes.
fn job(gid: u32, uid: u32, jobid: &str, size: u32) -> Attrs {
    Attrs {
        gid: Id::new(gid),
        uid: Id::new(uid),
        jobid: JobId::new(jobid.as_bytes()),
        size,
        ..Attrs::UNKNOWN
    }
}

fn sources(jobs: &[Attrs]) -> Vec<Source> {
    jobs.iter().copied().map(Source::new).collect()
}

/// Returns the eight jobs of ThemisIO's composite policy. The first group has one user with one
/// job. The second has three users, with jobs of 2, 3 and 2, of 3 and 2, and of 1 and 2 nodes.
fn composite() -> [Attrs; 8] {
    [
        job(1, 11, "a", 2),
        job(2, 21, "b", 2),
        job(2, 21, "c", 3),
        job(2, 21, "d", 2),
        job(2, 22, "e", 3),
        job(2, 22, "f", 2),
        job(2, 23, "g", 1),
        job(2, 23, "h", 2),
    ]
}

const COMPOSITE: &str = "gid_then_uid_then_size_fair";

/// Checks the published composite policy: 0.1 % is half a request of the smallest job.
#[test]
fn composite_of_three_levels() {
    let ideal = [2, 21, 14, 21, 10, 15, 18, 9].map(|part| 1.0 / f64::from(part));
    for seed in 1..4 {
        let setup = Setup::new(COMPOSITE).seed(seed);
        let mut sim = Sim::new(&setup, sources(&composite()));
        sim.run(10_000);
        assert_shares(&sim.served(), &ideal, 0.1, "pages");
    }
}

/// Checks jobs that are on for different parts of a cycle. The shares of idle jobs are first
/// divided within their level.
#[test]
fn composite_with_jobs_switched_on_and_off() {
    const CYCLE: u64 = 4000;
    let setup = Setup::new(COMPOSITE);
    let mut sim = Sim::new(&setup, sources(&composite()));
    let mut rng = Rng::new(1);
    let duty: Vec<(u64, u64)> = (0..8)
        .map(|_| (rng.below(CYCLE), CYCLE * (30 + rng.below(41)) / 100))
        .collect();
    sim.run_with(100_000, |sim, turn| {
        for (source, (phase, on)) in duty.iter().enumerate() {
            sim.switch(source, (turn + phase) % CYCLE < *on);
        }
    });
    let error = sim.outcome().error;
    assert!(error <= 0.5, "{error:.3} %");
}

/// Checks one user with two jobs and one with four: half each, and equal parts of the half.
#[test]
fn users_then_jobs() {
    let jobs: Vec<Attrs> = (0..6u32)
        .map(|i| job(1, u32::from(i >= 2), &format!("job{i}"), 0))
        .collect();
    let mut sim = Sim::new(&Setup::new("uid_then_jobid_fair"), sources(&jobs));
    sim.run(8_000);
    assert_eq!(sim.served(), [2000, 2000, 1000, 1000, 1000, 1000]);
    // A job of the same name below another user is another job.
    let jobs = [job(1, 1, "x", 0), job(1, 2, "x", 0), job(1, 2, "y", 0)];
    let mut sim = Sim::new(&Setup::new("uid_then_jobid_fair"), sources(&jobs));
    sim.run(8_000);
    assert_eq!(sim.served(), [4000, 2000, 2000]);
    // The level named first divides first.
    let mut sim = Sim::new(&Setup::new("jobid_then_uid_fair"), sources(&jobs));
    sim.run(8_000);
    assert_eq!(sim.served(), [2000, 2000, 4000]);
}

/// Checks levels in any order.
#[test]
fn levels_in_any_order() {
    let levels = ["gid", "uid", "jobid", "projid", "nid", "nodemap"];
    let mut rng = Rng::new(5);
    for round in 0..40u64 {
        let mut names = levels;
        for at in (1..names.len()).rev() {
            names.swap(at, rng.below(at as u64 + 1) as usize);
        }
        let depth = 1 + round as usize % names.len();
        let mode = format!("{}_fair", names[..depth].join("_then_"));
        let who: Vec<Source> = (0..8)
            .map(|i| {
                let mut pick = || rng.below(3) as u32;
                let mut attrs = job(pick(), pick(), &format!("job{}", pick()), 0);
                attrs.projid = Id::new(pick());
                attrs.nodemap = Id::new(pick());
                attrs.nid = Nid::parse(&format!("10.0.0.{}@tcp", pick())).ok();
                Source::new(attrs).of(&[[1, 4, 16][i % 3]])
            })
            .collect();
        let mut sim = Sim::new(&Setup::new(&mode).seed(round), who);
        sim.run(10_000);
        let error = sim.outcome().error;
        assert!(error <= 2.0, "{mode}: {error:.3} %");
    }
}

/// Checks that requests without a value of a level are one entity at that level.
#[test]
fn absent_values() {
    let none = Attrs::UNKNOWN;
    let user = |uid| Attrs {
        uid: Id::new(uid),
        ..none
    };
    let root = job(0, 0, "", 0);
    let mut sim = Sim::new(
        &Setup::new("gid_then_uid_fair"),
        sources(&[none, user(1), user(2), root]),
    );
    sim.run(6_000);
    // Requests without a group are three users of one group; root is another group.
    assert_eq!(sim.served(), [1000, 1000, 1000, 3000]);
    let mut sim = Sim::new(&Setup::new("nid_then_jobid_fair"), sources(&[none, root]));
    sim.run(1_000);
    assert_eq!(sim.sources[0].served + sim.sources[1].served, 1000);
    let leaves = sim.rows(0).iter().filter(|row| row.leaf).count();
    assert_eq!(leaves, 1);
}

/// Checks that weights count on every level, immediately after a change.
#[test]
fn weights_of_levels() {
    let jobs = [
        job(1, 11, "a.1", 0),
        job(1, 11, "b.1", 0),
        job(1, 12, "a.2", 0),
        job(2, 11, "c", 0),
    ];
    let mode = "gid_then_uid_then_jobid_fair";
    let steps: [(&str, [u64; 4]); 7] = [
        ("", [3, 3, 6, 12]),
        ("gid:1:2", [4, 4, 8, 8]),
        ("uid:11:3", [6, 6, 4, 8]),
        ("jobid:a.*:5", [10, 2, 4, 8]),
        ("-gid:1,gid:2:2", [5, 1, 2, 16]),
        ("jobid:\"a.1\":1", [3, 3, 2, 16]),
        ("clear", [3, 3, 6, 12]),
    ];
    let mut sim = Sim::new(&Setup::new(mode), sources(&jobs));
    for (items, wanted) in steps {
        sim.weigh(items);
        // Serves the requests that were queued before the change.
        sim.run(100);
        let before = sim.served();
        sim.run(12_000);
        let after = sim.served();
        for ((after, before), wanted) in after.iter().zip(before).zip(wanted) {
            let off = (after - before).abs_diff(wanted * 500);
            assert!(off <= 3, "{items}: {off} from {wanted} times 500");
        }
    }
}

/// Checks that shares follow weights that change all the time.
#[test]
fn weights_that_change_all_the_time() {
    let mut sim = Sim::new(&Setup::new(COMPOSITE), sources(&composite()));
    let mut rng = Rng::new(8);
    for _ in 0..250 {
        let item = match rng.below(3) {
            0 => format!("gid:{}", 1 + rng.below(2)),
            1 => format!("uid:{}", 21 + rng.below(3)),
            _ => format!("jobid:{}", char::from(b'a' + rng.below(8) as u8)),
        };
        sim.weigh(&format!("{item}:{}", 1 + rng.below(9)));
        sim.run(200);
    }
    let error = sim.outcome().error;
    assert!(error <= 0.5, "{error:.3} %");
}

/// Returns a simulation of `jobs`, such as `a:1,2 b:3`: a job and the last numbers of its clients.
fn sized(source: SizeSource, jobs: &str) -> Sim {
    let mut setup = Setup::new("size_fair");
    setup.tunables.fairshare.size_source = source;
    setup.tunables.fairshare.size_window_s = SizeWindowS::new(2).expect("within limits");
    setup.tunables.fairshare.size_max = SizeMax::new(64).expect("within limits");
    let mut who = Vec::new();
    for (jobid, nids) in jobs.split(' ').filter_map(|job| job.split_once(':')) {
        for nid in nids.split(',') {
            let mut attrs = job(1, 1, jobid, 0);
            attrs.nid = Nid::parse(&format!("10.0.0.{nid}@tcp")).ok();
            who.push(Source::new(attrs));
        }
    }
    let mut sim = Sim::new(&setup, who);
    // Classes are found again from time to time, so that clients are counted; here, always.
    sim.forgetful = true;
    sim
}

/// Returns the pages of each job within `seconds`, with weights refreshed ten times a second.
fn by_job(sim: &mut Sim, seconds: u64) -> Vec<u64> {
    let sum = |sim: &Sim| -> BTreeMap<Key, u64> {
        let rows = sim.rows(0).into_iter();
        rows.map(|row| (row.key, row.stats.counts.cost_pages))
            .collect()
    };
    let (before, end) = (sum(sim), sim.now + seconds * SECOND);
    while sim.now < end {
        sim.run(SECOND / 10 / sim.step);
        sim.refresh();
    }
    let after = sum(sim).into_iter();
    after
        .map(|(key, pages)| pages - before.get(&key).unwrap_or(&0))
        .collect()
}

/// Checks that the size of a job is its number of clients, and that clients no longer count after
/// the window.
#[test]
fn size_from_clients() {
    let mut sim = sized(SizeSource::Nids, "a:1,2,3 b:1");
    by_job(&mut sim, 1);
    assert_shares(&by_job(&mut sim, 4), &[3.0, 1.0], 0.5, "pages");
    for source in 1..3 {
        sim.switch(source, false);
    }
    // Twice the window, with a margin.
    by_job(&mut sim, 5);
    assert_shares(&by_job(&mut sim, 2), &[1.0, 1.0], 0.5, "pages");
}

/// Checks that suffixes of names are sizes, limited to 64, unless sizes come from clients.
#[test]
fn size_from_names() {
    for (source, jobs, want) in [
        (
            SizeSource::Suffix,
            "x#6:1,2 y#1:3 z.1000:4",
            &[6.0, 1.0, 1.0][..],
        ),
        (SizeSource::Suffix, "x#6:1 y#4000:3", &[6.0, 64.0]),
        (SizeSource::Nids, "x#6:1 y#4000:3", &[1.0, 1.0]),
    ] {
        let mut sim = sized(source, jobs);
        assert_shares(&by_job(&mut sim, 2), want, 0.5, jobs);
    }
}

/// Checks that sizes stated by requests take precedence over counted sizes, also when they change.
#[test]
fn stated_size_takes_precedence() {
    let mut sim = sized(SizeSource::Nids, "a:1,2 b:1");
    for size in [4, 9] {
        for source in 0..2 {
            sim.sources[source].attrs.size = size;
        }
        by_job(&mut sim, 1);
        assert_shares(&by_job(&mut sim, 2), &[size.into(), 1.0], 0.5, "pages");
    }
}
