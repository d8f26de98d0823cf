// SPDX-License-Identifier: GPL-2.0-only

//! What stands for any policy: a type for each that policies have, with a variant or field for each policy.

/// Implements methods of a part of any policy by those of the part that it is.
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

/// Defines the types that stand for any policy, from lines `Name: module`, and declares the modules.
///
/// Each module has `Tunables`, `PARAMETERS`, `Counts`, `Kept`, `Overseer`, `Config`, `Shared`, `Update` and `State<I>`,
/// which is a [`Part`](super::Part). The names in it are those of the file that it is used in. A line with `#[cfg(…)]`
/// is of a policy that only tests have.
macro_rules! policies {
    ($($(#[$only:meta])? $name:ident: $module:ident),+ $(,)?) => {
        $($(#[$only])? pub mod $module;)+

        /// Does the same with what any policy has.
        macro_rules! each {
            ($of:expr, $one:ident => $body:expr) => {
                match $of {
                    $($(#[$only])? Self::$name($one) => $body,)+
                }
            };
        }

        /// The policies there are.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Kind {
            $(#[doc = concat!("The policy `", stringify!($module), "`.")] $(#[$only])? $name,)+
        }

        impl Kind {
            /// All policies.
            pub const ALL: &'static [Self] = &[$($(#[$only])? Self::$name),+];

            /// The name users know it by.
            pub const fn name(self) -> &'static str {
                match self {
                    $($(#[$only])? Self::$name => stringify!($module),)+
                }
            }

            /// The counters that a head has of the policy as a whole.
            pub const fn counts(self) -> &'static [Stat] {
                match self {
                    $($(#[$only])? Self::$name => <$module::Counts as Stats>::ROWS,)+
                }
            }

            /// Whether only tests have the policy; no page tells of it.
            pub const fn is_for_tests(self) -> bool {
                match self {
                    $($(#[$only])? Self::$name => !stringify!($($only)?).is_empty(),)+
                }
            }
        }

        /// What users can set for each policy; it survives stops and starts.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Tunables {
            $(#[doc = concat!("Those of `", stringify!($module), "`.")] $(#[$only])?
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
            /// What the engine does at intervals: as the first policy says that says something.
            pub fn upkeep(&self) -> Upkeep {
                let all = [$($(#[$only])? self.$module.upkeep()),+];
                all.into_iter().flatten().next().unwrap_or_default()
            }
        }

        $crate::sched::policy::control::controls! { $($(#[$only])? $name: $module),+ }

        /// The parameters of each policy.
        pub static PARAMETERS: &[&[Parameter]] = &[$($(#[$only])? $module::PARAMETERS),+];

        /// The configuration of any policy.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Config {
            $(#[doc = concat!("Of `", stringify!($module), "`.")] $(#[$only])? $name($module::Config),)+
        }

        impl Config {
            /// The configuration of a policy that is started with argument `arg`.
            /// `EINVAL`: the policy does not take the argument.
            pub fn parse(kind: Kind, arg: Option<&str>, tunables: &Tunables) -> Result<Self> {
                Ok(match kind {
                    $($(#[$only])? Kind::$name => {
                        Self::$name($module::Config::parse(arg, &tunables.$module)?)
                    })+
                })
            }

            /// See [`Configuration::with`].
            pub fn with(&self, tunables: &Tunables) -> Self {
                match self {
                    $($(#[$only])? Self::$name(config) => Self::$name(config.with(&tunables.$module)),)+
                }
            }

            /// See [`Configuration::on`].
            pub fn on(self, priority: Priority) -> Self {
                match self {
                    $($(#[$only])? Self::$name(config) => Self::$name(config.on(priority)),)+
                }
            }

            /// See [`Configuration::update_to`].
            pub fn update_to(&self, new: &Self) -> Option<AnyUpdate> {
                match (self, new) {
                    $($(#[$only])? (Self::$name(old), Self::$name(new)) => {
                        old.update_to(new).map(AnyUpdate::$name)
                    })+
                    _ => None,
                }
            }

            /// See [`Configuration::follows`].
            pub fn follows(&self, new: &Self) -> bool {
                match (self, new) {
                    $($(#[$only])? (Self::$name(old), Self::$name(new)) => old.follows(new),)+
                    _ => false,
                }
            }

            /// The policy.
            pub const fn kind(&self) -> Kind {
                match self {
                    $($(#[$only])? Self::$name(_) => Kind::$name,)+
                }
            }

            /// Whether what its parts share is of one target each, not of all targets of a service.
            pub const fn is_per_target(&self) -> bool {
                match self {
                    $($(#[$only])? Self::$name(_) => $module::Shared::PER_TARGET,)+
                }
            }

            /// Whether it matters in which cgroup a request was made.
            pub fn wants_cgroup(&self) -> bool {
                each!(self, config => config.wants_cgroup())
            }

            /// The argument the policy was started with.
            pub fn argument(&self) -> Option<&dyn fmt::Display> {
                each!(self, config => config.argument())
            }
        }

        /// What memory a part of any policy wants.
        pub enum AnyNeed<I: Item> {
            $(#[doc = concat!("One of `", stringify!($module), "`.")] $(#[$only])?
            $name(<$module::State<I> as Part<I>>::Need),)+
        }

        /// Memory for a part of any policy.
        pub enum AnySpare<I: Item> {
            $(#[doc = concat!("One of `", stringify!($module), "`.")] $(#[$only])?
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
            $(#[doc = concat!("One of `", stringify!($module), "`.")] $(#[$only])?
            $name(Owned<$module::State<I>>),)+
        }

        /// What the parts of one head share, of any policy; clones are the same.
        #[derive(Clone)]
        pub enum AnyShared {
            $(#[doc = concat!("Of `", stringify!($module), "`.")] $(#[$only])?
            $name(Shared<$module::Shared>),)+
        }

        impl AnyShared {
            /// What the `parts` parts of a policy started with `config` share; sleeps.
            ///
            /// `seed` is that of the service: what parts of different heads, or of one start and the next,
            /// make of it is the same. It must not be known to those who name classes.
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

        /// What a part of any policy is told.
        #[derive(Clone)]
        pub enum AnyUpdate {
            $(#[doc = concat!("For one of `", stringify!($module), "`.")] $(#[$only])?
            $name($module::Update),)+
        }

        impl<I: Item> AnyPart<I> {
            /// A part with nothing queued and its first reserve of memory; sleeps.
            ///
            /// `seed` makes its random choices and must not be known to those who name classes.
            /// `shared` was made from the same `config`.
            /// Fails, too, if `shared` is another policy's.
            pub fn new(
                config: &Config,
                seed: u64,
                shared: &AnyShared,
            ) -> core::result::Result<Self, NoMemory> {
                Ok(match (config, shared) {
                    $($(#[$only])? (Config::$name(config), AnyShared::$name(shared)) => {
                        Self::$name(own(|| $module::State::new(config, seed, shared))?)
                    })+
                    _ => return Err(NoMemory),
                })
            }

            /// Whether parts of `kind` ask which file a request is for.
            pub const fn wants_file(kind: Kind) -> bool {
                match kind {
                    $($(#[$only])? Kind::$name => <$module::State<I> as Part<I>>::WANTS_FILE,)+
                }
            }

            /// Returns the class of all requests, of parts of `kind` that have only one.
            pub const fn only_class_of(kind: Kind) -> Option<ClassId> {
                match kind {
                    $($(#[$only])? Kind::$name => <$module::State<I> as Part<I>>::ONLY_CLASS,)+
                }
            }

            /// Its policy.
            pub const fn kind(&self) -> Kind {
                match self {
                    $($(#[$only])? Self::$name(_) => Kind::$name,)+
                }
            }

            $(#[doc = concat!("The part, if it is one of `", stringify!($module), "`.")] $(#[$only])?
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

            $crate::sched::policy::any::forward! { self;
                &mut {
                    fn classify(attrs: &Attrs, now: u64) -> ClassId;
                    fn note(class: ClassId, attrs: &Attrs, now: u64);
                    fn enqueue(item: I, class: ClassId, now: u64) -> core::result::Result<(), I>;
                    fn dequeue(class: ClassId, place: &I::Place, now: u64) -> Option<I>;
                    fn get(view: &View<'_>) -> Get<(I, Grant)>;
                    fn pass(class: ClassId, cost: Cost, way: Way, now: impl FnOnce() -> u64) -> Passed;
                    fn count_passed(class: ClassId, requests: u32, pages: u64);
                    fn stop(grant: &Grant, cost: Cost, now: u64);
                    fn age(now: u64, max: u32) -> bool;
                    fn refresh(from: u32, max: u32, now: u64) -> Option<u32>;
                    fn reset(from: u32, max: u32) -> Option<u32>;
                    fn briefs(from: u32, now: u64, out: &mut BriefBuf) -> Option<u32>;
                }
                & {
                    fn only_class() -> Option<ClassId>;
                    fn is_live(class: ClassId) -> bool;
                    fn note_interval() -> Option<u64>;
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

            /// Memory meant for a part of another policy comes back whole.
            fn grow(&mut self, spare: AnySpare<I>) -> AnySpare<I> {
                match (self, spare) {
                    $($(#[$only])? (Self::$name(part), AnySpare::$name(spare)) => {
                        AnySpare::$name(part.grow(spare))
                    })+
                    (_, spare) => spare,
                }
            }

            /// An update for another policy comes back as it is.
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
