// SPDX-License-Identifier: GPL-2.0-only

//! What the worst service time is taken to be, from a history.
//!
//! # Vocabulary
//!
//! - *Sample*: one service time, ms; 0 is one that is not known.
//! - *History*: the last `at_history` seconds, in four *bins* of the same length ([`bins`]).
//! - *Method*: what is kept of the samples of a bin, and what follows from it ([`Method`]).
//! - *Current*: the estimate at some instant.
//! - *Told*: an estimate that somebody else made of a history of its own ([`Estimator::told`]).
//!
//! ```text
//!              now
//!   ───────────┬──────────┬──────────┬──────────┐
//!     bin 0    │  bin 1   │  bin 2   │  bin 3   │ forgotten
//!   ───────────┴──────────┴──────────┴──────────┘
//!    newest      ◄ at_history / 4 ►
//! ```
//!
//! Before the first sample ever, `at_initial` stands in; the first one replaces it. Bins age with time, with
//! or without samples, so an estimate falls to `at_min` when nothing was measured for all of the history;
//! Lustre's keeps its last value until there is another sample.
//!
//! Samples are kept as they are and clamped to `at_min` and `at_max` when the estimate is made, so that
//! changed terms count at once, and the worst sample ever is shown as it was.

mod average;
mod bins;
mod worst;

use super::terms::{millis, AtEstimator, Terms};
use average::Average;
use bins::Bins;
use worst::Worst;

pub use bins::BINS;

/// What is kept of the samples of a bin.
trait Method: Sized {
    /// No samples.
    const EMPTY: Self;

    /// Takes a sample that is not 0, ms.
    fn measure(&mut self, sample: u32);

    /// What follows from the bins of a history, ms; none if they have no samples.
    fn judge<'a>(bins: impl Iterator<Item = &'a Self>, terms: &Terms) -> Option<u32>
    where
        Self: 'a;
}

/// The samples of one bin, for all methods.
struct Bin {
    worst: Worst,
    /// Kept only while the average is asked for.
    average: Average,
}

impl Bin {
    /// No samples.
    const EMPTY: Self = Self {
        worst: Worst::EMPTY,
        average: Average::EMPTY,
    };
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
    /// Whether `sample` at `now` changes nothing.
    #[inline]
    pub const fn holds(&self, sample: u32, now: u64) -> bool {
        sample <= self.limit && now < self.until
    }
}

/// What there is to show of an estimator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The estimate, ms.
    pub current: u32,
    /// The worst sample ever, ms, and when it was measured.
    pub worst: Option<(u32, u64)>,
    /// The worst sample of each bin, ms, newest first.
    pub bins: [u32; BINS],
}

/// A history of samples and what follows from it.
///
/// # Invariants
///
/// `ever` is at least the worst sample of any bin; there is one if there is anything `told`.
pub struct Estimator {
    bins: Bins<Bin>,
    /// The worst sample ever and when it was measured.
    ever: Option<(u32, u64)>,
    /// What was told, ms, and when; none if something was measured since.
    told: Option<(u32, u64)>,
}

impl Estimator {
    /// One without history.
    pub const fn new() -> Self {
        Self {
            bins: Bins::new([const { Bin::EMPTY }; BINS]),
            ever: None,
            told: None,
        }
    }

    /// Takes a `sample`, ms; 0 is ignored. What was shorter than a millisecond is told as 1.
    pub fn measure(&mut self, sample: u32, now: u64, terms: &Terms) {
        if sample == 0 {
            return;
        }
        self.told = None;
        match self.ever {
            None => self.bins.begin(now),
            Some(_) => self.age(now, terms),
        }
        // INVARIANT: whatever goes to a bin is compared with the worst one first.
        if self.ever.is_none_or(|(worst, _)| sample > worst) {
            self.ever = Some((sample, now));
        }
        let bin = self.bins.newest();
        bin.worst.measure(sample);
        if terms.estimator == AtEstimator::Average {
            bin.average.measure(sample);
        }
    }

    /// Takes somebody else's estimate, ms; 0 is ignored.
    ///
    /// It is the worst of a history already, so it alone counts until another one is told or something is
    /// measured, or it is too old itself: with the worst of several, what the other one has forgotten would be
    /// remembered here for another history. Bins show it like a sample.
    pub fn told(&mut self, estimate: u32, now: u64, terms: &Terms) {
        self.measure(estimate, now, terms);
        if estimate != 0 {
            // INVARIANT: it was measured.
            self.told = Some((estimate, now));
        }
    }

    /// The estimate at `now`, ms, within `at_min` and `at_max`.
    pub fn estimate(&mut self, now: u64, terms: &Terms) -> u32 {
        let estimate = match self.recent(now, terms) {
            Some(recent) => recent,
            None if self.ever.is_some() => 0,
            None => millis(terms.initial.get()),
        };
        terms.clamp(estimate)
    }

    /// What follows from the history alone, ms; none without samples in it.
    pub fn recent(&mut self, now: u64, terms: &Terms) -> Option<u32> {
        self.age(now, terms);
        if let Some((told, at)) = self.told {
            let history = millis(terms.history.get());
            return (now.saturating_sub(at) < history.into()).then_some(told);
        }
        let worst = Worst::judge(self.bins.iter().map(|bin| &bin.worst), terms);
        match terms.estimator {
            AtEstimator::Worst => worst,
            // Those that were measured before the average was asked for have no part in it.
            AtEstimator::Average => {
                Average::judge(self.bins.iter().map(|bin| &bin.average), terms).or(worst)
            }
        }
    }

    /// The worst sample ever, ms, and when it was measured.
    pub const fn worst(&self) -> Option<(u32, u64)> {
        self.ever
    }

    /// The worst sample of each bin, ms, newest first.
    pub fn bins(&mut self, now: u64, terms: &Terms) -> [u32; BINS] {
        self.age(now, terms);
        let mut worst = [0; BINS];
        for (to, bin) in worst.iter_mut().zip(self.bins.iter()) {
            *to = bin.worst.get();
        }
        worst
    }

    /// Samples that change nothing as long as nothing else is measured and the terms stay.
    ///
    /// For the average, and where estimates are told, it is those that are 0.
    pub fn filter(&mut self, now: u64, terms: &Terms) -> Filter {
        self.age(now, terms);
        let until = match self.ever {
            Some(_) => self.bins.ends(width(terms)),
            // There is nothing to age.
            None => u64::MAX,
        };
        let limit = match terms.estimator {
            AtEstimator::Worst if self.told.is_none() => self.bins.newest().worst.get(),
            _ => 0,
        };
        Filter { limit, until }
    }

    /// What there is to show.
    pub fn seen(&mut self, now: u64, terms: &Terms) -> Seen {
        Seen {
            current: self.estimate(now, terms),
            worst: self.ever,
            bins: self.bins(now, terms),
        }
    }

    /// Lets the bins age up to `now`.
    fn age(&mut self, now: u64, terms: &Terms) {
        self.bins.age(now, width(terms), || Bin::EMPTY);
    }
}

/// How long a bin is, ms: a quarter of the history.
const fn width(terms: &Terms) -> u32 {
    millis(terms.history.get()) / 4
}

#[cfg(test)]
mod tests;
