// SPDX-License-Identifier: GPL-2.0-only

//! Services by name.
//!
//! A service is made by the first client that names it, or beforehand by an administrator (configfs);
//! the former goes with its last client, the latter when it is removed.
//!
//! An [`Observer`] (the control files) learns of each service.

use kernel::{
    new_mutex,
    prelude::*,
    str::CString,
    sync::{Arc, SetOnce},
};

use super::{
    client::Client,
    dispatch::Feed,
    service::{Lower, Service},
    target::{Runner, Target},
};
use crate::sys::{
    global::{Global, Installed},
    misc::bug,
    mutex::NoIoMutex,
};

/// Services in all, at most.
const SERVICES_MAX: usize = 1024;

/// Who wants to know of services.
pub(crate) trait Observer: Send + Sync {
    /// `service` is there now. Called with the registry locked.
    fn created(&self, service: &Arc<Service>);

    /// `service` goes. Called with the registry locked.
    fn removed(&self, service: &Service);

    /// `service`, made by an administrator, is about to get its first client. Called without locks.
    ///
    /// # Errors
    ///
    /// Whatever refuses the client.
    fn first_use(&self, service: &Service) -> Result;

    /// The last client of `service` has gone. Called without locks.
    fn last_use(&self, service: &Service);
}

/// A service and why it is there.
struct Entry {
    service: Arc<Service>,
    /// Made by an administrator: stays without clients.
    kept: bool,
}

/// All services.
#[pin_data]
pub(crate) struct Registry {
    #[pin]
    entries: NoIoMutex<KVec<Entry>>,
    observer: SetOnce<Arc<dyn Observer>>,
}

static REGISTRY: Global<Registry> = Global::new();

/// Makes the registry; it goes with the result.
pub(crate) fn init() -> Result<Installed<Registry>> {
    REGISTRY.install(Arc::pin_init(
        pin_init!(Registry {
            entries <- NoIoMutex::new(new_mutex!(KVec::new(), "nrs_registry")),
            observer: SetOnce::new(),
        }),
        GFP_KERNEL,
    )?)
}

/// All services.
///
/// # Errors
///
/// `ENOMEM`; `ENODEV`: the module is going.
pub(crate) fn services() -> Result<KVec<Arc<Service>>> {
    let registry = registry()?;
    let mut services = KVec::new();
    let entries = registry.entries.lock();
    services.reserve(entries.len(), GFP_KERNEL)?;
    for entry in entries.iter() {
        services.push(entry.service.clone(), GFP_KERNEL)?;
    }
    drop(entries);
    Ok(services)
}

/// The service called `name`.
///
/// # Errors
///
/// `ENODEV`: there is none.
pub(crate) fn named(name: &str) -> Result<Arc<Service>> {
    registry()?.find(name).ok_or(ENODEV)
}

/// Whether `service` is one that can be found by its name still.
pub(crate) fn has(service: &Arc<Service>) -> bool {
    registry().is_ok_and(|registry| {
        let entries = registry.entries.lock();
        let mut all = entries.iter();
        all.any(|entry| Arc::ptr_eq(&entry.service, service))
    })
}

/// Sets who learns of services; once.
///
/// # Errors
///
/// `EBUSY`: somebody was set.
pub(crate) fn observe(observer: Arc<dyn Observer>) -> Result {
    if registry()?.observer.populate(observer) {
        Ok(())
    } else {
        Err(EBUSY)
    }
}

/// Makes a service that stays without clients, with `cpts` partitions (default: one per NUMA node).
///
/// # Errors
///
/// - `EEXIST`: there is one of this name.
/// - `EINVAL`: not a name, or a number of partitions out of range.
/// - `ENOSPC`: too many services. `ENOMEM`.
pub(crate) fn create(name: &CStr, cpts: Option<u32>) -> Result<Arc<Service>> {
    registry()?.create(name, cpts, true)
}

/// Removes a service that an administrator made.
///
/// # Errors
///
/// `EBUSY`: it has clients; it goes with the last one then.
pub(crate) fn remove(service: &Arc<Service>) -> Result {
    let registry = registry()?;
    let mut entries = registry.entries.lock();
    let mut all = entries.iter_mut();
    let Some(entry) = all.find(|entry| Arc::ptr_eq(&entry.service, service)) else {
        return Ok(());
    };
    entry.kept = false;
    if service.users() > 0 {
        return Err(EBUSY);
    }
    let gone = registry.take(&mut entries, service);
    drop(entries);
    drop(gone);
    Ok(())
}

/// Replaces an unused service by one with `cpts` partitions; its parameters stay, its policy is fifo.
///
/// # Errors
///
/// `EBUSY`: it has clients. `EINVAL`, `ENOMEM` as for [`create`].
pub(crate) fn recreate(service: &Arc<Service>, cpts: u32) -> Result<Arc<Service>> {
    let registry = registry()?;
    let new = Service::new(service.name_c(), Some(cpts))?;
    let mut entries = registry.entries.lock();
    let entry = entries
        .iter_mut()
        .find(|entry| Arc::ptr_eq(&entry.service, service))
        .ok_or(ENODEV)?;
    if service.users() > 0 {
        return Err(EBUSY);
    }
    // Once nobody can set anything any more by its files.
    registry.retire(service);
    new.adopt(service);
    let old = core::mem::replace(&mut entry.service, new.clone());
    registry.announce(&new);
    drop(entries);
    drop(old);
    Ok(new)
}

