// SPDX-License-Identifier: GPL-2.0-only

//! A mutex under which allocations start no I/O.

use core::ops::{Deref, DerefMut};

use kernel::{
    prelude::*,
    sync::{CondVar, Mutex, MutexGuard},
};

use super::misc::WithoutIo;

/// A mutex whose holder's allocations start no I/O.
///
/// A task that resets a controller or changes the hardware queues of a disk freezes the queues.
/// While they are frozen, the scheduler of a disk joins or leaves its service, for which the task
/// waits for this mutex. If the holder waited for memory that has to be written to one of these
/// queues, the two tasks would deadlock. The worker of a service, which eligible requests depend
/// on, also takes the mutex.
#[pin_data]
pub(crate) struct NoIoMutex<T> {
    #[pin]
    mutex: Mutex<T>,
}

/// NoIoGuard of the locked data.
pub(crate) struct NoIoGuard<'a, T> {
    // Dropped first, so the mutex is unlocked inside the scope.
    guard: MutexGuard<'a, T>,
    _scope: WithoutIo,
}

impl<T> NoIoMutex<T> {
    /// Wraps `mutex`, which the caller creates because each place has its own lockdep class.
    pub(crate) fn new(mutex: impl PinInit<Mutex<T>>) -> impl PinInit<Self> {
        pin_init!(Self { mutex <- mutex })
    }

    /// Locks the mutex; may sleep.
    pub(crate) fn lock(&self) -> NoIoGuard<'_, T> {
        let scope = WithoutIo::begin();
        NoIoGuard {
            guard: self.mutex.lock(),
            _scope: scope,
        }
    }
}

impl<T> NoIoGuard<'_, T> {
    /// Waits for a notification of `condvar`, or for none, with the mutex unlocked.
    pub(crate) fn wait(&mut self, condvar: &CondVar) {
        condvar.wait(&mut self.guard);
    }
}

impl<T> Deref for NoIoGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T: Unpin> DerefMut for NoIoGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}
