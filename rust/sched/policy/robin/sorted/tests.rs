// SPDX-License-Identifier: GPL-2.0-only

//! Tests of the division of records among classes.

use super::*;
use crate::{
    arena::{IndexFifo, Request},
    item::{ByteRange, Direction},
    policy::robin::params::Supported,
};

const MAX: u32 = 256;

struct Bins {
    store: Sorted<Request>,
    bins: Vec<SortedBin<IndexFifo>>,
    next: u64,
}

impl Bins {
    fn new(classes: u32, fed: bool) -> Self {
        let bounds = Bounds {
            classes,
            requests: MAX,
        };
        let setting = Sorting {
            offset_type: OffsetType::Physical,
            supported: Supported::Reads,
        };
        let mut bins = Self {
            store: Sorted::new(bounds, setting).unwrap(),
            bins: (0..classes).map(|_| Sorted::<Request>::bin()).collect(),
            next: 0,
        };
        if fed {
            bins.feed();
            (0..classes).for_each(|idx| bins.store.create(idx));
        }
        bins
    }

    fn feed(&mut self) {
        let need = self.store.wants(self.bins.len());
        self.store.feed(need.allocate().unwrap());
    }

    fn at(&self, idx: u32, busy: u32) -> BinOwner {
        BinOwner {
            idx,
            key: [0, u64::from(idx)],
            busy,
        }
    }

    fn push(&mut self, idx: u32, busy: u32) {
        self.next += 1;
        let item = Request {
            id: self.next,
            pages: 1,
            range: ByteRange::new(0, 1 << 20, 4096),
            direction: Direction::Read,
            ..Request::default()
        };
        let at = self.at(idx, busy);
        let tag = BatchTag::default();
        self.store.push(at, &mut self.bins[idx as usize], item, tag);
        self.feed();
    }

    fn pop(&mut self, idx: u32) -> Option<u64> {
        let at = self.at(idx, 1);
        let (item, _) = self.store.pop(at, &mut self.bins[idx as usize])?;
        while let Some(idx) = self.store.refill() {
            let at = self.at(idx, 1);
            self.store.draw(at, &mut self.bins[idx as usize]);
        }
        Some(item.id)
    }

    fn records(&self) -> Vec<u32> {
        self.bins.iter().map(|bin| bin.records).collect()
    }

    fn lines(&self) -> Vec<u32> {
        self.bins.iter().map(|bin| bin.line.len()).collect()
    }
}

/// Verifies that classes with simultaneous arrivals have the same number of records.
#[test]
fn shares() {
    let mut bins = Bins::new(4, true);
    for i in 0..4000 {
        bins.push(i % 4, 4);
    }
    assert_eq!(bins.records(), [MAX / 4; 4]);
    assert_eq!(bins.store.waiting, 4000 - MAX);
}

/// Verifies that a class without records gets one when all records are taken. A free record goes to
/// the class with the first turn.
#[test]
fn one_at_least() {
    let mut bins = Bins::new(3, true);
    for _ in 0..1000 {
        bins.push(2, 1);
    }
    assert_eq!(bins.records(), [0, 0, MAX]);
    bins.push(1, 2);
    bins.push(1, 2);
    bins.push(0, 3);
    assert_eq!(bins.records(), [1, 1, MAX]);
    assert_eq!(bins.lines(), [0, 1, 1000 - MAX]);
    // Two more than the limit.
    for _ in 0..2 {
        assert!(bins.pop(2).is_some());
    }
    assert_eq!(bins.lines(), [0, 1, 1000 - MAX]);
    assert!(bins.pop(2).is_some());
    assert_eq!(
        (bins.records(), bins.lines()),
        (vec![1, 2, MAX - 3], vec![0, 0, 1000 - MAX])
    );
    for want in [1001, 1002] {
        assert_eq!(bins.pop(1), Some(want));
    }
    assert_eq!(bins.pop(1), None);
    assert_eq!(bins.records(), [1, 0, MAX - 1]);
}

/// Verifies that without memory requests join the line, and are dispatched from the line or sorted
/// when memory arrives.
#[test]
fn without_memory() {
    let mut bins = Bins::new(2, false);
    // Memory for the order of lines only.
    bins.store
        .lines
        .feed(bins.store.lines.wants(2).allocate().unwrap());
    (0..2).for_each(|idx| bins.store.create(idx));
    for idx in [0, 1, 0, 1] {
        let at = bins.at(idx, 2);
        bins.next += 1;
        let item = Request {
            id: bins.next,
            ..Request::default()
        };
        let bin = &mut bins.bins[idx as usize];
        bins.store.push(at, bin, item, BatchTag::default());
    }
    assert_eq!((bins.records(), bins.lines()), (vec![0; 2], vec![2; 2]));
    assert_eq!(bins.store.refill(), None);
    assert_eq!(bins.pop(1), Some(2));
    bins.feed();
    assert_eq!(bins.pop(1), Some(4));
    assert_eq!((bins.records(), bins.lines()), (vec![2, 0], vec![0; 2]));
    assert_eq!(bins.pop(0), Some(1));
    assert_eq!(bins.pop(0), Some(3));
    assert_eq!((bins.store.waiting, bins.store.records.live()), (0, 0));
}
