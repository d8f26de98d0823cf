// SPDX-License-Identifier: GPL-2.0-only

//! Groups and clients of `qbm` that an administrator makes: `nrs/SERVICE/qbm/GROUP/clients/NAME/` in configfs.
//!
//! | attribute of `qbm` | holds |
//! |---|---|
//! | `by` | what tells clients apart; `EBUSY` while clients are listed |
//!
//! | attribute of a group | holds |
//! |---|---|
//! | `capacity` | what its clients share, bytes/s; nothing while the group is a draft |
//! | `target` | the target; nothing: every one that no other group has |
//! | `strategy` | `classes` or `mover` |
//! | `class`, `min`, `max` | terms of clients that are not listed; nothing: those of all groups |
//! | `reserve_CLASS` | what is kept for a class |
//!
//! | attribute of a client | mode | holds |
//! |---|---|---|
//! | `class`, `min`, `max` | rw | its terms; no `class` or no `min` while the client is a draft |
//! | `allocated` | r | what it has now, bytes/s; of a pattern, all that it is for together |
//!
//! # Vocabulary
//!
//! - *Draft*: what was written to a directory; all there is until it is complete: a group with a capacity, a
//!   client with class and minimum.
//! - *Listed*: the plan in `nrs_qbm_config` has a group of that name, or a line with that client and that group.
//!   Who wrote it does not matter: it is the same, and the directory shows and changes it.
//!
//! ```text
//!            ┌──────── another text without it is written to nrs_qbm_config ────────┐
//!            ▼                                                                      │
//!  mkdir ─▶ draft ───────────── what completes it, or such a text ───────────▶ listed
//!            │                                                                      │
//!            ▼                                                                      │
//!          rmdir ◀──────────────── gone from the plan as well ──────────────────────┘
//! ```
//!
//! All of this becomes a new plan ([`Service::edit_plan`]), so it is refused for the same reasons, which
//! `nrs_qbm_config_error` tells, and nothing is changed then, here neither.

use kernel::{
    configfs::{AttributeOperations, Group, GroupOperations},
    configfs_attrs, new_mutex,
    page::PAGE_SIZE,
    prelude::*,
    str::CString,
    sync::{Arc, Mutex},
};

use super::{line, text_of, Place};
use crate::{
    core::service::Service,
    sched::qbm::{
        plan::{self, By, Plan, PlanError, Promise, Setting, Settings, Value},
        terms::Class,
    },
    sys::configfs::{Inner, Nested},
};

/// The directory `qbm` of a service.
#[pin_data]
pub(crate) struct Qbm {
    place: Arc<Place>,
}

/// The directory `qbm` for the service of `place`.
///
/// # Errors
///
/// `ENOMEM`.
pub(super) fn group(place: Arc<Place>) -> Result<impl PinInit<Group<Qbm>, Error>> {
    let item_type = configfs_attrs! {
        container: Group<Qbm>,
        data: Qbm,
        child: Directory,
        attributes: [
            by: 0,
        ],
    };
    let path = c"qbm".try_into()?;
    Ok(Group::new(path, item_type, try_pin_init!(Qbm { place })))
}

#[vtable]
impl GroupOperations for Qbm {
    type Child = Directory;

    fn make_group(&self, name: &CStr) -> Result<impl PinInit<Group<Directory>, Error>> {
        let item_type = configfs_attrs! {
            container: Group<Directory>,
            data: Directory,
            attributes: [
                capacity: 0,
                target: 1,
                strategy: 2,
                class: 3,
                min: 4,
                max: 5,
                reserve_first_come: 6,
                reserve_fair_share: 7,
                reserve_low_share: 8,
                reserve_mover: 9,
            ],
        };
        let path = name.try_into()?;
        let place = self.place.clone();
        if let Err(error) = plan::Group::check_name(str_of(name)?) {
            refuse(&place.service(), error)?;
        }
        let group = Arc::new(CString::try_from(name)?, GFP_KERNEL)?;
        let inner = [Inner::new(clients(place.clone(), group.clone())?)?];
        let content = try_pin_init!(Content {
            name: group,
            place,
            draft <- new_mutex!(Settings::default(), "nrs_group"),
        }? Error);
        Ok(Nested::group(path, item_type, content, inner))
    }
}

/// `by`
#[vtable]
impl AttributeOperations<0> for Qbm {
    type Data = Qbm;

    fn show(this: &Qbm, page: &mut [u8; PAGE_SIZE]) -> Result<usize> {
        let plan = this.place.service().bandwidth_plan();
        line(page, format_args!("{}", plan.by().name()))
    }

    fn store(this: &Qbm, page: &[u8]) -> Result {
        let by = By::parse(text_of(page)?);
        this.place.service().edit_plan(|plan| match by {
            Ok(by) => plan.with_by(by),
            Err(error) => Err(PlanError::new(0, error.code, error.reason)),
        })
    }
}

