// SPDX-License-Identifier: GPL-2.0-only

//! Determines the number of slots that keeps each target busy, and what all targets serve at most,
//! while `slots` is `auto` ([`crate::sched::knee`]).

use kernel::{
    impl_has_work, new_work,
    prelude::*,
    sync::Arc,
    workqueue::{Work, WorkItem},
};

use super::{
    client_list::ClientList,
    partitions::{Partitions, TARGETS_MAX},
    target::PendingSubmission,
    target_parameters::TargetParameters,
};
use crate::{
    sched::{capacity::Capacity, knee::Totals, mem::Shared, slots::Slots},
    sys::{misc, queue},
};

/// Tuner of the targets of one service.
#[pin_data]
pub(crate) struct Tuner {
    dispatch: Arc<TargetParameters>,
    partitions: Arc<Partitions>,
    clients: Arc<ClientList>,
    /// Capacity of all targets, if a policy uses it.
    capacity: Option<Shared<Capacity>>,
    #[pin]
    work: Work<Self>,
}

impl_has_work! {
    impl HasWork<Self> for Tuner { self.work }
}

impl Tuner {
    /// Creates the tuner of `partitions`, whose clients are in `clients`.
    pub(crate) fn new(
        dispatch: Arc<TargetParameters>,
        partitions: Arc<Partitions>,
        clients: Arc<ClientList>,
        capacity: Option<Shared<Capacity>>,
    ) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                dispatch,
                partitions,
                clients,
                capacity,
                work <- new_work!("nrs_tuner"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Returns true if there is something to measure: slots are `auto`, and requests are queued.
    /// Any context.
    pub(crate) fn is_wanted(&self) -> bool {
        self.dispatch.slots() == Slots::Auto
            && self
                .partitions
                .targets()
                .any(|target| !target.slot_pool().is_uncontended())
    }

    /// Schedules a measurement. Any context.
    pub(crate) fn call(self: &Arc<Self>) {
        // If the work is queued already, that run suffices.
        let _ = queue::upkeep().enqueue(self.clone());
    }

    /// Returns the completed requests and bytes of each target, by index. The totals of a client
    /// that leaves are lost.
    fn totals(&self) -> [Totals; TARGETS_MAX] {
        let mut totals = [Totals::at(misc::now()); TARGETS_MAX];
        self.clients.with(|clients| {
            for client in clients.iter() {
                if let Some(totals) = totals.get_mut(usize::from(client.target())) {
                    let (ended, bytes) = client.load().ended();
                    *totals = totals.plus(ended, bytes);
                }
            }
        });
        totals
    }
}

impl WorkItem for Tuner {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        if this.dispatch.slots() != Slots::Auto {
            return;
        }
        let totals = this.totals();
        for partitions in this.partitions.used() {
            let target = partitions.target();
            let totals = totals.get(usize::from(target.index()));
            if totals.is_some_and(|totals| target.tune(*totals)) {
                partitions.pass_on(PendingSubmission::none());
            }
        }
        if let Some(capacity) = &this.capacity {
            let used = this.partitions.used();
            capacity.set_sum(used.map(|partitions| partitions.target().capacity()));
        }
    }
}
