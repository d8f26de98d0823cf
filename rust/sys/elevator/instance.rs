// SPDX-License-Identifier: GPL-2.0-only

//! The scheduler of one queue, with the callbacks of the block layer.

use core::{cell::UnsafeCell, marker::PhantomData, ptr};

use kernel::{
    bindings,
    ffi::{c_int, c_uint, c_void},
    impl_has_work, new_condvar, new_mutex, new_work,
    prelude::*,
    sync::{Arc, ArcBorrow, CondVar, Mutex},
    workqueue::Work,
};

use super::{
    bypass::BypassList,
    control::{InstanceState, SchedulerControl},
    request_table::{RequestEntry, RequestTable},
    Request, RequestQueue, Scheduler, SubmittedBio,
};
use crate::sys::{
    atomic::Counter,
    misc::{self, bug},
    node::Held,
    params, queue, raw,
    series::{new_spinlock_irq, SpinLockIrq},
};

/// A scheduler and the data of its queue.
///
/// # Invariants
///
/// `current` points to the current scheduler of `control`. `current` and `nodes` change only while
/// the queue is frozen and quiesced.
#[pin_data]
pub(super) struct SchedulerInstance<T: Scheduler> {
    pub(super) queue: Arc<RequestQueue>,
    pub(super) current: UnsafeCell<*const T>,
    nodes: UnsafeCell<RequestTable>,
    /// Number of requests that came without an entry in `nodes`.
    unseen: Counter,
    #[pin]
    aside: BypassList,
    /// Protects the data of all queued requests that a merge changes.
    #[pin]
    pub(super) growing: SpinLockIrq<()>,
    #[pin]
    pub(super) control: Mutex<SchedulerControl<T>>,
    /// Notified when a change was made or has failed.
    #[pin]
    pub(super) changed: CondVar,
    #[pin]
    changer: Work<Self, 0>,
    #[pin]
    drainer: Work<Self, 1>,
}

// SAFETY: All fields but `current` and `nodes` may be sent; these two are plain memory, see the
// type invariant.
unsafe impl<T: Scheduler> Send for SchedulerInstance<T> {}
// SAFETY: As above.
unsafe impl<T: Scheduler> Sync for SchedulerInstance<T> {}

impl_has_work! {
    impl{T: Scheduler} HasWork<Self, 0> for SchedulerInstance<T> { self.changer }
    impl{T: Scheduler} HasWork<Self, 1> for SchedulerInstance<T> { self.drainer }
}

impl<T: Scheduler> SchedulerInstance<T> {
    fn new(
        queue: Arc<RequestQueue>,
        settings: T::Settings,
        before: Option<&T>,
    ) -> Result<Arc<Self>> {
        let running = T::create(&queue, settings, before)?;
        Arc::pin_init(
            pin_init!(Self {
                current: UnsafeCell::new(Arc::as_ptr(&running)),
                queue,
                nodes: UnsafeCell::new(RequestTable::NONE),
                unseen: Counter::new(),
                aside <- BypassList::new(),
                growing <- new_spinlock_irq!((), "nrs_growing"),
                control <- new_mutex!(SchedulerControl::new(running), "nrs_iosched"),
                changed <- new_condvar!("nrs_iosched"),
                changer <- new_work!("nrs_iosched_change"),
                drainer <- new_work!("nrs_iosched_drain"),
            }),
            GFP_KERNEL,
        )
    }

    /// Returns the instance of `q`.
    ///
    /// # Safety
    ///
    /// `q` has a scheduler of this type, which does not exit for `'a`.
    pub(super) unsafe fn of<'a>(q: *mut bindings::request_queue) -> ArcBorrow<'a, Self> {
        // SAFETY: By the safety requirements of this function; `alloc_sched_data` made the pointer
        // with `Arc::into_raw`.
        unsafe {
            let elevator = (*q).elevator.cast::<raw::elevator_queue>();
            ArcBorrow::from_raw((*elevator).elevator_data.cast::<Self>())
        }
    }

    /// Returns the current scheduler.
    ///
    /// # Safety
    ///
    /// The queue is not frozen and quiesced while the result is used.
    pub(super) unsafe fn scheduler(&self) -> &T {
        // SAFETY: By the type invariant `current` is valid, and by the safety requirements of this
        // function it does not change.
        unsafe { &**self.current.get() }
    }

