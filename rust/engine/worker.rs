// SPDX-License-Identifier: GPL-2.0-only

//! Periodic work of a service: shares, memory, ageing, removal of stopped policies.
//!
//! # Terms
//!
//! - *Delta*: time between two runs, ms.
//! - *Ticker*: the timer that schedules a run every delta while the service has clients; an idle
//!   service has one run a second.
//! - *Beat*: a run in between in which the overseer evaluates its state ([`super::overseer`]).
//! - *Maintenance*: one run, in process context, with allocations that start no I/O. The progress
//!   guard ([`super::progress`]) does the work that requests depend on, with two exceptions. The
//!   overseer's decisions take a second at most; records need memory when none are left.
//!
//! A run takes each partition's lock for a bounded number of classes at a time ([`upkeep`]).

use kernel::{
    impl_has_work, new_mutex, new_work,
    prelude::*,
    str::CString,
    sync::{
        atomic::{ordering, Atomic},
        Arc, Mutex,
    },
    workqueue::{Work, WorkItem},
};

use super::{
    agent::Agent,
    overseer::OverseerState,
    partitions::{Partitions, TargetPartitions},
    progress::ProgressGuard,
    target_parameters::TargetParameters,
    tuner::Tuner,
};
use crate::{
    sched::{
        attr::Priority, knee::SAMPLE_MIN, partition::slot_pool::PARTITIONS_MAX,
        ranges::RangeBuilder, service::upkeep, units::NSEC_PER_MSEC,
    },
    sys::{
        misc, queue,
        timer::{TimerCallback, WithTimer},
        trace,
    },
};

/// Work due in a run: evaluation by the overseer.
const OVERSEER: u32 = 1;

/// Work due in a run: everything.
const ALL: u32 = 2;

/// Time between two runs of an idle service, ns. With the rest of a delta this is less than a
/// second, as [`Part::age`] requires.
const REST: u64 = 750 * NSEC_PER_MSEC;

/// The periodic work of one service.
#[pin_data]
pub(crate) struct Worker {
    /// The name of the service.
    label: CString,
    progress: Arc<ProgressGuard>,
    partitions: Arc<Partitions>,
    overseer: Arc<OverseerState>,
    agent: Arc<Agent>,
    generation: Atomic<u64>,
    /// Time of the last computation of shares, ns.
    computed: Atomic<u64>,
    /// True if partitions take turns by their shares, false if they take equal turns.
    by_shares: Atomic<bool>,
    /// Additional work of the next run: [`OVERSEER`], [`ALL`] or 0.
    due: Atomic<u32>,
    /// Memory for the gathered shares of each head.
    #[pin]
    builders: Mutex<[RangeBuilder; 2]>,
    failures: Atomic<u64>,
    #[pin]
    work: Work<Self>,
}

impl_has_work! {
    impl HasWork<Self> for Worker { self.work }
}

