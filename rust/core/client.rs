// SPDX-License-Identifier: GPL-2.0-only

//! A front-end's device as its service sees it: who it is and what it did.

use core::fmt;

use kernel::{prelude::*, str::CString, sync::Arc};

pub(crate) mod deadlines;
pub(crate) mod herald;

use self::{deadlines::Deadlines, herald::Herald};
use super::{concurrency::Concurrency, partitions::Partitions, target::Target, timeouts::Timeouts};
use crate::{
    sched::{attr::Opcode, item::Cost},
    sys::{
        atomic::{Counter, Word},
        timer::Timed,
    },
};

/// Names of the operations that are counted, in the order of their counters.
const OPERATIONS: [&str; 4] = ["ost_read", "ost_write", "ost_punch", "ost_sync"];

/// A front-end's device.
pub(crate) struct Client {
    /// What people call it.
    name: CString,
    /// `major:minor` of the device; the name of a client that is none.
    device: CString,
    /// Tells clients of one service apart.
    serial: u32,
    /// Requests that were queued.
    queued: Counter,
    /// Requests that have ended.
    ended: Counter,
    /// Of these, those with an error.
    failed: Counter,
    /// Bytes of the requests that have ended.
    bytes: Counter,
    /// Requests that could not be withheld: the system needed them to make progress, or the device was
    /// about to be suspended.
    forced: Counter,
    /// Requests of kernel threads: nobody knows for whom they work.
    anonymous: Counter,
    /// Requests by operation: reads, writes, punches, flushes.
    operations: [Counter; 4],
    /// Requests by another operation than these.
    others: Counter,
    /// Requests that are queued now.
    held: Arc<Word>,
    /// Where it counts as active while it has some.
    concurrency: Option<Arc<Concurrency>>,
    /// What it waits for at its device, if that is a block device.
    deadlines: Option<Arc<Timed<Deadlines>>>,
}

impl Client {
    /// A client named `name`, which is the block device `device` (`major:minor`), or else has its name there; with `concurrency`
    /// it is active there while it has requests queued.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
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
            queued: Counter::new(),
            ended: Counter::new(),
            failed: Counter::new(),
            bytes: Counter::new(),
            forced: Counter::new(),
            anonymous: Counter::new(),
            operations: [const { Counter::new() }; 4],
            others: Counter::new(),
            held: Arc::new(Word::new(0), GFP_KERNEL)?,
            concurrency,
            deadlines: None,
        })
    }

    /// The same as a client of `service`, queued in `partitions`, that waits for `target` as long as `timeouts`
    /// say.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
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

    /// Requests that went down without waiting, or are about to be queued; flushes are not accounted.
    fn passed(&self) -> u64 {
        let queued = self.queued.get();
        let [transfers @ .., _flushes] = &self.operations;
        let arrived = transfers.iter().fold(self.others.get(), |sum, counter| {
            sum.saturating_add(counter.get())
        });
        arrived.saturating_sub(queued)
    }

    /// Counts a request that is queued from now on.
    pub(crate) fn count_queued(&self) {
        self.queued.count(1);
        if self.held.add(1) == 0 {
            if let Some(concurrency) = &self.concurrency {
                concurrency.enter();
            }
        }
    }

    /// Counts a queued request that goes down.
    pub(crate) fn count_submitted(&self) {
        if self.held.sub(1) == 1 {
            if let Some(concurrency) = &self.concurrency {
                concurrency.leave();
            }
        }
    }

    /// Counts a request that must not wait.
    pub(crate) fn count_forced(&self) {
        self.forced.count(1);
    }

    /// Counts a request without a known owner.
    pub(crate) fn count_anonymous(&self) {
        self.anonymous.count(1);
    }

    /// Counts a request by its operation, if that is one a device has.
    pub(crate) fn count_operation(&self, opcode: Opcode) {
        let [read, write, punch, sync] = &self.operations;
        match opcode {
            Opcode::OST_READ => read.count(1),
            Opcode::OST_WRITE => write.count(1),
            Opcode::OST_PUNCH => punch.count(1),
            Opcode::OST_SYNC => sync.count(1),
            _ => {}
        }
    }

    /// Counts a request of a front-end whose flushes are requests like others.
    pub(crate) fn count_arrived(&self, opcode: Opcode) {
        match opcode {
            Opcode::OST_READ | Opcode::OST_WRITE | Opcode::OST_PUNCH => {
                self.count_operation(opcode);
            }
            _ => self.others.count(1),
        }
    }

    /// Counts the end of a request.
    pub(crate) fn count_ended(&self, cost: Cost, failed: bool) {
        self.ended.count(1);
        self.bytes.count(cost.bytes);
        if failed {
            self.failed.count(1);
        }
    }

    /// Counts a request that fails because the client is lost, before anything was done with it.
    pub(crate) fn count_refused(&self) {
        self.ended.count(1);
        self.failed.count(1);
    }

    /// Writes the counters as `name: value` pairs on one line.
    pub(crate) fn write(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        write!(
            out,
            "passed: {}, queued: {}, held: {}, ended: {}, failed: {}, bytes: {}, forced: {}, anonymous: {}",
            self.passed(),
            self.queued.get(),
            self.held(),
            self.ended.get(),
            self.failed.get(),
            self.bytes.get(),
            self.forced.get(),
            self.anonymous.get(),
        )?;
        for (name, counter) in OPERATIONS.iter().zip(&self.operations) {
            write!(out, ", {name}: {}", counter.get())?;
        }
        write!(out, ", other: {}", self.others.get())?;
        match &self.deadlines {
            Some(deadlines) => deadlines.write(out),
            None => Ok(()),
        }
    }
}
