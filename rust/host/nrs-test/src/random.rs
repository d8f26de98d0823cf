// SPDX-License-Identifier: GPL-2.0-only

//! Random numbers, choices and mutations of bytes; equal seeds give equal sequences.

use std::borrow::BorrowMut;

pub use fastrand::Rng as Random;

/// Choices and mutations beside those of [`Random`].
pub trait Draw: BorrowMut<Random> {
    /// Returns true once in `whole` times on average.
    fn one_in(&mut self, whole: u64) -> bool {
        self.borrow_mut().u64(..whole) == 0
    }

    /// Returns a random element of `all`, which must not be empty.
    fn pick<'a, T: ?Sized>(&mut self, all: &[&'a T]) -> &'a T {
        all[self.borrow_mut().usize(..all.len())]
    }

    /// Returns a random number: close to a power of two, close to the end of a range, or anywhere.
    fn odd_number(&mut self) -> u64 {
        let random = self.borrow_mut();
        match random.u8(..6) {
            0 => random.u64(..4),
            1 => (1 << random.u8(..64)) - random.u64(..2),
            2 => u64::MAX - random.u64(..3),
            3 => u64::from(u32::MAX) + random.u64(..3) - 1,
            4 => random.u64(..100_000),
            _ => random.u64(..),
        }
    }

    /// Changes, removes, repeats or inserts some of `bytes`.
    fn mutate(&mut self, bytes: &mut Vec<u8>) {
        const LIKELY: &[u8] = b" \n\t\0{}[]&,+=.:;*-_%@#\"'\\/0189azAZ\x7f\x80\xc3\xff";
        let random = self.borrow_mut();
        for _ in 0..random.u8(1..=4) {
            let at = random.usize(..=bytes.len());
            let likely = LIKELY[random.usize(..LIKELY.len())];
            match random.u8(..7) {
                0 if at < bytes.len() => bytes[at] ^= 1 << random.u8(..8),
                1 if at < bytes.len() => bytes[at] = likely,
                2 if at < bytes.len() => drop(bytes.remove(at)),
                3 => bytes.insert(at, likely),
                4 => bytes.truncate(at),
                5 => bytes.extend_from_within(at..),
                _ => {
                    // Sometimes longer than any accepted value.
                    let most = if random.one_in(20) { 5000 } else { 80 };
                    let many = std::iter::repeat_n(likely, random.usize(..most));
                    bytes.splice(at..at, many);
                }
            }
        }
    }
}

impl Draw for Random {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_changes() {
        let draw = |seed| {
            let mut random = Random::with_seed(seed);
            let mut bytes = b"start a uid={1} rate=5".to_vec();
            (0..50).for_each(|_| {
                random.mutate(&mut bytes);
                bytes.truncate(200);
            });
            (random.u64(..), random.odd_number(), bytes)
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }
}
