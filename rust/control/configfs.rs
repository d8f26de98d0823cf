// SPDX-License-Identifier: GPL-2.0-only

//! Services that an administrator makes: `nrs/SERVICE/` in configfs.
//!
//! | attribute | mode | holds |
//! |---|---|---|
//! | `cpts` | rw | number of partitions; `EBUSY` once the service is in use |
//! | `slots` | rw | requests that may be at the devices at a time |
//! | `state` | r | `idle`, or `in use N` with N clients |
//!
//! The directory `rules` ([`rules`]) is in it from the start.
//!
//! `mkdir` of a name that a client has already brought up is refused with `EEXIST`, `rmdir` of a service in
//! use with `EBUSY`, and of one that has directories of rules with `ENOTEMPTY`.

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
    sync::{Arc, Mutex},
};

use crate::{
    engine::{parameters, registry, service::Service},
    sched::text::parse_u32,
    sys::{
        configfs::{Inner, Nested},
        misc,
        series::configfs_attributes,
    },
};

/// The directory `nrs`. It has no data: the kernel crate before 7.3 looks for a subsystem's data in the wrong place.
#[pin_data]
pub(crate) struct Root {}

const _: () = assert!(size_of::<Root>() == 0);

/// Registers the directory `nrs`.
pub(super) fn subsystem() -> impl PinInit<Subsystem<Root>, Error> {
    let item_type = configfs_attributes! {
        container: Subsystem<Root>,
        data: Root,
        child: Directory,
        attributes: [],
    };
    Subsystem::new(c"nrs", item_type, try_pin_init!(Root {}))
}

#[vtable]
impl GroupOperations for Root {
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
        let path = name.try_into()?;
        let kept = Kept::new(registry::create(name, None)?)?;
        let inner = Inner::new(rules::group(kept.0.clone())?)?;
        Ok(Nested::group(path, item_type, kept, inner))
    }
}

/// The service that a directory stands for: another one once it has other partitions.
#[pin_data]
struct Place {
    #[pin]
    service: Mutex<Arc<Service>>,
}

impl Place {
    /// The service that the directory stands for now.
    fn service(&self) -> Arc<Service> {
        self.service.lock().clone()
    }
}

/// A service that was made here; dropping this ends what keeps it.
pub(crate) struct Kept(Arc<Place>);

impl Kept {
    /// Takes over a service that was made.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; the service is removed then.
    fn new(service: Arc<Service>) -> Result<Self> {
        let held = service.clone();
        let place = pin_init!(Place {
            service <- new_mutex!(held, "nrs_directory"),
        });
        let place = Arc::pin_init(place, GFP_KERNEL).inspect_err(|_| {
            let _ = registry::remove(&service);
        })?;
        Ok(Self(place))
    }

    /// The service that the directory stands for now.
    fn service(&self) -> Arc<Service> {
        self.0.service()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // With clients it goes with the last of them.
        let _ = registry::remove(&self.service());
    }
}

/// The directory of a service, with that of its rules.
pub(crate) type Directory = Nested<Kept>;

/// One line in `page`; returns its length in bytes.
///
/// # Errors
///
/// `EINVAL`: it does not fit.
fn line(page: &mut [u8; PAGE_SIZE], args: fmt::Arguments<'_>) -> Result<usize> {
    let mut out = Formatter::new(page);
    out.write_fmt(args)?;
    out.write_char('\n')?;
    Ok(out.bytes_written())
}

/// The text that was written, without blanks around it.
///
/// # Errors
///
/// `EINVAL`: not text.
fn text_of(page: &[u8]) -> Result<&str> {
    let text = core::str::from_utf8(page).map_err(|_| EINVAL)?;
    Ok(text.trim_ascii())
}

/// The number that `page` holds.
///
/// # Errors
///
/// `EINVAL`: it does not.
fn number(page: &[u8]) -> Result<u32> {
    let text = core::str::from_utf8(page).map_err(|_| EINVAL)?;
    parse_u32(text, 0..=u32::MAX, "").map_err(|_| EINVAL)
}

/// `cpts`
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

/// `slots`
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

/// `state`
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
