// SPDX-License-Identifier: GPL-2.0-only

//! What the requests and targets of a service read of its parameters, without its settings' mutex.

use kernel::{prelude::*, str::CString, sync::Arc};

use super::partition::KernelPart;
use crate::{
    sched::{
        order::Level, parameters::service::Service as Values, policy::Config, slots::Slots,
        sources::Sources,
    },
    sys::{
        atomic::{Hint, Word},
        series::{new_spinlock_irq, SpinLockIrq},
    },
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
    /// Open files of `/dev/nrs`, and kernel modules that bring requests as those do.
    User,
    /// A framework that drives the policies itself ([`super::driven`]).
    Framework,
}

/// What all targets of a service have in common.
#[pin_data]
pub(crate) struct Dispatch {
    /// The name of the service, if it has one.
    label: Option<CString>,
    /// The [`Slots`].
    slots: Word,
    ratio: Word,
    stall_ms: Word,
    /// The [`Feed`].
    feed: Word,
    /// 1: a policy asks which file a request is for.
    wants_file: Hint,
    /// 1: it matters in which cgroup a request was made.
    wants_cgroup: Hint,
    /// 1: a policy has more than one class.
    wants_class: Hint,
    /// Index of the [`Level`] among all.
    level: Hint,
    pop_window: Hint,
    /// The [`Sources`].
    sources: Hint,
    unhealthy_factor: Hint,
    #[pin]
    caretaker: SpinLockIrq<Option<Arc<dyn Caretaker>>>,
}

impl Dispatch {
    /// That of the service called `label`, with what `values` say.
    pub(crate) fn new(label: Option<CString>, values: &Values) -> Result<Arc<Self>> {
        let dispatch = Arc::pin_init(
            pin_init!(Self {
                label,
                slots: Word::new(values.slots.bits()),
                ratio: Word::new(0),
                stall_ms: Word::new(0),
                feed: Word::new(Feed::Block as u64),
                wants_file: Hint::new(0),
                wants_cgroup: Hint::new(0),
                wants_class: Hint::new(0),
                level: Hint::new(0),
                pop_window: Hint::new(0),
                sources: Hint::new(0),
                unhealthy_factor: Hint::new(0),
                caretaker <- new_spinlock_irq!(None, "nrs_caretaker"),
            }),
            GFP_KERNEL,
        )?;
        dispatch.follow(values);
        Ok(dispatch)
    }

    /// Follows `values` in all but the slots, of which targets have to be told.
    pub(crate) fn follow(&self, values: &Values) {
        self.ratio.set(values.ratio.get().into());
        self.stall_ms.set(values.stall_ms.get().into());
        let level = Level::ALL.iter().position(|level| *level == values.level);
        self.level.set(level.unwrap_or(0) as u64);
        self.pop_window.set(values.pop_window.get().into());
        self.sources.set(values.sources.bits().into());
        self.unhealthy_factor
            .set(values.unhealthy_factor.get().into());
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
    pub(crate) fn slots(&self) -> Slots {
        Slots::from_bits(self.slots.get())
    }

    /// Sets the slots of each target, which has to be told ([`super::target::Target::follow_slots`]).
    pub(crate) fn set_slots(&self, slots: Slots) {
        self.slots.set(slots.bits());
    }

    /// Returns the high-priority requests in a row while a regular one is pending.
    pub(crate) fn ratio(&self) -> u32 {
        self.ratio.get() as u32
    }

    /// Returns the stall timeout: eligible requests not dispatched for this long, ms, are dispatched
    /// without slots; 0: never.
    pub(crate) fn stall_ms(&self) -> u32 {
        self.stall_ms.get() as u32
    }

    /// Returns which requests keep their order.
    pub(crate) fn level(&self) -> Level {
        let index = self.level.get() as usize;
        Level::ALL.get(index).copied().unwrap_or_default()
    }

    /// Returns how many requests of a file are known after their end.
    pub(crate) fn pop_window(&self) -> u32 {
        self.pop_window.get() as u32
    }

    /// Returns what makes a request of a block device one of high priority.
    pub(crate) fn sources(&self) -> Sources {
        Sources::from_bits(self.sources.get() as u32)
    }

    /// Returns for how many times `at_max` no request may be decided before the service is
    /// unhealthy; 0: never.
    pub(crate) fn unhealthy_factor(&self) -> u32 {
        self.unhealthy_factor.get() as u32
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

    /// Whether it matters in which cgroup a request was made.
    pub(crate) fn wants_cgroup(&self) -> bool {
        self.wants_cgroup.get() != 0
    }

    /// Whether a policy has more than one class. While that changes, requests are classified one by one.
    pub(crate) fn wants_class(&self) -> bool {
        self.wants_class.get() != 0
    }

    /// Says what the policies with `configs` ask of a request.
    pub(crate) fn serve<'a>(&self, configs: impl Iterator<Item = &'a Config> + Clone) {
        let any = |asks: fn(&Config) -> bool| configs.clone().any(asks).into();
        self.wants_file
            .set(any(|config| KernelPart::wants_file(config.kind())));
        self.wants_cgroup.set(any(Config::wants_cgroup));
        self.wants_class.set(any(|config| {
            KernelPart::only_class_of(config.kind()).is_none()
        }));
    }
}
