// SPDX-License-Identifier: GPL-2.0-only

//! Who finds out how many slots keep each target busy, while `slots` is `auto` ([`crate::sched::knee`]).

use kernel::{
    impl_has_work, new_work,
    prelude::*,
    sync::Arc,
    workqueue::{Work, WorkItem},
};

use super::{
    dispatch::Dispatch,
    partitions::Partitions,
    roster::Roster,
    target::{Kick, Target},
};
use crate::{
    sched::{knee::Totals, slots::Slots},
    sys::{misc, queue},
};

/// Looks at the targets of one service.
#[pin_data]
pub(crate) struct Tuner {
    dispatch: Arc<Dispatch>,
    partitions: Arc<Partitions>,
    roster: Arc<Roster>,
    #[pin]
    work: Work<Self>,
}

impl_has_work! {
    impl HasWork<Self> for Tuner { self.work }
}

impl Tuner {
    /// The tuner of `partitions`, whose clients are in `roster`.
    pub(crate) fn new(
        dispatch: Arc<Dispatch>,
        partitions: Arc<Partitions>,
        roster: Arc<Roster>,
    ) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                dispatch,
                partitions,
                roster,
                work <- new_work!("nrs_tuner"),
            }),
            GFP_KERNEL,
        )
    }

    /// Returns whether there is something to find out: requests wait. Any context.
    pub(crate) fn is_wanted(&self) -> bool {
        self.dispatch.slots() == Slots::Auto
            && self
                .partitions
                .targets()
                .any(|target| !target.line().is_calm())
    }

    /// Asks for a look. Any context.
    pub(crate) fn call(self: &Arc<Self>) {
        // If it is queued already, that run serves.
        let _ = queue::upkeep().enqueue(self.clone());
    }

    /// Returns what has ended at `target`. A client that leaves takes what it had along.
    fn totals(&self, target: &Arc<Target>) -> Totals {
        let now = misc::now();
        self.roster.with(|clients| {
            let its = clients.iter().filter(|client| client.sends_to(target));
            its.fold(Totals::at(now), |totals, client| {
                let (ended, bytes) = client.ended();
                totals.plus(ended, bytes)
            })
        })
    }
}

impl WorkItem for Tuner {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        if this.dispatch.slots() != Slots::Auto {
            return;
        }
        for lanes in this.partitions.used() {
            let target = lanes.target();
            if target.tune(this.totals(target)) {
                lanes.pass_on(Kick::none());
            }
        }
    }
}
