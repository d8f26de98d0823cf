// SPDX-License-Identifier: GPL-2.0-only

//! Service times of the requests of a service, and the deadlines that follow from them.
//!
//! The terms are those of [`crate::sched::timeouts`]. Durations are in milliseconds, instants in
//! milliseconds of the coarse clock ([`misc::millis`]).
//!
//! # Locking
//!
//! A history has a spinlock, taken only for samples that change something. Each history has a copy
//! of the terms, so that no sample takes the spinlock of the terms, which is the service's. A
//! change of the terms takes that spinlock inside the history's. Both are taken with interrupts
//! off, and no other lock is taken inside them.

use core::fmt::Write;

use kernel::{prelude::*, sync::Arc};

use crate::{
    sched::{
        report::Report,
        statistics::TimeoutCounts,
        timeouts::{
            estimator::SampleFilter,
            report::ReportClock,
            service_times::{Outlook, ServiceTimes},
            terms::{AtCountPolicyDelay, TimeoutTerms},
        },
    },
    sys::{
        atomic::{Counter, Hint},
        misc,
        series::{new_spinlock_irq, SpinLockIrq},
    },
};

/// A history of service times and the resulting timeout. Most samples change nothing, which is
/// detected without the lock.
#[pin_data]
pub(crate) struct History {
    #[pin]
    times: SpinLockIrq<ServiceTimes>,
    /// The [`SampleFilter`] of the history.
    limit: Hint,
    until: Hint,
    /// The estimate, ms.
    estimate: Hint,
    /// The timeout, ms; 0: requests have no deadlines.
    timeout: Hint,
}

impl History {
    /// Creates a history without samples; [`Self::sync`] is to be called before its first use.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            times <- new_spinlock_irq!(ServiceTimes::new(), "nrs_service_times"),
            limit: Hint::new(0),
            until: Hint::new(0),
            estimate: Hint::new(0),
            timeout: Hint::new(0),
        })
    }

    /// Copies the terms of `timeouts`. The terms are read under the lock, so that the last caller
    /// has the latest.
    pub(crate) fn sync(&self, timeouts: &Timeouts) {
        let mut times = self.times.lock();
        times.set_terms(&timeouts.terms());
        self.learn(&mut times, 0, misc::millis());
    }

    /// Adds a sample of `service` ms at `now`; takes the lock only for a sample that changes
    /// something.
    #[inline]
    pub(crate) fn add_sample(&self, service: u32, now: u64) {
        let known = SampleFilter {
            limit: self.limit.get() as u32,
            until: self.until.get(),
        };
        if !known.holds(service, now) {
            self.measure(service, now);
        }
    }

    #[cold]
    fn measure(&self, service: u32, now: u64) {
        self.learn(&mut self.times.lock(), service, now);
    }

    /// Adds a sample at `now` unless `service` is 0; returns the resulting estimate, timeout and
    /// filter.
    fn learn(&self, times: &mut ServiceTimes, service: u32, now: u64) -> Outlook {
        let outlook = times.measure(service, now);
        self.estimate.set(outlook.seen.current.into());
        self.timeout.set(outlook.timeout.into());
        self.limit.set(outlook.filter.limit.into());
        self.until.set(outlook.filter.until);
        outlook
    }

    /// Returns the estimate, the timeout and the filter of the history at `now`.
    pub(crate) fn outlook(&self, now: u64) -> Outlook {
        self.learn(&mut self.times.lock(), 0, now)
    }

    /// Returns the estimate at `now`, ms.
    fn estimate(&self, now: u64) -> u32 {
        if now >= self.until.get() {
            self.measure(0, now);
        }
        self.estimate.get() as u32
    }

    /// Returns the timeout, ms, as of the last change of the history; 0: requests have no
    /// deadlines.
    #[inline]
    pub(crate) fn last_timeout(&self) -> u32 {
        self.timeout.get() as u32
    }
}

/// The timeouts of a service.
#[pin_data]
pub(crate) struct Timeouts {
    #[pin]
    terms: SpinLockIrq<TimeoutTerms>,
    /// 1: time throttled by policies counts as service time.
    count_policy_delay: Hint,
    /// Histories, one for each partition.
    histories: KVec<Pin<KBox<History>>>,
    counts: TimeoutCounts<Counter>,
}

