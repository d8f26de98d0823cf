// SPDX-License-Identifier: GPL-2.0-only

//! Admission of requests to a session.
//!
//! # Terms
//!
//! - *Room*: both the requests of a session and those of all programs of a service are limited.
//!
//! ```text
//!   request ──▶ checked ──▶ entered ──▶ arrive ──▶ record known ──▶ Ok
//!                  ▲           │           │
//!                  │           │ no room   │ no record left: removed again
//!                  └── wait ◀──┴───────────┘          (or EAGAIN)
//! ```
//!
//! # Order
//!
//! At level `graph`, a request can name predecessors only if their records are known, so one writer
//! at a time enters requests of a file. At other levels writers do not wait for each other.

use kernel::{prelude::*, sync::Arc};

use super::{
    early::StatedDeadline,
    table::{JoinOutcome, PredecessorCheck, PromoteAction, RemovalEvents},
    Session, SessionRequest,
};
use crate::{
    engine::arrival::{Arrival, ArrivalOutcome},
    frontend::chardev::{decode::Decoded, wire},
    sched::{
        attr::{Attrs, Priority},
        item::{ByteRange, Cost},
        key::{Field, Key},
        mem::{Need, NoMemory},
        order::{Relation, PREDECESSORS_MAX},
        parameters::service::Level,
        partition::admit::AdmissionOutcome,
        slab::Handle,
    },
    sys::{
        atomic::Hint,
        chardev::boxed::BoxedRequest,
        misc::{self, bug},
        node::NodeAccount,
    },
};

/// Number of attempts to get a record before a request waits for one.
const TRIES: u32 = 4;

/// A request to be admitted.
struct NewRequest {
    cookie: u64,
    predecessors: [u64; PREDECESSORS_MAX],
    /// Domain that all related requests share; `None`: the request is unrelated.
    domain: Option<u64>,
    attrs: Attrs,
    cost: Cost,
    level: Level,
    statement: StatedDeadline,
}

/// An admitted request.
struct EntryOutcome {
    joined: JoinOutcome,
    relation: Relation,
    /// True if the first unread early reply was added.
    reply_added: bool,
    /// True if the deadline had passed.
    over: bool,
}

/// Reason for refusing a request.
enum AdmitError {
    Error(Error),
    /// The session has no room.
    Full,
    /// The service has no room.
    Crowded,
    /// The end of a predecessor without a record has to be waited for here.
    Unrecorded,
    /// The table has no memory for the request.
    Memory,
}

impl Session {
    /// Accepts a request; waits for room unless `nonblocking`.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the record is malformed, or a predecessor is unknown or not allowed at this
    ///   level.
    /// - `EEXIST`: a request with this cookie has not been completed.
    /// - `EAGAIN`: no room, and `nonblocking`.
    /// - `ERESTARTSYS`: a signal arrived while waiting.
    pub(crate) fn request(self: &Arc<Self>, record: &wire::Request, nonblocking: bool) -> Result {
        let new = self.new_request(record)?;
        let mut waited = false;
        let result = self.bring(&new, nonblocking, &mut waited);
        if !matches!(result, Err(EAGAIN | ERESTARTSYS)) {
            // There was a record, or this request no longer waits for one though it may have called
            // `records_exhausted`.
            self.concurrency.fed();
        }
        if waited {
            self.wake_next();
        }
        result
    }

    /// Validates `record`, whose meaning depends on the ordering level of the service.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the record is malformed, or names a predecessor at a level other than `graph`.
    fn new_request(&self, record: &wire::Request) -> Result<NewRequest> {
        let Decoded { attrs, cost } = Decoded::of(record).ok_or(EINVAL)?;
        let level = self.service.dispatch().level();
        let related = record.predecessor.iter().any(|cookie| *cookie != 0);
        if related && level != Level::Graph {
            return Err(EINVAL);
        }
        let serial = self.client.serial();
        Ok(NewRequest {
            cookie: record.cookie,
            predecessors: record.predecessor,
            domain: match level {
                Level::Graph => Some(serial.into()),
                Level::Stream if record.stream != 0 => {
                    Some(self.service.domain_of(serial, record.stream))
                }
                _ => None,
            },
            attrs: Attrs {
                client: serial,
                ..attrs
            },
            cost,
            level,
            statement: StatedDeadline::of(record, self.service.timeouts()),
        })
    }

