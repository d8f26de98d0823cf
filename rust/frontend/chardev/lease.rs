// SPDX-License-Identifier: GPL-2.0-only

//! The clock of a session's leases.

use kernel::{
    prelude::*,
    sync::{
        atomic::{ordering, Atomic},
        Arc,
    },
};

use super::session::Session;
use crate::{
    sched::units::{NSEC_PER_MSEC, NSEC_PER_SEC},
    sys::{
        misc,
        timer::{Expire, Timed},
    },
};

/// Longest time between two rounds, ns.
const ROUND_MAX: u64 = NSEC_PER_SEC;

/// Time between two parts of a round, ns. However many requests there are, a file has at most a thousand
/// interrupts a second.
const PAUSE: u64 = NSEC_PER_MSEC;

/// Looks a few times per lease for those that are over.
#[pin_data]
pub(crate) struct Lease {
    session: Arc<Session>,
    /// Cookie at which the round goes on.
    from: Atomic<u64>,
}

impl Lease {
    /// A clock for `session`, if its terms have a lease; it ticks until it is dropped, which must be
    /// before the session's client goes.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn start(session: &Arc<Session>) -> Result<Option<Arc<Timed<Self>>>> {
        if session.terms().lease_ns == 0 {
            return Ok(None);
        }
        let session = session.clone();
        let lease = Arc::pin_init(
            Timed::new(pin_init!(Self {
                session,
                from: Atomic::new(0),
            })),
            GFP_KERNEL_ACCOUNT,
        )?;
        lease.arm(misc::now().saturating_add(lease.round()));
        Ok(Some(lease))
    }

    /// Time between two rounds, ns: a quarter of the lease.
    fn round(&self) -> u64 {
        (self.session.terms().lease_ns >> 2).clamp(NSEC_PER_MSEC, ROUND_MAX)
    }
}

impl Expire for Lease {
    fn expired(timed: &Timed<Self>) {
        let now = misc::now();
        let next = timed
            .session
            .reclaim(timed.from.load(ordering::Relaxed), now);
        timed.from.store(next.unwrap_or(0), ordering::Relaxed);
        let pause = if next.is_some() { PAUSE } else { timed.round() };
        timed.arm(now.saturating_add(pause));
    }
}
