// SPDX-License-Identifier: GPL-2.0-only

//! Output of the state of a service.

use core::fmt;

use kernel::prelude::*;

use super::{errno, major_minor, Service};
use crate::{
    engine::{client_list::ClientRoster, target::Target},
    sched::{
        health::{self, HealthLimits},
        key::escape,
        policy::Part,
        service::{each_part, policies},
        slots::Slots,
        statistics::{ServiceCounts, Stats, TargetCounts},
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

    /// Writes the slots, the counters of each client and the state of each target in YAML.
    pub(crate) fn write_clients(&self, out: &mut dyn fmt::Write) -> Result {
        self.clients
            .with(|clients| self.write_clients_to(clients, out))
            .map_err(|_| ENOSPC)
    }

    fn write_clients_to(&self, clients: &ClientRoster, out: &mut dyn fmt::Write) -> fmt::Result {
        let sum = |number: fn(&Target) -> u32| {
            let targets = self.partitions.targets();
            targets.fold(0u32, |sum, target| sum.saturating_add(number(target)))
        };
        let limit = match sum(Target::limit) {
            // There are no clients yet.
            0 => self.dispatch.slots().count(),
            limit => limit,
        };
        let factors = self.agent.counted(misc::now());
        let counts = ServiceCounts {
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
        };
        out.write_str("service: { ")?;
        counts.write_pairs(out)?;
        out.write_str(" }\nclients:\n")?;
        for client in clients.iter() {
            out.write_str("- client: \"")?;
            escape(client.name().to_bytes(), out)?;
            out.write_str("\"\n  counters: { ")?;
            client.write(&self.concurrency, out)?;
            out.write_str(" }\n")?;
        }
        out.write_str("targets:\n")?;
        for target in self.partitions.targets() {
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
            write!(out, "- target: \"{major}:{minor}\"\n  counters: {{ ")?;
            counts.write_pairs(out)?;
            out.write_str(" }\n")?;
        }
        Ok(())
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

    /// Writes the health of the service, and the values on which the judgement is based.
    pub(crate) fn write_health(&self, out: &mut dyn fmt::Write) -> Result {
        let seen = self.partitions.iter().map(|partition| partition.seen());
        let limits = HealthLimits::new(self.timeouts.terms().max, self.dispatch.unhealthy_factor());
        write!(out, "{}", health::judge(seen, limits, misc::now())).map_err(|_| ENOSPC)
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
