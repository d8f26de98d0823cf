// SPDX-License-Identifier: GPL-2.0-only

//! What a policy does for a whole service, beside its parts: what the service keeps for it, and the parameters
//! that it shows and carries out itself.
//!
//! ```text
//!             store                 change: a copy, all of it or nothing          is_news: update
//!   text ─────────────▶ the policy ─────────────────────────────────────▶ kept ───────────────────▶ parts
//!             show                           running: each part in turn
//!   text ◀───────────── the policy ◀───────────────────────────────────── parts
//! ```
//!
//! # Context
//!
//! All of this may sleep.

use super::{
    AnyOverseer, AnyPart, AnyUpdate, Config, Configuration, Kept, Kind, Nothing, Part, ROWS,
};
use crate::sched::{
    agent::{Lease, Pairs},
    attr::Priority,
    error::{Code, Error, Result},
    item::Item,
    mem::{NoMemory, Shared},
    parameters::Values,
    text::Heads,
};
use core::fmt::Write;

/// What is of each head, regular first.
pub type ByHead<T> = [T; 2];

/// What is set of a service: all of it.
#[derive(Clone)]
pub struct Parameters {
    /// Values.
    pub values: Values,
    /// What is more than a value.
    pub kept: Kept,
}

impl Parameters {
    /// See [`Keep::check`].
    pub fn check(&self) -> Result {
        self.kept.check(&self.values.policies)
    }

    /// See [`Keep::update`].
    pub fn update(
        &mut self,
        config: &Config,
        priority: Priority,
    ) -> core::result::Result<Option<AnyUpdate>, NoMemory> {
        let tunables = &self.values.policies;
        self.kept.update(config, tunables, priority)
    }

    /// Whether parts that were started with `config` are to be told of these, who were told of `old`; see
    /// [`Keep::is_news`].
    pub fn is_news(&self, old: &Self, config: &Config, priority: Priority) -> bool {
        let before = (&old.kept, &old.values.policies);
        let tunables = &self.values.policies;
        self.kept.is_news(config, tunables, before, priority)
    }
}

/// What a service keeps for a policy with configurations `C`; cheap to clone. What it shares is never changed, but
/// replaced.
pub trait Keep<C: Configuration>: Clone {
    /// What is kept before anything is set.
    fn empty() -> core::result::Result<Self, NoMemory>;

    /// Follows a change of what runs on the heads from `old` to `new`, if that is the policy.
    /// After an error it is to be dropped.
    fn follow(
        &mut self,
        _old: &ByHead<Option<C>>,
        _new: &ByHead<Option<C>>,
    ) -> core::result::Result<(), NoMemory> {
        Ok(())
    }

    /// Says whether values suit what is kept.
    ///
    /// # Errors
    ///
    /// `EBUSY`: they do not.
    fn check(&self, _tunables: &C::Tunables) -> Result {
        Ok(())
    }

    /// What parts that were started with `config` on the head of `priority` are told, when they are made and
    /// whenever it is news.
    fn update(
        &mut self,
        _config: &C,
        _tunables: &C::Tunables,
        _priority: Priority,
    ) -> core::result::Result<Option<C::Update>, NoMemory> {
        Ok(None)
    }

    /// Whether parts that were started with `config` on the head of `priority` are to be told of this, who were told of
    /// `old`.
    fn is_news(
        &self,
        _config: &C,
        _tunables: &C::Tunables,
        _old: &Self,
        _old_tunables: &C::Tunables,
        _priority: Priority,
    ) -> bool {
        false
    }

    /// The parameters that the policy shows and carries out itself.
    fn texts<H: Host + 'static>() -> &'static [Text<H>] {
        &[]
    }

    /// Returns how often the parts on the regular head were started, from 1, if they run and take factors
    /// ([`crate::sched::agent`]).
    fn starts(&self) -> Option<u64> {
        None
    }

    /// Replaces the factors of classes by `pairs`, in force while `lease` lasts; called only if parts take factors.
    fn set_factors(
        &mut self,
        _pairs: Pairs,
        _lease: &Shared<Lease>,
    ) -> core::result::Result<(), NoMemory> {
        Ok(())
    }

    /// Returns the lease of the factors, if there are some.
    fn lease(&self) -> Option<&Shared<Lease>> {
        None
    }
}

