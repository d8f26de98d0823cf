// SPDX-License-Identifier: GPL-2.0-only

//! Parameters that requests and targets of a service read without the mutex of its settings.

use kernel::{prelude::*, str::CString, sync::Arc};

use crate::{
    sched::{
        attr::CgroupPath,
        mem::Shared,
        owners::{OwnerCache, OwnerIds, Owners},
        parameters::service::{Level, ServiceParameters as Values},
        policy::{AnyPart, Config},
        priority_sources::PrioritySources,
        slots::Slots,
    },
    sys::{
        atomic::{AtomicWord, Hint},
        node::Held,
        series::{new_spinlock_irq, SpinLockIrq},
    },
};

/// Handler of eligible requests that no other event is about to serve.
pub(crate) trait ProgressHook: Send + Sync {
    /// Requests a check for such requests. Any context.
    fn called(self: Arc<Self>);
}

/// Kind of the clients of a service, set by the first client.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientKind {
    /// Block devices: device-mapper targets, and disks with the I/O scheduler.
    Block,
    /// Open files of `/dev/nrs`, and kernel modules that submit requests in the same way.
    User,
    /// A framework that drives the policies itself ([`super::framework`]).
    Framework,
}

/// Use of the cgroup in which a request was made: bit 0 is 1 if a policy needs it; the other bits
/// are the generation of the owners of cgroups, 0 without owners.
#[derive(Clone, Copy)]
pub(crate) struct CgroupUse(u64);

impl CgroupUse {
    const BY_POLICY: u64 = 1;

    /// Returns true if a policy needs the cgroup.
    pub(crate) fn is_by_policy(self) -> bool {
        self.0 & Self::BY_POLICY != 0
    }

    /// Returns true if the cgroup is used.
    #[cfg(feature = "elevator")]
    pub(crate) fn is_any(self) -> bool {
        self.0 != 0
    }

    /// Returns true if cgroups have owners.
    pub(crate) fn has_owners(self) -> bool {
        self.0 & !Self::BY_POLICY != 0
    }
}

/// State that all targets of a service share.
#[pin_data]
pub(crate) struct TargetParameters {
    /// The name of the service, if any.
    label: Option<CString>,
    /// The [`Slots`].
    slots: AtomicWord,
    ratio: AtomicWord,
    stall_ms: AtomicWord,
    /// The [`ClientKind`].
    kind: AtomicWord,
    /// 1: a policy needs the file of a request.
    wants_file: Hint,
    /// The [`CgroupUse`].
    cgroup_use: Hint,
    /// 1: a policy has more than one class.
    wants_class: Hint,
    /// Index of the [`Level`] in [`Level::ALL`].
    level: Hint,
    pop_window: Hint,
    /// The [`PrioritySources`].
    sources: Hint,
    unhealthy_factor: Hint,
    /// Last generation of the owners.
    generations: AtomicWord,
    known_owners: OwnerCache,
    #[pin]
    owners: SpinLockIrq<Option<Shared<Owners>>>,
    #[pin]
    progress_hook: SpinLockIrq<Option<Arc<dyn ProgressHook>>>,
}

impl TargetParameters {
    /// Creates the state of the service called `label`, with the parameters `values`.
    pub(crate) fn new(label: Option<CString>, values: &Values) -> Result<Arc<Self>> {
        let dispatch = Arc::pin_init(
            pin_init!(Self {
                label,
                slots: AtomicWord::new(values.slots.bits()),
                ratio: AtomicWord::new(0),
                stall_ms: AtomicWord::new(0),
                kind: AtomicWord::new(ClientKind::Block as u64),
                wants_file: Hint::new(0),
                cgroup_use: Hint::new(0),
                wants_class: Hint::new(0),
                level: Hint::new(0),
                pop_window: Hint::new(0),
                sources: Hint::new(0),
                unhealthy_factor: Hint::new(0),
                generations: AtomicWord::new(0),
                known_owners: OwnerCache::new(),
                owners <- new_spinlock_irq!(None, "nrs_owners"),
                progress_hook <- new_spinlock_irq!(None, "nrs_progress_hook"),
            }),
            GFP_KERNEL_ACCOUNT,
        )?;
        dispatch.apply(values);
        Ok(dispatch)
    }

    /// Applies `values` except the slots, whose change targets must be notified of.
    pub(crate) fn apply(&self, values: &Values) {
        self.ratio.set(values.ratio.get().into());
        self.stall_ms.set(values.stall_ms.get().into());
        let level = Level::ALL.iter().position(|level| *level == values.level);
        self.level.set(level.unwrap_or(0) as u64);
        self.pop_window.set(values.pop_window.get().into());
        self.sources.set(values.sources.bits().into());
        self.unhealthy_factor
            .set(values.unhealthy_factor.get().into());
    }

    /// Sets the progress hook to be called from now on. The hook may own `self`, so `None` must be
    /// set in the end.
    pub(crate) fn set_progress_hook(&self, progress_hook: Option<Arc<dyn ProgressHook>>) {
        let before = core::mem::replace(&mut *self.progress_hook.lock(), progress_hook);
        // Dropped without the lock.
        drop(before);
    }

