// SPDX-License-Identifier: GPL-2.0-only

//! Services by name.
//!
//! A service is created by its first client, or in advance by an administrator (configfs). The
//! former is removed with its last client, the latter only explicitly.
//!
//! A [`ServiceObserver`] (the control files) is notified of each service.
//!
//! ```text
//!   created ──▶ registered ── last use, removal, other CPTs ──▶ leaving ──▶ removed
//!                   ▲                                              │
//!                   └──────────── replaced by its successor ◀──────┘
//! ```
//!
//! Files are removed while the service is leaving, without the lock: a reader of a file may wait
//! for I/O of a queue that is frozen by a task that joins or leaves another service.

use kernel::{
    new_condvar, new_mutex,
    prelude::*,
    str::CString,
    sync::{Arc, CondVar, SetOnce},
};

use super::{
    client::Client,
    service::Service,
    target::{LowerDevice, PullNotifier, Target},
    target_parameters::ClientKind,
};
use crate::sys::{
    global::{Global, GlobalGuard},
    misc::bug,
    mutex::NoIoMutex,
    task,
};

/// Maximum number of services.
const SERVICES_MAX: usize = 1024;

/// Maximum number of services for users of `/dev/nrs` without root privileges; the others are
/// reserved.
const USER_SERVICES_MAX: usize = 768;

/// Receiver of notifications about services.
pub(crate) trait ServiceObserver: Send + Sync {
    /// Handles the creation of `service`. Called with the registry locked.
    fn created(&self, service: &Arc<Service>);

    /// Handles the removal of `service`. Called without locks; the name stays in use meanwhile.
    fn removed(&self, service: &Service);

    /// Handles the attachment of the first client to `service`, which an administrator created.
    /// Called without locks.
    ///
    /// # Errors
    ///
    /// Any error refuses the client.
    fn first_use(&self, service: &Service) -> Result;

    /// Handles the departure of the last client of `service`. Called without locks.
    fn last_use(&self, service: &Service);
}

/// A service and the reason for its existence.
struct RegistryEntry {
    service: Arc<Service>,
    /// True if an administrator created the service: it stays without clients.
    kept: bool,
    /// True while the service is removed or replaced: it is not found, and its name is in use.
    leaving: bool,
}

impl RegistryEntry {
    /// Returns true if the entry is that of `service`, which is not leaving.
    fn is_for(&self, service: &Arc<Service>) -> bool {
        !self.leaving && Arc::ptr_eq(&self.service, service)
    }
}

/// All services.
#[pin_data(PinnedDrop)]
pub(crate) struct Registry {
    #[pin]
    entries: NoIoMutex<KVec<RegistryEntry>>,
    observer: SetOnce<Arc<dyn ServiceObserver>>,
    /// Notified when a service has left.
    #[pin]
    left: CondVar,
}

#[pinned_drop]
impl PinnedDrop for Registry {
    fn drop(self: Pin<&mut Self>) {
        // No client pins the module, so none exists. If one was lost, no timer must expire later.
        for entry in self.entries.lock().iter() {
            let is_used = entry.service.users() > 0;
            bug!(is_used);
            entry.service.stop();
        }
    }
}

static REGISTRY: Global<Registry> = Global::new();

/// Creates the registry, which is removed when the result is dropped.
pub(crate) fn init() -> Result<GlobalGuard<Registry>> {
    REGISTRY.install(Arc::pin_init(
        pin_init!(Registry {
            entries <- NoIoMutex::new(new_mutex!(KVec::new(), "nrs_registry")),
            observer: SetOnce::new(),
            left <- new_condvar!("nrs_left"),
        }),
        GFP_KERNEL,
    )?)
}

/// Returns all services.
///
/// # Errors
///
/// `ENOMEM`. `ENODEV`: the module is being unloaded.
pub(crate) fn services() -> Result<KVec<Arc<Service>>> {
    let registry = registry()?;
    let mut services = KVec::new();
    let entries = registry.entries.lock();
    services.reserve(entries.len(), GFP_KERNEL)?;
    for entry in entries.iter().filter(|entry| !entry.leaving) {
        services.push(entry.service.clone(), GFP_KERNEL)?;
    }
    drop(entries);
    Ok(services)
}

/// Returns the service called `name`.
///
/// # Errors
///
/// `ENODEV`: there is no such service, or the module is being unloaded.
pub(crate) fn named(name: &str) -> Result<Arc<Service>> {
    registry()?.find(name).ok_or(ENODEV)
}

/// Returns true if `service` is still registered under its name.
pub(crate) fn has(service: &Arc<Service>) -> bool {
    registry().is_ok_and(|registry| {
        let entries = registry.entries.lock();
        let mut all = entries.iter();
        all.any(|entry| entry.is_for(service))
    })
}

/// Sets the observer of services; only once.
///
/// # Errors
///
/// `EBUSY`: an observer is set. `ENODEV`: the module is being unloaded.
pub(crate) fn observe(observer: Arc<dyn ServiceObserver>) -> Result {
    if registry()?.observer.populate(observer) {
        Ok(())
    } else {
        Err(EBUSY)
    }
}

