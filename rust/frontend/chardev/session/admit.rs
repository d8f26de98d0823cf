// SPDX-License-Identifier: GPL-2.0-only

//! How a request comes into a session.
//!
//! # Vocabulary
//!
//! - *Room*: a session may have so many requests, and so may all programs of a service together.
//!
//! ```text
//!   request ──▶ checked ──▶ entered ──▶ arrive ──▶ record known ──▶ Ok
//!                  ▲           │           │
//!                  │           │ no room   │ no record left: taken out again
//!                  └── wait ◀──┴───────────┘          (or EAGAIN)
//! ```
//!
//! # Order
//!
//! At level `graph` a request can name those before it only if their records are known, so one writer at a
//! time enters requests of a file. At the others writers do not wait for each other.

use kernel::{prelude::*, sync::Arc};

use super::{
    early::Statement,
    table::{Before, Gone, Joined, Move},
    Queued, Session,
};
use crate::{
    engine::arrival::{Arrival, Arrived},
    frontend::chardev::{decode::Decoded, wire},
    sched::{
        attr::{Attrs, Priority},
        item::{Cost, Spot},
        key::{Field, Key},
        mem::{Need, NoMemory},
        order::{Level, Relation, PREDECESSORS_MAX},
        partition::arrive::Went,
        slab::Handle,
    },
    sys::{
        atomic::Hint,
        chardev::boxed::Boxed,
        misc::{self, bug},
        node::Account,
    },
};

/// How often a request asks for a record before it waits for one.
const TRIES: u32 = 4;

/// A request that wants to come in.
struct New {
    cookie: u64,
    predecessors: [u64; PREDECESSORS_MAX],
    /// All requests that this one may have to do with have the same; `None`: there are none.
    domain: Option<u64>,
    attrs: Attrs,
    cost: Cost,
    level: Level,
    statement: Statement,
}

/// What became of a request that came in.
struct Entered {
    joined: Joined,
    relation: Relation,
    /// There is an early reply to be read that was not before.
    told: bool,
    /// Its deadline had passed.
    over: bool,
}

/// Why a request cannot come in.
enum No {
    Error(Error),
    /// The session has no room.
    Full,
    /// The service has no room.
    Crowded,
    /// A predecessor can only be waited for here.
    Unrecorded,
    /// The table has no memory for it.
    Memory,
}

impl Session {
    /// Takes a request. Waits for room unless `nonblocking`.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: malformed; or a predecessor that is not known, or is not to be named under this level.
    /// - `EEXIST`: a request with this cookie has not been completed.
    /// - `EAGAIN`: no room, and `nonblocking`. `ERESTARTSYS`: a signal came while waiting.
    pub(crate) fn request(self: &Arc<Self>, record: &wire::Request, nonblocking: bool) -> Result {
        let new = self.new_request(record)?;
        let mut waited = false;
        let result = self.bring(&new, nonblocking, &mut waited);
        if !matches!(result, Err(EAGAIN | ERESTARTSYS)) {
            // There was a record, or this one does not wait for any though it may have said so.
            self.concurrency.fed();
        }
        if waited {
            self.hand_on();
        }
        result
    }

    /// Checks `record`, which means something else at each level of the service.
    ///
    /// # Errors
    ///
    /// `EINVAL`: malformed; or a predecessor is named, and the level is not `graph`.
    fn new_request(&self, record: &wire::Request) -> Result<New> {
        let Decoded { attrs, cost } = Decoded::of(record).ok_or(EINVAL)?;
        let level = self.service.dispatch().level();
        let related = record.predecessor.iter().any(|cookie| *cookie != 0);
        if related && level != Level::Graph {
            return Err(EINVAL);
        }
        let serial = self.client.serial();
        Ok(New {
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
            statement: Statement::of(record, self.service.timeouts()),
        })
    }

