// SPDX-License-Identifier: MIT OR Apache-2.0

//! The worst service time to expect, from a history of samples. The same file serves the module and
//! the clients of servers (`rust/host/nrs-client`).
//!
//! # Vocabulary
//!
//! - *Sample*: one service time, ms; 0 stands for an unknown one.
//! - *History*: the time for which a sample counts, in four *bins* of the same length.
//! - *Estimate*: the worst sample of the history, or its mean and some standard deviations; both are
//!   those of Barton and Rutman, *Adaptive RPC Timeouts*, 2007.
//!
//! ```text
//!              now
//!   ───────────┬──────────┬──────────┬──────────┐
//!     bin 0    │  bin 1   │  bin 2   │  bin 3   │ forgotten
//!   ───────────┴──────────┴──────────┴──────────┘
//!    newest      ◄ history / 4 ►
//! ```
//!
//! Before the first sample ever, the initial estimate stands in. Bins age with time, with or without
//! samples, so the estimate falls to its least when nothing was measured for a whole history;
//! Lustre's keeps its last value until there is another sample.
//!
//! Samples are kept as they are and clamped when the estimate is made, so that a changed rule counts
//! at once, and the worst sample ever is shown as it was.

/// Bins of a history.
pub const BINS: usize = 4;

/// Samples of a bin that the mean counts, at most; then all of them count half.
const SAMPLES: u32 = 1 << 17;

/// The longest sample that the mean counts, ms, above an hour; longer ones are taken for this.
const LONGEST: u32 = 1 << 22;

/// Fractional bits of a mean and of a standard deviation.
const FRACTION: u32 = 8;

/// How an estimate follows from samples, and a timeout from an estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Least estimate, ms.
    pub min_ms: u32,
    /// Largest estimate, ms; the least one counts where both contradict.
    pub max_ms: u32,
    /// Time for which a sample counts, ms.
    pub history_ms: u32,
    /// Estimate before the first sample, ms.
    pub initial_ms: u32,
    /// Standard deviations above the mean; `None`: the worst sample counts.
    pub deviations: Option<u32>,
    /// Factor of a timeout, percent.
    pub factor: u32,
    /// Increment of a timeout, ms.
    pub increment_ms: u32,
}

impl Default for Rule {
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

impl Rule {
    /// Returns `estimate` within its limits, ms.
    pub fn clamp(&self, estimate: u32) -> u32 {
        estimate.min(self.max_ms).max(self.min_ms)
    }

    /// Returns how long a client waits for a service of that `estimate`, ms, without the time that
    /// the network takes.
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

/// The samples of one bin.
///
/// # Invariants
///
/// `count` is below [`SAMPLES`] and no sample in the sums is above [`LONGEST`]: `sum` is below 2^39
/// and `squares` below 2^61, those of four bins below 2^41 and 2^63.
#[derive(Clone, Copy)]
struct Bin {
    /// The worst sample, ms; 0: none.
    worst: u32,
    /// Samples that the mean counts, and their sums; only while the mean is asked for.
    count: u32,
    sum: u64,
    squares: u64,
}

impl Bin {
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
        // INVARIANT: halves are below the limits.
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

    /// Returns the mean and so many standard `deviations`, ms; `None` if no sample was counted.
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

/// Returns the square root of `value`, rounded down, bit by bit; that of `core` may panic as far as
/// compilers know.
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

/// Samples that change nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filter {
    /// Samples up to this, ms.
    pub limit: u32,
    /// Before this instant, ms, when the history ages next.
    pub until: u64,
}

impl Filter {
    /// Returns whether `sample` at `now` changes nothing.
    #[inline]
    pub const fn holds(&self, sample: u32, now: u64) -> bool {
        sample <= self.limit && now < self.until
    }
}

/// What is shown of an estimator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The estimate, ms.
    pub current: u32,
    /// The worst sample ever, ms, and when it was measured.
    pub worst: Option<(u32, u64)>,
    /// The worst sample of each bin, ms, newest first.
    pub bins: [u32; BINS],
}

/// A history of samples.
///
/// # Invariants
///
/// Bins are in the order of time, newest first; the newest one began at `start`. `ever` is at least
/// the worst sample of any bin.
pub struct Estimator {
    bins: [Bin; BINS],
    start: u64,
    /// The worst sample ever, ms, and when it was measured.
    ever: Option<(u32, u64)>,
}

impl Estimator {
    /// Creates an estimator without history.
    pub const fn new() -> Self {
        Self {
            bins: [Bin::EMPTY; BINS],
            start: 0,
            ever: None,
        }
    }

    /// Takes a `sample`, ms; 0 is ignored. What was shorter than a millisecond is told as 1.
    pub fn measure(&mut self, sample: u32, now: u64, rule: &Rule) {
        if sample == 0 {
            return;
        }
        if self.ever.is_none() {
            self.start = now;
        }
        self.age(now, rule);
        // INVARIANT: a sample is compared with the worst one before it goes to a bin.
        if self.ever.is_none_or(|(worst, _)| sample > worst) {
            self.ever = Some((sample, now));
        }
        let [newest, ..] = &mut self.bins;
        newest.measure(sample, rule.deviations.is_some());
    }

    /// Returns the estimate at `now`, ms, within its limits.
    pub fn estimate(&mut self, now: u64, rule: &Rule) -> u32 {
        let estimate = match self.recent(now, rule) {
            Some(recent) => recent,
            None if self.ever.is_some() => 0,
            None => rule.initial_ms,
        };
        rule.clamp(estimate)
    }

    /// Returns what follows from the history alone, ms; `None` without samples in it.
    pub fn recent(&mut self, now: u64, rule: &Rule) -> Option<u32> {
        self.age(now, rule);
        let all = self.bins.iter().fold(Bin::EMPTY, Bin::plus);
        // Samples that were measured before the mean was asked for have no part in it.
        let average = rule
            .deviations
            .and_then(|deviations| all.average(deviations));
        average.or((all.worst != 0).then_some(all.worst))
    }

    /// Returns which samples change nothing as long as no other is measured and the rule stays. For
    /// the mean it is those that are 0.
    pub fn filter(&mut self, now: u64, rule: &Rule) -> Filter {
        self.age(now, rule);
        let [newest, ..] = &self.bins;
        Filter {
            limit: match rule.deviations {
                None => newest.worst,
                Some(_) => 0,
            },
            until: match self.ever {
                Some(_) => self.start.saturating_add(rule.width()),
                // Nothing can age.
                None => u64::MAX,
            },
        }
    }

    /// Returns what is shown at `now`.
    pub fn seen(&mut self, now: u64, rule: &Rule) -> Seen {
        Seen {
            current: self.estimate(now, rule),
            worst: self.ever,
            bins: self.bins.map(|bin| bin.worst),
        }
    }

    /// Forgets what is too old at `now`. A clock that ran backwards changes nothing.
    fn age(&mut self, now: u64, rule: &Rule) {
        let passed = now.saturating_sub(self.start);
        let passed = passed.checked_div(rule.width()).unwrap_or(0);
        // INVARIANT: the oldest bin becomes the newest, empty, and the others move up.
        for _ in 0..passed.min(BINS as u64) {
            self.bins.rotate_right(1);
            let [newest, ..] = &mut self.bins;
            *newest = Bin::EMPTY;
        }
        // At most `now`.
        self.start = self
            .start
            .saturating_add(passed.saturating_mul(rule.width()));
    }
}

#[cfg(test)]
mod tests;
