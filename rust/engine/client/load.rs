// SPDX-License-Identifier: GPL-2.0-only

//! Load of a client: counters of its requests, and the limit on the queued ones.

use kernel::{cpu::nr_cpu_ids, prelude::*, sync::Arc};

use crate::{
    engine::concurrency::{Concurrency, HeldSubmitters},
    sched::{
        attr::Opcode,
        cpus::PerCpu,
        item::Cost,
        statistics::{ClientCounts, Stats},
    },
    sys::{
        atomic::{AtomicWord, Counter},
        misc, task,
    },
};

/// Limit on the concurrency of the submitters of a block device.
struct Submitters {
    concurrency: Arc<Concurrency>,
    queue: Arc<HeldSubmitters>,
}

impl Drop for Submitters {
    fn drop(&mut self) {
        self.concurrency.close(&self.queue);
    }
}

/// Counters of a client's requests, and the limit on the queued ones.
pub(crate) struct ClientLoad {
    /// Counters of each CPU; `passed`, `held` and `credits` are computed when the counters are
    /// shown.
    counts: PerCpu<ClientCounts<Counter>>,
    /// Number of requests that are queued now.
    pub(super) held: Arc<AtomicWord>,
    /// Limit under which the client counts as active while it has queued requests.
    submitters: Option<Submitters>,
}

impl ClientLoad {
    /// Creates the counters of a client without requests. With `concurrency`, the client counts as
    /// active there while it has queued requests.
    pub(super) fn new(concurrency: Option<Arc<Concurrency>>) -> Result<Self> {
        Ok(Self {
            counts: PerCpu::new(nr_cpu_ids(), ClientCounts::default).map_err(|_| ENOMEM)?,
            held: Arc::new(AtomicWord::new(0), GFP_KERNEL_ACCOUNT)?,
            submitters: match concurrency {
                Some(concurrency) => Some(Submitters {
                    queue: concurrency.open()?,
                    concurrency,
                }),
                None => None,
            },
        })
    }

    /// Returns the number of requests that have ended, and of their bytes.
    pub(crate) fn ended(&self) -> (u64, u64) {
        let each = self.counts.iter();
        each.fold((0, 0), |(ended, bytes): (u64, u64), counts| {
            let (more, size) = (counts.ended.get(), counts.bytes.get());
            (ended.wrapping_add(more), bytes.wrapping_add(size))
        })
    }

    /// Returns the number of requests that are queued now.
    pub(crate) fn held(&self) -> u64 {
        self.held.get()
    }

    /// Counts one on the counter `which` of `cpu`.
    #[inline]
    fn count(&self, cpu: u16, which: impl Fn(&ClientCounts<Counter>) -> &Counter) {
        if let Some(counts) = self.counts.of(cpu.into()) {
            which(counts).count(1);
        }
    }

    /// Counts a request that arrived on `cpu` and is queued from now on.
    pub(crate) fn count_queued(&self, cpu: u16) {
        self.count(cpu, |counts| &counts.queued);
        if self.held.add(1) == 0 {
            if let Some(submitters) = &self.submitters {
                submitters.concurrency.enter();
            }
        }
    }

    /// Counts a queued request that is dispatched.
    pub(crate) fn count_submitted(&self) {
        let before = self.held.sub(1);
        if let Some(submitters) = &self.submitters {
            if before == 1 {
                submitters.concurrency.leave();
            }
            // A submitter that waits counts itself before it checks the limit.
            if submitters.queue.is_busy() {
                submitters.concurrency.call(&submitters.queue, false);
            }
        }
    }

    /// Blocks a submitter that may sleep while the client has used up its credits, unless `go_on`
    /// returns true. Submitters that other tasks may depend on are only counted. Returns true if
    /// the submitter was blocked; it must call [`Self::wake_next`] after its request has arrived.
    #[inline]
    #[must_use]
    pub(crate) fn hold_back(&self, go_on: impl Fn() -> bool) -> bool {
        let Some(submitters) = &self.submitters else {
            return false;
        };
        if !submitters.concurrency.is_full(self.held()) {
            return false;
        }
        if !task::can_be_throttled() {
            submitters.concurrency.count_over();
            return false;
        }
        let is_full = || submitters.concurrency.is_full(self.held()) && !go_on();
        submitters.concurrency.stand(&submitters.queue, is_full);
        true
    }

