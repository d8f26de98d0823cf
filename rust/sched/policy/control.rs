// SPDX-License-Identifier: GPL-2.0-only

//! Service-wide side of a policy: the state that a service keeps for a policy, and parameters that
//! the policy shows and executes itself.
//!
//! ```text
//!             store                 change: a copy, all or nothing          is_news: update
//!   text ─────────────▶ the policy ──────────────────────────────▶ kept ───────────────────▶ parts
//!             show                           running: each part in turn
//!   text ◀───────────── the policy ◀───────────────────────────────── parts
//! ```
//!
//! # Context
//!
//! All functions may sleep.

use super::{
    AnyOverseer, AnyPart, AnyUpdate, Config, Configuration, Kind, Nothing, Part, PoliciesData, ROWS,
};
use crate::sched::{
    agent::{FactorPairs, Lease},
    attr::Priority,
    capacity::Capacity,
    error::{Code, Error, Result},
    item::Item,
    mem::{NoMemory, Shared},
    owners::Owners,
    parameters::Values,
    report::Report,
    text::Heads,
};
use core::fmt::Write;

/// Values for each head, regular first.
pub type ByHead<T> = [T; 2];

/// All parameters of a service.
#[derive(Clone)]
pub struct Parameters {
    /// Plain values.
    pub values: Values,
    /// State that is more than a value.
    pub kept: PoliciesData,
    /// Owners of cgroups.
    pub owners: Shared<Owners>,
}

impl Parameters {
    /// Creates parameters with `values`, before anything else is set; may sleep.
    pub fn new(values: Values) -> core::result::Result<Self, NoMemory> {
        Ok(Self {
            values,
            kept: PoliciesData::empty()?,
            owners: Shared::new(Owners::new())?,
        })
    }

    /// Verifies that values and kept state fit; see [`Keep::check`].
    pub fn check(&self) -> Result {
        self.kept.check(&self.values.policies)
    }

    /// Returns the update for parts; see [`Keep::update`].
    pub fn update(
        &mut self,
        config: &Config,
        priority: Priority,
    ) -> core::result::Result<Option<AnyUpdate>, NoMemory> {
        let tunables = &self.values.policies;
        self.kept.update(config, tunables, priority)
    }

    /// Returns true if parts that were started with `config` and have the update of `old` need a
    /// new update; see [`Keep::is_news`].
    pub fn is_news(&self, old: &Self, config: &Config, priority: Priority) -> bool {
        let before = (&old.kept, &old.values.policies);
        let tunables = &self.values.policies;
        self.kept.is_news(config, tunables, before, priority)
    }
}

/// State that a service keeps for a policy with configurations `C`; cheap to clone. Data shared
/// between clones is never modified, only replaced.
pub trait Keep<C: Configuration>: Clone {
    /// Returns the state before anything is set.
    fn empty() -> core::result::Result<Self, NoMemory>;

    /// Adjusts the state to a change of the configurations on the heads from `old` to `new`; `None`
    /// stands for other policies. After an error the state must be dropped.
    fn sync(
        &mut self,
        _old: &ByHead<Option<C>>,
        _new: &ByHead<Option<C>>,
    ) -> core::result::Result<(), NoMemory> {
        Ok(())
    }

    /// Verifies that values fit the kept state.
    ///
    /// # Errors
    ///
    /// `EBUSY`: the values do not fit.
    fn check(&self, _tunables: &C::Tunables) -> Result {
        Ok(())
    }

    /// Returns the update for parts that were started with `config` on the head of `priority`.
    /// Parts get it when they are created and whenever [`Keep::is_news`] is true.
    fn update(
        &mut self,
        _config: &C,
        _tunables: &C::Tunables,
        _priority: Priority,
    ) -> core::result::Result<Option<C::Update>, NoMemory> {
        Ok(None)
    }

    /// Returns true if parts that were started with `config` on the head of `priority`, and have
    /// the update of `old`, need a new update.
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

    /// Returns the parameters that the policy shows and executes itself.
    fn texts<H: Host + 'static>() -> &'static [TextParameter<H>] {
        &[]
    }

    /// Continues the state `old` of the running parts with what this state, which a text
    /// created, says; configurations change from `before` to `after`. What is equal stays the same.
    fn resume(
        &mut self,
        _old: &Self,
        _before: &ByHead<Option<C>>,
        _after: &ByHead<Option<C>>,
    ) -> core::result::Result<(), NoMemory> {
        Ok(())
    }