/// Creates a service that stays without clients, with `cpts` partitions (default: one per NUMA
/// node).
///
/// # Errors
///
/// - `EEXIST`: the name is in use.
/// - `EINVAL`: `name` is not a valid name, or the number of partitions is out of range.
/// - `ENOSPC`: too many services.
/// - `ENOMEM`.
pub(crate) fn create(name: &CStr, cpts: Option<u32>) -> Result<Arc<Service>> {
    registry()?.create(name, cpts, None)
}

/// Removes a service that an administrator created.
///
/// # Errors
///
/// `EBUSY`: the service has clients; it is removed with the last one.
pub(crate) fn remove(service: &Arc<Service>) -> Result {
    let registry = registry()?;
    let mut entries = registry.entries.lock();
    let mut all = entries.iter_mut();
    let Some(entry) = all.find(|entry| entry.is_for(service)) else {
        return Ok(());
    };
    entry.kept = false;
    if service.users() > 0 {
        return Err(EBUSY);
    }
    entry.leaving = true;
    drop(entries);
    registry.remove(service);
    Ok(())
}

/// Replaces an unused service by one with `cpts` partitions; its parameters stay, its policy is
/// fifo.
///
/// # Errors
///
/// `EBUSY`: the service has clients. `ENODEV`: the service is not registered. `EINVAL`, `ENOMEM` as
/// for [`create`].
pub(crate) fn recreate(service: &Arc<Service>, cpts: u32) -> Result<Arc<Service>> {
    let registry = registry()?;
    let new = Service::new(service.name_cstr(), Some(cpts))?;
    let mut entries = registry.entries.lock();
    let mut all = entries.iter_mut();
    let entry = all.find(|entry| entry.is_for(service)).ok_or(ENODEV)?;
    if service.users() > 0 {
        return Err(EBUSY);
    }
    entry.leaving = true;
    drop(entries);
    registry.retire(service);
    // Changes that still have the old service fail.
    new.adopt(service);
    let mut entries = registry.entries.lock();
    let mut all = entries.iter_mut();
    let Some(entry) = all.find(|entry| Arc::ptr_eq(&entry.service, service)) else {
        // A service that is leaving is removed only by the task that marked it.
        bug!();
        return Err(ENODEV);
    };
    entry.leaving = false;
    let old = core::mem::replace(&mut entry.service, new.clone());
    registry.announce(&new);
    drop(entries);
    registry.left.notify_all();
    drop(old);
    Ok(new)
}

/// Adds a client named `label` to the service `name`. The client is the device `device`
/// (`major:minor`) on top of the device `lower`.
///
/// # Errors
///
/// - `ELOOP`: the device is itself a client of the service, or a client of the service is stacked
///   on the device.
/// - `EBUSY`: the service has clients in user space.
/// - `ENOSPC`: too many services, or clients or targets of the service.
pub(crate) fn attach(
    name: &CStr,
    label: &CStr,
    device: &CStr,
    lower: LowerDevice<'_>,
) -> Result<Attachment> {
    attach_with(name, ClientKind::Block, None, |service| {
        let (label, device) = (CString::try_from(label)?, CString::try_from(device)?);
        service.join(label, device, lower)
    })
}

/// Adds a client named `client` to the service `name`, whose requests are served in user space. All
/// such clients of a service share one target, which is no device.
///
/// # Errors
///
/// - `EBUSY`: the service has clients that are block devices.
/// - `ENOSPC`: too many services (fewer without root privileges), or clients of the service.
/// - `EINVAL`: `name` is not a valid name.
pub(crate) fn attach_user(name: &CStr, client: CString) -> Result<Attachment> {
    attach_with(name, ClientKind::User, None, |service| {
        let device = CString::try_from(&*client)?;
        service.join(client, device, LowerDevice::NONE)
    })
}

/// Adds a framework that drives the policies of the service `name` as its only client, with `cpts`
/// partitions. `waker` is called when a throttled request may be eligible.
///
/// # Errors
///
/// - `EBUSY`: the service has clients.
/// - `ENOSPC`: too many services.
/// - `EINVAL`: `name` is not a valid name, or the number of partitions is out of range or differs
///   from that of the existing service.
pub(crate) fn attach_framework(
    name: &CStr,
    cpts: u32,
    waker: Arc<dyn PullNotifier>,
) -> Result<Attachment> {
    attach_with(name, ClientKind::Framework, Some(cpts), |service| {
        let (label, device) = (CString::try_from(name)?, CString::try_from(name)?);
        let lower = LowerDevice {
            runner: Some(waker),
            ..LowerDevice::NONE
        };
        service.join(label, device, lower)
    })
}

