// SPDX-License-Identifier: GPL-2.0-only

//! A pointer that readers follow without a lock while a writer replaces the value.

use core::{cell::UnsafeCell, marker::PhantomData, ptr};

use kernel::{
    bindings,
    prelude::*,
    sync::{
        atomic::{ordering, Atomic},
        rcu::Guard,
    },
};

use super::series::{rcu_barrier, synchronize_rcu};

/// A published value with memory for the callback that frees it.
#[repr(C)]
struct Published<T> {
    head: UnsafeCell<bindings::callback_head>,
    value: T,
}

/// An owned pointer that is read under RCU.
///
/// # Invariants
///
/// The pointer is null or owns a `Published<T>` from `KBox`. Code that swaps a pointer out frees
/// the old value one grace period later.
pub(crate) struct RcuBox<T: Send + Sync + 'static> {
    current: Atomic<*mut Published<T>>,
    _owns: PhantomData<T>,
}

// SAFETY: Readers get `&T`; the writer moves `T` between tasks.
unsafe impl<T: Send + Sync + 'static> Send for RcuBox<T> {}
// SAFETY: As above.
unsafe impl<T: Send + Sync + 'static> Sync for RcuBox<T> {}

impl<T: Send + Sync + 'static> RcuBox<T> {
    /// Creates a null pointer.
    pub(crate) fn new() -> Self {
        Self {
            current: Atomic::new(ptr::null_mut()),
            _owns: PhantomData,
        }
    }

    /// Returns the published value, for the lifetime of `guard`.
    pub(crate) fn get<'a>(&'a self, _guard: &'a Guard) -> Option<&'a T> {
        let current = self.current.load(ordering::Acquire);
        // SAFETY: By the type invariant the pointer is null or valid, and the value is freed only
        // after a grace period, which cannot end while the guard lives.
        unsafe { current.as_ref() }.map(|published| &published.value)
    }

    /// Publishes `value`; an RCU callback frees the old value, without waiting.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; the old value stays published.
    pub(crate) fn set(&self, value: T) -> Result {
        self.swap(KBox::into_raw(Self::publish(value)?));
        Ok(())
    }

    /// Publishes `value`, or null; waits for the readers of the old value and drops it. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; the old value stays published.
    pub(crate) fn replace(&self, value: Option<T>) -> Result {
        let new = match value {
            Some(value) => KBox::into_raw(Self::publish(value)?),
            None => ptr::null_mut(),
        };
        let old = self.current.xchg(new, ordering::Full);
        if !old.is_null() {
            synchronize_rcu();
            // SAFETY: From `KBox::into_raw`; swapped out above, a grace period ago.
            drop(unsafe { KBox::from_raw(old) });
        }
        Ok(())
    }

    fn publish(value: T) -> Result<KBox<Published<T>>> {
        Ok(KBox::new(
            Published {
                head: UnsafeCell::new(bindings::callback_head::default()),
                value,
            },
            GFP_KERNEL,
        )?)
    }

    /// Publishes null.
    pub(crate) fn clear(&self) {
        self.swap(ptr::null_mut());
    }

    fn swap(&self, new: *mut Published<T>) {
        let old = self.current.xchg(new, ordering::Full);
        if old.is_null() {
            return;
        }
        // SAFETY: `old` is valid and was just swapped out, so this is its only callback; `head` is
        // its first field.
        unsafe {
            bindings::call_rcu(
                UnsafeCell::raw_get(&raw const (*old).head),
                Some(Self::free),
            )
        };
    }

    /// Frees a value after its grace period.
    ///
    /// # Safety
    ///
    /// Called by RCU only, with the `head` that [`RcuBox::swap`] passed.
    unsafe extern "C" fn free(head: *mut bindings::callback_head) {
        // SAFETY: `head` is the first field of a `repr(C)` structure that came from
        // `KBox::into_raw`; the grace period is over, so there are no readers.
        drop(unsafe { KBox::from_raw(head.cast::<Published<T>>()) });
    }
}

impl<T: Send + Sync + 'static> Drop for RcuBox<T> {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Waits, when dropped, until all replaced values are freed; required before the module's text is
/// unmapped.
pub(crate) struct RcuBarrier;

impl Drop for RcuBarrier {
    fn drop(&mut self) {
        rcu_barrier();
    }
}

#[kernel::prelude::kunit_tests(nrs_rcu)]
mod tests {
    use super::*;
    use kernel::{
        impl_has_work, new_work,
        sync::{rcu, Arc, Completion},
        workqueue::{Work, WorkItem},
    };

    /// Two halves with equal values.
    struct Pair(u64, u64);

    /// A reader that runs while the test writes.
    #[pin_data]
    struct TestReader {
        shared: Arc<RcuBox<Pair>>,
        stop: Arc<Atomic<bool>>,
        torn: Atomic<u64>,
        reads: Atomic<u64>,
        #[pin]
        done: Completion,
        #[pin]
        work: Work<Self>,
    }

    impl_has_work! {
        impl HasWork<Self> for TestReader { self.work }
    }

    impl WorkItem for TestReader {
        type Pointer = Arc<Self>;

        fn run(this: Arc<Self>) {
            while !this.stop.load(ordering::Acquire) {
                let guard = rcu::read_lock();
                if let Some(pair) = this.shared.get(&guard) {
                    if pair.0 != pair.1 {
                        this.torn.fetch_add(1, ordering::Relaxed);
                    }
                }
                drop(guard);
                this.reads.fetch_add(1, ordering::Relaxed);
                crate::sys::misc::cond_resched();
            }
            this.done.complete_all();
        }
    }

    #[test]
    fn readers_see_whole_values_while_they_are_replaced() -> Result {
        let shared = Arc::new(RcuBox::new(), GFP_KERNEL)?;
        let stop = Arc::new(Atomic::new(false), GFP_KERNEL)?;
        let (its_shared, its_stop) = (shared.clone(), stop.clone());
        let reader = Arc::pin_init(
            pin_init!(TestReader {
                shared: its_shared,
                stop: its_stop,
                torn: Atomic::new(0),
                reads: Atomic::new(0),
                done <- Completion::new(),
                work <- new_work!("nrs_rcu_reader"),
            }),
            GFP_KERNEL,
        )?;
        let queued = crate::sys::queue::upkeep().enqueue(reader.clone()).is_ok();
        let mut written = 0;
        // Until the reader has read a sufficient number of values.
        while queued && (written < 100 || reader.reads.load(ordering::Relaxed) < 1000) {
            written += 1;
            shared.set(Pair(written, written))?;
            crate::sys::misc::cond_resched();
        }
        stop.store(true, ordering::Release);
        if queued {
            reader.done.wait_for_completion();
        }
        shared.clear();
        let torn = reader.torn.load(ordering::Relaxed);
        assert!(queued && written > 0);
        assert!(torn == 0);
        Ok(())
    }
}