    /// Calls the progress hook. Any context.
    pub(crate) fn call_progress_hook(&self) {
        let progress_hook = self.progress_hook.lock();
        if let Some(progress_hook) = &*progress_hook {
            // Under the lock, so that this reference is not the last one: timers must not free
            // their owner.
            progress_hook.clone().called();
        }
    }

    /// Returns the name of the service; empty if it has none.
    pub(crate) fn label(&self) -> &str {
        let label = self.label.as_ref();
        label.and_then(|label| label.to_str().ok()).unwrap_or("")
    }

    /// Returns the configured slots of each target.
    pub(crate) fn slots(&self) -> Slots {
        Slots::from_bits(self.slots.get())
    }

    /// Sets the slots of each target; the caller must notify the targets
    /// ([`super::target::Target::follow_slots`]).
    pub(crate) fn set_slots(&self, slots: Slots) {
        self.slots.set(slots.bits());
    }

    /// Returns the number of high-priority requests in a row while a regular one is pending.
    pub(crate) fn ratio(&self) -> u32 {
        self.ratio.get() as u32
    }

    /// Returns the stall timeout: eligible requests not dispatched for this long, ms, are
    /// dispatched without slots; 0: never.
    pub(crate) fn stall_ms(&self) -> u32 {
        self.stall_ms.get() as u32
    }

    /// Returns the level of ordering between requests.
    pub(crate) fn level(&self) -> Level {
        let index = self.level.get() as usize;
        Level::ALL.get(index).copied().unwrap_or_default()
    }

    /// Returns the number of requests of a file that are remembered after their end.
    pub(crate) fn pop_window(&self) -> u32 {
        self.pop_window.get() as u32
    }

    /// Returns the sources that give a request of a block device high priority.
    pub(crate) fn sources(&self) -> PrioritySources {
        PrioritySources::from_bits(self.sources.get() as u32)
    }

    /// Returns the unhealthy factor: the service is unhealthy if no request is decided for this
    /// multiple of `at_max`; 0: never.
    pub(crate) fn unhealthy_factor(&self) -> u32 {
        self.unhealthy_factor.get() as u32
    }

    /// Returns true if the clients are of kind `kind`; without clients, if the last clients were.
    pub(crate) fn has_kind(&self, kind: ClientKind) -> bool {
        self.kind.get() == kind as u64
    }

    /// Sets the kind of the clients.
    pub(crate) fn set_kind(&self, kind: ClientKind) {
        self.kind.set(kind as u64);
    }

    /// Returns true if a policy needs the file of a request.
    pub(crate) fn wants_file(&self) -> bool {
        self.wants_file.get() != 0
    }

    /// Returns the use of the cgroup in which a request was made.
    pub(crate) fn cgroup_use(&self) -> CgroupUse {
        CgroupUse(self.cgroup_use.get())
    }

    /// Gives cgroups these owners. The caller serialises this with [`Self::serve`].
    pub(crate) fn set_owners(&self, owners: &Shared<Owners>) {
        let new = (!owners.is_empty()).then(|| owners.clone());
        let has_owners = new.is_some();
        let old = core::mem::replace(&mut *self.owners.lock(), new);
        // Dropped without the lock.
        drop(old);
        let CgroupUse(before) = self.cgroup_use();
        let generation = self.generations.add(2).wrapping_add(2);
        let owned = if has_owners { generation } else { 0 };
        self.cgroup_use.set(before & CgroupUse::BY_POLICY | owned);
    }

    /// Returns the owner of the cgroup `id`, by the owners of `cgroup_use`. `path` returns the path
    /// of the cgroup, or `None` if the cgroup cannot be found.
    pub(crate) fn owner(
        &self,
        cgroup_use: CgroupUse,
        id: u64,
        path: impl FnOnce() -> Option<CgroupPath>,
    ) -> Option<OwnerIds> {
        let CgroupUse(bits) = cgroup_use;
        self.known_owners.of(bits & !CgroupUse::BY_POLICY, id, || {
            let path = path()?;
            let owners = self.owners.lock();
            Some(owners.as_ref().and_then(|owners| owners.of(path)))
        })
    }

    /// Returns true if a policy has more than one class. During such a change, requests are
    /// classified one by one.
    pub(crate) fn wants_class(&self) -> bool {
        self.wants_class.get() != 0
    }

    /// Sets the attributes of requests that the policies with `configs` need.
    pub(crate) fn serve<'a>(&self, configs: impl Iterator<Item = &'a Config> + Clone) {
        let any = |asks: fn(&Config) -> bool| configs.clone().any(asks).into();
        self.wants_file
            .set(any(|config| AnyPart::<Held>::wants_file(config.kind())));
        let CgroupUse(before) = self.cgroup_use();
        let by_policy: u64 = any(Config::wants_cgroup);
        self.cgroup_use
            .set(before & !CgroupUse::BY_POLICY | by_policy);
        self.wants_class.set(any(|config| {
            AnyPart::<Held>::only_class_of(config.kind()).is_none()
        }));
    }
}
