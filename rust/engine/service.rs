// SPDX-License-Identifier: GPL-2.0-only

//! A service: slots at its targets, and the policies that share them out.
//!
//! A service has a partition for each target and CPT; each CPU uses the partitions of its CPT.
//! Requests enter by [`Service::arrive`] and end by [`Service::complete`]. [`host`] lends the
//! kernel to the settings ([`crate::sched::service`]), [`agent`] sets factors, [`show`] writes the
//! state.

use core::fmt::Write;

use kernel::{new_mutex, prelude::*, str::CString, sync::Arc};

use super::{
    agent::Agent,
    arrival::{Arrival, ArrivalOutcome, OrderHandle},
    client::Client,
    client_list::ClientList,
    concurrency::Concurrency,
    cpt,
    overseer::OverseerState,
    partition::{Partition, PublishedShares},
    partitions::{PartitionHead, Partitions, TargetPartitions, TARGETS_MAX},
    refusal::{self, errno_of},
    target::{LowerDevice, PendingSubmission, Target},
    target_parameters::{ClientKind, TargetParameters},
    timeouts::Timeouts,
    tuner::Tuner,
    worker::{Ticker, Worker},
};
use crate::{
    sched::{
        attr::{Attrs, Priority},
        error,
        item::Cost,
        parameters::{ValueAccessors, Values},
        partition::{admit::AdmissionOutcome, slot_pool::SlotSearch},
        policy::{params::ClassesMax, Config, Kind, Tuning},
        service::{draft::ServiceDraft, upkeep, ServiceSettings},
        slots::Slots,
        text::PolicyCommand,
        timeouts::terms::TimeoutTerms,
    },
    sys::{
        atomic::AtomicWord,
        misc,
        mutex::NoIoMutex,
        node::{Held, NodeAccount},
        params,
        series::ELOOP,
        timer::WithTimer,
        trace,
    },
};

pub(crate) mod agent;
mod host;
mod order;
mod show;

use order::records_each;

/// Maximum length of the name of a service.
pub(crate) const NAME_MAX: usize = 31;

/// Returns true if the name of a service may contain `byte`.
pub(crate) fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_-.:".contains(&byte)
}

/// Returns true if `name` is a valid name of a service: a file name of letters, digits and `_ - .
/// :`.
pub(crate) fn is_name(name: &str) -> bool {
    let fits = name.len() <= NAME_MAX && name.bytes().all(is_name_byte);
    fits && !name.is_empty() && !name.starts_with('.')
}

/// Returns the major and the minor number of a device.
pub(crate) fn major_minor(number: u32) -> (u32, u32) {
    /// Number of bits of a device number that hold the minor number.
    const MINOR_BITS: u32 = 20;
    (number >> MINOR_BITS, number & ((1 << MINOR_BITS) - 1))
}

/// Returns the values of a new service, which the module's parameters determine.
fn default_values() -> Values {
    let mut values = Values::default();
    if let Some(max) = ClassesMax::new(params::classes_max()) {
        values.policies.set_classes_max(max);
    }
    values.service.slots = Slots::from_bits(params::default_slots().into());
    values
}

/// Returns the errno of `error`.
fn errno(error: error::Error) -> Error {
    errno_of(error.code)
}

/// A service.
#[pin_data]
pub(crate) struct Service {
    name: CString,
    /// Partition of each CPU.
    cpt_of_cpu: KVec<u16>,
    /// Number of CPTs.
    cpts: u16,
    partitions: Arc<Partitions>,
    dispatch: Arc<TargetParameters>,
    ticker: Arc<WithTimer<Ticker>>,
    concurrency: Arc<Concurrency>,
    timeouts: Arc<Timeouts>,
    users: AtomicWord,
    /// Seed for identifiers of class paths, the same on all heads and at each start.
    seed: u64,
    overseer: Arc<OverseerState>,
    agent: Arc<Agent>,
    clients: Arc<ClientList>,
    #[pin]
    settings: NoIoMutex<ServiceSettings>,
}

