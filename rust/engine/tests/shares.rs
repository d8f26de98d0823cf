// SPDX-License-Identifier: GPL-2.0-only

//! Shares and counters on the kernel's own arithmetic and memory.

use kernel::{
    impl_has_work, new_work,
    prelude::*,
    sync::{
        atomic::{ordering, Atomic},
        Arc, Completion,
    },
    workqueue::{Work, WorkItem},
};

use crate::{
    sched::{
        policy::fairshare::shared::Counters,
        ranges::{Brief, Outline},
        rng::Rng,
    },
    sys::{misc, queue},
};

/// Inner nodes of each of the two upper levels, and leaves below each node of the last one.
const WIDTH: u64 = 7;

/// All numbers of 32 bits.
const WHOLE: u64 = 1 << 32;

/// `value / by`, a bit at a time: the kernel has no division of 128 bits.
fn divide(value: u128, by: u128) -> u128 {
    let (mut rest, mut quotient) = (0u128, 0u128);
    for bit in (0..128).rev() {
        rest = (rest << 1) | ((value >> bit) & 1);
        quotient <<= 1;
        if rest >= by {
            rest = rest.wrapping_sub(by);
            quotient |= 1;
        }
    }
    quotient
}

/// The identifier of a node by its place on each level; 0 where it has none.
const fn id(a: u64, b: u64, c: u64) -> u64 {
    (a << 32) | (b << 16) | c
}

/// Adds a node to `outline`.
fn add(outline: &mut Outline, id: u64, parent: u64, weight: u32, leaf: bool) -> Result {
    let brief = Brief {
        id,
        parent,
        weight,
        leaf,
        active: leaf,
        part: 0,
    };
    outline.extend(&[brief]).map_err(|_| ENOMEM)
}

/// Weights of the nodes below one node.
fn weights(rng: &mut Rng, most: u32) -> [u32; WIDTH as usize] {
    core::array::from_fn(|_| (rng.next_u32() % most).max(1))
}

/// Shares of a level, 2^32 in all, as exact as 32 bits more can be.
fn exact(whole: u128, weight: u32, weights: &[u32]) -> u128 {
    let sum = weights
        .iter()
        .fold(0u128, |sum, weight| sum.wrapping_add(u128::from(*weight)));
    divide(whole.wrapping_mul(u128::from(weight)), sum)
}

/// A tree of three levels with weights below `most`: how far the worst range is from the product of the
/// levels' shares, and whether all is covered.
fn worst(seed: u64, most: u32) -> Result<(u128, bool)> {
    let mut rng = Rng::new(seed);
    let mut outline = Outline::new();
    let mut wanted = KVec::new();
    let first = weights(&mut rng, most);
    for (a, weight) in (1..).zip(first) {
        add(&mut outline, id(a, 0, 0), 0, weight, false)?;
        let share = exact(u128::from(WHOLE) << 32, weight, &first);
        let second = weights(&mut rng, most);
        for (b, weight) in (1..).zip(second) {
            add(&mut outline, id(a, b, 0), id(a, 0, 0), weight, false)?;
            let share = exact(share, weight, &second);
            let third = weights(&mut rng, most);
            for (c, weight) in (1..).zip(third) {
                add(&mut outline, id(a, b, c), id(a, b, 0), weight, true)?;
                wanted.push(
                    (id(a, b, c), exact(share, weight, &third) >> 32),
                    GFP_KERNEL,
                )?;
            }
        }
    }
    let table = outline.build().map_err(|_| ENOMEM)?.table;
    let (mut worst, mut sum, mut full) = (0u128, 0u64, true);
    for (leaf, share) in &wanted {
        let len = table.range_of(*leaf).map_or(0, |range| range.len());
        worst = worst.max(u128::from(len).abs_diff(*share));
        sum = sum.wrapping_add(len);
        full &= len > 0;
    }
    let edges = table.find(0).is_some() && table.find(u32::MAX).is_some();
    Ok((worst, full && edges && sum == WHOLE))
}

/// Claims the counters of some names, counts and leaves, while another one does the same.
#[pin_data]
struct Claimer {
    counters: Arc<Counters>,
    counted: Atomic<u64>,
    #[pin]
    done: Completion,
    #[pin]
    work: Work<Self>,
}

impl_has_work! {
    impl HasWork<Self> for Claimer { self.work }
}

/// Names that are claimed.
const NAMES: u64 = 100;

impl WorkItem for Claimer {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        for round in 0..200u64 {
            for name in 1..=NAMES {
                // The tag is in the upper bits, as in hashes.
                let name = name
                    .wrapping_add(round & 1)
                    .wrapping_mul(0x9e37_79b9_7f4a_7c15);
                if let Some(seat) = this.counters.claim(name) {
                    this.counters.add(&seat, 1);
                    this.counters.release(seat);
                    this.counted.fetch_add(1, ordering::Relaxed);
                }
            }
            misc::cond_resched();
        }
        this.done.complete_all();
    }
}

#[kunit_tests(nrs_shares)]
mod numbers {
    use super::*;

    #[test]
    fn ranges_are_the_product_of_the_levels() -> Result {
        let (mut far, mut all) = (0, true);
        for seed in 0..20 {
            let (worst, whole) = worst(seed, 10_000)?;
            far = far.max(worst);
            all &= whole;
        }
        assert!(far <= 3 && all);
        Ok(())
    }

    #[test]
    fn the_largest_weights_fit() -> Result {
        let (_, whole) = worst(7, u32::MAX >> 1)?;
        let mut outline = Outline::new();
        add(&mut outline, 1, 0, (1 << 31) - 1, true)?;
        add(&mut outline, 2, 0, 1, true)?;
        let table = outline.build().map_err(|_| ENOMEM)?.table;
        let small = table.range_of(2).map_or(0, |range| range.len());
        assert!(whole && (1..=3).contains(&small));
        Ok(())
    }

    #[test]
    fn counters_are_claimed_on_two_cpus() -> Result {
        let counters = Counters::new(NAMES as usize * 4).map_err(|_| ENOMEM)?;
        let counters = Arc::new(counters, GFP_KERNEL)?;
        let claimer = |counters: Arc<Counters>| {
            Arc::pin_init(
                pin_init!(Claimer {
                    counters,
                    counted: Atomic::new(0),
                    done <- Completion::new(),
                    work <- new_work!("nrs_claimer"),
                }),
                GFP_KERNEL,
            )
        };
        let (one, two) = (claimer(counters.clone())?, claimer(counters.clone())?);
        for claimer in [&one, &two] {
            let _ = queue::upkeep().enqueue(claimer.clone());
        }
        one.done.wait_for_completion();
        two.done.wait_for_completion();
        let counted = [&one, &two].iter().fold(0u64, |sum, claimer| {
            sum.wrapping_add(claimer.counted.load(ordering::Relaxed))
        });
        let refused = counters.crowded();
        // Nobody is left, so nobody is refused now.
        let mut free = 0;
        for name in 1..=NAMES {
            free += u64::from(
                counters
                    .claim(name.wrapping_mul(0x9e37_79b9_7f4a_7c15))
                    .is_some(),
            );
        }
        assert!(counted == 2 * 200 * NAMES && refused == 0 && free == NAMES);
        Ok(())
    }
}
