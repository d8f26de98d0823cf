// SPDX-License-Identifier: MIT OR Apache-2.0

//! Encoding of requests and events.

use std::time::Duration;

use nrs_client::{wire, Busy, Early, Nid, Promotion, Reconnect, Recovered, Request};

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
fn predecessors_beyond_the_eighth_are_left_out() {
    let many: Vec<u64> = (1..20).collect();
    let wire = wire::Request::decode(&Request::new(1).after(&many).encode()).unwrap();
    assert_eq!(wire.predecessor, [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(
        Request::new(1).after(&many).after(&[]).encode(),
        Request::new(1).encode()
    );
}

#[test]
fn times_are_as_long_as_fits() {
    let plain = Request::new(1).encode();
    assert_eq!(Request::new(1).timeout(Duration::ZERO).encode(), plain);
    let ago = Request::new(1).elapsed(Duration::MAX).encode();
    assert_eq!(wire::Request::decode(&ago).unwrap().elapsed_ms, u32::MAX);
}

#[test]
fn early_replies_and_recovery() {
    let early = Early::new(7, 12_345, 999, wire::EARLY_BUSY);
    assert_eq!(Early::decode(&early.encode()), Ok(early));
    assert_eq!(early.encode()[..8], [5, 0, 24, 0, 2, 0, 0, 0]);
    assert_eq!(early.timeout(), Duration::from_millis(12_345));
    let released = wire::Released::new(1, 2, 0);
    assert!(!released.is_expired() && released.left().is_none());
    let recovered = Recovered::new(3, 5000);
    assert_eq!(recovered.encode()[..4], [6, 0, 16, 0]);
    assert_eq!(recovered.largest(), Duration::from_secs(5));
    assert_eq!(Busy::new(1, 2).encode()[..4], [7, 0, 24, 0]);
    let promotion = Promotion::new(0x0102).encode();
    assert_eq!(promotion[..10], [4, 0, 16, 0, 0, 0, 0, 0, 2, 1]);
    let nid: Nid = "10.1.2.3@o2ib4".parse().unwrap();
    let back = Reconnect::of(&nid, Duration::from_secs(1)).encode();
    assert_eq!(back[..4], [8, 0, 32, 0]);
    assert_eq!(back[8..16], [wire::NET_O2IB, 4, 4, 0, 10, 1, 2, 3]);
    assert_eq!(back[28..], [0xe8, 3, 0, 0]);
}