impl Service {
    /// Creates a service called `name` with `cpts` partitions (default: one per NUMA node).
    ///
    /// # Errors
    ///
    /// - `EINVAL`: `name` is not a valid name, or the number of partitions is 0, more than the
    ///   CPUs, or more than [`CPTS_MAX`](crate::sched::partition::slot_pool::CPTS_MAX).
    /// - `ENOMEM`.
    pub(crate) fn new(name: &CStr, cpts: Option<u32>) -> Result<Arc<Self>> {
        if !name.to_str().is_ok_and(is_name) {
            return Err(EINVAL);
        }
        let (cpt_of_cpu, cpts) = cpt::partition_of_cpus(cpts)?;
        let values = default_values();
        let label = Some(CString::try_from(name)?);
        let dispatch = TargetParameters::new(label, &values.service)?;
        let concurrency =
            Concurrency::new(dispatch.slots().count(), values.service.buffer_max.get())?;
        let partitions = Partitions::new()?;
        let seed = misc::random();
        let clients = ClientList::new()?;
        let overseer = OverseerState::new(partitions.clone(), clients.clone())?;
        let agent = Agent::new(CString::try_from(name)?)?;
        let worker = Worker::new(
            CString::try_from(name)?,
            partitions.clone(),
            dispatch.clone(),
            overseer.clone(),
            agent.clone(),
        )?;
        let settings = ServiceSettings::new(values).map_err(errno)?;
        let capacity = settings.parameters().kept.capacity().cloned();
        let tuner = Tuner::new(
            dispatch.clone(),
            partitions.clone(),
            clients.clone(),
            capacity,
        )?;
        let timeouts = Timeouts::new(cpts)?;
        let ticker = Ticker::new(worker, tuner, values.policies.upkeep().delta_ms)?;
        let service = Arc::pin_init(
            try_pin_init!(Self {
                name: CString::try_from(name)?,
                cpt_of_cpu,
                cpts,
                partitions,
                dispatch,
                ticker,
                concurrency,
                timeouts,
                users: AtomicWord::new(0),
                seed,
                overseer,
                agent,
                clients,
                settings <- NoIoMutex::new(new_mutex!(settings, "nrs_settings")),
            }? Error),
            GFP_KERNEL_ACCOUNT,
        )?;
        // `nrs_policies` reads the policies from the partitions of a target, so one target exists
        // from the start.
        service.add_target(&mut service.settings.lock())?;
        Ok(service)
    }

    /// Returns the name of the service.
    pub(crate) fn name_cstr(&self) -> &CStr {
        &self.name
    }

    /// Returns the name of the service.
    pub(crate) fn name(&self) -> &str {
        self.name.to_str().unwrap_or("")
    }

    /// Returns the number of CPTs.
    pub(crate) fn cpts(&self) -> u32 {
        self.cpts.into()
    }

    /// Returns the number of uses of the service: clients, and clients that are being created.
    pub(crate) fn users(&self) -> u32 {
        self.users.get() as u32
    }

    /// Begins a use by a client of kind `kind`; returns true if it is the first use. Called with
    /// the registry locked.
    ///
    /// # Errors
    ///
    /// `EBUSY`: there are clients of another kind, whose slots have another meaning, or `kind` is
    /// `Framework` and there are clients.
    pub(crate) fn use_begin(&self, kind: ClientKind) -> Result<bool> {
        let alone = kind == ClientKind::Framework || !self.dispatch.has_kind(kind);
        if self.users.get() != 0 && alone {
            return Err(EBUSY);
        }
        self.dispatch.set_kind(kind);
        let first = self.users.add(1) == 0;
        if first {
            self.ticker.start();
        }
        Ok(first)
    }

    /// Ends a use; returns true if it was the last. Called with the registry locked.
    pub(crate) fn use_end(&self) -> bool {
        let last = self.users.sub(1) == 1;
        if last {
            self.ticker.stop();
        }
        last
    }

    /// Stops the timer of the service, which has no clients any more.
    pub(crate) fn stop(&self) {
        self.ticker.stop();
    }

