// SPDX-License-Identifier: GPL-2.0-only

//! Interface between heads and policies.
//!
//! A policy is a file or folder with
//!
//! - `Tunables` and `PARAMETERS`: the parameters that users set ([`Tuning`]),
//! - `Counts`: counters of the policy as a whole, per head ([`Stats`]),
//! - `Config`: the configuration of a start, parsed, checked and immutable ([`Configuration`]),
//! - `State`: the state of the policy on one head ([`Part`], `&mut` under the partition's lock),
//! - `Shared`: state that its parts share, `&self`,
//! - `Update`: data passed to running parts,
//! - `PolicyData`: state that a service keeps for the policy beside values, and parameters that are
//!   texts ([`Keep`]),
//! - `Overseer`: periodic work over all of its parts ([`Oversee`]).
//!
//! The last four and `Counts` may be [`Nothing`]. A change of configuration starts new parts and
//! drains the old ones ([`crate::sched::head`]), so a part never reclassifies requests that are
//! already queued. The engine uses policies through these traits only and names none of them, which
//! a test on the host verifies.
//!
//! # Adding a policy
//!
//! Add one file or folder in `policy/`, one line in the registry at the end of this file, and one
//! page in Documentation/. `lottery`, which exists in tests only, is an example.

use crate::sched::{
    agent::{FactorPairs, Lease, Report},
    attr::{Attrs, Priority},
    class::ClassId,
    error::{Code, Error, Result},
    item::{Cost, Item},
    key::Key,
    mem::{Block, Need, NoMemory, Owned, Shared},
    parameters::Parameter,
    ranges::{NodeReports, RangeTable},
    statistics::{Stat, Stats},
};
use core::fmt;

mod any;
pub(crate) mod classes;
pub(crate) mod config;
pub mod control;
pub mod params;
pub mod robin;
pub(crate) mod withheld_time;

use params::{BufferMax, ClassesMax};

use any::policies;
pub use config::{Configuration, NoArgument, Simple, Tuning, Upkeep};
use control::{ByHead, Host, Keep, Oversee, OverseerContext, OverseerOutcome, TextParameter};

/// Result of requesting the next request from a part.
///
/// # Examples
///
/// ```
/// use nrs_sched::arena::{attrs, part_of, view, Request};
/// use nrs_sched::{policy::{Decision, Part}, units::NSEC_PER_USEC};
///
/// // By default, each user has 10 000 requests/s and a bucket of 3 requests.
/// let (mut part, now) = (part_of("tbf uid"), 1_000 * NSEC_PER_USEC);
/// let class = part.classify(&attrs(1000), now);
/// for id in 1..=4 {
///     part.enqueue(Request::new(1000, id, 1, now), class, now).unwrap();
/// }
/// for _ in 1..=3 {
///     assert!(matches!(part.get(&view(now, false)), Decision::Item(_)));
/// }
/// // The result has the time at which request 4 is eligible, not the duration until then.
/// let Decision::Throttled { until } = part.get(&view(now, false)) else { unreachable!() };
/// assert_eq!(until, 1_100 * NSEC_PER_USEC);
/// assert!(matches!(part.get(&view(until, false)), Decision::Item(_)));
/// ```
#[derive(Debug)]
pub enum Decision<I> {
    /// Request to dispatch.
    Item(I),
    /// Nothing is queued.
    Empty,
    /// Requests are queued, but none is eligible before `until`.
    Throttled {
        /// Time, monotonic ns.
        until: u64,
    },
}

/// Data that a part returns with a request, and gets back when the request ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Class of the request.
    pub class: ClassId,
    /// Cost charged, in the units of the policy's cost model; 0 if nothing was charged.
    pub charged: u32,
    /// Time for which the policy throttled the request, ms, because of its rate or its delay
    /// ([`withheld_time`]).
    pub withheld: u32,
    /// Private data of the policy, for example the value of a virtual clock.
    pub stamp: u64,
}

