// SPDX-License-Identifier: GPL-2.0-only

//! The seam between heads and policies.
//!
//! A policy is a folder with
//!
//! - `Tunables` and `PARAMETERS`: what users set of it ([`Tuning`]),
//! - `Counts`: what a head counts of it as a whole ([`Stats`]),
//! - `Config`: a start, parsed and checked, never changed ([`Configuration`]),
//! - `State`: what it has of one head ([`Part`], `&mut` under the partition's lock),
//! - `Shared`: what its parts share, `&self`,
//! - `Update`: what parts are told while they run,
//! - `Kept`: what a service keeps for it beside values, and the texts that it shows and carries out ([`Keep`]),
//! - `Overseer`: what looks at its parts at intervals ([`Oversee`]).
//!
//! Of the last four, and of counts, it may have [`Nothing`]. A change of configuration starts new parts and drains the
//! old ones ([`crate::sched::head`]), so a part never has to change its mind about requests that it already holds. The
//! engine asks policies by these traits only; it names none, which a test of the host sees to.
//!
//! # Adding a policy
//!
//! One file or folder in `policy/`, one line in the registry at the end of this file, one page in Documentation/.
//! `lottery`, which only tests have, is an example.

use crate::sched::{
    agent::{Lease, Pairs, ReportBuf},
    attr::{Attrs, Priority},
    class::ClassId,
    error::{Code, Error, Result},
    item::{Cost, Item},
    key::Key,
    mem::{Need, NoMemory, Owned, Shared},
    parameters::Parameter,
    ranges::{BriefBuf, Table},
    statistics::{Stat, Stats},
};
use core::fmt;

mod any;
pub(crate) mod classes;
pub(crate) mod config;
pub mod control;
pub(crate) mod kept;
pub mod params;
pub mod robin;

use params::{BufferMax, ClassesMax};

use any::policies;
pub use config::{Configuration, NoArgument, Simple, Tuning, Upkeep};
use control::{ByHead, Host, Keep, Looked, Oversee, Scene, Text};

/// What a part answers when it is asked for a request.
#[derive(Debug)]
pub enum Get<I> {
    /// Serve this one.
    Item(I),
    /// Nothing is queued.
    Empty,
    /// Requests are queued, none may be served before `until`.
    Throttled {
        /// Monotonic nanoseconds.
        until: u64,
    },
}

/// What a part hands out beside a request, and takes back at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The class of the request.
    pub class: ClassId,
    /// What it was charged, in the units of the policy's cost model; 0: nothing.
    pub charged: u32,
    /// For how long the policy kept the request on purpose, ms: for its rate or its delay ([`kept`]).
    pub withheld: u32,
    /// What the policy notes to itself, for example what a clock of its own showed.
    pub stamp: u64,
}

impl Grant {
    /// A request of `class`, with nothing charged and nothing noted, that was not kept.
    pub const fn of(class: ClassId) -> Self {
        Self {
            class,
            charged: 0,
            withheld: 0,
            stamp: 0,
        }
    }

    /// The same of a request that was kept for `withheld` ms.
    pub const fn after(self, withheld: u32) -> Self {
        Self { withheld, ..self }
    }
}

/// What the parts of a policy share that share nothing, and what those are told that are told nothing.
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
    /// It makes no difference.
    pub const PER_TARGET: bool = false;

    /// Nothing.
    pub const fn new<C>(
        _config: &C,
        _seed: u64,
        _parts: u32,
    ) -> core::result::Result<Self, NoMemory> {
        Ok(Self)
    }
}

/// What a part may look at while it decides.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// Monotonic nanoseconds.
    pub now: u64,
    /// Serve something if anything is queued: the part is being drained.
    pub force: bool,
    /// The shares that the service's worker published last.
    pub table: Option<&'a Table>,
}

/// How a request that goes down without queueing asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// It has become part of a request of its class, which owes for what it transfers. The two count as one.
    Merged,
    /// The service is under-loaded; if the policy refuses, the request is queued.
    Opportunity,
    /// It must not be withheld; its class owes for it.
    Forced {
        /// Requests wait for the same target, at this partition or another.
        contended: bool,
    },
}

