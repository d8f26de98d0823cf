// SPDX-License-Identifier: GPL-2.0-only

//! From what a scenario says of a server to parts that are started.
//!
//! * A *line* is what `nrs_policies` takes.
//! * *Parameters* are the tunables of the policy, by their names without `nrs_` and the policy's name.

use super::item::Item;
use crate::scenario::{Param, Server};
use nrs_sched::{
    attr::Priority,
    error,
    mem::{NoMemory, Shared},
    parameters::Values,
    policy::{
        fairshare::{weights::Weights, Update},
        qbm, tbf, AnyPart, AnyShared, AnyUpdate, Config, Kind, Part, Tunables,
    },
    qbm::{
        gate::Gates,
        manager::Manager,
        plan::{self, Plan},
    },
    rules,
    text::Command,
};

/// A policy that was started on all partitions of a server.
pub struct Started {
    /// How.
    pub config: Config,
    /// The parts, one for each partition.
    pub parts: Vec<AnyPart<Item>>,
    /// Parameters that were set, and defaults.
    pub tunables: Tunables,
    /// Weights of fairshare.
    pub weights: Shared<Weights>,
    /// Who looks after the bandwidth of clients, with `qbm`.
    pub manager: Option<Manager>,
}

/// What keeps a policy from being started.
fn refused(what: &str, text: &str, why: impl std::fmt::Display) -> String {
    format!("{what} `{text}`: {why}")
}

fn no_memory(_: NoMemory) -> String {
    "out of memory".to_string()
}

/// Starts the policy of `server` at `now` (ns) on its partitions. `secret` is the service's seed, the same for
/// all servers that tell each other of their entities; `seed` makes random choices.
///
/// # Errors
///
/// What the policy refuses, and why.
pub fn start(server: &Server, secret: u64, seed: u64, now: u64) -> Result<Started, String> {
    let command = Command::parse(&server.policy)
        .map_err(|error| refused("policy", &server.policy, error.reason))?;
    let kind = Kind::from_name(command.policy)
        .map_err(|error| refused("policy", command.policy, error.reason))?;
    let mut values = Values::default();
    set_all(&mut values, kind, server)?;
    let mut tunables = values.policies;
    let plan = match &server.plan {
        Some(text) => Plan::parse(text).map_err(|error| format!("plan: {error}"))?,
        None => Plan::none().map_err(no_memory)?,
    };
    tunables.qbm.by = plan.by();
    let config = Config::parse(kind, command.argument, &tunables)
        .map_err(|error| refused("policy", &server.policy, error.reason))?
        .on(Priority::Regular);
    let mut weights = Weights::new();
    for text in &server.weights {
        weights = weights
            .apply(text)
            .map_err(|error| refused("weights", text, error.reason))?;
    }
    let weights = Shared::new(weights).map_err(no_memory)?;
    let (update, manager) = first_update(&config, &weights, server, plan, secret)?;
    let shared = AnyShared::new(&config, secret, server.cpts).map_err(no_memory)?;
    let parts = (0..u64::from(server.cpts)).map(|cpt| {
        let seed = nrs_sched::rng::avalanche(seed ^ (cpt << 32));
        let mut part = AnyPart::new(&config, seed, &shared).map_err(no_memory)?;
        if let Some(update) = &update {
            part.update(update.clone(), now);
        }
        Ok(part)
    });
    let parts = parts.collect::<Result<_, String>>()?;
    Ok(Started {
        config,
        parts,
        tunables,
        weights,
        manager,
    })
}

/// Sets the parameters of `server`. One that is refused is tried again after the others, as its bound may be among
/// them.
fn set_all(values: &mut Values, kind: Kind, server: &Server) -> Result<(), String> {
    let text = |value: &Param| match value {
        Param::Number(number) => number.to_string(),
        Param::Text(text) => text.clone(),
    };
    let mut again = Vec::new();
    for (key, value) in &server.params {
        let value = text(value);
        if tune(values, kind, key, &value).is_err() {
            again.push((key, value));
        }
    }
    for (key, value) in again {
        tune(values, kind, key, &value)
            .map_err(|error| refused(&format!("parameter `{key}`"), &value, error.reason))?;
    }
    Ok(())
}

/// What parts are told when they are made, and who sets their gates.
fn first_update(
    config: &Config,
    weights: &Shared<Weights>,
    server: &Server,
    plan: Plan,
    secret: u64,
) -> Result<(Option<AnyUpdate>, Option<Manager>), String> {
    Ok(match config {
        Config::Fairshare(inner) => {
            let cross_cpt = inner.tunables().cross_cpt.is_on();
            let update = Update::new(weights.clone(), cross_cpt);
            (Some(AnyUpdate::Fairshare(update)), None)
        }
        Config::Tbf(inner) => {
            let mut book = inner.book().map_err(no_memory)?;
            for text in &server.rules {
                let applied = rules::Command::parse(text).and_then(|command| book.apply(&command));
                book = applied.map_err(|error| refused("rule", text, error))?;
            }
            let set = book.compile(1).and_then(Shared::new).map_err(no_memory)?;
            let update = tbf::Update::new(set, inner).map_err(no_memory)?;
            (Some(AnyUpdate::Tbf(update)), None)
        }
        Config::Qbm(inner) => {
            let seats = inner.tunables().clients_max.get() as usize;
            let gates = Gates::new(seats).and_then(Shared::new).map_err(no_memory)?;
            let plan = Shared::new(plan).map_err(no_memory)?;
            let manager = Manager::new(plan, gates.clone(), secret).map_err(no_memory)?;
            let update = AnyUpdate::Qbm(qbm::Update::new(gates));
            (Some(update), Some(manager))
        }
        _ => (None, None),
    })
}

/// Sets the parameter `key` of the policy `kind`; how often the worker runs can be set for all.
fn tune(values: &mut Values, kind: Kind, key: &str, value: &str) -> error::Result {
    let policy = match key {
        "delta_ms" => Kind::Fairshare,
        _ => kind,
    };
    values.set_named(&format!("nrs_{}_{key}", policy.name()), value)
}

/// Targets are known by their numbers, and no client is a device.
pub struct Place;

impl plan::Scene for Place {
    fn target_number(&self, target: u32) -> u64 {
        u64::from(target)
    }

    fn device_name(&self, _device: u32, _f: &mut dyn FnMut(&[u8])) {}
}