    /// Creates the instance of a queue; returns null on failure.
    ///
    /// # Safety
    ///
    /// Called by the block layer only, as documented for `alloc_sched_data`.
    pub(super) unsafe extern "C" fn alloc_sched_data(
        q: *mut bindings::request_queue,
    ) -> *mut c_void {
        // A driver that has frozen queues may wait for this call, so it must not wait for I/O.
        // SAFETY: The queue is valid, and its scheduler does not change during the call.
        match misc::without_io(|| unsafe { Self::attach(q) }) {
            Ok(instance) => Arc::into_raw(instance).cast_mut().cast(),
            // The block layer reports any failure as ENOMEM; `create` has logged the reason.
            Err(_) => ptr::null_mut(),
        }
    }

    /// Creates the instance of a queue.
    ///
    /// # Safety
    ///
    /// As for [`Self::alloc_sched_data`].
    unsafe fn attach(q: *mut bindings::request_queue) -> Result<Arc<Self>> {
        // SAFETY: By the safety requirements of this function.
        let before = unsafe { Self::running(q) };
        // When the number of hardware queues changes, the settings are kept.
        match before {
            Some(before) => {
                before.free_lost_successor();
                let (queue, current) = (before.queue.clone(), before.close());
                let new = Self::new(queue, current.settings().clone(), Some(&current));
                let mut control = before.control.lock();
                match &new {
                    Ok(new) => control.successor = Some(new.clone()),
                    Err(_) => control.closed = false,
                }
                drop(control);
                new
            }
            None => {
                // SAFETY: By the safety requirements of this function.
                let queue = unsafe { RequestQueue::new(q)? };
                let settings = T::defaults(&queue)?;
                Self::new(queue, settings, None)
            }
        }
    }

    /// Returns the running instance if the scheduler of `q` is of this type.
    ///
    /// # Safety
    ///
    /// `q` is valid, and its scheduler does not change for `'a`.
    unsafe fn running<'a>(q: *mut bindings::request_queue) -> Option<ArcBorrow<'a, Self>> {
        // SAFETY: A scheduler of the queue has its type, whose operations identify the module's
        // schedulers.
        unsafe {
            let elevator = (*q).elevator.cast::<raw::elevator_queue>();
            let ours: unsafe extern "C" fn(*mut bindings::request_queue) -> *mut c_void =
                Self::alloc_sched_data;
            let is_ours = !elevator.is_null()
                && (*(*elevator).type_)
                    .ops
                    .alloc_sched_data
                    .is_some_and(|theirs| ptr::fn_addr_eq(theirs, ours));
            is_ours.then(|| Self::of(q))
        }
    }

    /// Waits until a running drain has ended. Sleeps.
    pub(super) fn wait_for_drain(&self) {
        // SAFETY: The work item is initialised and exists while `self` does.
        unsafe { bindings::flush_work(Work::raw_get(&raw const self.drainer)) };
    }

    /// Frees a successor that the block layer has lost.
    ///
    /// If the hardware queues of several disks change together, and one of the disks gets no
    /// successor, the block layer (blk_mq_alloc_sched_res_batch() of Linux 7.3) neither starts nor
    /// frees the successors of the others.
    fn free_lost_successor(&self) {
        let successor = self.control.lock().successor.take();
        let lost = successor.filter(|new| new.control.lock().state == InstanceState::Created);
        if let Some(lost) = lost {
            // SAFETY: `attach` returned the successor to the block layer, which changes the
            // scheduler of a queue by one task at a time: that change has ended without a start.
            // The successor was not freed, so nothing else will free it.
            unsafe { Self::free_sched_data(Arc::as_ptr(&lost).cast_mut().cast()) };
        }
    }

    /// Frees the result of `alloc_sched_data`.
    ///
    /// # Safety
    ///
    /// Called by the block layer, once, after `exit_sched` or instead of it, or by
    /// [`Self::free_lost_successor`]; the scheduler of the queue does not change during the call.
    pub(super) unsafe extern "C" fn free_sched_data(data: *mut c_void) {
        let data = data.cast_const().cast::<Self>();
        // SAFETY: Made by `Arc::into_raw`.
        let this = unsafe { Arc::from_raw(data) };
        let state = core::mem::replace(&mut this.control.lock().state, InstanceState::Freed);
        if state == InstanceState::Created {
            // SAFETY: The instance keeps the queue; the block layer does not change its scheduler
            // during the call.
            if let Some(stays) = unsafe { Self::running(this.queue.as_ptr()) } {
                let mut control = stays.control.lock();
                control.closed = false;
                control.successor = None;
            }
        }
        // While hardware queues change, the block layer frees an instance before it starts the
        // successor.
        if !this.queue.may_regroup() {
            this.free_lost_successor();
        }
        // SAFETY: Both work items are initialised. A queued work item owns a reference, also from
        // `Arc::into_raw`.
        unsafe {
            for work in [
                Work::raw_get(&raw const this.changer),
                Work::raw_get(&raw const this.drainer),
            ] {
                // Cancelled here because the tag set of the queue may be freed once this function
                // returns.
                if bindings::cancel_work_sync(work) {
                    drop(Arc::from_raw(data));
                }
            }
        }
    }

