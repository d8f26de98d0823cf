// SPDX-License-Identifier: GPL-2.0-only

//! Safe wrappers of I/O schedulers of blk-mq.
//!
//! # Vocabulary
//!
//! - *Scheduler*: the scheduler of one queue; it implements [`Scheduler`].
//! - *Settings*: the values of the files of `queue/iosched/`. A change creates another scheduler,
//!   which replaces the old one while the queue is frozen and quiesced.
//! - *Entry*: memory for one request of the queue ([`request_table`]); it contains the
//!   [`Node`](super::node::Node).
//! - *Bypass list*: requests that bypass the scheduler: requests dispatched before and requeued,
//!   data of a flush sequence, and requests without an entry. They are dispatched first.
//! - *Growing*: bios are merged into a queued request ([`merge`]).
//! - *Direct run*: the task that inserts a request runs the queue. For each request that was not
//!   plugged, the block layer uses a work item instead, which costs two context switches.
//!
//! ```text
//!      bio_merge    ──▶ Scheduler::defer, tag
//!         │
//!   insert_requests ──▶ Scheduler::insert ──▶ Held ─▶ policy ─▶ target ──▶ Scheduler::pull
//!         │  (requeued, flush sequence)                                          │
//!         └──────────────────▶ bypass list ─────────▶ dispatch_request ◀─────────┘
//!                                                            │
//!   Scheduler::ended ◀── finish_request ◀──── driver ◀───────┘
//! ```
//!
//! # Lifetimes
//!
//! A request holds a reference to its queue's usage counter until it has ended. `insert_requests`
//! takes another reference, because requests may end while the scheduler still selects the next
//! one. Therefore an instance exists while one of its requests is inserted or ends. Tasks that
//! dispatch or call `has_work` are waited for when the queue is quiesced, which precedes every
//! exit.
//!
//! C header: `block/elevator.h`, private to the kernel; `layout` checks that the running kernel was
//! built with the same header.

use core::{ffi::CStr, fmt, marker::PhantomData};

use kernel::{bindings, error::to_result, ffi::c_char, prelude::*, sync::Arc, types::Opaque};

use super::{
    bio::BioView,
    node::{Held, NodeAccount},
    raw,
};
use crate::sched::item::Cost;

mod bypass;
mod control;
mod deferred;
mod instance;
mod merge;
mod queue;
mod request;
mod request_table;
mod settings;

pub(super) use deferred::recorded;
pub(crate) use deferred::{
    DeferredBio, DeferredBios, DeferredRun, DeferredSource, Submission, SubmittedBio,
};
pub(crate) use queue::RequestQueue;
pub(crate) use request::Request;

use instance::SchedulerInstance;

/// A file of `queue/iosched/`.
pub(crate) struct SchedulerFile<T: Scheduler> {
    /// Name of the file.
    pub(crate) name: &'static CStr,
    /// Writes the content of the file.
    pub(crate) show: fn(&T, &mut dyn fmt::Write) -> fmt::Result,
    /// Parses a written value into the settings; `None` if the file is read-only.
    pub(crate) store: Option<fn(&mut T::Settings, &str) -> Result>,
}

/// Largest number of files of a scheduler.
const FILES_MAX: usize = 8;