impl Grant {
    /// Returns the grant of a request of `class` that was neither charged nor throttled.
    pub const fn of(class: ClassId) -> Self {
        Self {
            class,
            charged: 0,
            withheld: 0,
            stamp: 0,
        }
    }

    /// Returns the same grant for a request that was throttled for `withheld` ms.
    pub const fn after(self, withheld: u32) -> Self {
        Self { withheld, ..self }
    }
}

/// Unit type for policies without counters, shared state, updates, kept state or overseer.
#[derive(Clone)]
pub struct Nothing;

impl Stats for Nothing {
    const ROWS: &'static [Stat] = &[];

    fn values(&self) -> impl Iterator<Item = u64> {
        core::iter::empty()
    }

    fn values_mut(&mut self) -> impl Iterator<Item = &mut u64> {
        core::iter::empty()
    }
}

impl Nothing {
    /// Arbitrary value, because there is no shared state.
    pub const PER_TARGET: bool = false;

    /// Creates the unit value.
    pub const fn new<C>(
        _config: &C,
        _seed: u64,
        _parts: u32,
    ) -> core::result::Result<Self, NoMemory> {
        Ok(Self)
    }
}

/// Input of a part's decision.
#[derive(Clone, Copy)]
pub struct PartView<'a> {
    /// Time, monotonic ns.
    pub now: u64,
    /// True if the part is being drained: a request is returned if any is queued.
    pub force: bool,
    /// Shares that the service's worker published last.
    pub table: Option<&'a RangeTable>,
}

/// Slots of a target, for [`Part::hold`].
#[derive(Clone, Copy, Debug)]
pub struct FreeSlots {
    /// Number of slots.
    pub slots: u32,
    /// Number of slots that regular requests may take now.
    pub free: u32,
    /// True if other partitions may take the slots.
    pub is_shared: bool,
}

/// Slots that a part keeps free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hold {
    /// Number of slots; 0: none at present.
    pub slots: u32,
    /// Time at which the first of them may be used, ns.
    pub until: u64,
}

/// Reason for which a request is dispatched without queueing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BypassReason {
    /// The request was merged into another request of its class; the class is charged for its data.
    /// Both count as one.
    Merged,
    /// The service is underloaded; if the policy refuses, the request is queued.
    Opportunity,
    /// The request must not be throttled; the class is charged for it.
    Forced {
        /// True if requests for the same target are queued, at this partition or another.
        contended: bool,
    },
}

/// Result of dispatching a request without queueing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum BypassOutcome {
    /// The request is counted and may be dispatched.
    Counted,
    /// The request must be queued; only for [`BypassReason::Opportunity`].
    Refused,
    /// The class of the request no longer exists; the caller must classify again.
    Stale,
}

/// State of one policy on one head.
///
/// # Context
///
/// All methods run under the partition's lock with interrupts off. They never allocate and never
/// sleep, and cost at most O(log n) in the number of classes.
pub trait Part<I: Item> {
    /// Kind and amount of memory that the part needs.
    type Need: Need<Spare = Self::Spare>;

    /// Memory that satisfies the need.
    type Spare;

    /// State that the parts of one head share over all partitions, created when the policy is
    /// started there.
    type Shared;

    /// Data passed to a running part, for example a new set of rules; cheap to move.
    type Update;

    /// True if the policy uses the file that a request is for.
    const WANTS_FILE: bool = false;

    /// Class of all requests, for a policy with only one class that uses no attributes.
    const ONLY_CLASS: Option<ClassId> = None;

    /// Returns the class of a request with `attrs`; creates the class from reserved memory. The
    /// request is not counted.
    ///
    /// Never fails. If the reserve or the limit of classes is used up, a shared class or the
    /// default class is returned, and the overflow is counted.
    fn classify(&mut self, attrs: &Attrs, now: u64) -> ClassId;

    /// Returns true if a cached `class` may be reused: the class still exists, and no other class
    /// is to be created in its place.
    fn is_live(&self, class: ClassId) -> bool;

    /// Returns the time for which a cached class may be used without [`Part::record_attrs`], ns;
    /// `None` means without limit.
    fn record_interval(&self) -> Option<u64> {
        None
    }

