// SPDX-License-Identifier: GPL-2.0-only

//! What all targets of a service are told of how to dispatch.

use kernel::{
    new_spinlock_irq,
    prelude::*,
    str::CString,
    sync::{Arc, SpinLockIrq},
};

use crate::{
    sched::parameters::service::Service as Values,
    sys::atomic::{Hint, Word},
};

/// Who serves requests that may have a slot and have nobody about to serve them.
pub(crate) trait Caretaker: Send + Sync {
    /// There may be some. Any context.
    fn called(self: Arc<Self>);
}

/// Who brings the requests of a service; its first client decides.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Feed {
    /// Device-mapper targets.
    Block,
    /// Open files of `/dev/nrs`.
    User,
}

/// What all targets of a service have in common.
#[pin_data]
pub(crate) struct Dispatch {
    /// The name of the service, if it has one.
    label: Option<CString>,
    slots: Word,
    ratio: Word,
    stall_ms: Word,
    /// The [`Feed`].
    feed: Word,
    /// 1: a policy asks which file a request is for.
    wants_file: Hint,
    #[pin]
    caretaker: SpinLockIrq<Option<Arc<dyn Caretaker>>>,
}

impl Dispatch {
    /// That of the service called `label`, with what `values` say.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(label: Option<CString>, values: &Values) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                label,
                slots: Word::new(values.slots.get().into()),
                ratio: Word::new(values.ratio.get().into()),
                stall_ms: Word::new(values.stall_ms.get().into()),
                feed: Word::new(Feed::Block as u64),
                wants_file: Hint::new(0),
                caretaker <- new_spinlock_irq!(None, "nrs_caretaker"),
            }),
            GFP_KERNEL,
        )
    }

    /// Who is called from now on; what it owns may own this, so there is to be nobody in the end.
    pub(crate) fn set_caretaker(&self, caretaker: Option<Arc<dyn Caretaker>>) {
        let before = core::mem::replace(&mut *self.caretaker.lock(), caretaker);
        // Without the lock.
        drop(before);
    }

    /// Calls who takes care of requests that nobody else is about to serve. Any context.
    pub(crate) fn call_caretaker(&self) {
        let caretaker = self.caretaker.lock();
        if let Some(caretaker) = &*caretaker {
            // With the lock, so that the reference which goes here is not the last one: timers must not free their owner.
            caretaker.clone().called();
        }
    }

    /// The name of the service; empty if it has none.
    pub(crate) fn label(&self) -> &str {
        let label = self.label.as_ref();
        label.and_then(|label| label.to_str().ok()).unwrap_or("")
    }

    /// Slots of each target, as configured.
    pub(crate) fn slots(&self) -> u32 {
        self.slots.get() as u32
    }

    /// Sets the slots of each target, which has to be told ([`super::target::Target::follow_slots`]).
    pub(crate) fn set_slots(&self, slots: u32) {
        self.slots.set(slots.into());
    }

    /// High-priority requests in a row while a regular one waits.
    pub(crate) fn ratio(&self) -> u32 {
        self.ratio.get() as u32
    }

    /// Sets the ratio.
    pub(crate) fn set_ratio(&self, ratio: u32) {
        self.ratio.set(ratio.into());
    }

    /// How long requests wait without progress before they are sent down anyway, ms; 0: for ever.
    pub(crate) fn stall_ms(&self) -> u32 {
        self.stall_ms.get() as u32
    }

    /// Sets how long requests wait without progress.
    pub(crate) fn set_stall_ms(&self, stall_ms: u32) {
        self.stall_ms.set(stall_ms.into());
    }

    /// Whether the clients are of kind `feed`, or were when there were any.
    pub(crate) fn is_fed_by(&self, feed: Feed) -> bool {
        self.feed.get() == feed as u64
    }

    /// Says of which kind the clients are.
    pub(crate) fn set_feed(&self, feed: Feed) {
        self.feed.set(feed as u64);
    }

    /// Whether a policy asks which file a request is for.
    pub(crate) fn wants_file(&self) -> bool {
        self.wants_file.get() != 0
    }

    /// Says whether a policy asks which file a request is for.
    pub(crate) fn set_wants_file(&self, wanted: bool) {
        self.wants_file.set(wanted.into());
    }
}
