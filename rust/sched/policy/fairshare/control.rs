// SPDX-License-Identifier: GPL-2.0-only

//! The weights of a service, and the parameters that show and change more than a value.

use super::{
    config::Live,
    params::Tunables,
    stats::{write_yaml, Rows},
    weights::{self, Weights},
    Config, RowBuf, Update,
};
use crate::sched::{
    attr::Priority,
    error::{Error, Result},
    mem::{NoMemory, Shared},
    policy::{
        control::{Host, Keep, Running, Text},
        Kind,
    },
};
use core::fmt::Write;

/// What a service keeps.
#[derive(Clone)]
pub struct Kept {
    /// Of entities.
    pub weights: Shared<Weights>,
}

impl Kept {
    /// Changes the weights as `text` says.
    fn reweigh(&mut self, text: &str) -> Result {
        self.weights = Shared::new(self.weights.apply(text)?)?;
        Ok(())
    }
}

impl Keep<Config> for Kept {
    fn empty() -> core::result::Result<Self, NoMemory> {
        Ok(Self {
            weights: Shared::new(Weights::new())?,
        })
    }

    fn update(
        &mut self,
        _config: &Config,
        tunables: &Tunables,
        _priority: Priority,
    ) -> core::result::Result<Option<Update>, NoMemory> {
        Ok(Some(Update::new(self.weights.clone(), tunables)))
    }

    fn is_news(
        &self,
        tunables: &Tunables,
        old: &Self,
        old_tunables: &Tunables,
        _priority: Priority,
    ) -> bool {
        !self.weights.ptr_eq(&old.weights) || Live::of(tunables) != Live::of(old_tunables)
    }

    fn texts<H: Host + 'static>() -> &'static [Text<H>] {
        const {
            &[
                Text::both("nrs_fairshare_mode", show_mode, set_mode),
                Text::both("nrs_fairshare_weights", show_weights, set_weights),
                Text::read("nrs_fairshare_stats", show_stats),
                Text::write("nrs_fairshare_stats_reset", |host, _| {
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

/// Takes a mode and, if they are given, changes of weights.
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

fn show_stats<H: Host>(host: &H, out: &mut dyn Write) -> core::result::Result<(), H::Refusal> {
    let (mut rows, mut buf) = (Rows::new(), RowBuf::new().map_err(Error::from)?);
    for part in host.running() {
        let high = part.priority() == Priority::High;
        let mut from = Some(0);
        while let Some(slot) = from {
            buf.clear();
            from = part.with(|part| {
                let part = part.fairshare()?;
                if slot == 0 {
                    rows.total(&part.total(), high);
                }
                part.rows(slot, &mut buf)
            });
            rows.extend(buf.as_slice(), high).map_err(Error::from)?;
        }
    }
    rows.merge().map_err(Error::from)?;
    Ok(write_yaml(&mut &mut *out, &rows, host.now()).map_err(Error::from)?)
}
