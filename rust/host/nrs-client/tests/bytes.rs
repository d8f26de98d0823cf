// SPDX-License-Identifier: GPL-2.0-only

//! Requests as the device sees them.

use nrs_client::{wire, Completion, Nid, Request};

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
        .high_priority(true);
    let wire = wire::Request::decode(&request.encode()).unwrap();
    assert_eq!(
        (wire.header.kind, wire.header.size, wire.header.flags),
        (
            wire::TYPE_REQUEST,
            200,
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
    assert_eq!((wire.stream, wire.predecessor), (0, [0; 8]));
    assert_eq!((wire.job_size, wire.reserved), (12, 0));
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

#[test]
fn names_end() {
    let mut field = [0; 32];
    field[0] = b'a';
    assert_eq!(wire::text(&field), Some(&b"a"[..]));
    field[2] = b'b';
    assert_eq!(wire::text(&field), None);
    assert_eq!(wire::text(&[b'a'; 32]), None);
}
