// SPDX-License-Identifier: GPL-2.0-only

//! What was measured, and what follows from it, for whoever is in a hurry.

use kernel::{new_spinlock_irq, prelude::*, sync::SpinLockIrq};

use crate::{
    sched::timeouts::{
        estimator::{Estimator, Filter, Seen},
        terms::Terms,
    },
    sys::{atomic::Hint, misc},
};

/// An estimator and what follows from it; most samples change nothing, which is seen without its lock.
#[pin_data]
pub(crate) struct History {
    #[pin]
    estimator: SpinLockIrq<Estimator>,
    /// A sample up to this, ms, changes nothing …
    limit: Hint,
    /// … before this instant.
    until: Hint,
    /// The estimate, ms.
    estimate: Hint,
    /// The timeout that follows, ms; 0: there are no deadlines.
    timeout: Hint,
}

impl History {
    /// Nothing was measured; [`Self::follow`] has to be called before it says anything.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            estimator <- new_spinlock_irq!(Estimator::new(), "nrs_estimator"),
            limit: Hint::new(0),
            until: Hint::new(0),
            estimate: Hint::new(0),
            timeout: Hint::new(0),
        })
    }

    /// Makes a change and tells others what follows from it. `terms` is asked with the lock held, so that
    /// whoever comes last has the latest.
    fn change<R>(
        &self,
        terms: impl FnOnce() -> Terms,
        f: impl FnOnce(&mut Estimator, u64, &Terms) -> R,
    ) -> R {
        let now = misc::millis();
        let mut estimator = self.estimator.lock();
        let terms = terms();
        let result = f(&mut estimator, now, &terms);
        let estimate = estimator.estimate(now, &terms);
        let filter = estimator.filter(now, &terms);
        self.estimate.set(estimate.into());
        self.timeout.set(terms.timeout(estimate).into());
        self.limit.set(filter.limit.into());
        self.until.set(filter.until);
        result
    }

    /// What follows is as `terms` have it from now on.
    pub(crate) fn follow(&self, terms: impl FnOnce() -> Terms) {
        self.change(terms, |_, _, _| ());
    }

    /// Takes a sample of `service` ms at `now`; only one that changes something takes the lock.
    #[inline]
    pub(crate) fn hear(&self, service: u32, now: u64, terms: impl FnOnce() -> Terms) {
        let known = Filter {
            limit: self.limit.get() as u32,
            until: self.until.get(),
        };
        if !known.holds(service, now) {
            self.learn(service, terms);
        }
    }

    /// Takes a sample that changes something.
    #[cold]
    fn learn(&self, service: u32, terms: impl FnOnce() -> Terms) {
        self.change(terms, |estimator, now, terms| {
            estimator.measure(service, now, terms);
        });
    }

    /// What there is to show.
    pub(crate) fn seen(&self, terms: impl FnOnce() -> Terms) -> Seen {
        self.change(terms, |estimator, now, terms| estimator.seen(now, terms))
    }

    /// Whether the history may have aged since something was last measured.
    pub(crate) fn is_old(&self, now: u64) -> bool {
        now >= self.until.get()
    }

    /// The estimate, ms.
    pub(crate) fn estimate(&self) -> u32 {
        self.estimate.get() as u32
    }

    /// The timeout that follows, ms; 0: there are no deadlines.
    pub(crate) fn timeout(&self) -> u32 {
        self.timeout.get() as u32
    }
}
