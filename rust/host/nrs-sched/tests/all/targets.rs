// SPDX-License-Identifier: GPL-2.0-only

//! High priority on a target. Shares, order, and utilisation of the device are tested in nrs-sim,
//! interaction of targets of a service in `tests/vm/devices.sh`.

use nrs_sched::{
    arena::{attrs, config_of, Request},
    attr::{Attrs, Priority},
    server::{Relate, Server},
    units::{NSEC_PER_MSEC as MS, NSEC_PER_SEC as SECOND},
};
use std::collections::VecDeque;

const SLOTS: u32 = 8;
const SERVICE: u64 = 2 * MS;

/// Checks that a high-priority request waits for at most one regular request, beside two users with
/// 16 regular requests each.
#[test]
fn high_priority_takes_two_service_times() {
    let config = config_of("fairshare uid_fair");
    let mut server = Server::new(&config, SLOTS, 64, 7).expect("memory");
    let mut ids = 0..;
    let mut send = |server: &mut Server, uid: u32| {
        let id = ids.next().expect("no end");
        let request = Request::new(uid, id, 1, server.now);
        let attrs = Attrs {
            priority: match uid {
                3 => Priority::High,
                _ => Priority::Regular,
            },
            ..attrs(uid)
        };
        assert!(server.arrive(request, &attrs, Relate::Not, false));
    };
    for uid in [3].into_iter().chain([1, 2].repeat(16)) {
        send(&mut server, uid);
    }
    let (mut arrived, mut took) = (server.now, Vec::new());
    // All requests take the same time: they end in the order of their start.
    let mut device = VecDeque::new();
    let end = server.now + 10 * SECOND;
    while server.now < end {
        let now = server.now;
        device.extend(server.started.drain(..).map(|id| (now + SERVICE, id)));
        let (done, id) = device.pop_front().expect("the device is busy");
        let expiry = server.next_expiry().filter(|at| (now..done).contains(at));
        if let Some(at) = expiry {
            device.push_front((done, id));
            server.wait(at - now);
            continue;
        }
        server.wait(done - now);
        let owner = server.complete(id).expect("it is at the device").owner;
        if owner == 3 {
            took.push(done - arrived);
            arrived = done;
        }
        send(&mut server, owner);
    }
    took.sort_unstable();
    let p99 = took[took.len() * 99 / 100];
    assert!(p99 <= 2 * SERVICE, "{p99} ns");
    assert!(took.len() > 1_000);
}
