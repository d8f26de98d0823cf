// SPDX-License-Identifier: GPL-2.0-only

//! Services created by an administrator: `nrs/SERVICE/` in configfs.
//!
//! | attribute | mode | holds |
//! |---|---|---|
//! | `cpts` | rw | number of partitions; `EBUSY` once the service is in use |
//! | `slots` | rw | limit of requests in flight per target |
//! | `state` | r | `idle`, or `in use N` with N clients |
//!
//! The directory `rules` ([`rules`]) exists from the start.
//!
//! `mkdir` fails with `EEXIST` if a client has already created a service of this name. `rmdir`
//! fails with `EBUSY` if the service is in use, and with `ENOTEMPTY` if the service has directories
//! of rules.

pub(crate) mod rules;

use core::{
    fmt::{self, Write as _},
    mem::size_of,
};

use kernel::{
    configfs::{AttributeOperations, Group, GroupOperations, Subsystem},
    new_mutex,
    page::PAGE_SIZE,
    prelude::*,
    str::Formatter,
    sync::Arc,
};

use crate::{
    engine::{parameters, registry, service::Service},
    sched::text::parse_u32,
    sys::{
        configfs::{GroupRef, WithDefaultGroup},
        misc::{self, WithoutIo},
        mutex::NoIoMutex,
        series::configfs_attributes,
    },
};

/// Directory `nrs`. It has no data: the kernel crate before 7.3 reads a subsystem's data from the
/// wrong address.
#[pin_data]
pub(crate) struct RootGroup {}

const _: () = assert!(size_of::<RootGroup>() == 0);

/// Registers the directory `nrs`.
pub(super) fn subsystem() -> impl PinInit<Subsystem<RootGroup>, Error> {
    let item_type = configfs_attributes! {
        container: Subsystem<RootGroup>,
        data: RootGroup,
        child: Directory,
        attributes: [],
    };
    Subsystem::new(c"nrs", item_type, try_pin_init!(RootGroup {}))
}

#[vtable]
impl GroupOperations for RootGroup {
    type Child = Directory;

    fn make_group(&self, name: &CStr) -> Result<impl PinInit<Group<Directory>, Error>> {
        if !misc::is_loaded() {
            return Err(ENODEV);
        }
        let item_type = configfs_attributes! {
            container: Group<Directory>,
            data: Directory,
            attributes: [
                cpts: 0,
                slots: 1,
                state: 2,
            ],
        };
        // A change of a disk, which a driver may wait for, needs the lock that is held here until
        // the group is created.
        let scope = WithoutIo::begin();
        let path = name.try_into()?;
        let kept = OwnedService::new(registry::create(name, None)?)?;
        let inner = GroupRef::new(rules::group(kept.0.clone())?)?;
        Ok(scope.around(WithDefaultGroup::group(path, item_type, kept, inner)))
    }
}

/// Service of a directory; replaced when the number of partitions changes.
#[pin_data]
struct DirectoryService {
    #[pin]
    service: NoIoMutex<Arc<Service>>,
}

impl DirectoryService {
    /// Returns the present service of the directory.
    fn service(&self) -> Arc<Service> {
        self.service.lock().clone()
    }
}

/// Service created by a directory; dropping removes the service.
pub(crate) struct OwnedService(Arc<DirectoryService>);

impl OwnedService {
    /// Wraps a created service.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`: the service is removed.
    fn new(service: Arc<Service>) -> Result<Self> {
        let held = service.clone();
        let place = pin_init!(DirectoryService {
            service <- NoIoMutex::new(new_mutex!(held, "nrs_directory")),
        });
        let place = Arc::pin_init(place, GFP_KERNEL).inspect_err(|_| {
            let _ = registry::remove(&service);
        })?;
        Ok(Self(place))
    }

    /// Returns the present service of the directory.
    fn service(&self) -> Arc<Service> {
        self.0.service()
    }
}

impl Drop for OwnedService {
    fn drop(&mut self) {
        // A service with clients is removed with the last of them.
        let _ = registry::remove(&self.service());
    }
}

/// Directory of a service, with the directory of its rules.
pub(crate) type Directory = WithDefaultGroup<OwnedService>;

/// Writes one line to `page`; returns its length in bytes.
///
/// # Errors
///
/// - `EINVAL`: the line does not fit.
fn line(page: &mut [u8; PAGE_SIZE], args: fmt::Arguments<'_>) -> Result<usize> {
    let mut out = Formatter::new(page);
    out.write_fmt(args)?;
    out.write_char('\n')?;
    Ok(out.bytes_written())
}

/// Returns the written text without surrounding blanks.
///
/// # Errors
///
/// - `EINVAL`: the page is not UTF-8.
fn text_of(page: &[u8]) -> Result<&str> {
    let text = core::str::from_utf8(page).map_err(|_| EINVAL)?;
    Ok(text.trim_ascii())
}

/// Parses the number in `page`.
///
/// # Errors
///
/// - `EINVAL`: the page is not a number.
fn number(page: &[u8]) -> Result<u32> {
    let text = core::str::from_utf8(page).map_err(|_| EINVAL)?;
    parse_u32(text, 0..=u32::MAX, "").map_err(|_| EINVAL)
}

/// Attribute `cpts`.
#[vtable]
impl AttributeOperations<0> for Directory {
    type Data = Directory;

    fn show(this: &Directory, page: &mut [u8; PAGE_SIZE]) -> Result<usize> {
        line(page, format_args!("{}", this.service().cpts()))
    }

    fn store(this: &Directory, page: &[u8]) -> Result {
        let cpts = number(page)?;
        let mut service = this.0.service.lock();
        if service.cpts() != cpts {
            *service = registry::recreate(&service, cpts)?;
        }
        Ok(())
    }
}

/// Attribute `slots`.
#[vtable]
impl AttributeOperations<1> for Directory {
    type Data = Directory;

    fn show(this: &Directory, page: &mut [u8; PAGE_SIZE]) -> Result<usize> {
        line(page, format_args!("{}", this.service().dispatch().slots()))
    }

    fn store(this: &Directory, page: &[u8]) -> Result {
        let service = this.service();
        let set = parameters::set(&service, "slots", text_of(page)?);
        set.map_err(|refused| refused.report(service.name()))
    }
}

/// Attribute `state`.
#[vtable]
impl AttributeOperations<2> for Directory {
    type Data = Directory;

    fn show(this: &Directory, page: &mut [u8; PAGE_SIZE]) -> Result<usize> {
        match this.service().users() {
            0 => line(page, format_args!("idle")),
            users => line(page, format_args!("in use {users}")),
        }
    }
}
