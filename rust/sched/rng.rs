// SPDX-License-Identifier: GPL-2.0-only

//! Pseudo-random numbers from a seed: fast, equidistributed, not for secrets.

/// Generator of 64-bit numbers: a Weyl sequence through an avalanche function (Steele, Lea and
/// Flood, "Fast splittable pseudorandom number generators", OOPSLA'14).
#[derive(Clone, Debug)]
pub struct Rng(u64);

/// Mixes all bits of `x` into all bits of the result; a bijection.
pub const fn avalanche(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl Rng {
    /// Creates a generator; equal seeds give equal sequences.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next 64-bit number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        avalanche(self.0)
    }

    /// Returns the next 32-bit number.
    pub fn next_u32(&mut self) -> u32 {
        (self.next_u64() >> 32) as u32
    }

    /// Returns a number below `bound`, or 0 if `bound` is 0; the bias is below `bound / 2^64`.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()).wrapping_mul(u128::from(bound))) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_and_stays_below() {
        let (mut a, mut b) = (Rng::new(7), Rng::new(7));
        for bound in [0, 1, 2, 10, 1 << 40, u64::MAX] {
            for _ in 0..100 {
                let x = a.below(bound);
                assert!(x < bound.max(1));
                assert_eq!(x, b.below(bound));
            }
        }
        assert_ne!(a.next_u32(), Rng::new(8).next_u32());
    }

    #[test]
    fn is_even() {
        let mut rng = Rng::new(1);
        let mut bins = [0u32; 10];
        for _ in 0..100_000 {
            bins[rng.below(10) as usize] += 1;
        }
        assert!(bins.iter().all(|&n| n.abs_diff(10_000) < 400), "{bins:?}");
    }
}
