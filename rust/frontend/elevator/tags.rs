// SPDX-License-Identifier: GPL-2.0-only

//! Tags of a disk, divided among the owners of its queued requests by
//! [`tag_shares`](crate::sched::tag_shares).
//!
//! Bios and requests of an owner without room are deferred, even those that a kernel thread submits
//! for the owner. They have no tag while they wait, so a throttled owner may have any number, and
//! no task is blocked for them.
//!
//! Not deferred are requests that other users may wait for: metadata, swap, parts of a flush, and
//! requests of tasks that reclaim memory. Requests of the real-time class have a queue of their
//! own. Writes of zoned disks keep their order within a zone, and requests that `nrs_pop` orders
//! keep the order of arrival.

use core::sync::atomic::{AtomicBool, Ordering};

use kernel::{
    list::ListArc,
    new_spinlock,
    prelude::*,
    sync::{Arc, SpinLock},
};

use crate::{
    engine::target::Target,
    sched::{
        attr::cgroup::CgroupOwner,
        tag_shares::{Owner, TagShares},
    },
    sys::{
        atomic::Hint,
        bio::BioView,
        elevator::{
            DeferredBio, DeferredBios, DeferredRun, DeferredSource, Request, RequestQueue,
            Submission, SubmittedBio,
        },
        misc,
        task::{self, RecordedParts, Submitter},
    },
};

/// Number of pages of RAM for each deferred request that a disk may have; further ones take tags.
/// Most deferred requests keep a page at least, and dirty pages are a fifth of RAM at most.
const PAGES_EACH: u64 = 4;

/// Shares of the tags of a disk, and its deferred requests.
#[pin_data]
struct Shares {
    queue: Arc<RequestQueue>,
    target: Arc<Target>,
    /// Number of queued requests.
    queued: Hint,
    /// Number of deferred requests.
    deferred: Hint,
    /// True if all deferred requests are to be submitted, because the scheduler has been replaced.
    closed: AtomicBool,
    /// Maximum number of deferred requests.
    deferred_max: u32,
    #[pin]
    table: SpinLock<TagShares<DeferredBios>>,
}

/// Tags of a disk.
pub(super) struct Tags {
    shares: Arc<Shares>,
    submission: Arc<Submission>,
}

/// Returns the owner of the requests of a submitter; of the cgroup, if the task has none.
fn owner(who: &Submitter<'_>) -> Owner {
    let uid = who.task_owner().map(|(uid, _)| uid);
    let of_cgroup = || match who.cgroup_names()?.1? {
        CgroupOwner::User(uid) => Some(uid),
        CgroupOwner::Cgroup(_) => None,
    };
    Owner {
        uid: uid.or_else(of_cgroup),
        cgroup: who.charged_cgroup(),
    }
}

impl Shares {
    /// Returns the number of tags to divide.
    fn tags(&self) -> u32 {
        let tags = self.queue.tags();
        // Other hardware queues may have many in flight.
        tags.saturating_sub(self.target.active()).max(tags / 2)
    }

    /// Runs `f` on the shares, and updates the copies of their counts.
    #[inline]
    fn with<R>(&self, f: impl FnOnce(&mut TagShares<DeferredBios>) -> R) -> R {
        let mut table = self.table.lock();
        let done = f(&mut table);
        self.queued.set(table.queued().into());
        self.deferred.set(table.deferred().into());
        done
    }

    /// Removes a request of the owner at `index` from the counts. Returns true if deferred requests
    /// are to be submitted.
    #[inline]
    fn leave(&self, index: u32) -> bool {
        self.with(|table| table.leave(index, || self.tags()))
    }

    /// Returns true if so few requests are queued that none is deferred.
    #[inline]
    fn are_few(&self) -> bool {
        let queued = self.queued.get();
        queued == 0 || queued < u64::from(self.queue.tags() / 8)
    }

    /// Returns the address that identifies the counts in a record of a submitter.
    fn id(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }
}

impl DeferredSource for Shares {
    fn next(&self) -> Option<DeferredRun> {
        if self.deferred.get() == 0 {
            return None;
        }
        let tags = (!self.closed.load(Ordering::Acquire)).then(|| self.tags());
        let (index, run) = self.with(|table| table.next(tags, DeferredRun::take))?;
        let run = run?;
        if tags.is_some() {
            run.who().set_counted(self.id(), index);
        }
        Some(run)
    }

    fn submitted(&self, run: &DeferredRun) {
        // The bios were merged into a request, or have failed.
        if let Some(index) = run.who().take_counted(self.id()) {
            self.leave(index);
        }
    }
}