    /// Writes commands, one a line, that set the values of `tunables` that are texts, if they are
    /// not those of `defaults`.
    fn write_values(
        &self,
        _tunables: &C::Tunables,
        _defaults: &C::Tunables,
        _out: &mut dyn Write,
    ) -> core::fmt::Result {
        Ok(())
    }

    /// Writes commands, one a line, that create this state after the policies were started.
    fn write_commands(&self, _out: &mut dyn Write) -> core::fmt::Result {
        Ok(())
    }

    /// Returns the number of starts of the parts on the regular head, from 1, if the parts run and
    /// take factors ([`crate::sched::agent`]).
    fn starts(&self) -> Option<u64> {
        None
    }

    /// Replaces the factors of classes by `pairs`, which are valid while `lease` lasts; called only
    /// if parts take factors.
    fn set_factors(
        &mut self,
        _pairs: FactorPairs,
        _lease: &Shared<Lease>,
    ) -> core::result::Result<(), NoMemory> {
        Ok(())
    }

    /// Returns the capacity that the service measures for the policy.
    fn capacity(&self) -> Option<&Shared<Capacity>> {
        None
    }

    /// Returns the lease of the factors, if factors are set.
    fn lease(&self) -> Option<&Shared<Lease>> {
        None
    }
}

impl<C: Configuration> Keep<C> for Nothing {
    fn empty() -> core::result::Result<Self, NoMemory> {
        Ok(Self)
    }
}

/// Part that runs on a head, in its partition.
pub trait RunningPart {
    /// Type of its requests.
    type Item: Item;

    /// Returns the CPT of the partition.
    fn cpt(&self) -> u16;

    /// Returns the priority of the head.
    fn priority(&self) -> Priority;

    /// Runs `f` under the lock of the partition; returns `None` if only the fallback runs there.
    /// Long operations must be split into several calls.
    fn with<R>(&self, f: impl FnOnce(&mut AnyPart<Self::Item>) -> Option<R>) -> Option<R>;
}

/// Parts of a service.
pub trait Parts {
    /// Type of their requests.
    type Item: Item;

    /// Returns the time, monotonic ns.
    fn now(&self) -> u64;

    /// Returns the running parts, without the parts that are being drained.
    fn running(&self) -> impl Iterator<Item = impl RunningPart<Item = Self::Item>>;
}

/// Applies the last update to all classes of the part in `running`, at `now`, ns.
pub fn refresh(running: &impl RunningPart, now: u64) {
    let mut from = Some(0);
    while let Some(idx) = from {
        from = running.with(|part| part.refresh(idx, ROWS as u32, now));
    }
}

/// Refreshes the part in `running` if [`Part::wants_refresh`] is true at `now`, ns.
pub fn refresh_stale(running: &impl RunningPart, now: u64) {
    if running.with(|part| Some(part.wants_refresh(now))) == Some(true) {
        refresh(running, now);
    }
}

/// Context of an overseer: names of devices, and rescheduling.
pub trait OverseerContext {
    /// Calls `f` once with the name of device `device` of the service, if that device exists.
    fn device_name(&self, _device: u32, _f: &mut dyn FnMut(&[u8])) {}

    /// Lets other tasks run; called at intervals by long operations.
    fn reschedule(&self) {}
}

/// Context without device names.
impl OverseerContext for Nothing {}

/// Result of a periodic look at all parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OverseerOutcome {
    /// True if requests that were throttled may be eligible now.
    pub moved: bool,
    /// True if parts must be refreshed ([`super::Part::refresh`]).
    pub refresh: bool,
}

/// Periodic work of a policy over all parts, done several times a second while the policy runs on
/// any head.
///
/// # Context
///
/// Called with a lock held on which requests may block, so allocations start no I/O.
pub trait Oversee<C: Configuration, K>: Sized {
    /// Creates the overseer of parts that are started with `config`, `None` if they need none.
    /// `seed` must be unknown to clients, which choose the keys of classes.
    fn new(_config: &C, _kept: &K, _seed: u64) -> core::result::Result<Option<Self>, NoMemory> {
        Ok(None)
    }

    /// Returns true if the overseer can continue for parts that are started with `config`.
    fn fits(&self, _config: &C) -> bool {
        true
    }

    /// Adjusts the overseer to `kept`.
    fn sync(
        &mut self,
        _kept: &K,
        _scene: &dyn OverseerContext,
        _now: u64,
    ) -> core::result::Result<(), NoMemory> {
        Ok(())
    }

    /// Returns the update for new parts.
    fn update(&self) -> Option<C::Update> {
        None
    }

