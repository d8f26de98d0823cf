// SPDX-License-Identifier: GPL-2.0-only

//! Requests that a device pulls.

use nrs_sched::{
    arena::{attrs, config_of, Request},
    attr::{Attrs, Priority},
    server::{Relate, Server},
};

/// Checks that an end dispatches nothing at a device that pulls, that a request that arrives before
/// the pull may go first, and that the device pulls as many requests as there are slots.
#[test]
fn requests_are_decided_when_they_are_pulled() {
    let mut server = Server::new(&config_of("fifo"), 2, 0, 1).expect("memory");
    server.set_pulls();
    let arrive = |server: &mut Server, id, priority| {
        let attrs = Attrs {
            priority,
            ..attrs(1)
        };
        let request = Request::new(1, id, 1, server.now);
        assert!(server.arrive(request, &attrs, Relate::Not, false));
    };
    for id in 1..=5 {
        arrive(&mut server, id, Priority::Regular);
    }
    // Two requests have passed; no slot is free.
    assert!(!server.pull());
    assert_eq!(server.started, [1, 2]);
    server.complete(1);
    server.complete(2);
    arrive(&mut server, 6, Priority::High);
    assert_eq!(server.started, [1, 2]);
    let mut pulled = 0;
    while server.pull() {
        pulled += 1;
    }
    assert_eq!((&server.started[2..], pulled), (&[6, 3][..], 2));
    // One slot is reserved for high priority now.
    server.complete(6);
    assert!(!server.pull());
    server.complete(3);
    assert!(server.pull() && !server.pull());
    assert_eq!(server.started[4..], [4]);
}