impl<C: Configuration> Keep<C> for Nothing {
    fn empty() -> core::result::Result<Self, NoMemory> {
        Ok(Self)
    }
}

/// A part that runs on a head, in its partition.
pub trait Running {
    /// Its requests.
    type Item: Item;

    /// The CPT of the partition.
    fn cpt(&self) -> u16;

    /// The head.
    fn priority(&self) -> Priority;

    /// Runs `f` with the lock of the partition held; `None` if nothing but the fallback runs there. What is long is
    /// done in several calls.
    fn with<R>(&self, f: impl FnOnce(&mut AnyPart<Self::Item>) -> Option<R>) -> Option<R>;
}

/// The parts of a service.
pub trait Parts {
    /// Their requests.
    type Item: Item;

    /// Monotonic nanoseconds.
    fn now(&self) -> u64;

    /// Those that run, without those that are being drained.
    fn running(&self) -> impl Iterator<Item = impl Running<Item = Self::Item>>;
}

/// Has all classes of the part in `running` follow what it was told last, at `now`, ns.
pub fn refresh(running: &impl Running, now: u64) {
    let mut from = Some(0);
    while let Some(slot) = from {
        from = running.with(|part| part.refresh(slot, ROWS as u32, now));
    }
}

/// Refreshes the part in `running` if the part wants that at `now`, ns ([`Part::wants_refresh`]).
pub fn refresh_stale(running: &impl Running, now: u64) {
    if running.with(|part| Some(part.wants_refresh(now))) == Some(true) {
        refresh(running, now);
    }
}

/// What clients of a service are called.
pub trait Scene {
    /// Calls `f` once with the name of device `device` of the service, if there is such a one.
    fn device_name(&self, _device: u32, _f: &mut dyn FnMut(&[u8])) {}

    /// Lets other tasks run; called now and then by what takes long.
    fn reschedule(&self) {}
}

/// Nobody has a name.
impl Scene for Nothing {}

/// What came of a look at all parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Looked {
    /// Somebody may be served who was not.
    pub moved: bool,
    /// Parts are to be refreshed ([`super::Part::refresh`]).
    pub refresh: bool,
}

/// What a policy has looked after several times a second while it runs on any head, beside the parts.
///
/// # Context
///
/// Used with a lock held that requests may wait for: allocations in it start no I/O.
pub trait Oversee<C: Configuration, K>: Sized {
    /// Who oversees parts that are started with `config`, `None` if nobody has to. `seed` must not be known to those
    /// who name classes.
    fn new(_config: &C, _kept: &K, _seed: u64) -> core::result::Result<Option<Self>, NoMemory> {
        Ok(None)
    }

    /// Whether it may go on for parts that are started with `config`.
    fn fits(&self, _config: &C) -> bool {
        true
    }

    /// Goes on with `kept`.
    fn follow(
        &mut self,
        _kept: &K,
        _scene: &dyn Scene,
        _now: u64,
    ) -> core::result::Result<(), NoMemory> {
        Ok(())
    }

    /// What parts are told when they are made.
    fn update(&self) -> Option<C::Update> {
        None
    }

    /// Looks at what came since the last time; with `due`, it is time to judge, too.
    fn look(
        &mut self,
        _now: u64,
        _scene: &dyn Scene,
        _due: bool,
    ) -> core::result::Result<Looked, NoMemory> {
        Ok(Looked::default())
    }
}

impl<C: Configuration, K> Oversee<C, K> for Nothing {}

/// Why a service refuses something.
pub trait Refusal: From<Error> {
    /// The reason, if one is known.
    fn reason(&self) -> Option<Error>;
}

/// A service.
pub trait Host: Parts {
    /// Why it refuses something.
    type Refusal: Refusal;

    /// What is set.
    fn parameters(&self) -> Parameters;

    /// Has `f` note something in what is kept that no part is to be told.
    fn note(&self, f: impl FnOnce(&mut Kept));

    /// Has `f` change a copy of what is set; all of it takes effect, or nothing.
    ///
    /// # Errors
    ///
    /// - What `f` refuses.
    /// - `EAGAIN`: earlier policies are still stopping; `ENOMEM`.
    fn change(
        &self,
        f: impl FnOnce(&mut Parameters) -> Result,
    ) -> core::result::Result<(), Self::Refusal>;