    /// Enters a request when there is room, and passes it to the engine; sets `waited` if it had to
    /// wait.
    fn bring(self: &Arc<Self>, new: &NewRequest, nonblocking: bool, waited: &mut bool) -> Result {
        let mut tries = 0u32;
        loop {
            let order = (new.level == Level::Graph).then(|| self.order.lock());
            let no = match self.enter(new) {
                Ok(entered) => {
                    let name = entered.joined.handle;
                    match self.hand_over(new, entered) {
                        Ok(true) => return Ok(()),
                        Ok(false) => {}
                        Err(error) => {
                            self.undo(name);
                            return Err(error);
                        }
                    }
                    self.undo(name);
                    // Records may be allocated now, or by another writer; if neither, all possible
                    // records are in use.
                    tries = tries.saturating_add(1);
                    if self.service.feed_order()? || tries < TRIES {
                        continue;
                    }
                    if tries == TRIES {
                        // After `records_exhausted` one more attempt: records that were freed
                        // without a wake-up are found then.
                        self.concurrency.records_exhausted();
                        continue;
                    }
                    tries = 0;
                    AdmitError::Crowded
                }
                Err(no) => no,
            };
            drop(order);
            match no {
                AdmitError::Error(error) => return Err(error),
                AdmitError::Memory => {
                    self.grow()?;
                    continue;
                }
                AdmitError::Crowded => self.counters.room_waits.count(1),
                AdmitError::Full | AdmitError::Unrecorded => {}
            }
            if nonblocking {
                return Err(EAGAIN);
            }
            *waited = true;
            match no {
                AdmitError::Crowded => self.concurrency.wait()?,
                _ => self.wait_for_end(new)?,
            }
        }
    }

    /// Allocates the memory of the table for one more request.
    fn grow(&self) -> Result {
        let need = self.inner.lock().need();
        let spare = need.allocate().map_err(|NoMemory| ENOMEM)?;
        let left = self.inner.lock().grow(spare);
        drop(left);
        Ok(())
    }

    /// Enters a request into the table.
    fn enter(&self, new: &NewRequest) -> Result<EntryOutcome, AdmitError> {
        let entered = {
            let mut inner = self.inner.lock();
            if inner.find(&new.cookie).is_some() {
                return Err(AdmitError::Error(EEXIST));
            }
            let relation = match (new.level, new.domain) {
                (Level::Graph, Some(domain)) => {
                    let home = self.service.home(&self.target, domain);
                    match inner.before(new.cookie, &new.predecessors, home) {
                        PredecessorCheck::Known(relation) => relation,
                        PredecessorCheck::Unrecorded => return Err(AdmitError::Unrecorded),
                        PredecessorCheck::Unknown => return Err(AdmitError::Error(EINVAL)),
                    }
                }
                (_, Some(domain)) => Relation::sequence(domain),
                (_, None) => Relation::Free,
            };
            if inner.live >= self.terms.limit {
                return Err(AdmitError::Full);
            }
            if !inner.need().is_empty() {
                return Err(AdmitError::Memory);
            }
            if !self.concurrency.begin() {
                return Err(AdmitError::Crowded);
            }
            let peer = Key::of(Field::Nid, &new.attrs);
            let high = new.attrs.priority == Priority::High;
            let Some(joined) = inner.enter(new.cookie, peer, high) else {
                // Memory was checked above.
                bug!();
                return Err(AdmitError::Error(ENOMEM));
            };
            let (reply_added, over) = inner.state(joined.handle.idx(), &new.statement);
            self.set_timer(&mut inner);
            EntryOutcome {
                joined,
                relation,
                reply_added,
                over,
            }
        };
        if entered.joined.first {
            self.concurrency.enter();
        }
        Ok(entered)
    }

    /// Passes an entered request to the engine; returns true if there was a record for the request.
    fn hand_over(self: &Arc<Self>, new: &NewRequest, entered: EntryOutcome) -> Result<bool> {
        let EntryOutcome { joined, .. } = entered;
        let queued = SessionRequest {
            session: self.clone(),
            handle: joined.handle,
            cookie: new.cookie,
            urgent: Hint::new(0),
            left: Hint::new(0),
        };
        let attrs = &new.attrs;
        let range = ByteRange::new(attrs.object, attrs.offset, attrs.length);
        let account = NodeAccount::new(attrs.priority, misc::cpu());
        let boxed = BoxedRequest::new(queued, new.cost, range, account, GFP_KERNEL_ACCOUNT)?;
        let arrival = Arrival {
            // The properties that a class may depend on do not fit, and the attributes are at hand
            // anyway.
            ident: None,
            load: self.client.load(),
            target: &self.target,
            must_pass: false,
            reclaims: false,
            may_pass: self.terms.may_pass,
            // No request arrives while a file is being closed.
            draining: None,
            relation: Some(&entered.relation),
            // The writer can retry.
            may_sleep: true,
            may_overflow: false,
            domain: new.domain,
        };
        let ArrivalOutcome { went, record } =
            self.service.arrive(boxed.into_held(), &arrival, || *attrs);
        let passed = match went {
            AdmissionOutcome::Passed(held) => Some(held),
            AdmissionOutcome::Queued => None,
            AdmissionOutcome::Blocked => {
                self.counters.blocked.count(1);
                None
            }
            AdmissionOutcome::Refused(held) => {
                drop(BoxedRequest::<SessionRequest>::from_held(held));
                return Ok(false);
            }
        };
        self.counters.requests.count(1);
        if entered.reply_added {
            self.call_reader();
        }
        self.count_removed(RemovalEvents {
            expired: entered.over,
            peer_idle: false,
        });
        self.client.load().count_arrived(account.cpu, attrs.opcode);
        if joined.requests > self.concurrency.credits(joined.urgent) {
            self.counters.over.count(1);
            self.concurrency.count_over();
        }
        match (passed, record) {
            // The record is stored when the request is released.
            (Some(held), _) => held.submit(),
            (None, Some(record)) => {
                let moved = self.inner.lock().learn(joined.handle, record);
                if let Some(record) = moved {
                    self.service.promote(record);
                }
            }
            (None, None) => {}
        }
        Ok(true)
    }

