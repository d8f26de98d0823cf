// SPDX-License-Identifier: GPL-2.0-only

//! The queue of an entity with and without locality: seek distances and waiting times.

use nrs_sched::{
    arena::{IndexFifo, Request},
    item::ByteRange,
    policy::fairshare::locality::{OffsetQueue, BATCH},
    rng::Rng,
};
use proptest::prelude::*;

type Queue = OffsetQueue<IndexFifo>;

fn request(id: u64, object: u64, offset: u64) -> Request {
    Request {
        id,
        range: ByteRange::new(object, offset, 4096),
        ..Request::default()
    }
}

/// Removes a request; asserts that it was the front.
fn pop(queue: &mut Queue, locality: bool) -> Option<Request> {
    let (front, len) = (queue.front().copied(), queue.len());
    let popped = queue.pop(locality);
    assert_eq!(popped, front);
    let left = queue.len();
    assert_eq!(left, len - u32::from(popped.is_some()));
    assert_eq!(queue.is_empty(), left == 0);
    assert_eq!(queue.is_empty(), queue.front().is_none());
    popped
}

fn drain(queue: &mut Queue, locality: bool) -> Vec<Request> {
    std::iter::from_fn(|| pop(queue, locality)).collect()
}

fn seeks(served: &[Request]) -> u64 {
    let offset = |at: &Request| at.range.offset;
    let two = served.windows(2);
    two.map(|two| offset(&two[0]).abs_diff(offset(&two[1])))
        .sum()
}

/// Checks the order of a few arrivals, all queued before any is served. The thousands of an arrival
/// are its object, the rest is its offset; objects are served one after another.
#[test]
fn orders() {
    for (locality, arrivals, served) in [
        (false, vec![5, 3, 9, 1, 7], vec![5, 3, 9, 1, 7]),
        // The first request is served as it arrives; the sweep continues upwards from there, and
        // then once more from the lowest.
        (true, vec![5, 3, 9, 1, 7], vec![5, 7, 9, 1, 3]),
        (true, vec![5, 6, 5, 4, 5], vec![5, 5, 5, 6, 4]),
        (true, vec![0, 1, 2, 3], vec![0, 1, 2, 3]),
        (true, vec![4, 3, 2, 1], vec![4, 1, 2, 3]),
        (
            true,
            vec![u64::MAX, 0, u64::MAX],
            vec![u64::MAX, u64::MAX, 0],
        ),
        (
            true,
            vec![2050, 1090, 3001, 2070, 1003, 2050, 2010],
            vec![2050, 2050, 2070, 3001, 1003, 1090, 2010],
        ),
        (true, vec![8], vec![8]),
        (true, vec![], vec![]),
    ] {
        let mut queue = Queue::new();
        for (id, &offset) in arrivals.iter().enumerate() {
            queue.push(request(id as u64, offset / 1000, offset % 1000), locality);
        }
        let got = drain(&mut queue, locality).into_iter();
        let got = got.map(|request| request.range.object * 1000 + request.range.offset);
        assert_eq!(got.collect::<Vec<_>>(), served, "{locality} {arrivals:?}");
    }
}

/// Checks that a batch ends where the next one begins, regardless of later arrivals.
#[test]
fn batches_do_not_mix() {
    let mut queue = Queue::new();
    let batch = u64::from(BATCH);
    queue.push(request(0, 1, 0), true);
    for id in 1..=3 * batch {
        // Descending offsets: later requests below earlier ones.
        queue.push(request(id, 1, 10_000 - id), true);
    }
    let ids: Vec<u64> = drain(&mut queue, true)
        .iter()
        .map(|request| request.id)
        .collect();
    // The next sweep starts upwards from the highest offset of the previous one; no request is
    // above, so it starts from the lowest.
    let down = |batches: u64| ((batches - 1) * batch + 1..=batches * batch).rev();
    let expected: Vec<u64> = std::iter::once(0).chain((1..=3).flat_map(down)).collect();
    assert_eq!(ids, expected);
}