    /// Whether heads that `kind` runs on could start it anew now.
    fn can_restart(&self, kind: Kind) -> bool;

    /// Number of partitions of each target.
    fn cpts(&self) -> u16;

    /// Has `f` look at who oversees, if somebody does.
    fn oversee<R>(&self, f: impl FnOnce(Option<&mut AnyOverseer>, &dyn Scene) -> R) -> R;

    /// Sets the counters of all classes of `kind` to zero.
    fn reset(&self, kind: Kind);
}

/// Bytes that any text may have.
pub const TEXT_MAX: usize = 256 << 10;

/// Writes a text.
pub type Show<H> = fn(&H, &mut dyn Write) -> core::result::Result<(), <H as Host>::Refusal>;

/// Carries a text out.
pub type Store<H> = fn(&H, &str) -> core::result::Result<(), <H as Host>::Refusal>;

/// A parameter that stores no value of its own.
pub struct Text<H: Host> {
    /// Its name.
    pub name: &'static str,
    /// Shows it.
    pub show: Option<Show<H>>,
    /// Carries out what is written.
    pub store: Option<Store<H>>,
    /// Says whether a text may be carried out of which there are only the first lines so far; with it, a text may
    /// have several lines.
    pub check: Option<Store<H>>,
}

impl<H: Host> Text<H> {
    /// Bytes that most texts, and all values, may have.
    pub const LONGEST: usize = 4095;

    const fn new(name: &'static str, show: Option<Show<H>>, store: Option<Store<H>>) -> Self {
        Self {
            name,
            show,
            store,
            check: None,
        }
    }

    /// One that is shown.
    pub const fn read(name: &'static str, show: Show<H>) -> Self {
        Self::new(name, Some(show), None)
    }

    /// One that does something when it is written.
    pub const fn write(name: &'static str, store: Store<H>) -> Self {
        Self::new(name, None, Some(store))
    }

    /// One that is shown and written.
    pub const fn both(name: &'static str, show: Show<H>, store: Store<H>) -> Self {
        Self::new(name, Some(show), Some(store))
    }

    /// The same with texts of several lines and up to [`TEXT_MAX`] bytes.
    pub const fn in_lines(self, check: Store<H>) -> Self {
        Self {
            check: Some(check),
            ..self
        }
    }

    /// Bytes that it may have.
    pub const fn longest(&self) -> usize {
        match self.check {
            Some(_) => TEXT_MAX,
            None => Self::LONGEST,
        }
    }
}

/// Writes why something was refused, nothing if nothing was.
pub fn show_error<E: From<Error>>(
    out: &mut dyn Write,
    error: Option<Error>,
) -> core::result::Result<(), E> {
    match error {
        Some(error) => Ok(writeln!(out, "{error}").map_err(Error::from)?),
        None => Ok(()),
    }
}

/// Whether a command for `heads` is for the head of `priority`.
pub fn addresses(heads: Heads, priority: Priority) -> bool {
    match heads {
        Heads::All => true,
        Heads::Regular => priority == Priority::Regular,
        Heads::High => priority == Priority::High,
    }
}

/// A text has no room for more.
impl From<core::fmt::Error> for Error {
    fn from(_: core::fmt::Error) -> Self {
        Self::new(Code::NoSpace, "no room for the text")
    }
}

impl From<NoMemory> for Error {
    fn from(_: NoMemory) -> Self {
        Self::new(Code::NoMemory, "out of memory")
    }
}

