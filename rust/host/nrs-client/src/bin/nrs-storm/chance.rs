// SPDX-License-Identifier: GPL-2.0-only

//! Chance from a seed: the same seed draws the same.

/// A sequence of numbers (SplitMix64, Steele et al., "Fast splittable pseudorandom number generators", 2014).
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// The sequence of `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`; 0 if that is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next().checked_rem(end).unwrap_or(0)
    }

    /// A number from `low` to `high`.
    pub fn within(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True `part` times in `whole`.
    pub fn one_in(&mut self, whole: u64) -> bool {
        self.below(whole) == 0
    }

    /// One of `all`, which is not empty.
    pub fn pick<'a, T: ?Sized>(&mut self, all: &[&'a T]) -> &'a T {
        all[self.below(all.len() as u64) as usize]
    }

    /// A number that may be close to a power of two, to the ends of its range, or anywhere.
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

    /// `bytes` with some of them changed, taken out, doubled or put in.
    pub fn mutated(&mut self, bytes: &mut Vec<u8>) {
        const LIKELY: &[u8] = b" \n\t\0{}[]&,+=.:;*-_%@#\"'\\/0189azAZ\x7f\x80\xc3\xff";
        for _ in 0..self.within(1, 4) {
            let at = self.below(bytes.len() as u64 + 1) as usize;
            let likely = LIKELY[self.below(LIKELY.len() as u64) as usize];
            match self.below(7) {
                0 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
                1 if at < bytes.len() => bytes[at] = likely,
                2 if at < bytes.len() => drop(bytes.remove(at)),
                3 => bytes.insert(at, likely),
                4 => bytes.truncate(at),
                5 => {
                    let part = bytes[at..].to_vec();
                    bytes.extend(part);
                }
                _ => {
                    // Longer than anything that is taken, now and then.
                    let most = if self.one_in(20) { 5000 } else { 80 };
                    let len = self.below(most);
                    let many = std::iter::repeat_n(likely, len as usize);
                    bytes.splice(at..at, many);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Chance;

    #[test]
    fn the_same_seed_draws_the_same() {
        let draw = |seed| {
            let mut chance = Chance::new(seed);
            let mut bytes = b"start a uid={1} rate=5".to_vec();
            (0..50).for_each(|_| {
                chance.mutated(&mut bytes);
                bytes.truncate(200);
            });
            (chance.next(), bytes)
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn ranges_hold() {
        let mut chance = Chance::new(1);
        for _ in 0..1000 {
            assert!(chance.below(3) < 3);
            assert!((5..=9).contains(&chance.within(5, 9)));
            chance.odd_number();
        }
        assert_eq!(chance.below(0), 0);
    }
}
