// SPDX-License-Identifier: GPL-2.0-only

//! Changes of policies and parameters of a service.
//!
//! A change is validated completely, and parts for all heads are created, before anything is
//! replaced, so a refused change has no effect. If a change of parameters needs new parts, the
//! policy restarts with them, and the previous instance is drained.

use kernel::prelude::*;

use super::Service;
use crate::{
    engine::{
        partition::KernelPart,
        partitions::TargetPartitions,
        refusal::{self, RefusedError},
        target_parameters::ClientKind,
    },
    sched::{
        attr::Priority,
        error,
        parameters::{service::EnforceCredits, ValueAccessors, Values},
        policy::{
            control::{addresses, refresh, ByHead, Parameters, Parts, RunningPart},
            AnyShared, AnyUpdate, Config, Kept, Kind, Part,
        },
        text::PolicyCommand,
    },
    sys::{
        misc::{self, bug},
        trace,
    },
};

/// Configurations of the primaries of the heads, regular first; `None`: the fallback serves.
type Primaries = ByHead<Option<Config>>;

/// Returns the entry of the head of `priority`.
fn of_head<T>([regular, high]: &mut ByHead<T>, priority: Priority) -> &mut T {
    match priority {
        Priority::Regular => regular,
        Priority::High => high,
    }
}

/// Settings made by the administrator.
pub(crate) struct Settings {
    /// Parameters that can be set whichever policies run, and that apply to a policy when it starts
    /// again.
    pub(super) parameters: Parameters,
    primaries: Primaries,
    /// Shared state of the parts of a primary, if the parts of all targets share it.
    shared: ByHead<Option<AnyShared>>,
    /// True if another service has taken over the parameters.
    replaced: bool,
}

impl Settings {
    /// Creates settings with `values`, and without primaries and rules.
    pub(super) fn new(values: Values) -> Result<Self> {
        Ok(Self {
            parameters: Parameters {
                values,
                kept: Kept::empty().map_err(|_| ENOMEM)?,
            },
            primaries: [None; 2],
            shared: [const { None }; 2],
            replaced: false,
        })
    }

    /// Checks that the settings may be changed.
    ///
    /// # Errors
    ///
    /// `ENODEV`: another service has taken over the parameters.
    fn check_current(&self) -> refusal::Result {
        if self.replaced {
            return Err(RefusedError::because(ENODEV, "the service was replaced"));
        }
        Ok(())
    }

    /// Returns the update for parts that run with `config` on the head of `priority`.
    fn update(&mut self, config: &Config, priority: Priority) -> Result<Option<AnyUpdate>> {
        self.parameters.update(config, priority).map_err(|_| ENOMEM)
    }

    /// Returns the configuration of the primary of the head at `index`, regular first.
    pub(super) fn primary(&self, index: usize) -> Option<Config> {
        self.primaries.get(index).copied().flatten()
    }
}

/// Creates a part with `config` and applies `update`.
fn part(config: &Config, shared: &AnyShared, update: Option<&AnyUpdate>) -> Result<KernelPart> {
    let mut part = KernelPart::new(config, misc::random(), shared).map_err(|_| ENOMEM)?;
    if let Some(update) = update {
        part.update(update.clone(), misc::now());
    }
    Ok(part)
}

impl Service {
    /// Returns the values of the parameters.
    pub(crate) fn values(&self) -> Values {
        self.settings.lock().parameters.values
    }

    /// Sets the parameter `stored`. Running policies that depend on the parameter restart or are
    /// updated.
    ///
    /// # Errors
    ///
    /// Nothing is changed on error.
    ///
    /// - Errors of [`Values::set`].
    /// - `ENODEV`: the service was replaced.
    /// - `EBUSY`: `buffer_max` is to be raised while ordered requests exist.
    /// - `EAGAIN`: earlier policies are still stopping.
    /// - `ENOMEM`.
    pub(crate) fn set(&self, stored: &ValueAccessors, text: &str) -> refusal::Result {
        let mut settings = self.settings.lock();
        settings.check_current()?;
        let old = settings.parameters.values;
        let mut new = old;
        new.set(stored, text)?;
        // Tables grow first, because this may fail, and shrink last, because this cannot fail.
        let (room, more) = (old.service.buffer_max.get(), new.service.buffer_max.get());
        let back = || {
            if more > room {
                bug!(self.set_records(room).is_err());
            }
        };
        if more > room {
            let made = self.set_records(more).inspect_err(|_| back());
            made.map_err(|error| match error {
                EBUSY => RefusedError::because(
                    EBUSY,
                    "buffer_max can be raised only while no ordered requests exist",
                ),
                error => error.into(),
            })?;
        }
        if new.policies != old.policies {
            let changed = self.change_settings(&mut settings, |parameters| {
                parameters.values = new;
                Ok(())
            });
            changed.inspect_err(|_| back())?;
        }
        settings.parameters.values = new;
        self.follow(&new);
        if more < room {
            bug!(self.set_records(more).is_err());
        }
        if more != room {
            self.concurrency.set_buffer_max(more);
        }
        Ok(())
    }

