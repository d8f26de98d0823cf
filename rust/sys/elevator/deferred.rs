// SPDX-License-Identifier: GPL-2.0-only

//! Bios that a worker submits later.
//!
//! A scheduler may defer a bio before it has a request, or a request that is being inserted. The
//! bios of such a request are taken, and the request is freed with its tag. A deferred bio holds
//! neither a tag nor the queue: after a change of the scheduler it is submitted to the next one,
//! and after the removal of the disk it fails. No task waits.
//!
//! ```text
//!   bio_merge, insert_requests ──▶ DeferredBio ──▶ DeferredSource ──▶ Submission worker
//!        ▲                                                                   │
//!        └────────────────────── submit_bio_noacct() ◀───────────────────────┘
//! ```
//!
//! The worker has the identity of the submitter while it submits ([`SubmitterRecord`]).

use core::ptr;

use kernel::{
    bindings, impl_has_work,
    list::{impl_list_arc_safe, impl_list_item, List, ListArc, ListLinks},
    new_work,
    prelude::*,
    sync::{
        atomic::{ordering, Atomic},
        Arc,
    },
    time::{delay::fsleep, Delta},
    workqueue::{Work, WorkItem},
};

use crate::sys::{atomic::AtomicWord, bio::BioView, misc, queue, raw, task::SubmitterRecord};

use super::Request;

/// A bio that its submitter passed to the block layer, before it has a request.
///
/// # Invariants
///
/// Nothing else uses the bio, which is not linked to another one.
pub(crate) struct SubmittedBio(*mut bindings::bio);

impl SubmittedBio {
    /// Creates the owner of `bio`.
    ///
    /// # Safety
    ///
    /// The invariant of the type.
    pub(super) unsafe fn new(bio: *mut bindings::bio) -> Self {
        // INVARIANT: By the safety requirements of this function.
        Self(bio)
    }

    /// Returns a view of the bio.
    pub(crate) fn view(&self) -> BioView<'_> {
        // SAFETY: By the type invariant.
        unsafe { BioView::new(self.0) }
    }

    /// Converts the bio to a deferred one; fails without memory.
    pub(crate) fn defer(self, who: SubmitterRecord) -> Result<ListArc<DeferredBio>, Self> {
        let Some(deferred) = DeferredBio::new(who) else {
            return Err(self);
        };
        // SAFETY: By the type invariant, and `self` is consumed.
        unsafe { raw::nrs_bio_detach(self.0) };
        deferred.bios.store(self.0, ordering::Relaxed);
        Ok(deferred)
    }
}

impl<'a> Request<'a> {
    /// Frees the request and converts its bios to deferred ones. Fails without memory, if something
    /// else waits for the request, or if another controller of the queue counts requests.
    pub(crate) fn defer(self, who: SubmitterRecord) -> Result<ListArc<DeferredBio>, Self> {
        // SAFETY: By the type invariant.
        if !unsafe { raw::nrs_request_has_bios_only(self.rq) } {
            return Err(self);
        }
        let Some(deferred) = DeferredBio::new(who) else {
            return Err(self);
        };
        // SAFETY: By the type invariant the request was handed over and was never started. `self`
        // is consumed. The inserter has entered the queue, so the queue stays.
        let bios = unsafe { raw::nrs_request_take_bios(self.rq) };
        deferred.bios.store(bios, ordering::Relaxed);
        Ok(deferred)
    }
}

/// A deferred bio, or the deferred bios of one request.
///
/// # Invariants
///
/// `bios` is null or the first of a chain of bios that the value owns.
#[pin_data]
pub(crate) struct DeferredBio {
    #[pin]
    links: ListLinks,
    who: SubmitterRecord,
    bios: Atomic<*mut bindings::bio>,
}

impl_list_arc_safe! {
    impl ListArcSafe<0> for DeferredBio { untracked; }
}
impl_list_item! {
    impl ListItem<0> for DeferredBio { using ListLinks { self.links }; }
}

/// Deferred bios in order of arrival.
pub(crate) type DeferredBios = List<DeferredBio>;

impl DeferredBio {
    fn new(who: SubmitterRecord) -> Option<ListArc<Self>> {
        // INVARIANT: There is no bio yet.
        let bio = try_pin_init!(Self {
            links <- ListLinks::new(),
            who,
            bios: Atomic::new(ptr::null_mut()),
        });
        // A submitter at its limit of memory must not be better off, so the memory is not charged.
        ListArc::pin_init(bio, GFP_NOWAIT | __GFP_NOWARN).ok()
    }

    /// Returns the first of the bios; they cannot change while they are deferred.
    fn first(&self) -> *mut bindings::bio {
        self.bios.load(ordering::Relaxed)
    }
}

/// A deferred bio, and those after it that continue it: together they become one request, which
/// has one charge.
pub(crate) struct DeferredRun {
    first: ListArc<DeferredBio>,
    rest: DeferredBios,
}

