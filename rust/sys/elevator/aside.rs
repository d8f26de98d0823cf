// SPDX-License-Identifier: GPL-2.0-only

//! Requests that a scheduler does not see: they are dispatched first.

use core::ptr;

use kernel::{bindings, new_spinlock, prelude::*, sync::SpinLock};

use crate::sys::atomic::Hint;

/// Requests linked through `rq_next`.
///
/// # Invariants
///
/// Both ends are null, or `first` is linked to `last`, which is linked to null. The requests belong to the list.
struct List {
    first: *mut bindings::request,
    last: *mut bindings::request,
}

// SAFETY: Requests may be dispatched by any task.
unsafe impl Send for List {}

/// Requests that are aside.
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
        // INVARIANT: Both ends are null.
        let list = List {
            first: ptr::null_mut(),
            last: ptr::null_mut(),
        };
        pin_init!(Self {
            some: Hint::new(0),
            list <- new_spinlock!(list, "nrs_aside"),
        })
    }

    /// Returns whether there are some. Any context.
    pub(super) fn has_some(&self) -> bool {
        self.some.get() != 0
    }

    /// Takes a request that goes first.
    ///
    /// # Safety
    ///
    /// The request is the caller's, and in no list.
    pub(super) unsafe fn put_first(&self, rq: *mut bindings::request) {
        let mut list = self.list.lock();
        // INVARIANT: The request is linked to the one that was first.
        // SAFETY: The caller promises it. The link is ours until the request is dispatched.
        unsafe { (*rq).__bindgen_anon_1.rq_next = list.first };
        list.first = rq;
        if list.last.is_null() {
            list.last = rq;
        }
        self.some.set(1);
    }

    /// Takes a request that goes last.
    ///
    /// # Safety
    ///
    /// As for [`Self::put_first`].
    pub(super) unsafe fn put_last(&self, rq: *mut bindings::request) {
        let mut list = self.list.lock();
        // INVARIANT: The one that was last is linked to the request, which is linked to null.
        // SAFETY: As in `put_first`; by the type invariant, the one that was last is the list's.
        unsafe {
            (*rq).__bindgen_anon_1.rq_next = ptr::null_mut();
            match list.last.as_mut() {
                Some(last) => last.__bindgen_anon_1.rq_next = rq,
                None => list.first = rq,
            }
        }
        list.last = rq;
        self.some.set(1);
    }

    /// Gives the first request back; null: there is none.
    pub(super) fn take(&self) -> *mut bindings::request {
        if !self.has_some() {
            return ptr::null_mut();
        }
        let mut list = self.list.lock();
        let rq = list.first;
        if !rq.is_null() {
            // INVARIANT: The request is not in the list any more; it was the last one if it is linked to null.
            // SAFETY: By the type invariant, the request is the list's.
            list.first = unsafe { (*rq).__bindgen_anon_1.rq_next };
            if list.first.is_null() {
                list.last = ptr::null_mut();
            }
        }
        self.some.set((!list.first.is_null()).into());
        rq
    }
}

#[kernel::prelude::kunit_tests(nrs_aside)]
mod tests {
    use core::mem::MaybeUninit;

    use super::*;

    #[test]
    fn what_comes_goes_in_order_but_for_what_is_put_first() {
        type Request = MaybeUninit<bindings::request>;
        let requests = KVec::from_elem(Request::zeroed(), 5, GFP_KERNEL);
        let aside = KBox::pin_init(Aside::new(), GFP_KERNEL);
        let (Ok(mut requests), Ok(aside)) = (requests, aside) else {
            return;
        };
        let start = requests.as_mut_ptr().cast::<bindings::request>();
        let at = |index: usize| start.wrapping_add(index);
        assert!(aside.take().is_null());
        for round in 0..3 {
            // SAFETY: Requests of the vector, which only the list uses.
            unsafe {
                if round == 1 {
                    aside.put_first(at(2));
                } else {
                    aside.put_last(at(2));
                }
                aside.put_last(at(3));
                aside.put_first(at(1));
                aside.put_last(at(4));
                aside.put_first(at(0));
            }
            for index in 0..5 {
                assert!(aside.has_some());
                assert_eq!(aside.take(), at(index));
            }
            assert!(!aside.has_some() && aside.take().is_null());
        }
    }
}