/// Checks that 32 random queued requests need at most a fourth of the seek distance, with and
/// without a refilled queue.
#[test]
fn seeks_get_shorter() {
    let mut rng = Rng::new(1);
    for refill in [0, 100_000] {
        let mut way = [0, 0];
        for _ in 0..if refill == 0 { 1000 } else { 1 } {
            let mut id = 0;
            let offsets: Vec<u64> = (0..u64::from(BATCH) + refill)
                .map(|_| rng.next_u64() >> 24)
                .collect();
            for (way, locality) in way.iter_mut().zip([false, true]) {
                let mut queue = Queue::new();
                let mut served = Vec::new();
                for &offset in &offsets {
                    if queue.len() == BATCH {
                        served.extend(pop(&mut queue, locality));
                    }
                    queue.push(request(id, 1, offset), locality);
                    id += 1;
                }
                served.extend(drain(&mut queue, locality));
                assert_eq!(served.len(), offsets.len());
                *way += seeks(&served) >> 10;
            }
        }
        let [fifo, sorted] = way;
        println!("{} times shorter", fifo as f64 / sorted as f64);
        assert!(sorted * 4 <= fifo, "{refill}: {fifo} {sorted}");
    }
}

/// Checks that sequential readers are served in their order, at any depth.
#[test]
fn sequential_stays_sequential() {
    for depth in [1, 2, 31, 32, 33, 100] {
        let mut queue = Queue::new();
        let mut served = Vec::new();
        for id in 0..1000 {
            queue.push(request(id, 1, 8 * id), true);
            if queue.len() == depth {
                served.extend(pop(&mut queue, true));
            }
        }
        served.extend(drain(&mut queue, true));
        let ids: Vec<u64> = served.iter().map(|request| request.id).collect();
        assert_eq!(ids, (0..1000).collect::<Vec<u64>>(), "{depth}");
    }
}

proptest! {
    /// Checks random offsets and arrivals: all requests are served once within the bound, and
    /// requests of one offset keep their order. Without locality all requests keep their order.
    #[test]
    fn waiting_time_is_bounded(
        steps in prop::collection::vec((0..5u32, 0..3u64, 0..20u64), 1..600),
        locality in any::<bool>(),
        few in any::<bool>(),
    ) {
        let mut queue = Queue::new();
        let mut bounds = Vec::new();
        let mut served = Vec::new();
        let slack = if locality { u64::from(BATCH) - 1 } else { 0 };
        for (choice, object, offset) in steps {
            let pushes = choice < if few { 2 } else { 3 };
            if pushes {
                let id = bounds.len() as u64;
                let front = queue.front().copied();
                bounds.push(served.len() as u64 + u64::from(queue.len()) + slack);
                queue.push(request(id, object, offset), locality);
                prop_assert!(front.is_none() || queue.front().copied() == front);
            } else {
                served.extend(pop(&mut queue, locality));
            }
        }
        served.extend(drain(&mut queue, locality));
        prop_assert_eq!(served.len(), bounds.len());
        let mut last = std::collections::BTreeMap::new();
        for (at, request) in served.iter().enumerate() {
            prop_assert!(at as u64 <= bounds[request.id as usize], "{}", request.id);
            let before = last.insert(request.range, request.id);
            prop_assert!(before.is_none_or(|before| before < request.id));
            prop_assert!(locality || at as u64 == request.id);
        }
    }
    /// Checks that no request is lost when locality is switched at any time.
    #[test]
    fn the_switch_loses_nothing(
        steps in prop::collection::vec((any::<bool>(), any::<bool>(), 0..50u64), 1..400),
    ) {
        let mut queue = Queue::new();
        let (mut id, mut served) = (0, Vec::new());
        for (push, locality, offset) in steps {
            if push {
                queue.push(request(id, 1, offset), locality);
                id += 1;
            } else {
                served.extend(pop(&mut queue, locality).map(|request| request.id));
            }
        }
        served.extend(drain(&mut queue, false).iter().map(|request| request.id));
        served.sort_unstable();
        prop_assert_eq!(served, (0..id).collect::<Vec<u64>>());
    }
}
