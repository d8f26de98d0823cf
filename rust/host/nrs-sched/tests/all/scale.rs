// SPDX-License-Identifier: GPL-2.0-only

//! 4,096 clients with 16 requests each: every policy queues them, serves each once, and finds each.

use nrs_sched::{
    heap::{Heap, Places, Sort},
    leftist_heap::{HeapRoot, LeftistForest},
    mem::{Grow, Need},
    policy::Part,
    rng::Rng,
    scale::{cases, Scale},
};
use std::{cell::Cell, cmp::Ordering, collections::HashSet};

const CLIENTS: u32 = 4_096;
const DEPTH: u32 = 16;

/// Checks that all requests are served once, after half of them were removed and enqueued again.
#[test]
fn all_policies() {
    for case in cases() {
        let mut scale = Scale::new(&case, CLIENTS, DEPTH, true);
        for _ in 0..CLIENTS * DEPTH / 2 {
            let request = scale.dequeue();
            scale.enqueue(request);
        }
        let mut seen = HashSet::new();
        for _ in 0..CLIENTS * DEPTH {
            let (request, grant) = scale.get();
            scale.stop(&request, &grant);
            assert!(seen.insert(request.id), "{}", case.name);
        }
        assert!(scale.part.is_empty(), "{}", case.name);
    }
}

thread_local! {
    static STEPS: Cell<u64> = const { Cell::new(0) };
}

/// A key that counts its comparisons.
#[derive(Clone, Copy, Default)]
struct Counted(u64);

impl Sort for Counted {
    fn compare(&self, other: &Self) -> Ordering {
        STEPS.set(STEPS.get() + 1);
        self.0.cmp(&other.0)
    }
}

/// Returns the maximum number of comparisons of one call of `step`, for 0 to `count` - 1.
fn most(count: u32, mut step: impl FnMut(u32)) -> u64 {
    let mut most = 0;
    for i in 0..count {
        STEPS.set(0);
        step(i);
        most = most.max(STEPS.get());
    }
    most
}

/// Checks that comparisons grow with the logarithm. A heap needs one comparison for each level
/// upwards and four for each level downwards. A forest needs two for each node on the right paths,
/// at most log2(n + 1), and one to find a place.
#[test]
fn steps_are_logarithmic() {
    const COUNT: u32 = 1 << 16;
    for count in [COUNT / 64, COUNT] {
        let log = u64::from(count.ilog2());
        let mut rng = Rng::new(1);
        let mut heap = Heap::<Counted>::new(count as usize).expect("memory");
        let mut places = Places::filled(count as usize, || u32::MAX).expect("memory");
        heap.feed(heap.wants(count as usize).allocate().expect("memory"));
        let push = most(count, |idx| {
            heap.push(&mut places, Counted(rng.next_u64()), idx);
        });
        let update = most(count, |idx| {
            heap.set(&mut places, Counted(rng.next_u64()), idx);
        });
        let remove = most(count, |idx| assert!(heap.remove(&mut places, idx)));
        println!("heap of {count}: push {push}, update {update}, remove {remove}");
        assert!(push <= log / 2 + 2);
        assert!(update.max(remove) <= 5 * (log / 2 + 2));

        let mut forest = LeftistForest::<Counted>::new(count as usize).expect("memory");
        forest.feed(forest.wants(count as usize).allocate().expect("memory"));
        let mut root = HeapRoot::EMPTY;
        let push = most(count, |idx| {
            forest.create(idx);
            forest.push(&mut root, Counted(rng.next_u64()), idx);
        });
        let update = most(count, |idx| {
            forest.update(&mut root, Counted(rng.next_u64()), idx);
        });
        let remove = most(count, |idx| forest.remove(&mut root, idx));
        println!("forest of {count}: push {push}, update {update}, remove {remove}");
        assert!(push.max(remove) <= 2 * log + 2);
        assert!(update <= 4 * log + 5);
    }
}
