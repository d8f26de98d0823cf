// SPDX-License-Identifier: GPL-2.0-only

//! Selection of the request that a head dispatches next.
//!
//! # Stopping instances
//!
//! Stopping instances and running ones (primary and fallback) take turns. In the turn of the
//! stopping instances, the oldest one is tried first. Each stopping instance respects its limits
//! while another instance, or another head for the same target, has eligible requests. To guarantee
//! that each drain ends, a request is forced if one of these conditions is true:
//!
//! - no other request is eligible;
//! - its instance was not served for [`FORCE_AFTER_NS`] (one request each time);
//! - no further instance can be installed on the head, and no stopping instance has fewer queued
//!   requests.
//!
//! With [`PartView::force`] there are no turns: the oldest instance is served first.

use super::{other_mut, Head, HeadTicket, PolicyInstance};
use crate::sched::{
    item::Item,
    policy::{Decision, Part, PartView},
    units::{NSEC_PER_MSEC, NSEC_PER_SEC},
};

/// Time after which a request of a stopping instance that was not served is forced, ns.
pub const FORCE_AFTER_NS: u64 = NSEC_PER_SEC;

/// Maximum time, ns, until a head with throttled stopping instances is queried again, because other
/// heads may have become idle.
pub const ASK_AFTER_NS: u64 = 10 * NSEC_PER_MSEC;

impl<P, T> PolicyInstance<P, T> {
    /// Returns the time, ns, at which a request of the stopping instance is forced if the instance
    /// is not served before.
    fn due_at(&self, now: u64) -> u64 {
        match self.due {
            0 => now.saturating_add(FORCE_AFTER_NS),
            due => due,
        }
    }

    /// Returns true if a request of the stopping instance is forced although requests of other
    /// instances are eligible.
    fn is_forced(&self, now: u64, fewest: Option<u32>) -> bool {
        self.due_at(now) <= now || fewest == Some(self.queued)
    }
}

/// Returns the result of a head that dispatches nothing before `until`; `None`: nothing is queued.
pub(super) const fn none<T>(until: Option<u64>) -> Decision<T> {
    match until {
        Some(until) => Decision::Throttled { until },
        None => Decision::Empty,
    }
}

impl<I: Item, P: Part<I>, T> Head<I, P, T> {
    /// Selects the request to dispatch next and removes it; the ticket is for [`Head::stop`].
    ///
    /// Primary and fallback take turns while both have eligible requests; running and stopping
    /// instances do as well. An instance that throttles its requests does not prevent service of
    /// other instances. If no request is dispatched, the result is the earliest time at which a
    /// request may be eligible. With [`PartView::force`] no instance throttles. `contended` returns
    /// true if another head for the target has eligible requests; it is called only if the head has
    /// stopping instances.
    pub fn get(
        &mut self,
        view: &PartView<'_>,
        contended: impl FnOnce() -> bool,
    ) -> Decision<(I, HeadTicket)> {
        let mut until = None;
        if let Some(found) = self.take(view, contended, &mut until) {
            // INVARIANT: one fewer is queued.
            self.queued = self.queued.saturating_sub(1);
            return Decision::Item(found);
        }
        none(until)
    }

    /// Removes the next request, see [`Head::get`]; lowers `until` like [`PolicyInstance::get`].
    fn take(
        &mut self,
        view: &PartView<'_>,
        contended: impl FnOnce() -> bool,
        until: &mut Option<u64>,
    ) -> Option<(I, HeadTicket)> {
        if self.stopping == 0 {
            return self.take_running(view, until);
        }
        let first = view.force || !self.stopping_last;
        for stopping in [first, !first] {
            let found = if stopping {
                self.take_stopping(view, until)
            } else {
                self.take_running(view, until)
            };
            if found.is_some() {
                self.stopping_last = stopping;
                return found;
            }
        }
        if contended() {
            if self.iter().any(|i| i.stopping && i.queued != 0) {
                let at = view.now.saturating_add(ASK_AFTER_NS);
                *until = Some(until.map_or(at, |other| other.min(at)));
            }
            return None;
        }
        let force = PartView {
            force: true,
            ..*view
        };
        self.take_stopping(&force, until)
    }

    /// Dispatches a request of the primary or the fallback.
    fn take_running(
        &mut self,
        view: &PartView<'_>,
        until: &mut Option<u64>,
    ) -> Option<(I, HeadTicket)> {
        for fallback in [!self.fallback_last, self.fallback_last] {
            let instance = if fallback {
                Some(&mut self.fallback)
            } else {
                other_mut(&mut self.others, self.primary)
            };
            let found = instance.and_then(|i| i.get(view, until));
            if found.is_some() {
                self.fallback_last = fallback;
                return found;
            }
        }
        None
    }

    /// Returns the minimum number of queued requests of a stopping instance; `None` if another
    /// instance can be installed.
    fn fewest(&self) -> Option<u32> {
        let is_full = self.others.iter().all(Option::is_some);
        let stopping = self.others.iter().flatten().filter(|i| i.stopping);
        stopping.map(|i| i.queued).min().filter(|_| is_full)
    }

    /// Dispatches a request of the stopping instances.
    fn take_stopping(
        &mut self,
        view: &PartView<'_>,
        until: &mut Option<u64>,
    ) -> Option<(I, HeadTicket)> {
        let fewest = self.fewest();
        for i in self.others.iter_mut().flatten().filter(|i| i.stopping) {
            i.due = i.due_at(view.now);
        }
        let newest = self.serial;
        // Forced instances first, then by age.
        let rank = move |i: &PolicyInstance<P, T>| {
            let forced = !view.force && i.is_forced(view.now, fewest);
            (forced, newest.wrapping_sub(i.id.serial))
        };
        let mut below = (true, u32::MAX);
        loop {
            let instance = self
                .others
                .iter_mut()
                .flatten()
                .filter(|i| i.stopping && i.queued != 0 && rank(i) < below)
                .max_by_key(|i| rank(i))?;
            below = rank(instance);
            let view = PartView {
                force: view.force || below.0,
                ..*view
            };
            let found = instance.get(&view, until);
            if found.is_some() {
                instance.due = view.now.saturating_add(FORCE_AFTER_NS);
                return found;
            }
        }
    }
}
