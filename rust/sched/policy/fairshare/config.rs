// SPDX-License-Identifier: GPL-2.0-only

//! What a part is started with, what the parts of one head share, and what they are told.

use super::{
    factors::Factors,
    mode::{Level, Mode},
    params::{
        CrossCpt, DeltaMs, Locality, OppThreshold, SizeMax, SizeSource, SizeWindowS, Tunables,
    },
    shared::Counters,
    size::{Sizes, SIZES_MAX},
    weights::Weights,
};
use crate::sched::{
    agent::digest,
    error::Result,
    key::Hasher,
    mem::{self, NoMemory},
    policy::Configuration,
    units::NSEC_PER_SEC,
};
use core::fmt;

/// Configuration of a part.
///
/// Two are the same if a part that was started with one goes on with the other, by an [`Update`].
#[derive(Clone, Copy, Debug)]
pub struct Config {
    argument: Option<Mode>,
    /// The parameters at the time of the start.
    pub tunables: Tunables,
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

    /// The argument is a mode; without one the mode of `tunables`.
    fn parse(arg: Option<&str>, tunables: &Tunables) -> Result<Self> {
        let argument = arg.map(Mode::parse).transpose()?;
        Ok(Self {
            argument,
            tunables: *tunables,
        })
    }

    fn with(&self, tunables: &Tunables) -> Self {
        Self {
            argument: self.argument,
            tunables: *tunables,
        }
    }

    fn wants_cgroup(&self) -> bool {
        self.mode().levels().contains(&Level::Cgroup)
    }

    fn argument(&self) -> Option<&dyn fmt::Display> {
        self.argument.as_ref().map(|mode| mode as &dyn fmt::Display)
    }
}

impl Config {
    /// The mode: that of the argument, else that of the parameters.
    pub const fn mode(&self) -> Mode {
        match self.argument {
            Some(mode) => mode,
            None => self.tunables.mode,
        }
    }

    /// Returns a hash of the mode and the cost model: without them alike, neither paths nor service can be compared. Ids of
    /// cgroups are those of one server, so with them in the mode no other service has the same hash; `hasher` is the
    /// service's.
    pub(super) fn terms(&self, hasher: &Hasher) -> u64 {
        let alike = digest(format_args!("{} {}", self.mode(), self.tunables.cost_model));
        if self.wants_cgroup() {
            hasher.word(alike).max(1)
        } else {
            alike
        }
    }

    /// Pages that an entity is served in a row; 0 without locality.
    pub const fn slice_pages(&self) -> u32 {
        match self.tunables.locality {
            Locality::On => self.tunables.slice_kib.get() / 4,
            Locality::Off => 0,
        }
    }
}

/// The parameters that do not change while a part runs; of the threshold, whether there is one.
fn fixed(tunables: &Tunables) -> Tunables {
    let has_threshold = tunables.opp_threshold.get().min(1);
    Tunables {
        delta_ms: DeltaMs::default(),
        opp_threshold: OppThreshold::new(has_threshold).unwrap_or_default(),
        cross_cpt: CrossCpt::default(),
        size_window_s: SizeWindowS::default(),
        size_max: SizeMax::default(),
        ..*tunables
    }
}

/// The parameters that change while a part runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Live {
    /// Whether the parts are fair together.
    pub(super) cross_cpt: bool,
    /// Queue depth below which the oldest request goes.
    pub(super) opp_threshold: u32,
    /// Largest job size.
    pub(super) size_max: u32,
    /// Time for which a client of a job counts, ns.
    pub(super) size_window: u64,
}

impl Live {
    /// Returns those of `tunables`.
    pub(super) fn of(tunables: &Tunables) -> Self {
        Self {
            cross_cpt: tunables.cross_cpt == CrossCpt::On,
            opp_threshold: tunables.opp_threshold.get(),
            size_max: tunables.size_max.get(),
            size_window: u64::from(tunables.size_window_s.get()).saturating_mul(NSEC_PER_SEC),
        }
    }
}

/// What the parts of one head share over all partitions.
pub struct Shared {
    /// Names paths; the same for all heads of a service.
    pub hasher: Hasher,
    /// Service of each node over all parts, if there are several.
    pub counters: Option<Counters>,
    /// Sizes of jobs, if the mode asks for them and they are to be counted.
    pub sizes: Option<Sizes>,
}

impl Shared {
    /// Who competes for one target does not compete for another.
    pub const PER_TARGET: bool = true;

    /// For `parts` parts of a service with `seed`; sleeps.
    pub fn new(config: &Config, seed: u64, parts: u32) -> core::result::Result<Self, NoMemory> {
        let tunables = &config.tunables;
        let counters = if parts > 1 {
            Some(Counters::new(tunables.classes_max.get() as usize)?)
        } else {
            None
        };
        let counts = config.mode().has_size() && tunables.size_source == SizeSource::Nids;
        let sizes = if counts {
            Some(Sizes::new(SIZES_MAX, Live::of(tunables).size_window)?)
        } else {
            None
        };
        Ok(Self {
            hasher: Hasher::new(seed),
            counters,
            sizes,
        })
    }
}

/// What may change while a part runs.
#[derive(Clone)]
pub struct Update {
    /// The weights.
    pub(super) weights: mem::Shared<Weights>,
    /// What the weights are multiplied by, if servers share.
    pub(super) factors: Option<mem::Shared<Factors>>,
    /// The parameters.
    pub(super) live: Live,
}

impl Update {
    /// `weights`, and what of `tunables` may change.
    pub fn new(weights: mem::Shared<Weights>, tunables: &Tunables) -> Self {
        Self {
            weights,
            factors: None,
            live: Live::of(tunables),
        }
    }

    /// The same with `factors` for the weights, if servers share.
    pub fn with_factors(self, factors: Option<mem::Shared<Factors>>) -> Self {
        Self { factors, ..self }
    }

    /// Steps of the return of the factors to one that are due at `now`, ns.
    pub(super) fn steps(&self, now: u64) -> u32 {
        self.factors
            .as_ref()
            .map_or(0, |factors| factors.steps(now))
    }
}

/// The place of [`Level::Size`] among the levels of `mode`.
pub(super) fn size_level(mode: &Mode) -> Option<u8> {
    let index = mode.levels().iter().position(|&level| level == Level::Size);
    index.and_then(|index| u8::try_from(index).ok())
}
