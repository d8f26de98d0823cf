// SPDX-License-Identifier: GPL-2.0-only

//! The agent of a service, an open file that sets factors ([`crate::sched::agent`]): whether there is one, and what became
//! of the lease of its factors.
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
//! Parts follow the lease by themselves. Here is who says so: counters, a tracepoint.

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
        atomic::{Counter, Word},
        misc, trace,
    },
};

/// The factors that were set last.
pub(crate) struct Grant {
    /// How long they are in force.
    pub(crate) lease: Shared<Lease>,
    /// The same, ms.
    pub(crate) lease_ms: u32,
    /// What their ids name.
    pub(crate) instance: u64,
    /// How many there are.
    pub(crate) count: usize,
}

/// Factors that are not all one yet.
struct Watched {
    grant: Grant,
    /// Steps of their return to one that were seen.
    step: u32,
}

/// The agent of one service.
#[pin_data]
pub(crate) struct Agent {
    /// The name of the service.
    label: CString,
    /// 1: an open file is bound.
    bound: Word,
    written: Counter,
    stale: Counter,
    lapsed: Counter,
    #[pin]
    watched: Mutex<Option<Watched>>,
}

/// What was counted.
pub(crate) struct Counted {
    /// Writes of factors.
    pub(crate) written: u64,
    /// Writes that were refused because they were for another instance.
    pub(crate) stale: u64,
    /// Leases that ended without renewal.
    pub(crate) lapsed: u64,
}

impl Agent {
    /// No agent, of the service `label`.
    pub(crate) fn new(label: CString) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                label,
                bound: Word::new(0),
                written: Counter::new(),
                stale: Counter::new(),
                lapsed: Counter::new(),
                watched <- new_mutex!(None, "nrs_agent"),
            }),
            GFP_KERNEL,
        )
    }

    /// Binds an open file; returns whether none was bound.
    pub(crate) fn bind(&self) -> bool {
        self.bound.replace(0, 1)
    }

    /// Unbinds the file that was bound; its lease ends at `now`, ns.
    pub(crate) fn unbind(&self, now: u64) {
        if let Some(watched) = &*self.watched.lock() {
            watched.grant.lease.end(now);
        }
        self.look(now);
        self.bound.set(0);
    }

    /// Counts a write that was for another instance.
    pub(crate) fn refused(&self) {
        self.stale.count(1);
    }

    /// Has `write` put the factors of the grant that it returns in force in place of those before. Whether these had lapsed
    /// is decided first: a lease that lasts then does not end meanwhile.
    ///
    /// # Errors
    ///
    /// That of `write`; the lease before goes on.
    pub(crate) fn renew<E>(
        &self,
        write: impl FnOnce() -> core::result::Result<Grant, E>,
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

    /// Drops factors that have no longer the lease `lease`: the parts that they were of have gone.
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

    /// Looks at how far factors have returned to one by `now`, ns.
    pub(crate) fn look(&self, now: u64) {
        self.look_at(&mut self.watched.lock(), now);
    }

    fn look_at(&self, place: &mut Option<Watched>, now: u64) {
        let Some(watched) = place else {
            return;
        };
        let step = watched.grant.lease.steps(now);
        // Who read the clock first may come last.
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

    /// Returns what was counted, until `now`, ns.
    pub(crate) fn counted(&self, now: u64) -> Counted {
        self.look(now);
        Counted {
            written: self.written.get(),
            stale: self.stale.get(),
            lapsed: self.lapsed.get(),
        }
    }

    /// Tells the tracepoint of a step of factors.
    fn tell(&self, grant: &Grant, step: u32) {
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
