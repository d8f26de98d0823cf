// SPDX-License-Identifier: GPL-2.0-only

//! Changing policies and parameters of a service.
//!
//! What is asked for is checked whole, parts for all heads are made, and only then is anything replaced,
//! so a refused change leaves everything as it was. A policy whose parameters change is started anew with
//! them; the instance before it is drained.

use core::fmt::Write;

use kernel::{prelude::*, sync::Arc};

use super::{
    errno,
    rules::{carry_over, Books},
    Service,
};
use crate::{
    core::{bandwidth::Change, partition::KernelPart, partitions::Lanes},
    sched::{
        attr::Priority,
        error,
        mem::Shared,
        policy::{
            fairshare::{
                weights::{self, Weights},
                Update,
            },
            params::BufferMax,
            AnyShared, AnyUpdate, Config, Kind, Part, Tunables,
        },
        qbm::plan::{Plan, PlanError},
        rules::{Book, RuleError},
        text::{Command, Heads},
    },
    sys::{misc, trace},
};

/// Configuration of the primary of each head, regular first; `None`: the fallback serves.
type Primaries = [Option<Config>; 2];

/// What can be set whatever runs, and is there again when a policy is started again.
#[derive(Clone)]
pub(super) struct Parameters {
    pub(super) tunables: Tunables,
    /// Of entities of fairshare; never changed, but replaced.
    pub(super) weights: Shared<Weights>,
    /// Of clients of qbm; never changed, but replaced.
    pub(super) plan: Shared<Plan>,
}

/// What an administrator has set.
pub(crate) struct Settings {
    pub(super) parameters: Parameters,
    primaries: Primaries,
    /// What the parts of a primary share, if those of all targets do.
    shared: [Option<AnyShared>; 2],
    pub(super) books: Books,
    /// That of the rules that were compiled last.
    pub(super) generation: u64,
    /// Why the last command for rules was refused.
    pub(super) rule_error: Option<RuleError>,
    /// Why the last plan was refused.
    pub(super) plan_error: Option<PlanError>,
}

impl Settings {
    /// No primary, all weights equal, a plan that promises nothing, and these parameters.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(tunables: Tunables) -> Result<Self> {
        Ok(Self {
            parameters: Parameters {
                tunables,
                weights: Shared::new(Weights::new()).map_err(|_| ENOMEM)?,
                plan: Plan::none().and_then(Shared::new).map_err(|_| ENOMEM)?,
            },
            primaries: [None; 2],
            shared: [const { None }; 2],
            books: [const { None }; 2],
            generation: 0,
            rule_error: None,
            plan_error: None,
        })
    }

    /// The weights, changed as `text` says.
    ///
    /// # Errors
    ///
    /// What [`Weights::apply`] refuses.
    fn reweighted(&self, text: &str) -> Result<Shared<Weights>> {
        let weights = self.parameters.weights.apply(text).map_err(errno)?;
        Shared::new(weights).map_err(|_| ENOMEM)
    }

    /// What parts of fairshare are told, when they are made and at each change.
    fn fairshare_update(&self) -> AnyUpdate {
        let Parameters {
            tunables, weights, ..
        } = &self.parameters;
        let cross_cpt = tunables.fairshare.cross_cpt.is_on();
        AnyUpdate::Fairshare(Update::new(weights.clone(), cross_cpt))
    }

    /// What parts that were started with `config` are told when they are made; `book` has the rules of their
    /// head.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    fn first_update(
        &mut self,
        config: &Config,
        book: &Option<Arc<Book>>,
        bandwidth: &Change,
    ) -> Result<Option<AnyUpdate>> {
        Ok(match (config, book) {
            (Config::Tbf(config), Some(book)) => Some(self.update_of(book, config)?),
            (Config::Fairshare(_), _) => Some(self.fairshare_update()),
            (Config::Qbm(_), _) => bandwidth.update(),
            _ => None,
        })
    }

    /// The rules of the head at `index`, regular first.
    pub(super) fn book(&self, index: usize) -> Option<&Arc<Book>> {
        self.books.get(index)?.as_ref()
    }

    /// Replaces the rules of the head at `index`.
    pub(super) fn set_book(&mut self, index: usize, book: Option<Arc<Book>>) {
        if let Some(place) = self.books.get_mut(index) {
            *place = book;
        }
    }

    /// Configuration of the primary of the head at `index`, regular first.
    pub(super) fn primary(&self, index: usize) -> Option<Config> {
        self.primaries.get(index).copied().flatten()
    }
}

/// Whether a command for `heads` is for the head of `priority`.
pub(super) fn addresses(heads: Heads, priority: Priority) -> bool {
    match heads {
        Heads::All => true,
        Heads::Regular => priority == Priority::Regular,
        Heads::High => priority == Priority::High,
    }
}