    /// Adds a client named `name`, itself `device`, on the device `lower`; returns the client and
    /// its target.
    ///
    /// # Errors
    ///
    /// - `ELOOP`: the device or its disk is itself a client of this service, or a client of this
    ///   service is stacked on the device or on a partition of it.
    /// - `ENOSPC`: too many targets or clients.
    /// - `ENOMEM`.
    pub(crate) fn join(
        &self,
        name: CString,
        device: CString,
        lower: LowerDevice<'_>,
    ) -> Result<(Arc<Client>, Arc<Target>)> {
        // The settings' mutex serialises joins. A new target is created before the clients are
        // locked, because this takes locks that precede theirs in the lock order.
        let mut settings = self.settings.lock();
        let target = self.target_for(&mut settings, lower.number)?;
        // The worker may not have run for a long time.
        upkeep::refresh(self);
        self.clients.with(|clients| {
            // A device that pulls is its own client. Its previous client may not have left yet.
            let mut used = self.partitions.used().map(TargetPartitions::target);
            let loops = match &lower.runner {
                Some(_) => used.any(|other| !other.pulls() && other.whole() == lower.number),
                None => {
                    clients.iter().any(|client| client.device() == lower.name)
                        || used.any(|other| other.pulls() && other.number() == lower.whole)
                }
            };
            if loops {
                return Err(ELOOP);
            }
            target.attach(&lower)?;
            // Programs state the client of each request; a block device is one client.
            let block = self.dispatch.has_kind(ClientKind::Block);
            let concurrency = block.then(|| self.concurrency.clone());
            let make = |serial| {
                let mut client = Client::new(name, device, serial, target.index(), concurrency)?;
                if block {
                    client = client.with_deadlines(
                        target.clone(),
                        self.timeouts.clone(),
                        &self.name,
                        self.partitions.clone(),
                    )?;
                }
                Ok(Arc::new(client, GFP_KERNEL_ACCOUNT)?)
            };
            match clients.add(make) {
                Ok(client) => Ok((client, target.clone())),
                Err(error) => {
                    target.detach();
                    Err(error)
                }
            }
        })
    }

    /// Returns the target for device `number`: its current target, else an unused one, else a new
    /// one. An unused target that was last used for this device is preferred.
    ///
    /// # Errors
    ///
    /// `ENOSPC`: the service has [`TARGETS_MAX`] targets in use. `ENOMEM`.
    fn target_for(&self, settings: &mut ServiceSettings, number: u32) -> Result<Arc<Target>> {
        let all = || self.partitions.all_targets().map(TargetPartitions::target);
        let known = |target: &&Arc<Target>| target.number() == number;
        let idle = |target: &&Arc<Target>| target.users() == 0;
        let target = match all().find(known).or_else(|| all().find(idle)) {
            Some(target) => target,
            None => self.add_target(settings)?.target(),
        };
        Ok(target.clone())
    }

    /// Creates a target without users, and its partitions with the current policies.
    ///
    /// # Errors
    ///
    /// `ENOSPC`: the service has [`TARGETS_MAX`] targets. `ENOMEM`.
    fn add_target(&self, settings: &mut ServiceSettings) -> Result<&TargetPartitions> {
        let index = self.partitions.all_targets().count();
        if index >= TARGETS_MAX {
            return Err(ENOSPC);
        }
        let target = Target::new(index as u16, self.dispatch.clone(), self.cpts)?;
        let published = Arc::new(PublishedShares::new(), GFP_KERNEL_ACCOUNT)?;
        let values = settings.parameters().values;
        let fallback = Config::parse(Kind::FALLBACK, None, &values.policies).map_err(errno)?;
        let records = values.service.buffer_max.get();
        let records = records_each(records, self.cpts());
        let mut list = KVec::with_capacity(self.cpts.into(), GFP_KERNEL_ACCOUNT)?;
        for cpt in 0..self.cpts {
            let (target, published) = (target.clone(), published.clone());
            let partition = Partition::new(cpt, target, published, fallback, records)?;
            list.push(partition, GFP_KERNEL_ACCOUNT)?;
        }
        let partitions = TargetPartitions::new(target, published, list);
        let heads = partitions.heads();
        settings.install_parts(self, heads).map_err(errno)?;
        self.partitions.add(partitions)
    }

    /// Returns the values of the parameters.
    pub(crate) fn values(&self) -> Values {
        self.settings.lock().parameters().values
    }

    /// Sets the parameter `stored`; see [`ServiceSettings::set`].
    pub(crate) fn set(&self, stored: &ValueAccessors, text: &str) -> refusal::Result {
        Ok(self.settings.lock().set(self, stored, text)?)
    }

    /// Writes the text of the service; see [`ServiceSettings::write_text`].
    pub(crate) fn write_text(&self, out: &mut dyn Write) -> refusal::Result {
        Ok(self.settings.lock().write_text(out)?)
    }

    /// Changes the service to what `text` says; see [`ServiceSettings::apply`].
    pub(crate) fn apply(&self, text: &str) -> refusal::Result {
        let draft = self.draft(text)?;
        Ok(self.settings.lock().apply(self, draft)?)
    }

    /// Verifies that a text that begins with the lines `text` may be applied.
    pub(crate) fn check_text(&self, text: &str) -> refusal::Result {
        self.draft(text)?;
        Ok(())
    }