/// What a part answers to a request that goes down without queueing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Passed {
    /// It is counted and may go.
    Counted,
    /// It has to queue; only for [`Way::Opportunity`].
    Refused,
    /// Its class is not there any more: classify again.
    Stale,
}

/// The state of one policy on one head.
///
/// # Context
///
/// All methods run under the partition's lock with interrupts off: they never allocate, never sleep and
/// cost O(log n) at most, in the number of classes.
pub trait Part<I: Item> {
    /// How much memory of which kind the part wants.
    type Need: Need<Spare = Self::Spare>;

    /// The memory that covers it.
    type Spare;

    /// What the parts of one head share over all partitions, since the policy was started there.
    type Shared;

    /// What a part is told beside requests, for example a new set of rules; cheap to hand over.
    type Update;

    /// Whether it asks which file a request is for.
    const WANTS_FILE: bool = false;

    /// The class of all requests, of a part that has only one and asks for no attributes.
    const ONLY_CLASS: Option<ClassId> = None;

    /// Returns the class of a request with `attrs`; creates the class from reserved memory. Nothing is counted of the
    /// request.
    ///
    /// Never fails: when the reserve or the bound is used up, the default class serves and a counter
    /// says so.
    fn classify(&mut self, attrs: &Attrs, now: u64) -> ClassId;

    /// Whether a cached `class` may be used again: it still names a class of this part, and not one that
    /// only stands in for others.
    fn is_live(&self, class: ClassId) -> bool;

    /// Time for which a cached class may be used without [`Part::note`], ns; `None`: for ever.
    fn note_interval(&self) -> Option<u64> {
        None
    }

    /// Notes what a request of `class` with `attrs` says beside its class.
    fn note(&mut self, _class: ClassId, _attrs: &Attrs, _now: u64) {}

    /// Appends `item` to `class`.
    /// Hands the item back if the part declines it; the fallback takes it then.
    fn enqueue(&mut self, item: I, class: ClassId, now: u64) -> core::result::Result<(), I>;

    /// Takes a request out that was queued in `class`, because it goes elsewhere; it is not charged.
    /// `None` if it is not queued here.
    fn dequeue(&mut self, class: ClassId, place: &I::Place, now: u64) -> Option<I>;