    /// Processes the events since the last call; with `due`, also takes the periodic decisions.
    fn poll(
        &mut self,
        _now: u64,
        _scene: &dyn OverseerContext,
        _due: bool,
    ) -> core::result::Result<OverseerOutcome, NoMemory> {
        Ok(OverseerOutcome::default())
    }
}

impl<C: Configuration, K> Oversee<C, K> for Nothing {}

/// Error with which a service refuses an operation.
pub trait RefusalReason: From<Error> {
    /// Returns the reason, if known.
    fn reason(&self) -> Option<Error>;
}

impl RefusalReason for Error {
    fn reason(&self) -> Option<Error> {
        Some(*self)
    }
}

/// Service.
pub trait Host: Parts {
    /// Error with which the service refuses an operation.
    type Refusal: RefusalReason;

    /// Returns all parameters of the service.
    fn parameters(&self) -> Parameters;

    /// Calls `f` to record data in the kept state of which parts need no update.
    fn update_policy_data(&self, f: impl FnOnce(&mut PoliciesData));

    /// Calls `f` to change a copy of the parameters; all changes take effect, or none.
    ///
    /// # Errors
    ///
    /// - The errors of `f`.
    /// - `EAGAIN`: earlier policies are still stopping.
    /// - `ENOMEM`: out of memory.
    fn change(
        &self,
        f: impl FnOnce(&mut Parameters) -> Result,
    ) -> core::result::Result<(), Self::Refusal>;

    /// Returns true if the heads on which `kind` runs could restart it now.
    fn can_restart(&self, kind: Kind) -> bool;

    /// Returns the number of partitions of each target.
    fn cpts(&self) -> u16;

    /// Calls `f` with the overseer, if there is one.
    fn oversee<R>(&self, f: impl FnOnce(Option<&mut AnyOverseer>, &dyn OverseerContext) -> R) -> R;

    /// Resets the counters of all classes of `kind`.
    fn reset(&self, kind: Kind);
}

/// Maximum length of a text of several lines, bytes.
pub const TEXT_MAX: usize = 256 << 10;

/// Maximum length of all settings of a service as one text, bytes: 65,536 rules of 240 bytes.
pub const CONFIG_MAX: usize = 16 << 20;

/// Function that writes a text.
pub type Show<H> = fn(&H, &mut dyn Write) -> core::result::Result<(), <H as Host>::Refusal>;

/// Function that executes a text.
pub type StoreFn<H> = fn(&H, &str) -> core::result::Result<(), <H as Host>::Refusal>;