    /// Applies `f` to a copy of the parameters, and updates the policies to the result, atomically.
    /// Then reconsiders all queued requests.
    ///
    /// # Errors
    ///
    /// As [`Self::retell`].
    pub(super) fn change_settings(
        &self,
        settings: &mut Settings,
        f: impl FnOnce(&mut Parameters) -> error::Result,
    ) -> refusal::Result {
        self.retell(settings, f)?;
        self.look_again();
        Ok(())
    }

    /// Applies a change that makes no throttled request eligible, as [`Self::change_settings`]
    /// does.
    ///
    /// # Errors
    ///
    /// - Errors of `f`, and of [`Parameters::check`] on the result.
    /// - `EAGAIN`: earlier policies are still stopping.
    /// - `ENOMEM`.
    pub(super) fn retell(
        &self,
        settings: &mut Settings,
        f: impl FnOnce(&mut Parameters) -> error::Result,
    ) -> refusal::Result {
        settings.check_current()?;
        let mut new = settings.parameters.clone();
        f(&mut new)?;
        new.check()?;
        let mut primaries = settings.primaries;
        let mut updates: ByHead<Option<AnyUpdate>> = [None, None];
        let heads = Priority::ALL.into_iter().zip(&mut primaries);
        for ((priority, primary), update) in heads.zip(&mut updates) {
            let Some(config) = primary else {
                continue;
            };
            *config = config.with(&new.values.policies);
            if new.is_news(&settings.parameters, config, priority) {
                *update = new.update(config, priority).map_err(|_| ENOMEM)?;
            }
        }
        // Parts that are created from here on use the new parameters.
        let old = core::mem::replace(&mut settings.parameters, new);
        let done = if primaries == settings.primaries {
            self.overseer.follow(&settings.parameters)
        } else {
            self.replace(settings, &primaries)
        };
        if let Err(error) = done {
            settings.parameters = old;
            return Err(error);
        }
        // Parts receive the overseer's update, too.
        let followed = self.overseer.update();
        for (priority, own) in Priority::ALL.into_iter().zip(&updates) {
            if let Some(update) = own.as_ref().or(followed.as_ref()) {
                self.hand_over(priority, update);
            }
            if own.is_some() {
                self.refresh(priority);
            }
        }
        Ok(())
    }

    /// Refreshes all classes of the primaries of `priority` after an update.
    fn refresh(&self, priority: Priority) {
        let running = self.partitions.running();
        for running in running.filter(|running| running.priority() == priority) {
            refresh(&running, misc::now());
        }
    }

    /// Retries all decisions after a change of policies or of their state.
    fn look_again(&self) {
        self.ticker.worker().kick();
        self.partitions.run_all();
    }

    /// Applies `update` to the primaries of `priority` that it is for.
    fn hand_over(&self, priority: Priority, update: &AnyUpdate) {
        for partition in self.partitions.iter() {
            let now = misc::now();
            let update = update.clone();
            let old = partition.with(|inner| match inner.head(priority).primary_mut() {
                Some(part) => part.update(update, now),
                None => update,
            });
            // Dropped without the lock.
            drop(old);
        }
    }

    /// Applies `values` to the service itself, after its policies and its order tables.
    fn follow(&self, values: &Values) {
        let upkeep = values.policies.upkeep();
        self.ticker.set_delta(upkeep.delta_ms);
        self.ticker.worker().set_by_shares(upkeep.by_shares);
        self.dispatch.follow(&values.service);
        let enforced = values.service.enforce_credits == EnforceCredits::On;
        self.concurrency.enforce(enforced);
        self.follow_terms(&values.timeouts);
        self.share_out(values.service.slots);
    }

