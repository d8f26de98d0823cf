// SPDX-License-Identifier: GPL-2.0-only

//! `nrsctl limit`

use std::io::Write;

use clap::{Args, Subcommand};
use serde::Serialize;

use crate::failure::{Failure, FailureKind, Result};
use crate::items::{note_unused, ListArgs, LIMITS};
use crate::kernel::Kernel;
use crate::show;

/// Actions of `nrsctl limit`.
#[derive(Subcommand, Debug)]
pub enum LimitAction {
    /// Lists the limits of a service; unlisted entities have none.
    List(ListArgs),
    /// Sets the limits of entities of fairshare, all of them or none.
    Set(LimitSet),
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
            return Err(Failure::new(FailureKind::Usage, "no limits")
                .hint("give --max, --min, --burst or --class"));
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

/// Runs `nrsctl limit`.
///
/// # Errors
///
/// - [`FailureKind::NotFound`]: the service, user, group or limits do not exist.
/// - [`FailureKind::Refused`]: the name of an entity or a limit is malformed.
/// - [`FailureKind::Usage`]: no limits are given.
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
            show::list(out, args.json, &listed, ["NAME", "LIMITS"], |one| {
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
        LimitAction::Unset {
            service,
            all,
            names,
        } => LIMITS.unset(kernel, service, *all, names),
    }
}