impl Tags {
    /// Creates the shares of a disk without requests, which is `target` of its service.
    pub(super) fn new(queue: Arc<RequestQueue>, target: Arc<Target>) -> Result<Self> {
        let table = TagShares::new(misc::random()).map_err(|_| ENOMEM)?;
        let shares = pin_init!(Shares {
            queue,
            target,
            queued: Hint::new(0),
            deferred: Hint::new(0),
            closed: AtomicBool::new(false),
            deferred_max: u32::try_from(misc::pages() / PAGES_EACH).unwrap_or(u32::MAX),
            table <- new_spinlock!(table, "nrs_tags"),
        });
        let shares = Arc::pin_init(shares, GFP_KERNEL)?;
        Ok(Self {
            submission: Submission::new(shares.clone())?,
            shares,
        })
    }

    /// Returns the number of deferred requests.
    pub(super) fn deferred(&self) -> u64 {
        self.shares.deferred.get()
    }

    /// Returns true if `bio`, submitted by `who`, may wait without a tag.
    fn may_defer(bio: BioView<'_>, who: &Submitter<'_>) -> bool {
        let is_awaited = bio.is_urgent() || bio.is_swap() || who.reclaims();
        !(is_awaited || bio.is_realtime() || bio.is_zoned_write())
    }

    /// Defers a bio if its owner has no room; returns the bio if it is to be submitted now.
    /// `parts`: what policies may need of the submitter.
    #[inline]
    pub(super) fn defer_bio(
        &self,
        bio: SubmittedBio,
        parts: impl FnOnce() -> RecordedParts,
        may_defer: impl FnOnce() -> bool,
    ) -> Result<(), SubmittedBio> {
        if self.shares.are_few() || !may_defer() {
            return Err(bio);
        }
        self.defer_bio_over(bio, parts())
    }

    #[cold]
    fn defer_bio_over(&self, bio: SubmittedBio, parts: RecordedParts) -> Result<(), SubmittedBio> {
        let shares = &self.shares;
        let who = task::submitter().of_bio(bio.view());
        if who.is_counted(shares.id())
            || shares.queue.is_controlled()
            || !Self::may_defer(bio.view(), &who)
        {
            return Err(bio);
        }
        let (owner, tags) = (owner(&who), shares.tags());
        let is_over = {
            let table = shares.table.lock();
            table.is_over(owner, tags) && table.deferred() < shares.deferred_max
        };
        let Some(record) = is_over.then(|| who.record(parts)).flatten() else {
            return Err(bio);
        };
        self.add(owner, bio.defer(record)?);
        Ok(())
    }

    /// Counts a request that is being inserted and returns it with the index of its owner, or
    /// defers it if its owner has no room. `may_defer`: the request may wait without a tag.
    pub(super) fn enter<'a>(
        &self,
        request: Request<'a>,
        who: &Submitter<'_>,
        parts: impl FnOnce() -> RecordedParts,
        may_defer: bool,
    ) -> Option<(Request<'a>, u16)> {
        let shares = &self.shares;
        if let Some(index) = who.take_counted(shares.id()) {
            return Some((request, index as u16));
        }
        let owner = owner(who);
        if shares.are_few() || !may_defer || !Self::may_defer(request.view(), who) {
            return Some((request, shares.with(|table| table.enter(owner)) as u16));
        }
        self.enter_or_defer(request, who, owner, parts())
    }

    /// Counts a request of `owner`, or defers it if its owner has no room.
    #[cold]
    fn enter_or_defer<'a>(
        &self,
        request: Request<'a>,
        who: &Submitter<'_>,
        owner: Owner,
        parts: RecordedParts,
    ) -> Option<(Request<'a>, u16)> {
        let shares = &self.shares;
        let tags = shares.tags();
        let entered = shares.with(|table| {
            let is_over = table.is_over(owner, tags) && table.deferred() < shares.deferred_max;
            (!is_over).then(|| table.enter(owner))
        });
        if let Some(index) = entered {
            return Some((request, index as u16));
        }
        let deferred = match who.record(parts) {
            Some(record) => request.defer(record),
            None => Err(request),
        };
        match deferred {
            Ok(deferred) => {
                self.add(owner, deferred);
                None
            }
            Err(request) => Some((request, shares.with(|table| table.enter(owner)) as u16)),
        }
    }

    /// Adds a deferred request of `owner`.
    fn add(&self, owner: Owner, deferred: ListArc<DeferredBio>) {
        let shares = &self.shares;
        let tags = shares.tags();
        let starts = shares.with(|table| {
            table.defer(owner, |list| list.push_back(deferred));
            // The last request of the owner may have left meanwhile.
            table.has_room(owner, tags)
        });
        if starts {
            self.submission.start();
        }
    }

    /// Removes a dispatched request of the owner at `index` from the counts.
    #[inline]
    pub(super) fn leave(&self, index: u16) {
        if self.shares.leave(index.into()) {
            self.submission.start();
        }
    }
}

impl Drop for Tags {
    fn drop(&mut self) {
        self.shares.closed.store(true, Ordering::Release);
        self.submission.start();
    }
}
