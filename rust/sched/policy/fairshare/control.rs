// SPDX-License-Identifier: GPL-2.0-only

//! Weights of a service, and the parameters that are texts.

use super::{
    config::RuntimeParameters,
    entity_table::{self, Weights},
    factors::Factors,
    limits::{LimitPlan, Limits},
    mode::Mode,
    params::{Select, Tunables},
    stats::{self, NodeRows},
    Config, NodeRowBuf, Update,
};
use crate::sched::{
    agent::{FactorPairs, Lease},
    attr::Priority,
    capacity::Capacity,
    count::Count,
    error::{Code, Error, Result},
    mem::{NoMemory, Shared},
    policy::{
        control::{refresh_stale, ByHead, Host, Keep, RunningPart, TextParameter},
        params::ClassesMax,
        Kind,
    },
    report::Report,
    service::text::TextHash,
};
use core::fmt::Write;

/// State that a service keeps for the policy.
#[derive(Clone)]
pub struct PolicyData {
    /// Weights of entities.
    pub weights: Shared<Weights>,
    /// Limits of entities, possibly none; `None` before the first.
    limits: Option<Shared<LimitPlan>>,
    /// Measured capacity, for limits in percent.
    capacity: Shared<Capacity>,
    /// Factors of the weights of the running parts.
    factors: Option<Shared<Factors>>,
    /// Number of starts and stops of parts on the regular head.
    starts: u64,
    /// Mode of the parts on the regular head, if the policy runs there.
    mode: Option<Mode>,
}

impl PolicyData {
    /// Applies the changes in `text` to the weights.
    fn reweigh(&mut self, text: &str) -> Result {
        self.weights = Shared::new(self.weights.apply(text)?)?;
        Ok(())
    }

    /// Applies the changes in `text` to the limits.
    fn limit(&mut self, text: &str, classes: ClassesMax) -> Result {
        let limits = Shared::new(match &self.limits {
            Some(plan) => plan.limits().apply(text)?,
            None => Limits::new().apply(text)?,
        })?;
        let before = self.limits.as_deref();
        self.limits = match before {
            None if limits.is_empty() => None,
            before => {
                let classes = classes.get() as usize;
                let plan = LimitPlan::new(limits, before, classes, &self.capacity)?;
                Some(Shared::new(plan)?)
            }
        };
        Ok(())
    }

    /// Returns the limits, if there are any.
    fn limits(&self) -> Option<&Shared<LimitPlan>> {
        self.limits
            .as_ref()
            .filter(|plan| !plan.limits().is_empty())
    }

    /// Writes the limits, one item per line.
    fn write_limits(&self, out: &mut dyn Write) -> core::fmt::Result {
        self.limits()
            .map_or(Ok(()), |plan| plan.limits().write(out))
    }

    /// Returns the factors for parts started with `config`. Ids in factors are of the regular
    /// head's mode; in another mode the same ids would name other classes.
    fn factors_for(&self, config: &Config) -> Option<&Shared<Factors>> {
        self.factors
            .as_ref()
            .filter(|_| self.mode == Some(config.mode()))
    }
}

/// Writes items, which end with a line end each, into lines of a parameter.
struct Items<'a> {
    out: &'a mut dyn Write,
    /// Name of the parameter.
    name: &'static str,
    /// Length of the current line without its name, bytes.
    length: usize,
    /// True before the first character of an item.
    is_new: bool,
}

impl<'a> Items<'a> {
    /// Writes what `write` writes into lines of the parameter `name`.
    fn write(
        out: &'a mut dyn Write,
        name: &'static str,
        write: impl FnOnce(&mut Self) -> core::fmt::Result,
    ) -> core::fmt::Result {
        let mut items = Self {
            out,
            name,
            length: 0,
            is_new: true,
        };
        write(&mut items)?;
        match items.length {
            0 => Ok(()),
            _ => items.out.write_char('\n'),
        }
    }

    /// Length at which another line begins; a command has at most 4095 bytes.
    const LONG: usize = 3500;
}

impl Write for Items<'_> {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        for char in text.chars() {
            if char == '\n' {
                self.is_new = true;
                continue;
            }
            if core::mem::take(&mut self.is_new) {
                if self.length > Self::LONG {
                    self.out.write_char('\n')?;
                    self.length = 0;
                }
                match self.length {
                    0 => write!(self.out, "{} ", self.name)?,
                    _ => self.out.write_char(',')?,
                }
            }
            self.out.write_char(char)?;
            self.length = self.length.saturating_add(char.len_utf8());
        }
        Ok(())
    }
}

