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
    policy::{
        fairshare::{
            params::{
                CostModel, CrossCpt, DeltaMs, Locality, OppThreshold, Select, SizeMax, SizeSource,
                SizeWindowS,
            },
            weights::Weights,
            Update,
        },
        qbm,
        robin::params as robin,
        tbf::{self, params as rates},
        AnyPart, AnyShared, AnyUpdate, Config, Kind, Part, Tunables,
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
    let mut tunables = Tunables::default();
    set_all(&mut tunables, kind, server)?;
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
fn set_all(tunables: &mut Tunables, kind: Kind, server: &Server) -> Result<(), String> {
    let text = |value: &Param| match value {
        Param::Number(number) => number.to_string(),
        Param::Text(text) => text.clone(),
    };
    let mut again = Vec::new();
    for (key, value) in &server.params {
        let value = text(value);
        if tune(tunables, kind, key, &value).is_err() {
            again.push((key, value));
        }
    }
    for (key, value) in again {
        tune(tunables, kind, key, &value)
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

/// Sets the parameter `key` of the policy `kind`.
fn tune(tunables: &mut Tunables, kind: Kind, key: &str, value: &str) -> error::Result {
    let Tunables {
        fairshare,
        tbf,
        qbm,
        ..
    } = tunables;
    match (kind, key) {
        (Kind::Fairshare, "select") => fairshare.select = Select::parse(value)?,
        (Kind::Fairshare, "cost_model") => fairshare.cost_model = CostModel::parse(value)?,
        (Kind::Fairshare, "opp_threshold") => {
            fairshare.opp_threshold = OppThreshold::parse(value)?;
        }
        (Kind::Fairshare, "locality") => fairshare.locality = Locality::parse(value)?,
        (Kind::Fairshare, "cross_cpt") => fairshare.cross_cpt = CrossCpt::parse(value)?,
        (Kind::Fairshare, "size_source") => fairshare.size_source = SizeSource::parse(value)?,
        (Kind::Fairshare, "size_window_s") => {
            fairshare.size_window_s = SizeWindowS::parse(value)?;
        }
        (Kind::Fairshare, "size_max") => fairshare.size_max = SizeMax::parse(value)?,
        (Kind::Tbf, "rate") => tbf.rate = rates::Rate::parse(value)?,
        (Kind::Tbf, "depth") => tbf.depth = rates::Depth::parse(value)?,
        (Kind::Tbf, "cost_model") => tbf.cost_model = rates::CostModel::parse(value)?,
        (Kind::Tbf, "global_rate") => tbf.global_rate = rates::GlobalRate::parse(value)?,
        (Kind::Tbf, "rules_max") => tbf.rules_max = rates::RulesMax::parse(value)?,
        (Kind::Tbf, "cache_size") => tbf.cache_size = rates::CacheSize::parse(value)?,
        (Kind::Qbm, "clients_max") => {
            qbm.clients_max = qbm::params::ClientsMax::parse(value)?;
        }
        // How often the worker runs, whatever the policy.
        (_, "delta_ms") => fairshare.delta_ms = DeltaMs::parse(value)?,
        (Kind::Delay, "min") => tunables.delay.set_min(value)?,
        (Kind::Delay, "max") => tunables.delay.set_max(value)?,
        (Kind::Delay, "pct") => tunables.delay.set_pct(value)?,
        (Kind::Crrn, "quantum") => {
            let (name, longest) = robin::QUANTUM;
            tunables.crrn.quantum = tunables.crrn.quantum.with(name, longest, value)?;
        }
        (Kind::Orr, _) => sort(&mut tunables.orr, key, value)?,
        (Kind::Trr, _) => sort(&mut tunables.trr, key, value)?,
        _ => return Err(error::Error::invalid("the policy has no such parameter")),
    }
    Ok(())
}

/// Sets a parameter of a policy that sorts.
fn sort(tunables: &mut robin::Tunables, key: &str, value: &str) -> error::Result {
    match key {
        "quantum" => {
            let (name, longest) = robin::QUANTUM;
            tunables.quantum = tunables.quantum.with(name, longest, value)?;
        }
        "offset_type" => {
            let (name, longest) = robin::OFFSET_TYPE;
            tunables.offset_type = tunables.offset_type.with(name, longest, value)?;
        }
        "supported" => {
            let (name, longest) = robin::SUPPORTED;
            tunables.supported = tunables.supported.with(name, longest, value)?;
        }
        _ => return Err(error::Error::invalid("the policy has no such parameter")),
    }
    Ok(())
}

/// Targets are known by their numbers, and no client is a device.
pub struct Place;

impl plan::Scene for Place {
    fn target_number(&self, target: u32) -> u64 {
        u64::from(target)
    }

    fn device_name(&self, _device: u32, _f: &mut dyn FnMut(&[u8])) {}
}
