// SPDX-License-Identifier: GPL-2.0-only

//! Changing policies and parameters of a service.
//!
//! What is asked for is checked whole, parts for all heads are made, and only then is anything replaced,
//! so a refused change leaves everything as it was. A policy whose parameters change is started anew with
//! them; the instance before it is drained.

use kernel::prelude::*;

use super::Service;
use crate::{
    engine::{
        dispatch::Feed,
        partition::KernelPart,
        partitions::Lanes,
        refused::{self, Refused},
    },
    sched::{
        attr::Priority,
        error,
        parameters::{service::EnforceCredits, Stored, Values},
        policy::{
            control::{addresses, refresh, ByHead, Parameters, Parts, Running},
            AnyShared, AnyUpdate, Config, Kept, Kind, Part,
        },
        text::Command,
    },
    sys::{
        misc::{self, bug},
        trace,
    },
};

/// Configuration of the primary of each head, regular first; `None`: the fallback serves.
type Primaries = ByHead<Option<Config>>;

/// What `all` has for the head of `priority`.
fn of_head<T>([regular, high]: &mut ByHead<T>, priority: Priority) -> &mut T {
    match priority {
        Priority::Regular => regular,
        Priority::High => high,
    }
}

/// What an administrator has set.
pub(crate) struct Settings {
    /// What can be set whatever runs, and is there again when a policy is started again.
    pub(super) parameters: Parameters,
    primaries: Primaries,
    /// What the parts of a primary share, if those of all targets do.
    shared: ByHead<Option<AnyShared>>,
}

impl Settings {
    /// No primary, these values, and nothing that is more than a value.
    pub(super) fn new(values: Values) -> Result<Self> {
        Ok(Self {
            parameters: Parameters {
                values,
                kept: Kept::empty().map_err(|_| ENOMEM)?,
            },
            primaries: [None; 2],
            shared: [const { None }; 2],
        })
    }

    /// What parts that were started with `config` on the head of `priority` are told.
    fn update(&mut self, config: &Config, priority: Priority) -> Result<Option<AnyUpdate>> {
        self.parameters.update(config, priority).map_err(|_| ENOMEM)
    }

    /// Configuration of the primary of the head at `index`, regular first.
    pub(super) fn primary(&self, index: usize) -> Option<Config> {
        self.primaries.get(index).copied().flatten()
    }
}

/// A part that is started with `config` and told `update`.
fn part(config: &Config, shared: &AnyShared, update: Option<&AnyUpdate>) -> Result<KernelPart> {
    let mut part = KernelPart::new(config, misc::random(), shared).map_err(|_| ENOMEM)?;
    if let Some(update) = update {
        part.update(update.clone(), misc::now());
    }
    Ok(part)
}

impl Service {
    /// What its parameters are set to.
    pub(crate) fn values(&self) -> Values {
        self.settings.lock().parameters.values
    }

