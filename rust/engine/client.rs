// SPDX-License-Identifier: GPL-2.0-only

//! A client of a service: identity and counters of a block device, a program or a kernel module.

use core::fmt;

use kernel::{prelude::*, str::CString, sync::Arc};

pub(crate) mod deadlines;
pub(crate) mod load;
pub(crate) mod notify;

use self::{deadlines::Deadlines, load::ClientLoad, notify::ClientNotifier};
use super::{concurrency::Concurrency, partitions::Partitions, target::Target, timeouts::Timeouts};
use crate::{sched::report::Report, sys::timer::WithTimer};

/// A block device, a program or a kernel module that submits requests to a service.
pub(crate) struct Client {
    /// Name shown to users.
    name: CString,
    /// `major:minor` of the device; the client's name if the client is no device.
    device: CString,
    /// Number that distinguishes the clients of one service.
    serial: u32,
    /// Index of the target of the client's requests.
    target: u16,
    load: ClientLoad,
    /// Deadlines of the requests in flight, if the client is a block device.
    deadlines: Option<Arc<WithTimer<Deadlines>>>,
}

impl Client {
    /// Creates a client named `name`; `device` is its block device (`major:minor`), or else the
    /// name again, and `target` the index of its target. With `concurrency`, the client counts as
    /// active there while it has queued requests.
    pub(crate) fn new(
        name: CString,
        device: CString,
        serial: u32,
        target: u16,
        concurrency: Option<Arc<Concurrency>>,
    ) -> Result<Self> {
        Ok(Self {
            name,
            device,
            serial,
            target,
            load: ClientLoad::new(concurrency)?,
            deadlines: None,
        })
    }

    /// Adds deadlines by `timeouts` for requests to `target`; the client belongs to `service` and
    /// queues in `partitions`.
    pub(crate) fn with_deadlines(
        mut self,
        target: Arc<Target>,
        timeouts: Arc<Timeouts>,
        service: &CStr,
        partitions: Arc<Partitions>,
    ) -> Result<Self> {
        let notifier = ClientNotifier::new(&self.name, service, partitions, target.index())?;
        let held = self.load.held.clone();
        self.deadlines = Some(Deadlines::new(timeouts, target, held, notifier)?);
        Ok(self)
    }

    /// Returns the deadlines of the requests in flight, if the client is a block device.
    pub(crate) fn deadlines(&self) -> Option<&Arc<WithTimer<Deadlines>>> {
        self.deadlines.as_ref()
    }

    /// Returns the index of the target of the client's requests.
    pub(crate) fn target(&self) -> u16 {
        self.target
    }

    /// Returns the name of the client.
    pub(crate) fn name(&self) -> &CStr {
        &self.name
    }

    /// Returns `major:minor` of the device, or the client's name if the client is no device.
    pub(crate) fn device(&self) -> &CStr {
        &self.device
    }

    /// Returns the number that distinguishes the clients of one service.
    pub(crate) fn serial(&self) -> u32 {
        self.serial
    }

    /// Returns the counters of the client's requests, and the limit on the queued ones.
    #[inline]
    pub(crate) fn load(&self) -> &ClientLoad {
        &self.load
    }

    /// Reports the counters, and the credits by `concurrency`.
    pub(crate) fn report(&self, concurrency: &Concurrency, map: &mut Report<'_>) -> fmt::Result {
        map.stats(&self.load.counts(concurrency), &[])?;
        match &self.deadlines {
            Some(deadlines) => deadlines.report(map),
            None => Ok(()),
        }
    }
}
