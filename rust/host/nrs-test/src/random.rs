// SPDX-License-Identifier: GPL-2.0-only

//! Random numbers, choices and mutations of bytes; equal seeds give equal sequences.

use nrs_sched::rng::Rng;

/// Generator of random values.
#[derive(Clone, Debug)]
pub struct Random(Rng);

impl Random {
    /// Creates a generator with `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(Rng::new(seed))
    }

    /// Returns a random number of 64 bits.
    pub fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Returns a random number below `end`; 0 if `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0.below(end)
    }

    /// Returns a random index of a list of `len` elements.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// Returns a random number from `low` to `high`.
    pub fn within(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// Returns true once in `whole` times on average.
    pub fn one_in(&mut self, whole: u64) -> bool {
        self.below(whole) == 0
    }

    /// Returns a random element of `all`, which must not be empty.
    pub fn pick<'a, T: ?Sized>(&mut self, all: &[&'a T]) -> &'a T {
        all[self.index(all.len())]
    }

    /// Returns a random number: close to a power of two, close to the end of a range, or anywhere.
    pub fn odd_number(&mut self) -> u64 {
        match self.below(6) {
            0 => self.below(4),
            1 => (1 << self.below(64)) - self.below(2),
            2 => u64::MAX - self.below(3),
            3 => u64::from(u32::MAX) + self.below(3) - 1,
            4 => self.below(100_000),
            _ => self.next(),
        }
    }

    /// Changes, removes, repeats or inserts some of `bytes`.
    pub fn mutate(&mut self, bytes: &mut Vec<u8>) {
        const LIKELY: &[u8] = b" \n\t\0{}[]&,+=.:;*-_%@#\"'\\/0189azAZ\x7f\x80\xc3\xff";
        for _ in 0..self.within(1, 4) {
            let at = self.index(bytes.len() + 1);
            let likely = LIKELY[self.index(LIKELY.len())];
            match self.below(7) {
                0 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
                1 if at < bytes.len() => bytes[at] = likely,
                2 if at < bytes.len() => drop(bytes.remove(at)),
                3 => bytes.insert(at, likely),
                4 => bytes.truncate(at),
                5 => bytes.extend_from_within(at..),
                _ => {
                    // Sometimes longer than any accepted value.
                    let most = if self.one_in(20) { 5000 } else { 80 };
                    let many = std::iter::repeat_n(likely, self.index(most));
                    bytes.splice(at..at, many);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn equal_seeds_give_equal_changes() {
        let draw = |seed| {
            let mut random = Random::new(seed);
            let mut bytes = b"start a uid={1} rate=5".to_vec();
            (0..50).for_each(|_| {
                random.mutate(&mut bytes);
                bytes.truncate(200);
            });
            (random.next(), random.odd_number(), bytes)
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }
}