/// A part that is started with `config` and told `update`.
///
/// # Errors
///
/// `ENOMEM`.
fn part(config: &Config, shared: &AnyShared, update: Option<&AnyUpdate>) -> Result<KernelPart> {
    let mut part = KernelPart::new(config, misc::random(), shared).map_err(|_| ENOMEM)?;
    if let Some(update) = update {
        part.update(update.clone(), misc::now());
    }
    Ok(part)
}

impl Service {
    /// The parameters of all policies.
    pub(crate) fn tunables(&self) -> Tunables {
        self.settings.lock().parameters.tunables
    }

    /// Changes parameters; running policies that they concern are started anew with them, or told of them.
    ///
    /// # Errors
    ///
    /// What `f` refuses; `EAGAIN`: earlier policies are still stopping; `ENOMEM`. Nothing is changed then.
    pub(crate) fn update_tunables(&self, f: impl FnOnce(&mut Tunables) -> error::Result) -> Result {
        let mut settings = self.settings.lock();
        let mut tunables = settings.parameters.tunables;
        f(&mut tunables).map_err(errno)?;
        self.change(&mut settings, |parameters| parameters.tunables = tunables)
    }

    /// Carries out a write to `nrs_fairshare_mode`: a mode and, if they are given, changes of weights.
    ///
    /// # Errors
    ///
    /// What [`weights::split`] and [`Weights::apply`] refuse, and as [`Service::update_tunables`]. Nothing is
    /// changed then, neither mode nor weights.
    pub(crate) fn set_mode(&self, text: &str) -> Result {
        let (mode, list) = weights::split(text).map_err(errno)?;
        let mut settings = self.settings.lock();
        let weights = match list {
            Some(list) => settings.reweighted(list)?,
            None => settings.parameters.weights.clone(),
        };
        self.change(&mut settings, |parameters| {
            parameters.tunables.fairshare.mode = mode;
            parameters.weights = weights;
        })
    }

    /// Carries out a write to `nrs_fairshare_weights`.
    ///
    /// # Errors
    ///
    /// What [`Weights::apply`] refuses. Nothing is changed then.
    pub(crate) fn set_weights(&self, text: &str) -> Result {
        let mut settings = self.settings.lock();
        let weights = settings.reweighted(text)?;
        self.change(&mut settings, |parameters| parameters.weights = weights)
    }

    /// Writes the weights, a line each.
    ///
    /// # Errors
    ///
    /// `ENOSPC`: what `out` cannot take.
    pub(crate) fn write_weights(&self, out: &mut dyn Write) -> Result {
        let weights = self.settings.lock().parameters.weights.clone();
        weights.write(out).map_err(|_| ENOSPC)
    }

    /// Sets what `f` changes, all of it or nothing.
    pub(super) fn change(
        &self,
        settings: &mut Settings,
        f: impl FnOnce(&mut Parameters),
    ) -> Result {
        let mut new = settings.parameters.clone();
        f(&mut new);
        let mut primaries = settings.primaries;
        for config in primaries.iter_mut().flatten() {
            *config = config.with(&new.tunables);
        }
        // Parts that are made from here on get the new ones.
        let old = core::mem::replace(&mut settings.parameters, new);
        if let Err(error) = self.replace(settings, &primaries) {
            settings.parameters = old;
            return Err(error);
        }
        let update = settings.fairshare_update();
        for priority in Priority::ALL {
            self.hand_over(priority, &update);
        }
        self.follow(&settings.parameters.tunables);
        self.refresh_parts();
        Ok(())
    }

    /// Has the service itself follow `tunables`.
    fn follow(&self, tunables: &Tunables) {
        self.ticker.set_delta(tunables.fairshare.delta_ms.get());
        let worker = self.ticker.worker();
        worker.set_cross_cpt(tunables.fairshare.cross_cpt.is_on());
    }

    /// Takes over the parameters of `other`.
    pub(crate) fn adopt(&self, other: &Self) {
        let parameters = other.settings.lock().parameters.clone();
        self.follow(&parameters.tunables);
        self.settings.lock().parameters = parameters;
        self.ordering.adopt(&other.ordering);
        self.patience.adopt(&other.patience);
        self.timeouts.adopt(&other.timeouts);
        self.share_out(other.slots());
        if let Some(max) = BufferMax::new(other.buffer_max()) {
            // Without memory for it, it stays as it is.
            let _ = self.set_buffer_max(max);
        }
        self.dispatch.set_ratio(other.ratio());
        self.dispatch.set_stall_ms(other.stall_ms());
    }

    /// Carries out a write to `nrs_policies`.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: malformed, or an argument that the policy refuses.
    /// - `ENOENT`: no policy of that name.
    /// - `EAGAIN`: earlier policies are still stopping.
    /// - `ENOMEM`.
    ///
    /// Nothing is changed then.
    pub(crate) fn set_policy(&self, command: &str) -> Result {
        let command = Command::parse(command).map_err(errno)?;
        let kind = Kind::from_name(command.policy).map_err(errno)?;
        let mut settings = self.settings.lock();
        let config =
            Config::parse(kind, command.argument, &settings.parameters.tunables).map_err(errno)?;
        // The fallback always runs: to select it is to do without a primary.
        let chosen = match kind {
            Kind::Fifo => None,
            _ => Some(config),
        };
        let mut primaries = settings.primaries;
        for (primary, priority) in primaries.iter_mut().zip(Priority::ALL) {
            if addresses(command.heads, priority) {
                *primary = chosen.map(|config| config.on(priority));
            }
        }
        self.replace(&mut settings, &primaries)
    }