/// A scheduler of a queue.
pub(crate) trait Scheduler: Send + Sync + Sized + 'static {
    /// Name of the scheduler in `queue/scheduler`.
    const NAME: &'static CStr;
    /// Files of `queue/iosched/`.
    const FILES: &'static [SchedulerFile<Self>];
    /// Values that the files set.
    type Settings: Clone + Send + Unpin + 'static;
    /// Charge for a merged bio.
    type Growth;

    /// Returns the default settings of a queue.
    fn defaults(queue: &RequestQueue) -> Result<Self::Settings>;

    /// Returns the settings with which the scheduler was created.
    fn settings(&self) -> &Self::Settings;

    /// Creates the scheduler of `queue`, which replaces `before`. May sleep.
    fn create(
        queue: &Arc<RequestQueue>,
        settings: Self::Settings,
        before: Option<&Self>,
    ) -> Result<Arc<Self>>;

    /// Updates the scheduler after a possible change of the number of hardware queues. The queue is
    /// frozen and quiesced.
    fn follow_depth(&self);

    /// Returns true if bios may be merged into queued requests. Task context.
    fn may_grow(&self) -> bool;

    /// Returns the charge for merging `bio`, submitted by the running task. Interrupts are off.
    fn growth(&self, bio: BioView<'_>) -> Self::Growth;

    /// Charges for a merged bio. Task context.
    fn charge(&self, growth: &Self::Growth);

    /// Defers `bio` before it gets a tag, or returns it if it is to be submitted now. Task context.
    fn defer(&self, bio: SubmittedBio) -> Result<(), SubmittedBio>;

    /// Inserts or defers a request; may sleep for memory if `may_sleep`.
    fn insert(&self, request: Request<'_>, may_sleep: bool);

    /// Removes and returns the next request to dispatch. Task context, under RCU.
    fn pull(&self) -> Option<Held>;

    /// Returns true if [`Self::pull`] has a request. Any context.
    fn has_work(&self) -> bool;

    /// Returns true if requests are queued. Any context.
    fn holds(&self) -> bool;

    /// Makes all queued requests ready for dispatch, independent of the policy. May sleep.
    fn drain(&self);

    /// Counts the dispatch of a request, which was queued before if `queued`. Task context, under
    /// RCU.
    fn dispatching(&self, account: &mut NodeAccount, queued: bool);

    /// Counts the end of a request, which the driver had started if `is_started`. Any context, even
    /// hard interrupts.
    fn ended(&self, account: &mut NodeAccount, cost: Cost, is_started: bool);
}

/// A registered scheduler type; dropping the registration unregisters it.
///
/// # Invariants
///
/// `kind` is linked into the block layer's list, is not moved, and points to `files`.
pub(crate) struct SchedulerRegistration<T: Scheduler> {
    kind: Pin<KBox<Opaque<raw::elevator_type>>>,
    _files: KVec<raw::elv_fs_entry>,
    _scheduler: PhantomData<T>,
}

// SAFETY: After registration the structures are only read, except by the block layer under its own
// lock.
unsafe impl<T: Scheduler> Send for SchedulerRegistration<T> {}
// SAFETY: As above.
unsafe impl<T: Scheduler> Sync for SchedulerRegistration<T> {}

impl<T: Scheduler> SchedulerRegistration<T> {
    /// Registers the scheduler with the block layer.
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
                    SchedulerInstance::<T>::show::<$index> as Show,
                    SchedulerInstance::<T>::store::<$index> as Store,
                ),)*]
            };
        }
        let functions: [(Show, Store); FILES_MAX] = each!(0 1 2 3 4 5 6 7);
        const { assert!(T::FILES.len() <= FILES_MAX) };
        let mut files = KVec::new();
        for (file, (show, store)) in T::FILES.iter().zip(functions) {
            // SAFETY: An attribute may consist of zeroes.
            let mut attr: bindings::attribute = unsafe { core::mem::zeroed() };
            attr.name = file.name.as_char_ptr();
            attr.mode = if file.store.is_some() { 0o644 } else { 0o444 };
            // The files are in dynamic memory, and lockdep requires static keys.
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
                alloc_sched_data: Some(SchedulerInstance::<T>::alloc_sched_data),
                free_sched_data: Some(SchedulerInstance::<T>::free_sched_data),
                init_sched: Some(SchedulerInstance::<T>::init_sched),
                exit_sched: Some(SchedulerInstance::<T>::exit_sched),
                depth_updated: Some(SchedulerInstance::<T>::depth_updated),
                allow_merge: Some(SchedulerInstance::<T>::allow_merge),
                bio_merge: Some(SchedulerInstance::<T>::bio_merge),
                prepare_request: Some(SchedulerInstance::<T>::prepare_request),
                insert_requests: Some(SchedulerInstance::<T>::insert_requests),
                has_work: Some(SchedulerInstance::<T>::has_work),
                dispatch_request: Some(SchedulerInstance::<T>::dispatch_request),
                finish_request: Some(SchedulerInstance::<T>::finish_request),
                // SAFETY: All other callbacks may be absent.
                ..unsafe { core::mem::zeroed() }
            },
            elevator_attrs: files.as_ptr(),
            elevator_name: T::NAME.as_char_ptr(),
            elevator_owner: module.as_ptr(),
            // SAFETY: All other fields may be zero, or are set by registration.
            ..unsafe { core::mem::zeroed() }
        };
        let kind = KBox::pin(Opaque::new(kind), GFP_KERNEL)?;
        // INVARIANT: Pinned, and unregistered before it is freed.
        // SAFETY: The structure is complete and is not moved until it is unregistered.
        to_result(unsafe { raw::elv_register(kind.get()) })?;
        Ok(Self {
            kind,
            _files: files,
            _scheduler: PhantomData,
        })
    }
}

impl<T: Scheduler> Drop for SchedulerRegistration<T> {
    fn drop(&mut self) {
        // SAFETY: Registered by `new`; no queue uses the scheduler, because such queues pin the
        // module.
        unsafe { raw::elv_unregister(self.kind.get()) };
        // A task that returns from `insert_requests` holds no reference: the request may have
        // ended, and the task has left the queue. It does not sleep in this function any more, but
        // may have been preempted there.
        // SAFETY: May sleep.
        unsafe { raw::nrs_wait_for_tasks() };
    }
}
