// SPDX-License-Identifier: GPL-2.0-only

//! The worker of a server: memory, ageing, shares, the overseer and updates from other servers.
//!
//! The worker runs every delta; every [`BEAT`] as well if the policy has an overseer; and [`CALL`]
//! after a call. A call brings memory and has the overseer look but not judge.

use super::{SimServer, SimState, MS};
use crate::engine::queue::Event;
use nrs_sched::{
    partition::slot_pool::PARTITIONS_MAX,
    policy::{AnyUpdate, Nothing, Part},
    ranges::{NodeReport, NodeReports, RangeBuilder},
};

/// Interval between two polls of the overseer, ns; as in the kernel.
const BEAT: u64 = 200 * MS;

/// Delay from a call to the run of the worker, ns.
const CALL: u64 = 50_000;

impl SimServer {
    /// Schedules a run of the worker, unless one is scheduled.
    pub(super) fn call(&mut self, state: &mut SimState) {
        if !std::mem::replace(&mut self.called, true) {
            state.queue.push(state.now + CALL, Event::Call(self.index));
        }
    }

    /// Handles a call of the worker: a part needs memory.
    pub fn answer(&mut self, state: &mut SimState) {
        self.called = false;
        self.run_worker(state, false);
    }

    /// Handles the periodic run of the worker and schedules the next one.
    pub fn work(&mut self, state: &mut SimState) {
        self.run_worker(state, true);
        let mut next = self.due;
        if self.overseer.is_some() {
            next = next.min(state.now + BEAT);
        }
        state.queue.push(next, Event::Work(self.index));
    }

    /// Runs the worker; `due` is false for a call.
    fn run_worker(&mut self, state: &mut SimState, due: bool) {
        let now = state.now;
        self.account_withheld(now);
        let all = due && now >= self.due;
        if all {
            self.due = now + u64::from(self.upkeep.delta_ms) * MS;
        }
        // The second pass is for clients that appeared during the refresh.
        for due in [due, false] {
            let Some(overseer) = &mut self.overseer else {
                break;
            };
            let polled = overseer.poll(now, &Nothing, due).expect("memory");
            if !polled.refresh {
                break;
            }
            self.partitions
                .iter_mut()
                .for_each(|partition| partition.refresh(now));
        }
        for partition in &mut self.partitions {
            if all {
                partition.refresh_cache(now);
            }
            partition.maintain(now);
        }
        if all {
            self.publish(now);
        }
        if self.overseer.is_some() {
            self.run_all(state);
        } else {
            self.pass_on(state);
        }
    }

    /// Computes and publishes the shares.
    fn publish(&mut self, now: u64) {
        let mut builder = std::mem::replace(&mut self.builder, RangeBuilder::new());
        builder.clear();
        let mut buf = NodeReports::new().expect("memory");
        for (part, partition) in (0u16..).zip(&mut self.partitions) {
            let mut from = Some(0);
            while let Some(class) = from {
                buf.clear();
                from = partition.part().node_reports(class, now, &mut buf);
                for report in buf.iter() {
                    let report = NodeReport { part, ..*report };
                    builder.extend(&[report]).expect("memory");
                }
            }
        }
        let built = builder.build().expect("memory");
        let shares = match self.upkeep.by_shares {
            true => built.by_part,
            false => [0; PARTITIONS_MAX],
        };
        self.target.slot_pool.set_shares(&shares);
        self.target.table = Some(built.table).filter(|table| !table.is_empty());
        self.builder = builder;
    }

    /// Applies an update to all parts and refreshes their classes.
    pub fn inform(&mut self, state: &mut SimState, update: &AnyUpdate) {
        let now = state.now;
        self.account_withheld(now);
        for partition in &mut self.partitions {
            drop(partition.part().update(update.clone(), now));
            partition.refresh(now);
        }
        self.run_all(state);
    }
}
