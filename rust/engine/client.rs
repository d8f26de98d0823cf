// SPDX-License-Identifier: GPL-2.0-only

//! A front-end's device as its service sees it: who it is and what it did.

use core::fmt;

use kernel::{cpu::nr_cpu_ids, prelude::*, str::CString, sync::Arc};

pub(crate) mod deadlines;
pub(crate) mod herald;

use self::{deadlines::Deadlines, herald::Herald};
use super::{
    concurrency::{Concurrency, Line},
    partitions::Partitions,
    target::Target,
    timeouts::Timeouts,
};
use crate::{
    sched::{
        attr::Opcode,
        cpus::PerCpu,
        item::Cost,
        statistics::{ClientCounts, Stats},
    },
    sys::{
        atomic::{Counter, Word},
        misc, task,
        timer::Timed,
    },
};

/// Who submits requests of a block device, and the others that do.
struct Crowd {
    concurrency: Arc<Concurrency>,
    line: Arc<Line>,
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.concurrency.close(&self.line);
    }
}

/// A front-end's device.
pub(crate) struct Client {
    /// What people call it.
    name: CString,
    /// `major:minor` of the device; the name of a client that is none.
    device: CString,
    /// Tells clients of one service apart.
    serial: u32,
    /// Counters of each CPU; `passed`, `held` and `credits` follow from others when they are shown.
    counts: PerCpu<ClientCounts<Counter>>,
    /// Requests that are queued now.
    held: Arc<Word>,
    /// Where it counts as active while it has some.
    crowd: Option<Crowd>,
    /// What it waits for at its device, if that is a block device.
    deadlines: Option<Arc<Timed<Deadlines>>>,
}

impl Client {
    /// A client named `name`, which is the block device `device` (`major:minor`), or else has its name there; with `concurrency`
    /// it is active there while it has requests queued.
    pub(crate) fn new(
        name: CString,
        device: CString,
        serial: u32,
        concurrency: Option<Arc<Concurrency>>,
    ) -> Result<Self> {
        Ok(Self {
            name,
            device,
            serial,
            counts: PerCpu::new(nr_cpu_ids(), ClientCounts::default).map_err(|_| ENOMEM)?,
            held: Arc::new(Word::new(0), GFP_KERNEL)?,
            crowd: match concurrency {
                Some(concurrency) => Some(Crowd {
                    line: concurrency.open()?,
                    concurrency,
                }),
                None => None,
            },
            deadlines: None,
        })
    }

    /// The same as a client of `service`, queued in `partitions`, that waits for `target` as long as `timeouts`
    /// say.
    pub(crate) fn waiting_for(
        mut self,
        target: Arc<Target>,
        timeouts: Arc<Timeouts>,
        service: &CStr,
        partitions: Arc<Partitions>,
    ) -> Result<Self> {
        let herald = Herald::new(&self.name, service, partitions, target.index())?;
        let held = self.held.clone();
        self.deadlines = Some(Deadlines::new(timeouts, target, held, herald)?);
        Ok(self)
    }

    /// What it waits for at its device, if that is a block device.
    pub(crate) fn deadlines(&self) -> Option<&Arc<Timed<Deadlines>>> {
        self.deadlines.as_ref()
    }

    /// Returns the index of the target to which its requests go. Those of programs go to the first one.
    pub(crate) fn target(&self) -> u16 {
        let deadlines = self.deadlines.as_ref();
        deadlines.map_or(0, |deadlines| deadlines.target().index())
    }

    /// Returns the requests that have ended, and their bytes.
    pub(crate) fn ended(&self) -> (u64, u64) {
        let each = self.counts.iter();
        each.fold((0, 0), |(ended, bytes): (u64, u64), counts| {
            let (more, size) = (counts.ended.get(), counts.bytes.get());
            (ended.wrapping_add(more), bytes.wrapping_add(size))
        })
    }

    /// Its name.
    pub(crate) fn name(&self) -> &CStr {
        &self.name
    }

    /// `major:minor` of the device; the name of a client that is none.
    pub(crate) fn device(&self) -> &CStr {
        &self.device
    }

    /// Tells clients of one service apart.
    pub(crate) fn serial(&self) -> u32 {
        self.serial
    }

    /// Requests that are queued now.
    pub(crate) fn held(&self) -> u64 {
        self.held.get()
    }

