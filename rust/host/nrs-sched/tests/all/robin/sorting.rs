// SPDX-License-Identifier: GPL-2.0-only

//! The order of requests within a batch of `orr` and `trr`, and what is sorted at all.

use crate::bench::{attrs, read, Bench};
use nrs_sched::{
    arena::Request,
    attr::{Attrs, Priority, Stream},
    item::{Direction, Spot},
    policy::{
        params::heads::PerHead,
        robin::params::{OffsetType, Quantum, Supported},
        Kind, Tunables,
    },
};

/// With both policies tuned by `tune`.
fn tuned(tune: impl Fn(&mut nrs_sched::policy::orr::Tunables)) -> Tunables {
    let mut tunables = Tunables::default();
    tune(&mut tunables.orr);
    tune(&mut tunables.trr);
    tunables
}

const BOTH: [Kind; 2] = [Kind::Orr, Kind::Trr];

/// By start, then the shorter first, then in the order of arrival; batch by batch.
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
                let spot = Spot::new(0, offset, length);
                bench.push(&attrs(1), Request { spot, ..read(0) });
            }
            assert_eq!(bench.drain(), want, "{kind:?} {ranges:?}");
        }
    }
}

/// Physical: by offsets on the device, whatever the object. Logical: object by object.
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
                let spot = Spot {
                    object,
                    offset,
                    logical,
                    length: 1,
                };
                bench.push(&attrs(1), Request { spot, ..read(0) });
            }
            assert_eq!(bench.drain(), want, "{kind:?} {offset_type:?}");
        }
    }
}

/// Classes go in the order of their keys, whoever came first; streams before objects.
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
    // The target comes before the object.
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

/// Requests of one stream are one class, through whatever objects and targets they go.
#[test]
fn a_stream_is_kept_together() {
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

/// Reads of one device by two cgroups are a stream each, in the order of their offsets; without streams they are one.
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

/// What is not supported is declined, on the head that does not support it.
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

/// What changes while requests are queued is for those that come later.
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
        let spot = |offset, logical| Spot {
            object: 0,
            offset,
            logical,
            length: 1,
        };
        let write = Request {
            direction: Direction::Write,
            ..read(0)
        };
        let with = |spot, request| Request { spot, ..request };
        assert_eq!(bench.push(&attrs(1), with(spot(9, 1), read(0))), Some(1));
        assert_eq!(bench.push(&attrs(1), with(spot(0, 0), write)), None);
        bench.tell(kind, &before, &after);
        assert_eq!(bench.push(&attrs(1), with(spot(1, 10), write)), Some(3));
        assert_eq!(bench.push(&attrs(1), with(spot(0, 8), read(0))), Some(4));
        // The batch has room for 256 still; another object's has not.
        for offset in [3, 2, 1] {
            bench.push(&attrs(2), with(spot(0, offset), read(0)));
        }
        assert_eq!(bench.drain(), [4, 1, 3, 6, 5, 7]);
    }
}
