// SPDX-License-Identifier: GPL-2.0-only

//! The timer of a partition, and the dispatch after a stall, with throttled requests.

use nrs_sched::{
    arena::{attrs, Request},
    policy::{delay, tbf, Config, Kind, Tunables},
    server::{Relate, Server},
    sim::SECOND,
};

/// Creates a server with `slots` slots, whose users may dispatch `rate` requests/s.
fn server(rate: &str, slots: u32) -> Server {
    let mut tunables = Tunables::default();
    tunables.tbf.rate = tbf::params::Rate::parse(rate).expect("a rate");
    tunables.tbf.depth = tbf::params::Depth::parse("1").expect("a depth");
    let config = Config::parse(Kind::Tbf, Some("uid"), &tunables).expect("valid");
    Server::new(&config, slots, 0, 1).expect("memory")
}

fn arrive(server: &mut Server, uid: u32, id: u64) {
    let request = Request::new(uid, id, 1, server.now);
    assert!(server.arrive(request, &attrs(uid), Relate::Not, false));
}

/// Checks that timer expiries are at least 20 µs apart. A thousand users have a token each
/// millisecond, one of them at each microsecond; the timer thus expires for 20 at a time.
#[test]
fn expiries_are_20_us_apart() {
    let mut server = server("1000", 1 << 16);
    for uid in 0..1_000 {
        for n in 0..20 {
            arrive(&mut server, uid, u64::from(uid) * 20 + n);
        }
        server.now += 1_000;
    }
    let (mut expired, mut last) = (0, 0);
    while let Some(at) = server.next_expiry() {
        assert!(at >= last + 20_000, "expiries at {last} and {at}");
        (expired, last) = (expired + 1, at);
        server.now = server.now.max(at);
        server.wait(0);
    }
    assert_eq!(server.started.len(), 20_000);
    // The timer is not armed more rarely either.
    assert!((900..=1_100).contains(&expired), "{expired} expiries");
}

/// Checks that a stall, in which an eligible request gets no slot, dispatches no request beyond its
/// rate.
#[test]
fn a_stall_dispatches_nothing_that_is_throttled() {
    let mut server = server("1", 1);
    // The request occupies the slot and hangs.
    arrive(&mut server, 9, 0);
    for id in 1..=100 {
        arrive(&mut server, 1, id);
    }
    arrive(&mut server, 2, 101);
    server.started.clear();
    server.wait(30 * SECOND);
    server.unstall(30 * SECOND);
    // One token of each user.
    assert_eq!(server.started.len(), 2, "{:?}", server.started);
    assert!(server.started.contains(&101));
}

/// Checks that the time of a delay does not count as a stall, neither when the delay ends nor when
/// another request arrives during the delay, while other partitions have all slots.
#[test]
fn a_delay_is_no_stall() {
    let mut tunables = Tunables::default();
    tunables.delay.min.regular = delay::params::Min::parse("40").expect("a delay");
    tunables.delay.max.regular = delay::params::Max::parse("40").expect("a delay");
    let config = Config::parse(Kind::Delay, None, &tunables).expect("valid");
    let mut server = Server::new(&config, 1, 64, 7).expect("memory");
    assert!(server.occupy_slot());
    arrive(&mut server, 1, 0);
    server.wait(35 * SECOND);
    arrive(&mut server, 1, 1);
    assert!(!server.unstall(30 * SECOND));
    server.wait(6 * SECOND);
    assert!(!server.unstall(30 * SECOND) && server.started.is_empty());
    server.wait(29 * SECOND);
    assert!(server.unstall(30 * SECOND));
    assert_eq!(server.started, [0]);
}