    /// Returns the draft that the lines of `text` create. The settings are not locked meanwhile:
    /// thousands of rules take time.
    fn draft(&self, text: &str) -> refusal::Result<ServiceDraft<Held>> {
        let draft = self.settings.lock().draft()?;
        draft.write(text)?;
        Ok(draft)
    }

    /// Executes a write to `nrs_policies`.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the command is malformed. Other errors as for [`Self::start_policy`].
    pub(crate) fn set_policy(&self, command: &str) -> refusal::Result {
        self.start_policy(&PolicyCommand::parse(command)?, false)
    }

    /// Starts the policy that `command` names; see [`ServiceSettings::start_policy`].
    pub(crate) fn start_policy(
        &self,
        command: &PolicyCommand<'_>,
        framework: bool,
    ) -> refusal::Result {
        let mut settings = self.settings.lock();
        Ok(settings.start_policy(self, command, framework)?)
    }

    /// Returns the policy of the primary of the heads of `priority`.
    pub(crate) fn primary_kind(&self, priority: Priority) -> Option<Kind> {
        self.settings.lock().primary(priority).map(Config::kind)
    }

    /// Takes over the parameters of `other`, which refuses changes from now on; this service must
    /// not be in use yet.
    pub(crate) fn adopt(&self, other: &Self) {
        let given = other.settings.lock().give_up();
        self.settings.lock().adopt(self, given);
    }

    /// Sets the queue depth of the device of `target`.
    #[cfg(feature = "elevator")]
    pub(crate) fn set_depth(&self, target: &Target, depth: u32) {
        self.clients.with(|_| target.set_depth(depth));
    }

    /// Removes `client`, which used `target`.
    pub(crate) fn leave(&self, client: &Arc<Client>, target: &Target) {
        self.clients.with(|clients| {
            target.detach();
            clients.remove(client);
        });
    }

    /// Returns the limits on the requests of the clients.
    pub(crate) fn concurrency(&self) -> &Arc<Concurrency> {
        &self.concurrency
    }

    /// Returns the partitions of `target`, by CPT.
    pub(crate) fn partitions_of(&self, target: &Target) -> Option<&TargetPartitions> {
        self.partitions.of(target.index())
    }

    /// Schedules the allocation of the memory that policies need. Any context.
    pub(crate) fn feed(&self) {
        self.ticker.worker().feed();
    }

    /// Returns the parameters that requests read.
    pub(crate) fn dispatch(&self) -> &TargetParameters {
        &self.dispatch
    }

    /// Returns the CPT of `cpu`.
    fn cpt_of(&self, cpu: u16) -> u16 {
        if self.cpts <= 1 {
            return 0;
        }
        self.cpt_of_cpu.get(usize::from(cpu)).copied().unwrap_or(0)
    }

    /// Accepts a request. Returns the request if it is to be submitted immediately; its slot is
    /// taken then.
    ///
    /// `attrs` is called, with interrupts off, unless the same submitter was seen recently.
    #[inline(always)]
    pub(crate) fn arrive(
        &self,
        mut held: Held,
        arrival: &Arrival<'_>,
        attrs: impl Fn() -> Attrs,
    ) -> ArrivalOutcome {
        let home = match arrival.domain {
            Some(domain) => self.home(arrival.target, domain),
            None => {
                let cpt = self.cpt_of(held.account().cpu);
                cpt::home(arrival.target.index(), cpt)
            }
        };
        let Some((partitions, partition)) = self.partitions.at(home) else {
            // Each target has partitions; if they were missing, the request is submitted.
            return ArrivalOutcome {
                went: AdmissionOutcome::Passed(held),
                record: None,
            };
        };
        let mut found = SlotSearch::default();
        if partitions.target().slot_pool().is_uncontended() {
            found = partition.pass(&mut held, arrival);
        }
        if found.slot {
            held.account_mut().home = home;
            if found.others {
                partitions.pass_on(PendingSubmission::none());
            }
            return ArrivalOutcome {
                went: AdmissionOutcome::Passed(held),
                record: None,
            };
        }
        let priority = held.account().placement.priority;
        let (arrived, kick) = partition.arrive(held, arrival, &attrs);
        partitions.arrived(arrived.others || found.others, kick);
        if arrived.needs_memory {
            // Several new classes in a row cannot wait for the worker, which may run late.
            if arrival.may_sleep {
                // If this fails, the worker tries again.
                let head = PartitionHead::new(partition, priority);
                let _ = misc::without_io(|| upkeep::feed(&head, |head| head.primary_mut()));
            }
            self.ticker.worker().feed();
        }
        let record = arrived.record.map(|id| OrderHandle { home, id });
        ArrivalOutcome {
            went: arrived.went,
            record,
        }
    }

