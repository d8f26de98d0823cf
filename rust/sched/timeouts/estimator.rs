// SPDX-License-Identifier: MIT OR Apache-2.0

//! Estimator of the worst expected service time from a history of samples. The module and the
//! clients of servers (`rust/host/nrs-client`) share this file.
//!
//! # Terms
//!
//! - *Sample*: one service time, ms; 0 if unknown.
//! - *History*: the time for which a sample counts, in four *bins* of equal length.
//! - *Estimate*: the worst sample of the history, or the mean plus some standard deviations, as in
//!   Barton and Rutman, *Adaptive RPC Timeouts*, 2007.
//!
//! ```text
//!              now
//!   ───────────┬──────────┬──────────┬──────────┐
//!     bin 0    │  bin 1   │  bin 2   │  bin 3   │ expired
//!   ───────────┴──────────┴──────────┴──────────┘
//!    newest      ◄ history / 4 ►
//! ```
//!
//! Before the first sample, the initial estimate is used. Bins expire over time, with or without
//! samples, so the estimate falls to its minimum after a whole history without samples. In Lustre,
//! the estimate keeps its last value until the next sample.
//!
//! Samples are stored unchanged and the estimate is clamped, so that a changed rule takes effect
//! immediately, and the worst sample ever is shown unchanged.

/// Number of bins of a history.
pub const BINS: usize = 4;

/// Maximum samples of a bin in the mean; at this number, the sums are halved.
const SAMPLES: u32 = 1 << 17;

/// Maximum sample in the mean, ms, above one hour; longer samples count as this.
const LONGEST: u32 = 1 << 22;

/// Fractional bits of a mean and of a standard deviation.
const FRACTION: u32 = 8;

/// Parameters of the estimate and of the timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EstimateRule {
    /// Minimum estimate, ms.
    pub min_ms: u32,
    /// Maximum estimate, ms; the minimum takes precedence.
    pub max_ms: u32,
    /// Time for which a sample counts, ms.
    pub history_ms: u32,
    /// Estimate before the first sample, ms.
    pub initial_ms: u32,
    /// Standard deviations above the mean; `None` selects the worst sample.
    pub deviations: Option<u32>,
    /// Factor of a timeout, percent.
    pub factor: u32,
    /// Increment of a timeout, ms.
    pub increment_ms: u32,
}

impl Default for EstimateRule {
    fn default() -> Self {
        Self {
            min_ms: 5_000,
            max_ms: 600_000,
            history_ms: 600_000,
            initial_ms: 10_000,
            deviations: None,
            factor: 125,
            increment_ms: 5_000,
        }
    }
}

impl EstimateRule {
    /// Returns `estimate`, ms, clamped to its limits.
    pub fn clamp(&self, estimate: u32) -> u32 {
        estimate.min(self.max_ms).max(self.min_ms)
    }

    /// Returns the timeout for a service with `estimate`, ms, without network time.
    pub fn timeout(&self, estimate: u32) -> u32 {
        let scaled = u64::from(self.clamp(estimate)).saturating_mul(self.factor.into()) / 100;
        let scaled = u32::try_from(scaled).unwrap_or(u32::MAX);
        scaled.saturating_add(self.increment_ms)
    }

    /// Returns the length of a bin, ms.
    fn width(&self) -> u64 {
        u64::from((self.history_ms / 4).max(1))
    }
}

/// Samples of one bin.
///
/// # Invariants
///
/// `count` is below [`SAMPLES`] and no sample in the sums is above [`LONGEST`]. So `sum` is below
/// 2^39 and `squares` below 2^61; the sums over four bins are below 2^41 and 2^63.
#[derive(Clone, Copy)]
struct SampleBin {
    /// Worst sample, ms; 0 if none.
    worst: u32,
    /// Number of samples in the mean, and their sums; updated only if the mean is used.
    count: u32,
    sum: u64,
    squares: u64,
}

impl SampleBin {
    const EMPTY: Self = Self {
        worst: 0,
        count: 0,
        sum: 0,
        squares: 0,
    };

    fn measure(&mut self, sample: u32, mean: bool) {
        self.worst = self.worst.max(sample);
        if !mean {
            return;
        }
        let sample = u64::from(sample.min(LONGEST));
        self.count = self.count.saturating_add(1);
        self.sum = self.sum.saturating_add(sample);
        self.squares = self.squares.saturating_add(sample.saturating_mul(sample));
        // INVARIANT: the halves are below the limits.
        if self.count >= SAMPLES {
            self.count >>= 1;
            self.sum >>= 1;
            self.squares >>= 1;
        }
    }

    const fn plus(self, other: &Self) -> Self {
        Self {
            worst: if self.worst > other.worst {
                self.worst
            } else {
                other.worst
            },
            count: self.count.saturating_add(other.count),
            sum: self.sum.saturating_add(other.sum),
            squares: self.squares.saturating_add(other.squares),
        }
    }

