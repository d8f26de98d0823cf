// SPDX-License-Identifier: GPL-2.0-only

//! Shares of the tags of a disk.
//!
//! A request has a tag before a scheduler sees it. Submitters that find no tag wait in order of
//! arrival, whatever the policy. So a submitter with queued requests leaves tags to others: it may
//! have as many requests queued as there are free tags. If n submitters want more, each gets one
//! part in n + 1 of the tags that are not in flight, and one part stays free.
//!
//! Submitters are users in cgroups, distinguished by a hash. Kernel threads that work for no user
//! are neither counted nor blocked. Other tasks wait for their writes, and each waits for one tag
//! at a time.
//!
//! # Why no wake-up is lost
//!
//! A submitter waits only while requests of its own are queued, which are dispatched without its
//! help. A task that waits first marks its submitter, then reads the counts, and sleeps before the
//! lock is released. A task that dispatches a request first decrements the count, then checks for
//! the mark, and takes the lock before the wake-up. Words are in one total order
//! ([`crate::sched::atomic`]), so at least one of both tasks sees the other. The dispatch of the
//! last request wakes all tasks of the submitter. A frozen queue dispatches all its requests.

use kernel::{
    new_condvar, new_spinlock,
    prelude::*,
    sync::{Arc, CondVar, CondVarTimeoutResult, SpinLock},
    time::msecs_to_jiffies,
};
use pin_init::pin_init_array_from_fn;

use crate::{
    engine::target::Target,
    sched::key::Hasher,
    sys::{
        atomic::AtomicWord,
        bio::BioView,
        elevator::RequestQueue,
        node::NodeAccount,
        task::{self, Submitter},
    },
};

/// Number of submitters that are distinguished.
const SUBMITTERS: usize = 64;

/// Time after which a blocked task checks its condition again, ms.
const LOOK_MS: u32 = 1000;

/// State of a submitter.
#[pin_data]
struct SubmitterCount {
    /// Queued requests.
    queued: AtomicWord,
    /// Tasks that are blocked.
    waiting: AtomicWord,
    #[pin]
    bell: CondVar,
}

/// The queued requests of a disk, by submitter.
#[pin_data]
pub(super) struct Tags {
    queue: Arc<RequestQueue>,
    target: Arc<Target>,
    /// Queued requests of all submitters.
    total: AtomicWord,
    #[pin]
    gate: SpinLock<()>,
    #[pin]
    counts: [SubmitterCount; SUBMITTERS],
}

/// Returns the number of a submitter; [`NodeAccount::NO_SUBMITTER`] for an anonymous submitter.
fn number(who: &Submitter<'_>) -> u8 {
    let Some((uid, _)) = who.owner() else {
        return NodeAccount::NO_SUBMITTER;
    };
    let hash = Hasher::new(0).mix(uid.into(), who.cgroup().unwrap_or(0));
    (hash % SUBMITTERS as u64) as u8
}

impl Tags {
    /// Creates the counts of a disk without requests, which is `target` of its service.
    pub(super) fn new(queue: Arc<RequestQueue>, target: Arc<Target>) -> Result<Pin<KBox<Self>>> {
        let count = |_| {
            pin_init!(SubmitterCount {
                queued: AtomicWord::new(0),
                waiting: AtomicWord::new(0),
                bell <- new_condvar!("nrs_tag_waiters"),
            })
        };
        let tags = pin_init!(Self {
            queue,
            target,
            total: AtomicWord::new(0),
            gate <- new_spinlock!((), "nrs_tags"),
            counts <- pin_init_array_from_fn(count),
        });
        KBox::pin_init(tags, GFP_KERNEL)
    }

    /// Counts a request; returns the number of its submitter.
    pub(super) fn enter(&self, who: &Submitter<'_>) -> u8 {
        let number = number(who);
        if let Some(count) = self.counts.get(usize::from(number)) {
            self.total.add(1);
            count.queued.add(1);
        }
        number
    }

    /// Returns the number of further requests that a submitter with `count` may queue.
    fn room(&self, count: &SubmitterCount) -> u64 {
        let tags = self.queue.tags();
        // Other hardware queues may have many in flight.
        let tags = tags.saturating_sub(self.target.active()).max(tags / 2);
        let free = u64::from(tags).saturating_sub(self.total.get());
        match count.queued.get() {
            0 => free.max(1),
            queued => free.saturating_sub(queued),
        }
    }

    /// Removes a dispatched request of submitter `number` from the counts.
    pub(super) fn leave(&self, number: u8) {
        let Some(count) = self.counts.get(usize::from(number)) else {
            return;
        };
        self.total.sub(1);
        let was_last = count.queued.sub(1) == 1;
        if count.waiting.get() == 0 {
            return;
        }
        // A task that has seen the request is asleep by then.
        drop(self.gate.lock());
        if was_last {
            count.bell.notify_all();
        } else {
            // Two, because the share may have grown when other submitters have fewer requests.
            for _ in 0..self.room(count).min(2) {
                count.bell.notify_one();
            }
        }
    }

    /// Blocks the running task while the submitter of `bio` has too many requests queued, unless
    /// other tasks may depend on the bio. Returns true if there are too many requests and the bio
    /// must not wait.
    #[inline]
    pub(super) fn hold_back(&self, bio: BioView<'_>) -> bool {
        let total = self.total.get();
        total != 0 && total >= u64::from(self.queue.tags() / 4) && self.hold_back_over(bio)
    }

    #[cold]
    fn hold_back_over(&self, bio: BioView<'_>) -> bool {
        let who = task::submitter().of_bio(bio);
        let Some(count) = self.counts.get(usize::from(number(&who))) else {
            return false;
        };
        let is_over = || self.room(count) == 0 && !self.queue.is_dying();
        if bio.is_urgent() || bio.is_swap() || !is_over() {
            return false;
        }
        if bio.is_nowait() {
            return true;
        }
        if !task::can_be_throttled() {
            return false;
        }
        count.waiting.add(1);
        let mut gate = self.gate.lock();
        while is_over() {
            let look = msecs_to_jiffies(LOOK_MS);
            let woken = count.bell.wait_interruptible_timeout(&mut gate, look);
            if matches!(woken, CondVarTimeoutResult::Signal { .. }) {
                break;
            }
        }
        drop(gate);
        count.waiting.sub(1);
        false
    }
}
