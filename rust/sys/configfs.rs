// SPDX-License-Identifier: GPL-2.0-only

//! Directories of configfs that must not be removed.
//!
//! C header: `include/linux/configfs.h`. The kernel crate has subsystems, groups and attributes, but no
//! dependents.
//!
//! # Context
//!
//! [`depend`] takes the subsystem's mutex and configfs's own inode lock. Those are held around the
//! callbacks of a subsystem, so it must not be called from one, nor under a lock that one takes.

use core::ptr::NonNull;

use kernel::{
    bindings,
    configfs::{HasGroup, Subsystem},
    error::to_result,
    prelude::*,
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
/// - `ENOMEM`.
pub(crate) fn depend<D>(subsystem: &Arc<Subsystem<D>>, name: &CStr) -> Result<Dependency<D>> {
    // SAFETY: `subsystem` is a valid allocation.
    let group = unsafe { <Subsystem<D> as HasGroup<D>>::group(&**subsystem) }.cast_mut();
    // SAFETY: A `Subsystem` that can be seen is registered, which sets `cg_subsys` to the subsystem that
    // the group is part of.
    let raw = unsafe { (*group).cg_subsys };
    let item = {
        // SAFETY: `Subsystem::new` initialised the mutex, and it lives as long as `subsystem`.
        let mutex = unsafe { Lock::<(), MutexBackend>::from_raw(&raw mut (*raw).su_mutex) };
        let _guard = mutex.lock();
        // SAFETY: The group is live, its subsystem's mutex is held, `name` is a C string.
        unsafe { bindings::config_group_find_item(group, name.as_char_ptr()) }
    };
    let item = NonNull::new(item).ok_or(ENOENT)?;
    // SAFETY: `raw` is a registered subsystem; the reference that was just taken keeps `item`.
    let result = to_result(unsafe { bindings::configfs_depend_item(raw, item.as_ptr()) });
    // SAFETY: Taken by `config_group_find_item`. A directory that is depended upon keeps its item.
    unsafe { bindings::config_item_put(item.as_ptr()) };
    result?;
    // INVARIANT: `configfs_depend_item` counted this dependent; the directory, and with it the item,
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
