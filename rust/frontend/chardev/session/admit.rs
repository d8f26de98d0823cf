// SPDX-License-Identifier: GPL-2.0-only

//! How a request comes into a session.
//!
//! # Vocabulary
//!
//! - *Room*: a session may have so many requests, and so may all programs of a service together.
//! - *Spare*: nodes that are made before the lock is taken.
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

use kernel::{prelude::*, rbtree::RBTreeNodeReservation, sync::Arc};

use super::{
    early::{self, Statement, WatchSpare},
    past::Before,
    peers::{PeerId, PeerSpare},
    table::{Entry, Move},
    Queued, Session,
};
use crate::{
    engine::service::{Arrival, Arrived},
    frontend::chardev::{about::About, wire},
    sched::{
        attr::{Attrs, Priority},
        item::Spot,
        order::{Level, Relation, PREDECESSORS_MAX},
        partition::arrive::Went,
    },
    sys::{chardev::boxed::Boxed, node::Account},
};

/// How often a request asks for a record before it waits for one.
const TRIES: u32 = 4;

/// A request that wants to come in.
struct New {
    cookie: u64,
    predecessors: [u64; PREDECESSORS_MAX],
    /// All requests that this one may have to do with have the same; `None`: there are none.
    domain: Option<u64>,
    peer: PeerId,
    high: bool,
    level: Level,
    statement: Statement,
}

/// Nodes that a request may need.
struct Spare {
    entry: Option<RBTreeNodeReservation<u64, Entry>>,
    peer: Option<PeerSpare>,
    watch: Option<WatchSpare>,
}

/// A node for the watch of a request that states this, if it needs one.
///
/// # Errors
///
/// `ENOMEM`.
fn spare_watch(statement: &Statement) -> Result<Option<WatchSpare>> {
    let make = |_| RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT);
    statement.deadline.map(make).transpose()
}

/// What became of a request that came in.
struct Entered {
    number: u64,
    relation: Relation,
    /// There is an early reply to be read that was not before.
    told: bool,
    /// Its deadline had passed.
    over: bool,
    /// Its peer has no other.
    first: bool,
    /// Requests of its peer, and whether others wait for one of them.
    requests: u32,
    urgent: bool,
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
    /// Its peer needs a node.
    Peer,
}

impl Session {
    /// Takes a request. Waits for room unless `nonblocking`.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: malformed; or a predecessor that is not known, or is not to be named under this level.
    /// - `EEXIST`: a request with this cookie has not been completed.
    /// - `EAGAIN`: no room, and `nonblocking`. `ERESTARTSYS`: a signal came while waiting.
    /// - `ENOMEM`.
    pub(crate) fn request(self: &Arc<Self>, record: &wire::Request, nonblocking: bool) -> Result {
        let about = About::of(record)?;
        let new = self.new_request(record, &about.attrs)?;
        let attrs = Attrs {
            client: self.client.serial(),
            ..about.attrs
        };
        let queued = Queued::new(self.clone(), new.cookie);
        let spot = Spot::new(attrs.object, attrs.offset, attrs.length);
        let account = Account::new(attrs.priority);
        let boxed = Boxed::new(queued, about.cost, spot, account, GFP_KERNEL_ACCOUNT)?;
        let mut spare = Spare {
            entry: Some(RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?),
            peer: None,
            watch: spare_watch(&new.statement)?,
        };
        let mut waited = false;
        let result = self.bring(boxed, &attrs, &new, &mut spare, nonblocking, &mut waited);
        if !matches!(result, Err(EAGAIN | ERESTARTSYS)) {
            // There was a record, or this one does not wait for any though it may have said so.
            self.concurrency.fed();
        }
        if waited {
            self.hand_on();
        }
        result
    }