    /// Counts one on `cpu`.
    #[inline]
    fn count(&self, cpu: u16, which: impl Fn(&ClientCounts<Counter>) -> &Counter) {
        if let Some(counts) = self.counts.of(cpu.into()) {
            which(counts).count(1);
        }
    }

    /// Counts a request that came on `cpu` and is queued from now on.
    pub(crate) fn count_queued(&self, cpu: u16) {
        self.count(cpu, |counts| &counts.queued);
        if self.held.add(1) == 0 {
            if let Some(crowd) = &self.crowd {
                crowd.concurrency.enter();
            }
        }
    }

    /// Counts a queued request that goes down.
    pub(crate) fn count_submitted(&self) {
        let before = self.held.sub(1);
        if let Some(crowd) = &self.crowd {
            if before == 1 {
                crowd.concurrency.leave();
            }
            // Who waits counts himself first.
            if crowd.line.is_busy() {
                crowd.concurrency.call(&crowd.line, false);
            }
        }
    }

    /// Holds a submitter back that may sleep while the client has its credits queued, unless he is to `go_on`.
    /// Submitters that others may depend on are counted only. Whether it had to wait: then it calls [`Self::hand_on`] after its
    /// request has arrived.
    #[inline]
    #[must_use]
    pub(crate) fn hold_back(&self, go_on: impl Fn() -> bool) -> bool {
        let Some(crowd) = &self.crowd else {
            return false;
        };
        if !crowd.concurrency.is_full(self.held()) {
            return false;
        }
        if !task::can_be_held_back() {
            crowd.concurrency.count_over();
            return false;
        }
        let is_full = || crowd.concurrency.is_full(self.held()) && !go_on();
        crowd.concurrency.stand(&crowd.line, is_full);
        true
    }

    /// Has the next one go on that is held back if there still is a place. Only a request that was queued calls one when
    /// it goes down; that of who waited may have passed.
    #[cold]
    pub(crate) fn hand_on(&self) {
        if let Some(crowd) = &self.crowd {
            if crowd.line.is_busy() && !crowd.concurrency.is_full(self.held()) {
                crowd.concurrency.call(&crowd.line, false);
            }
        }
    }

    /// Has all go on that are held back.
    pub(crate) fn let_go(&self) {
        if let Some(crowd) = &self.crowd {
            crowd.concurrency.call(&crowd.line, true);
        }
    }

    /// Counts a request that must not wait.
    pub(crate) fn count_forced(&self, cpu: u16) {
        self.count(cpu, |counts| &counts.forced);
    }

    /// Counts a request without a known owner.
    pub(crate) fn count_anonymous(&self, cpu: u16) {
        self.count(cpu, |counts| &counts.anonymous);
    }

    /// Counts a request by its operation, if that is one a device has.
    pub(crate) fn count_operation(&self, cpu: u16, opcode: Opcode) {
        match opcode {
            Opcode::OST_READ => self.count(cpu, |counts| &counts.ost_read),
            Opcode::OST_WRITE => self.count(cpu, |counts| &counts.ost_write),
            Opcode::OST_PUNCH => self.count(cpu, |counts| &counts.ost_punch),
            Opcode::OST_SYNC => self.count(cpu, |counts| &counts.ost_sync),
            _ => {}
        }
    }

    /// Counts a request of a front-end whose flushes are requests like others.
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

    /// Counts a request that fails because the client is lost, before anything was done with it.
    pub(crate) fn count_refused(&self) {
        self.count_ended(misc::cpu(), Cost::of_bytes(0), true);
    }

    /// Writes the counters, and the credits by `concurrency`, as `name: value` pairs on one line.
    pub(crate) fn write(&self, concurrency: &Concurrency, out: &mut dyn fmt::Write) -> fmt::Result {
        let mut counts = ClientCounts::ZERO;
        for one in self.counts.iter() {
            counts.merge(&one.map(Counter::get));
        }
        // Requests that were dispatched without waiting, or are about to be queued; flushes are not accounted.
        let arrived = [counts.ost_read, counts.ost_write, counts.ost_punch];
        let arrived = arrived.into_iter().fold(counts.other, u64::saturating_add);
        counts.passed = arrived.saturating_sub(counts.queued);
        counts.held = self.held();
        counts.credits = concurrency.credits(false).into();
        counts.write_pairs(out)?;
        match &self.deadlines {
            Some(deadlines) => deadlines.write(out),
            None => Ok(()),
        }
    }
}