/// Defines what stands for the controls of any policy; part of [`super::any::policies`].
macro_rules! controls {
    ($($(#[$only:meta])? $name:ident: $module:ident),+) => {
        /// What a service keeps for each policy.
        #[derive(Clone)]
        pub struct Kept {
            $(#[doc = concat!("For `", stringify!($module), "`.")] $(#[$only])?
            pub $module: $module::Kept,)+
        }

        impl Kept {
            /// What is kept before anything is set; sleeps.
            pub fn empty() -> core::result::Result<Self, NoMemory> {
                Ok(Self {
                    $($(#[$only])? $module: Keep::<$module::Config>::empty()?,)+
                })
            }

            /// See [`Keep::follow`].
            /// After an error it is to be dropped.
            pub fn follow(
                &mut self,
                old: &ByHead<Option<Config>>,
                new: &ByHead<Option<Config>>,
            ) -> core::result::Result<(), NoMemory> {
                $($(#[$only])? {
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

            /// See [`Keep::check`].
            pub fn check(&self, tunables: &Tunables) -> Result {
                $($(#[$only])? Keep::<$module::Config>::check(&self.$module, &tunables.$module)?;)+
                Ok(())
            }

            /// See [`Keep::update`].
            pub fn update(
                &mut self,
                config: &Config,
                tunables: &Tunables,
                priority: Priority,
            ) -> core::result::Result<Option<AnyUpdate>, NoMemory> {
                Ok(match config {
                    $($(#[$only])? Config::$name(config) => {
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
                    $($(#[$only])? Config::$name(config) => Keep::<$module::Config>::is_news(
                        &self.$module,
                        config,
                        &tunables.$module,
                        &old.$module,
                        &old_tunables.$module,
                        priority,
                    ),)+
                }
            }

            /// See [`Keep::starts`], of the policy that takes factors.
            pub fn starts(&self) -> Option<u64> {
                let all = [$($(#[$only])? Keep::<$module::Config>::starts(&self.$module)),+];
                all.into_iter().flatten().next()
            }

            /// See [`Keep::set_factors`], of the policy that takes factors.
            pub fn set_factors(
                &mut self,
                pairs: Pairs,
                lease: &Shared<Lease>,
            ) -> core::result::Result<(), NoMemory> {
                $($(#[$only])? {
                    let kept = &mut self.$module;
                    if Keep::<$module::Config>::starts(kept).is_some() {
                        return Keep::<$module::Config>::set_factors(kept, pairs, lease);
                    }
                })+
                Ok(())
            }

            /// See [`Keep::lease`], of the policy that has factors.
            pub fn lease(&self) -> Option<&Shared<Lease>> {
                let all = [$($(#[$only])? Keep::<$module::Config>::lease(&self.$module)),+];
                all.into_iter().flatten().next()
            }

            /// The parameters that policies show and carry out themselves.
            pub fn texts<H: Host + 'static>() -> impl Iterator<Item = &'static Text<H>> {
                let all = [$($(#[$only])? <$module::Kept as Keep<$module::Config>>::texts::<H>()),+];
                all.into_iter().flatten()
            }
        }

        /// Who oversees the parts of a policy.
        pub enum AnyOverseer {
            $(#[doc = concat!("Of `", stringify!($module), "`.")] $(#[$only])?
            $name($module::Overseer),)+
        }

        impl AnyOverseer {
            /// See [`Oversee::new`], of the first of `configs` that needs one.
            #[inline(never)]
            pub fn new(
                configs: &[Option<Config>],
                kept: &Kept,
                seed: u64,
            ) -> core::result::Result<Option<Self>, NoMemory> {
                for config in configs.iter().flatten() {
                    let overseer = match config {
                        $($(#[$only])? Config::$name(config) => {
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
                    $($(#[$only])? (Self::$name(overseer), Config::$name(config)) => {
                        Some(Oversee::<_, $module::Kept>::fits(overseer, config))
                    })+
                    _ => None,
                });
                fits == Some(true)
            }

            /// See [`Oversee::follow`].
            pub fn follow(
                &mut self,
                kept: &Kept,
                scene: &dyn Scene,
                now: u64,
            ) -> core::result::Result<(), NoMemory> {
                match self {
                    $($(#[$only])? Self::$name(overseer) => Oversee::<$module::Config, _>::follow(
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
                    $($(#[$only])? Self::$name(overseer) => {
                        let update = Oversee::<$module::Config, $module::Kept>::update(overseer);
                        update.map(AnyUpdate::$name)
                    })+
                }
            }

            /// See [`Oversee::look`].
            pub fn look(
                &mut self,
                now: u64,
                scene: &dyn Scene,
                due: bool,
            ) -> core::result::Result<Looked, NoMemory> {
                match self {
                    $($(#[$only])? Self::$name(overseer) => {
                        Oversee::<$module::Config, $module::Kept>::look(overseer, now, scene, due)
                    })+
                }
            }

            /// Its policy.
            pub const fn kind(&self) -> Kind {
                match self {
                    $($(#[$only])? Self::$name(_) => Kind::$name,)+
                }
            }
        }
    };
}

pub(crate) use controls;
