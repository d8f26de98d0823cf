// SPDX-License-Identifier: GPL-2.0-only

//! Ensures progress of the requests of a service when no other event triggers it.
//!
//! # Terms
//!
//! - *Rest*: work of an order table that exceeded the lock hold in which it arose.
//! - *Progress hook*: serves the partitions that a timer found backlogged while a slot was free
//!   ([`ProgressHook`]).
//! - *Stall*: requests are eligible, and none is decided for longer than `stall_ms`. They are
//!   dispatched without slots then.
//!
//! Memory is freed by requests that are queued here. So nothing here allocates, or waits for work
//! that does; the worker ([`super::worker`]) does that. The progress guard itself submits nothing,
//! so that a hung device does not block it.

use kernel::{
    impl_has_work, new_work,
    prelude::*,
    sync::{
        atomic::{ordering, Atomic},
        Arc,
    },
    workqueue::{Work, WorkItem},
};

use super::{
    partitions::Partitions,
    target_parameters::{ClientKind, ProgressHook, TargetParameters},
};
use crate::{
    sched::units::{NSEC_PER_MSEC, NSEC_PER_SEC},
    sys::{misc, queue},
};

/// Minimum time between two checks for stalls, ns; an eighth of `stall_ms` if that is less. The
/// worker calls every delta.
const WATCH: u64 = NSEC_PER_SEC;

/// Progress guard of the requests of one service.
#[pin_data]
pub(crate) struct ProgressGuard {
    dispatch: Arc<TargetParameters>,
    partitions: Arc<Partitions>,
    /// Time of the last check for stalls, ns.
    watched: Atomic<u64>,
    /// Number of checks that found a stall.
    stalls: Atomic<u64>,
    #[pin]
    work: Work<Self>,
}

impl_has_work! {
    impl HasWork<Self> for ProgressGuard { self.work }
}

impl ProgressGuard {
    /// Creates the progress guard of `partitions`.
    pub(crate) fn new(
        partitions: Arc<Partitions>,
        dispatch: Arc<TargetParameters>,
    ) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                dispatch,
                partitions,
                watched: Atomic::new(0),
                stalls: Atomic::new(0),
                work <- new_work!("nrs_progress"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Schedules a run soon, which completes pending work. Any context.
    pub(crate) fn call(self: &Arc<Self>) {
        // If the work is queued already, that run suffices.
        let _ = queue::progress().enqueue(self.clone());
    }

    /// Schedules a run if a check for stalls is due. To be called at least every second.
    pub(crate) fn watch(self: &Arc<Self>) {
        if self.is_due(misc::now()) {
            self.call();
        }
    }

    /// Registers the progress guard to be called by timers.
    pub(crate) fn attend(self: &Arc<Self>) {
        self.dispatch.set_progress_hook(Some(self.clone()));
    }

    /// Unregisters the progress guard from timers.
    pub(crate) fn leave(&self) {
        self.dispatch.set_progress_hook(None);
    }

    /// Returns true if a check for stalls is due.
    fn is_due(&self, now: u64) -> bool {
        let wait = match self.stall() {
            0 => WATCH,
            stall => WATCH.min(stall / 8),
        };
        now.saturating_sub(self.watched.load(ordering::Relaxed)) >= wait
    }

    /// Returns the stall timeout, ns; 0: disabled.
    fn stall(&self) -> u64 {
        u64::from(self.dispatch.stall_ms()).saturating_mul(NSEC_PER_MSEC)
    }

    /// Returns the number of checks that found a stall.
    pub(crate) fn stalls(&self) -> u64 {
        self.stalls.load(ordering::Relaxed)
    }

    /// Dispatches stalled requests; logs a warning for the first stall.
    fn dispatch_stalled(&self) {
        let stall = self.stall();
        // Programs that do not read the requests they may serve gain nothing from more of them.
        if stall == 0 || self.dispatch.has_kind(ClientKind::User) {
            return;
        }
        for partitions in self.partitions.all_targets() {
            if partitions.unstall(stall) && self.stalls.fetch_add(1, ordering::Relaxed) == 0 {
                pr_warn!(
                    "service {}: stall: no request dispatched for {} ms; \
                     dispatching queued requests without slots\n",
                    self.dispatch.label(),
                    stall / NSEC_PER_MSEC,
                );
            }
        }
    }
}

impl ProgressHook for ProgressGuard {
    fn called(self: Arc<Self>) {
        self.call();
    }
}

impl WorkItem for ProgressGuard {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        for partitions in this.partitions.all_targets() {
            partitions.apply_pending();
        }
        let now = misc::now();
        if this.is_due(now) {
            this.watched.store(now, ordering::Relaxed);
            this.dispatch_stalled();
        }
    }
}
