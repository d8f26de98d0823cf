// SPDX-License-Identifier: GPL-2.0-only

//! Access of an agent to a service ([`crate::sched::agent`]).

use core::fmt;

use kernel::{prelude::*, sync::Arc};

use super::{errno, Service};
use crate::{
    engine::refusal::{self, RefusedError},
    sched::agent::{
        reading::{self, Changes, LastReading, Reading},
        FactorPairs,
    },
    sys::misc,
};

/// Header of the accounts for an agent.
pub(crate) struct AccountsHeader {
    /// Instance whose ids the accounts use.
    pub(crate) instance: u64,
    /// Time at which the accounts were read, monotonic ns.
    pub(crate) time_ns: u64,
    /// Hash of the parameters that must be equal on all servers.
    pub(crate) terms: u64,
}

/// An open file as the only agent of a service. When this is dropped, the factors return to one.
pub(crate) struct Binding {
    service: Arc<Service>,
    last: LastReading,
}

impl Binding {
    /// Binds an agent to `service`.
    ///
    /// # Errors
    ///
    /// `EBUSY`: another file is bound.
    pub(crate) fn new(service: Arc<Service>) -> refusal::Result<Self> {
        if !service.agent.bind() {
            return Err(RefusedError::because(
                EBUSY,
                "another file is bound to the service",
            ));
        }
        Ok(Self {
            service,
            last: LastReading::new(),
        })
    }

    /// Returns the service.
    pub(crate) fn service(&self) -> &Arc<Service> {
        &self.service
    }

    /// Resets the record of reported accounts, as if the agent had just bound.
    pub(crate) fn restart(&mut self) {
        self.last = LastReading::new();
    }

    /// Passes the accounts that changed since the last call, or `all`, to `write`; they count as
    /// reported if `write` succeeds.
    pub(crate) fn accounts<R>(
        &mut self,
        all: bool,
        write: impl FnOnce(&AccountsHeader, Changes<'_>) -> Result<R>,
    ) -> Result<R> {
        let (before, runs) = self.service.instance();
        let mut reading = Reading::new();
        if runs {
            reading = Reading::of(&*self.service).map_err(|_| ENOMEM)?;
        }
        let time_ns = misc::now();
        let (instance, _) = self.service.instance();
        if instance != before {
            // Some accounts are of parts that were removed; the next call reports the new ones.
            reading = Reading::new();
        }
        let head = AccountsHeader {
            instance,
            time_ns,
            terms: reading.terms(),
        };
        let written = write(&head, self.last.changes(instance, &reading, all))?;
        self.last.record(instance, reading);
        Ok(written)
    }
}

impl Drop for Binding {
    fn drop(&mut self) {
        self.service.agent.with(|agent| agent.unbind(misc::now()));
    }
}

impl Service {
    /// Returns the current instance of ids, and true if parts run whose factors can be set.
    fn instance(&self) -> (u64, bool) {
        self.settings.lock().instance(self)
    }

    /// Writes level and key of each known id in `ids`.
    pub(crate) fn write_names(
        &self,
        ids: impl Iterator<Item = u64>,
        out: &mut dyn fmt::Write,
    ) -> Result {
        reading::write_names(self, ids, out).map_err(errno)
    }

    /// Replaces the factors of `instance` by `pairs`, in force for `lease_ms` unless replaced
    /// earlier.
    ///
    /// # Errors
    ///
    /// As for [`ServiceSettings::set_factors`](crate::sched::service::ServiceSettings).
    pub(crate) fn set_factors(
        &self,
        instance: u64,
        lease_ms: u32,
        pairs: FactorPairs,
    ) -> refusal::Result {
        let mut settings = self.settings.lock();
        Ok(settings.set_factors(self, instance, lease_ms, pairs)?)
    }
}
