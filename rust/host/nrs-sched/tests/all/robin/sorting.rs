// SPDX-License-Identifier: GPL-2.0-only

//! Order of requests within a batch of `orr` and `trr`, and the requests that are sorted.

use crate::bench::{attrs, read, Bench};
use nrs_sched::{
    arena::Request,
    attr::{Attrs, Priority, Stream},
    item::{ByteRange, Direction},
    policy::{
        params::heads::PerHead,
        robin::params::{OffsetType, Quantum, Supported},
        Kind, Tunables,
    },
};

/// Returns the parameters of both policies, changed by `tune`.
fn tuned(tune: impl Fn(&mut nrs_sched::policy::orr::Tunables)) -> Tunables {
    let mut tunables = Tunables::default();
    tune(&mut tunables.orr);
    tune(&mut tunables.trr);
    tunables
}

const BOTH: [Kind; 2] = [Kind::Orr, Kind::Trr];

/// Checks the order within a batch: by start, then the shorter range first, then by arrival.
#[test]
fn ranges_by_table() {
    for kind in BOTH {
        for (quantum, ranges, want) in [
            (8, &[(5, 1), (3, 1), (4, 1)][..], &[2, 3, 1][..]),
            (8, &[(5, 9), (5, 1), (5, 4), (2, 30)], &[4, 2, 3, 1]),
            (8, &[(7, 1), (7, 1), (7, 1)], &[1, 2, 3]),
            (
                2,
                &[(9, 1), (8, 1), (2, 1), (1, 1), (0, 1)],
                &[2, 1, 4, 3, 5],
            ),
            (1, &[(9, 1), (8, 1), (7, 1)], &[1, 2, 3]),
            (8, &[(u64::MAX, 8), (0, 0), (0, u64::MAX)], &[2, 3, 1]),
        ] {
            let quantum = PerHead::both(Quantum::new(quantum).expect("within limits"));
            let mut bench = Bench::new(kind, &tuned(|of| of.quantum = quantum));
            for &(offset, length) in ranges {
                let range = ByteRange::new(0, offset, length);
                bench.push(&attrs(1), Request { range, ..read(0) });
            }
            assert_eq!(bench.drain(), want, "{kind:?} {ranges:?}");
        }
    }
}

/// Checks both types of offsets. Physical: by offset on the device, regardless of the object.
/// Logical: object by object.
#[test]
fn offsets_are_those_of_the_type() {
    let requests = [(2, 10, 99), (1, 20, 50), (2, 5, 7), (1, 30, 60)];
    for kind in BOTH {
        for (offset_type, want) in [
            (OffsetType::Physical, [3, 1, 2, 4]),
            (OffsetType::Logical, [2, 4, 3, 1]),
        ] {
            let offset_type = PerHead::both(offset_type);
            let mut bench = Bench::new(kind, &tuned(|of| of.offset_type = offset_type));
            for (object, offset, logical) in requests {
                let range = ByteRange {
                    object,
                    offset,
                    logical,
                    length: 1,
                };
                bench.push(&attrs(1), Request { range, ..read(0) });
            }
            assert_eq!(bench.drain(), want, "{kind:?} {offset_type:?}");
        }
    }
}

/// Checks that classes are served in the order of their keys, regardless of arrival, and streams
/// before objects.
#[test]
fn classes_by_key() {
    let stream = |stream| Attrs {
        stream,
        ..attrs(stream as u32)
    };
    let mut bench = Bench::new(Kind::Orr, &Tunables::default());
    for attrs in [&attrs(9), &attrs(3), &stream(7), &attrs(4), &stream(2)] {
        bench.push(attrs, read(0));
    }
    assert_eq!(bench.drain(), [5, 3, 2, 4, 1]);
    // The target precedes the object.
    let object = |target, object| Attrs {
        target,
        object,
        ..Attrs::UNKNOWN
    };
    for attrs in [object(2, 1), object(1, 9), object(1, 8), object(0, 10)] {
        bench.push(&attrs, read(0));
    }
    assert_eq!(bench.drain(), [9, 8, 7, 6]);
    let mut bench = Bench::new(Kind::Trr, &Tunables::default());
    for who in [9, 3, 7] {
        bench.push(&attrs(who), read(0));
    }
    assert_eq!(bench.drain(), [2, 3, 1]);
}

