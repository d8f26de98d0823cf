// SPDX-License-Identifier: GPL-2.0-only

//! Shares of device time: a simulated device with different service times, of which an estimate is
//! known at dispatch.

use nrs_sched::{
    arena::{attrs, Request},
    attr::{Attrs, Id},
    item::Direction,
    policy::fairshare::params::CostModel,
    rng::Rng,
    sim::{assert_shares, Setup, Sim, Source},
};

/// Service time of a request, ns.
type Time = fn(&Request) -> u64;

/// Returns 200 us plus 20 us per page for a read, and five times as long for a write.
fn slow_writes(request: &Request) -> u64 {
    let read = 200_000 + 20_000 * u64::from(request.pages);
    match request.direction {
        Direction::Write => 5 * read,
        Direction::Read | Direction::Other => read,
    }
}

/// Returns the transfer time only.
fn by_size(request: &Request) -> u64 {
    10_000 * u64::from(request.pages)
}

/// Returns times ten times shorter than the first estimate.
fn fast(request: &Request) -> u64 {
    5_000 + 100 * u64::from(request.pages)
}

/// Runs `count` requests on a device that serves `servers` at a time; returns the device time of
/// each source, ns.
fn run(sim: &mut Sim, servers: usize, time: Time, count: u64) -> Vec<u64> {
    sim.step = 0;
    let mut had = vec![0; sim.sources.len()];
    // End times and requests in service.
    let mut active = Vec::new();
    let mut rng = Rng::new(1);
    for _ in 0..count {
        while active.len() < servers {
            let Some((request, grant)) = sim.get(0) else {
                break;
            };
            let owner = request.owner as usize;
            // Up to a tenth more or less, at random.
            let time = time(&request) * (900 + rng.below(201)) / 1000;
            had[owner] += time;
            active.push((sim.now + time, request, grant));
            sim.fill_all();
        }
        let first = (0..active.len())
            .min_by_key(|&i| active[i].0)
            .expect("work");
        let (end, request, grant) = active.swap_remove(first);
        sim.now = sim.now.max(end);
        sim.stop(0, &request, &grant);
    }
    active.sort_unstable_by_key(|(end, _, _)| *end);
    for (end, request, grant) in active {
        sim.now = sim.now.max(end);
        sim.stop(0, &request, &grant);
    }
    had
}

fn setup(mode: &str) -> Setup<'_> {
    let mut setup = Setup::new(mode);
    setup.tunables.fairshare.cost_model = CostModel::Time;
    setup
}

/// Returns readers and writers with small requests and large ones.
fn different() -> Vec<Source> {
    let source = |uid, direction, pages: &[u32]| {
        let source = Source::new(attrs(uid));
        source.of(pages).going(direction)
    };
    vec![
        source(0, Direction::Read, &[1]),
        source(1, Direction::Write, &[1]),
        source(2, Direction::Read, &[256]),
        source(3, Direction::Write, &[256]),
        source(4, Direction::Read, &[1, 16, 256]),
        source(5, Direction::Write, &[1, 16, 256]),
    ]
}

#[test]
fn time_is_shared_equally() {
    for (name, time, count) in [
        ("slow writes", slow_writes as Time, 10_000),
        // The share of one source is 20 large requests after 10,000 requests in all.
        ("by size", by_size, 60_000),
        ("fast", fast, 10_000),
    ] {
        for servers in [1, 8] {
            let mut sim = Sim::new(&setup("uid_fair"), different());
            let had = run(&mut sim, servers, time, count);
            let what = format!("{name}, {servers} at a time");
            assert_shares(&had, &[1.0; 6], 1.0, &what);
        }
    }
}

#[test]
fn time_is_shared_by_levels_and_weights() {
    let mut who = different();
    for (i, source) in who.iter_mut().enumerate() {
        source.attrs = Attrs {
            gid: Id::new(i as u32 / 2),
            ..source.attrs
        };
    }
    for servers in [1, 8] {
        let mut sim = Sim::new(&setup("gid_then_uid_fair"), who.clone());
        sim.weigh("gid:1:2,uid:0:3");
        let had = run(&mut sim, servers, slow_writes, 20_000);
        let what = format!("{servers} at a time");
        assert_shares(&had, &[3.0, 1.0, 4.0, 4.0, 2.0, 2.0], 1.5, &what);
    }
}

/// Checks a device that becomes a hundred times slower at once.
#[test]
fn a_device_that_changes() {
    for servers in [1, 8] {
        let mut sim = Sim::new(&setup("uid_fair"), different());
        run(&mut sim, servers, fast, 5_000);
        let slow: Time = |request| 100 * fast(request);
        let had = run(&mut sim, servers, slow, 10_000);
        assert_shares(&had, &[1.0; 6], 1.0, &format!("{servers} at a time"));
    }
}
