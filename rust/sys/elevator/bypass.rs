// SPDX-License-Identifier: GPL-2.0-only

//! Requests that bypass the scheduler: they are dispatched first.

use core::ptr;

use kernel::{bindings, new_spinlock, prelude::*, sync::SpinLock};

use crate::sys::atomic::Hint;

/// Requests linked through `rq_next`.
///
/// # Invariants
///
/// Both ends are null, or `first` is linked to `last`, which is linked to null. The list owns its
/// requests.
struct RequestList {
    first: *mut bindings::request,
    last: *mut bindings::request,
}

// SAFETY: Any task may dispatch requests.
unsafe impl Send for RequestList {}

/// List of the requests that bypass the scheduler.
#[pin_data]
pub(super) struct BypassList {
    /// 1 if the list is not empty.
    some: Hint,
    #[pin]
    list: SpinLock<RequestList>,
}

impl BypassList {
    /// Creates an empty list.
    pub(super) fn new() -> impl PinInit<Self> {
        // INVARIANT: Both ends are null.
        let list = RequestList {
            first: ptr::null_mut(),
            last: ptr::null_mut(),
        };
        pin_init!(Self {
            some: Hint::new(0),
            list <- new_spinlock!(list, "nrs_aside"),
        })
    }

    /// Returns true if the list is not empty. Any context.
    pub(super) fn has_some(&self) -> bool {
        self.some.get() != 0
    }

    /// Inserts a request at the head.
    ///
    /// # Safety
    ///
    /// The caller owns the request, which is in no list.
    pub(super) unsafe fn put_first(&self, rq: *mut bindings::request) {
        let mut list = self.list.lock();
        // INVARIANT: The request is linked to the former head.
        // SAFETY: By the safety requirements of this function. The list owns the link until the
        // request is dispatched.
        unsafe { (*rq).__bindgen_anon_1.rq_next = list.first };
        list.first = rq;
        if list.last.is_null() {
            list.last = rq;
        }
        self.some.set(1);
    }

    /// Appends a request at the tail.
    ///
    /// # Safety
    ///
    /// As for [`Self::put_first`].
    pub(super) unsafe fn put_last(&self, rq: *mut bindings::request) {
        let mut list = self.list.lock();
        // INVARIANT: The former tail is linked to the request, which is linked to null.
        // SAFETY: As in `put_first`; by the type invariant the list owns the former tail.
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

    /// Removes and returns the request at the head; null if the list is empty.
    pub(super) fn take(&self) -> *mut bindings::request {
        if !self.has_some() {
            return ptr::null_mut();
        }
        let mut list = self.list.lock();
        let rq = list.first;
        if !rq.is_null() {
            // INVARIANT: The request is no longer in the list; it was the tail if it is linked to
            // null.
            // SAFETY: By the type invariant the list owns the request.
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
        let aside = KBox::pin_init(BypassList::new(), GFP_KERNEL);
        let (Ok(mut requests), Ok(aside)) = (requests, aside) else {
            return;
        };
        let start = requests.as_mut_ptr().cast::<bindings::request>();
        let at = |index: usize| start.wrapping_add(index);
        assert!(aside.take().is_null());
        for round in 0..3 {
            // SAFETY: The requests are in the vector, and only the list uses them.
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
