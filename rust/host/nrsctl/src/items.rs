// SPDX-License-Identifier: GPL-2.0-only

//! Parameters that are lists of items, each a name and a value: weights, limits and owners.

use std::io::Write;

use nrs_sched::error::Error;
use nrs_sched::items::next_name;
use nrs_sched::owners::Owners;
use nrs_sched::policy::fairshare::entity_table::Weights;
use nrs_sched::policy::fairshare::limits::Limits;
use nrs_sched::policy::fairshare::mode::Mode;
use nrs_sched::policy::Kind;

use crate::failure::{failure, Result};
use crate::kernel::Kernel;
use crate::show::OutputForm;
use crate::stats;

/// Parameter that is a list of items.
pub struct ItemList {
    /// Name of the parameter.
    pub parameter: &'static str,
    /// Text between name and value.
    pub separator: char,
    /// Form of a name.
    pub form: &'static str,
    /// Value that is valid for any name.
    any: &'static str,
    /// Reason to refuse several items in place of one.
    several: &'static str,
    /// Returns the number of items in a text.
    pub count: fn(&str) -> std::result::Result<usize, Error>,
}

/// Weights of entities, `FIELD:VALUE:WEIGHT`.
pub const WEIGHTS: ItemList = ItemList {
    parameter: "nrs_fairshare_weights",
    separator: ':',
    form: "FIELD:VALUE",
    any: "1",
    several: "is not one weight",
    count: |text| Ok(Weights::new().apply(text)?.len()),
};

/// Limits of entities, `FIELD:VALUE:LIMITS`.
pub const LIMITS: ItemList = ItemList {
    parameter: "nrs_fairshare_limits",
    any: "max=1",
    several: "is not one entity",
    count: |text| Ok(Limits::new().apply(text)?.len()),
    ..WEIGHTS
};

/// Owners of cgroups, `PATH=USER:GROUP`.
pub const OWNERS: ItemList = ItemList {
    parameter: "nrs_owners",
    separator: '=',
    form: "a path",
    any: "0:0",
    several: "is not one owner",
    count: |text| Ok(Owners::new().apply(text)?.len()),
};

/// Returns the heads of a service that fairshare schedules, and its modes.
pub fn modes(kernel: &dyn Kernel, service: &str) -> Result<Vec<(String, Mode)>> {
    let usual = kernel.get(service, "nrs_fairshare_mode");
    let usual = usual.unwrap_or_default();
    let mut found = Vec::new();
    for head in stats::heads(kernel, service)? {
        let mut policies = head.policies.iter();
        let fair = policies.find(|policy| policy.name == Kind::Fairshare.name());
        let mode = fair.map(|fair| fair.argument.as_deref().unwrap_or(usual.trim()));
        if let Some(Ok(mode)) = mode.map(Mode::parse) {
            found.push((head.name, mode));
        }
    }
    Ok(found)
}

/// Notes which of the entities `names` have no effect on the requests of `service`, because no
/// running policy has their levels.
pub fn note_unused<'a>(
    kernel: &dyn Kernel,
    service: &str,
    names: impl Iterator<Item = &'a str>,
    out: &mut dyn Write,
) -> Result {
    // The items are set, even if the policies cannot be read.
    let Ok(modes) = modes(kernel, service) else {
        return Ok(());
    };
    for name in names {
        let mut parts = Some(name);
        let fields: Vec<&str> = std::iter::from_fn(|| next_name(&mut parts))
            .map(|part| part.split_once(':').map_or(part, |(field, _)| field))
            .collect();
        let missing = |mode: &Mode| -> Vec<&str> {
            let has = |field: &str| mode.levels().iter().any(|one| one.field().name() == field);
            fields.iter().copied().filter(|field| !has(field)).collect()
        };
        if modes.iter().any(|(_, mode)| missing(mode).is_empty()) {
            continue;
        }
        let first = modes.first().map(|(_, mode)| mode);
        let lacks = first.map_or(fields.clone(), missing);
        let levels = lacks.join("_then_");
        let mode = match first {
            Some(mode) => mode
                .to_string()
                .replace("_fair", &format!("_then_{levels}_fair")),
            None => format!("{levels}_fair"),
        };
        writeln!(
            out,
            "{service}: {name} has no effect without the level {}\n  \
             to add it: nrsctl policy set {service} fairshare {mode}",
            lacks.join(" and ")
        )?;
    }
    Ok(())
}

/// Arguments of verbs that list items.
#[derive(clap::Args, Debug)]
pub struct ListArgs {
    /// Name of the service.
    pub service: String,
    /// Form of the output.
    #[command(flatten)]
    pub form: OutputForm,
}

impl ItemList {
    /// Splits an item into name and value.
    pub fn split<'a>(&self, item: &'a str) -> Option<(&'a str, &'a str)> {
        item.rsplit_once(self.separator)
    }

    /// Returns all items of a service, one per line; users and groups by name unless `args` ask for
    /// numbers.
    pub fn text(&self, kernel: &dyn Kernel, args: &ListArgs) -> Result<String> {
        let text = kernel.get(&args.service, self.parameter)?;
        Ok(match args.form.numeric || args.form.json {
            true => text,
            false => kernel.accounts().names(self.parameter, &text).into_owned(),
        })
    }

    /// Returns the items in `text`, which a service shows, as `parse` reads them.
    ///
    /// # Errors
    ///
    /// `Other`: `parse` cannot read a line.
    pub fn parse<'a, T>(
        &self,
        args: &ListArgs,
        text: &'a str,
        parse: impl Fn(&'a str, &'a str) -> Option<T>,
    ) -> Result<Vec<T>> {
        let items = text.lines().map(|line| {
            let (name, value) = self.split(line)?;
            parse(name, value)
        });
        items
            .collect::<Option<_>>()
            .ok_or_else(|| failure!(Other: "{}: {}: {text}", args.service, self.parameter))
    }

    /// Returns `item`, which the user wrote as `text`, with numbers for users and groups, after
    /// checking that it is a single item.
    pub fn item(&self, kernel: &dyn Kernel, text: &str, item: &str) -> Result<String> {
        let item = kernel
            .accounts()
            .numbers(self.parameter, item)?
            .into_owned();
        let count = (self.count)(&item).map_err(|error| error.reason);
        let one = count.and_then(|count| match count {
            1 => Ok(()),
            _ => Err(self.several),
        });
        one.map_err(|reason| failure!(Refused: "{text}: {reason}"))?;
        Ok(item)
    }

    /// Writes all of `items` at once.
    pub fn set(
        &self,
        kernel: &dyn Kernel,
        service: &str,
        items: impl Iterator<Item = Result<String>>,
    ) -> Result {
        let items = items.collect::<Result<Vec<_>>>()?;
        kernel.set(service, self.parameter, &items.join(" "))
    }

    /// Removes the items of `names`, or with `all` all of them.
    pub fn unset(&self, kernel: &dyn Kernel, service: &str, all: bool, names: &[String]) -> Result {
        if all {
            return kernel.set(service, self.parameter, "clear");
        }
        // The item is checked with a value, because a check against an empty list refuses removals.
        let items = names.iter().map(|name| {
            let item = format!("{name}{}{}", self.separator, self.any);
            let item = self.item(kernel, name, &item)?;
            let (name, _) = self.split(&item).unwrap_or((&item, ""));
            Ok(format!("-{name}"))
        });
        self.set(kernel, service, items)
    }
}
