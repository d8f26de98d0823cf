// SPDX-License-Identifier: GPL-2.0-only

//! How long the requests of a service take, and how long they may.
//!
//! # Vocabulary
//!
//! - *Service time*: from a request's arrival at the service to its end, without what the network takes.
//! - *Withheld* time: the part of it for which a policy kept the request on purpose.
//! - *Estimate*: what the worst service time is taken to be now, of each partition.
//! - *Timeout*: how long a request may take; it follows from the estimate and from the terms.
//! - *Terms*: what an administrator has set ([`crate::sched::timeouts`]).
//!
//! Durations are in milliseconds, instants in milliseconds of the coarse clock ([`misc::millis`]).
//!
//! # Locking
//!
//! A history has a spinlock, taken only for samples that change something; the terms have one, which may be
//! taken inside it. Both are taken with interrupts off, and nothing else is taken inside them.

use core::fmt::Write;

use kernel::{
    new_spinlock_irq,
    prelude::*,
    sync::{Arc, SpinLockIrq},
};

use crate::{
    sched::{
        statistics::{Stats, TimeoutCounts},
        timeouts::{
            report::Clock,
            terms::{AtCountPolicyDelay, Terms},
        },
    },
    sys::{
        atomic::{Counter, Hint},
        misc,
    },
};

mod history;

pub(crate) use history::History;

/// The timeouts of a service.
#[pin_data]
pub(crate) struct Timeouts {
    #[pin]
    terms: SpinLockIrq<Terms>,
    /// 1: withheld time counts as service time.
    count_policy_delay: Hint,
    /// Of each partition.
    histories: KVec<Pin<KBox<History>>>,
    counts: TimeoutCounts<Counter>,
}

impl Timeouts {
    /// Those of a service with `partitions` partitions that has not served anything.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(partitions: u16) -> Result<Arc<Self>> {
        let mut histories = KVec::with_capacity(partitions.into(), GFP_KERNEL)?;
        for _ in 0..partitions {
            histories.push(KBox::pin_init(History::new(), GFP_KERNEL)?, GFP_KERNEL)?;
        }
        let timeouts = Arc::pin_init(
            pin_init!(Self {
                terms <- new_spinlock_irq!(Terms::default(), "nrs_terms"),
                count_policy_delay: Hint::new(0),
                histories,
                counts: TimeoutCounts::default(),
            }),
            GFP_KERNEL,
        )?;
        timeouts.follow();
        Ok(timeouts)
    }

    /// What an administrator has set. Any context.
    pub(crate) fn terms(&self) -> Terms {
        *self.terms.lock()
    }

    /// Sets the terms; they are in effect at once.
    pub(crate) fn set(&self, new: &Terms) {
        *self.terms.lock() = *new;
        let counted = new.count_policy_delay == AtCountPolicyDelay::On;
        self.count_policy_delay.set(counted.into());
        self.follow();
    }

    /// Has everything follow the terms.
    fn follow(&self) {
        for history in &self.histories {
            history.follow(|| self.terms());
        }
    }

    fn history(&self, partition: u16) -> Option<&History> {
        let history = self.histories.get(usize::from(partition))?;
        Some(&**history)
    }

    /// A request of `partition` was served within `service` ms. Any context.
    #[cfg(CONFIG_KUNIT = "y")]
    pub(crate) fn measured(&self, partition: u16, service: u32) {
        self.measured_at(partition, service, misc::millis());
    }

    /// The same at `now`, for whoever knows it.
    pub(crate) fn measured_at(&self, partition: u16, service: u32, now: u64) {
        if let Some(history) = self.history(partition) {
            history.hear(service, now, || self.terms());
        }
    }

    /// All partitions are told that requests take `service` ms, by one that has not ended yet. Any context.
    pub(crate) fn expect(&self, service: u32) {
        if service == 0 {
            return;
        }
        let now = misc::millis();
        for history in &self.histories {
            history.hear(service, now, || self.terms());
        }
    }

    /// The estimate, the largest of all partitions, ms. Any context.
    pub(crate) fn estimate(&self) -> u32 {
        let now = misc::millis();
        let each = self.histories.iter().map(|history| {
            if history.is_old(now) {
                history.follow(|| self.terms());
            }
            history.estimate()
        });
        each.max().unwrap_or(0)
    }

    /// How long requests of `partition` may take, ms; `None`: there are no deadlines.
    pub(crate) fn of(&self, partition: u16) -> Option<u32> {
        let timeout = self.history(partition)?.timeout();
        (timeout != 0).then_some(timeout)
    }

    /// How long requests of any partition may take, ms; 0: there are no deadlines. Any context.
    pub(crate) fn timeout(&self) -> u32 {
        self.terms().timeout(self.estimate())
    }

    /// Counts a request that was queued for `waited` ms, `withheld` of them on purpose; returns how much of
    /// that is service time.
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

    /// The counters.
    pub(crate) fn counts(&self) -> &TimeoutCounts<Counter> {
        &self.counts
    }

    /// Sets the counters to zero.
    pub(crate) fn reset(&self) {
        self.counts.map(Counter::reset);
    }

    /// Writes the counters, YAML.
    ///
    /// # Errors
    ///
    /// `ENOSPC`: what `out` cannot take.
    pub(crate) fn write_counts(&self, out: &mut dyn Write) -> Result {
        let counts = self.counts.map(Counter::get);
        counts.write_lines(out, "", &[]).map_err(|_| ENOSPC)
    }

    /// Writes the estimates, a line for each partition, in Lustre's format.
    ///
    /// # Errors
    ///
    /// `ENOSPC`: what `out` cannot take.
    pub(crate) fn write(&self, out: &mut dyn Write) -> Result {
        let seen = self.histories.iter();
        let seen = seen.map(|history| history.seen(|| self.terms()));
        clock()
            .write_service(&mut &mut *out, &self.terms(), seen)
            .map_err(|_| ENOSPC)
    }
}

/// What it takes to show instants.
pub(crate) fn clock() -> Clock {
    let now = misc::millis();
    Clock {
        now,
        offset: misc::wall_millis().saturating_sub(now),
    }
}