/// Returns true if both refer to the same data, or to none.
fn are_same<T>(one: Option<&Shared<T>>, other: Option<&Shared<T>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one.ptr_eq(other),
        (one, other) => one.is_none() && other.is_none(),
    }
}

impl Keep<Config> for PolicyData {
    fn empty() -> core::result::Result<Self, NoMemory> {
        Ok(Self {
            weights: Shared::new(Weights::new())?,
            limits: None,
            capacity: Shared::new(Capacity::new())?,
            factors: None,
            starts: 0,
            mode: None,
        })
    }

    /// Drops the factors when the configuration of the regular head changes, because factors belong
    /// to the parts that were started together.
    fn sync(
        &mut self,
        [old, _]: &ByHead<Option<Config>>,
        [new, _]: &ByHead<Option<Config>>,
    ) -> core::result::Result<(), NoMemory> {
        if old != new {
            self.starts.count(1);
            self.factors = None;
        }
        self.mode = new.as_ref().map(Config::mode);
        Ok(())
    }

    fn update(
        &mut self,
        config: &Config,
        tunables: &Tunables,
        _priority: Priority,
    ) -> core::result::Result<Option<Update>, NoMemory> {
        let classes = tunables.classes_max.get() as usize;
        if let Some(plan) = self.limits.as_ref().filter(|plan| plan.classes < classes) {
            let limits = plan.limits().clone();
            let plan = LimitPlan::new(limits, Some(plan), classes, &self.capacity)?;
            self.limits = Some(Shared::new(plan)?);
        }
        let update =
            Update::new(self.weights.clone(), tunables).with_limits(self.limits().cloned());
        let factors = self.factors_for(config).cloned();
        Ok(Some(update.with_factors(factors)))
    }

    fn is_news(
        &self,
        config: &Config,
        tunables: &Tunables,
        old: &Self,
        old_tunables: &Tunables,
        _priority: Priority,
    ) -> bool {
        !self.weights.ptr_eq(&old.weights)
            || !are_same(self.limits(), old.limits())
            || !are_same(self.factors_for(config), old.factors_for(config))
            || RuntimeParameters::of(tunables) != RuntimeParameters::of(old_tunables)
    }

    fn resume(
        &mut self,
        old: &Self,
        before: &ByHead<Option<Config>>,
        after: &ByHead<Option<Config>>,
    ) -> core::result::Result<(), NoMemory> {
        let hash = |kept: &Self| TextHash::of(|out| kept.weights.write(out));
        if hash(self) == hash(old) {
            self.weights = old.weights.clone();
        }
        // The buckets of running parts continue, and the tuner has the capacity.
        self.capacity = old.capacity.clone();
        let hash = |kept: &Self| TextHash::of(|out| kept.write_limits(out));
        if hash(self) == hash(old) {
            self.limits.clone_from(&old.limits);
        } else {
            // Also without limits, because buckets and numbers of plans continue.
            let (limits, classes) = match &self.limits {
                Some(plan) => (plan.limits().clone(), plan.classes),
                None => (Shared::new(Limits::new())?, 0),
            };
            let before = old.limits.as_deref();
            let plan = LimitPlan::new(limits, before, classes, &self.capacity)?;
            self.limits = Some(Shared::new(plan)?);
        }
        self.factors.clone_from(&old.factors);
        (self.starts, self.mode) = (old.starts, old.mode);
        self.sync(before, after)
    }

    fn write_values(
        &self,
        tunables: &Tunables,
        defaults: &Tunables,
        out: &mut dyn Write,
    ) -> core::fmt::Result {
        if tunables.mode != defaults.mode {
            writeln!(out, "nrs_fairshare_mode {}", tunables.mode)?;
        }
        Ok(())
    }

    /// Writes the weights and the limits, several in a line.
    fn write_commands(&self, out: &mut dyn Write) -> core::fmt::Result {
        Items::write(out, "nrs_fairshare_weights", |out| self.weights.write(out))?;
        Items::write(out, "nrs_fairshare_limits", |out| self.write_limits(out))
    }

    fn check(&self, tunables: &Tunables) -> Result {
        match self.limits() {
            Some(_) if tunables.select == Select::Paper => Err(Error::new(
                Code::Busy,
                "limits need nrs_fairshare_select deadline (clear nrs_fairshare_limits first)",
            )),
            _ => Ok(()),
        }
    }

    fn starts(&self) -> Option<u64> {
        self.mode.map(|_| self.starts)
    }

    fn set_factors(
        &mut self,
        pairs: FactorPairs,
        lease: &Shared<Lease>,
    ) -> core::result::Result<(), NoMemory> {
        self.factors = Some(Shared::new(Factors::new(pairs, Some(lease.clone()))?)?);
        Ok(())
    }