    /// Decides which request is served next, and takes it out.
    fn get(&mut self, view: &View<'_>) -> Get<(I, Grant)>;

    /// Returns until when [`Part::get`] would throttle all queued requests at `now`, ns; `None` if it would not, or
    /// would have to look at limits of a class to know.
    fn throttled(&self, _now: u64) -> Option<u64> {
        None
    }

    /// Returns what [`Part::get`] would answer, and changes nothing.
    ///
    /// `Empty` and `Throttled` are exact. After `Item`, a policy that keeps the limits of classes lazily (tbf, qbm) may
    /// find in [`Part::get`] that the first classes are throttled still.
    fn peek(&self, view: &View<'_>) -> Get<()> {
        match self.throttled(view.now) {
            _ if self.is_empty() => Get::Empty,
            Some(until) if !view.force => Get::Throttled { until },
            _ => Get::Item(()),
        }
    }

    /// Returns [`Part::ONLY_CLASS`].
    fn only_class(&self) -> Option<ClassId> {
        Self::ONLY_CLASS
    }

    /// Counts a request of `class` that is served at once, without queueing. Its end is not told, so it
    /// does not hold the class. `now` is asked only by policies that need the time.
    fn pass(&mut self, class: ClassId, cost: Cost, way: Way, now: impl FnOnce() -> u64) -> Passed;

    /// Returns whether requests that pass by [`Way::Opportunity`] are never refused and change nothing but counts, so that
    /// they may be counted later, many at a time.
    fn passes_freely(&self) -> bool {
        false
    }

    /// Counts `requests` requests of `class`, of `pages` in all, that passed freely.
    fn count_passed(&mut self, _class: ClassId, _requests: u32, _pages: u64) {}

    /// Counts the end of a request that [`Part::get`] handed out with `grant`, and that costs `cost`;
    /// nothing if the class left.
    fn stop(&mut self, grant: &Grant, cost: Cost, now: u64);

    /// Number of queued requests.
    fn len(&self) -> u32;

    /// Whether nothing is queued.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What memory the part wants so that it can go on creating classes.
    fn need(&self) -> Self::Need;

    /// Takes memory; what it has no use for comes back, to be freed outside the lock.
    fn grow(&mut self, spare: Self::Spare) -> Self::Spare;

    /// Forgets idle classes that were not used for a while, and does other upkeep; looks at most at `max`
    /// classes per call, and answers whether there may be more to forget. To be called every second or more
    /// often.
    fn age(&mut self, _now: u64, _max: u32) -> bool {
        false
    }

    /// Takes over `update`, which is in effect from now on; hands back what it replaces, to be dropped
    /// without the lock.
    fn update(&mut self, update: Self::Update, now: u64) -> Self::Update;

    /// Applies what was taken over last to at most `max` classes from slot `from` on; returns the slot to
    /// go on from, or `None` at the end.
    fn refresh(&mut self, _from: u32, _max: u32, _now: u64) -> Option<u32> {
        None
    }

    /// Sets the counters of all classes from slot `from` on to zero, at most `max`; returns like
    /// [`Part::refresh`].
    fn reset(&mut self, _from: u32, _max: u32) -> Option<u32> {
        None
    }

    /// Requests that the default class took because no class could be made.
    fn overflow(&self) -> u64 {
        0
    }

    /// Adds the counters of the policy as a whole to `sums`, in the order of their rows.
    fn add_counts(&self, _sums: &mut [u64]) {}

    /// Whether classes follow something that is counted or goes by meanwhile, so that [`Part::refresh`] is wanted at the
    /// upkeep of `now`, ns.
    fn wants_refresh(&self, _now: u64) -> bool {
        false
    }

    /// Whether decisions look at the published shares ([`View::table`]).
    fn wants_table(&self) -> bool {
        false
    }

    /// Copies what shares are made from of the classes from slot `from` on into `out` until it is full; returns
    /// the slot to go on from, or `None` at the end.
    ///
    /// Asked once at each upkeep, so that samples can be taken, too; `now` in ns.
    fn briefs(&mut self, _from: u32, _now: u64, _out: &mut BriefBuf) -> Option<u32> {
        None
    }

    /// Copies what an agent is told of the classes from slot `from` on into `out` until it is full; returns like
    /// [`Part::briefs`]. See [`crate::sched::agent`].
    fn reports(&self, _from: u32, _out: &mut ReportBuf) -> Option<u32> {
        None
    }

    /// Returns the name of the level and the key of the class that [`Part::reports`] calls `id`.
    fn name_of(&self, _id: u64) -> Option<(&'static str, Key)> {
        None
    }

    /// Returns a hash of what parts of several servers have to have alike so that an agent may compare their reports; 0
    /// without reports.
    fn terms(&self) -> u64 {
        0
    }
}

/// Makes a part where it is to stay; a function of its own, so that the stack holds one kind of part at a
/// time.
#[inline(never)]
fn own<T>(
    make: impl FnOnce() -> core::result::Result<T, NoMemory>,
) -> core::result::Result<Owned<T>, NoMemory> {
    Owned::new(make()?)
}

/// Counters that a policy has as a whole, at most.
pub const COUNTS_MAX: usize = {
    let (mut kinds, mut max) = (Kind::ALL, 0);
    while let [kind, rest @ ..] = kinds {
        let counts = kind.counts().len();
        max = if counts > max { counts } else { max };
        kinds = rest;
    }
    max
};

/// Classes that one lock hold may look at.
pub const ROWS: usize = 64;

impl Kind {
    /// The policy of a head that nothing else was started on, and the one that serves what another declines.
    pub const FALLBACK: Self = Self::Fifo;

    /// The policy called `name`.
    /// `ENOENT`: there is none.
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