/// The name of a directory as text.
///
/// # Errors
///
/// `EINVAL`: not text.
fn str_of(name: &CStr) -> Result<&str> {
    name.to_str().map_err(|_| EINVAL)
}

/// Has `service` tell why something was refused.
///
/// # Errors
///
/// The errno of `error`.
fn refuse(service: &Service, error: PlanError) -> Result {
    service.edit_plan(|_| Err(error))
}

/// What can be set by attributes.
trait Draft: Copy {
    /// Sets `setting` to what `text` says.
    fn set(&mut self, setting: Setting, text: &str) -> Result<(), &'static str>;

    /// Whether a plan can list it.
    fn is_complete(&self) -> bool;

    /// What stays with the directory of something that is listed.
    #[must_use]
    fn kept(self) -> Self;
}

impl Draft for Settings {
    fn set(&mut self, setting: Setting, text: &str) -> Result<(), &'static str> {
        self.set(setting, text)
    }

    fn is_complete(&self) -> bool {
        self.capacity.is_some()
    }

    fn kept(self) -> Self {
        Self {
            capacity: None,
            ..self
        }
    }
}

impl Draft for Promise {
    fn set(&mut self, setting: Setting, text: &str) -> Result<(), &'static str> {
        self.set(setting, text)
    }

    fn is_complete(&self) -> bool {
        self.is_complete()
    }

    fn kept(self) -> Self {
        Self { min: None, ..self }
    }
}

/// Sets `setting` to what `page` holds: in the plan of `service` if it lists the directory, which `listed`
/// tells, or once that is complete, by `list`; else in `draft`.
///
/// # Errors
///
/// - `EINVAL`: not a value of the setting.
/// - What [`Service::edit_plan`] refuses.
fn store<D: Draft>(
    draft: &mut D,
    service: &Service,
    setting: Setting,
    page: &[u8],
    listed: impl Fn(&Plan) -> Option<D>,
    list: impl Fn(&Plan, &D) -> Result<Plan, PlanError>,
) -> Result {
    let text = text_of(page)?;
    let set = |mut to: D| {
        let set = to.set(setting, text);
        set.map_err(|reason| PlanError::invalid(0, reason))?;
        Ok(to)
    };
    let old = *draft;
    let current = listed(&service.bandwidth_plan());
    let is_listed = current.is_some();
    let new = match set(current.unwrap_or(old)) {
        Ok(new) => new,
        Err(error) => return refuse(service, error),
    };
    if !is_listed && !new.is_complete() {
        *draft = new;
        return Ok(());
    }
    // What is listed may have changed since.
    service.edit_plan(|plan| list(plan, &set(listed(plan).unwrap_or(old))?))?;
    *draft = new.kept();
    Ok(())
}

/// What belongs to the directory of a group.
#[pin_data(PinnedDrop)]
pub(crate) struct Content {
    name: Arc<CString>,
    place: Arc<Place>,
    #[pin]
    draft: Mutex<Settings>,
}

/// The directory of a group, with the directory of its clients.
pub(crate) type Directory = Nested<Content, 1>;

#[pinned_drop]
impl PinnedDrop for Content {
    fn drop(self: Pin<&mut Self>) {
        let service = self.place.service();
        let name = self.name();
        if service.bandwidth_plan().group_named(name).is_none() {
            return;
        }
        if let Err(error) = service.edit_plan(|plan| plan.without_group(name)) {
            pr_warn!(
                "service {}: group {} stays without its directory: {:?}\n",
                service.name(),
                name,
                error,
            );
        }
    }
}

impl Content {
    /// Its name.
    fn name(&self) -> &str {
        self.name.to_str().unwrap_or_default()
    }

    /// What `plan` says of the group.
    fn listed(&self, plan: &Plan) -> Option<Settings> {
        let group = plan.group_named(self.name())?;
        Some(*plan.groups().get(group as usize)?.settings())
    }

    /// One line in `page` with the value of `setting`.
    fn show(&self, setting: Setting, page: &mut [u8; PAGE_SIZE]) -> Result<usize> {
        let draft = *self.draft.lock();
        let listed = self.listed(&self.place.service().bandwidth_plan());
        let settings = listed.unwrap_or(draft);
        line(page, format_args!("{}", Value(&settings, setting)))
    }

    /// Sets `setting` to what `page` holds.
    fn store(&self, setting: Setting, page: &[u8]) -> Result {
        let mut draft = self.draft.lock();
        store(
            &mut *draft,
            &self.place.service(),
            setting,
            page,
            |plan| self.listed(plan),
            |plan, settings| plan.with_group(self.name(), settings),
        )
    }
}

/// The directory `clients` of a group.
#[pin_data]
pub(crate) struct Clients {
    place: Arc<Place>,
    group: Arc<CString>,
}