    /// Records attributes of a request of `class` that do not determine its class.
    fn record_attrs(&mut self, _class: ClassId, _attrs: &Attrs, _now: u64) {}

    /// Appends `item` to `class`. Returns the item if the part declines it; the fallback then
    /// queues it.
    fn enqueue(&mut self, item: I, class: ClassId, now: u64) -> core::result::Result<(), I>;

    /// Removes a request queued in `class` that is handled elsewhere; the request is not charged.
    /// Returns `None` if the request is not queued here.
    fn dequeue(&mut self, class: ClassId, handle: &I::Handle, now: u64) -> Option<I>;

    /// Selects the request to dispatch next, and removes it from the queue.
    fn get(&mut self, view: &PartView<'_>) -> Decision<(I, Grant)>;

    /// Returns the time, ns, until which [`Part::get`] would throttle all queued requests. Returns
    /// `None` if it would not throttle them, or if the limits of classes would have to be
    /// evaluated.
    fn throttled(&self, _now: u64) -> Option<u64> {
        None
    }

    /// Returns the result that [`Part::get`] would have, without changing anything.
    ///
    /// `Empty` and `Throttled` are exact. After `Item`, a policy that evaluates the limits of
    /// classes lazily (tbf, qbm) may find in [`Part::get`] that the first classes are still
    /// throttled.
    fn peek(&self, view: &PartView<'_>) -> Decision<()> {
        match self.throttled(view.now) {
            _ if self.is_empty() => Decision::Empty,
            Some(until) if !view.force => Decision::Throttled { until },
            _ => Decision::Item(()),
        }
    }

    /// Returns [`Part::ONLY_CLASS`].
    fn only_class(&self) -> Option<ClassId> {
        Self::ONLY_CLASS
    }

    /// Counts a request of `class` that is dispatched without queueing. The end of the request is
    /// not reported, so the request does not pin the class. Only policies that need the time call
    /// `now`.
    fn pass(
        &mut self,
        class: ClassId,
        cost: Cost,
        way: BypassReason,
        now: impl FnOnce() -> u64,
    ) -> BypassOutcome;

    /// Returns true if requests that pass by [`BypassReason::Opportunity`] are never refused and
    /// change only counters, so that they may be counted later in batches.
    fn passes_freely(&self) -> bool {
        false
    }

    /// Counts `requests` requests of `class`, with `pages` pages in all, that passed freely.
    fn count_passed(&mut self, _class: ClassId, _requests: u32, _pages: u64) {}

    /// Returns the tokens that [`Part::get`] took for a request of `class` and `cost`, which ended
    /// unprocessed. Does nothing if the class was evicted.
    fn refund(&mut self, _class: ClassId, _cost: Cost, _now: u64) {}

    /// Records the end of a request that [`Part::get`] returned with `grant`; the request costs
    /// `cost`. Does nothing if the class was evicted. Returns true if the part may keep slots free
    /// from now on ([`Part::hold`]).
    fn stop(&mut self, grant: &Grant, cost: Cost, now: u64) -> bool;

    /// Returns the slots that no request of the part may take at `now`, ns, because a request that
    /// has not arrived yet is to have them; `None` if no slot will be kept free until the next
    /// [`Part::stop`] that returns true. Called before each decision until then.
    fn hold(&mut self, _slots: &FreeSlots, _now: u64) -> Option<Hold> {
        None
    }

    /// Returns the number of queued requests.
    fn len(&self) -> u32;

    /// Returns true if nothing is queued.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the memory that the part needs in order to create further classes.
    fn need(&self) -> Self::Need;

    /// Adds memory; returns the unused rest, which is to be freed outside the lock.
    fn grow(&mut self, spare: Self::Spare) -> Self::Spare;

    /// Evicts classes that have been idle for a while, and does other upkeep. Examines at most
    /// `max` classes per call; returns true if more may be evictable. Must be called at least once
    /// a second.
    fn age(&mut self, _now: u64, _max: u32) -> bool {
        false
    }

    /// Installs `update`, which takes effect immediately; returns the replaced update, which is to
    /// be dropped outside the lock.
    fn update(&mut self, update: Self::Update, now: u64) -> Self::Update;

    /// Applies the last update to at most `max` classes from index `from` on; returns the index to
    /// continue from, or `None` at the end.
    fn refresh(&mut self, _from: u32, _max: u32, _now: u64) -> Option<u32> {
        None
    }

    /// Resets the counters of at most `max` classes from index `from` on; returns the index to
    /// continue from, as [`Part::refresh`] does.
    fn reset(&mut self, _from: u32, _max: u32) -> Option<u32> {
        None
    }

    /// Returns the number of requests for which no class of their own could be created.
    fn overflow(&self) -> u64 {
        0
    }

    /// Adds the policy's own counters to `sums`, in the order of their rows.
    fn add_counts(&self, _sums: &mut [u64]) {}

    /// Returns true if classes depend on counters or on the time, so that the upkeep at `now`, ns,
    /// must call [`Part::refresh`].
    fn wants_refresh(&self, _now: u64) -> bool {
        false
    }

    /// Returns true if decisions use the published shares ([`PartView::table`]).
    fn wants_table(&self) -> bool {
        false
    }

    /// Copies the data from which shares are computed, of the classes from index `from` on, into
    /// `out` until `out` is full. Returns the index to continue from, or `None` at the end.
    ///
    /// Called once in each upkeep, so that samples can be taken as well; `now` is in ns.
    fn node_reports(&mut self, _from: u32, _now: u64, _out: &mut NodeReports) -> Option<u32> {
        None
    }

    /// Copies the data that is reported to an agent, of the classes from index `from` on, into
    /// `out` until `out` is full. Returns the index to continue from, as [`Part::node_reports`]
    /// does. See [`crate::sched::agent`].
    fn reports(&self, _from: u32, _out: &mut ReportBuf) -> Option<u32> {
        None
    }

    /// Returns the name of the level and the key of the class with identifier `id` in
    /// [`Part::reports`].
    fn name_of(&self, _id: u64) -> Option<(&'static str, Key)> {
        None
    }

    /// Returns a hash of the settings that must be equal on several servers for an agent to compare
    /// their reports; 0 without reports.
    fn terms(&self) -> u64 {
        0
    }
}

/// Calls `make`. A separate function, so that the stack holds only one kind of part at a time.
#[inline(never)]
fn apart<T>(
    make: impl FnOnce() -> core::result::Result<T, NoMemory>,
) -> core::result::Result<T, NoMemory> {
    make()
}

/// Maximum number of counters that a policy has as a whole.
pub const COUNTS_MAX: usize = {
    let (mut kinds, mut max) = (Kind::ALL, 0);
    while let [kind, rest @ ..] = kinds {
        let counts = kind.counts().len();
        max = if counts > max { counts } else { max };
        kinds = rest;
    }
    max
};

/// Maximum number of classes that are examined in one lock hold.
pub const ROWS: usize = 64;

/// Buffer for [`Part::reports`].
pub type ReportBuf = Block<Report, ROWS>;

impl Kind {
    /// Policy of heads on which no other policy was started, and the policy for requests that
    /// another policy declines.
    pub const FALLBACK: Self = Self::Fifo;

    /// Returns the policy called `name`.
    ///
    /// # Errors
    ///
    /// `ENOENT`: no policy has this name.
    pub fn from_name(name: &str) -> Result<Self> {
        let found = Self::ALL.iter().find(|kind| kind.name() == name);
        found
            .copied()
            .ok_or(Error::new(Code::NoEntry, "no policy of this name"))
    }
}

policies! {
    Fifo: fifo,
    Crrn: crrn,
    Orr: orr,
    Trr: trr,
    Tbf: tbf,
    Delay: delay,
    Fairshare: fairshare,
    Qbm: qbm,
    #[cfg(feature = "lottery")] Lottery: lottery,
}

#[cfg(test)]
mod tests;
