// SPDX-License-Identifier: GPL-2.0-only

//! The kernel as the host of a service.

use kernel::prelude::*;

use super::{order::records_each, Service};
use crate::{
    engine::{refusal::RefusedError, target_parameters::ClientKind},
    sched::{
        attr::Priority,
        error::{self, Code},
        mem::Shared,
        owners::Owners,
        parameters::{service::EnforceCredits, Values},
        policy::{
            control::{OverseerContext, RefusalReason},
            AnyOverseer, Config, Kind,
        },
        service::{
            agent::{AgentState, FactorState},
            HeadAccess, Primaries, ServiceHost, ServiceParts, ServiceSettings,
        },
    },
    sys::{misc, node::Held, trace},
};

impl RefusalReason for RefusedError {
    fn reason(&self) -> Option<error::Error> {
        self.reason
    }
}

impl ServiceParts for Service {
    type Item = Held;

    fn now(&self) -> u64 {
        misc::now()
    }

    fn heads(&self) -> impl Iterator<Item = impl HeadAccess<Item = Held>> {
        self.partitions.heads()
    }

    fn overseer<R>(
        &self,
        f: impl FnOnce(&mut Option<AnyOverseer>, &dyn OverseerContext) -> R,
    ) -> R {
        self.overseer.overseer(f)
    }
}

impl ServiceHost for Service {
    type Refusal = RefusedError;

    fn random(&self) -> u64 {
        misc::random()
    }

    fn seed(&self) -> u64 {
        self.seed
    }

    fn cpts(&self) -> u16 {
        self.cpts
    }

    fn settings<R>(&self, f: impl FnOnce(&mut ServiceSettings) -> R) -> R {
        f(&mut self.settings.lock())
    }

    fn agent(&self, f: impl FnOnce(&mut AgentState) -> Option<FactorState>) {
        self.agent.with(f);
    }

    fn is_driven(&self) -> bool {
        // A framework joins under the lock, after it has begun to use the service.
        self.users() > 0 && self.dispatch.has_kind(ClientKind::Framework)
    }

    fn set_records(&self, max: u32) -> error::Result {
        let each = records_each(max, self.cpts.into());
        let mut all = self.partitions.iter();
        let done = all.try_for_each(|partition| partition.set_records(each));
        done.map_err(|error| match error {
            EBUSY => error::Error::new(
                Code::Busy,
                "buffer_max can be raised only while no ordered requests exist",
            ),
            _ => error::Error::new(Code::NoMemory, "out of memory"),
        })
    }

    fn values_changed(&self, old: &Values, values: &Values) {
        let upkeep = values.policies.upkeep();
        self.ticker.set_delta(upkeep.delta_ms);
        self.ticker.worker().set_by_shares(upkeep.by_shares);
        self.dispatch.apply(&values.service);
        let enforced = values.service.enforce_credits == EnforceCredits::On;
        self.concurrency.enforce(enforced);
        // Wakes all that wait for records.
        if values.service.buffer_max != old.service.buffer_max {
            let max = values.service.buffer_max.get();
            self.concurrency.set_buffer_max(max);
        }
        self.follow_terms(&values.timeouts);
        self.share_out(values.service.slots);
    }

    fn owners_changed(&self, owners: &Shared<Owners>) {
        self.dispatch.set_owners(owners);
    }

    fn primaries_changed(&self, old: &Primaries, new: &Primaries) {
        if trace::Policy::is_on() {
            self.trace_change(old, new);
        }
        self.dispatch.serve(new.iter().flatten());
        self.ticker.set_beat(self.overseer.is_running());
    }

    fn retry_decisions(&self) {
        self.ticker.worker().kick();
        self.partitions.run_all();
    }
}

impl Service {
    /// Emits the tracepoint for each head whose configuration changes.
    #[cold]
    fn trace_change(&self, old: &Primaries, new: &Primaries) {
        let name = |config: &Option<Config>| {
            let kind = config.as_ref().map_or(Kind::FALLBACK, Config::kind);
            kind.name()
        };
        for (priority, (old, new)) in Priority::ALL.into_iter().zip(old.iter().zip(new)) {
            if old != new {
                let event = trace::Policy {
                    service: trace::text(Some(&self.name())),
                    old: trace::text(Some(&name(old))),
                    new: trace::text(Some(&name(new))),
                    argument: trace::text(new.as_ref().and_then(Config::argument)),
                    high: trace::is_high(priority),
                };
                event.emit();
            }
        }
    }
}