    /// Removes a request that the engine refused.
    fn undo(&self, handle: Handle) {
        let (gone, full, readable) = {
            let mut inner = self.inner.lock();
            let gone = inner.take_out_queued(handle);
            let full = inner.live >= self.terms.limit;
            inner.live = inner.live.wrapping_sub(1);
            (gone, full, inner.is_readable())
        };
        if readable {
            // Later early replies have not notified the reader, because that of this request was
            // the first.
            self.call_reader();
        }
        if full {
            // A writer that came meanwhile found no room.
            self.call_writers(false);
        }
        self.concurrency.withdraw();
        if let Some(gone) = gone {
            self.count_removed(gone);
        }
    }

    /// Waits until a request of the file has ended that blocks this one.
    fn wait_for_end(&self, new: &NewRequest) -> Result {
        let mut inner = self.inner.lock();
        loop {
            let home = self.service.home(&self.target, new.domain.unwrap_or(0));
            let unrecorded = new.level == Level::Graph
                && matches!(
                    inner.before(new.cookie, &new.predecessors, home),
                    PredecessorCheck::Unrecorded
                );
            if !unrecorded && inner.live < self.terms.limit {
                return Ok(());
            }
            if unrecorded {
                inner.impatient = inner.impatient.wrapping_add(1);
            }
            let signal = self.roomy.wait_interruptible(&mut inner);
            if unrecorded {
                inner.impatient = inner.impatient.wrapping_sub(1);
            }
            // A task that was woken for room uses it even after a signal, because no other task was
            // woken.
            if signal && (unrecorded || inner.live >= self.terms.limit) {
                return Err(ERESTARTSYS);
            }
        }
    }

    /// Wakes the next task that waits for room, if this writer left any.
    fn wake_next(&self) {
        let room = {
            let inner = self.inner.lock();
            inner.live < self.terms.limit
        };
        if room {
            self.roomy.notify_one();
        }
        self.concurrency.wake_next();
    }

    /// Moves a request and its predecessors to high priority.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the record is malformed.
    /// - `ENOENT`: no request with this cookie was accepted and not completed.
    pub(crate) fn promote(&self, record: &wire::Promotion) -> Result {
        if record.header.flags != 0 {
            return Err(EINVAL);
        }
        let wanted = self.inner.lock().promote(&record.cookie).ok_or(ENOENT)?;
        match wanted {
            PromoteAction::Nothing => return Ok(()),
            PromoteAction::Later => {}
            PromoteAction::Record(record) => self.service.promote(record),
        }
        self.counters.promoted.count(1);
        Ok(())
    }
}

#[kunit_tests(nrs_chardev_admit)]
mod tests {
    use kernel::{
        str::CString,
        sync::atomic::{ordering, Atomic},
    };

    use super::*;
    use crate::{
        engine::registry,
        frontend::chardev::session::{SessionReader, SessionTerms},
    };

    /// Reader that only counts its calls.
    struct CountingReader(Atomic<u32>);

    impl SessionReader for CountingReader {
        fn called(self: Arc<Self>) {
            self.0.fetch_add(1, ordering::Relaxed);
        }
    }

    /// Verifies that the reader is notified of an early reply that was not the first when it was
    /// added, if the request of the first one is removed.
    #[test]
    fn a_removed_request_leaves_no_unread_reply() -> Result {
        let attachment = registry::attach_user(c"kunit-admit", CString::try_from(c"kunit")?)?;
        let reader = Arc::new(CountingReader(Atomic::new(0)), GFP_KERNEL)?;
        let terms = SessionTerms {
            may_pass: false,
            lease_ns: 0,
            limit: 64,
        };
        let session = Session::open(&attachment, terms, Some(reader.clone()))?;
        let new = |cookie| {
            let mut record = wire::Request::new(cookie);
            record.timeout_ms = 9_999;
            session.new_request(&record)
        };
        let enter = |new: &NewRequest| loop {
            match session.enter(new) {
                Err(AdmitError::Memory) => session.grow()?,
                Err(_) => return Err(EINVAL),
                Ok(entered) => return Ok(entered),
            }
        };
        let (first, second) = (enter(&new(1)?)?, enter(&new(2)?)?);
        let added = (first.reply_added, second.reply_added);
        let before = reader.0.load(ordering::Relaxed);
        session.undo(first.joined.handle);
        let after = reader.0.load(ordering::Relaxed);
        session.undo(second.joined.handle);
        session.close();
        assert!(added == (true, false) && (before, after) == (0, 1));
        Ok(())
    }
}