impl DeferredRun {
    /// Removes the first bio of `list`, and those that continue it. Returns their number, too.
    pub(crate) fn take(list: &mut DeferredBios) -> (Option<Self>, u32) {
        let Some(first) = list.pop_front() else {
            return (None, 1);
        };
        let (mut rest, mut last) = (List::new(), first.first());
        let (mut count, mut segments) = (1_u32, 0);
        while let Some(next) = list.pop_front() {
            // SAFETY: By the type invariant of `DeferredBio`.
            segments = unsafe { raw::nrs_bio_join(first.first(), last, next.first(), segments) };
            if segments == 0 || !next.who.is_like(&first.who) {
                list.push_front(next);
                break;
            }
            last = next.first();
            count = count.wrapping_add(1);
            rest.push_back(next);
        }
        (Some(Self { first, rest }), count)
    }

    /// Returns the submitter.
    pub(crate) fn who(&self) -> &SubmitterRecord {
        &self.first.who
    }

    /// Submits the bios.
    fn submit(&self) {
        let take = |deferred: &DeferredBio| deferred.bios.xchg(ptr::null_mut(), ordering::Relaxed);
        let bios = take(&self.first);
        let mut last = bios;
        for next in &self.rest {
            let bio = take(&next);
            // SAFETY: By the type invariant of `DeferredBio`, from which both were moved; a bio
            // that another one continues is not chained to others.
            unsafe { (*last).bi_next = bio };
            last = bio;
        }
        // SAFETY: As above. Their submitters keep the disk open until they end.
        unsafe { raw::nrs_bios_submit(bios) };
    }
}

/// Where a worker gets deferred bios from.
pub(crate) trait DeferredSource: Send + Sync {
    /// Removes and returns the next bios to submit.
    fn next(&self) -> Option<DeferredRun>;

    /// Ends the submission of `run`, which may be part of a request now, or have failed.
    fn submitted(&self, run: &DeferredRun);
}

/// Submission of deferred bios by a worker.
#[pin_data]
pub(crate) struct Submission {
    source: Arc<dyn DeferredSource>,
    #[pin]
    work: Work<Self>,
}

impl_has_work! {
    impl HasWork<Self> for Submission { self.work }
}

impl Submission {
    /// Creates the submission of the bios of `source`.
    pub(crate) fn new(source: Arc<dyn DeferredSource>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                source,
                work <- new_work!("nrs_submission"),
            }),
            GFP_KERNEL,
        )
    }

    /// Makes the worker submit what the source has. Any context.
    pub(crate) fn start(self: &Arc<Self>) {
        // A queued work item also finds bios that the source got meanwhile.
        let _ = queue::submission().enqueue(self.clone());
    }
}

impl WorkItem for Submission {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let worker = Worker::begin();
        while let Some(run) = this.source.next() {
            worker.with(run.who(), || run.submit());
            this.source.submitted(&run);
            misc::cond_resched();
        }
    }
}

/// Maximum number of workers that submit deferred bios at a time; others wait.
const WORKERS_MAX: usize = 64;

/// Workers that submit deferred bios, which find themselves by their task. The work item that a
/// worker runs cannot tell: its function may have freed it.
static WORKERS: [Worker; WORKERS_MAX] = [const { Worker::free() }; WORKERS_MAX];

/// Number of workers that submit deferred bios.
static RUNNING: AtomicWord = AtomicWord::new(0);

/// A worker that submits deferred bios.
///
/// # Invariants
///
/// `task` is 0 or the address of the running worker, which alone sets the other values. `who` is 0
/// or the address of a record that is valid while the worker is in [`WorkerScope::with`].
struct Worker {
    task: AtomicWord,
    who: AtomicWord,
}

/// The running task as a worker that submits deferred bios.
struct WorkerScope(&'static Worker);

impl Worker {
    /// Creates the place of no worker.
    const fn free() -> Self {
        Self {
            task: AtomicWord::new(0),
            who: AtomicWord::new(0),
        }
    }

    /// Makes the running task such a worker until the result is dropped. Waits while there are too
    /// many.
    fn begin() -> WorkerScope {
        let task = current_task();
        RUNNING.add(1);
        loop {
            // INVARIANT: The task is the running one.
            if let Some(free) = WORKERS.iter().find(|worker| worker.task.replace(0, task)) {
                return WorkerScope(free);
            }
            fsleep(Delta::from_millis(1));
        }
    }
}

impl WorkerScope {
    /// Runs `submit`, whose submissions have the submitter `who`.
    fn with(&self, who: &SubmitterRecord, submit: impl FnOnce()) {
        // INVARIANT: The record is valid until this function returns.
        self.0
            .who
            .set(ptr::from_ref(who).expose_provenance() as u64);
        submit();
        self.0.who.set(0);
    }
}

impl Drop for WorkerScope {
    fn drop(&mut self) {
        self.0.task.set(0);
        RUNNING.sub(1);
    }
}

/// Returns the address of the running task.
fn current_task() -> u64 {
    // SAFETY: Always safe to call.
    unsafe { bindings::get_current() }.addr() as u64
}

/// Returns the submitter of the bio that the running worker submits; null if the worker does not
/// submit deferred bios.
pub(in crate::sys) fn recorded() -> *const SubmitterRecord {
    if RUNNING.get() == 0 {
        return ptr::null();
    }
    let task = current_task();
    let worker = WORKERS.iter().find(|worker| worker.task.get() == task);
    worker.map_or(ptr::null(), |worker| {
        ptr::with_exposed_provenance(worker.who.get() as usize)
    })
}
