// SPDX-License-Identifier: GPL-2.0-only

//! Who brings no identity, no object and no hint is served all the same, beside those who do.

use super::bench::{attrs, read, Bench};
use nrs_sched::{
    arena::Request,
    attr::Attrs,
    item::{Direction, Spot},
    policy::{
        params::heads::PerHead,
        robin::params::{OffsetType, Supported},
        Kind, Part, Tunables,
    },
};

/// Every policy with every setting it has.
fn settings() -> Vec<(Kind, Tunables)> {
    let mut all = vec![(Kind::Crrn, Tunables::default())];
    for kind in [Kind::Orr, Kind::Trr] {
        for &offset_type in OffsetType::ALL {
            let mut tunables = Tunables::default();
            for of in [&mut tunables.orr, &mut tunables.trr] {
                of.offset_type = PerHead::both(offset_type);
                of.supported = PerHead::both(Supported::Both);
            }
            all.push((kind, tunables));
        }
    }
    all
}

/// They are one class, in the order in which they came, and have their turn.
#[test]
fn one_class_of_their_own() {
    for (kind, tunables) in settings() {
        let mut bench = Bench::new(kind, &tunables);
        let unknown = Request {
            spot: Spot::default(),
            direction: Direction::Write,
            ..Request::default()
        };
        for i in 0..2000 {
            bench.push(&attrs(1), read(i * 4096));
            bench.push(&Attrs::UNKNOWN, unknown);
        }
        let order = bench.drain();
        let unaware: Vec<u64> = order.iter().copied().filter(|id| id % 2 == 0).collect();
        assert!(unaware.is_sorted() && unaware.len() == 2000);
        // Of the first 1,024 half is theirs, with a quantum of 256 or less.
        let early = order.iter().take(1024).filter(|&id| id % 2 == 0);
        assert_eq!(early.count(), 512, "{kind:?}");
        assert_eq!(bench.part.overflow(), 0);
    }
}

/// Who has no network identifier is told apart by the number that the front-end gave.
#[test]
fn clients_without_nid() {
    let mut bench = Bench::new(Kind::Crrn, &Tunables::default());
    let client = |client| Attrs {
        client,
        ..Attrs::UNKNOWN
    };
    for number in [1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 0] {
        bench.push(&client(number), read(0));
    }
    assert_eq!(bench.drain(), [1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 9]);
}

/// What neither reads nor writes is declined by those that sort, and taken by the other.
#[test]
fn neither_read_nor_write() {
    for (kind, tunables) in settings() {
        let mut bench = Bench::new(kind, &tunables);
        let taken = bench.push(&attrs(1), Request::default()).is_some();
        assert_eq!(taken, kind == Kind::Crrn);
        assert_eq!(bench.len(), usize::from(taken));
    }
}
