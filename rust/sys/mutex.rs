// SPDX-License-Identifier: GPL-2.0-only

//! A mutex under which allocations start no I/O.

use core::ops::{Deref, DerefMut};

use kernel::{
    prelude::*,
    sync::{Mutex, MutexGuard},
};

use super::misc::WithoutIo;

/// A mutex whose holder's allocations start no I/O.
///
/// A task that resets a controller, or changes the hardware queues of a disk, has the queues frozen while the scheduler of a
/// disk joins or leaves its service. Such a task waits for this mutex. If the holder waited for memory that is to be written
/// to one of these queues, neither task would go on. The worker of a service, for which requests wait, takes it, too.
#[pin_data]
pub(crate) struct NoIoMutex<T> {
    #[pin]
    mutex: Mutex<T>,
}

/// What the mutex protects, locked.
pub(crate) struct Guard<'a, T> {
    // Unlocked first.
    guard: MutexGuard<'a, T>,
    _scope: WithoutIo,
}

impl<T> NoIoMutex<T> {
    /// Wraps `mutex`, which the caller makes because each place has a class of lockdep.
    pub(crate) fn new(mutex: impl PinInit<Mutex<T>>) -> impl PinInit<Self> {
        pin_init!(Self { mutex <- mutex })
    }

    /// Locks it.
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        let scope = WithoutIo::begin();
        Guard {
            guard: self.mutex.lock(),
            _scope: scope,
        }
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T: Unpin> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}
