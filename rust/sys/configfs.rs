// SPDX-License-Identifier: GPL-2.0-only

//! Directories of configfs that cannot be removed while in use, and directories with a default
//! group.
//!
//! C header: `include/linux/configfs.h`. The kernel crate has subsystems, groups and attributes,
//! but neither dependents nor default groups, and it gives each attribute write permission.
//!
//! # Vocabulary
//!
//! - *Dependent*: a reference that keeps a directory from being removed ([`Dependency`]).
//! - *Default group*: a directory that is created and removed together with the outer directory
//!   ([`WithDefaultGroup`]). `mkdir` and `rmdir` of the outer directory create and remove both.
//!   While the inner one contains directories of users, `rmdir` of the outer one fails with
//!   `ENOTEMPTY`.
//!
//! # Context
//!
//! [`depend`] takes the subsystem's mutex, which is held around the callbacks of a subsystem. It
//! must therefore not be called from such a callback, nor under a lock that a callback takes. It
//! takes no inode lock of configfs: drivers of disks take locks of the block layer under inode
//! locks, and those locks are held while a scheduler is set.

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

/// Reference to a directory; while it exists, `rmdir` of the directory fails with `EBUSY`.
///
/// # Invariants
///
/// `item` is a live item, and this object is counted as one of its dependents.
#[must_use = "the directory can be removed once the dependency is dropped"]
pub(crate) struct Dependency<D> {
    item: NonNull<bindings::config_item>,
    /// Keeps the subsystem registered while the item may be accessed.
    _subsystem: Arc<Subsystem<D>>,
}

// SAFETY: configfs locks its items itself; the other field can be sent because it is an `Arc`.
unsafe impl<D: Send + Sync> Send for Dependency<D> {}

// SAFETY: `&Dependency` has no operations.
unsafe impl<D: Send + Sync> Sync for Dependency<D> {}

/// Keeps the directory `name` of `subsystem` from being removed.
///
/// # Errors
///
/// - `ENOENT`: the directory does not exist, or is being created or removed.
pub(crate) fn depend<D>(subsystem: &Arc<Subsystem<D>>, name: &CStr) -> Result<Dependency<D>> {
    // SAFETY: `subsystem` is a valid allocation.
    let group = unsafe { <Subsystem<D> as HasGroup<D>>::group(&**subsystem) }.cast_mut();
    // SAFETY: A `Subsystem` that is shared is registered, which sets `cg_subsys` to the subsystem
    // that the group is part of.
    let raw = unsafe { (*group).cg_subsys };
    // SAFETY: `Subsystem::new` initialised the mutex, and it lives as long as `subsystem`.
    let mutex = unsafe { Lock::<(), MutexBackend>::from_raw(&raw mut (*raw).su_mutex) };
    let guard = mutex.lock();
    // SAFETY: The group is live, its subsystem's mutex is held, `name` is a C string.
    let item = unsafe { bindings::config_group_find_item(group, name.as_char_ptr()) };
    let item = NonNull::new(item).ok_or(ENOENT)?;
    // SAFETY: `raw` is a registered subsystem, and stays registered while `subsystem` lives. Its
    // root need therefore not be locked, which the function skips for callers from the same
    // subsystem. With the mutex held, `item` stays in its group.
    let result = to_result(unsafe { bindings::configfs_depend_item_unlocked(raw, item.as_ptr()) });
    drop(guard);
    // SAFETY: Taken by `config_group_find_item`. The dependent keeps the item alive.
    unsafe { bindings::config_item_put(item.as_ptr()) };
    result?;
    // INVARIANT: `configfs_depend_item_unlocked` counted this dependent. The directory, and with it
    // the item, stays until the dependent is dropped.
    Ok(Dependency {
        item,
        _subsystem: subsystem.clone(),
    })
}

impl<D> Drop for Dependency<D> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant; the item is not accessed after this.
        unsafe { bindings::configfs_undepend_item(self.item.as_ptr()) };
    }
}

/// A reference to a group that is not yet a default group of another group.
///
/// # Invariants
///
/// `group` is embedded in a `Group` whose item type releases it, and this object owns the initial
/// reference of the item.
pub(crate) struct GroupRef {
    group: NonNull<bindings::config_group>,
}

// SAFETY: `GroupRef::new` takes groups whose data can be sent and shared; configfs locks its groups
// itself.
unsafe impl Send for GroupRef {}

