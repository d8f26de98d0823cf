// SPDX-License-Identifier: GPL-2.0-only

//! Configuration of a part, state shared by the parts of one head, and updates of running parts.

use super::{
    entity_table::Weights,
    factors::Factors,
    hold::HoldTerms,
    job_size::{JobSizes, SIZES_MAX},
    limits::LimitPlan,
    mode::{Level, Mode},
    params::{
        CrossCpt, DeltaMs, HoldPermille, HoldSlots, HoldUs, LatencyUs, Locality, OppThreshold,
        SizeMax, SizeSource, SizeWindowS, Tunables,
    },
    totals::SharedTotals,
};
use crate::sched::{
    agent::digest,
    attr::Priority,
    error::Result,
    key::Hasher,
    mem::{self, NoMemory},
    policy::Configuration,
    units::NSEC_PER_SEC,
};
use core::fmt;

/// Configuration of a part.
///
/// Configurations are equal if an [`Update`] can turn a part of one into a part of the other.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    argument: Option<Mode>,
    /// Parameters at the time of the start.
    pub tunables: Tunables,
    /// Head on which the policy runs.
    priority: Priority,
}

impl PartialEq for Config {
    fn eq(&self, other: &Self) -> bool {
        self.argument == other.argument && fixed(&self.tunables) == fixed(&other.tunables)
    }
}

impl Eq for Config {}

impl Configuration for Config {
    type Tunables = Tunables;
    type Update = Update;

    /// Parses the argument as a mode; without an argument the mode of `tunables` applies.
    fn parse(arg: Option<&str>, tunables: &Tunables) -> Result<Self> {
        let argument = arg.map(Mode::parse).transpose()?;
        Ok(Self {
            argument,
            tunables: *tunables,
            priority: Priority::Regular,
        })
    }

    fn with(&self, tunables: &Tunables) -> Self {
        Self {
            tunables: *tunables,
            ..*self
        }
    }

    fn on(self, priority: Priority) -> Self {
        Self { priority, ..self }
    }

    fn wants_cgroup(&self) -> bool {
        self.mode().levels().contains(&Level::Cgroup)
    }

    fn argument(&self) -> Option<&dyn fmt::Display> {
        self.argument.as_ref().map(|mode| mode as &dyn fmt::Display)
    }
}

impl Config {
    /// Returns the mode of the argument, or without an argument the mode of the parameters.
    pub const fn mode(&self) -> Mode {
        match self.argument {
            Some(mode) => mode,
            None => self.tunables.mode,
        }
    }

    /// Returns a hash of the mode and the cost model. Paths and service of two services are
    /// comparable only if their hashes are equal. With cgroups in the mode the hash is unique to
    /// the service, because digests of paths are local to a server; `hasher` is the service's.
    pub(super) fn terms(&self, hasher: &Hasher) -> u64 {
        let alike = digest(format_args!("{} {}", self.mode(), self.tunables.cost_model));
        if self.wants_cgroup() {
            hasher.word(alike).max(1)
        } else {
            alike
        }
    }

    /// Returns true if slots may be kept free. High priority has a reserved slot.
    pub(super) fn has_holds(&self) -> bool {
        self.priority == Priority::Regular && self.tunables.has_holds()
    }

    /// Returns the number of pages that an entity dispatches in a row; 0 without locality.
    pub const fn slice_pages(&self) -> u32 {
        match self.tunables.locality {
            Locality::On => self.tunables.slice_kib.get() / 4,
            Locality::Off => 0,
        }
    }
}

/// Returns the parameters that do not change while a part runs; the threshold and the time for
/// which slots may be kept free are reduced to 0 or 1.
fn fixed(tunables: &Tunables) -> Tunables {
    let has_threshold = tunables.opp_threshold.get().min(1);
    let has_holds = tunables.hold_permille.get().min(1);
    Tunables {
        delta_ms: DeltaMs::default(),
        hold_permille: HoldPermille::new(has_holds).unwrap_or_default(),
        hold_us: HoldUs::default(),
        hold: HoldSlots::default(),
        latency_us: LatencyUs::default(),
        opp_threshold: OppThreshold::new(has_threshold).unwrap_or_default(),
        cross_cpt: CrossCpt::default(),
        size_window_s: SizeWindowS::default(),
        size_max: SizeMax::default(),
        ..*tunables
    }
}

