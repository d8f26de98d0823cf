// SPDX-License-Identifier: GPL-2.0-only

//! The seam between heads and policies.
//!
//! A policy is a folder with
//!
//! - `Tunables` and `PARAMETERS`: what users set of it ([`Tuning`]),
//! - `Config`: a start, parsed and checked, never changed ([`Configuration`]),
//! - `State`: what it has of one head ([`Part`], `&mut` under the partition's lock),
//! - `Shared`: what its parts share, `&self`,
//! - `Update`: what parts are told while they run,
//! - `Kept`: what a service keeps for it beside values, and the texts that it shows and carries out ([`Keep`]),
//! - `Overseer`: what looks at its parts at intervals ([`Oversee`]).
//!
//! Of the last four it may have [`Nothing`]. A change of configuration starts new parts and drains the old ones
//! ([`crate::sched::head`]), so a part never has to change its mind about requests that it already holds. The engine asks
//! policies by these traits only; it names none, which a test of the host sees to.
//!
//! # Adding a policy
//!
//! One folder in `policy/`, one line in the registry at the end of this file, one page in Documentation/.

use crate::sched::{
    attr::{Attrs, Priority},
    class::ClassId,
    error::{Code, Error, Result},
    item::{Cost, Item},
    mem::{Need, NoMemory, Owned, Shared},
    parameters::Parameter,
    ranges::{BriefBuf, Table},
};
use core::fmt;

pub(crate) mod config;
pub(crate) mod control;
pub(crate) mod crrn;
pub(crate) mod delay;
pub(crate) mod fairshare;
pub(crate) mod fifo;
pub(crate) mod kept;
pub(crate) mod orr;
pub(crate) mod params;
pub(crate) mod qbm;
pub(crate) mod robin;
pub(crate) mod tbf;
pub(crate) mod trr;

use params::{BufferMax, ClassesMax};

pub use config::{Configuration, Tuning, Upkeep};
use control::{ByHead, Host, Keep, Looked, Oversee, Parts, Scene, Text};

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

impl Nothing {
    /// It makes no difference.
    pub const PER_TARGET: bool = false;

    /// Nothing.
    ///
    /// # Errors
    ///
    /// None.
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
    /// The service is under-loaded; if the policy refuses, the request is queued.
    Opportunity,
    /// It must not be withheld; its class owes for it.
    Forced,
}

/// What a part answers to a request that goes down without queueing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Passed {
    /// It is counted and may go.
    Counted,
    /// It has to queue; never for [`Way::Forced`].
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

    /// The class of a request with `attrs`; creates it from reserved memory.
    ///
    /// Never fails: when the reserve or the bound is used up, the default class serves and a counter
    /// says so.
    fn classify(&mut self, attrs: &Attrs, now: u64) -> ClassId;

    /// Whether a cached `class` may be used again: it still names a class of this part, and not one that
    /// only stands in for others.
    fn is_live(&self, class: ClassId) -> bool;

    /// Appends `item` to `class`.
    ///
    /// # Errors
    ///
    /// Hands the item back if the part declines it; the fallback takes it then.
    fn enqueue(&mut self, item: I, class: ClassId, now: u64) -> core::result::Result<(), I>;

    /// Takes a request out that was queued in `class`, because it goes elsewhere; it is not charged.
    /// `None` if it is not queued here.
    fn dequeue(&mut self, class: ClassId, place: &I::Place, now: u64) -> Option<I>;

    /// Decides which request is served next, and takes it out.
    fn get(&mut self, view: &View<'_>) -> Get<(I, Grant)>;

    /// Counts a request of `class` that is served at once, without queueing. Its end is not told, so it
    /// does not hold the class. `now` is asked only by policies that need the time.
    fn pass(&mut self, class: ClassId, cost: Cost, way: Way, now: impl FnOnce() -> u64) -> Passed;

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

    /// Whether classes follow something that is counted meanwhile, so that [`Part::refresh`] is wanted at each
    /// upkeep.
    fn wants_refresh(&self) -> bool {
        false
    }

    /// Copies what shares are made from of the classes from slot `from` on into `out` until it is full; returns
    /// the slot to go on from, or `None` at the end.
    ///
    /// Asked once at each upkeep, so that samples can be taken, too; `now` in ns.
    fn briefs(&mut self, _from: u32, _now: u64, _out: &mut BriefBuf) -> Option<u32> {
        None
    }
}

