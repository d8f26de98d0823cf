// SPDX-License-Identifier: GPL-2.0-only

//! Requests that a scheduler does not see: they are dispatched first.

use core::ptr;

use kernel::{bindings, new_spinlock, prelude::*, sync::SpinLock};

use crate::sys::atomic::Hint;

/// Requests linked through `rq_next`.
///
/// # Invariants
///
/// The list ends with null; its requests belong to it.
struct List(*mut bindings::request);

// SAFETY: Requests may be dispatched by any task.
unsafe impl Send for List {}

/// Requests that are aside; the last one in is the first one out.
#[pin_data]
pub(super) struct Aside {
    /// 1: there are some.
    some: Hint,
    #[pin]
    list: SpinLock<List>,
}

impl Aside {
    /// No requests.
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            some: Hint::new(0),
            list <- new_spinlock!(List(ptr::null_mut()), "nrs_aside"),
        })
    }

    /// Returns whether there are some. Any context.
    pub(super) fn has_some(&self) -> bool {
        self.some.get() != 0
    }

    /// Takes a request.
    ///
    /// # Safety
    ///
    /// The request is the caller's, and in no list.
    pub(super) unsafe fn put(&self, rq: *mut bindings::request) {
        let mut list = self.list.lock();
        // SAFETY: The caller promises it. The link is ours until the request is dispatched.
        unsafe { (*rq).__bindgen_anon_1.rq_next = list.0 };
        // INVARIANT: The request is the first one now.
        list.0 = rq;
        self.some.set(1);
    }

    /// Gives a request back; null: there is none.
    pub(super) fn take(&self) -> *mut bindings::request {
        if !self.has_some() {
            return ptr::null_mut();
        }
        let mut list = self.list.lock();
        let rq = list.0;
        if !rq.is_null() {
            // INVARIANT: The request is not in the list any more.
            // SAFETY: By the type invariant, the request is the list's.
            list.0 = unsafe { (*rq).__bindgen_anon_1.rq_next };
        }
        self.some.set((!list.0.is_null()).into());
        rq
    }
}
