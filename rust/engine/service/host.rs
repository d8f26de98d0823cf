// SPDX-License-Identifier: GPL-2.0-only

//! A service as seen by its policies.

use super::Service;
use crate::{
    engine::refusal::{self, RefusedError},
    sched::{
        error,
        policy::{
            control::{Host, OverseerContext, Parameters, Parts, RefusalReason, RunningPart},
            AnyOverseer, Kept, Kind, Part, ROWS,
        },
    },
    sys::{misc, node::Held},
};

impl Parts for Service {
    type Item = Held;

    fn now(&self) -> u64 {
        misc::now()
    }

    fn running(&self) -> impl Iterator<Item = impl RunningPart<Item = Held>> {
        self.partitions.running()
    }
}

impl RefusalReason for RefusedError {
    fn reason(&self) -> Option<error::Error> {
        self.reason
    }
}

impl Host for Service {
    type Refusal = RefusedError;

    fn parameters(&self) -> Parameters {
        self.settings.lock().parameters.clone()
    }

    fn note(&self, f: impl FnOnce(&mut Kept)) {
        f(&mut self.settings.lock().parameters.kept);
    }

    fn change(&self, f: impl FnOnce(&mut Parameters) -> error::Result) -> refusal::Result {
        self.change_settings(&mut self.settings.lock(), f)
    }

    fn can_restart(&self, kind: Kind) -> bool {
        self.can_restart_with(&self.settings.lock(), kind)
    }

    fn cpts(&self) -> u16 {
        self.cpts
    }

    fn oversee<R>(&self, f: impl FnOnce(Option<&mut AnyOverseer>, &dyn OverseerContext) -> R) -> R {
        self.overseer.show(f)
    }

    fn reset(&self, kind: Kind) {
        self.partitions.each_part(|part, from| {
            if part.kind() == kind {
                part.reset(from, ROWS as u32)
            } else {
                None
            }
        });
    }
}
