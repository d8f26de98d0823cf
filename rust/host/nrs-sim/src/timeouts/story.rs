// SPDX-License-Identifier: GPL-2.0-only

//! What a simulated server goes through: few clients, more and more of them, a device that is slow for a
//! while, few clients again.

use super::{Counts, Setup, Sim, SECOND};
use nrs_sched::timeouts::terms::{AtEstimator, Terms};

/// A part of the story.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// A tenth of the clients begins within a second.
    Light,
    /// The others come, a tenth of them every 30 s.
    Growing,
    /// All of them are there.
    Full,
    /// The device takes a hundred times as long.
    Slowed,
    /// It does not any more; all clients are still there.
    After,
    /// A tenth of them is left.
    Eased,
}

impl Phase {
    /// All of them in order.
    pub const ALL: [Self; 6] = [
        Self::Light,
        Self::Growing,
        Self::Full,
        Self::Slowed,
        Self::After,
        Self::Eased,
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Light => "few clients",
            Self::Growing => "more and more",
            Self::Full => "all, steady",
            Self::Slowed => "device 100 times slower",
            Self::After => "all, as before",
            Self::Eased => "few clients again",
        }
    }

    /// How long it lasts, s.
    pub const fn seconds(self) -> u64 {
        match self {
            Self::Light | Self::Slowed => 60,
            Self::Growing | Self::After => 300,
            Self::Full => 240,
            Self::Eased => 900,
        }
    }

    /// When it ends, since the start, s.
    pub fn end(self) -> u64 {
        let until = Self::ALL.into_iter().filter(|phase| *phase <= self);
        until.map(Self::seconds).sum()
    }

    fn begin(self, sim: &mut Sim, clients: u32) {
        match self {
            Self::Light | Self::Eased => sim.active(clients / 10, SECOND),
            Self::Growing | Self::Full => sim.active(clients, SECOND),
            Self::Slowed => sim.slow(100),
            Self::After => sim.slow(1),
        }
    }

    /// Goes through it; returns what happened.
    pub fn run(self, sim: &mut Sim, clients: u32) -> Counts {
        let before = sim.counts();
        if self == Self::Growing {
            for step in 2..=10 {
                sim.active(clients / 10 * step, SECOND);
                sim.run(30 * SECOND);
            }
        }
        self.begin(sim, clients);
        let left = self.end() * SECOND - sim.time();
        sim.run(left);
        sim.counts().since(&before)
    }
}

/// Goes through all phases; returns what happened in each, and the longest wait for a reply, ms.
pub fn whole(setup: Setup) -> (Sim, [(Counts, u32); 6]) {
    let mut sim = Sim::new(setup);
    let phases = Phase::ALL.map(|phase| {
        let counts = phase.run(&mut sim, setup.clients);
        (counts, sim.take_longest())
    });
    (sim, phases)
}

/// What [`Sim::if_dead`] tells.
pub type IfDead = Vec<u32>;

/// Goes through all phases; returns what would happen if the server died at each of `deaths`, which are seconds
/// since the start in their order, and not while clients come.
pub fn deaths(setup: Setup, deaths: &[u64]) -> (Sim, Vec<IfDead>) {
    let mut sim = Sim::new(setup);
    let mut found = Vec::new();
    let mut deaths = deaths.iter().copied().peekable();
    for phase in Phase::ALL {
        if phase != Phase::Growing {
            phase.begin(&mut sim, setup.clients);
            while let Some(second) = deaths.next_if(|second| *second <= phase.end()) {
                let left = (second * SECOND).saturating_sub(sim.time());
                sim.run(left);
                found.push(sim.if_dead());
            }
        }
        phase.run(&mut sim, setup.clients);
    }
    (sim, found)
}

/// Goes on until `seconds` since the start, where the server dies; returns what the times waited in vain were
/// that ended within `more` seconds, ms.
pub fn die(setup: Setup, seconds: u64, more: u64) -> Vec<u32> {
    let mut sim = Sim::new(setup);
    until(&mut sim, setup.clients, seconds);
    sim.kill(true);
    sim.run(more * SECOND);
    sim.detections().to_vec()
}

/// Goes on until `seconds` since the start, which is not while clients come.
pub fn until(sim: &mut Sim, clients: u32, seconds: u64) {
    for phase in Phase::ALL {
        if phase.end() > seconds {
            phase.begin(sim, clients);
            break;
        }
        phase.run(sim, clients);
    }
    let left = (seconds * SECOND).saturating_sub(sim.time());
    sim.run(left);
}

/// The default terms with another estimator.
pub fn with(estimator: AtEstimator) -> Terms {
    Terms {
        estimator,
        ..Terms::default()
    }
}

/// A server that can do so many requests a second, with 64 slots.
pub fn server(clients: u32, per_second: u64, terms: Terms) -> Setup {
    Setup {
        clients,
        slots: 64,
        service: 64 * SECOND / per_second,
        think: 5 * SECOND,
        terms,
        ..Setup::default()
    }
}