/// Makes a client named `label` of the service `name`, which is the device `device` (`major:minor`), on the device `lower`.
///
/// # Errors
///
/// - `ELOOP`: the device is itself a client of the service, or a client of it stands on the device.
/// - `EBUSY`: the service has clients in user space.
/// - `ENOSPC`: too many services, or clients or targets of the service.
pub(crate) fn attach(
    name: &CStr,
    label: &CStr,
    device: &CStr,
    lower: Lower<'_>,
) -> Result<Attachment> {
    attach_with(name, Feed::Block, None, |service| {
        let (label, device) = (CString::try_from(label)?, CString::try_from(device)?);
        service.join(label, device, lower)
    })
}

/// Makes a client named `client` of the service `name`, whose requests are served in user space. All such
/// clients of a service share one target, which is no device.
///
/// # Errors
///
/// - `EBUSY`: the service has clients that are block devices.
/// - `ENOSPC`: too many services, or clients of the service.
/// - `EINVAL`: `name` is not one.
pub(crate) fn attach_user(name: &CStr, client: CString) -> Result<Attachment> {
    attach_with(name, Feed::User, None, |service| {
        let device = CString::try_from(&*client)?;
        service.join(client, device, Lower::NONE)
    })
}

/// Makes a framework that drives the policies of the service `name` the only client of that, with `cpts` partitions;
/// `waker` is told when something that was throttled may be eligible.
///
/// # Errors
///
/// - `EBUSY`: the service has clients.
/// - `ENOSPC`: too many services.
/// - `EINVAL`: `name` is not one, or the number of partitions is out of range, or not that of the service that there is.
pub(crate) fn attach_framework(
    name: &CStr,
    cpts: u32,
    waker: Arc<dyn Runner>,
) -> Result<Attachment> {
    attach_with(name, Feed::Framework, Some(cpts), |service| {
        let (label, device) = (CString::try_from(name)?, CString::try_from(name)?);
        let lower = Lower {
            runner: Some(waker),
            ..Lower::NONE
        };
        service.join(label, device, lower)
    })
}

/// Finds or makes the service `name` for a client of kind `feed` that wants `cpts` partitions (`None`: any number), and
/// has the client `join` it.
fn attach_with(
    name: &CStr,
    feed: Feed,
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
            None => match registry.create(name, cpts, false) {
                Err(EEXIST) => continue,
                other => other?,
            },
        };
        // Held while the use begins, so that the service cannot be removed meanwhile.
        let entries = registry.entries.lock();
        let mut all = entries.iter();
        // If its last client has left by now, or it was replaced, it is looked for again.
        if let Some(entry) = all.find(|entry| Arc::ptr_eq(&entry.service, &service)) {
            break (service.clone(), service.use_begin(feed)? && entry.kept);
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
        let mut services = entries.iter().map(|entry| &entry.service);
        services.find(|service| service.name() == name).cloned()
    }

    /// Takes `service`, if it is kept no longer, out of `entries`; returns its entry.
    fn take(&self, entries: &mut KVec<Entry>, service: &Arc<Service>) -> Option<Entry> {
        let goes = |entry: &Entry| Arc::ptr_eq(&entry.service, service) && !entry.kept;
        let index = entries.iter().position(goes)?;
        let gone = entries.remove(index).ok();
        self.retire(service);
        gone
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

    fn create(&self, name: &CStr, cpts: Option<u32>, kept: bool) -> Result<Arc<Service>> {
        let service = Service::new(name, cpts)?;
        let mut entries = self.entries.lock();
        if entries.iter().any(|entry| entry.service.name_c() == name) {
            return Err(EEXIST);
        }
        if entries.len() >= SERVICES_MAX {
            return Err(ENOSPC);
        }
        entries.push(
            Entry {
                service: service.clone(),
                kept,
            },
            GFP_KERNEL,
        )?;
        self.announce(&service);
        Ok(service)
    }

    /// Ends one use of `service`; with the last one it goes, unless it is kept.
    fn unuse(&self, service: &Arc<Service>) {
        let mut entries = self.entries.lock();
        if !service.use_end() {
            return;
        }
        let gone = self.take(&mut entries, service);
        drop(entries);
        match (gone, self.observer.as_ref()) {
            // Dropped without the lock.
            (Some(gone), _) => drop(gone),
            (None, Some(observer)) => observer.last_use(service),
            (None, None) => {}
        }
    }
}

/// A client's place in a service; it leaves when this is dropped.
pub(crate) struct Attachment {
    service: Arc<Service>,
    client: Arc<Client>,
    target: Arc<Target>,
}

impl Attachment {
    /// The service.
    pub(crate) fn service(&self) -> &Service {
        &self.service
    }

    /// The client's counters.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// The backing device.
    pub(crate) fn target(&self) -> &Arc<Target> {
        &self.target
    }

    /// All three, for requests that outlive a borrow of this; it must stay until the last has ended.
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
        // Front-ends wait for all requests before they let a client go.
        bug!(self.client.held() != 0);
        self.service.leave(&self.client, &self.target);
        if let Ok(registry) = registry() {
            registry.unuse(&self.service);
        }
    }
}
