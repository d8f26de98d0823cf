// SPDX-License-Identifier: GPL-2.0-only

//! I/O schedulers of blk-mq in safe terms.
//!
//! # Vocabulary
//!
//! - *Scheduler*: what runs for one queue; it implements [`Scheduler`].
//! - *Settings*: what the files of `queue/iosched/` set. A change makes another scheduler, which takes the place of the old one
//!   while the queue is frozen and quiesced.
//! - *Slot*: memory for one request of the queue ([`nodes`]); its [`Node`] lives there.
//! - *Aside*: requests that the scheduler does not see: what was dispatched and comes back, data of a flush sequence, and
//!   requests without a slot. They go first.
//! - *Growing*: a bio becomes part of a request that is withheld ([`merge`]).
//! - *Direct run*: the task that inserts a request runs the queue. Block layers run it in a work item, two context switches
//!   later, after each request that was not plugged.
//!
//! ```text
//!      bio_merge    ──▶ Scheduler::hold_back, tag
//!         │
//!   insert_requests ──▶ Scheduler::insert ──▶ Held ─▶ policy ─▶ target ──▶ Scheduler::pull
//!         │  (comes back, flush sequence)                                        │
//!         └──────────────────▶ aside ───────────────▶ dispatch_request ◀─────────┘
//!                                                            │
//!   Scheduler::ended ◀── finish_request ◀──── driver ◀───────┘
//! ```
//!
//! # What lives for how long
//!
//! A request holds a reference to its queue's usage counter until it has ended; `insert_requests`
//! takes another one, because requests may end while the scheduler still looks for what to do next. So an instance lives while
//! one of its requests is inserted or ends. Those that dispatch or ask for work are waited for when the queue is quiesced,
//! which precedes every exit.
//!
//! C header: `block/elevator.h`, private to the kernel; `layout` checks that it is the one the running kernel was built with.

use core::{ffi::CStr, fmt, marker::PhantomData};

use kernel::{bindings, error::to_result, ffi::c_char, prelude::*, sync::Arc, types::Opaque};

use super::{
    bio::View,
    node::{Account, Held},
    raw,
};
use crate::sched::item::Cost;

mod aside;
mod control;
mod instance;
mod merge;
mod nodes;
mod queue;
mod request;

pub(crate) use queue::Queue;
pub(crate) use request::Request;

use instance::Instance;

/// A file of `queue/iosched/`.
pub(crate) struct File<T: Scheduler> {
    /// Name of the file.
    pub(crate) name: &'static CStr,
    /// Writes what the file shows.
    pub(crate) show: fn(&T, &mut dyn fmt::Write) -> fmt::Result,
    /// Changes the settings; `None`: the file is read-only.
    pub(crate) store: Option<fn(&mut T::Settings, &str) -> Result>,
}

/// Files that a scheduler may have, at most.
const FILES_MAX: usize = 8;