    /// Starts the scheduler of a queue.
    ///
    /// # Safety
    ///
    /// Called by the block layer only, with the queue frozen and quiesced.
    pub(super) unsafe extern "C" fn init_sched(
        q: *mut bindings::request_queue,
        elevator: *mut raw::elevator_queue,
    ) -> c_int {
        // SAFETY: The block layer stored the result of `alloc_sched_data` there.
        let this = unsafe { ArcBorrow::from_raw((*elevator).elevator_data.cast::<Self>()) };
        // SAFETY: The queue is frozen and quiesced. One scheduler serves all hardware queues.
        unsafe {
            this.make_nodes(q);
            bindings::blk_queue_flag_set(bindings::QUEUE_FLAG_SQ_SCHED, q);
            (*q).elevator = elevator.cast();
            (*q).async_depth = (*q).nr_requests;
            // Writeback throttling would delay writes before the scheduler sees the requests.
            raw::nrs_queue_throttle_writeback(q, false);
            this.scheduler().follow_depth();
        }
        this.control.lock().state = InstanceState::Started;
        // Never fails: the block layer has already given up the previous scheduler.
        0
    }

    /// Creates an entry for each request that `q` may have. If there is no memory, the old entries
    /// stay; requests beyond them bypass the scheduler.
    ///
    /// # Safety
    ///
    /// `q` is the queue of this instance, and frozen and quiesced, so it has no requests.
    unsafe fn make_nodes(&self, q: *mut bindings::request_queue) {
        // SAFETY: By the safety requirements of this function.
        unsafe {
            if let Ok(nodes) = RequestTable::new(q) {
                *self.nodes.get() = nodes;
            }
        }
    }

    /// Adjusts the entries to another number of requests of the queue.
    ///
    /// # Safety
    ///
    /// Called by the block layer only, with the queue frozen and quiesced.
    pub(super) unsafe extern "C" fn depth_updated(q: *mut bindings::request_queue) {
        // SAFETY: The queue has this scheduler, and is frozen and quiesced.
        unsafe { Self::of(q).make_nodes(q) };
    }

    /// Ends the scheduler of a queue.
    ///
    /// # Safety
    ///
    /// Called by the block layer only, with the queue frozen.
    pub(super) unsafe extern "C" fn exit_sched(elevator: *mut raw::elevator_queue) {
        // SAFETY: As for `init_sched`.
        let this = unsafe { ArcBorrow::from_raw((*elevator).elevator_data.cast::<Self>()) };
        bug!(this.aside.has_some());
        this.queue.throttle_writeback();
        this.control.lock().closed = true;
    }

    /// Merges a bio into a queued request, or defers it; returns true if the bio was merged or
    /// deferred.
    ///
    /// # Safety
    ///
    /// Called by the block layer only, by the submitter of `bio`, which holds a reference to the
    /// queue.
    pub(super) unsafe extern "C" fn bio_merge(
        q: *mut bindings::request_queue,
        bio: *mut bindings::bio,
        segments: c_uint,
    ) -> bool {
        // SAFETY: The caller's reference keeps the queue and its scheduler; the caller owns the
        // bio, and does not use it after a result of true.
        unsafe {
            Self::merge(q, bio, segments)
                || Self::of(q)
                    .scheduler()
                    .defer(SubmittedBio::new(bio))
                    .is_ok()
        }
    }

    /// Initialises the scheduler's data of a request.
    ///
    /// # Safety
    ///
    /// Called by the block layer only.
    pub(super) unsafe extern "C" fn prepare_request(rq: *mut bindings::request) {
        // SAFETY: The caller owns the request.
        unsafe { (*rq).elv.priv_[0] = ptr::null_mut() };
    }

