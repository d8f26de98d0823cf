// SPDX-License-Identifier: GPL-2.0-only

//! Types that represent any policy: one for each type that policies define, with a variant or field
//! per policy.

/// Implements methods of `AnyPart` by the methods of the part in it.
macro_rules! forward {
    ($this:ident;
        &mut { $(fn $name:ident($($arg:ident: $Type:ty),*) $(-> $Return:ty)?;)+ }
        & { $(fn $shared:ident($($of:ident: $Of:ty),*) $(-> $Answer:ty)?;)+ }
    ) => {
        $(fn $name(&mut $this $(, $arg: $Type)*) $(-> $Return)? {
            each!($this, part => part.$name($($arg),*))
        })+
        $(fn $shared(&$this $(, $of: $Of)*) $(-> $Answer)? {
            each!($this, part => part.$shared($($of),*))
        })+
    };
}

/// Defines the types that represent any policy, from lines `Name: module`, and declares the
/// modules.
///
/// Each module has `Tunables`, `PARAMETERS`, `Counts`, `PolicyData`, `Overseer`, `Config`,
/// `Shared`, `Update` and `State<I>`, which is a [`Part`](super::Part). Names are resolved in the
/// file that uses the macro. A line with `#[cfg(…)]` is a policy that exists in tests only.
macro_rules! policies {
    ($($(#[$only:meta])? $name:ident: $module:ident),+ $(,)?) => {
        $($(#[$only])? pub mod $module;)+

        /// Evaluates the same expression with the value of any variant.
        macro_rules! each {
            ($of:expr, $one:ident => $body:expr) => {
                match $of {
                    $($(#[$only])? Self::$name($one) => $body,)+
                }
            };
        }

        /// Available policies.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Kind {
            $(#[doc = concat!("The policy `", stringify!($module), "`.")] $(#[$only])? $name,)+
        }

        impl Kind {
            /// All policies.
            pub const ALL: &'static [Self] = &[$($(#[$only])? Self::$name),+];

            /// Returns the name of the policy, as users write it.
            pub const fn name(self) -> &'static str {
                match self {
                    $($(#[$only])? Self::$name => stringify!($module),)+
                }
            }

            /// Returns the rows of the counters that a head has of the policy as a whole.
            pub const fn counts(self) -> &'static [Stat] {
                match self {
                    $($(#[$only])? Self::$name => <$module::Counts as Stats>::ROWS,)+
                }
            }

            /// Returns true if the policy exists in tests only and is not documented.
            #[cfg(not(MODULE))]
            pub const fn is_for_tests(self) -> bool {
                match self {
                    $($(#[$only])? Self::$name => !stringify!($($only)?).is_empty(),)+
                }
            }
        }

        /// Parameters of each policy, which users set; they are kept when policies stop and start.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Tunables {
            $(#[doc = concat!("Parameters of `", stringify!($module), "`.")] $(#[$only])?
            pub $module: $module::Tunables,)+
        }

        impl Tuning for Tunables {
            fn check(&self) -> Result {
                $($(#[$only])? self.$module.check()?;)+
                Ok(())
            }

            fn set_classes_max(&mut self, max: ClassesMax) {
                $($(#[$only])? self.$module.set_classes_max(max);)+
            }

            fn set_buffer_max(&mut self, max: BufferMax) {
                $($(#[$only])? self.$module.set_buffer_max(max);)+
            }
        }

        impl Tunables {
            /// Returns the engine's periodic work: that of the first policy that defines one, else
            /// the default.
            pub fn upkeep(&self) -> Upkeep {
                let all = [$($(#[$only])? self.$module.upkeep()),+];
                all.into_iter().flatten().next().unwrap_or_default()
            }
        }

        $crate::sched::policy::control::controls! { $($(#[$only])? $name: $module),+ }

        /// Parameters of each policy.
        pub static PARAMETERS: &[&[Parameter]] = &[$($(#[$only])? $module::PARAMETERS),+];

        /// Configuration of any policy.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Config {
            $(
                #[doc = concat!("Configuration of `", stringify!($module), "`.")]
                $(#[$only])?
                $name($module::Config),
            )+
        }

        impl Config {
            /// Returns the configuration of a policy that is started with argument `arg`.
            ///
            /// # Errors
            ///
            /// `EINVAL`: the policy does not take the argument.
            pub fn parse(kind: Kind, arg: Option<&str>, tunables: &Tunables) -> Result<Self> {
                Ok(match kind {
                    $($(#[$only])? Kind::$name => {
                        Self::$name($module::Config::parse(arg, &tunables.$module)?)
                    })+
                })
            }

            /// Returns the configuration with other parameters; see [`Configuration::with`].
            pub fn with(&self, tunables: &Tunables) -> Self {
                match self {
                    $(
                        $(#[$only])?
                        Self::$name(config) => Self::$name(config.with(&tunables.$module)),
                    )+
                }
            }

            /// Returns the configuration for another head; see [`Configuration::on`].
            pub fn on(self, priority: Priority) -> Self {
                match self {
                    $($(#[$only])? Self::$name(config) => Self::$name(config.on(priority)),)+
                }
            }

            /// Returns the update from this configuration to `new`; see
            /// [`Configuration::update_to`].
            pub fn update_to(&self, new: &Self) -> Option<AnyUpdate> {
                match (self, new) {
                    $($(#[$only])? (Self::$name(old), Self::$name(new)) => {
                        old.update_to(new).map(AnyUpdate::$name)
                    })+
                    _ => None,
                }
            }

            /// Returns true if running parts can adopt `new`; see [`Configuration::follows`].
            pub fn follows(&self, new: &Self) -> bool {
                match (self, new) {
                    $($(#[$only])? (Self::$name(old), Self::$name(new)) => old.follows(new),)+
                    _ => false,
                }
            }

            /// Returns the policy.
            pub const fn kind(&self) -> Kind {
                match self {
                    $($(#[$only])? Self::$name(_) => Kind::$name,)+
                }
            }

            /// Returns true if each target has shared state of its own; false if all targets of a
            /// service share the state.
            pub const fn is_per_target(&self) -> bool {
                match self {
                    $($(#[$only])? Self::$name(_) => $module::Shared::PER_TARGET,)+
                }
            }

            /// Returns true if the policy uses the cgroup in which a request was made.
            pub fn wants_cgroup(&self) -> bool {
                each!(self, config => config.wants_cgroup())
            }

            /// Returns the argument with which the policy was started.
            pub fn argument(&self) -> Option<&dyn fmt::Display> {
                each!(self, config => config.argument())
            }
        }

        /// Memory that a part of any policy needs.
        pub enum AnyNeed<I: Item> {
            $(#[doc = concat!("Need of `", stringify!($module), "`.")] $(#[$only])?
            $name(<$module::State<I> as Part<I>>::Need),)+
        }

        /// Memory for a part of any policy.
        pub enum AnySpare<I: Item> {
            $(#[doc = concat!("Memory for `", stringify!($module), "`.")] $(#[$only])?
            $name(<$module::State<I> as Part<I>>::Spare),)+
        }

        impl<I: Item> Need for AnyNeed<I> {
            type Spare = AnySpare<I>;

            fn is_empty(&self) -> bool {
                each!(self, need => need.is_empty())
            }

            fn take(&self, charged: bool) -> core::result::Result<AnySpare<I>, NoMemory> {
                match self {
                    $($(#[$only])? Self::$name(need) => need.take(charged).map(AnySpare::$name),)+
                }
            }
        }

        /// A part of any policy.
        pub enum AnyPart<I: Item> {
            $(#[doc = concat!("Part of `", stringify!($module), "`.")] $(#[$only])?
            $name(Owned<$module::State<I>>),)+
        }

        /// State that the parts of one head share, of any policy; clones refer to the same state.
        #[derive(Clone)]
        pub enum AnyShared {
            $(#[doc = concat!("Shared state of `", stringify!($module), "`.")] $(#[$only])?
            $name(Shared<$module::Shared>),)+
        }

        impl AnyShared {
            /// Creates the shared state for the `parts` parts of a policy started with `config`;
            /// may sleep.
            ///
            /// `seed` is the service's, so values derived from `seed` are equal on all heads and
            /// after restarts. `seed` must be unknown to clients, which choose the keys of classes.
            pub fn new(
                config: &Config,
                seed: u64,
                parts: u32,
            ) -> core::result::Result<Self, NoMemory> {
                Ok(match config {
                    $($(#[$only])? Config::$name(config) => {
                        Self::$name(Shared::new($module::Shared::new(config, seed, parts)?)?)
                    })+
                })
            }
        }

        /// Update for a part of any policy.
        #[derive(Clone)]
        pub enum AnyUpdate {
            $(#[doc = concat!("Update for a part of `", stringify!($module), "`.")] $(#[$only])?
            $name($module::Update),)+
        }

        impl<I: Item> AnyPart<I> {
            /// Creates a part with nothing queued and a first reserve of memory; may sleep.
            ///
            /// `seed` seeds the part's random choices and must be unknown to clients, which choose
            /// the keys of classes. `shared` must have been created from the same `config`; fails
            /// if `shared` belongs to another policy.
            pub fn new(
                config: &Config,
                seed: u64,
                shared: &AnyShared,
            ) -> core::result::Result<Self, NoMemory> {
                Ok(match (config, shared) {
                    $($(#[$only])? (Config::$name(config), AnyShared::$name(shared)) => {
                        Self::$name(apart(|| {
                            Owned::make(|| apart(|| $module::State::new(config, seed, shared)))
                        })?)
                    })+
                    _ => return Err(NoMemory),
                })
            }

            /// Returns true if parts of `kind` use the file that a request is for.
            pub const fn wants_file(kind: Kind) -> bool {
                match kind {
                    $($(#[$only])? Kind::$name => <$module::State<I> as Part<I>>::WANTS_FILE,)+
                }
            }

            /// Returns the class of all requests, for parts of `kind` that have only one class.
            pub const fn only_class_of(kind: Kind) -> Option<ClassId> {
                match kind {
                    $($(#[$only])? Kind::$name => <$module::State<I> as Part<I>>::ONLY_CLASS,)+
                }
            }

            /// Returns the policy.
            pub const fn kind(&self) -> Kind {
                match self {
                    $($(#[$only])? Self::$name(_) => Kind::$name,)+
                }
            }

            $(#[doc = concat!(
                "Returns the part if it is of `", stringify!($module), "`, else `None`."
            )] $(#[$only])?
            #[allow(dead_code, reason = "not every policy has accessors of its own")]
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

            $crate::sched::policy::any::forward! { self;
                &mut {
                    fn classify(attrs: &Attrs, now: u64) -> ClassId;
                    fn record_attrs(class: ClassId, attrs: &Attrs, now: u64);
                    fn enqueue(item: I, class: ClassId, now: u64) -> core::result::Result<(), I>;
                    fn dequeue(class: ClassId, handle: &I::Handle, now: u64) -> Option<I>;
                    fn get(view: &PartView<'_>) -> Decision<(I, Grant)>;
                    fn pass(
                        class: ClassId, cost: Cost, way: BypassReason, now: impl FnOnce() -> u64
                    ) -> BypassOutcome;
                    fn count_passed(class: ClassId, requests: u32, pages: u64);
                    fn refund(class: ClassId, cost: Cost, now: u64);
                    fn stop(grant: &Grant, cost: Cost, now: u64) -> bool;
                    fn hold(slots: &FreeSlots, now: u64) -> Option<Hold>;
                    fn age(now: u64, max: u32) -> bool;
                    fn refresh(from: u32, max: u32, now: u64) -> Option<u32>;
                    fn reset(from: u32, max: u32) -> Option<u32>;
                    fn node_reports(from: u32, now: u64, out: &mut NodeReports) -> Option<u32>;
                }
                & {
                    fn only_class() -> Option<ClassId>;
                    fn is_live(class: ClassId) -> bool;
                    fn record_interval() -> Option<u64>;
                    fn throttled(now: u64) -> Option<u64>;
                    fn passes_freely() -> bool;
                    fn len() -> u32;
                    fn overflow() -> u64;
                    fn wants_refresh(now: u64) -> bool;
                    fn wants_table() -> bool;
                    fn add_counts(sums: &mut [u64]);
                    fn reports(from: u32, out: &mut ReportBuf) -> Option<u32>;
                    fn name_of(id: u64) -> Option<(&'static str, Key)>;
                    fn terms() -> u64;
                }
            }

            fn need(&self) -> AnyNeed<I> {
                match self {
                    $($(#[$only])? Self::$name(part) => AnyNeed::$name(part.need()),)+
                }
            }

            /// Adds memory; memory for a part of another policy is returned whole.
            fn grow(&mut self, spare: AnySpare<I>) -> AnySpare<I> {
                match (self, spare) {
                    $($(#[$only])? (Self::$name(part), AnySpare::$name(spare)) => {
                        AnySpare::$name(part.grow(spare))
                    })+
                    (_, spare) => spare,
                }
            }

            /// Installs an update; an update for another policy is returned unchanged.
            fn update(&mut self, update: AnyUpdate, now: u64) -> AnyUpdate {
                match (self, update) {
                    $($(#[$only])? (Self::$name(part), AnyUpdate::$name(update)) => {
                        AnyUpdate::$name(part.update(update, now))
                    })+
                    (_, update) => update,
                }
            }
        }
    };
}

pub(crate) use {forward, policies};
