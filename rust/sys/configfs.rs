// SPDX-License-Identifier: GPL-2.0-only

//! Directories of configfs that must not be removed, and directories that have another one in them.
//!
//! C header: `include/linux/configfs.h`. The kernel crate has subsystems, groups and attributes, but neither
//! dependents nor default groups, and each attribute says that it can be written.
//!
//! # Vocabulary
//!
//! - *Dependent*: whoever needs a directory to stay ([`Dependency`]).
//! - *Default group*: a directory that comes and goes with the one around it ([`Nested`]). `mkdir` and `rmdir`
//!   of the outer one make and remove both; while an inner one has directories that users made, `rmdir` of the
//!   outer one fails with `ENOTEMPTY`.
//!
//! # Context
//!
//! [`depend`] takes the subsystem's mutex, which is held around the callbacks of a subsystem, so it must not be called from
//! one, nor under a lock that one takes. It takes no inode lock of configfs: drivers of disks take locks of the block layer
//! under those, and schedulers are set under the same.

use core::{ops::Deref, ptr::NonNull};

use kernel::{
    bindings,
    configfs::{Group, HasGroup, ItemType, Subsystem},
    error::to_result,
    prelude::*,
    str::CString,
    sync::{
        lock::{mutex::MutexBackend, Lock},
        Arc,
    },
};

/// While it lives, `rmdir` of a directory is refused with `EBUSY`.
///
/// # Invariants
///
/// `item` is a live item that this object counts as a dependent of.
#[must_use = "the directory can be removed as soon as this is dropped"]
pub(crate) struct Dependency<D> {
    item: NonNull<bindings::config_item>,
    /// Registered for as long as the item may be looked at.
    _subsystem: Arc<Subsystem<D>>,
}

// SAFETY: configfs locks its items itself; what else there is can be sent with the `Arc`.
unsafe impl<D: Send + Sync> Send for Dependency<D> {}

// SAFETY: Nothing can be done with a `&Dependency`.
unsafe impl<D: Send + Sync> Sync for Dependency<D> {}

/// Keeps the directory `name` of `subsystem` from being removed.
///
/// # Errors
///
/// - `ENOENT`: there is no such directory, or it is being made or removed.
pub(crate) fn depend<D>(subsystem: &Arc<Subsystem<D>>, name: &CStr) -> Result<Dependency<D>> {
    // SAFETY: `subsystem` is a valid allocation.
    let group = unsafe { <Subsystem<D> as HasGroup<D>>::group(&**subsystem) }.cast_mut();
    // SAFETY: A `Subsystem` that can be seen is registered, which sets `cg_subsys` to the subsystem that
    // the group is part of.
    let raw = unsafe { (*group).cg_subsys };
    // SAFETY: `Subsystem::new` initialised the mutex, and it lives as long as `subsystem`.
    let mutex = unsafe { Lock::<(), MutexBackend>::from_raw(&raw mut (*raw).su_mutex) };
    let guard = mutex.lock();
    // SAFETY: The group is live, its subsystem's mutex is held, `name` is a C string.
    let item = unsafe { bindings::config_group_find_item(group, name.as_char_ptr()) };
    let item = NonNull::new(item).ok_or(ENOENT)?;
    // SAFETY: `raw` is a registered subsystem, and stays one while `subsystem` lives; so its root need not be locked, which
    // callers from the subsystem itself are spared. With the mutex held, `item` stays in its group.
    let result = to_result(unsafe { bindings::configfs_depend_item_unlocked(raw, item.as_ptr()) });
    drop(guard);
    // SAFETY: Taken by `config_group_find_item`. A directory that is depended upon keeps its item.
    unsafe { bindings::config_item_put(item.as_ptr()) };
    result?;
    // INVARIANT: `configfs_depend_item_unlocked` counted this dependent; the directory, and with it the item,
    // stays until it is taken back.
    Ok(Dependency {
        item,
        _subsystem: subsystem.clone(),
    })
}

impl<D> Drop for Dependency<D> {
    fn drop(&mut self) {
        // SAFETY: By the invariant; after this the item is not looked at any more.
        unsafe { bindings::configfs_undepend_item(self.item.as_ptr()) };
    }
}

/// A reference to a group that nobody else has made a default group of.
///
/// # Invariants
///
/// `group` is embedded in a `Group` whose item type releases it, and this object owns the reference that the
/// item was initialised with.
pub(crate) struct Inner {
    group: NonNull<bindings::config_group>,
}

