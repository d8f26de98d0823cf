// SPDX-License-Identifier: GPL-2.0-only

//! A value that exists while the module is loaded and that callbacks of the kernel have to find.

use core::ptr;

use kernel::{
    prelude::*,
    sync::{
        atomic::{ordering, Atomic},
        rcu, Arc, ArcBorrow,
    },
};

use super::series::synchronize_rcu;

/// Pointer to a shared value.
///
/// # Invariants
///
/// The pointer is null or from `Arc::into_raw`. The reference behind it is dropped no earlier than
/// a grace period after the pointer was cleared.
pub(crate) struct Global<T: Send + Sync + 'static>(Atomic<*mut T>);

impl<T: Send + Sync + 'static> Global<T> {
    /// Creates a null pointer.
    pub(crate) const fn new() -> Self {
        Self(Atomic::new(ptr::null_mut()))
    }

    /// Publishes `value` until the result is dropped.
    ///
    /// # Errors
    ///
    /// `EBUSY`: a value is already published.
    pub(crate) fn install(&'static self, value: Arc<T>) -> Result<GlobalGuard<T>> {
        let raw = Arc::into_raw(value).cast_mut();
        match self.0.cmpxchg(ptr::null_mut(), raw, ordering::Full) {
            Ok(_) => Ok(GlobalGuard(self)),
            Err(_) => {
                // SAFETY: From `into_raw` above, and not published.
                drop(unsafe { Arc::from_raw(raw) });
                Err(EBUSY)
            }
        }
    }

    /// Returns the value, if one is published.
    pub(crate) fn get(&self) -> Option<Arc<T>> {
        let _guard = rcu::read_lock();
        let raw = self.0.load(ordering::Acquire);
        if raw.is_null() {
            return None;
        }
        // SAFETY: By the type invariant the reference behind the pointer is not dropped while the
        // guard lives.
        Some(unsafe { ArcBorrow::from_raw(raw) }.into())
    }
}

/// A published value; dropping this withdraws it.
pub(crate) struct GlobalGuard<T: Send + Sync + 'static>(&'static Global<T>);

impl<T: Send + Sync + 'static> Drop for GlobalGuard<T> {
    fn drop(&mut self) {
        let raw = self.0 .0.xchg(ptr::null_mut(), ordering::Full);
        if raw.is_null() {
            return;
        }
        synchronize_rcu();
        // SAFETY: From `into_raw`; cleared above, a grace period ago.
        drop(unsafe { Arc::from_raw(raw) });
    }
}
