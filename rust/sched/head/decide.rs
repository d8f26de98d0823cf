// SPDX-License-Identifier: GPL-2.0-only

//! Which request of a head is dispatched next.
//!
//! # Stopping instances
//!
//! Stopping instances and those that take requests take turns. In their turns the oldest stopping instance
//! is asked first. Each keeps its limits while another instance has eligible requests, but a request is
//! forced, so that each drain ends, if:
//!
//! - no instance has eligible requests;
//! - its instance was not served for [`FORCE_AFTER_NS`] (one request each time);
//! - the head has no place for another instance, and no stopping instance has fewer requests queued.
//!
//! A drain by force ([`View::force`]) takes no turns: the oldest instance goes first.

use super::{other_mut, Head, Instance, Ticket};
use crate::sched::{
    item::Item,
    policy::{Get, Part, View},
    units::NSEC_PER_SEC,
};

/// Time after which a request of a stopping instance that was not served is forced, ns.
pub const FORCE_AFTER_NS: u64 = NSEC_PER_SEC;

impl<I: Item, P: Part<I>, T> Head<I, P, T> {
    /// Decides which request is dispatched next, and takes it out with the ticket for [`Head::stop`].
    ///
    /// Primary and fallback take turns while both have something, and so do both with the stopping instances.
    /// An instance that throttles its requests never keeps another one from being served; if no request is
    /// dispatched, the answer is the earliest time at which one may.
    /// With [`View::force`] all instances are made to serve.
    pub fn get(&mut self, view: &View<'_>) -> Get<(I, Ticket)> {
        let mut until = None;
        if let Some(found) = self.take(view, &mut until) {
            // INVARIANT: one is queued no more.
            self.queued = self.queued.saturating_sub(1);
            return Get::Item(found);
        }
        match until {
            Some(until) => Get::Throttled { until },
            None => Get::Empty,
        }
    }

    /// Returns what [`Head::get`] would answer, as exactly as [`Part::peek`] does, and changes nothing.
    pub fn peek(&self, view: &View<'_>) -> Get<()> {
        let mut until: Option<u64> = None;
        for instance in self.iter().filter(|i| i.queued != 0) {
            let view = View {
                // If no other instance has eligible requests.
                force: view.force || instance.stopping,
                ..*view
            };
            match instance.part.peek(&view) {
                Get::Item(()) => return Get::Item(()),
                Get::Throttled { until: at } => {
                    until = Some(until.map_or(at, |other| other.min(at)));
                }
                Get::Empty => {}
            }
        }
        match until {
            Some(until) => Get::Throttled { until },
            None => Get::Empty,
        }
    }

    /// Takes a request out, as [`Head::get`] says; lowers `until` like [`Instance::get`].
    fn take(&mut self, view: &View<'_>, until: &mut Option<u64>) -> Option<(I, Ticket)> {
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
        let force = View {
            force: true,
            ..*view
        };
        self.take_stopping(&force, until)
    }

    /// Takes a request from primary or fallback.
    fn take_running(&mut self, view: &View<'_>, until: &mut Option<u64>) -> Option<(I, Ticket)> {
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

    /// Takes a request from the stopping instances.
    fn take_stopping(&mut self, view: &View<'_>, until: &mut Option<u64>) -> Option<(I, Ticket)> {
        let due = view.now.saturating_add(FORCE_AFTER_NS);
        let is_full = self.others.iter().all(Option::is_some);
        let mut fewest = u32::MAX;
        for i in self.others.iter_mut().flatten().filter(|i| i.stopping) {
            fewest = fewest.min(i.queued);
            if i.due == 0 {
                i.due = due;
            }
        }
        let newest = self.serial;
        // Those that are forced first, then by age.
        let rank = move |i: &Instance<P, T>| {
            let forced = i.due <= view.now || (is_full && i.queued == fewest);
            (forced && !view.force, newest.wrapping_sub(i.id.serial))
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
            let view = View {
                force: view.force || below.0,
                ..*view
            };
            let found = instance.get(&view, until);
            if found.is_some() {
                instance.due = due;
                return found;
            }
        }
    }
}
