// SPDX-License-Identifier: GPL-2.0-only

//! The agent of a service, an open file that sets factors ([`crate::sched::agent`]): its presence,
//! and the state of the lease of its factors.
//!
//! ```text
//!            bind               set                renewed
//!   no agent ────▶ agent, no factors ────▶ factors in force ◀──┐
//!                                           │  │   └───────────┘
//!                  another instance: at once│  │ the lease lapses, the file is closed
//!                                           ▼  ▼
//!                                     factors of one ◀── ten steps
//! ```
//!
//! Parts follow the lease by themselves. This module counts, and returns each step to be traced.

use super::{ServiceHost, ServiceSettings};
use crate::sched::{
    agent::{self, FactorPairs, Lease, STEPS},
    count::Count,
    error::{Code, Error, Result},
    mem::Shared,
};

/// Error for an agent that sets factors of parts that were removed.
const STALE: Error = Error::new(
    Code::Stale,
    "factors are for another instance of the policy; read the accounts again",
);

/// Counters of an agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgentCounters {
    /// Writes of factors.
    pub written: u64,
    /// Writes that were refused because they were for another instance.
    pub stale: u64,
    /// Leases that ended without renewal.
    pub lapsed: u64,
}

/// State of the factors that were set last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FactorState {
    /// Instance whose ids the factors use.
    pub instance: u64,
    /// Number of factors.
    pub count: usize,
    /// Duration of the lease, ms.
    pub lease_ms: u32,
    /// Steps of the return to one; 0: the lease is in force.
    pub step: u32,
}

/// Factors that have not all returned to one.
struct Granted {
    lease: Shared<Lease>,
    state: FactorState,
}

/// The agent of one service. Its lock follows that of the settings.
#[derive(Default)]
pub struct AgentState {
    /// True if an open file is bound.
    bound: bool,
    counters: AgentCounters,
    granted: Option<Granted>,
}

impl AgentState {
    /// Binds an open file; returns true if no file was bound before.
    pub fn bind(&mut self) -> bool {
        !core::mem::replace(&mut self.bound, true)
    }

    /// Unbinds the bound file; its lease ends at `now`, ns. Returns the step of the factors, if
    /// there are any.
    pub fn unbind(&mut self, now: u64) -> Option<FactorState> {
        self.bound = false;
        if let Some(granted) = &self.granted {
            granted.lease.end(now);
        }
        self.poll(now)
    }

    /// Returns the counters; [`Self::poll`] updates them.
    pub const fn counters(&self) -> AgentCounters {
        self.counters
    }

    /// Updates the state to `now`, ns. Returns the next step of the factors, if it is due.
    pub fn poll(&mut self, now: u64) -> Option<FactorState> {
        let granted = self.granted.as_mut()?;
        let step = granted.lease.steps(now);
        let state = &mut granted.state;
        // The caller that read the clock first may come last.
        if step <= state.step {
            return None;
        }
        let lapsed = u64::from(state.step == 0);
        self.counters.lapsed.count(lapsed);
        state.step = step;
        let state = *state;
        if step >= STEPS {
            self.granted = None;
        }
        Some(state)
    }

    /// Drops factors whose lease is not `lease`, because their parts have been removed. Returns the
    /// last step of these factors.
    pub fn retain(&mut self, lease: Option<&Shared<Lease>>) -> Option<FactorState> {
        let is_gone = |one: &mut Granted| lease.is_none_or(|lease| !lease.ptr_eq(&one.lease));
        let gone = self.granted.take_if(is_gone)?;
        gone.lease.void();
        Some(FactorState {
            step: STEPS,
            ..gone.state
        })
    }

    /// Extends the lease in force at `now`, ns, until its renewal succeeds or fails. Returns the
    /// lease with its end.
    fn extend(&self, now: u64) -> Option<(Shared<Lease>, u64)> {
        let lease = &self.granted.as_ref()?.lease;
        Some((lease.clone(), lease.suspend_expiry(now)?))
    }

    /// Records that factors with `lease` are in force.
    fn grant(&mut self, lease: Shared<Lease>, state: FactorState) {
        self.counters.written.count(1);
        self.granted = Some(Granted { lease, state });
    }
}

impl ServiceSettings {
    /// Returns the instance of ids of the service on `host`, and true if parts run whose factors
    /// can be set.
    pub fn instance(&self, host: &impl ServiceHost) -> (u64, bool) {
        let starts = self.parameters().kept.starts();
        let instance = agent::instance(host.seed(), starts.unwrap_or(0));
        (instance, starts.is_some())
    }

    /// Replaces the factors of `instance` by `pairs`, in force for `lease_ms` unless replaced
    /// earlier. A previous lease in force does not end meanwhile.
    ///
    /// # Errors
    ///
    /// Nothing is changed on error, and the previous lease continues.
    ///
    /// - `ESTALE`: `instance` is not current, or no part takes factors.
    /// - `ENODEV`: the service was replaced.
    /// - `ENOMEM`.
    pub fn set_factors(
        &mut self,
        host: &impl ServiceHost,
        instance: u64,
        lease_ms: u32,
        pairs: FactorPairs,
    ) -> Result {
        if self.instance(host) != (instance, true) {
            host.agent(|agent| {
                agent.counters.stale.count(1);
                None
            });
            return Err(STALE);
        }
        let lease = Shared::new(Lease::new(host.now(), lease_ms))?;
        let count = pairs.len();
        let mut extended = None;
        host.agent(|agent| {
            let now = host.now();
            let step = agent.poll(now);
            extended = agent.extend(now);
            step
        });
        let set = self.republish(host, |parameters| {
            Ok(parameters.kept.set_factors(pairs, &lease)?)
        });
        if set.is_err() {
            if let Some((lease, until)) = &extended {
                lease.resume(*until);
            }
            return set;
        }
        host.agent(|agent| {
            let state = FactorState {
                instance,
                count,
                lease_ms,
                step: 0,
            };
            agent.grant(lease, state);
            Some(state)
        });
        Ok(())
    }
}
