// SPDX-License-Identifier: GPL-2.0-only

//! Starts the policy of a server of a scenario.
//!
//! - The *line* is a policy line as in `nrs_policies`.
//! - The *parameters* are the policy's numbers and words, by name without `nrs_` and the policy's
//!   name.
//! - A *text* is a parameter that the policy interprets itself, as it does for the service in the
//!   kernel ([`ServiceDraft`]).

use super::{item::Item, queue::START};
use crate::scenario::{Param, Server};
use nrs_sched::{
    attr::Priority,
    error::Error,
    mem::NoMemory,
    parameters::Values,
    policy::{control::Parameters, AnyOverseer, AnyPart, AnyShared, Config, Kind, Part},
    service::draft::ServiceDraft,
    text::PolicyCommand,
};

/// Policy that was started on all partitions of a server.
pub struct Started {
    /// Configuration of the policy.
    pub config: Config,
    /// Parts, one for each partition.
    pub parts: Vec<AnyPart<Item>>,
    /// Parameters of the server.
    pub parameters: Parameters,
    /// Overseer of the parts, if the policy needs one.
    pub overseer: Option<AnyOverseer>,
}

/// Key in the scenario, and the value with the reason of the error.
pub type Refused = (String, String);

fn refused<E: std::fmt::Display>(key: &str, text: &str) -> impl FnOnce(E) -> Refused {
    let (key, text) = (key.to_string(), text.to_string());
    move |why| (key, format!("`{text}`: {why}"))
}

fn no_memory(_: NoMemory) -> Refused {
    ("policy".into(), "out of memory".into())
}

/// Checks that the policy of `written` would start.
///
/// # Errors
///
/// The key and the reason: the policy line, a rule, the plan, weights or a parameter is invalid.
pub fn check(written: &Server) -> Result<(), Refused> {
    // One partition finds every error, whatever their number.
    let one = Server {
        cpts: 1,
        ..written.clone()
    };
    start(&one, 0, 0, START).map(drop)
}

/// Starts the policy of `server` on its partitions at `now`, ns.
///
/// `secret` is the seed of the service, equal on all servers that exchange accounts of entities;
/// `seed` determines random choices.
///
/// # Errors
///
/// The policy line, a parameter or a text is invalid, or memory is exhausted.
pub fn start(server: &Server, secret: u64, seed: u64, now: u64) -> Result<Started, Refused> {
    let on_line = || refused::<Error>("policy", &server.policy);
    let command = PolicyCommand::parse(&server.policy).map_err(on_line())?;
    let kind = Kind::from_name(command.policy).map_err(|error| {
        let names: Vec<&str> = Kind::ALL.iter().map(|kind| kind.name()).collect();
        let reason = format!("{error} ({})", names.join(", "));
        refused("policy", &server.policy)(reason)
    })?;
    let values = values(kind, server)?;
    let draft = ServiceDraft::<Item>::new(values).map_err(on_line())?;
    let execute =
        |key: &str, name: &str, text: &str| draft.execute(name, text).map_err(refused(key, text));
    execute("policy", "nrs_policies", &server.policy)?;
    for (key, name, texts) in [
        ("rules", "nrs_tbf_rule", &server.rules[..]),
        ("plan", "nrs_qbm_config", server.plan.as_slice()),
        ("weights", "nrs_fairshare_weights", &server.weights),
    ] {
        let policy = name.split('_').nth(1).unwrap_or_default();
        for text in texts {
            if policy != kind.name() {
                let reason = format!("only allowed with the policy {policy}");
                return Err(refused(key, text)(reason));
            }
            execute(key, name, text)?;
        }
    }
    let (mut parameters, [config, _]) = draft.into_settings().map_err(on_line())?;
    let fallback = || Config::parse(kind, None, &parameters.values.policies);
    let config = config.map_or_else(fallback, Ok).map_err(on_line())?;
    let overseer = AnyOverseer::new(&[Some(config)], &parameters.kept, secret);
    let overseer = overseer.map_err(no_memory)?;
    let update = parameters.update(&config, Priority::Regular);
    let update = update.map_err(no_memory)?;
    let update = update.or_else(|| overseer.as_ref()?.update());
    let shared = AnyShared::new(&config, secret, server.cpts).map_err(no_memory)?;
    let parts = (0..u64::from(server.cpts)).map(|cpt| {
        let seed = nrs_sched::rng::avalanche(seed ^ (cpt << 32));
        let mut part = AnyPart::new(&config, seed, &shared).map_err(no_memory)?;
        if let Some(update) = &update {
            part.update(update.clone(), now);
        }
        Ok(part)
    });
    let parts = parts.collect::<Result<_, Refused>>()?;
    Ok(Started {
        config,
        parts,
        parameters,
        overseer,
    })
}

/// Parses the parameters of `server`. A rejected parameter is retried after the rest, because a
/// later parameter may bound it.
fn values(kind: Kind, server: &Server) -> Result<Values, Refused> {
    let mut values = Values::default();
    let mut set = |(key, value): &(&String, &Param)| {
        // The interval of the worker can be set for every policy.
        let policy = match key.as_str() {
            "delta_ms" => "fairshare",
            _ => kind.name(),
        };
        values.set_named(&format!("nrs_{policy}_{key}"), &value.to_string())
    };
    let mut again: Vec<_> = server.params.iter().collect();
    again.retain(|pair| set(pair).is_err());
    for pair @ (key, value) in &again {
        let refused = refused(&format!("params.{key}"), &value.to_string());
        set(pair).map_err(refused)?;
    }
    Ok(values)
}
