// SPDX-License-Identifier: GPL-2.0-only

//! Requests as the device sees them.

use std::time::Duration;

use nrs_client::{wire, Busy, Completion, Early, Nid, Promotion, Reconnect, Recovered, Request};

#[test]
fn a_request_is_written_as_it_was_described() {
    let nid: Nid = "10.1.2.3@o2ib4".parse().unwrap();
    let request = Request::new(7)
        .opcode(4)
        .nid(&nid)
        .jobid("dd.1000")
        .job_size(12)
        .uid(1)
        .gid(2)
        .projid(3)
        .nodemap(4)
        .object(5)
        .offset(6)
        .length(4096)
        .charge(1)
        .stream(8)
        .after(&[9, 10])
        .target(11)
        .timeout(Duration::from_secs(12))
        .elapsed(Duration::from_millis(13))
        .high_priority(true);
    let wire = wire::Request::decode(&request.encode()).unwrap();
    assert_eq!(
        (wire.header.kind, wire.header.size, wire.header.flags),
        (
            wire::TYPE_REQUEST,
            208,
            wire::REQUEST_HIGH | wire::REQUEST_CHARGE
        )
    );
    assert_eq!((wire.cookie, wire.opcode), (7, 4));
    assert_eq!(
        (wire.uid, wire.gid, wire.projid, wire.nodemap),
        (1, 2, 3, 4)
    );
    assert_eq!(
        (wire.object, wire.offset, wire.length, wire.charge),
        (5, 6, 4096, 1)
    );
    assert_eq!(
        (wire.net, wire.net_number, wire.address_len),
        (wire::NET_O2IB, 4, 4)
    );
    assert_eq!(wire.address[..5], [10, 1, 2, 3, 0]);
    assert_eq!(wire::text(&wire.jobid), Some(&b"dd.1000"[..]));
    assert_eq!(
        (wire.stream, wire.predecessor),
        (8, [9, 10, 0, 0, 0, 0, 0, 0])
    );
    assert_eq!((wire.job_size, wire.target), (12, 11));
    assert_eq!((wire.timeout_ms, wire.elapsed_ms), (12_000, 13));
}

#[test]
fn long_jobs_are_cut() {
    let cut = |job: &str| {
        let wire = wire::Request::decode(&Request::new(1).jobid(job).encode()).unwrap();
        wire::text(&wire.jobid).unwrap().to_vec()
    };
    assert_eq!(cut(&"x".repeat(40)), [b'x'; 31]);
    assert_eq!(cut("a\0b"), b"a");
    assert_eq!(cut(""), b"");
}

#[test]
fn records_of_other_versions() {
    let bytes = Completion::new(1, 5, 3).encode();
    assert_eq!(
        wire::Completion::decode(&bytes[..31]),
        Err(wire::Malformed::Short)
    );
    let mut longer = bytes.to_vec();
    longer.extend([0; 8]);
    assert_eq!(
        wire::Completion::decode(&longer),
        Ok(Completion::new(1, 5, 3))
    );
    longer[39] = 1;
    assert_eq!(
        wire::Completion::decode(&longer),
        Err(wire::Malformed::Unknown)
    );
}

/// A module of version 2 takes what programs of version 1 write, and knows no size of their jobs.
#[test]
fn requests_of_version_1() {
    let mut bytes = Request::new(1).uid(7).job_size(12).encode();
    bytes[2] = 192;
    let old = wire::Request::decode(&bytes[..192]).unwrap();
    assert_eq!((old.cookie, old.uid, old.job_size), (1, 7, 0));
    assert_eq!(wire::Request::decode(&bytes[..196]).unwrap().job_size, 12);
    for len in [0, 8, 191] {
        let short = wire::Request::decode(&bytes[..len]);
        assert_eq!(short, Err(wire::Malformed::Short));
    }
}

/// What versions 1 and 2 take: what version 3 gave a meaning has to be 0, and is where nothing is said.
#[test]
fn requests_for_earlier_versions() {
    let plain = Request::new(1).uid(7).job_size(12).encode();
    let (stream, target) = (120..192, 196..200);
    assert!(plain[stream.clone()].iter().all(|byte| *byte == 0));
    assert!(plain[target.clone()].iter().all(|byte| *byte == 0));
    let changed = |request: Request| {
        let bytes = request.uid(7).job_size(12).encode();
        let differ = (0..bytes.len()).filter(|at| bytes[*at] != plain[*at]);
        differ.collect::<Vec<_>>()
    };
    assert_eq!(changed(Request::new(1).stream(1)), [stream.start]);
    assert_eq!(changed(Request::new(1).after(&[1])), [stream.start + 8]);
    assert_eq!(changed(Request::new(1).target(1)), [target.start]);
    let many: Vec<u64> = (1..20).collect();
    assert_eq!(
        Request::new(1).after(&many).after(&[]).encode(),
        Request::new(1).encode()
    );
}

