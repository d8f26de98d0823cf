// SPDX-License-Identifier: GPL-2.0-only

//! What keeps the requests of a service going when nobody else is about to.
//!
//! # Vocabulary
//!
//! - *Rest*: what an order table has to have done and was too much for the lock hold in which it came up.
//! - *Caretaker*: who serves those that a timer found waiting beside a free slot ([`Caretaker`]).
//! - *Stall*: requests that may be served wait, and none is decided for longer than `stall_ms`. They are
//!   sent down then, whatever holds the slots.
//!
//! Memory is freed by requests that wait here, so nothing here allocates, or waits for work that does: that is the
//! worker's ([`super::worker`]). It submits nothing itself, so that a device that hangs does not keep it.

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
    dispatch::{Caretaker, Dispatch, Feed},
    partitions::Partitions,
};
use crate::{
    sched::units::{NSEC_PER_MSEC, NSEC_PER_SEC},
    sys::{misc, queue},
};

/// Time between two looks for stalls, at least, ns; an eighth of `stall_ms` if that is less. Who asks comes every delta.
const WATCH: u64 = NSEC_PER_SEC;

/// Keeps the requests of one service going.
#[pin_data]
pub(crate) struct Keeper {
    dispatch: Arc<Dispatch>,
    partitions: Arc<Partitions>,
    /// When stalls were looked for last, ns.
    watched: Atomic<u64>,
    /// Runs that found one.
    stalls: Atomic<u64>,
    #[pin]
    work: Work<Self>,
}

impl_has_work! {
    impl HasWork<Self> for Keeper { self.work }
}

impl Keeper {
    /// The keeper of `partitions`.
    pub(crate) fn new(partitions: Arc<Partitions>, dispatch: Arc<Dispatch>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                dispatch,
                partitions,
                watched: Atomic::new(0),
                stalls: Atomic::new(0),
                work <- new_work!("nrs_keeper"),
            }),
            GFP_KERNEL,
        )
    }

    /// Asks for a run soon, which does what is left to do. Any context.
    pub(crate) fn call(self: &Arc<Self>) {
        // If it is queued already, that run serves.
        let _ = queue::progress().enqueue(self.clone());
    }

    /// The same if it is time to look for stalls. To be called at least every second.
    pub(crate) fn watch(self: &Arc<Self>) {
        if self.is_due(misc::now()) {
            self.call();
        }
    }

    /// Is called by timers from now on.
    pub(crate) fn attend(self: &Arc<Self>) {
        self.dispatch.set_caretaker(Some(self.clone()));
    }

    /// Is called by timers no more.
    pub(crate) fn leave(&self) {
        self.dispatch.set_caretaker(None);
    }

    /// Whether it is time to look for stalls.
    fn is_due(&self, now: u64) -> bool {
        let wait = match self.stall() {
            0 => WATCH,
            stall => WATCH.min(stall / 8),
        };
        now.saturating_sub(self.watched.load(ordering::Relaxed)) >= wait
    }

    /// After how long without progress requests are sent down, ns; 0: never.
    fn stall(&self) -> u64 {
        u64::from(self.dispatch.stall_ms()).saturating_mul(NSEC_PER_MSEC)
    }

    /// Runs that found a stall.
    pub(crate) fn stalls(&self) -> u64 {
        self.stalls.load(ordering::Relaxed)
    }

    /// Sends down what waits without progress; warns once.
    fn end_stalls(&self) {
        let stall = self.stall();
        // Programs that do not read what they may serve have nothing to gain from more of it.
        if stall == 0 || self.dispatch.is_fed_by(Feed::User) {
            return;
        }
        for lanes in self.partitions.lanes() {
            if lanes.unstall(stall) && self.stalls.fetch_add(1, ordering::Relaxed) == 0 {
                pr_warn!(
                    "service {}: no request was decided for {} ms though some wait; sending them down\n",
                    self.dispatch.label(),
                    stall / NSEC_PER_MSEC,
                );
            }
        }
    }
}

impl Caretaker for Keeper {
    fn called(self: Arc<Self>) {
        self.call();
    }
}

impl WorkItem for Keeper {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        for lanes in this.partitions.lanes() {
            lanes.settle();
        }
        let now = misc::now();
        if this.is_due(now) {
            this.watched.store(now, ordering::Relaxed);
            this.end_stalls();
        }
    }
}