    /// Returns the mean plus `deviations` standard deviations, ms; `None` without samples.
    fn average(&self, deviations: u32) -> Option<u32> {
        let count = u64::from(self.count);
        // Below 2^49, so the mean is at most 2^30 and its square 2^60.
        let mean = (self.sum << FRACTION).checked_div(count)?;
        // At most 2^44, then 2^60.
        let squares = self.squares.checked_div(count)? << (FRACTION << 1);
        let variance = squares.saturating_sub(mean.saturating_mul(mean));
        let spread = root(variance).saturating_mul(deviations.into());
        let estimate = mean.saturating_add(spread).div_ceil(1 << FRACTION);
        Some(u32::try_from(estimate).unwrap_or(u32::MAX))
    }
}

/// Returns the square root of `value`, rounded down, computed bit by bit; the compiler cannot prove
/// that the function in `core` never panics.
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

/// Range of samples that do not change the estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleFilter {
    /// Maximum sample, ms.
    pub limit: u32,
    /// End of validity, ms, when a bin expires next.
    pub until: u64,
}

impl SampleFilter {
    /// Returns true if `sample` at `now` does not change the estimate.
    #[inline]
    pub const fn holds(&self, sample: u32, now: u64) -> bool {
        sample <= self.limit && now < self.until
    }
}

/// Visible state of an estimator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EstimatorView {
    /// Estimate, ms.
    pub current: u32,
    /// Worst sample ever, ms, and the time of its measurement.
    pub worst: Option<(u32, u64)>,
    /// Worst sample of each bin, ms, newest first.
    pub bins: [u32; BINS],
}

/// History of samples.
///
/// # Invariants
///
/// Bins are ordered by time, newest first; the newest bin began at `start`. `ever` is at least the
/// worst sample of any bin.
pub struct Estimator {
    bins: [SampleBin; BINS],
    start: u64,
    /// Worst sample ever, ms, and the time of its measurement.
    ever: Option<(u32, u64)>,
}

impl Estimator {
    /// Creates an estimator without history.
    pub const fn new() -> Self {
        Self {
            bins: [SampleBin::EMPTY; BINS],
            start: 0,
            ever: None,
        }
    }

    /// Records a `sample`, ms; 0 is ignored. The caller rounds service times below 1 ms up to 1.
    pub fn measure(&mut self, sample: u32, now: u64, rule: &EstimateRule) {
        if sample == 0 {
            return;
        }
        if self.ever.is_none() {
            self.start = now;
        }
        self.age(now, rule);
        // INVARIANT: a sample is compared with the worst sample before it is added to a bin.
        if self.ever.is_none_or(|(worst, _)| sample > worst) {
            self.ever = Some((sample, now));
        }
        let [newest, ..] = &mut self.bins;
        newest.measure(sample, rule.deviations.is_some());
    }

    /// Returns the estimate at `now`, ms, clamped to its limits.
    pub fn estimate(&mut self, now: u64, rule: &EstimateRule) -> u32 {
        let estimate = match self.recent(now, rule) {
            Some(recent) => recent,
            None if self.ever.is_some() => 0,
            None => rule.initial_ms,
        };
        rule.clamp(estimate)
    }

    /// Returns the estimate from the history alone, ms; `None` without samples in the history.
    pub fn recent(&mut self, now: u64, rule: &EstimateRule) -> Option<u32> {
        self.age(now, rule);
        let all = self.bins.iter().fold(SampleBin::EMPTY, SampleBin::plus);
        // Samples from before the mean was selected are not part of the mean.
        let average = rule
            .deviations
            .and_then(|deviations| all.average(deviations));
        average.or((all.worst != 0).then_some(all.worst))
    }

    /// Returns the samples that do not change the estimate until another sample is measured or the
    /// rule changes. For the mean, only the sample 0.
    pub fn filter(&mut self, now: u64, rule: &EstimateRule) -> SampleFilter {
        self.age(now, rule);
        let [newest, ..] = &self.bins;
        SampleFilter {
            limit: match rule.deviations {
                None => newest.worst,
                Some(_) => 0,
            },
            until: match self.ever {
                Some(_) => self.start.saturating_add(rule.width()),
                // No bin can expire.
                None => u64::MAX,
            },
        }
    }

    /// Returns the visible state at `now`.
    pub fn seen(&mut self, now: u64, rule: &EstimateRule) -> EstimatorView {
        EstimatorView {
            current: self.estimate(now, rule),
            worst: self.ever,
            bins: self.bins.map(|bin| bin.worst),
        }
    }

    /// Expires old bins at `now`. A clock that ran backwards changes nothing.
    fn age(&mut self, now: u64, rule: &EstimateRule) {
        let passed = now.saturating_sub(self.start);
        let passed = passed.checked_div(rule.width()).unwrap_or(0);
        // INVARIANT: the oldest bin becomes the newest, empty, and the others move by one.
        for _ in 0..passed.min(BINS as u64) {
            self.bins.rotate_right(1);
            let [newest, ..] = &mut self.bins;
            *newest = SampleBin::EMPTY;
        }
        // At most `now`.
        self.start = self
            .start
            .saturating_add(passed.saturating_mul(rule.width()));
    }
}

#[cfg(test)]
mod tests;
