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
//! Parts follow the lease by themselves. This module reports the state by counters and a
//! tracepoint.

use kernel::{
    new_mutex,
    prelude::*,
    str::CString,
    sync::{Arc, Mutex},
};

use crate::{
    sched::{
        agent::{Lease, STEPS},
        mem::Shared,
    },
    sys::{
        atomic::{AtomicWord, Counter},
        misc, trace,
    },
};

/// The factors that were set last.
pub(crate) struct FactorSet {
    /// Lease of the factors.
    pub(crate) lease: Shared<Lease>,
    /// Duration of the lease, ms.
    pub(crate) lease_ms: u32,
    /// Instance whose ids the factors use.
    pub(crate) instance: u64,
    /// Number of factors.
    pub(crate) count: usize,
}

/// Factors that have not all returned to one.
struct Watched {
    grant: FactorSet,
    /// Steps of their return to one that were reported.
    step: u32,
}

/// The agent of one service.
#[pin_data]
pub(crate) struct Agent {
    /// The name of the service.
    label: CString,
    /// 1: an open file is bound.
    bound: AtomicWord,
    written: Counter,
    stale: Counter,
    lapsed: Counter,
    #[pin]
    watched: Mutex<Option<Watched>>,
}

/// Counters of an agent.
pub(crate) struct AgentCounters {
    /// Writes of factors.
    pub(crate) written: u64,
    /// Writes that were refused because they were for another instance.
    pub(crate) stale: u64,
    /// Leases that ended without renewal.
    pub(crate) lapsed: u64,
}

impl Agent {
    /// Creates the state of the service `label` without an agent.
    pub(crate) fn new(label: CString) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                label,
                bound: AtomicWord::new(0),
                written: Counter::new(),
                stale: Counter::new(),
                lapsed: Counter::new(),
                watched <- new_mutex!(None, "nrs_agent"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Binds an open file; returns true if no file was bound before.
    pub(crate) fn bind(&self) -> bool {
        self.bound.replace(0, 1)
    }

    /// Unbinds the bound file; its lease ends at `now`, ns.
    pub(crate) fn unbind(&self, now: u64) {
        if let Some(watched) = &*self.watched.lock() {
            watched.grant.lease.end(now);
        }
        self.look(now);
        self.bound.set(0);
    }

    /// Counts a write for another instance.
    pub(crate) fn refused(&self) {
        self.stale.count(1);
    }

    /// Replaces the factors in force by the factor set that `write` returns. The lapse of the
    /// previous lease is decided first: a lease in force then does not end meanwhile.
    ///
    /// # Errors
    ///
    /// Any error of `write`; the previous lease continues.
    pub(crate) fn renew<E>(
        &self,
        write: impl FnOnce() -> core::result::Result<FactorSet, E>,
    ) -> core::result::Result<(), E> {
        let held = {
            let mut place = self.watched.lock();
            let now = misc::now();
            self.look_at(&mut place, now);
            place.as_ref().and_then(|watched| {
                let lease = &watched.grant.lease;
                Some((lease.clone(), lease.hold(now)?))
            })
        };
        let grant = write().inspect_err(|_| {
            if let Some((lease, until)) = &held {
                lease.resume(*until);
            }
        })?;
        self.written.count(1);
        let old = {
            let mut place = self.watched.lock();
            self.tell(&grant, 0);
            place.replace(Watched { grant, step: 0 })
        };
        // Dropped without the lock.
        drop(old);
        Ok(())
    }

    /// Drops factors whose lease is not `lease`: their parts have been removed.
    pub(crate) fn follow(&self, lease: Option<&Shared<Lease>>) {
        let gone = {
            let mut watched = self.watched.lock();
            let same = |one: &Watched| lease.is_some_and(|own| own.ptr_eq(&one.grant.lease));
            if watched.as_ref().is_some_and(|one| !same(one)) {
                watched.take()
            } else {
                None
            }
        };
        if let Some(gone) = gone {
            gone.grant.lease.void();
            self.tell(&gone.grant, STEPS);
        }
    }

    /// Reports the return of factors to one until `now`, ns.
    pub(crate) fn look(&self, now: u64) {
        self.look_at(&mut self.watched.lock(), now);
    }

    fn look_at(&self, place: &mut Option<Watched>, now: u64) {
        let Some(watched) = place else {
            return;
        };
        let step = watched.grant.lease.steps(now);
        // The caller that read the clock first may come last.
        if step <= watched.step {
            return;
        }
        if watched.step == 0 {
            self.lapsed.count(1);
        }
        watched.step = step;
        self.tell(&watched.grant, step);
        if step >= STEPS {
            *place = None;
        }
    }

    /// Returns the counters as of `now`, ns.
    pub(crate) fn counted(&self, now: u64) -> AgentCounters {
        self.look(now);
        AgentCounters {
            written: self.written.get(),
            stale: self.stale.get(),
            lapsed: self.lapsed.get(),
        }
    }

    /// Emits the tracepoint for a step of factors.
    fn tell(&self, grant: &FactorSet, step: u32) {
        if trace::Factors::is_on() {
            let event = trace::Factors {
                service: self.label.to_str().unwrap_or(""),
                instance: grant.instance,
                factors: grant.count as u64,
                lease_ms: grant.lease_ms.into(),
                step,
            };
            event.tell();
        }
    }
}