// SAFETY: `&GroupRef` has no operations outside this module, and this module reads only the
// address.
unsafe impl Sync for GroupRef {}

impl GroupRef {
    /// Creates the group.
    ///
    /// # Errors
    ///
    /// The errno of `init`; `ENOMEM`.
    pub(crate) fn new<D: Send + Sync + 'static>(
        init: impl PinInit<Group<D>, Error>,
    ) -> Result<Self> {
        let group = Arc::into_raw(Arc::pin_init(init, GFP_KERNEL)?);
        // SAFETY: `group` is a valid allocation.
        let group = unsafe { <Group<D> as HasGroup<D>>::group(group) }.cast_mut();
        // INVARIANT: Only `Group::new` initialises a `Group`, with one reference and an item type
        // whose release drops an `Arc<Group<D>>`: the `Arc` converted to a pointer above.
        NonNull::new(group)
            .map(|group| Self { group })
            .ok_or(EINVAL)
    }
}

impl Drop for GroupRef {
    fn drop(&mut self) {
        // SAFETY: By the type invariant; the reference is not used again.
        unsafe { bindings::config_item_put(&raw mut (*self.group.as_ptr()).cg_item) };
    }
}

/// Data of a directory that has a default group.
///
/// # Invariants
///
/// `inner` is the only default group of the group that contains this data, until the outer group is
/// released. By then the outer group is unlinked, and its list of default groups has no reader.
#[pin_data]
pub(crate) struct WithDefaultGroup<D> {
    data: D,
    inner: GroupRef,
}

impl<D> Deref for WithDefaultGroup<D> {
    type Target = D;

    fn deref(&self) -> &D {
        &self.data
    }
}

impl<D> WithDefaultGroup<D> {
    /// Creates the directory `name` with the directory `inner` in it. Attributes of `item_type`
    /// without a `store` function lose the write permission.
    ///
    /// Used in [`kernel::configfs::GroupOperations::make_group`].
    pub(crate) fn group(
        name: CString,
        item_type: &'static ItemType<Group<Self>, Self>,
        data: D,
        inner: GroupRef,
    ) -> impl PinInit<Group<Self>, Error> {
        let entry = inner.group;
        // INVARIANT: `inner` is put in the list below, before the outer group is shared; no other
        // code adds to that list or takes `inner` out of `Self`.
        let outer = Group::new(name, item_type, try_pin_init!(Self { data, inner }));
        outer.pin_chain(move |outer| {
            // SAFETY: `outer` is a valid allocation.
            let group = unsafe { <Group<Self> as HasGroup<Self>>::group(&*outer) }.cast_mut();
            // SAFETY: `Group::new` initialised both groups, and with them the list. They are at
            // their final address and not shared yet. `outer` owns `inner` by the type invariant.
            unsafe {
                bindings::list_add_tail(
                    &raw mut (*entry.as_ptr()).group_entry,
                    &raw mut (*group).default_groups,
                );
            }
            // SAFETY: As above; the item type of the group is one of the kernel crate.
            unsafe { clear_write_permission(group) };
            Ok(())
        })
    }
}

/// Removes the write permission of attributes without a `store` function; the kernel crate gives it
/// to all.
///
/// # Safety
///
/// `Group::new` initialised `group`.
unsafe fn clear_write_permission(group: *mut bindings::config_group) {
    const READ_ONLY: bindings::umode_t = 0o440;
    // SAFETY: An initialised group has its item type.
    let mut next = unsafe { (*(*group).cg_item.ci_type).ct_attrs };
    loop {
        // SAFETY: The list ends with a null pointer, and `next` is not beyond it.
        let attribute = unsafe { *next };
        if attribute.is_null() {
            return;
        }
        // SAFETY: Each attribute in the list is valid.
        if unsafe { (*attribute).store }.is_none() {
            // SAFETY: As above.
            let mode = unsafe { &raw mut (*attribute).ca_mode };
            // SAFETY: The attributes are statics and `Opaque`, so they may be written. Only the
            // first directory of an item type writes them, before configfs reads the attributes. If
            // two directories are created first at the same time, they write the same value.
            unsafe {
                if mode.read_volatile() != READ_ONLY {
                    mode.write_volatile(READ_ONLY);
                }
            }
        }
        // SAFETY: The list continues, because this entry was not null.
        next = unsafe { next.add(1) };
    }
}