impl Timeouts {
    /// Creates the timeouts of a service with `partitions` partitions and no samples.
    pub(crate) fn new(partitions: u16) -> Result<Arc<Self>> {
        let mut histories = KVec::with_capacity(partitions.into(), GFP_KERNEL_ACCOUNT)?;
        for _ in 0..partitions {
            histories.push(
                KBox::pin_init(History::new(), GFP_KERNEL_ACCOUNT)?,
                GFP_KERNEL_ACCOUNT,
            )?;
        }
        let timeouts = Arc::pin_init(
            pin_init!(Self {
                terms <- new_spinlock_irq!(TimeoutTerms::default(), "nrs_terms"),
                count_policy_delay: Hint::new(0),
                histories,
                counts: TimeoutCounts::default(),
            }),
            GFP_KERNEL_ACCOUNT,
        )?;
        timeouts.sync();
        Ok(timeouts)
    }

    /// Returns the terms that the administrator has set. Any context.
    pub(crate) fn terms(&self) -> TimeoutTerms {
        *self.terms.lock()
    }

    /// Sets the terms, with immediate effect.
    pub(crate) fn set(&self, new: &TimeoutTerms) {
        *self.terms.lock() = *new;
        let counted = new.count_policy_delay == AtCountPolicyDelay::On;
        self.count_policy_delay.set(counted.into());
        self.sync();
    }

    /// Updates all histories to the terms.
    fn sync(&self) {
        for history in &self.histories {
            history.sync(self);
        }
    }

    /// Adds the service time of a request of `partition`, ms, at `now`. Any context.
    #[inline]
    pub(crate) fn measured(&self, partition: u16, service: u32, now: u64) {
        if let Some(history) = self.histories.get(usize::from(partition)) {
            history.add_sample(service, now);
        }
    }

    /// Adds a sample of `service` ms to all partitions, on behalf of a request that has not ended
    /// yet. Any context.
    pub(crate) fn expect(&self, service: u32) {
        if service == 0 {
            return;
        }
        let now = misc::millis();
        for history in &self.histories {
            history.add_sample(service, now);
        }
    }

    /// Returns the largest estimate of all partitions, ms. Any context.
    pub(crate) fn estimate(&self) -> u32 {
        let now = misc::millis();
        let each = self.histories.iter().map(|history| history.estimate(now));
        each.max().unwrap_or(0)
    }

    /// Counts a request that was queued for `waited` ms, of which policies throttled it for
    /// `withheld` ms. Returns the part, ms, that counts as service time.
    pub(crate) fn queued(&self, waited: u32, withheld: u32) -> u32 {
        if withheld == 0 {
            return waited;
        }
        self.counts.withheld_ms.count(withheld.into());
        if self.count_policy_delay.get() == 0 {
            waited.saturating_sub(withheld)
        } else {
            waited
        }
    }

    /// Returns the counters.
    pub(crate) fn counts(&self) -> &TimeoutCounts<Counter> {
        &self.counts
    }

    /// Sets the counters to zero.
    pub(crate) fn reset(&self) {
        self.counts.map(Counter::reset);
    }

    /// Reports the counters.
    pub(crate) fn report_counts(&self, report: &mut Report<'_>) -> Result {
        let counts = self.counts.map(Counter::get);
        report
            .map(|map| map.stats(&counts, &[]))
            .map_err(|_| ENOSPC)
    }

    /// Writes the estimates in Lustre's format, one line for each partition.
    pub(crate) fn write(&self, out: &mut dyn Write) -> Result {
        let clock = clock();
        let seen = self.histories.iter();
        let seen = seen.map(|history| history.outlook(clock.now).seen);
        clock
            .write_service(&mut &mut *out, &self.terms(), seen)
            .map_err(|_| ENOSPC)
    }
}

/// Returns the clock for displaying instants.
pub(crate) fn clock() -> ReportClock {
    let now = misc::millis();
    ReportClock {
        now,
        offset: misc::wall_millis().saturating_sub(now),
    }
}
