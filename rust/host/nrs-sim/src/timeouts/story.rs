// SPDX-License-Identifier: GPL-2.0-only

//! Sequence of load phases of a simulated server: few clients, growing load, a slow device, few
//! clients again.

use super::{Counts, Setup, Sim, SECOND};
use nrs_sched::timeouts::terms::{AtEstimator, TimeoutTerms};

/// Phase of the story.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// A tenth of the clients begins within a second.
    Light,
    /// The other clients begin, a tenth every 30 s.
    Growing,
    /// All clients are active.
    Full,
    /// The service time is a hundred times as long.
    Slowed,
    /// The service time is normal again; all clients are active.
    After,
    /// A tenth of the clients is active.
    Eased,
}

impl Phase {
    /// All phases in order.
    pub const ALL: [Self; 6] = [
        Self::Light,
        Self::Growing,
        Self::Full,
        Self::Slowed,
        Self::After,
        Self::Eased,
    ];

    /// Returns the name of the phase.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Light => "few clients",
            Self::Growing => "growing load",
            Self::Full => "all, steady",
            Self::Slowed => "device 100 times slower",
            Self::After => "all, normal device",
            Self::Eased => "few clients, after the load",
        }
    }

    /// Returns the length of the phase, s.
    pub const fn seconds(self) -> u64 {
        match self {
            Self::Light | Self::Slowed => 60,
            Self::Growing | Self::After => 300,
            Self::Full => 240,
            Self::Eased => 900,
        }
    }

    /// Returns the end of the phase since the start, s.
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

    /// Runs the phase; returns its counts.
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

/// Runs all phases; returns the counts and the longest wait for a reply, ms, of each.
pub fn whole(setup: Setup) -> (Sim, [(Counts, u32); 6]) {
    let mut sim = Sim::new(setup);
    let phases = Phase::ALL.map(|phase| {
        let counts = phase.run(&mut sim, setup.clients);
        (counts, sim.take_longest())
    });
    (sim, phases)
}

/// Result of [`Sim::predicted_detections_ms`].
pub type IfDead = Vec<u32>;

/// Runs all phases; returns the detection times if the server died at each of `deaths`.
///
/// `deaths` are seconds since the start, in ascending order, and not in the phase
/// [`Phase::Growing`].
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
                found.push(sim.predicted_detections_ms());
            }
        }
        phase.run(&mut sim, setup.clients);
    }
    (sim, found)
}

/// Stops the server at `seconds` since the start; returns the detection times, ms, of the next
/// `more` seconds.
pub fn die(setup: Setup, seconds: u64, more: u64) -> Vec<u32> {
    let mut sim = Sim::new(setup);
    until(&mut sim, setup.clients, seconds);
    sim.kill(true);
    sim.run(more * SECOND);
    sim.detections().to_vec()
}

/// Runs until `seconds` since the start, which are not in the phase [`Phase::Growing`].
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

/// Returns the default terms with another estimator.
pub fn with(estimator: AtEstimator) -> TimeoutTerms {
    TimeoutTerms {
        estimator,
        ..TimeoutTerms::default()
    }
}

/// Returns a server with 64 slots and a capacity of `per_second` requests/s.
pub fn server(clients: u32, per_second: u64, terms: TimeoutTerms) -> Setup {
    Setup {
        clients,
        slots: 64,
        service: 64 * SECOND / per_second,
        think: 5 * SECOND,
        terms,
        ..Setup::default()
    }
}