/// Parameters that change while a part runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct RuntimeParameters {
    /// True if shares apply to all partitions together.
    pub(super) cross_cpt: bool,
    /// Queue depth below which requests are dispatched in FIFO order.
    pub(super) opp_threshold: u32,
    /// Time for which slots may be kept free.
    pub(super) hold: HoldTerms,
    /// Largest job size.
    pub(super) size_max: u32,
    /// Window in which a client of a job counts, ns.
    pub(super) size_window: u64,
}

impl RuntimeParameters {
    /// Returns the parameters of `tunables` that change while a part runs.
    pub(super) fn of(tunables: &Tunables) -> Self {
        Self {
            cross_cpt: tunables.cross_cpt == CrossCpt::On,
            opp_threshold: tunables.opp_threshold.get(),
            hold: HoldTerms::of(tunables),
            size_max: tunables.size_max.get(),
            size_window: u64::from(tunables.size_window_s.get()).saturating_mul(NSEC_PER_SEC),
        }
    }
}

/// State that the parts of one head share over all partitions.
pub struct Shared {
    /// Hasher of paths, with the same seed for all heads of a service.
    pub hasher: Hasher,
    /// Service of each node over all parts; `None` if the head has one part.
    pub counters: Option<SharedTotals>,
    /// Sizes of jobs; `None` unless the mode has `size` and sizes are counted.
    pub sizes: Option<JobSizes>,
    /// Number of parts.
    pub parts: u32,
}

impl Shared {
    /// True: each target has its own state, because entities of different targets do not compete.
    pub const PER_TARGET: bool = true;

    /// Creates the state for `parts` parts of a service with `seed`; may sleep.
    pub fn new(config: &Config, seed: u64, parts: u32) -> core::result::Result<Self, NoMemory> {
        let tunables = &config.tunables;
        let counters = if parts > 1 {
            Some(SharedTotals::new(tunables.classes_max.get() as usize)?)
        } else {
            None
        };
        let counts = config.mode().has_size() && tunables.size_source == SizeSource::Nids;
        let sizes = if counts {
            Some(JobSizes::new(
                SIZES_MAX,
                RuntimeParameters::of(tunables).size_window,
            )?)
        } else {
            None
        };
        Ok(Self {
            hasher: Hasher::new(seed),
            counters,
            sizes,
            parts,
        })
    }
}

/// Changes to a running part.
#[derive(Clone)]
pub struct Update {
    /// Weights.
    pub(super) weights: mem::Shared<Weights>,
    /// Limits; `None` if there are none.
    pub(super) limits: Option<mem::Shared<LimitPlan>>,
    /// Factors of the weights, if servers share.
    pub(super) factors: Option<mem::Shared<Factors>>,
    /// Parameters.
    pub(super) live: RuntimeParameters,
}

impl Update {
    /// Creates an update of `weights` and of the parameters in `tunables` that can change.
    pub fn new(weights: mem::Shared<Weights>, tunables: &Tunables) -> Self {
        Self {
            weights,
            limits: None,
            factors: None,
            live: RuntimeParameters::of(tunables),
        }
    }

    /// Sets the limits.
    pub fn with_limits(self, limits: Option<mem::Shared<LimitPlan>>) -> Self {
        Self { limits, ..self }
    }

    /// Sets the factors of the weights, if servers share.
    pub fn with_factors(self, factors: Option<mem::Shared<Factors>>) -> Self {
        Self { factors, ..self }
    }

    /// Returns the number of steps towards one that the factors have taken by `now`, ns.
    pub(super) fn steps(&self, now: u64) -> u32 {
        self.factors
            .as_ref()
            .map_or(0, |factors| factors.steps(now))
    }
}

/// Returns the index of [`Level::Size`] among the levels of `mode`.
pub(super) fn size_level(mode: &Mode) -> Option<u8> {
    let index = mode.levels().iter().position(|&level| level == Level::Size);
    index.and_then(|index| u8::try_from(index).ok())
}
