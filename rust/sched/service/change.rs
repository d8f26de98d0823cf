// SPDX-License-Identifier: GPL-2.0-only

//! One change of a service: new parameters and new primaries, all at once or not at all.

use super::{of_head, overseer::OverseerChange, settings::Stored, HeadAccess, ServiceHost};
use crate::sched::{
    attr::Priority,
    error::Result,
    item::Item,
    mem::GrowingList,
    policy::{
        control::{refresh, ByHead},
        AnyPart, AnyShared, AnyUpdate, Config, Part,
    },
};

/// Shared states of the parts of the primaries, each with the index of the target for which it was
/// created last. A policy has one state for all targets, or one for each.
#[derive(Clone)]
pub(super) struct SharedStates(ByHead<Option<(u16, AnyShared)>>);

impl SharedStates {
    /// Creates the states without primaries.
    pub(super) const fn new() -> Self {
        Self([const { None }; 2])
    }

    /// Drops the state of the head of `priority`.
    fn clear(&mut self, priority: Priority) {
        *of_head(&mut self.0, priority) = None;
    }

    /// Returns the state of a part with `config` on `head`; creates it for the first part.
    fn of(
        &mut self,
        host: &impl ServiceHost,
        config: &Config,
        head: &impl HeadAccess,
    ) -> Result<AnyShared> {
        let last = of_head(&mut self.0, head.priority());
        match last {
            Some((target, shared)) if !config.is_per_target() || *target == head.target() => {
                Ok(shared.clone())
            }
            _ => {
                let shared = AnyShared::new(config, host.seed(), host.cpts().into())?;
                *last = Some((head.target(), shared.clone()));
                Ok(shared)
            }
        }
    }

    /// Creates a part with `config` for `head`, and applies `update`.
    pub(super) fn part<S: ServiceHost>(
        &mut self,
        host: &S,
        config: &Config,
        head: &impl HeadAccess<Item = S::Item>,
        update: Option<&AnyUpdate>,
    ) -> Result<AnyPart<S::Item>> {
        let shared = self.of(host, config, head)?;
        let mut part = AnyPart::new(config, host.random(), &shared)?;
        if let Some(update) = update {
            part.update(update.clone(), host.now());
        }
        Ok(part)
    }
}

/// Change of the primaries of the heads of one priority.
enum HeadChange<I: Item> {
    /// The parts stay; carries the update for them, if there is one of their own.
    Stay(Option<AnyUpdate>),
    /// The fallback serves; previous parts are drained.
    Stop,
    /// New parts serve, in the order of [`ServiceHost::heads`]; previous ones are drained.
    Start(GrowingList<Option<AnyPart<I>>>),
}

/// A change that is ready to be committed.
pub(super) struct ServiceChange<I: Item> {
    heads: ByHead<HeadChange<I>>,
    overseer: OverseerChange,
}

/// Returns the heads of `priority`.
fn heads_of<S: ServiceHost>(
    host: &S,
    priority: Priority,
) -> impl Iterator<Item = impl HeadAccess<Item = S::Item> + '_> + '_ {
    let heads = host.heads();
    heads.filter(move |head| head.priority() == priority)
}

/// Drops the instances of `head` that have stopped, each without the lock.
pub(super) fn reap(head: &impl HeadAccess) {
    while head.with(|head| head.reap()).is_some() {}
}

impl<I: Item> HeadChange<I> {
    /// Prepares the change of the primaries of `priority` from `old` to `new` settings.
    ///
    /// Not inlined, in order to save stack.
    #[inline(never)]
    fn prepare<S: ServiceHost<Item = I>>(
        host: &S,
        priority: Priority,
        (old, new): (&Stored, &mut Stored),
        overseer: &OverseerChange,
    ) -> Result<Self> {
        let Some(config) = new.primary(priority).copied() else {
            new.shared.clear(priority);
            return Ok(match old.primary(priority) {
                Some(_) => Self::Stop,
                None => Self::Stay(None),
            });
        };
        match old.primary(priority) {
            Some(before) if *before == config => {
                let is_news = new.parameters.is_news(&old.parameters, &config, priority);
                let update = is_news.then(|| new.parameters.update(&config, priority));
                return Ok(Self::Stay(update.transpose()?.flatten()));
            }
            Some(before) => {
                let update = if before.follows(&config) {
                    new.parameters.update(&config, priority)?
                } else {
                    before.update_to(&config)
                };
                if update.is_some() {
                    return Ok(Self::Stay(update));
                }
            }
            None => {}
        }
        let update = new.parameters.update(&config, priority)?;
        let update = update.or(overseer.update());
        new.shared.clear(priority);
        let mut parts = GrowingList::new();
        for head in heads_of(host, priority) {
            reap(&head);
            head.with(|head| head.can_install())?;
            let part = new.shared.part(host, &config, &head, update.as_ref())?;
            parts.push(Some(part))?;
        }
        Ok(Self::Start(parts))
    }
}

