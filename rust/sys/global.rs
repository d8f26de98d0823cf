// SPDX-License-Identifier: GPL-2.0-only

//! A value that exists while the module is loaded and that callbacks from outside have to find.

use core::ptr;

use kernel::{
    prelude::*,
    sync::{
        atomic::{ordering, Atomic},
        rcu, Arc, ArcBorrow,
    },
};

use super::series::synchronize_rcu;

/// Where the value is found.
///
/// # Invariants
///
/// The pointer is null or from `Arc::into_raw`; the reference it stands for is dropped no earlier than a
/// grace period after the pointer was taken out.
pub(crate) struct Global<T: Send + Sync + 'static>(Atomic<*mut T>);

impl<T: Send + Sync + 'static> Global<T> {
    /// Nothing is there yet.
    pub(crate) const fn new() -> Self {
        Self(Atomic::new(ptr::null_mut()))
    }

    /// Lets `value` be found until the result is dropped.
    ///
    /// # Errors
    ///
    /// `EBUSY`: something is there.
    pub(crate) fn install(&'static self, value: Arc<T>) -> Result<Installed<T>> {
        let raw = Arc::into_raw(value).cast_mut();
        match self.0.cmpxchg(ptr::null_mut(), raw, ordering::Full) {
            Ok(_) => Ok(Installed(self)),
            Err(_) => {
                // SAFETY: From `into_raw` above, and not published.
                drop(unsafe { Arc::from_raw(raw) });
                Err(EBUSY)
            }
        }
    }

    /// The value, if it is there.
    pub(crate) fn get(&self) -> Option<Arc<T>> {
        let _guard = rcu::read_lock();
        let raw = self.0.load(ordering::Acquire);
        if raw.is_null() {
            return None;
        }
        // SAFETY: By the type invariant the reference behind the pointer is not dropped while the guard
        // lives.
        Some(unsafe { ArcBorrow::from_raw(raw) }.into())
    }
}

/// Keeps a value to be found; dropping it takes it away.
pub(crate) struct Installed<T: Send + Sync + 'static>(&'static Global<T>);

impl<T: Send + Sync + 'static> Drop for Installed<T> {
    fn drop(&mut self) {
        let raw = self.0 .0.xchg(ptr::null_mut(), ordering::Full);
        if raw.is_null() {
            return;
        }
        synchronize_rcu();
        // SAFETY: From `into_raw`; taken out above, a grace period ago.
        drop(unsafe { Arc::from_raw(raw) });
    }
}