    /// Takes over the parameters of `other`, which refuses changes from now on; this service must
    /// not be in use yet.
    pub(crate) fn adopt(&self, other: &Self) {
        let mut parameters = {
            let mut settings = other.settings.lock();
            settings.replaced = true;
            let mut parameters = settings.parameters.clone();
            // No policy runs in this service yet.
            let followed = parameters.kept.follow(&settings.primaries, &[None; 2]);
            bug!(followed.is_err());
            parameters
        };
        let mut settings = self.settings.lock();
        let max = parameters.values.service.buffer_max;
        let own = settings.parameters.values.service.buffer_max;
        if self.set_records(max.get()).is_err() {
            // Without memory, `buffer_max` stays as it is.
            let shrunk = self.set_records(own.get());
            bug!(shrunk.is_err());
            parameters.values.set_buffer_max(own);
        }
        let max = parameters.values.service.buffer_max;
        self.concurrency.set_buffer_max(max.get());
        self.follow(&parameters.values);
        settings.parameters = parameters;
    }

    /// Executes a write to `nrs_policies`.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the command is malformed. Other errors as for [`Self::start_policy`].
    pub(crate) fn set_policy(&self, command: &str) -> refusal::Result {
        self.start_policy(&PolicyCommand::parse(command)?, false)
    }

    /// Starts the policy that `command` names, for an administrator or for the `framework` that
    /// drives the policies.
    ///
    /// # Errors
    ///
    /// Nothing is changed on error.
    ///
    /// - `EINVAL`: an argument that the policy rejects.
    /// - `ENOENT`: no policy of that name.
    /// - `ENODEV`: the service was replaced.
    /// - `EBUSY`: an administrator starts a policy, but a framework drives the policies.
    /// - `EAGAIN`: earlier policies are still stopping.
    /// - `ENOMEM`.
    pub(crate) fn start_policy(
        &self,
        command: &PolicyCommand<'_>,
        framework: bool,
    ) -> refusal::Result {
        let kind = Kind::from_name(command.policy)?;
        let mut settings = self.settings.lock();
        settings.check_current()?;
        // A framework joins under the lock, after it has begun to use the service.
        if !framework && self.users() > 0 && self.dispatch.has_kind(ClientKind::Framework) {
            let reason = "a framework drives the policies of this service";
            return Err(RefusedError::because(EBUSY, reason));
        }
        let policies = &settings.parameters.values.policies;
        let config = Config::parse(kind, command.argument, policies)?;
        // The fallback always runs: selecting it removes the primary.
        let chosen = match kind {
            Kind::FALLBACK => None,
            _ => Some(config),
        };
        let mut primaries = settings.primaries;
        for (primary, priority) in primaries.iter_mut().zip(Priority::ALL) {
            if addresses(command.heads, priority) {
                *primary = chosen.map(|config| config.on(priority));
            }
        }
        self.replace(&mut settings, &primaries)?;
        self.look_again();
        Ok(())
    }

    /// Returns the policy of the primary of the heads of `priority`.
    pub(crate) fn primary_kind(&self, priority: Priority) -> Option<Kind> {
        let primary = self.settings.lock().primary(priority as usize);
        primary.as_ref().map(Config::kind)
    }

    /// Returns true if all heads that run `kind` could restart it now.
    pub(super) fn can_restart_with(&self, settings: &Settings, kind: Kind) -> bool {
        let heads = Priority::ALL.into_iter().zip(&settings.primaries);
        let mut running = heads.filter(|(_, config)| config.is_some_and(|one| one.kind() == kind));
        running.all(|(priority, _)| {
            self.partitions.iter().all(|partition| {
                partition.reap();
                partition.with(|inner| inner.head(priority).can_install().is_ok())
            })
        })
    }

    /// Emits the tracepoint for each head whose configuration changes.
    #[cold]
    fn trace_change(&self, old: &Primaries, new: &Primaries) {
        let name = |config: &Option<Config>| {
            let kind = config.as_ref().map_or(Kind::FALLBACK, Config::kind);
            kind.name()
        };
        for (priority, (old, new)) in Priority::ALL.into_iter().zip(old.iter().zip(new)) {
            if old != new {
                let event = trace::Policy {
                    service: self.name(),
                    old: name(old),
                    new_: name(new),
                    argument: trace::EventText::of(new.as_ref().and_then(Config::argument)),
                    high: priority,
                };
                event.tell();
            }
        }
    }

    /// Returns the shared state of the parts of a target that are started with `config`. This is
    /// `common`, which is created if needed, or new state for a policy that separates targets.
    fn shared(&self, config: &Config, common: &mut Option<AnyShared>) -> Result<AnyShared> {
        if let Some(common) = common {
            return Ok(common.clone());
        }
        let shared = AnyShared::new(config, self.seed, self.cpts()).map_err(|_| ENOMEM)?;
        if !config.is_per_target() {
            *common = Some(shared.clone());
        }
        Ok(shared)
    }

