// SPDX-License-Identifier: GPL-2.0-only

//! Requests that the device refuses cost no tokens.

use super::sim::{none, TbfSim, SECOND};
use nrs_sched::{
    arena::{attrs, Request},
    item::Item,
    policy::{tbf, Config, Decision, Kind, Part, Tunables},
    server::{Relate, Server},
};

/// Checks that a device that refuses everything is offered all queued requests at once, and that
/// the user has no debt afterwards.
#[test]
fn a_backlog_for_a_dead_device_ends_at_once() {
    let mut tunables = Tunables::default();
    tunables.tbf.rate = tbf::params::Rate::parse("5").expect("a rate");
    tunables.tbf.depth = tbf::params::Depth::parse("1").expect("a depth");
    let config = Config::parse(Kind::Tbf, Some("uid"), &tunables).expect("valid");
    let mut server = Server::new(&config, 4, 0, 1).expect("memory");
    let arrive = |server: &mut Server, id| {
        let request = Request::new(1, id, 1, server.now);
        assert!(server.arrive(request, &attrs(1), Relate::Not, false));
    };
    for id in 0..60 {
        arrive(&mut server, id);
    }
    // The first request is not queued.
    assert_eq!(server.started, [0]);
    assert!(server.refuse(0).is_some());
    assert_eq!(server.started, [0]);
    server.wait(SECOND / 5);
    for id in 1..60 {
        assert_eq!(server.started.last(), Some(&id));
        assert!(server.refuse(id).is_some());
    }
    // One token is left, and the rate holds for requests that are processed.
    for id in 60..62 {
        arrive(&mut server, id);
    }
    assert!(server.complete(60).is_some());
    assert_eq!(server.started.last(), Some(&60));
    server.wait(SECOND / 5);
    assert_eq!(server.started.last(), Some(&61));
}

/// Checks that refused requests return their tokens to all buckets from which they took, that no
/// bucket gets more than its depth, and that the front of the class has a token that is returned.
#[test]
fn each_bucket_gets_its_tokens_back() {
    for parts in [1, 2] {
        let mut sim = TbfSim::new("uid", parts, &tbf::Tunables::default());
        sim.late = 0;
        sim.rule("start all uid={7} rate=10");
        sim.rule("start own uid={1} rate=20 also=all");
        let (cost, class) = (Request::new(1, 0, 1, 0).cost(), sim.class(0, 1));
        let refuse = |sim: &mut TbfSim| sim.parts[0].refund(class, cost, sim.now);
        for _ in 0..10 {
            sim.queue(0, 1, 1, 1);
            assert!(matches!(sim.get(0, false), Decision::Item(_)));
            refuse(&mut sim);
        }
        (0..10).for_each(|_| refuse(&mut sim));
        sim.queue(0, 1, 100, 1);
        // The depth of three, ten tokens of the shared bucket a second, and 10 ms for lateness.
        let count = sim.count(1, SECOND, none);
        assert_eq!(count, 3 + 10, "{parts} partitions");
        assert!(matches!(sim.get(0, false), Decision::Throttled { .. }));
        refuse(&mut sim);
        assert!(matches!(sim.get(0, false), Decision::Item(_)));
        assert!(matches!(sim.get(0, false), Decision::Throttled { .. }));
    }
}