/// Writes why something was refused, nothing if nothing was.
fn show_error<E: From<Error>>(
    out: &mut dyn fmt::Write,
    error: Option<Error>,
) -> core::result::Result<(), E> {
    match error {
        Some(error) => Ok(writeln!(out, "{error}").map_err(Error::from)?),
        None => Ok(()),
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

/// Classes that one lock hold may look at.
pub const ROWS: usize = 64;

/// Defines the types that stand for any policy, from lines `Name: module`.
///
/// Each module has `Tunables`, `PARAMETERS`, `Kept`, `Overseer`, `Config`, `Shared`, `Update` and `State<I>`, which is a [`Part`].
macro_rules! policies {
    ($($name:ident: $module:ident),+ $(,)?) => {
        /// The policies there are.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Kind {
            $(#[doc = concat!("The policy `", stringify!($module), "`.")] $name,)+
        }

        impl Kind {
            /// All policies.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// The name users know it by.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($module),)+
                }
            }
        }

        /// What users can set for each policy; it survives stops and starts.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Tunables {
            $(#[doc = concat!("Those of `", stringify!($module), "`.")]
            pub $module: $module::Tunables,)+
        }

        impl Tuning for Tunables {
            fn check(&self) -> Result {
                $(self.$module.check()?;)+
                Ok(())
            }

            fn set_classes_max(&mut self, max: ClassesMax) {
                $(self.$module.set_classes_max(max);)+
            }

            fn set_buffer_max(&mut self, max: BufferMax) {
                $(self.$module.set_buffer_max(max);)+
            }
        }

        impl Tunables {
            /// What the engine does at intervals: as the first policy says that says something.
            pub fn upkeep(&self) -> Upkeep {
                let all = [$(self.$module.upkeep()),+];
                all.into_iter().flatten().next().unwrap_or_default()
            }
        }

        /// What a service keeps for each policy.
        #[derive(Clone)]
        pub struct Kept {
            $(#[doc = concat!("For `", stringify!($module), "`.")]
            pub $module: $module::Kept,)+
        }

        impl Kept {
            /// What is kept before anything is set; sleeps.
            ///
            /// # Errors
            ///
            /// - [`NoMemory`]: the allocator had none.
            pub fn empty() -> core::result::Result<Self, NoMemory> {
                Ok(Self {
                    $($module: Keep::<$module::Config>::empty()?,)+
                })
            }

            /// See [`Keep::follow`].
            ///
            /// # Errors
            ///
            /// - [`NoMemory`]: the allocator had none; to be dropped then.
            pub fn follow(
                &mut self,
                old: &ByHead<Option<Config>>,
                new: &ByHead<Option<Config>>,
            ) -> core::result::Result<(), NoMemory> {
                $({
                    let own = |config: &Option<Config>| match config {
                        Some(Config::$name(config)) => Some(*config),
                        _ => None,
                    };
                    Keep::<$module::Config>::follow(
                        &mut self.$module,
                        &old.each_ref().map(own),
                        &new.each_ref().map(own),
                    )?;
                })+
                Ok(())
            }

            /// See [`Keep::update`].
            ///
            /// # Errors
            ///
            /// - [`NoMemory`]: the allocator had none.
            pub fn update(
                &mut self,
                config: &Config,
                tunables: &Tunables,
                priority: Priority,
            ) -> core::result::Result<Option<AnyUpdate>, NoMemory> {
                Ok(match config {
                    $(Config::$name(config) => {
                        let kept = &mut self.$module;
                        let update = Keep::update(kept, config, &tunables.$module, priority)?;
                        update.map(AnyUpdate::$name)
                    })+
                })
            }

            /// See [`Keep::is_news`], for parts that were started with `config`.
            pub fn is_news(
                &self,
                config: &Config,
                tunables: &Tunables,
                (old, old_tunables): (&Self, &Tunables),
                priority: Priority,
            ) -> bool {
                match config {
                    $(Config::$name(_) => Keep::<$module::Config>::is_news(
                        &self.$module,
                        &tunables.$module,
                        &old.$module,
                        &old_tunables.$module,
                        priority,
                    ),)+
                }
            }

            /// The parameters that policies show and carry out themselves.
            pub fn texts<H: Host + 'static>() -> impl Iterator<Item = &'static Text<H>> {
                let all = [$(<$module::Kept as Keep<$module::Config>>::texts::<H>()),+];
                all.into_iter().flatten()
            }
        }

        /// Who oversees the parts of a policy.
        pub enum AnyOverseer {
            $(#[doc = concat!("Of `", stringify!($module), "`.")]
            $name($module::Overseer),)+
        }

        impl AnyOverseer {
            /// See [`Oversee::new`], of the first of `configs` that needs one.
            ///
            /// # Errors
            ///
            /// - [`NoMemory`]: the allocator had none.
            #[inline(never)]
            pub fn new(
                configs: &[Option<Config>],
                kept: &Kept,
                seed: u64,
            ) -> core::result::Result<Option<Self>, NoMemory> {
                for config in configs.iter().flatten() {
                    let overseer = match config {
                        $(Config::$name(config) => {
                            let overseer: Option<$module::Overseer> =
                                Oversee::new(config, &kept.$module, seed)?;
                            overseer.map(Self::$name)
                        })+
                    };
                    if overseer.is_some() {
                        return Ok(overseer);
                    }
                }
                Ok(None)
            }

            /// See [`Oversee::fits`], of the first of `configs` that it is for.
            pub fn fits(&self, configs: &[Option<Config>]) -> bool {
                let mut configs = configs.iter().flatten();
                let fits = configs.find_map(|config| match (self, config) {
                    $((Self::$name(overseer), Config::$name(config)) => {
                        Some(Oversee::<_, $module::Kept>::fits(overseer, config))
                    })+
                    _ => None,
                });
                fits == Some(true)
            }

            /// See [`Oversee::follow`].
            ///
            /// # Errors
            ///
            /// - [`NoMemory`]: the allocator had none; nothing is changed then.
            pub fn follow(
                &mut self,
                kept: &Kept,
                scene: &dyn Scene,
                now: u64,
            ) -> core::result::Result<(), NoMemory> {
                match self {
                    $(Self::$name(overseer) => Oversee::<$module::Config, _>::follow(
                        overseer,
                        &kept.$module,
                        scene,
                        now,
                    ),)+
                }
            }

            /// See [`Oversee::update`].
            pub fn update(&self) -> Option<AnyUpdate> {
                match self {
                    $(Self::$name(overseer) => {
                        let update = Oversee::<$module::Config, $module::Kept>::update(overseer);
                        update.map(AnyUpdate::$name)
                    })+
                }
            }

            /// See [`Oversee::look`].
            ///
            /// # Errors
            ///
            /// - [`NoMemory`]: the allocator had none; the next look tries again.
            pub fn look(
                &mut self,
                parts: &impl Parts,
                scene: &dyn Scene,
                due: bool,
            ) -> core::result::Result<Looked, NoMemory> {
                match self {
                    $(Self::$name(overseer) => {
                        Oversee::<$module::Config, $module::Kept>::look(overseer, parts, scene, due)
                    })+
                }
            }

            /// Its policy.
            pub const fn kind(&self) -> Kind {
                match self {
                    $(Self::$name(_) => Kind::$name,)+
                }
            }
        }

        /// The parameters of each policy.
        pub static PARAMETERS: &[&[Parameter]] = &[$($module::PARAMETERS),+];

        /// The configuration of any policy.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Config {
            $(#[doc = concat!("Of `", stringify!($module), "`.")] $name($module::Config),)+
        }

        impl Config {
            /// The configuration of a policy that is started with argument `arg`.
            ///
            /// # Errors
            ///
            /// - `EINVAL`: the policy does not take the argument.
            pub fn parse(kind: Kind, arg: Option<&str>, tunables: &Tunables) -> Result<Self> {
                Ok(match kind {
                    $(Kind::$name => {
                        Self::$name($module::Config::parse(arg, &tunables.$module)?)
                    })+
                })
            }

            /// See [`Configuration::with`].
            pub fn with(&self, tunables: &Tunables) -> Self {
                match self {
                    $(Self::$name(config) => Self::$name(config.with(&tunables.$module)),)+
                }
            }

            /// See [`Configuration::on`].
            pub fn on(self, priority: Priority) -> Self {
                match self {
                    $(Self::$name(config) => Self::$name(config.on(priority)),)+
                }
            }

            /// See [`Configuration::update_to`].
            pub fn update_to(&self, new: &Self) -> Option<AnyUpdate> {
                match (self, new) {
                    $((Self::$name(old), Self::$name(new)) => {
                        old.update_to(new).map(AnyUpdate::$name)
                    })+
                    _ => None,
                }
            }

            /// The policy.
            pub const fn kind(&self) -> Kind {
                match self {
                    $(Self::$name(_) => Kind::$name,)+
                }
            }

            /// Whether what its parts share is of one target each, not of all targets of a service.
            pub const fn is_per_target(&self) -> bool {
                match self {
                    $(Self::$name(_) => $module::Shared::PER_TARGET,)+
                }
            }

            /// The argument the policy was started with.
            pub fn argument(&self) -> Option<&dyn fmt::Display> {
                match self {
                    $(Self::$name(config) => config.argument(),)+
                }
            }
        }

        /// What memory a part of any policy wants.
        pub enum AnyNeed<I: Item> {
            $(#[doc = concat!("One of `", stringify!($module), "`.")]
            $name(<$module::State<I> as Part<I>>::Need),)+
        }

        impl<I: Item> Clone for AnyNeed<I> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<I: Item> Copy for AnyNeed<I> {}

        /// Memory for a part of any policy.
        pub enum AnySpare<I: Item> {
            $(#[doc = concat!("One of `", stringify!($module), "`.")]
            $name(<$module::State<I> as Part<I>>::Spare),)+
        }

        impl<I: Item> Need for AnyNeed<I> {
            type Spare = AnySpare<I>;

            fn is_empty(&self) -> bool {
                match self {
                    $(Self::$name(need) => need.is_empty(),)+
                }
            }

            fn allocate(&self) -> core::result::Result<AnySpare<I>, NoMemory> {
                match self {
                    $(Self::$name(need) => need.allocate().map(AnySpare::$name),)+
                }
            }
        }

        /// A part of any policy.
        pub enum AnyPart<I: Item> {
            $(#[doc = concat!("One of `", stringify!($module), "`.")]
            $name(Owned<$module::State<I>>),)+
        }

        /// What the parts of one head share, of any policy; clones are the same.
        #[derive(Clone)]
        pub enum AnyShared {
            $(#[doc = concat!("Of `", stringify!($module), "`.")]
            $name(Shared<$module::Shared>),)+
        }

        impl AnyShared {
            /// What the `parts` parts of a policy started with `config` share; sleeps.
            ///
            /// `seed` is that of the service: what parts of different heads, or of one start and the next,
            /// make of it is the same. It must not be known to those who name classes.
            ///
            /// # Errors
            ///
            /// - [`NoMemory`]: the allocator had none.
            pub fn new(
                config: &Config,
                seed: u64,
                parts: u32,
            ) -> core::result::Result<Self, NoMemory> {
                Ok(match config {
                    $(Config::$name(config) => {
                        Self::$name(Shared::new($module::Shared::new(config, seed, parts)?)?)
                    })+
                })
            }
        }

        /// What a part of any policy is told.
        #[derive(Clone)]
        pub enum AnyUpdate {
            $(#[doc = concat!("For one of `", stringify!($module), "`.")]
            $name($module::Update),)+
        }

        impl<I: Item> AnyPart<I> {
            /// A part with nothing queued and its first reserve of memory; sleeps.
            ///
            /// `seed` makes its random choices and must not be known to those who name classes.
            /// `shared` was made from the same `config`.
            ///
            /// # Errors
            ///
            /// - [`NoMemory`]: the allocator had none, or `shared` is another policy's.
            pub fn new(
                config: &Config,
                seed: u64,
                shared: &AnyShared,
            ) -> core::result::Result<Self, NoMemory> {
                Ok(match (config, shared) {
                    $((Config::$name(config), AnyShared::$name(shared)) => {
                        Self::$name(own(|| $module::State::new(config, seed, shared))?)
                    })+
                    _ => return Err(NoMemory),
                })
            }

            /// Whether parts of `kind` ask which file a request is for.
            pub const fn wants_file(kind: Kind) -> bool {
                match kind {
                    $(Kind::$name => <$module::State<I> as Part<I>>::WANTS_FILE,)+
                }
            }

            /// Its policy.
            pub const fn kind(&self) -> Kind {
                match self {
                    $(Self::$name(_) => Kind::$name,)+
                }
            }

            $(#[doc = concat!("The part, if it is one of `", stringify!($module), "`.")]
            #[allow(dead_code, reason = "not every policy has something of its own to ask for")]
            pub fn $module(&self) -> Option<&$module::State<I>> {
                match self {
                    Self::$name(part) => Some(part),
                    #[allow(unreachable_patterns, reason = "there may be one policy only")]
                    _ => None,
                }
            })+
        }

        impl<I: Item> Part<I> for AnyPart<I> {
            type Need = AnyNeed<I>;
            type Spare = AnySpare<I>;
            type Shared = AnyShared;
            type Update = AnyUpdate;

            fn classify(&mut self, attrs: &Attrs, now: u64) -> ClassId {
                match self {
                    $(Self::$name(part) => part.classify(attrs, now),)+
                }
            }

            fn is_live(&self, class: ClassId) -> bool {
                match self {
                    $(Self::$name(part) => part.is_live(class),)+
                }
            }

            fn enqueue(
                &mut self,
                item: I,
                class: ClassId,
                now: u64,
            ) -> core::result::Result<(), I> {
                match self {
                    $(Self::$name(part) => part.enqueue(item, class, now),)+
                }
            }

            fn dequeue(&mut self, class: ClassId, place: &I::Place, now: u64) -> Option<I> {
                match self {
                    $(Self::$name(part) => part.dequeue(class, place, now),)+
                }
            }

            fn get(&mut self, view: &View<'_>) -> Get<(I, Grant)> {
                match self {
                    $(Self::$name(part) => part.get(view),)+
                }
            }

            fn pass(
                &mut self,
                class: ClassId,
                cost: Cost,
                way: Way,
                now: impl FnOnce() -> u64,
            ) -> Passed {
                match self {
                    $(Self::$name(part) => part.pass(class, cost, way, now),)+
                }
            }

            fn stop(&mut self, grant: &Grant, cost: Cost, now: u64) {
                match self {
                    $(Self::$name(part) => part.stop(grant, cost, now),)+
                }
            }

            fn len(&self) -> u32 {
                match self {
                    $(Self::$name(part) => part.len(),)+
                }
            }

            fn need(&self) -> AnyNeed<I> {
                match self {
                    $(Self::$name(part) => AnyNeed::$name(part.need()),)+
                }
            }

            /// Memory meant for a part of another policy comes back whole.
            fn grow(&mut self, spare: AnySpare<I>) -> AnySpare<I> {
                match (self, spare) {
                    $((Self::$name(part), AnySpare::$name(spare)) => {
                        AnySpare::$name(part.grow(spare))
                    })+
                    (_, spare) => spare,
                }
            }

            fn age(&mut self, now: u64, max: u32) -> bool {
                match self {
                    $(Self::$name(part) => part.age(now, max),)+
                }
            }

            /// An update for another policy comes back as it is.
            fn update(&mut self, update: AnyUpdate, now: u64) -> AnyUpdate {
                match (self, update) {
                    $((Self::$name(part), AnyUpdate::$name(update)) => {
                        AnyUpdate::$name(part.update(update, now))
                    })+
                    (_, update) => update,
                }
            }

            fn refresh(&mut self, from: u32, max: u32, now: u64) -> Option<u32> {
                match self {
                    $(Self::$name(part) => part.refresh(from, max, now),)+
                }
            }

            fn reset(&mut self, from: u32, max: u32) -> Option<u32> {
                match self {
                    $(Self::$name(part) => part.reset(from, max),)+
                }
            }

            fn overflow(&self) -> u64 {
                match self {
                    $(Self::$name(part) => part.overflow(),)+
                }
            }

            fn wants_refresh(&self) -> bool {
                match self {
                    $(Self::$name(part) => part.wants_refresh(),)+
                }
            }

            fn briefs(&mut self, from: u32, now: u64, out: &mut BriefBuf) -> Option<u32> {
                match self {
                    $(Self::$name(part) => part.briefs(from, now, out),)+
                }
            }
        }
    };
}

impl Kind {
    /// The policy of a head that nothing else was started on, and the one that serves what another declines.
    pub const FALLBACK: Self = Self::Fifo;

    /// The policy called `name`.
    ///
    /// # Errors
    ///
    /// - `ENOENT`: there is none.
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
}

#[cfg(test)]
mod tests;