/// Function that reports what a parameter shows.
pub type ReportFn<H> = fn(&H, &mut Report<'_>) -> core::result::Result<(), <H as Host>::Refusal>;

/// Parameter that stores no value of its own.
pub struct TextParameter<H: Host> {
    /// Name of the parameter.
    pub name: &'static str,
    /// Function that writes a text that is not structured.
    pub text: Option<Show<H>>,
    /// Function that reports what the parameter shows, for [`Self::show`] or for programs.
    pub report: Option<ReportFn<H>>,
    /// Function that executes a written text.
    pub store: Option<StoreFn<H>>,
    /// Maximum length of a written text, bytes.
    pub longest: usize,
    /// Function that checks a text of which only the first lines have arrived. If present, a text
    /// may have several lines.
    pub check: Option<StoreFn<H>>,
}

impl<H: Host> TextParameter<H> {
    /// Maximum length of a text of one line, and of all values, bytes.
    pub const LONGEST: usize = 4095;

    const fn new(name: &'static str, text: Option<Show<H>>, store: Option<StoreFn<H>>) -> Self {
        Self {
            name,
            text,
            report: None,
            store,
            longest: Self::LONGEST,
            check: None,
        }
    }

    /// Creates a read-only parameter that shows a structured text.
    pub const fn report(name: &'static str, report: ReportFn<H>) -> Self {
        Self::new(name, None, None).reported(report)
    }

    /// Returns the same parameter, of which programs read what `report` writes.
    pub const fn reported(self, report: ReportFn<H>) -> Self {
        Self {
            report: Some(report),
            ..self
        }
    }

    /// Writes what the parameter shows.
    ///
    /// # Errors
    ///
    /// The errors of the parameter; `EPERM`: it cannot be read.
    pub fn show(&self, host: &H, out: &mut dyn Write) -> core::result::Result<(), H::Refusal> {
        match (self.text, self.report) {
            (Some(text), _) => text(host, out),
            (None, Some(report)) => report(host, &mut Report::yaml(out)),
            (None, None) => {
                let error = Error::new(Code::Permission, "the parameter is not readable");
                Err(error.into())
            }
        }
    }

    /// Creates a read-only parameter.
    pub const fn read(name: &'static str, show: Show<H>) -> Self {
        Self::new(name, Some(show), None)
    }

    /// Creates a write-only parameter, which executes the written text.
    pub const fn write(name: &'static str, store: StoreFn<H>) -> Self {
        Self::new(name, None, Some(store))
    }

    /// Creates a parameter for reading and writing.
    pub const fn both(name: &'static str, show: Show<H>, store: StoreFn<H>) -> Self {
        Self::new(name, Some(show), Some(store))
    }

    /// Returns the same parameter for texts of several lines and up to `longest` bytes.
    pub const fn in_lines(self, longest: usize, check: StoreFn<H>) -> Self {
        Self {
            longest,
            check: Some(check),
            ..self
        }
    }
}

/// Writes the error of a refused operation; writes nothing if there is none.
pub fn show_error<E: From<Error>>(
    out: &mut dyn Write,
    error: Option<Error>,
) -> core::result::Result<(), E> {
    match error {
        Some(error) => Ok(writeln!(out, "{error}").map_err(Error::from)?),
        None => Ok(()),
    }
}

/// Returns true if a command for `heads` applies to the head of `priority`.
pub fn addresses(heads: Heads, priority: Priority) -> bool {
    match heads {
        Heads::All => true,
        Heads::Regular => priority == Priority::Regular,
        Heads::High => priority == Priority::High,
    }
}

/// Conversion for a text that does not fit.
impl From<core::fmt::Error> for Error {
    fn from(_: core::fmt::Error) -> Self {
        Self::new(Code::NoSpace, "text is too long for the buffer")
    }
}

impl From<NoMemory> for Error {
    fn from(_: NoMemory) -> Self {
        Self::new(Code::NoMemory, "out of memory")
    }
}

/// Defines the types for the controls of any policy; part of [`super::any::policies`].
macro_rules! controls {
    ($($(#[$only:meta])? $name:ident: $module:ident),+) => {
        /// State that a service keeps for each policy.
        #[derive(Clone)]
        pub struct PoliciesData {
            $(#[doc = concat!("State for `", stringify!($module), "`.")] $(#[$only])?
            pub $module: $module::PolicyData,)+
        }

        impl PoliciesData {
            /// Returns the state before anything is set; may sleep.
            pub fn empty() -> core::result::Result<Self, NoMemory> {
                Ok(Self {
                    $($(#[$only])? $module: Keep::<$module::Config>::empty()?,)+
                })
            }

            /// Adjusts the state to a change of configurations; see [`Keep::sync`]. After an
            /// error, the state must be dropped.
            pub fn sync(
                &mut self,
                old: &ByHead<Option<Config>>,
                new: &ByHead<Option<Config>>,
            ) -> core::result::Result<(), NoMemory> {
                $($(#[$only])? {
                    let own = |config: &Option<Config>| match config {
                        Some(Config::$name(config)) => Some(*config),
                        _ => None,
                    };
                    Keep::<$module::Config>::sync(
                        &mut self.$module,
                        &old.each_ref().map(own),
                        &new.each_ref().map(own),
                    )?;
                })+
                Ok(())
            }

            /// Continues the state `old`; see [`Keep::resume`].
            pub fn resume(
                &mut self,
                old: &Self,
                before: &ByHead<Option<Config>>,
                after: &ByHead<Option<Config>>,
            ) -> core::result::Result<(), NoMemory> {
                $($(#[$only])? {
                    let own = |config: &Option<Config>| match config {
                        Some(Config::$name(config)) => Some(*config),
                        _ => None,
                    };
                    Keep::<$module::Config>::resume(
                        &mut self.$module,
                        &old.$module,
                        &before.each_ref().map(own),
                        &after.each_ref().map(own),
                    )?;
                })+
                Ok(())
            }

            /// Writes commands that set values that are texts; see [`Keep::write_values`].
            pub fn write_values(
                &self,
                tunables: &Tunables,
                defaults: &Tunables,
                out: &mut dyn core::fmt::Write,
            ) -> core::fmt::Result {
                $($(#[$only])? Keep::<$module::Config>::write_values(
                    &self.$module,
                    &tunables.$module,
                    &defaults.$module,
                    out,
                )?;)+
                Ok(())
            }

            /// Writes commands that create this state; see [`Keep::write_commands`].
            pub fn write_commands(&self, out: &mut dyn core::fmt::Write) -> core::fmt::Result {
                $($(#[$only])? Keep::<$module::Config>::write_commands(&self.$module, out)?;)+
                Ok(())
            }

            /// Verifies that values fit the kept state; see [`Keep::check`].
            pub fn check(&self, tunables: &Tunables) -> Result {
                $($(#[$only])? Keep::<$module::Config>::check(&self.$module, &tunables.$module)?;)+
                Ok(())
            }

            /// Returns the update for parts; see [`Keep::update`].
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

            /// Returns true if parts that were started with `config` need a new update; see
            /// [`Keep::is_news`].
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

            /// Returns the number of starts of the policy that takes factors; see [`Keep::starts`].
            pub fn starts(&self) -> Option<u64> {
                let all = [$($(#[$only])? Keep::<$module::Config>::starts(&self.$module)),+];
                all.into_iter().flatten().next()
            }

            /// Replaces the factors of the policy that takes factors; see [`Keep::set_factors`].
            pub fn set_factors(
                &mut self,
                pairs: FactorPairs,
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

            /// Returns the capacity that a policy uses; see [`Keep::capacity`].
            pub fn capacity(&self) -> Option<&Shared<$crate::sched::capacity::Capacity>> {
                let all = [$($(#[$only])? Keep::<$module::Config>::capacity(&self.$module)),+];
                all.into_iter().flatten().next()
            }

            /// Returns the lease of the policy that has factors; see [`Keep::lease`].
            pub fn lease(&self) -> Option<&Shared<Lease>> {
                let all = [$($(#[$only])? Keep::<$module::Config>::lease(&self.$module)),+];
                all.into_iter().flatten().next()
            }

            /// Returns the parameters that policies show and execute themselves, and that of
            /// owners.
            pub fn texts<H: Host + 'static>() -> impl Iterator<Item = &'static TextParameter<H>> {
                let all = [
                    $crate::sched::owners::texts::<H>(),
                    $($(#[$only])? <$module::PolicyData as Keep<$module::Config>>::texts::<H>(),)+
                ];
                all.into_iter().flatten()
            }
        }

        /// Overseer of the parts of any policy.
        pub enum AnyOverseer {
            $(#[doc = concat!("Overseer of `", stringify!($module), "`.")] $(#[$only])?
            $name($module::Overseer),)+
        }

        impl AnyOverseer {
            /// Creates the overseer for the first of `configs` that needs one; see
            /// [`Oversee::new`].
            #[inline(never)]
            pub fn new(
                configs: &[Option<Config>],
                kept: &PoliciesData,
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

            /// Returns true if the overseer fits the first of `configs` of the same policy; see
            /// [`Oversee::fits`].
            pub fn fits(&self, configs: &[Option<Config>]) -> bool {
                let mut configs = configs.iter().flatten();
                let fits = configs.find_map(|config| match (self, config) {
                    $($(#[$only])? (Self::$name(overseer), Config::$name(config)) => {
                        Some(Oversee::<_, $module::PolicyData>::fits(overseer, config))
                    })+
                    _ => None,
                });
                fits == Some(true)
            }

            /// Adjusts the overseer to `kept`; see [`Oversee::sync`].
            pub fn sync(
                &mut self,
                kept: &PoliciesData,
                scene: &dyn OverseerContext,
                now: u64,
            ) -> core::result::Result<(), NoMemory> {
                match self {
                    $($(#[$only])? Self::$name(overseer) => Oversee::<$module::Config, _>::sync(
                        overseer,
                        &kept.$module,
                        scene,
                        now,
                    ),)+
                }
            }

            /// Returns the update for new parts; see [`Oversee::update`].
            pub fn update(&self) -> Option<AnyUpdate> {
                match self {
                    $($(#[$only])? Self::$name(overseer) => {
                        let update =
                            Oversee::<$module::Config, $module::PolicyData>::update(overseer);
                        update.map(AnyUpdate::$name)
                    })+
                }
            }

            /// Processes the events since the last call; see [`Oversee::poll`].
            pub fn poll(
                &mut self,
                now: u64,
                scene: &dyn OverseerContext,
                due: bool,
            ) -> core::result::Result<OverseerOutcome, NoMemory> {
                match self {
                    $($(#[$only])? Self::$name(overseer) => {
                        Oversee::<$module::Config, $module::PolicyData>::poll(
                            overseer, now, scene, due,
                        )
                    })+
                }
            }

            /// Returns the policy.
            pub const fn kind(&self) -> Kind {
                match self {
                    $($(#[$only])? Self::$name(_) => Kind::$name,)+
                }
            }
        }
    };
}

pub(crate) use controls;