/// The directory `clients` of `group`.
///
/// # Errors
///
/// `ENOMEM`.
fn clients(place: Arc<Place>, group: Arc<CString>) -> Result<impl PinInit<Group<Clients>, Error>> {
    let item_type = configfs_attrs! {
        container: Group<Clients>,
        data: Clients,
        child: Client,
        attributes: [],
    };
    let path = c"clients".try_into()?;
    let clients = try_pin_init!(Clients { place, group });
    Ok(Group::new(path, item_type, clients))
}

#[vtable]
impl GroupOperations for Clients {
    type Child = Client;

    fn make_group(&self, name: &CStr) -> Result<impl PinInit<Group<Client>, Error>> {
        let item_type = configfs_attrs! {
            container: Group<Client>,
            data: Client,
            attributes: [
                class: 0,
                min: 1,
                max: 2,
                allocated: 3,
            ],
        };
        let path = name.try_into()?;
        let place = self.place.clone();
        let service = place.service();
        if let Err(error) = service.bandwidth_plan().check_client_name(str_of(name)?) {
            refuse(&service, error)?;
        }
        let name = CString::try_from(name)?;
        let group = self.group.clone();
        let one = try_pin_init!(One {
            name,
            group,
            place,
            draft <- new_mutex!(Promise::NONE, "nrs_client"),
        }? Error);
        Ok(Nested::group(path, item_type, one, []))
    }
}

/// What belongs to the directory of a client.
#[pin_data(PinnedDrop)]
pub(crate) struct One {
    name: CString,
    group: Arc<CString>,
    place: Arc<Place>,
    #[pin]
    draft: Mutex<Promise>,
}

/// The directory of a client.
pub(crate) type Client = Nested<One, 0>;

#[pinned_drop]
impl PinnedDrop for One {
    fn drop(self: Pin<&mut Self>) {
        let service = self.place.service();
        if self.listed(&service.bandwidth_plan()).is_none() {
            return;
        }
        let (group, name) = (self.group(), self.name());
        if let Err(error) = service.edit_plan(|plan| plan.without_client(group, name)) {
            pr_warn!(
                "service {}: client {} of group {} stays without its directory: {:?}\n",
                service.name(),
                name,
                group,
                error,
            );
        }
    }
}

impl One {
    /// Its name.
    fn name(&self) -> &str {
        self.name.to_str().unwrap_or_default()
    }

    /// The name of its group.
    fn group(&self) -> &str {
        self.group.to_str().unwrap_or_default()
    }

    /// What `plan` says of the client.
    fn listed(&self, plan: &Plan) -> Option<Promise> {
        let group = plan.group_named(self.group())?;
        let client = plan.client_named(Some(group), self.name())?;
        Some(*plan.clients().get(client as usize)?.promise())
    }

    /// One line in `page` with the value of `setting`.
    fn show(&self, setting: Setting, page: &mut [u8; PAGE_SIZE]) -> Result<usize> {
        let draft = *self.draft.lock();
        let listed = self.listed(&self.place.service().bandwidth_plan());
        let promise = listed.unwrap_or(draft);
        line(page, format_args!("{}", Value(&promise, setting)))
    }

    /// Sets `setting` to what `page` holds.
    fn store(&self, setting: Setting, page: &[u8]) -> Result {
        let mut draft = self.draft.lock();
        store(
            &mut *draft,
            &self.place.service(),
            setting,
            page,
            |plan| self.listed(plan),
            |plan, promise| plan.with_client(self.group(), self.name(), promise),
        )
    }
}

/// The attribute of a setting.
macro_rules! setting {
    ($directory:ident, $id:literal, $setting:expr) => {
        #[vtable]
        impl AttributeOperations<$id> for $directory {
            type Data = $directory;

            fn show(this: &$directory, page: &mut [u8; PAGE_SIZE]) -> Result<usize> {
                this.show($setting, page)
            }

            fn store(this: &$directory, page: &[u8]) -> Result {
                this.store($setting, page)
            }
        }
    };
}

setting!(Directory, 0, Setting::Capacity);
setting!(Directory, 1, Setting::Target);
setting!(Directory, 2, Setting::Strategy);
setting!(Directory, 3, Setting::Class);
setting!(Directory, 4, Setting::Min);
setting!(Directory, 5, Setting::Max);
setting!(Directory, 6, Setting::Reserve(Class::FirstCome));
setting!(Directory, 7, Setting::Reserve(Class::FairShare));
setting!(Directory, 8, Setting::Reserve(Class::LowShare));
setting!(Directory, 9, Setting::Reserve(Class::Mover));
setting!(Client, 0, Setting::Class);
setting!(Client, 1, Setting::Min);
setting!(Client, 2, Setting::Max);

/// `allocated`
#[vtable]
impl AttributeOperations<3> for Client {
    type Data = Client;

    fn show(this: &Client, page: &mut [u8; PAGE_SIZE]) -> Result<usize> {
        let service = this.place.service();
        let allocated = service.bandwidth_allocated(this.group(), this.name());
        line(page, format_args!("{allocated}"))
    }
}
