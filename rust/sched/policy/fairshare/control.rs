// SPDX-License-Identifier: GPL-2.0-only

//! Weights of a service, and the parameters that are texts.

use super::{
    config::RuntimeParameters,
    factors::Factors,
    mode::Mode,
    params::Tunables,
    stats::{self, NodeRows},
    weights::{self, Weights},
    Config, NodeRowBuf, Update,
};
use crate::sched::{
    agent::{FactorPairs, Lease},
    attr::Priority,
    error::{Error, Result},
    mem::{NoMemory, Shared},
    policy::{
        control::{refresh_stale, ByHead, Host, Keep, RunningPart, TextParameter},
        Kind,
    },
    report::Report,
    service::text::TextHash,
};
use core::fmt::Write;

/// State that a service keeps for the policy.
#[derive(Clone)]
pub struct Kept {
    /// Weights of entities.
    pub weights: Shared<Weights>,
    /// Factors of the weights of the running parts.
    factors: Option<Shared<Factors>>,
    /// Number of starts and stops of parts on the regular head.
    starts: u64,
    /// Mode of the parts on the regular head, if the policy runs there.
    mode: Option<Mode>,
}

impl Kept {
    /// Applies the changes in `text` to the weights.
    fn reweigh(&mut self, text: &str) -> Result {
        self.weights = Shared::new(self.weights.apply(text)?)?;
        Ok(())
    }

    /// Returns the factors for parts started with `config`. Ids in factors are of the regular
    /// head's mode; in another mode the same ids would name other classes.
    fn factors_for(&self, config: &Config) -> Option<&Shared<Factors>> {
        self.factors
            .as_ref()
            .filter(|_| self.mode == Some(config.mode()))
    }
}

/// Writes items, which end with a line end each, into lines of `nrs_fairshare_weights`.
struct Items<'a> {
    out: &'a mut dyn Write,
    /// Length of the current line without its name, bytes.
    length: usize,
    /// True before the first character of an item.
    is_new: bool,
}

impl Items<'_> {
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
                let before = match self.length {
                    0 => "nrs_fairshare_weights ",
                    _ => ",",
                };
                self.out.write_str(before)?;
            }
            self.out.write_char(char)?;
            self.length = self.length.saturating_add(char.len_utf8());
        }
        Ok(())
    }
}

impl Keep<Config> for Kept {
    fn empty() -> core::result::Result<Self, NoMemory> {
        Ok(Self {
            weights: Shared::new(Weights::new())?,
            factors: None,
            starts: 0,
            mode: None,
        })
    }

    /// Drops the factors when the configuration of the regular head changes, because factors belong
    /// to the parts that were started together.
    fn follow(
        &mut self,
        [old, _]: &ByHead<Option<Config>>,
        [new, _]: &ByHead<Option<Config>>,
    ) -> core::result::Result<(), NoMemory> {
        if old != new {
            self.starts = self.starts.saturating_add(1);
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
        let update = Update::new(self.weights.clone(), tunables);
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
        let same_factors = match (self.factors_for(config), old.factors_for(config)) {
            (Some(factors), Some(old)) => factors.ptr_eq(old),
            (factors, old) => factors.is_none() && old.is_none(),
        };
        !self.weights.ptr_eq(&old.weights)
            || !same_factors
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
        self.factors.clone_from(&old.factors);
        (self.starts, self.mode) = (old.starts, old.mode);
        self.follow(before, after)
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

    /// Writes the weights, several in a line.
    fn write_commands(&self, out: &mut dyn Write) -> core::fmt::Result {
        let mut items = Items {
            out,
            length: 0,
            is_new: true,
        };
        self.weights.write(&mut items)?;
        if items.length != 0 {
            items.out.write_char('\n')?;
        }
        Ok(())
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

    fn lease(&self) -> Option<&Shared<Lease>> {
        self.factors.as_ref()?.lease()
    }

    fn texts<H: Host + 'static>() -> &'static [TextParameter<H>] {
        const {
            &[
                TextParameter::both("nrs_fairshare_mode", show_mode, set_mode),
                TextParameter::both("nrs_fairshare_weights", show_weights, set_weights),
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
    let (mode, list) = weights::split(text.trim())?;
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
