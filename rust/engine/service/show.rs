// SPDX-License-Identifier: GPL-2.0-only

//! Output of the state of a service.

use core::fmt;

use kernel::prelude::*;

use super::{errno, major_minor, Service};
use crate::{
    engine::{client_list::ClientRoster, target::Target},
    sched::{
        health::{self, Health, HealthLimits, PartitionHealth},
        key::escape,
        policy::Part,
        report::Report,
        service::{each_part, policies},
        slots::Slots,
        statistics::{ServiceCounts, TargetCounts},
    },
    sys::misc,
};

impl Service {
    /// Writes `nrs_policies`.
    pub(crate) fn write_policies(&self, out: &mut dyn fmt::Write) -> Result {
        let settings = self.settings.lock();
        policies::write_policies(self, settings.primaries(), out).map_err(errno)
    }

    /// Writes the policy of the regular head and its argument. Takes no mutex.
    #[cfg(feature = "elevator")]
    pub(crate) fn write_policy(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        use crate::sched::{attr::Priority, policy::Kind};

        let mut partitions = self.partitions.iter();
        let first = partitions.next();
        let Some(config) = first.and_then(|partition| {
            partition.with(|inner| inner.tag(Priority::Regular, None).copied())
        }) else {
            return out.write_str(Kind::FALLBACK.name());
        };
        out.write_str(config.kind().name())?;
        match config.argument() {
            Some(argument) => write!(out, " {argument}"),
            None => Ok(()),
        }
    }

    /// Reports `nrs_policies`.
    pub(crate) fn report_policies(&self, report: &mut Report<'_>) -> Result {
        let settings = self.settings.lock();
        policies::report_policies(self, settings.primaries(), report).map_err(errno)
    }

    /// Reports the slots, the counters of each client and the state of each target.
    pub(crate) fn report_clients(&self, report: &mut Report<'_>) -> Result {
        let write = |clients: &mut ClientRoster| {
            report.map(|map| {
                map.inline("service", |map| map.stats(&self.counts(), &[]))?;
                map.entries("clients", |list| {
                    clients.iter().try_for_each(|client| {
                        list.entry(|entry| {
                            entry.name("client", client.name().to_bytes())?;
                            entry.inline("counters", |map| client.report(&self.concurrency, map))
                        })
                    })
                })?;
                map.entries("targets", |list| {
                    let mut targets = self.partitions.targets();
                    targets.try_for_each(|target| list.entry(|entry| report_target(target, entry)))
                })
            })
        };
        self.clients.with(write).map_err(|_| ENOSPC)
    }

    /// Returns the numbers of the service.
    fn counts(&self) -> ServiceCounts {
        let sum = |number: fn(&Target) -> u32| {
            let targets = self.partitions.targets();
            targets.fold(0u32, |sum, target| sum.saturating_add(number(target)))
        };
        let limit = match sum(Target::limit) {
            // There are no clients yet.
            0 => self.dispatch.slots().count(),
            limit => limit,
        };
        let factors = self.agent.counters();
        ServiceCounts {
            slots: match self.dispatch.slots() {
                Slots::Auto => limit.into(),
                slots => slots.count().into(),
            },
            limit: limit.into(),
            active: sum(|target| target.pool().active()).into(),
            overflow: self.overflow(),
            no_memory: self.ticker.worker().failures(),
            stalls: self.ticker.worker().progress().stalls(),
            factors_written: factors.written,
            factors_stale: factors.stale,
            factors_lapsed: factors.lapsed,
        }
    }

    /// Writes the timeout of each client's device.
    pub(crate) fn write_client_timeouts(&self, out: &mut dyn fmt::Write) -> Result {
        let write = |clients: &ClientRoster, out: &mut dyn fmt::Write| -> fmt::Result {
            for client in clients.iter() {
                out.write_str("client: ")?;
                escape(client.name().to_bytes(), out)?;
                out.write_char('\n')?;
                if let Some(deadlines) = client.deadlines() {
                    deadlines.write_timeouts(out)?;
                }
            }
            Ok(())
        };
        self.clients
            .with(|clients| write(clients, out))
            .map_err(|_| ENOSPC)
    }

    /// Returns the health of the service, and the values on which the judgement is based.
    pub(crate) fn health(&self) -> Health {
        let mut seen = self.partitions.iter().map(|partition| partition.seen());
        let seen: &mut dyn Iterator<Item = PartitionHealth> = &mut seen;
        let limits = HealthLimits::new(self.timeouts.terms().max, self.dispatch.unhealthy_factor());
        health::judge(seen, limits, misc::now())
    }

    /// Returns the number of requests that found no class of their own.
    fn overflow(&self) -> u64 {
        let mut sum = 0u64;
        each_part(self.partitions.heads(), |part, _| {
            sum = sum.saturating_add(part.overflow());
            None
        });
        sum
    }
}

/// Reports a target as an element of a list.
fn report_target(target: &Target, entry: &mut Report<'_>) -> fmt::Result {
    let (major, minor) = major_minor(target.number());
    let found = target.found();
    let counts = TargetCounts {
        users: target.users().into(),
        limit: target.limit().into(),
        active: target.active().into(),
        knee: found.slots.into(),
        searching: found.searching.into(),
        knee_rate: found.requests,
        knee_bytes: found.bytes,
    };
    entry.text("target", format_args!("{major}:{minor}"))?;
    entry.inline("counters", |map| map.stats(&counts, &[]))
}
