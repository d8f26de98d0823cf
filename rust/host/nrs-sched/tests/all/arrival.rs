// SPDX-License-Identifier: GPL-2.0-only

//! Attributes that are gathered when a request arrives.

use nrs_sched::{
    arena::{attrs, Request},
    policy::{Config, Kind, Tunables},
    server::{Relate, Server},
};

/// Checks that a policy with one class gathers no attributes, whether requests pass or are queued.
#[test]
fn one_class_asks_for_no_attributes() {
    let config = |kind| Config::parse(kind, None, &Tunables::default()).expect("valid");
    let mut server = Server::new(&config(Kind::Fifo), 2, 0, 1).expect("memory");
    let mut id = 0;
    let mut bring = |server: &mut Server| {
        let before = server.gathered;
        for uid in 0..4 {
            id += 1;
            let request = Request::new(uid, id, 1, server.now);
            assert!(server.arrive(request, &attrs(uid), Relate::Not, false));
        }
        server.gathered - before
    };
    assert_eq!(bring(&mut server), 0);
    assert_eq!(server.started.len(), 2);
    server.install(&config(Kind::Crrn), 1).expect("memory");
    assert_eq!(bring(&mut server), 4);
    server.install(&config(Kind::Fifo), 1).expect("memory");
    assert_eq!(bring(&mut server), 0);
}
