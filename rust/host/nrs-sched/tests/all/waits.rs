// SPDX-License-Identifier: GPL-2.0-only

//! Waiting times: no starvation, prompt service of new and rare clients, and FIFO order for a lone
//! client.

use nrs_sched::{
    arena::attrs,
    attr::{Attrs, Id},
    jobid::JobId,
    policy::fairshare::params::{OppThreshold, Select},
    rng::Rng,
    sim::{Setup, Sim, Source},
};

const DEEP: &str = "gid_then_uid_then_jobid_fair";
const MODES: [&str; 3] = ["uid_fair", "gid_then_uid_fair", DEEP];

/// Returns twelve jobs of six users in three groups.
fn twelve() -> Vec<Attrs> {
    let job = |i: u32| Attrs {
        gid: Id::new(i / 4),
        uid: Id::new(i / 2),
        jobid: JobId::new(format!("job{i}").as_bytes()),
        ..Attrs::UNKNOWN
    };
    (0..12).map(job).collect()
}

/// Checks that no backlogged entity waits longer than three of its fair periods and one round,
/// while others come and go. A round is one largest request of each entity.
#[test]
fn waiting_time_is_bounded() {
    for mode in MODES {
        for seed in 1..6 {
            let mut rng = Rng::new(seed);
            let mut source = |attrs| {
                let pages = [1, 16, 256][rng.below(3) as usize];
                Source::new(attrs).of(&[pages])
            };
            let who = twelve().into_iter().map(&mut source).collect();
            let setup = Setup::new(mode).seed(seed);
            let mut sim = Sim::new(&setup, who);
            sim.run_with(10_000, |sim, _| {
                for source in 0..12 {
                    if rng.below(200) == 0 {
                        let on = sim.sources[source].on;
                        sim.switch(source, !on);
                    }
                }
            });
            let got = sim.outcome();
            assert!(got.over_a_round <= 3.0, "{mode}, seed {seed}: {got:?}");
        }
    }
}

/// Returns the waiting times of the last source's requests, in dispatches; a request arrives every
/// `period` dispatches.
fn waiting_times_of_rare_client(sim: &mut Sim, period: u64, count: usize) -> Vec<u64> {
    let guest = sim.sources.len() - 1;
    let mut waits = Vec::new();
    let (mut turn, mut arrived) = (0u64, 0);
    while waits.len() < count {
        if turn % period == 0 && sim.sources[guest].queued == 0 {
            sim.bring(guest);
            arrived = turn;
        }
        if sim.serve(0) == Some(guest) {
            waits.push(turn - arrived);
        }
        turn += 1;
    }
    waits.sort_unstable();
    waits
}

/// Checks that an entity that uses far less than its share does not wait at all.
#[test]
fn a_rare_client_is_served_at_once() {
    for (mode, guest) in [
        ("uid_fair", attrs(99)),
        // Alone in its group, and in a group with other busy users.
        (
            DEEP,
            Attrs {
                gid: Id::new(9),
                ..attrs(9)
            },
        ),
        (
            DEEP,
            Attrs {
                gid: Id::new(0),
                ..attrs(9)
            },
        ),
    ] {
        for seed in 1..4 {
            let mut who: Vec<Source> = twelve().into_iter().take(8).map(Source::new).collect();
            if mode == "uid_fair" {
                for (source, uid) in who.iter_mut().zip(0..) {
                    source.attrs = attrs(uid);
                }
            }
            who.push(Source::new(guest).off());
            let mut sim = Sim::new(&Setup::new(mode).seed(seed), who);
            sim.run(1_000);
            let waits = waiting_times_of_rare_client(&mut sim, 100, 1_000);
            let p99 = waits[waits.len() * 99 / 100];
            assert_eq!(
                p99,
                0,
                "{mode}, seed {seed}: {:?}",
                &waits[waits.len() - 20..]
            );
        }
    }
}

/// Checks that a lone entity is served in the order of arrival, with any selection rule, on any
/// number of levels.
#[test]
fn a_lone_job_is_served_like_with_fifo() {
    for mode in MODES {
        for select in Select::ALL {
            let lone = Source::new(twelve()[5]).of(&[1, 16, 256, 3]);
            let mut sim = Sim::new(&Setup::new(mode).select(*select), vec![lone]);
            let mut last = 0;
            for _ in 0..2_000 {
                let (request, grant) = sim.get(0).expect("queued");
                assert_eq!(request.id, last + 1, "{mode}, {select}");
                last = request.id;
                sim.stop(0, &request, &grant);
                sim.bring(0);
            }
        }
    }
}

/// Checks that requests are served in the order of arrival below the threshold, regardless of the
/// entity.
#[test]
fn fifo_below_the_threshold() {
    for mode in MODES {
        for select in Select::ALL {
            let mut setup = Setup::new(mode).select(*select);
            setup.tunables.fairshare.opp_threshold = OppThreshold::new(24).expect("within limits");
            let who = twelve()
                .into_iter()
                .map(|who| Source::new(who).off())
                .collect();
            let mut sim = Sim::new(&setup, who);
            let mut rng = Rng::new(7);
            let mut next = 1;
            for _ in 0..1_000 {
                // Never more than 23 are queued.
                for _ in 0..rng.below(24 - u64::from(sim.queued())) {
                    sim.bring(rng.below(12) as usize);
                }
                for _ in 0..rng.below(24) {
                    if let Some((request, grant)) = sim.get(0) {
                        assert_eq!(request.id, next, "{mode}, {select}");
                        next += 1;
                        sim.stop(0, &request, &grant);
                    }
                }
            }
            let rows = sim.rows(0);
            let sum = |count: fn(&nrs_sched::policy::fairshare::stats::NodeRow) -> u64| -> u64 {
                rows.iter().map(count).sum()
            };
            assert_eq!(sum(|row| row.stats.counts.opportunity), next - 1);
            assert_eq!(sum(|row| row.stats.counts.dispatched), next - 1);
        }
    }
}

/// Checks that requests dispatched without a decision are not charged: shares continue from the
/// previous state.
#[test]
fn opportunity_is_free() {
    for mode in MODES {
        let mut setup = Setup::new(mode);
        setup.tunables.fairshare.opp_threshold = OppThreshold::new(8).expect("within limits");
        let who = twelve()
            .into_iter()
            .map(|who| Source::new(who).off())
            .collect();
        let mut sim = Sim::new(&setup, who);
        for _ in 0..1_000 {
            sim.bring(0);
            sim.serve(0);
        }
        sim.ideal.forget();
        for source in 0..12 {
            sim.switch(source, true);
        }
        sim.run(12_000);
        let error = sim.outcome().error;
        assert!(error <= 0.2, "{mode}: {error} %");
    }
}