impl<I: Item> ServiceChange<I> {
    /// Prepares the change from `old` to `new` settings; touches nothing else. Completes `new`,
    /// whose kept state has followed the change of the primaries.
    ///
    /// # Errors
    ///
    /// - Errors of [`Parameters::check`](crate::sched::policy::control::Parameters::check).
    /// - `EAGAIN`: earlier policies are still stopping.
    /// - `ENOMEM`.
    pub(super) fn prepare<S: ServiceHost<Item = I>>(
        host: &S,
        (old, new): (&Stored, &mut Stored),
    ) -> Result<Self> {
        new.parameters.check()?;
        let overseer = OverseerChange::of(host, &new.primaries, &new.parameters)?;
        let [regular, high] = Priority::ALL;
        Ok(Self {
            heads: [
                HeadChange::prepare(host, regular, (old, new), &overseer)?,
                HeadChange::prepare(host, high, (old, new), &overseer)?,
            ],
            overseer,
        })
    }

    /// Carries out the change from `old` to `new` settings on the heads.
    ///
    /// # Errors
    ///
    /// `ENOMEM`: nothing was changed.
    pub(super) fn commit<S: ServiceHost<Item = I>>(
        self,
        host: &S,
        (old, new): (&Stored, &Stored),
    ) -> Result {
        let Self {
            mut heads,
            overseer,
        } = self;
        let install = || {
            for (change, priority) in heads.iter_mut().zip(Priority::ALL) {
                install(host, priority, change, new.primary(priority));
            }
        };
        let followed = overseer.commit(host, &new.parameters.kept, install)?;
        // No failure is possible from here on.
        for (change, priority) in heads.iter().zip(Priority::ALL) {
            let own = match change {
                HeadChange::Stay(own) => own.as_ref(),
                HeadChange::Stop | HeadChange::Start(_) => None,
            };
            // Parts receive the overseer's update, too.
            if let Some(update) = own.or(followed.as_ref()) {
                hand_over(host, priority, update);
            }
            if let (Some(old), Some(new)) = (old.primary(priority), new.primary(priority)) {
                retag(host, priority, old, new);
            }
            if own.is_some() {
                for head in heads_of(host, priority) {
                    refresh(&head, host.now());
                }
            }
        }
        Ok(())
    }
}

/// Starts or stops the parts of the heads of `priority`. Cannot fail: instances are added only
/// here, under the lock of the settings.
fn install<S: ServiceHost>(
    host: &S,
    priority: Priority,
    change: &mut HeadChange<S::Item>,
    config: Option<&Config>,
) {
    let parts = match change {
        HeadChange::Stay(_) => return,
        HeadChange::Stop => &mut [],
        HeadChange::Start(parts) => parts.as_mut_slice(),
    };
    let mut parts = parts.iter_mut();
    for head in heads_of(host, priority) {
        let Some(config) = config.copied() else {
            head.with(|head| head.drop_primary());
            continue;
        };
        let Some(part) = parts.next().and_then(Option::take) else {
            bug!();
            continue;
        };
        let refused = head.with(|head| head.install(part, config).err());
        bug!(refused.is_some());
    }
}

/// Applies `update` to the primaries of `priority` that it is for.
fn hand_over(host: &impl ServiceHost, priority: Priority, update: &AnyUpdate) {
    for head in heads_of(host, priority) {
        let now = host.now();
        let update = update.clone();
        let old = head.with(|head| match head.primary_mut() {
            Some(part) => part.update(update, now),
            None => update,
        });
        // Dropped without the lock.
        drop(old);
    }
}

/// Records that the primaries of `priority` that were started with `old` continue with `new`.
fn retag(host: &impl ServiceHost, priority: Priority, old: &Config, new: &Config) {
    if old != new {
        for head in heads_of(host, priority) {
            head.with(|head| head.retag(old, new));
        }
    }
}
