// SPDX-License-Identifier: GPL-2.0-only

//! The mean of the history and some standard deviations: the alternative that Barton and Rutman,
//! *Adaptive RPC Timeouts*, 2007, name.
//!
//! The mean moves with the history: bins that are too old are forgotten. In a bin with many samples the
//! older ones lose weight, so that sums stay small.

use super::{Method, Terms};

/// Samples of a bin, at most; then all of them count half.
const SAMPLES: u32 = 1 << 17;

/// The longest sample, ms, above an hour; longer ones are taken for this.
const LONGEST: u32 = 1 << 22;

/// Fractional bits of a mean and of a standard deviation.
const FRACTION: u32 = 8;

/// Sums of the samples of a bin.
///
/// # Invariants
///
/// There are less than [`SAMPLES`], none is above [`LONGEST`]: `sum` is below 2^39 and `squares` below 2^61,
/// those of four bins below 2^41 and 2^63.
pub(super) struct Average {
    count: u32,
    sum: u64,
    squares: u64,
}

impl Average {
    /// The sums of both.
    const fn plus(self, other: &Self) -> Self {
        Self {
            count: self.count.saturating_add(other.count),
            sum: self.sum.saturating_add(other.sum),
            squares: self.squares.saturating_add(other.squares),
        }
    }

    /// The mean and the variance, ms with [`FRACTION`] and twice as many fractional bits; none without
    /// samples.
    fn moments(&self) -> Option<(u64, u64)> {
        let count = u64::from(self.count);
        // Below 2^49, so the mean is at most 2^30 and its square 2^60.
        let mean = (self.sum << FRACTION).checked_div(count)?;
        // At most 2^44, then 2^60.
        let squares = self.squares.checked_div(count)? << (FRACTION << 1);
        Some((mean, squares.saturating_sub(mean.saturating_mul(mean))))
    }
}

/// The square root of `value`, rounded down, bit by bit; that of `core` may panic as far as compilers know.
fn root(value: u64) -> u64 {
    let (mut rest, mut root) = (value, 0_u64);
    let mut bit = 1_u64 << 62;
    while bit != 0 {
        // Below 2^63: `root` has bits above `bit` only, and is below 2^33 in the end.
        let step = root.wrapping_add(bit);
        root >>= 1;
        if rest >= step {
            rest = rest.wrapping_sub(step);
            root = root.wrapping_add(bit);
        }
        bit >>= 2;
    }
    root
}

impl Method for Average {
    const EMPTY: Self = Self {
        count: 0,
        sum: 0,
        squares: 0,
    };

    fn measure(&mut self, sample: u32) {
        let sample = u64::from(sample.min(LONGEST));
        self.count = self.count.saturating_add(1);
        self.sum = self.sum.saturating_add(sample);
        self.squares = self.squares.saturating_add(sample.saturating_mul(sample));
        // INVARIANT: halves are below the limits.
        if self.count >= SAMPLES {
            self.count >>= 1;
            self.sum >>= 1;
            self.squares >>= 1;
        }
    }

    fn judge<'a>(bins: impl Iterator<Item = &'a Self>, terms: &Terms) -> Option<u32> {
        let all = bins.fold(Self::EMPTY, Self::plus);
        let (mean, variance) = all.moments()?;
        let spread = root(variance).saturating_mul(terms.deviations.get().into());
        let estimate = mean.saturating_add(spread).div_ceil(1 << FRACTION);
        Some(u32::try_from(estimate).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots() {
        let squares = (0..2000).chain((0..=32).flat_map(|bit| {
            let power = 1_u64 << bit;
            [power - 1, power, power + 1].map(|side| side.min((1 << 32) - 1))
        }));
        for side in squares {
            let square = side * side;
            assert_eq!(root(square), side);
            assert_eq!(root(square + side), side);
            assert_eq!(root(square.saturating_sub(1)), side.saturating_sub(1));
        }
        assert_eq!(root(u64::MAX), (1 << 32) - 1);
    }
}