impl Worker {
    /// Creates a worker for `partitions`.
    pub(crate) fn new(
        label: CString,
        partitions: Arc<Partitions>,
        dispatch: Arc<TargetParameters>,
        overseer: Arc<OverseerState>,
        agent: Arc<Agent>,
    ) -> Result<Arc<Self>> {
        let progress = ProgressGuard::new(partitions.clone(), dispatch)?;
        Arc::pin_init(
            pin_init!(Self {
                label,
                progress,
                partitions,
                overseer,
                agent,
                generation: Atomic::new(0),
                computed: Atomic::new(0),
                by_shares: Atomic::new(true),
                due: Atomic::new(ALL),
                builders <- new_mutex!([const { RangeBuilder::new() }; 2], "nrs_range_builders"),
                failures: Atomic::new(0),
                work <- new_work!("nrs_worker"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Schedules a complete run soon. Any context.
    pub(crate) fn kick(self: &Arc<Self>) {
        self.due.store(ALL, ordering::Relaxed);
        self.progress.watch();
        self.enqueue();
    }

    /// Schedules a run soon in which the overseer evaluates its state, without shares. Any context.
    fn beat(self: &Arc<Self>) {
        // Does not replace `ALL`.
        let _ = self.due.cmpxchg(0, OVERSEER, ordering::Relaxed);
        self.enqueue();
    }

    /// Schedules a run soon that allocates memory and runs the overseer, without other work. Any
    /// context.
    pub(crate) fn feed(self: &Arc<Self>) {
        // Completes the work that needs no memory.
        self.progress.call();
        self.enqueue();
    }

    fn enqueue(self: &Arc<Self>) {
        // If the work is queued already, that run suffices.
        let _ = queue::upkeep().enqueue(self.clone());
    }

    /// Sets whether partitions take turns by their shares or equal turns; in effect from the next
    /// run on.
    pub(crate) fn set_by_shares(&self, on: bool) {
        self.by_shares.store(on, ordering::Relaxed);
    }

    /// Returns the number of runs with failed allocations.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(ordering::Relaxed)
    }

    /// Returns the progress guard.
    pub(crate) fn progress(&self) -> &Arc<ProgressGuard> {
        &self.progress
    }

    /// Removes stopped instances, evicts idle classes, and allocates memory.
    fn maintain(&self) -> Result {
        let (mut fed, mut done) = (false, Ok(()));
        for partition in self.partitions.iter() {
            // Lack of memory for one partition does not stop the maintenance of the others.
            match partition.feed_order() {
                Ok(some) => fed |= some,
                Err(error) => done = Err(error),
            }
        }
        if fed {
            self.progress.call();
        }
        done.and(upkeep::maintain(&*self.overseer).map_err(|_| ENOMEM))
    }

    /// Returns true if the service is idle at `now`, ns, and had a run recently. A service is idle
    /// if no request is queued or has a slot. Any context.
    fn can_rest(&self, now: u64) -> bool {
        let since = now.saturating_sub(self.computed.load(ordering::Relaxed));
        since < REST
            && self.partitions.used().all(|partitions| {
                let slot_pool = partitions.target().slot_pool();
                let is_idle = slot_pool.is_uncontended() && slot_pool.used().active() == 0;
                is_idle && (!partitions.target().is_driven() || partitions.are_idle())
            })
    }

    /// Computes the shares of all heads and partitions, and publishes the shares that have a
    /// reader. Readers are policies that draw, turns of several partitions, and a trace.
    fn publish(&self) -> Result {
        let mut builders = self.builders.lock();
        let before = self.computed.xchg(misc::now(), ordering::Relaxed);
        let mut done = Ok(());
        for partitions in self.partitions.used() {
            // Lack of memory for one target does not stop the work for the others.
            done = done.and(self.publish_to(partitions, &mut builders, before));
        }
        done
    }

    /// Publishes the shares of the partitions of a target. `before` (ns) is the time of the last
    /// computation, 0: never.
    #[inline(never)]
    fn publish_to(
        &self,
        partitions: &TargetPartitions,
        builders: &mut [RangeBuilder; 2],
        before: u64,
    ) -> Result {
        let by_shares = self.by_shares.load(ordering::Relaxed);
        let mut by_part = None;
        let mut begun = misc::now();
        let delta_ms = match before {
            0 => 0,
            before => begun.saturating_sub(before) / NSEC_PER_MSEC,
        };
        for (builder, priority) in builders.iter_mut().zip(Priority::ALL) {
            builder.clear();
            let turns = priority == Priority::Regular && partitions.len() > 1 && by_shares;
            let reads = upkeep::gather(partitions.heads(), builder, priority, misc::now);
            let is_read = reads.map_err(|_| ENOMEM)? || turns || trace::Shares::is_on();
            let published = partitions.published().of(priority);
            if !is_read {
                published.clear();
                continue;
            }
            let generation = self.generation.fetch_add(1, ordering::Relaxed);
            let built = builder.build().map_err(|_| ENOMEM)?;
            if built.table.is_empty() {
                published.clear();
                continue;
            }
            let entities = built.table.len() as u64;
            published.set(built.table)?;
            if trace::Shares::is_on() {
                let now = misc::now();
                let event = trace::Shares {
                    service: trace::text(Some(&self.label.to_str().unwrap_or(""))),
                    high: trace::is_high(priority),
                    entities,
                    generation,
                    delta_ms,
                    took_ns: now.saturating_sub(begun),
                };
                event.emit();
                begun = now;
            }
            // Regular requests use most of the slots.
            by_part = by_part.or(Some(built.by_part));
        }
        if !by_shares {
            by_part = None;
        }
        partitions
            .target()
            .slot_pool()
            .set_shares(&by_part.unwrap_or([0; PARTITIONS_MAX]));
        Ok(())
    }

    /// Refreshes all classes that depend on counters or on time. A target without users may get a
    /// user at any time, so its parts are refreshed, too.
    fn refresh(&self) {
        for partition in self.partitions.iter() {
            for priority in Priority::ALL {
                partition.with(|inner| inner.refresh_cache(priority, misc::now()));
            }
        }
        upkeep::refresh(&*self.overseer);
    }
}

impl WorkItem for Worker {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let due = this.due.xchg(0, ordering::Relaxed);
        // The overseer runs first, because requests depend on it.
        let polled = this.overseer.poll(due >= OVERSEER);
        if due == ALL {
            this.agent.poll();
            this.refresh();
        }
        let done = misc::without_io(|| {
            let done = this.maintain();
            if due == ALL {
                done.and(this.publish())
            } else {
                done
            }
        });
        if polled.and(done).is_err() {
            // The next run tries again; until then requests use the default class.
            this.failures.fetch_add(1, ordering::Relaxed);
        }
    }
}

/// Time between two evaluations by the overseer, ns.
const BEAT: u64 = 200 * NSEC_PER_MSEC;

/// Timer that schedules a run of a worker every delta, and evaluations by the overseer in between,
/// if there is one.
#[pin_data]
pub(crate) struct Ticker {
    worker: Arc<Worker>,
    tuner: Arc<Tuner>,
    delta_ms: Atomic<u32>,
    running: Atomic<bool>,
    /// True if there is an overseer.
    beating: Atomic<bool>,
    /// Time of the next complete run, ns.
    next: Atomic<u64>,
    next_beat: Atomic<u64>,
}

impl Ticker {
    /// Creates a stopped ticker.
    pub(crate) fn new(
        worker: Arc<Worker>,
        tuner: Arc<Tuner>,
        delta_ms: u32,
    ) -> Result<Arc<WithTimer<Self>>> {
        Arc::pin_init(
            WithTimer::new(pin_init!(Self {
                worker,
                tuner,
                delta_ms: Atomic::new(delta_ms),
                running: Atomic::new(false),
                beating: Atomic::new(false),
                next: Atomic::new(0),
                next_beat: Atomic::new(0),
            })),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Returns the worker.
    pub(crate) fn worker(&self) -> &Arc<Worker> {
        &self.worker
    }

    /// Sets delta, ms; in effect from the next run on.
    pub(crate) fn set_delta(&self, delta_ms: u32) {
        self.delta_ms.store(delta_ms, ordering::Relaxed);
    }
}

impl WithTimer<Ticker> {
    /// Schedules the next complete run a delta after `now`.
    fn restart(&self, now: u64) {
        let delta = u64::from(self.delta_ms.load(ordering::Relaxed));
        let next = now.saturating_add(delta.saturating_mul(NSEC_PER_MSEC));
        self.next.store(next, ordering::Relaxed);
        self.restart_beat(now);
        self.wait(now);
    }

    /// Schedules the next evaluation by the overseer a beat after `now`.
    fn restart_beat(&self, now: u64) {
        self.next_beat
            .store(now.saturating_add(BEAT), ordering::Relaxed);
    }

    /// Calls the tuner if requests wait for it, and arms the timer for the next event after `now`.
    fn wait(&self, now: u64) {
        let mut next = self.next.load(ordering::Relaxed);
        if self.beating.load(ordering::Relaxed) {
            next = next.min(self.next_beat.load(ordering::Relaxed));
        }
        if self.tuner.is_wanted() {
            self.tuner.call();
            next = next.min(now.saturating_add(SAMPLE_MIN));
        }
        self.arm(next);
    }

    /// Starts the ticker.
    pub(crate) fn start(&self) {
        self.running.store(true, ordering::Relaxed);
        self.worker.progress.attend();
        self.worker.kick();
        self.restart(misc::now());
    }

    /// Stops the ticker; a run in progress continues.
    pub(crate) fn stop(&self) {
        self.running.store(false, ordering::Relaxed);
        self.worker.progress.leave();
        self.cancel();
    }

    /// Sets whether there is an overseer.
    pub(crate) fn set_beat(&self, on: bool) {
        let was = self.beating.xchg(on, ordering::Relaxed);
        if on && !was && self.running.load(ordering::Relaxed) {
            let now = misc::now();
            self.restart_beat(now);
            self.wait(now);
        }
    }
}

impl TimerCallback for Ticker {
    fn expired(timed: &WithTimer<Self>) {
        if !timed.running.load(ordering::Relaxed) {
            return;
        }
        let now = misc::now();
        if now >= timed.next.load(ordering::Relaxed) {
            if !timed.worker.can_rest(now) {
                timed.worker.kick();
            } else if timed.beating.load(ordering::Relaxed) {
                timed.worker.beat();
            }
            timed.restart(now);
            return;
        }
        let beats = timed.beating.load(ordering::Relaxed);
        if beats && now >= timed.next_beat.load(ordering::Relaxed) {
            timed.worker.beat();
            timed.restart_beat(now);
        }
        timed.wait(now);
    }
}