    /// Inserts requests.
    ///
    /// # Safety
    ///
    /// Called by the block layer only, in task context.
    pub(super) unsafe extern "C" fn insert_requests(
        hctx: *mut bindings::blk_mq_hw_ctx,
        list: *mut bindings::list_head,
        flags: raw::blk_insert_t,
    ) {
        // SAFETY: The requests of the list keep the queue and its scheduler. The hardware queue
        // stays valid: the caller uses it after this returns.
        unsafe {
            let q = (*hctx).queue;
            raw::nrs_queue_enter(q);
            let this = Self::of(q);
            let may_sleep = raw::nrs_may_sleep();
            let mut nowait = false;
            let is_aside = flags & raw::nrs_insert_at_head != 0;
            loop {
                let rq = raw::nrs_request_pop(list);
                if rq.is_null() {
                    break;
                }
                nowait |= (*rq).cmd_flags & (1 << bindings::req_flag_bits___REQ_NOWAIT) != 0;
                this.insert(rq, is_aside, may_sleep && !nowait);
            }
            if !is_aside && params::direct_run() != 0 && raw::nrs_may_run(hctx, nowait) {
                bindings::blk_mq_run_hw_queue(hctx, false);
            }
            raw::nrs_queue_leave(q);
            // From here on the queue may have another scheduler.
        }
    }

    /// Inserts a request.
    ///
    /// # Safety
    ///
    /// The caller owns the request and has entered the queue.
    unsafe fn insert(&self, rq: *mut bindings::request, is_aside: bool, may_sleep: bool) {
        // SAFETY: By the safety requirements of this function. A request that already has an entry
        // was dispatched before.
        unsafe {
            let is_new = !is_aside && (*rq).elv.priv_[0].is_null();
            let entry = if is_new {
                (*self.nodes.get()).of(rq)
            } else {
                None
            };
            let Some(entry) = entry else {
                raw::nrs_request_trace(rq);
                if is_aside {
                    return self.aside.put_first(rq);
                }
                self.unseen.count(is_new.into());
                return self.aside.put_last(rq);
            };
            let request = Request {
                rq,
                entry,
                ops: Self::OPS,
                _rq: PhantomData,
            };
            self.scheduler().insert(request, may_sleep);
        }
    }

    /// Returns true if there is a request to dispatch.
    ///
    /// # Safety
    ///
    /// Called by the block layer only, under RCU; the queue is not quiesced.
    pub(super) unsafe extern "C" fn has_work(hctx: *mut bindings::blk_mq_hw_ctx) -> bool {
        // SAFETY: The scheduler exists until the queue has been quiesced.
        let this = unsafe { Self::of((*hctx).queue) };
        // SAFETY: As above.
        let scheduler = unsafe { this.scheduler() };
        if this.aside.has_some() || scheduler.has_work() {
            return true;
        }
        if scheduler.holds() && this.queue.is_dying() {
            // A task that freezes the queue waits for the queued requests. It runs the queue, and
            // so does a task that inserted a request without seeing the freeze.
            let _ = queue::progress().enqueue::<_, 1>(Arc::from(this));
        }
        false
    }

    /// Returns the next request to dispatch; null if there is none.
    ///
    /// # Safety
    ///
    /// As for [`Self::has_work`], in task context.
    pub(super) unsafe extern "C" fn dispatch_request(
        hctx: *mut bindings::blk_mq_hw_ctx,
    ) -> *mut bindings::request {
        // SAFETY: As in `has_work`.
        let this = unsafe { Self::of((*hctx).queue) };
        // SAFETY: As above.
        let scheduler = unsafe { this.scheduler() };
        let rq = this.aside.take();
        if !rq.is_null() {
            return rq;
        }
        let Some(node) = scheduler.pull().and_then(Held::into_raw) else {
            return ptr::null_mut();
        };
        // SAFETY: The node is in an entry, and owned by this function.
        unsafe {
            let entry = RequestEntry::around(node);
            let queued = (*entry).node.arrival() != 0;
            if queued {
                this.grown(entry);
            }
            scheduler.dispatching((*entry).node.account_mut(), queued);
            (*entry).rq
        }
    }

    /// Counts the end of a request.
    ///
    /// # Safety
    ///
    /// Called by the block layer only, once for each request passed to `prepare_request`.
    pub(super) unsafe extern "C" fn finish_request(rq: *mut bindings::request) {
        // SAFETY: The request keeps the queue. A request with an entry was dispatched, so nothing
        // else uses that entry.
        unsafe {
            let entry = (*rq).elv.priv_[0].cast::<RequestEntry>();
            if entry.is_null() {
                return;
            }
            (*rq).elv.priv_[0] = ptr::null_mut();
            let this = Self::of((*rq).q);
            let node = &mut (*entry).node;
            let cost = node.cost();
            // The block layer sets the state to idle only after this function.
            let is_started = (*rq).state != bindings::mq_rq_state_MQ_RQ_IDLE;
            this.scheduler().ended(node.account_mut(), cost, is_started);
        }
    }
}