    /// Checks what depends on the level of the service.
    ///
    /// # Errors
    ///
    /// `EINVAL`: a predecessor is named, and the level is not `graph`.
    fn new_request(&self, record: &wire::Request, attrs: &Attrs) -> Result<New> {
        let level = self.service.level();
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
            peer: attrs.nid,
            high: attrs.priority == Priority::High,
            level,
            statement: self.statement(record),
        })
    }

    /// What `record` states.
    fn statement(&self, record: &wire::Request) -> Statement {
        let now = early::now();
        if record.timeout_ms == 0 {
            return Statement::none(record, now);
        }
        let timeouts = self.service.timeouts();
        Statement::of(record, now, &timeouts.terms(), timeouts.estimate())
    }

    /// Enters a request, once there is room, and hands it over; `waited` tells whether it had to wait.
    fn bring(
        &self,
        mut boxed: Boxed<Queued>,
        attrs: &Attrs,
        new: &New,
        spare: &mut Spare,
        nonblocking: bool,
        waited: &mut bool,
    ) -> Result {
        let mut tries = 0u32;
        loop {
            let order = (new.level == Level::Graph).then(|| self.order.lock());
            let no = match self.enter(new, spare) {
                Ok(entered) => match self.hand_over(boxed, attrs, new, entered) {
                    Ok(()) => return Ok(()),
                    Err(back) => {
                        boxed = back;
                        spare.entry = Some(self.undo(new)?);
                        spare.watch = spare_watch(&new.statement)?;
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
                },
                Err(no) => no,
            };
            drop(order);
            match no {
                No::Error(error) => return Err(error),
                No::Peer => {
                    spare.peer = Some(RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?);
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

    /// Enters a request.
    fn enter(&self, new: &New, spare: &mut Spare) -> Result<Entered, No> {
        let entered = {
            let mut inner = self.inner.lock();
            if inner.find(&new.cookie).is_some() {
                return Err(No::Error(EEXIST));
            }
            let relation = match (new.level, new.domain) {
                (Level::Graph, Some(domain)) => {
                    let home = self.service.home(&self.target, domain);
                    match inner.before(new.cookie, new.predecessors, home) {
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
            if spare.peer.is_none() && !inner.peers.has(&new.peer) {
                return Err(No::Peer);
            }
            let Some(place) = spare.entry.take() else {
                return Err(No::Error(ENOMEM));
            };
            if !self.concurrency.begin() {
                spare.entry = Some(place);
                return Err(No::Crowded);
            }
            let joined = inner.peers.join(new.peer, &mut spare.peer);
            let number = inner.entered;
            inner.entered = number.wrapping_add(1);
            let mut entry = Entry::new(number, new.peer, new.high);
            let watch = &mut spare.watch;
            let told = inner.state(new.cookie, number, &mut entry, &new.statement, watch);
            // INVARIANT: The cookie was in no tree.
            inner.queued.insert(place.into_node(new.cookie, entry));
            inner.live = inner.live.wrapping_add(1);
            Entered {
                number,
                relation,
                told,
                over: entry.expired,
                first: joined.first,
                requests: joined.requests,
                urgent: joined.urgent,
            }
        };
        if entered.first {
            self.concurrency.enter();
        }
        Ok(entered)
    }

    /// Hands a request that was entered to the core; returns it if the core has no record for it.
    fn hand_over(
        &self,
        boxed: Boxed<Queued>,
        attrs: &Attrs,
        new: &New,
        entered: Entered,
    ) -> Result<(), Boxed<Queued>> {
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
            Went::Refused(held) => match Boxed::from_held(held) {
                Some(boxed) => return Err(boxed),
                // It is this session's, so this does not happen.
                None => None,
            },
        };
        self.counters.requests.count(1);
        if entered.told {
            self.readable.notify_one();
        }
        if entered.over {
            self.count_expired(1);
        }
        self.client.count_arrived(attrs.opcode);
        if entered.requests > self.concurrency.credits(entered.urgent) {
            self.counters.over.count(1);
            self.concurrency.count_over();
        }
        if let Some(record) = record {
            let moved = self.inner.lock().learn(&new.cookie, entered.number, record);
            if let Some(record) = moved {
                self.service.promote(record);
            }
        }
        if let Some(held) = passed {
            held.submit();
        }
        Ok(())
    }

    /// Takes out a request that the core did not take; returns its node.
    fn undo(&self, new: &New) -> Result<RBTreeNodeReservation<u64, Entry>> {
        let (gone, full) = {
            let mut inner = self.inner.lock();
            let gone = inner.take_out_queued(&new.cookie);
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
            self.bury(gone);
        }
        RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)
    }

    /// Waits until a request of the file has ended that keeps this one from coming in.
    fn wait_for_end(&self, new: &New) -> Result {
        let mut inner = self.inner.lock();
        loop {
            let home = self.service.home(&self.target, new.domain.unwrap_or(0));
            let unrecorded = new.level == Level::Graph
                && matches!(
                    inner.before(new.cookie, new.predecessors, home),
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