/// Finds or creates the service `name` for a client of kind `kind` that needs `cpts` partitions
/// (`None`: any number), then adds the client by `join`.
fn attach_with(
    name: &CStr,
    kind: ClientKind,
    cpts: Option<u32>,
    join: impl FnOnce(&Service) -> Result<(Arc<Client>, Arc<Target>)>,
) -> Result<Attachment> {
    let registry = registry()?;
    let (service, first) = loop {
        let service = match registry.find(name.to_str().unwrap_or("")) {
            Some(service) if cpts.is_some_and(|count| count != service.cpts()) => {
                return Err(EINVAL);
            }
            Some(service) => service,
            None => match registry.create(name, cpts, Some(kind)) {
                Err(EEXIST) => continue,
                other => other?,
            },
        };
        // Locked while the use begins, so that the service cannot be removed meanwhile.
        let entries = registry.entries.lock();
        let mut all = entries.iter();
        // If the service was removed with its last client or was replaced, the search starts again.
        if let Some(entry) = all.find(|entry| entry.is_for(&service)) {
            break (service.clone(), service.use_begin(kind)? && entry.kept);
        }
    };
    let joined = || -> Result<Attachment> {
        if first {
            if let Some(observer) = registry.observer.as_ref() {
                observer.first_use(&service)?;
            }
        }
        let (client, target) = join(&service)?;
        Ok(Attachment {
            service: service.clone(),
            client,
            target,
        })
    };
    joined().inspect_err(|_| registry.unuse(&service))
}

fn registry() -> Result<Arc<Registry>> {
    REGISTRY.get().ok_or(ENODEV)
}

impl Registry {
    fn find(&self, name: &str) -> Option<Arc<Service>> {
        let entries = self.entries.lock();
        let services = entries.iter().filter(|entry| !entry.leaving);
        let mut services = services.map(|entry| &entry.service);
        services.find(|service| service.name() == name).cloned()
    }

    /// Removes `service`, which was marked as leaving. Waits for users of its files, without the
    /// lock, which tasks that such users wait for may need.
    fn remove(&self, service: &Arc<Service>) {
        self.retire(service);
        let mut entries = self.entries.lock();
        let mut all = entries.iter();
        let index = all.position(|entry| Arc::ptr_eq(&entry.service, service));
        let gone = index.and_then(|index| entries.remove(index).ok());
        drop(entries);
        self.left.notify_all();
        drop(gone);
    }

    fn announce(&self, service: &Arc<Service>) {
        if let Some(observer) = self.observer.as_ref() {
            observer.created(service);
        }
    }

    fn retire(&self, service: &Service) {
        if let Some(observer) = self.observer.as_ref() {
            observer.removed(service);
        }
        service.stop();
    }

    /// Creates a service for a client of `kind`; `None`: for an administrator.
    fn create(
        &self,
        name: &CStr,
        cpts: Option<u32>,
        kind: Option<ClientKind>,
    ) -> Result<Arc<Service>> {
        let service = Service::new(name, cpts)?;
        let mut entries = self.entries.lock();
        loop {
            let mut all = entries.iter();
            match all.find(|entry| entry.service.name_cstr() == name) {
                None => break,
                Some(entry) if entry.leaving => entries.wait(&self.left),
                Some(_) => return Err(EEXIST),
            }
        }
        let count = entries.len();
        let reserved = count >= USER_SERVICES_MAX && kind == Some(ClientKind::User);
        if count >= SERVICES_MAX || reserved && !task::is_admin() {
            return Err(ENOSPC);
        }
        entries.push(
            RegistryEntry {
                service: service.clone(),
                kept: kind.is_none(),
                leaving: false,
            },
            GFP_KERNEL,
        )?;
        self.announce(&service);
        Ok(service)
    }

    /// Ends one use of `service`; removes the service after the last use, unless an administrator
    /// created it.
    fn unuse(&self, service: &Arc<Service>) {
        let mut entries = self.entries.lock();
        if !service.use_end() {
            return;
        }
        let mut all = entries.iter_mut();
        let entry = all.find(|entry| entry.is_for(service) && !entry.kept);
        let goes = entry.map(|entry| entry.leaving = true).is_some();
        drop(entries);
        if goes {
            self.remove(service);
        } else if let Some(observer) = self.observer.as_ref() {
            observer.last_use(service);
        }
    }
}

/// Membership of a client in a service; the client leaves when this is dropped.
pub(crate) struct Attachment {
    service: Arc<Service>,
    client: Arc<Client>,
    target: Arc<Target>,
}

impl Attachment {
    /// Returns the service.
    pub(crate) fn service(&self) -> &Service {
        &self.service
    }

    /// Returns the client and its counters.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the backing device.
    pub(crate) fn target(&self) -> &Arc<Target> {
        &self.target
    }

    /// Returns all three, for requests that outlive a borrow of the attachment, which must exist
    /// until the last request has ended.
    pub(crate) fn parts(&self) -> (Arc<Service>, Arc<Client>, Arc<Target>) {
        (
            self.service.clone(),
            self.client.clone(),
            self.target.clone(),
        )
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        // Front-ends wait for all requests before they drop the attachment.
        bug!(self.client.load().held() != 0);
        self.service.leave(&self.client, &self.target);
        if let Ok(registry) = registry() {
            registry.unuse(&self.service);
        }
    }
}