    /// Starts the primaries on the partitions of a new target.
    pub(super) fn furnish(&self, settings: &mut Settings, partitions: &TargetPartitions) -> Result {
        let primaries = settings.primaries;
        let overseer = self.overseer.prepare(&primaries, &settings.parameters)?;
        for (priority, config) in Priority::ALL.into_iter().zip(primaries) {
            let Some(config) = config else {
                continue;
            };
            let update = settings.update(&config, priority)?.or(overseer.update());
            let shared = self.shared(&config, of_head(&mut settings.shared, priority))?;
            for partition in partitions.iter() {
                let part = part(&config, &shared, update.as_ref())?;
                let refused =
                    partition.with(|inner| inner.head(priority).install(part, config).err());
                bug!(refused.is_some());
            }
        }
        Ok(())
    }

    /// Applies `new`: starts new primaries on all partitions or on none, and updates running
    /// policies where possible. The settings are unchanged on error.
    fn replace(&self, settings: &mut Settings, new: &Primaries) -> refusal::Result {
        let kept = settings.parameters.kept.clone();
        let replaced = self.try_replace(settings, new);
        replaced.inspect_err(|_| settings.parameters.kept = kept)
    }

    fn try_replace(&self, settings: &mut Settings, new: &Primaries) -> refusal::Result {
        let old = settings.primaries;
        let followed = settings.parameters.kept.follow(&old, new);
        followed.map_err(|_| ENOMEM)?;
        let mut updates = [const { None }; 2];
        let pairs = Priority::ALL.into_iter().zip(old.iter().zip(new.iter()));
        for (update, (priority, pair)) in updates.iter_mut().zip(pairs.clone()) {
            *update = match pair {
                (Some(old), Some(new)) if old != new && old.follows(new) => {
                    settings.update(new, priority)?
                }
                (Some(old), Some(new)) if old != new => old.update_to(new),
                _ => None,
            };
        }
        let changes = || {
            let others = pairs.clone().zip(&updates);
            others
                .filter(|((_, (old, new)), update)| old != new && update.is_none())
                .map(|((priority, (_, new)), _)| (priority, *new))
        };
        let overseer = self.overseer.prepare(new, &settings.parameters)?;
        let mut shared = settings.shared.clone();
        let mut parts: KVec<Option<KernelPart>> = KVec::new();
        for (priority, config) in changes() {
            let shared = of_head(&mut shared, priority);
            *shared = None;
            let Some(config) = config else {
                continue;
            };
            let update = settings.update(&config, priority)?.or(overseer.update());
            for partitions in self.partitions.all_targets() {
                let shared = self.shared(&config, shared)?;
                for partition in partitions.iter() {
                    partition.reap();
                    partition.with(|inner| inner.head(priority).can_install())?;
                    parts.push(Some(part(&config, &shared, update.as_ref())?), GFP_KERNEL)?;
                }
            }
        }
        let install = || {
            // Cannot fail: instances are added only here, under the settings' mutex.
            let mut parts = parts.iter_mut();
            for (priority, config) in changes() {
                for partition in self.partitions.iter() {
                    let Some(config) = config else {
                        partition.with(|inner| inner.head(priority).drop_primary());
                        continue;
                    };
                    let Some(part) = parts.next().and_then(Option::take) else {
                        bug!();
                        continue;
                    };
                    let refused =
                        partition.with(|inner| inner.head(priority).install(part, config).err());
                    bug!(refused.is_some());
                }
            }
        };
        self.overseer
            .change(overseer, &settings.parameters, install)?;
        // No failure is possible from here on.
        for ((priority, pair), update) in pairs.zip(&updates) {
            let (Some(update), (Some(old), Some(new))) = (update, pair) else {
                continue;
            };
            self.hand_over(priority, update);
            for partition in self.partitions.iter() {
                partition.with(|inner| inner.head(priority).retag(old, new));
            }
        }
        settings.primaries = *new;
        settings.shared = shared;
        // Removed parts have no factors, and neither has the remaining part of their policy on the
        // other head.
        self.agent.follow(settings.parameters.kept.lease());
        if trace::Policy::is_on() {
            self.trace_change(&old, new);
        }
        self.dispatch.serve(new.iter().flatten());
        self.ticker.set_beat(self.overseer.is_running());
        Ok(())
    }
}