    /// Wakes the next blocked submitter if credits are left. Only a request that was queued wakes
    /// one when it is dispatched; the request of the woken submitter may have bypassed the queue.
    #[cold]
    pub(crate) fn wake_next(&self) {
        if let Some(submitters) = &self.submitters {
            if submitters.queue.is_busy() && !submitters.concurrency.is_full(self.held()) {
                submitters.concurrency.call(&submitters.queue, false);
            }
        }
    }

    /// Wakes all blocked submitters.
    pub(crate) fn wake_all(&self) {
        if let Some(submitters) = &self.submitters {
            submitters.concurrency.call(&submitters.queue, true);
        }
    }

    /// Counts a request that must not be queued.
    pub(crate) fn count_forced(&self, cpu: u16) {
        self.count(cpu, |counts| &counts.forced);
    }

    /// Counts a request without a known owner.
    pub(crate) fn count_anonymous(&self, cpu: u16) {
        self.count(cpu, |counts| &counts.anonymous);
    }

    /// Counts a request whose owner is known by the cgroup.
    pub(crate) fn count_by_cgroup(&self, cpu: u16) {
        self.count(cpu, |counts| &counts.by_cgroup);
    }

    /// Counts a request whose owner is that of the cgroup by the administrator's map.
    pub(crate) fn count_by_map(&self, cpu: u16) {
        self.count(cpu, |counts| &counts.by_map);
    }

    /// Counts a request by its operation, if devices have this operation.
    pub(crate) fn count_operation(&self, cpu: u16, opcode: Opcode) {
        match opcode {
            Opcode::OST_READ => self.count(cpu, |counts| &counts.ost_read),
            Opcode::OST_WRITE => self.count(cpu, |counts| &counts.ost_write),
            Opcode::OST_PUNCH => self.count(cpu, |counts| &counts.ost_punch),
            Opcode::OST_SYNC => self.count(cpu, |counts| &counts.ost_sync),
            _ => {}
        }
    }

    /// Counts a request of a front-end that treats flushes as ordinary requests.
    pub(crate) fn count_arrived(&self, cpu: u16, opcode: Opcode) {
        match opcode {
            Opcode::OST_READ | Opcode::OST_WRITE | Opcode::OST_PUNCH => {
                self.count_operation(cpu, opcode);
            }
            _ => self.count(cpu, |counts| &counts.other),
        }
    }

    /// Counts the end of a request on `cpu`.
    #[inline]
    pub(crate) fn count_ended(&self, cpu: u16, cost: Cost, failed: bool) {
        if let Some(counts) = self.counts.of(cpu.into()) {
            counts.ended.count(1);
            counts.bytes.count(cost.bytes);
            if failed {
                counts.failed.count(1);
            }
        }
    }

    /// Counts a request that fails unprocessed because the client is lost.
    pub(crate) fn count_refused(&self) {
        self.count_ended(misc::cpu(), Cost::of_bytes(0), true);
    }

    /// Returns the counters, and the credits by `concurrency`.
    pub(crate) fn counts(&self, concurrency: &Concurrency) -> ClientCounts {
        let mut counts = ClientCounts::ZERO;
        for one in self.counts.iter() {
            counts.merge(&one.map(Counter::get));
        }
        // Requests that were dispatched without queueing, or are about to be queued; flushes are
        // not counted.
        let arrived = [counts.ost_read, counts.ost_write, counts.ost_punch];
        let arrived = arrived.into_iter().fold(counts.other, u64::saturating_add);
        counts.passed = arrived.saturating_sub(counts.queued);
        counts.held = self.held();
        counts.credits = concurrency.credits(false).into();
        counts
    }
}