/// A scheduler of a queue.
pub(crate) trait Scheduler: Send + Sync + Sized + 'static {
    /// Name of the scheduler in `queue/scheduler`.
    const NAME: &'static CStr;
    /// Files of `queue/iosched/`.
    const FILES: &'static [File<Self>];
    /// What the files set.
    type Settings: Clone + Send + Unpin + 'static;
    /// What a request has grown by.
    type Growth;

    /// Returns the settings of a queue that was told none.
    fn defaults(queue: &Queue) -> Result<Self::Settings>;

    /// Returns the settings that the scheduler was made with.
    fn settings(&self) -> &Self::Settings;

    /// Makes the scheduler of `queue`, which takes the place of `before`. May sleep.
    fn create(
        queue: &Arc<Queue>,
        settings: Self::Settings,
        before: Option<&Self>,
    ) -> Result<Arc<Self>>;

    /// The queue has a number of hardware queues, perhaps another one than when the scheduler was made. Frozen and quiesced.
    fn follow_depth(&self);

    /// Returns whether requests that are withheld may grow. Task context.
    fn may_grow(&self) -> bool;

    /// Returns what a request has grown by: `bio`, of the running task. Interrupts are off.
    fn growth(&self, bio: View<'_>) -> Self::Growth;

    /// Charges what a request has grown by. Task context.
    fn charge(&self, growth: &Self::Growth);

    /// Holds the running task back before `bio` gets a tag, while tags are to be left to other tasks.
    /// Returns whether the bio fails: its submitter must not sleep. May sleep otherwise.
    fn hold_back(&self, bio: View<'_>) -> bool;

    /// Takes a request that was inserted. It may sleep for memory, if that is said.
    fn insert(&self, request: Request<'_>, may_sleep: bool);

    /// Returns the next request to dispatch. Task context, under RCU.
    fn pull(&self) -> Option<Held>;

    /// Returns whether [`Self::pull`] has a request. Any context.
    fn has_work(&self) -> bool;

    /// Returns whether requests are withheld. Any context.
    fn holds(&self) -> bool;

    /// Makes all requests that are withheld ready, whatever the policy says. May sleep.
    fn drain(&self);

    /// A request is dispatched, which was withheld if it was `queued`. Task context, under RCU.
    fn dispatching(&self, account: &mut Account, queued: bool);

    /// A request has ended. Any context, even hard interrupts.
    fn ended(&self, account: &Account, cost: Cost);
}

/// A registered kind of scheduler; dropping it unregisters it.
///
/// # Invariants
///
/// `kind` is linked into the block layer's list, does not move, and points to `files`.
pub(crate) struct Registration<T: Scheduler> {
    kind: Pin<KBox<Opaque<raw::elevator_type>>>,
    _files: KVec<raw::elv_fs_entry>,
    _scheduler: PhantomData<T>,
}

// SAFETY: The structures are only read after registration, except by the block layer under its own lock.
unsafe impl<T: Scheduler> Send for Registration<T> {}
// SAFETY: As above.
unsafe impl<T: Scheduler> Sync for Registration<T> {}

impl<T: Scheduler> Registration<T> {
    /// Makes the scheduler known to the block layer.
    ///
    /// # Errors
    ///
    /// - `EBUSY`: a scheduler of this name is registered.
    pub(crate) fn new(module: &'static ThisModule) -> Result<Self> {
        type Show = unsafe extern "C" fn(*mut raw::elevator_queue, *mut c_char) -> isize;
        type Store = unsafe extern "C" fn(*mut raw::elevator_queue, *const c_char, usize) -> isize;
        macro_rules! each {
            ($($index:literal)*) => {
                [$((
                    Instance::<T>::show::<$index> as Show,
                    Instance::<T>::store::<$index> as Store,
                ),)*]
            };
        }
        let functions: [(Show, Store); FILES_MAX] = each!(0 1 2 3 4 5 6 7);
        const { assert!(T::FILES.len() <= FILES_MAX) };
        let mut files = KVec::new();
        for (file, (show, store)) in T::FILES.iter().zip(functions) {
            // SAFETY: What is not set may be zero.
            let mut attr: bindings::attribute = unsafe { core::mem::zeroed() };
            attr.name = file.name.as_char_ptr();
            attr.mode = if file.store.is_some() { 0o644 } else { 0o444 };
            // The files are in dynamic memory, and lockdep wants static keys.
            #[cfg(CONFIG_DEBUG_LOCK_ALLOC)]
            {
                attr.key = kernel::static_lock_class!().as_ptr();
            }
            let entry = raw::elv_fs_entry {
                attr,
                show: Some(show),
                store: file.store.map(|_| store),
            };
            files.push(entry, GFP_KERNEL)?;
        }
        // SAFETY: An entry without a name ends the list.
        files.push(unsafe { core::mem::zeroed() }, GFP_KERNEL)?;
        let kind = raw::elevator_type {
            ops: raw::elevator_mq_ops {
                alloc_sched_data: Some(Instance::<T>::alloc_sched_data),
                free_sched_data: Some(Instance::<T>::free_sched_data),
                init_sched: Some(Instance::<T>::init_sched),
                exit_sched: Some(Instance::<T>::exit_sched),
                depth_updated: Some(Instance::<T>::depth_updated),
                allow_merge: Some(Instance::<T>::allow_merge),
                bio_merge: Some(Instance::<T>::bio_merge),
                prepare_request: Some(Instance::<T>::prepare_request),
                insert_requests: Some(Instance::<T>::insert_requests),
                has_work: Some(Instance::<T>::has_work),
                dispatch_request: Some(Instance::<T>::dispatch_request),
                finish_request: Some(Instance::<T>::finish_request),
                // SAFETY: All other callbacks may be absent.
                ..unsafe { core::mem::zeroed() }
            },
            elevator_attrs: files.as_ptr(),
            elevator_name: T::NAME.as_char_ptr(),
            elevator_owner: module.as_ptr(),
            // SAFETY: All else may be absent, or is set by registration.
            ..unsafe { core::mem::zeroed() }
        };
        let kind = KBox::pin(Opaque::new(kind), GFP_KERNEL)?;
        // INVARIANT: Pinned, and unregistered before it is freed.
        // SAFETY: The structure is complete and stays in place until it is unregistered.
        to_result(unsafe { raw::elv_register(kind.get()) })?;
        Ok(Self {
            kind,
            _files: files,
            _scheduler: PhantomData,
        })
    }
}

impl<T: Scheduler> Drop for Registration<T> {
    fn drop(&mut self) {
        // SAFETY: Registered by `new`; queues with the scheduler hold the module, so there is none.
        unsafe { raw::elv_unregister(self.kind.get()) };
        // A task that has inserted a request holds nothing when it returns from `insert_requests`: the request may have
        // ended, and the queue has been left. It does not sleep any more there, but may have been preempted.
        // SAFETY: May sleep.
        unsafe { raw::nrs_wait_for_tasks() };
    }
}