// SAFETY: `Inner::new` takes groups whose data can be sent and shared; configfs locks its groups itself.
unsafe impl Send for Inner {}

// SAFETY: Nothing can be done with a `&Inner` outside of this module, and here only its address is read.
unsafe impl Sync for Inner {}

impl Inner {
    /// Makes the group.
    ///
    /// # Errors
    ///
    /// What `init` returns; `ENOMEM`.
    pub(crate) fn new<D: Send + Sync + 'static>(
        init: impl PinInit<Group<D>, Error>,
    ) -> Result<Self> {
        let group = Arc::into_raw(Arc::pin_init(init, GFP_KERNEL)?);
        // SAFETY: `group` is a valid allocation.
        let group = unsafe { <Group<D> as HasGroup<D>>::group(group) }.cast_mut();
        // INVARIANT: A `Group` is only ever initialised by `Group::new`, with one reference and an item type
        // whose release drops an `Arc<Group<D>>`: the one that was just turned into a pointer.
        NonNull::new(group)
            .map(|group| Self { group })
            .ok_or(EINVAL)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: By the invariant; the reference is not used again.
        unsafe { bindings::config_item_put(&raw mut (*self.group.as_ptr()).cg_item) };
    }
}

/// The data of a directory that has another one in it from the start.
///
/// # Invariants
///
/// `inner` is the only default group of the group that this is the data of, and stays that until the outer
/// group is released: unlinked by then, with nobody left to follow its list of default groups.
#[pin_data]
pub(crate) struct Nested<D> {
    data: D,
    inner: Inner,
}

impl<D> Deref for Nested<D> {
    type Target = D;

    fn deref(&self) -> &D {
        &self.data
    }
}

impl<D> Nested<D> {
    /// A directory called `name` with the directory `inner` in it. Attributes of `item_type` that cannot be
    /// written show a mode that says so.
    ///
    /// For the use in [`kernel::configfs::GroupOperations::make_group`].
    pub(crate) fn group(
        name: CString,
        item_type: &'static ItemType<Group<Self>, Self>,
        data: D,
        inner: Inner,
    ) -> impl PinInit<Group<Self>, Error> {
        let entry = inner.group;
        // INVARIANT: `inner` is put in the list below, before anybody else sees the outer group; nothing else
        // adds to that list, or takes `inner` out of `Self`.
        let outer = Group::new(name, item_type, try_pin_init!(Self { data, inner }));
        outer.pin_chain(move |outer| {
            // SAFETY: `outer` is a valid allocation.
            let group = unsafe { <Group<Self> as HasGroup<Self>>::group(&*outer) }.cast_mut();
            // SAFETY: `Group::new` initialised both groups, with them the list. They are at their final place, and
            // nobody else knows them yet. `outer` owns `inner` by the invariant.
            unsafe {
                bindings::list_add_tail(
                    &raw mut (*entry.as_ptr()).group_entry,
                    &raw mut (*group).default_groups,
                );
            }
            // SAFETY: As above; its item type is one of the kernel crate.
            unsafe { tell_read_only(group) };
            Ok(())
        })
    }
}

/// Takes the permission to write from attributes that cannot be written: the kernel crate gives it to all.
///
/// # Safety
///
/// `group` is initialised, by `Group::new`.
unsafe fn tell_read_only(group: *mut bindings::config_group) {
    const READ_ONLY: bindings::umode_t = 0o440;
    // SAFETY: An initialised group has its item type.
    let mut next = unsafe { (*(*group).cg_item.ci_type).ct_attrs };
    loop {
        // SAFETY: The list ends with a null pointer, and `next` has not gone past it.
        let attribute = unsafe { *next };
        if attribute.is_null() {
            return;
        }
        // SAFETY: An attribute that is in a list is valid.
        if unsafe { (*attribute).store }.is_none() {
            // SAFETY: As above.
            let mode = unsafe { &raw mut (*attribute).ca_mode };
            // SAFETY: The attributes are statics and `Opaque`, so they may be written. Only the first
            // directory of an item type does so, before configfs looks at the attributes; should two be
            // the first at a time, they write the same.
            unsafe {
                if mode.read_volatile() != READ_ONLY {
                    mode.write_volatile(READ_ONLY);
                }
            }
        }
        // SAFETY: This was not the end.
        next = unsafe { next.add(1) };
    }
}
