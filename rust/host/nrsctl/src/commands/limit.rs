// SPDX-License-Identifier: GPL-2.0-only

//! `nrsctl limit`

use std::io::Write;

use clap::{Args, Subcommand};
use serde::Serialize;

use nrs_sched::attr::Attrs;
use nrs_sched::error::Error;
use nrs_sched::key::{Field, Key};
use nrs_sched::policy::fairshare::entity_table::{EntitySetting, EntityTable, Weights};
use nrs_sched::policy::fairshare::limits::Limits;

use super::rule::TestedRequest;
use crate::accounts::ENTITY;
use crate::configuration::running;
use crate::failure::{failure, Result};
use crate::items::{modes, note_unused, ListArgs, LIMITS};
use crate::kernel::Kernel;
use crate::show;

/// Actions of `nrsctl limit`.
#[derive(Subcommand, Debug)]
pub enum LimitAction {
    /// Lists the limits of a service; unlisted entities have none.
    List(ListArgs),
    /// Sets the limits of entities of fairshare, all of them or none.
    Set(LimitSet),
    /// Shows the weights and limits of the entities of a given request.
    Test {
        #[command(flatten)]
        tested: TestedRequest,
        /// Prints JSON.
        #[arg(long)]
        json: bool,
    },
    /// Removes limits, all of them or none.
    Unset {
        /// Name of the service.
        service: String,
        /// Entities: uid:alice.
        #[arg(required_unless_present = "all", value_name = "FIELD:VALUE")]
        names: Vec<String>,
        /// Removes all limits of the service.
        #[arg(long, conflicts_with = "names")]
        all: bool,
    },
}

/// Arguments of `nrsctl limit set`.
#[derive(Args, Debug)]
pub struct LimitSet {
    /// Name of the service.
    service: String,
    /// Entities, each with limits of its own: uid:alice, gid:*, 'uid:bob&opcode:ost_write'.
    #[arg(required = true, value_name = "FIELD:VALUE")]
    names: Vec<String>,
    /// Maximum: 100 requests/s, 20MB/s, 10% of the capacity, several (100,20MB/s), or unlimited.
    #[arg(long, value_name = "RATE[,RATE]")]
    max: Option<String>,
    /// Guaranteed minimum, in the same units.
    #[arg(long, value_name = "RATE[,RATE]")]
    min: Option<String>,
    /// Credit that an idle entity saves: 10s, 600 requests, 64MiB.
    #[arg(long)]
    burst: Option<String>,
    /// Importance: realtime, normal, or idle (what others leave).
    #[arg(long)]
    class: Option<String>,
}

impl LimitSet {
    /// Returns the limits as the parameter takes them.
    fn setting(&self) -> Result<String> {
        let words = [
            ("max", &self.max),
            ("min", &self.min),
            ("burst", &self.burst),
            ("class", &self.class),
        ];
        let words = words.iter().filter_map(|(key, value)| {
            let value = value.as_ref()?.replace(',', "+");
            Some(format!("{key}={value}"))
        });
        let setting = words.collect::<Vec<_>>().join("+");
        if setting.is_empty() {
            return Err(failure!(Usage: "no limits"; "give --max, --min, --burst or --class"));
        }
        Ok(setting)
    }
}

/// Limits, as shown.
#[derive(Debug, Serialize)]
struct ListedLimits {
    /// Name of the entity: `uid:1000`.
    name: String,
    limits: String,
}

/// Entity of a request.
#[derive(Debug, Serialize)]
struct TestedEntity {
    /// `regular` or `high`.
    head: String,
    /// Name of the entity: `uid:1000`.
    name: String,
    weight: u32,
    limits: String,
}

/// Returns the entities of a request with `attrs`, outermost first, for each head.
fn entities(kernel: &dyn Kernel, service: &str, attrs: &Attrs) -> Result<Vec<TestedEntity>> {
    let malformed = |error: Error| failure!(Other: "{service}: {error}");
    let state = running::read(kernel, service)?;
    let weights = Weights::new().apply(&state.weights).map_err(malformed)?;
    let limits = Limits::new().apply(&state.limits).map_err(malformed)?;
    let mut found = Vec::new();
    for (head, mode) in modes(kernel, service)? {
        let mut keys: Vec<(Field, Key)> = Vec::new();
        for level in mode.levels() {
            let field = level.field();
            let key = match Key::of(field, attrs) {
                Key::Cgroup(path) if field == Field::Cgroup => {
                    Key::Cgroup(weights.named_cgroup_with(&limits, path))
                }
                key => key,
            };
            let name = key.to_string();
            let name = kernel.accounts().names(ENTITY, &name).into_owned();
            found.push(TestedEntity {
                head: head.clone(),
                name,
                weight: setting(&weights, &key, field, &keys).unwrap_or(1),
                limits: setting(&limits, &key, field, &keys)
                    .map_or("unknown".to_owned(), |limits| limits.to_string()),
            });
            keys.push((field, key));
        }
    }
    Ok(found)
}

/// Returns the setting of an entity with `key` below entities with the keys `above`.
fn setting<V: EntitySetting>(
    table: &EntityTable<V>,
    key: &Key,
    field: Field,
    above: &[(Field, Key)],
) -> Option<V> {
    let above = |field| {
        above
            .iter()
            .find(|(one, _)| *one == field)
            .map(|(_, key)| *key)
    };
    table.find(key, field, &above)
}

/// Runs `nrsctl limit`.
///
/// # Errors
///
/// - `NotFound`: the service, user, group or limits do not exist.
/// - `Refused`: the name of an entity or a limit is malformed.
/// - `Usage`: no limits are given, or a request is malformed.
pub fn run(action: &LimitAction, kernel: &dyn Kernel, out: &mut dyn Write) -> Result {
    match action {
        LimitAction::List(args) => {
            let text = LIMITS.text(kernel, args)?;
            let listed = LIMITS.parse(args, &text, |name, limits| {
                Some(ListedLimits {
                    name: name.into(),
                    limits: limits.into(),
                })
            })?;
            show::list(out, args.form.json, &listed, ["NAME", "LIMITS"], |one| {
                [one.name.clone(), one.limits.clone()]
            })
        }
        LimitAction::Set(set) => {
            let setting = set.setting()?;
            let items = set.names.iter();
            let items = items.map(|name| LIMITS.item(kernel, name, &format!("{name}:{setting}")));
            LIMITS.set(kernel, &set.service, items)?;
            // The limits are set, even if the slots cannot be read.
            let slots = kernel.get(&set.service, "slots").unwrap_or_default();
            if setting.contains('%') && !slots.is_empty() && slots.trim() != "auto" {
                writeln!(
                    out,
                    "{0}: limits in % need the capacity that automatic slots measure\n  \
                     to measure it: nrsctl set_param {0}.slots=auto",
                    set.service
                )?;
            }
            note_unused(
                kernel,
                &set.service,
                set.names.iter().map(String::as_str),
                out,
            )
        }
        LimitAction::Test { tested, json } => {
            let attrs = tested.attributes(kernel)?;
            let found = entities(kernel, &tested.service, &attrs)?;
            let head = ["HEAD", "ENTITY", "WEIGHT", "LIMITS"];
            show::list(out, *json, &found, head, |one| {
                [
                    one.head.clone(),
                    one.name.clone(),
                    one.weight.to_string(),
                    one.limits.clone(),
                ]
            })
        }
        LimitAction::Unset {
            service,
            all,
            names,
        } => LIMITS.unset(kernel, service, *all, names),
    }
}