    /// Sets the parameter that `stored` is of; running policies that it concerns are started anew with it, or told of it.
    ///
    /// # Errors
    ///
    /// - What [`Values::set`] refuses.
    /// - `EBUSY`: `buffer_max` is to be larger, and requests are in order now.
    /// - `EAGAIN`: earlier policies are still stopping; `ENOMEM`. Nothing is changed then.
    pub(crate) fn set(&self, stored: &Stored, text: &str) -> refused::Result {
        let mut settings = self.settings.lock();
        let old = settings.parameters.values;
        let mut new = old;
        new.set(stored, text)?;
        // More room is made first, since that may fail, and less is left last, since that does not.
        let (room, more) = (old.service.buffer_max.get(), new.service.buffer_max.get());
        let back = || {
            if more > room {
                bug!(self.set_records(room).is_err());
            }
        };
        if more > room {
            let made = self.set_records(more).inspect_err(|_| back());
            made.map_err(|error| match error {
                EBUSY => {
                    Refused::because(EBUSY, "it can be raised only while no request is in order")
                }
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

    /// Has `f` change a copy of the parameters; policies follow what it made of them, all of it or nothing. Then looks at
    /// everything again.
    ///
    /// # Errors
    ///
    /// As [`Self::retell`].
    pub(super) fn change_settings(
        &self,
        settings: &mut Settings,
        f: impl FnOnce(&mut Parameters) -> error::Result,
    ) -> refused::Result {
        self.retell(settings, f)?;
        self.look_again();
        Ok(())
    }

    /// The same where nothing that was throttled may be eligible afterwards.
    ///
    /// # Errors
    ///
    /// - What `f` refuses, or [`Parameters::check`] of what it made.
    /// - `EAGAIN`: earlier policies are still stopping; `ENOMEM`.
    pub(super) fn retell(
        &self,
        settings: &mut Settings,
        f: impl FnOnce(&mut Parameters) -> error::Result,
    ) -> refused::Result {
        let mut new = settings.parameters.clone();
        f(&mut new)?;
        new.check()?;
        let mut primaries = settings.primaries;
        let mut told: ByHead<Option<AnyUpdate>> = [None, None];
        let heads = Priority::ALL.into_iter().zip(&mut primaries);
        for ((priority, primary), told) in heads.zip(&mut told) {
            let Some(config) = primary else {
                continue;
            };
            *config = config.with(&new.values.policies);
            if new.is_news(&settings.parameters, config, priority) {
                *told = new.update(config, priority).map_err(|_| ENOMEM)?;
            }
        }
        // Parts that are made from here on get the new ones.
        let old = core::mem::replace(&mut settings.parameters, new);
        let done = if primaries == settings.primaries {
            self.oversight.follow(&settings.parameters)
        } else {
            self.replace(settings, &primaries)
        };
        if let Err(error) = done {
            settings.parameters = old;
            return Err(error);
        }
        // What the overseer goes by, parts go by, too.
        let followed = self.oversight.update();
        for (priority, told) in Priority::ALL.into_iter().zip(&told) {
            if let Some(update) = told.as_ref().or(followed.as_ref()) {
                self.hand_over(priority, update);
            }
            if told.is_some() {
                self.refresh(priority);
            }
        }
        Ok(())
    }

    /// Has all classes of the primaries of `priority` follow what was handed over.
    fn refresh(&self, priority: Priority) {
        let running = self.partitions.running();
        for running in running.filter(|running| running.priority() == priority) {
            refresh(&running, misc::now());
        }
    }

    /// Looks at everything again: policies, or what they go by, are others now.
    fn look_again(&self) {
        self.ticker.worker().kick();
        self.partitions.run_all();
    }

    /// Hands `update` to the primaries of `priority`, if it is one for them.
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

    /// Has the service itself follow `values`, which its policies and the room for requests in order
    /// follow already.
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

    /// Takes over the parameters of `other`; nobody uses this one yet.
    pub(crate) fn adopt(&self, other: &Self) {
        let mut parameters = {
            let settings = other.settings.lock();
            let mut parameters = settings.parameters.clone();
            // No policy runs here yet.
            let followed = parameters.kept.follow(&settings.primaries, &[None; 2]);
            bug!(followed.is_err());
            parameters
        };
        let mut settings = self.settings.lock();
        let max = parameters.values.service.buffer_max;
        let own = settings.parameters.values.service.buffer_max;
        if self.set_records(max.get()).is_err() {
            // Without memory for it, it stays as it is.
            let shrunk = self.set_records(own.get());
            bug!(shrunk.is_err());
            parameters.values.set_buffer_max(own);
        }
        let max = parameters.values.service.buffer_max;
        self.concurrency.set_buffer_max(max.get());
        self.follow(&parameters.values);
        settings.parameters = parameters;
    }

    /// Carries out a write to `nrs_policies`.
    ///
    /// # Errors
    ///
    /// `EINVAL`: malformed. As [`Self::start_policy`].
    pub(crate) fn set_policy(&self, command: &str) -> refused::Result {
        self.start_policy(&Command::parse(command)?, false)
    }

    /// Starts the policy that `command` names, for an administrator or for the `framework` that drives the policies.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: an argument that the policy refuses.
    /// - `ENOENT`: no policy of that name.
    /// - `EBUSY`: an administrator asks, and a framework drives the policies.
    /// - `EAGAIN`: earlier policies are still stopping.
    ///
    /// Nothing is changed then.
    pub(crate) fn start_policy(&self, command: &Command<'_>, framework: bool) -> refused::Result {
        let kind = Kind::from_name(command.policy)?;
        let mut settings = self.settings.lock();
        // A framework joins with the lock, after it has begun to use the service.
        if !framework && self.users() > 0 && self.dispatch.is_fed_by(Feed::Framework) {
            let reason = "policies of this service are started by the framework that uses it";
            return Err(Refused::because(EBUSY, reason));
        }
        let policies = &settings.parameters.values.policies;
        let config = Config::parse(kind, command.argument, policies)?;
        // The fallback always runs: to select it is to do without a primary.
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

    /// The policy of the primary of the heads of `priority`.
    pub(crate) fn primary_kind(&self, priority: Priority) -> Option<Kind> {
        let primary = self.settings.lock().primary(priority as usize);
        primary.as_ref().map(Config::kind)
    }

    /// Whether heads that `kind` runs on could start it anew now.
    pub(super) fn can_start_anew(&self, settings: &Settings, kind: Kind) -> bool {
        let heads = Priority::ALL.into_iter().zip(&settings.primaries);
        let mut running = heads.filter(|(_, config)| config.is_some_and(|one| one.kind() == kind));
        running.all(|(priority, _)| {
            self.partitions.iter().all(|partition| {
                partition.reap();
                partition.with(|inner| inner.head(priority).can_install().is_ok())
            })
        })
    }

    /// Tells the tracepoint of the heads whose configuration changes.
    #[cold]
    fn watch_change(&self, old: &Primaries, new: &Primaries) {
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
                    argument: trace::Shown::of(new.as_ref().and_then(Config::argument)),
                    high: priority,
                };
                event.tell();
            }
        }
    }

    /// What the parts of a target share that are started with `config`: `common`, which is made if it is not there
    /// yet, or for a policy that knows targets apart something of their own.
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

    /// Starts the primaries on the partitions of a target that is new.
    pub(super) fn furnish(&self, settings: &mut Settings, lanes: &Lanes) -> Result {
        let primaries = settings.primaries;
        let oversight = self.oversight.prepare(&primaries, &settings.parameters)?;
        for (priority, config) in Priority::ALL.into_iter().zip(primaries) {
            let Some(config) = config else {
                continue;
            };
            let update = settings.update(&config, priority)?.or(oversight.update());
            let shared = self.shared(&config, of_head(&mut settings.shared, priority))?;
            for partition in lanes.iter() {
                let part = part(&config, &shared, update.as_ref())?;
                let refused =
                    partition.with(|inner| inner.head(priority).install(part, config).err());
                bug!(refused.is_some());
            }
        }
        Ok(())
    }

    /// Starts what `new` has and the settings have not, on all partitions or on none; what can be told to a
    /// running policy is told. Settings that refuse are as before.
    fn replace(&self, settings: &mut Settings, new: &Primaries) -> refused::Result {
        let kept = settings.parameters.kept.clone();
        let replaced = self.try_replace(settings, new);
        replaced.inspect_err(|_| settings.parameters.kept = kept)
    }

    fn try_replace(&self, settings: &mut Settings, new: &Primaries) -> refused::Result {
        let old = settings.primaries;
        let followed = settings.parameters.kept.follow(&old, new);
        followed.map_err(|_| ENOMEM)?;
        let mut told = [const { None }; 2];
        let pairs = Priority::ALL.into_iter().zip(old.iter().zip(new.iter()));
        for (told, (priority, pair)) in told.iter_mut().zip(pairs.clone()) {
            *told = match pair {
                (Some(old), Some(new)) if old != new && old.follows(new) => {
                    settings.update(new, priority)?
                }
                (Some(old), Some(new)) if old != new => old.update_to(new),
                _ => None,
            };
        }
        let changes = || {
            let others = pairs.clone().zip(&told);
            others
                .filter(|((_, (old, new)), told)| old != new && told.is_none())
                .map(|((priority, (_, new)), _)| (priority, *new))
        };
        let oversight = self.oversight.prepare(new, &settings.parameters)?;
        let mut shared = settings.shared.clone();
        let mut parts: KVec<Option<KernelPart>> = KVec::new();
        for (priority, config) in changes() {
            let shared = of_head(&mut shared, priority);
            *shared = None;
            let Some(config) = config else {
                continue;
            };
            let update = settings.update(&config, priority)?.or(oversight.update());
            for lanes in self.partitions.lanes() {
                let shared = self.shared(&config, shared)?;
                for partition in lanes.iter() {
                    partition.reap();
                    partition.with(|inner| inner.head(priority).can_install())?;
                    parts.push(Some(part(&config, &shared, update.as_ref())?), GFP_KERNEL)?;
                }
            }
        }
        let install = || {
            // Nothing fails here: places are taken only here, under the settings' mutex.
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
        self.oversight
            .change(oversight, &settings.parameters, install)?;
        // From here on nothing fails.
        for ((priority, pair), update) in pairs.zip(&told) {
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
        // Parts that are gone have no factors; what stays of their policy on the other head has none either.
        self.agent.follow(settings.parameters.kept.lease());
        if trace::Policy::is_on() {
            self.watch_change(&old, new);
        }
        self.dispatch.serve(new.iter().flatten());
        self.ticker.set_beat(self.oversight.is_running());
        Ok(())
    }
}