/// Checks that requests of one stream are one class, regardless of their objects and targets.
#[test]
fn requests_of_a_stream_are_one_class() {
    let mut bench = Bench::new(Kind::Orr, &Tunables::default());
    for i in 0..12u32 {
        let attrs = Attrs {
            stream: u64::from(1 + i % 2),
            ..attrs(i)
        };
        bench.push(&attrs, read(u64::from(100 - i)));
    }
    assert_eq!(bench.drain(), [11, 9, 7, 5, 3, 1, 12, 10, 8, 6, 4, 2]);
}

/// Checks that reads of one device by two cgroups are one stream each, sorted by offset. Without
/// streams they are one class.
#[test]
fn cgroups_are_streams() {
    let drain = |source: Stream| {
        let mut bench = Bench::new(Kind::Orr, &Tunables::default());
        for (cgroup, offset) in [(40, 9), (41, 2), (40, 3), (41, 8), (40, 1), (41, 5)] {
            let attrs = Attrs {
                stream: source.of(0, || Some(cgroup)),
                ..attrs(1)
            };
            bench.push(&attrs, read(offset));
        }
        bench.drain()
    };
    assert_eq!(drain(Stream::Cgroup), [5, 3, 1, 2, 6, 4]);
    // Reads have no hint.
    for source in [Stream::Hint, Stream::None] {
        assert_eq!(drain(source), [5, 2, 3, 6, 4, 1]);
    }
}

/// Checks that unsupported directions are declined on the head that does not support them.
#[test]
fn supported() {
    let supported = PerHead {
        regular: Supported::Writes,
        high: Supported::Both,
    };
    for kind in BOTH {
        let tunables = tuned(|of| of.supported = supported);
        for (tunables, priority, read_is_taken, write_is_taken) in [
            (&Tunables::default(), Priority::Regular, true, false),
            (&tunables, Priority::Regular, false, true),
            (&tunables, Priority::High, true, true),
        ] {
            let mut bench = Bench::on(kind, tunables, priority);
            for (direction, taken) in [
                (Direction::Read, read_is_taken),
                (Direction::Write, write_is_taken),
                (Direction::Other, false),
            ] {
                let request = Request {
                    direction,
                    ..read(0)
                };
                assert_eq!(bench.push(&attrs(1), request).is_some(), taken);
            }
        }
    }
}

/// Checks that changes while requests are queued affect only later requests.
#[test]
fn changes_midway() {
    let before = Tunables::default();
    let after = tuned(|of| {
        of.supported = PerHead::both(Supported::Both);
        of.offset_type = PerHead::both(OffsetType::Logical);
        of.quantum = PerHead::both(Quantum::new(2).expect("within limits"));
    });
    for kind in BOTH {
        let mut bench = Bench::new(kind, &before);
        let range = |offset, logical| ByteRange {
            object: 0,
            offset,
            logical,
            length: 1,
        };
        let write = Request {
            direction: Direction::Write,
            ..read(0)
        };
        let with = |range, request| Request { range, ..request };
        assert_eq!(bench.push(&attrs(1), with(range(9, 1), read(0))), Some(1));
        assert_eq!(bench.push(&attrs(1), with(range(0, 0), write)), None);
        bench.update(kind, &before, &after);
        assert_eq!(bench.push(&attrs(1), with(range(1, 10), write)), Some(3));
        assert_eq!(bench.push(&attrs(1), with(range(0, 8), read(0))), Some(4));
        // The batch still has room for 256 requests; that of the other object has not.
        for offset in [3, 2, 1] {
            bench.push(&attrs(2), with(range(0, offset), read(0)));
        }
        assert_eq!(bench.drain(), [4, 1, 3, 6, 5, 7]);
    }
}