    fn capacity(&self) -> Option<&Shared<Capacity>> {
        Some(&self.capacity)
    }

    fn lease(&self) -> Option<&Shared<Lease>> {
        self.factors.as_ref()?.lease()
    }

    fn texts<H: Host + 'static>() -> &'static [TextParameter<H>] {
        const {
            &[
                TextParameter::both("nrs_fairshare_mode", show_mode, set_mode),
                TextParameter::both("nrs_fairshare_weights", show_weights, set_weights),
                TextParameter::both(
                    "nrs_fairshare_limits",
                    |host, out| {
                        let kept = host.parameters().kept.fairshare;
                        Ok(kept.write_limits(out).map_err(Error::from)?)
                    },
                    |host, text| {
                        host.change(|parameters| {
                            let classes = parameters.values.policies.fairshare.classes_max;
                            parameters.kept.fairshare.limit(text.trim(), classes)
                        })
                    },
                ),
                TextParameter::report("nrs_fairshare_stats", report),
                TextParameter::write("nrs_fairshare_stats_reset", |host, _| {
                    host.reset(Kind::Fairshare);
                    Ok(())
                }),
            ]
        }
    }
}

fn show_mode<H: Host>(host: &H, out: &mut dyn Write) -> core::result::Result<(), H::Refusal> {
    let mode = host.parameters().values.policies.fairshare.mode;
    Ok(writeln!(out, "{mode}").map_err(Error::from)?)
}

/// Sets the mode and, if the text has a list, the weights.
fn set_mode<H: Host>(host: &H, text: &str) -> core::result::Result<(), H::Refusal> {
    let (mode, list) = entity_table::split(text.trim())?;
    host.change(|parameters| {
        parameters.values.policies.fairshare.mode = mode;
        match list {
            Some(list) => parameters.kept.fairshare.reweigh(list),
            None => Ok(()),
        }
    })
}

fn show_weights<H: Host>(host: &H, out: &mut dyn Write) -> core::result::Result<(), H::Refusal> {
    let weights = host.parameters().kept.fairshare.weights;
    Ok(weights.write(out).map_err(Error::from)?)
}

fn set_weights<H: Host>(host: &H, text: &str) -> core::result::Result<(), H::Refusal> {
    host.change(|parameters| parameters.kept.fairshare.reweigh(text.trim()))
}

fn report<H: Host>(host: &H, out: &mut Report<'_>) -> core::result::Result<(), H::Refusal> {
    let (mut rows, mut buf) = (NodeRows::new(), NodeRowBuf::new().map_err(Error::from)?);
    for part in host.running() {
        // The worker of an idle service does not refresh the part.
        refresh_stale(&part, host.now());
        let high = part.priority() == Priority::High;
        let mut from = Some(0);
        while let Some(idx) = from {
            buf.clear();
            from = part.with(|part| {
                let part = part.fairshare()?;
                if idx == 0 {
                    rows.total(&part.total(), high);
                }
                part.rows(idx, &mut buf)
            });
            rows.extend(buf.as_slice(), high).map_err(Error::from)?;
        }
    }
    rows.merge().map_err(Error::from)?;
    Ok(stats::report(out, &rows, host.now()).map_err(Error::from)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::policy::Configuration as _;

    /// Verifies that a plan after a text without limits has a number and buckets of its service.
    #[test]
    fn plans_continue_without_limits() {
        let classes = ClassesMax::default();
        let heads = [None, None];
        let mut old = PolicyData::empty().unwrap();
        old.limit("uid:1:max=5", classes).unwrap();
        let mut new = PolicyData::empty().unwrap();
        new.resume(&old, &heads, &heads).unwrap();
        assert!(new.limits().is_none());
        new.limit("uid:2:max=5", classes).unwrap();
        let (old, new) = (old.limits().unwrap(), new.limits().unwrap());
        assert!(new.generation != old.generation);
        assert!(new.buckets.ptr_eq(&old.buckets));
    }

    /// Verifies that the number of buckets grows with the number of classes.
    #[test]
    fn buckets_follow_the_number_of_classes() {
        let mut kept = PolicyData::empty().unwrap();
        let few = ClassesMax::new(64).unwrap();
        kept.limit("uid:1:max=5", few).unwrap();
        let tunables = Tunables::default();
        let config = Config::parse(None, &tunables).unwrap();
        let update = kept.update(&config, &tunables, Priority::Regular).unwrap();
        let classes = tunables.classes_max.get() as usize;
        assert_eq!(update.unwrap().limits.unwrap().classes, classes);
        assert_eq!(kept.limits().unwrap().classes, classes);
    }
}
