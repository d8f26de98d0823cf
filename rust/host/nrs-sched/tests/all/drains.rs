// SPDX-License-Identifier: GPL-2.0-only

//! Policies that are replaced while a limited user has a backlog.

use nrs_sched::{
    arena::{attrs, Request},
    attr::{Attrs, Priority},
    policy::{
        tbf::{self, params::Rate},
        Config, Kind, Tunables,
    },
    server::{Relate, Server},
    units::NSEC_PER_MSEC as MS,
};

/// Submits the request `id` of the user `uid`.
fn send(server: &mut Server, id: u64, uid: u32, priority: Priority) {
    let request = Request::new(uid, id, 1, server.now);
    let attrs = Attrs {
        priority,
        ..attrs(uid)
    };
    assert!(server.arrive(request, &attrs, Relate::Not, false));
}

/// Checks that a policy change does not bypass a limit. A user with 10 requests/s has thousands
/// queued on the same head as another user, or on the other head. The limit holds as long as the
/// other user keeps requests queued.
#[test]
fn a_change_is_no_way_around_a_limit() {
    for priority in Priority::ALL {
        let tunables = Tunables::default();
        let limited = Tunables {
            tbf: tbf::Tunables {
                rate: Rate::parse("10").expect("a rate"),
                ..tunables.tbf
            },
            ..tunables
        };
        let tbf = Config::parse(Kind::Tbf, Some("uid"), &limited).expect("valid");
        let fair = Config::parse(Kind::Fairshare, Some("uid_fair"), &tunables).expect("valid");
        let mut server = Server::new(&tbf, 1, 20_000, 7).expect("memory");
        let mut ids = 0..;
        let mut next = || ids.next().expect("no end");
        send(&mut server, next(), 2, Priority::Regular);
        for _ in 0..5_000 {
            send(&mut server, next(), 1, priority);
        }
        send(&mut server, next(), 2, Priority::Regular);
        server.install(&fair, 7).expect("memory");
        for _ in 0..3 {
            send(&mut server, next(), 2, Priority::Regular);
        }
        // The device serves one request per ms.
        let mut done = [0; 3];
        for ms in 0..11_000 {
            server.wait(MS);
            for id in core::mem::take(&mut server.started) {
                let owner = server.complete(id).expect("it is at the device").owner;
                done[owner as usize] += 1;
                if owner == 2 && ms < 5_000 {
                    send(&mut server, next(), 2, Priority::Regular);
                }
                if ms == 4_999 {
                    assert!((48..=56).contains(&done[1]), "{priority:?}: {done:?}");
                }
            }
        }
        // Without competing requests, the old requests are dispatched at once.
        assert_eq!(done[1], 5_000, "{priority:?}: {done:?}");
    }
}

/// Checks that a synchronous user is not starved by another user's backlog in stopping instances.
/// The user keeps its share beside that backlog, or its limit if the limit is less. It keeps half
/// of the share if the other user also has requests in the new instance.
#[test]
fn a_change_starves_no_synchronous_user() {
    let of = |kind, argument, rate| {
        let mut tunables = Tunables::default();
        tunables.tbf.rate = Rate::parse(rate).expect("a rate");
        Config::parse(kind, Some(argument), &tunables).expect("valid")
    };
    let fair = of(Kind::Fairshare, "uid_fair", "10000");
    let other = of(Kind::Fairshare, "uid_then_jobid_fair", "10000");
    let fast = of(Kind::Tbf, "uid", "10000");
    let limited = of(Kind::Tbf, "uid+gid", "100");
    for (changes, alone, beside) in [
        (&[fair, other][..], 500, 250),
        (&[fair, fast], 500, 250),
        (&[fast, fair], 500, 250),
        (&[fair, limited], 100, 100),
        (&[limited, fair], 500, 250),
        // Two instances stop at the same time.
        (&[fair, other, fast], 500, 250),
    ] {
        for (want, instances) in [(alone, changes.len() - 1), (beside, changes.len())] {
            let mut server = Server::new(&changes[0], 1, 40_000, 7).expect("memory");
            let mut ids = 0..;
            let mut next = || ids.next().expect("no end");
            for (index, config) in changes.iter().enumerate() {
                if index > 0 {
                    server.install(config, 7).expect("memory");
                }
                for _ in 0..if index < instances { 5_000 } else { 0 } {
                    send(&mut server, next(), 2, Priority::Regular);
                }
            }
            send(&mut server, next(), 1, Priority::Regular);
            // The device serves one request per ms.
            let (mut got, mut sent, mut longest) = (0, 0, 0);
            for ms in 0..4_000 {
                server.wait(MS);
                for id in core::mem::take(&mut server.started) {
                    let owner = server.complete(id).expect("it is at the device").owner;
                    if owner == 1 {
                        longest = longest.max(ms - sent);
                        sent = ms;
                        got += 1;
                        send(&mut server, next(), 1, Priority::Regular);
                    }
                }
            }
            let got = got / 4;
            let kinds: Vec<_> = changes.iter().map(Config::kind).collect();
            assert!(got >= want * 9 / 10, "{kinds:?}: {got} for {want}");
            assert!(longest <= 4 * 1_000 / want, "{kinds:?}: {longest} ms");
        }
    }
}