/// A module before version 3 has 0 where later ones tell credits; its statistics are shorter.
#[test]
fn answers_of_earlier_versions() {
    let mut bytes = wire::Released::new(1, 2, 0).encode();
    let old = wire::Released::decode(&bytes).unwrap();
    assert_eq!((old.credits, old.fan_out), (0, 0));
    (bytes[24], bytes[28]) = (5, 6);
    let new = wire::Released::decode(&bytes).unwrap();
    assert_eq!((new.credits, new.fan_out), (5, 6));
    let mut stats = [0; wire::Stats::FIRST];
    (stats[0], stats[112]) = (wire::Stats::FIRST as u8, 9);
    let stats = wire::Stats::decode(&stats).unwrap();
    assert_eq!((stats.forced, stats.promoted, stats.credits), (9, 0, 0));
    assert_eq!(wire::Stats::FIRST, 120);
    // Version 3: neither deadlines nor an estimate.
    let mut bytes = [0; wire::Released::FIRST];
    (bytes[2], bytes[24]) = (wire::Released::FIRST as u8, 5);
    let old = wire::Released::decode(&bytes).unwrap();
    assert_eq!((old.credits, old.estimate_ms, old.left_ms), (5, 0, 0));
    assert!(!old.is_expired() && old.left().is_none());
    let mut stats = [0; 168];
    (stats[0], stats[164]) = (168, 9);
    let stats = wire::Stats::decode(&stats).unwrap();
    assert_eq!((stats.credits_high, stats.early_sent), (9, 0));
}

/// What a module before version 4 takes: a request without a timeout is as long as zeros make it.
#[test]
fn requests_without_timeouts() {
    let plain = Request::new(1).encode();
    assert!(plain[200..].iter().all(|byte| *byte == 0));
    let with = Request::new(1)
        .timeout(Duration::from_millis(0x0102))
        .encode();
    assert_eq!((with[200], with[201], &with[..200]), (2, 1, &plain[..200]));
    let ago = Request::new(1).elapsed(Duration::MAX).encode();
    assert_eq!(ago[204..], [0xff; 4]);
    assert_eq!(Request::new(1).timeout(Duration::ZERO).encode(), plain);
}

/// Records of version 4.
#[test]
fn early_replies_and_recovery() {
    let early = Early::new(7, 12_345, 999, wire::EARLY_BUSY);
    assert_eq!(Early::decode(&early.encode()), Ok(early));
    assert_eq!(early.encode()[..8], [5, 0, 24, 0, 2, 0, 0, 0]);
    assert_eq!(early.timeout(), Duration::from_millis(12_345));
    let recovered = Recovered::new(3, 5000);
    assert_eq!(recovered.encode()[..4], [6, 0, 16, 0]);
    assert_eq!(recovered.largest(), Duration::from_secs(5));
    assert_eq!(Busy::new(1, 2).encode()[..4], [7, 0, 24, 0]);
    let nid: Nid = "10.1.2.3@o2ib4".parse().unwrap();
    let back = Reconnect::of(&nid, Duration::from_secs(1)).encode();
    assert_eq!(back[..4], [8, 0, 32, 0]);
    assert_eq!(back[8..16], [wire::NET_O2IB, 4, 4, 0, 10, 1, 2, 3]);
    assert_eq!(back[28..], [0xe8, 3, 0, 0]);
    let short = wire::Reconnect::decode(&back[..31]);
    assert_eq!(short, Err(wire::Malformed::Short));
}

#[test]
fn promotions() {
    let bytes = Promotion::new(0x0102).encode();
    assert_eq!(bytes[..10], [4, 0, 16, 0, 0, 0, 0, 0, 2, 1]);
    assert_eq!(wire::Promotion::decode(&bytes), Ok(Promotion::new(0x0102)));
    let short = wire::Promotion::decode(&bytes[..15]);
    assert_eq!(short, Err(wire::Malformed::Short));
}

#[test]
fn names_end() {
    let mut field = [0; 32];
    field[0] = b'a';
    assert_eq!(wire::text(&field), Some(&b"a"[..]));
    field[2] = b'b';
    assert_eq!(wire::text(&field), None);
    assert_eq!(wire::text(&[b'a'; 32]), None);
}
