// SPDX-License-Identifier: GPL-2.0-only

//! Which are the largest of many remainders, without sorting them.

/// Up to how many are compared with each other.
const FEW: usize = 32;

/// Bits of a digit.
const DIGIT: u32 = 8;

/// The largest of some numbers: those above a bound, and some of those that are equal to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Largest {
    /// The bound, which is the smallest one that is chosen.
    pub(super) bound: u64,
    /// How many are chosen of those that are equal to it.
    pub(super) equals: usize,
}

impl Largest {
    /// The `take` largest of `numbers`; all of them if there are not more.
    pub(super) fn of(numbers: &[(u64, u32)], take: usize) -> Self {
        if take == 0 {
            return Self {
                bound: u64::MAX,
                equals: 0,
            };
        }
        if numbers.len() <= FEW {
            Self::of_few(numbers, take)
        } else {
            Self::of_many(numbers, take)
        }
    }

    /// By comparing each with all.
    fn of_few(numbers: &[(u64, u32)], take: usize) -> Self {
        let count = |yes: &dyn Fn(u64) -> bool| numbers.iter().filter(|pair| yes(pair.0)).count();
        for &(bound, _) in numbers {
            let larger = count(&|number| number > bound);
            let equal = count(&|number| number == bound);
            if larger < take && take <= larger.saturating_add(equal) {
                let equals = take.saturating_sub(larger);
                return Self { bound, equals };
            }
        }
        Self {
            bound: 0,
            equals: numbers.len(),
        }
    }

    /// Digit by digit from the highest one: count how often each occurs among the numbers that start with the
    /// digits found, and find the one that the last chosen number has.
    fn of_many(numbers: &[(u64, u32)], take: usize) -> Self {
        let largest = numbers.iter().map(|pair| pair.0).max().unwrap_or(0);
        let digits = (u64::BITS.saturating_sub(largest.leading_zeros())).div_ceil(DIGIT);
        let (mut bound, mut left) = (0u64, take);
        for place in (0..digits).rev() {
            let shift = place.wrapping_mul(DIGIT);
            let mut counts = [0u32; 1 << DIGIT];
            for (number, _) in numbers {
                let digit = number.wrapping_shr(shift);
                if digit >> DIGIT == bound {
                    if let Some(count) = counts.get_mut(usize::from(digit as u8)) {
                        *count = count.wrapping_add(1);
                    }
                }
            }
            let mut found = 0u64;
            for (digit, &count) in counts.iter().enumerate().rev() {
                let count = count as usize;
                if left <= count {
                    found = digit as u64;
                    break;
                }
                left = left.wrapping_sub(count);
            }
            bound = (bound << DIGIT) | found;
        }
        Self {
            bound,
            equals: left,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::rng::Rng;

    /// How many are chosen, and that they are the largest, both ways.
    #[test]
    fn against_sorting() {
        let mut rng = Rng::new(3);
        for len in [1usize, 2, 5, 32, 33, 200] {
            for mask in [0, 1, 0xff, 0x1_0000_0100, (1 << 51) - 1, u64::MAX >> 1] {
                let numbers: Vec<(u64, u32)> =
                    (0..len).map(|_| (rng.next_u64() & mask, 0)).collect();
                let mut sorted: Vec<u64> = numbers.iter().map(|pair| pair.0).collect();
                sorted.sort_by(|a, b| b.cmp(a));
                for take in [0, 1, len / 2, len - 1, len] {
                    let Some(last) = take.checked_sub(1) else {
                        assert_eq!(Largest::of(&numbers, 0).equals, 0);
                        continue;
                    };
                    let bound = sorted[last];
                    let equals = take - sorted.iter().filter(|&&number| number > bound).count();
                    let want = Largest { bound, equals };
                    assert_eq!(Largest::of_few(&numbers, take), want);
                    assert_eq!(Largest::of_many(&numbers, take), want);
                    assert_eq!(Largest::of(&numbers, take), want);
                }
            }
        }
    }
}