    /// Charges the class of requests to `target` with `attrs` for the growth of a request by
    /// `cost`, on `cpu`.
    #[cfg(feature = "elevator")]
    pub(crate) fn merge(&self, target: &Target, cpu: u16, attrs: &Attrs, cost: Cost) {
        let home = cpt::home(target.index(), self.cpt_of(cpu));
        if let Some((_, partition)) = self.partitions.at(home) {
            if partition.merge(attrs, cost) {
                self.ticker.worker().feed();
            }
        }
    }

    /// Releases the resources of a request to `target` that ended on `cpu`, and decides the next
    /// use of its slot. `error` is the errno of a failed request, or 0. Any context.
    #[inline]
    pub(crate) fn complete(
        &self,
        account: &NodeAccount,
        cost: Cost,
        target: &Arc<Target>,
        error: i32,
        cpu: u16,
    ) {
        if trace::Complete::is_on() {
            self.trace_end(account, cost, error);
        }
        let placement = &account.placement;
        target.kick(target.leave(placement.admission, placement.priority, cpu));
        let home = placement.ticket.is_some() || placement.record.is_some();
        if home || !target.slot_pool().is_uncontended() {
            self.dispatch_more(account, cost, target, home);
        }
    }

    /// Counts the end of a request in the partition that queued or recorded it, if `home` is true;
    /// then dispatches further requests.
    #[inline(never)]
    fn dispatch_more(&self, account: &NodeAccount, cost: Cost, target: &Target, home: bool) {
        if let Some(partitions) = self.partitions.of(target.index()) {
            let cpt = home.then(|| cpt::cpt_of(account.home));
            if partitions.ended(cpt, account, cost) {
                self.ticker.worker().progress().call();
            }
        }
    }

    /// Emits the tracepoint for the end of a request.
    #[cold]
    #[inline(never)]
    fn trace_end(&self, account: &NodeAccount, cost: Cost, error: i32) {
        let (Some(id), Some(service_ns)) = (account.life.id(), account.life.since(misc::now()))
        else {
            return;
        };
        let event = trace::Complete {
            service: trace::text(Some(&self.name())),
            cpt: cpt::cpt_of(account.home),
            high: trace::is_high(account.placement.priority),
            id,
            bytes: cost.bytes,
            service_ns,
            error,
        };
        event.emit();
    }

    /// Dispatches all queued requests without taking slots.
    pub(crate) fn drain(&self) {
        self.partitions.drain();
    }

    /// Dispatches all requests queued for `target` without taking slots; returns true if there were
    /// any.
    pub(crate) fn drain_target(&self, target: &Target) -> bool {
        let partitions = self.partitions.of(target.index());
        partitions.is_some_and(TargetPartitions::drain)
    }

    /// Returns the next request for `target`, whose device pulls.
    #[cfg(feature = "elevator")]
    #[inline]
    pub(crate) fn pull(&self, target: &Target) -> Option<Held> {
        target.pull(|| self.partitions.of(target.index())?.pull())
    }

    /// Dispatches all requests queued for devices that pull, without taking slots.
    #[cfg(feature = "elevator")]
    pub(crate) fn drain_pulled(&self) {
        for partitions in self.partitions.all_targets() {
            if partitions.target().pulls() {
                partitions.drain();
            }
        }
    }

    /// Returns the timeouts of the service.
    pub(crate) fn timeouts(&self) -> &Timeouts {
        &self.timeouts
    }

    /// Sets the terms of the timeouts.
    fn follow_terms(&self, terms: &TimeoutTerms) {
        if self.timeouts.terms() == *terms {
            return;
        }
        self.timeouts.set(terms);
        self.clients.with(|clients| {
            for client in clients.iter() {
                if let Some(deadlines) = client.deadlines() {
                    deadlines.sync();
                }
            }
        });
    }

    /// Sets the slots of all targets.
    fn share_out(&self, slots: Slots) {
        if self.dispatch.slots() == slots {
            return;
        }
        self.clients.with(|_| {
            self.dispatch.set_slots(slots);
            for partitions in self.partitions.all_targets() {
                partitions.target().follow_slots();
            }
            self.concurrency.set_slots(slots.count());
        });
        self.partitions.run_all();
    }
}
