// SPDX-License-Identifier: GPL-2.0-only

//! Inputs of a study's runs.
//!
//! - A *scenario* is a file for `nrs-sim run`.
//! - A file with the table `random` is a scenario whose servers and jobs the seed draws
//!   ([`Random`]).
//! - A file with the table `ideal` describes ideal servers ([`fluid`]).

use std::collections::BTreeMap;
use std::path::Path;

use nrs_agent::Terms;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use toml_edit::ser::ValueSerializer;
use toml_edit::DocumentMut;

use super::cluster::Random;
use super::{fluid, Failure};
use crate::engine;
use crate::outcome::Outcome;
use crate::scenario::check::SERVERS_MAX;
use crate::scenario::{fault, Faults, Rate, Scenario, Time};

/// Keys of a scenario, as for `--set`, and their values.
pub type Keys = BTreeMap<String, Value>;

/// File of a run, and keys that differ.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Base {
    /// Name of the file, relative to the study.
    pub file: String,
    /// Keys that differ.
    #[serde(default)]
    pub set: Keys,
}

/// Ideal servers and jobs.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ideal {
    /// Number of servers.
    pub servers: usize,
    /// Number of jobs.
    pub jobs: usize,
    /// Weights of the jobs, in turn.
    pub weights: Vec<u32>,
    /// Number of deltas.
    pub deltas: u64,
    /// Transport and disturbances.
    #[serde(default)]
    pub path: fluid::Path,
}

/// Tables that make a file more than a scenario.
#[derive(Deserialize)]
struct Special {
    random: Option<Random>,
    ideal: Option<Ideal>,
}

/// Input of a run.
#[derive(Clone, Debug)]
pub enum Input {
    /// A scenario.
    Scenario(Box<Scenario>),
    /// A scenario with random servers and jobs, and its other keys.
    Random(Random, String),
    /// Ideal servers.
    Ideal(Ideal),
}

/// Run that is over.
pub enum Done {
    /// Of a scenario.
    Scenario(Box<Scenario>, Box<Outcome>),
    /// Of ideal servers.
    Ideal(fluid::Run),
}

/// Reduces a run: divides the times of the run by 6 and bandwidths by 10, so there are a sixtieth
/// of the events. Times of requests, phases and bursts stay.
pub fn shorten(scenario: &mut Scenario) {
    let sixth = |time: &mut Time| time.0 /= 6;
    sixth(&mut scenario.duration);
    sixth(&mut scenario.settle);
    sixth(&mut scenario.sample);
    for job in &mut scenario.jobs {
        sixth(&mut job.start);
        job.stop.iter_mut().for_each(sixth);
    }
    for device in &mut scenario.devices {
        if let Some(Rate(bandwidth)) = &mut device.bandwidth {
            *bandwidth /= 10;
        }
    }
}

impl Input {
    /// Loads `base` from the directory `dir`, with the keys of `set` overridden, too; `{1}` in a
    /// text stands for the first of `labels`.
    ///
    /// # Errors
    ///
    /// Faults of the file or of the keys.
    pub fn load(
        dir: &Path,
        base: &Base,
        set: &Keys,
        labels: &[&str],
        shortened: bool,
    ) -> Result<Self, Failure> {
        let (file, text) = fault::load(&dir.join(&base.file))?;
        let text_of = |value: &Value| match value {
            Value::String(text) => Ok((1..).zip(labels).fold(text.clone(), |text, (n, label)| {
                text.replace(&format!("{{{n}}}"), label)
            })),
            other => other
                .serialize(ValueSerializer::new())
                .map(|value| value.to_string()),
        };
        let set = base.set.iter().chain(set);
        let set = set.map(|(key, value)| Ok((key.clone(), text_of(value)?)));
        let set = set.collect::<Result<Vec<_>, toml_edit::ser::Error>>()?;
        let special: Special = fault::read(&file, &text)?;
        if special.random.is_none() && special.ideal.is_none() {
            let mut scenario = Scenario::parse(&file, &text, &set)?;
            if shortened {
                shorten(&mut scenario);
            }
            return Ok(Self::Scenario(Box::new(scenario)));
        }
        let fault = |(key, reason): (String, String)| Faults::of(&file, &key, reason);
        let text = fault::overridden(&text, &set).map_err(fault)?;
        let special: Special = fault::read(&file, &text)?;
        let bounded = |servers: usize, jobs: usize| {
            let limits = 1..=SERVERS_MAX as usize;
            let within = limits.contains(&servers) && limits.contains(&jobs);
            let reason = format!("servers or jobs are out of range (1 to {SERVERS_MAX})");
            within.then_some(()).ok_or((String::new(), reason))
        };
        if let Some(random) = special.random {
            bounded(random.servers, random.jobs).map_err(fault)?;
            let mut rest: DocumentMut = text.parse()?;
            rest.remove("random");
            let rest = rest.to_string();
            // One seed finds the faults of all.
            random.scenario(&rest, 1)?;
            return Ok(Self::Random(random, rest));
        }
        let missing = || fault(("ideal".into(), "is missing".into()));
        let ideal = special.ideal.ok_or_else(missing)?;
        bounded(ideal.servers, ideal.jobs).map_err(fault)?;
        if ideal.weights.is_empty() || ideal.weights.contains(&0) {
            return Err(fault(("ideal.weights".into(), "is empty, or has a 0".into())).into());
        }
        Ok(Self::Ideal(ideal))
    }

    /// Runs the input with `seed`.
    ///
    /// # Errors
    ///
    /// See [`engine::Engine::new`].
    pub fn run(&self, seed: u64) -> Result<Done, String> {
        let scenario = match self {
            Self::Scenario(scenario) => Scenario::clone(scenario),
            Self::Random(random, rest) => random
                .scenario(rest, seed)
                .map_err(|faults| faults.to_string())?,
            Self::Ideal(ideal) => {
                let layout = fluid::Layout::random(ideal.servers, ideal.jobs, &ideal.weights, seed);
                let terms = Terms {
                    grain: 1,
                    ..Terms::default()
                };
                let run = fluid::run(&layout, terms, ideal.path, ideal.deltas, seed);
                return Ok(Done::Ideal(run));
            }
        };
        let scenario = Scenario { seed, ..scenario };
        let outcome = engine::run(&scenario)?;
        Ok(Done::Scenario(Box::new(scenario), Box::new(outcome)))
    }
}