    /// Whether heads that `kind` runs on could start it anew now.
    pub(super) fn can_restart(&self, settings: &Settings, kind: Kind) -> bool {
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
            let kind = config.as_ref().map_or(Kind::Fifo, Config::kind);
            kind.name()
        };
        for (priority, (old, new)) in Priority::ALL.into_iter().zip(old.iter().zip(new)) {
            if old != new {
                trace::policy(&trace::Policy {
                    service: self.name(),
                    priority,
                    old: name(old),
                    new: name(new),
                    argument: new.as_ref().and_then(Config::argument),
                });
            }
        }
    }

    /// What the parts of a target share that are started with `config`: `common`, which is made if it is not there
    /// yet, or for a policy that knows targets apart something of their own.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
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
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn furnish(&self, settings: &mut Settings, lanes: &Lanes) -> Result {
        let primaries = settings.primaries;
        let bandwidth = self
            .bandwidth
            .prepare(&primaries, &settings.parameters.plan)?;
        let books = settings.books.clone();
        for ((priority, config), book) in Priority::ALL.into_iter().zip(primaries).zip(&books) {
            let Some(config) = config else {
                continue;
            };
            let update = settings.first_update(&config, book, &bandwidth)?;
            let [regular, high] = &mut settings.shared;
            let common = match priority {
                Priority::Regular => regular,
                Priority::High => high,
            };
            let shared = self.shared(&config, common)?;
            for partition in lanes.iter() {
                let part = part(&config, &shared, update.as_ref())?;
                let refused =
                    partition.with(|inner| inner.head(priority).install(part, config).err());
                kernel::warn_on!(refused.is_some());
            }
        }
        Ok(())
    }

    /// Starts what `new` has and the settings have not, on all partitions or on none; what can be told to a
    /// running policy is told.
    fn replace(&self, settings: &mut Settings, new: &Primaries) -> Result {
        let old = settings.primaries;
        let told = |(old, new): (&Option<Config>, &Option<Config>)| match (old, new) {
            (Some(old), Some(new)) if old != new => old.update_to(new),
            _ => None,
        };
        let books = carry_over(&settings.books, &old, new)?;
        let changes = || {
            let pairs = old.iter().zip(new.iter());
            Priority::ALL
                .into_iter()
                .zip(pairs)
                .filter(|(_, (old, new))| old != new && told((old, new)).is_none())
                .map(|(priority, (_, new))| (priority, *new))
        };
        let plan = settings.parameters.plan.clone();
        let bandwidth = self.bandwidth.prepare(new, &plan)?;
        let mut shared = settings.shared.clone();
        let mut parts: KVec<Option<KernelPart>> = KVec::new();
        for (priority, config) in changes() {
            let [regular, high] = &books;
            let [shared_regular, shared_high] = &mut shared;
            let (book, shared) = match priority {
                Priority::Regular => (regular, shared_regular),
                Priority::High => (high, shared_high),
            };
            *shared = None;
            let Some(config) = config else {
                continue;
            };
            let update = settings.first_update(&config, book, &bandwidth)?;
            for lanes in self.partitions.lanes() {
                let shared = self.shared(&config, shared)?;
                for partition in lanes.iter() {
                    partition.reap();
                    partition
                        .with(|inner| inner.head(priority).can_install())
                        .map_err(errno)?;
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
                    if let Some(part) = parts.next().and_then(Option::take) {
                        let refused = partition
                            .with(|inner| inner.head(priority).install(part, config).err());
                        kernel::warn_on!(refused.is_some());
                    }
                }
            }
        };
        self.bandwidth.change(bandwidth, &plan, install)?;
        // From here on nothing fails.
        for (priority, (old, new)) in Priority::ALL.into_iter().zip(old.iter().zip(new.iter())) {
            let (Some(update), Some(old), Some(new)) = (told((old, new)), old, new) else {
                continue;
            };
            self.hand_over(priority, &update);
            for partition in self.partitions.iter() {
                partition.with(|inner| inner.head(priority).retag(old, new));
            }
        }
        settings.primaries = *new;
        settings.shared = shared;
        settings.books = books;
        if trace::policy_is_on() {
            self.watch_change(&old, new);
        }
        self.dispatch.set_wants_file(
            new.iter()
                .flatten()
                .any(|config| config.kind() == Kind::Orr),
        );
        self.ticker.set_beat(self.bandwidth.is_running());
        self.ticker.worker().kick();
        self.partitions.run_all();
        Ok(())
    }
}
