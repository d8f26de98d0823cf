// SPDX-License-Identifier: GPL-2.0-only

//! What a part is started with, what the parts of one head share, and what they are told.

use super::{
    factors::Factors,
    mode::{Level, Mode},
    params::{CrossCpt, SizeSource, Tunables},
    shared::Counters,
    size::{Sizes, SIZES_MAX},
    weights::Weights,
};
use crate::sched::{
    error::Result,
    key::Hasher,
    mem::{self, NoMemory},
    policy::Configuration,
    units::NSEC_PER_SEC,
};
use core::fmt;

/// Configuration of a part; without what a part is told while it runs ([`Update`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    argument: Option<Mode>,
    /// The parameters at the time of the start.
    pub tunables: Tunables,
}

impl Configuration for Config {
    type Tunables = Tunables;
    type Update = Update;

    /// The argument is a mode; without one the mode of `tunables`.
    fn parse(arg: Option<&str>, tunables: &Tunables) -> Result<Self> {
        let argument = arg.map(Mode::parse).transpose()?;
        Ok(Self {
            argument,
            tunables: fixed(tunables),
        })
    }

    fn with(&self, tunables: &Tunables) -> Self {
        Self {
            argument: self.argument,
            tunables: fixed(tunables),
        }
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
}

/// The parameters that do not change while a part runs.
fn fixed(tunables: &Tunables) -> Tunables {
    Tunables {
        cross_cpt: CrossCpt::default(),
        ..*tunables
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
            let window = u64::from(tunables.size_window_s.get()).saturating_mul(NSEC_PER_SEC);
            Some(Sizes::new(SIZES_MAX, window)?)
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
    /// Whether the parts are fair together.
    pub(super) cross_cpt: bool,
}

impl Update {
    /// `weights`, and whether the parts of a head are fair together or each by itself.
    pub const fn new(weights: mem::Shared<Weights>, cross_cpt: bool) -> Self {
        Self {
            weights,
            factors: None,
            cross_cpt,
        }
    }

    /// The same with `factors` for the weights, if servers share.
    pub fn with_factors(self, factors: Option<mem::Shared<Factors>>) -> Self {
        Self { factors, ..self }
    }
}

/// The place of [`Level::Size`] among the levels of `mode`.
pub(super) fn size_level(mode: &Mode) -> Option<u8> {
    let index = mode.levels().iter().position(|&level| level == Level::Size);
    index.and_then(|index| u8::try_from(index).ok())
}