    /// Enters a request, once there is room, and hands it over; `waited` tells whether it had to wait.
    fn bring(self: &Arc<Self>, new: &New, nonblocking: bool, waited: &mut bool) -> Result {
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
                    // Records can be made at once, or others have made some; if neither, all that there may be
                    // are in use.
                    tries = tries.saturating_add(1);
                    if self.service.feed_order()? || tries < TRIES {
                        continue;
                    }
                    if tries == TRIES {
                        // Said first, then tried once more: of those whose end nobody was told of, the records
                        // are free by then.
                        self.concurrency.starve();
                        continue;
                    }
                    tries = 0;
                    No::Crowded
                }
                Err(no) => no,
            };
            drop(order);
            match no {
                No::Error(error) => return Err(error),
                No::Memory => {
                    self.grow()?;
                    continue;
                }
                No::Crowded => self.counters.room_waits.count(1),
                No::Full | No::Unrecorded => {}
            }
            if nonblocking {
                return Err(EAGAIN);
            }
            *waited = true;
            match no {
                No::Crowded => self.concurrency.wait()?,
                _ => self.wait_for_end(new)?,
            }
        }
    }

    /// Brings the table memory for one more request.
    fn grow(&self) -> Result {
        let need = self.inner.lock().need();
        let spare = need.take(true).map_err(|NoMemory| ENOMEM)?;
        let left = self.inner.lock().grow(spare);
        drop(left);
        Ok(())
    }

    /// Enters a request.
    fn enter(&self, new: &New) -> Result<Entered, No> {
        let entered = {
            let mut inner = self.inner.lock();
            if inner.find(&new.cookie).is_some() {
                return Err(No::Error(EEXIST));
            }
            let relation = match (new.level, new.domain) {
                (Level::Graph, Some(domain)) => {
                    let home = self.service.home(&self.target, domain);
                    match inner.before(new.cookie, &new.predecessors, home) {
                        Before::Known(relation) => relation,
                        Before::Unrecorded => return Err(No::Unrecorded),
                        Before::Unknown => return Err(No::Error(EINVAL)),
                    }
                }
                (_, Some(domain)) => Relation::sequence(domain),
                (_, None) => Relation::Free,
            };
            if inner.live >= self.terms.limit {
                return Err(No::Full);
            }
            if !inner.need().is_empty() {
                return Err(No::Memory);
            }
            if !self.concurrency.begin() {
                return Err(No::Crowded);
            }
            let peer = Key::of(Field::Nid, &new.attrs);
            let high = new.attrs.priority == Priority::High;
            let Some(joined) = inner.enter(new.cookie, peer, high) else {
                // There is memory.
                bug!();
                return Err(No::Error(ENOMEM));
            };
            let (told, over) = inner.state(joined.handle.slot(), &new.statement);
            self.set_timer(&mut inner);
            Entered {
                joined,
                relation,
                told,
                over,
            }
        };
        if entered.joined.first {
            self.concurrency.enter();
        }
        Ok(entered)
    }

    /// Hands a request that was entered to the engine; returns whether there was a record for it.
    fn hand_over(self: &Arc<Self>, new: &New, entered: Entered) -> Result<bool> {
        let Entered { joined, .. } = entered;
        let queued = Queued {
            session: self.clone(),
            handle: joined.handle,
            cookie: new.cookie,
            urgent: Hint::new(0),
            left: Hint::new(0),
        };
        let attrs = &new.attrs;
        let spot = Spot::new(attrs.object, attrs.offset, attrs.length);
        let account = Account::new(attrs.priority, misc::cpu());
        let boxed = Boxed::new(queued, new.cost, spot, account, GFP_KERNEL_ACCOUNT)?;
        let arrival = Arrival {
            // All that a class may depend on does not fit, and what is said of each request is at hand anyway.
            ident: None,
            client: &self.client,
            target: &self.target,
            must_pass: false,
            reclaims: false,
            may_pass: self.terms.may_pass,
            // Nothing arrives while a file is being closed.
            draining: None,
            relation: Some(&entered.relation),
            // Its writer can come back.
            may_sleep: true,
            may_overflow: false,
            domain: new.domain,
        };
        let Arrived { went, record } = self.service.arrive(boxed.into_held(), &arrival, || *attrs);
        let passed = match went {
            Went::Passed(held) => Some(held),
            Went::Queued => None,
            Went::Blocked => {
                self.counters.blocked.count(1);
                None
            }
            Went::Refused(held) => {
                drop(Boxed::<Queued>::from_held(held));
                return Ok(false);
            }
        };
        self.counters.requests.count(1);
        if entered.told {
            self.call_reader();
        }
        self.count_gone(Gone {
            expired: entered.over,
            peer_idle: false,
        });
        self.client.count_arrived(account.cpu, attrs.opcode);
        if joined.requests > self.concurrency.credits(joined.urgent) {
            self.counters.over.count(1);
            self.concurrency.count_over();
        }
        match (passed, record) {
            // Its record is noted as it is released.
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

    /// Takes out a request that the engine did not take.
    fn undo(&self, handle: Handle) {
        let (gone, full) = {
            let mut inner = self.inner.lock();
            let gone = inner.take_out_queued(handle);
            let full = inner.live >= self.terms.limit;
            inner.live = inner.live.wrapping_sub(1);
            (gone, full)
        };
        if full {
            // Who came meanwhile found no room.
            self.roomy.notify_one();
        }
        self.concurrency.withdraw();
        if let Some(gone) = gone {
            self.count_gone(gone);
        }
    }

    /// Waits until a request of the file has ended that keeps this one from coming in.
    fn wait_for_end(&self, new: &New) -> Result {
        let mut inner = self.inner.lock();
        loop {
            let home = self.service.home(&self.target, new.domain.unwrap_or(0));
            let unrecorded = new.level == Level::Graph
                && matches!(
                    inner.before(new.cookie, &new.predecessors, home),
                    Before::Unrecorded
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
            // Who was woken for room takes it, or nobody else would.
            if signal && (unrecorded || inner.live >= self.terms.limit) {
                return Err(ERESTARTSYS);
            }
        }
    }

    /// Wakes whoever else waits for room that this writer did not need.
    fn hand_on(&self) {
        let room = {
            let inner = self.inner.lock();
            inner.live < self.terms.limit
        };
        if room {
            self.roomy.notify_one();
        }
        self.concurrency.hand_on();
    }

    /// Moves a request, and with it what comes before it, to high priority.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: malformed.
    /// - `ENOENT`: no request with this cookie was taken and not completed.
    pub(crate) fn promote(&self, record: &wire::Promotion) -> Result {
        if record.header.flags != 0 {
            return Err(EINVAL);
        }
        let wanted = self.inner.lock().promote(&record.cookie).ok_or(ENOENT)?;
        match wanted {
            Move::Nothing => return Ok(()),
            Move::Later => {}
            Move::Record(record) => self.service.promote(record),
        }
        self.counters.promoted.count(1);
        Ok(())
    }
}
