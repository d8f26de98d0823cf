// SPDX-License-Identifier: GPL-2.0-only

//! Requests that the device refuses cost no tokens.

use super::sim::SECOND;
use nrs_sched::{
    arena::{attrs, Request},
    policy::{tbf, Config, Kind, Tunables},
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
