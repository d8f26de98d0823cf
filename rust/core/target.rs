// SPDX-License-Identifier: GPL-2.0-only

//! A backing device of a service: what is decided for it and how it goes down.
//!
//! ```text
//!             place on the target free            work item
//!   decided ────────────────────────────▶ ready ─────────────▶ submitted ──▶ ended
//!      │                                    ▲                                  │
//!      └── none free ──▶ parked ────────────┘◀────── a place is free ──────────┘
//! ```
//!
//! Each target has its own work item: submitting may block, and a device that blocks stops nobody else.
//! A parked request has no slot of the service.

use kernel::{
    impl_has_work, new_spinlock_irq, new_work,
    prelude::*,
    sync::{
        atomic::{ordering, Atomic},
        Arc, SpinLockIrq,
    },
    workqueue::{Work, WorkItem},
};

use super::dispatch::Dispatch;
use crate::{
    sched::item::Fifo,
    sys::{
        atomic::{Hint, Word},
        misc,
        node::{Held, NodeFifo},
        queue,
    },
};

/// Requests on their way down.
struct Lists {
    /// With a slot; the work item submits them.
    ready: NodeFifo,
    /// Without a slot.
    parked: NodeFifo,
    /// The work item is queued or running and will look at `ready` again.
    working: bool,
}

/// Requests at a device and how many may be, in one word so that they are compared together.
///
/// # Invariants
///
/// The low half counts requests at the device, which are far fewer than 2^32; the high half is the limit.
#[derive(Clone, Copy)]
struct Places(u64);

impl Places {
    const fn new(limit: u32) -> Self {
        Self((limit as u64) << 32)
    }

    const fn active(self) -> u32 {
        self.0 as u32
    }

    const fn limit(self) -> u32 {
        (self.0 >> 32) as u32
    }

    const fn with_limit(self, limit: u32) -> Self {
        Self(Self::new(limit).0 | self.active() as u64)
    }
}

/// A backing device of a service.
#[pin_data]
pub(crate) struct Target {
    index: u16,
    number: Atomic<u32>,
    users: Atomic<u32>,
    depth: Atomic<u32>,
    places: Word,
    /// When something last came back from the device, ms of the coarse clock.
    life: Hint,
    #[pin]
    lists: SpinLockIrq<Lists>,
    #[pin]
    work: Work<Self>,
}

impl_has_work! {
    impl HasWork<Self> for Target { self.work }
}

impl Target {
    /// A target without users.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(index: u16) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                index,
                number: Atomic::new(0),
                users: Atomic::new(0),
                depth: Atomic::new(0),
                places: Word::new(Places::new(1).0),
                life: Hint::new(0),
                lists <- new_spinlock_irq!(Lists {
                    ready: NodeFifo::new(),
                    parked: NodeFifo::new(),
                    working: false,
                }, "nrs_target"),
                work <- new_work!("nrs_target"),
            }),
            GFP_KERNEL,
        )
    }

    /// Its place in the service.
    pub(crate) fn index(&self) -> u16 {
        self.index
    }

    /// Device number.
    pub(crate) fn number(&self) -> u32 {
        self.number.load(ordering::Relaxed)
    }

    /// Clients that use it.
    pub(crate) fn users(&self) -> u32 {
        self.users.load(ordering::Relaxed)
    }

    /// Requests that may be at the device.
    pub(crate) fn limit(&self) -> u32 {
        self.places().limit()
    }

    /// Requests at the device.
    pub(crate) fn active(&self) -> u32 {
        self.places().active()
    }

    fn places(&self) -> Places {
        Places(self.places.get())
    }

    /// Counts a user; the first one says which device it is and how many requests it keeps in flight
    /// (0: any number).
    pub(crate) fn attach(&self, number: u32, depth: u32) {
        if self.users.fetch_add(1, ordering::Full) == 0 {
            self.number.store(number, ordering::Relaxed);
            self.depth.store(depth, ordering::Relaxed);
        }
    }

    /// Ends a use.
    pub(crate) fn detach(&self) {
        self.users.fetch_sub(1, ordering::Full);
    }

    /// Sets how many requests may be at the device: `share`, but no more than it keeps in flight.
    /// Returns what is in effect.
    pub(crate) fn set_limit(&self, share: u32) -> u32 {
        let depth = match self.depth.load(ordering::Relaxed) {
            0 => u32::MAX,
            depth => depth,
        };
        let limit = share.min(depth);
        self.places
            .change(|places| Some(Places(places).with_limit(limit).0));
        limit
    }

    /// The last sign of life of the device, ms of the coarse clock; 0: there was none.
    pub(crate) fn life(&self) -> u64 {
        self.life.get()
    }

    /// Something came back from the device at `now`.
    pub(crate) fn note_life(&self, now: u64) {
        // Others read it all the time.
        if self.life.get() != now {
            self.life.set(now);
        }
    }

    /// Takes a place at the device if one is free.
    pub(crate) fn take(&self) -> bool {
        self.places.change(|places| {
            let free = Places(places).active() < Places(places).limit();
            free.then_some(places.wrapping_add(1))
        })
    }

    /// Takes a place whether or not one is free.
    pub(crate) fn charge(&self) {
        self.places.add(1);
    }

    /// Gives a place back.
    pub(crate) fn put(&self) {
        self.places.sub(1);
    }

    /// Takes a decided request that has a slot of the service. Without a free place it is parked and its
    /// slot given back. With `force` it has no slot and goes down whether or not a place is free. Returns whether the caller has to [`Target::kick`] once it holds no lock.
    pub(crate) fn place(&self, mut held: Held, dispatch: &Dispatch, force: bool) -> bool {
        let priority = held.account().priority;
        let mut lists = self.lists.lock();
        if force {
            self.charge();
        } else if !self.take() {
            // Marked first, then tried again: see `dispatch`.
            dispatch.set_parked(self.index);
            if !self.take() {
                held.account_mut().slot = false;
                lists.parked.push(held);
                drop(lists);
                dispatch.put(priority);
                return false;
            }
            if lists.parked.is_empty() {
                dispatch.clear_parked(self.index);
            }
        }
        held.account_mut().slot = !force;
        held.account_mut().placed = true;
        lists.ready.push(held);
        !core::mem::replace(&mut lists.working, true)
    }

    /// Lets parked requests go on while there are places and slots; with `force`, all of them without.
    /// Returns like [`Target::place`].
    pub(crate) fn unpark(&self, dispatch: &Dispatch, force: bool) -> bool {
        let mut lists = self.lists.lock();
        while let Some(front) = lists.parked.front() {
            let priority = front.account().priority;
            if force {
                self.charge();
            } else {
                if !self.take() {
                    break;
                }
                if !dispatch.take(priority) {
                    self.put();
                    break;
                }
            }
            let Some(mut held) = lists.parked.pop() else {
                break;
            };
            held.account_mut().slot = !force;
            held.account_mut().placed = true;
            held.note_wait(misc::now());
            lists.ready.push(held);
        }
        if lists.parked.is_empty() {
            dispatch.clear_parked(self.index);
        }
        !lists.ready.is_empty() && !core::mem::replace(&mut lists.working, true)
    }

    /// Has the work item submit what is ready.
    pub(crate) fn kick(self: &Arc<Self>) {
        // `working` says that it is not queued; should it be, it runs anyway.
        let _ = queue::queue().enqueue(self.clone());
    }

    fn submit_ready(&self) {
        loop {
            let mut batch = NodeFifo::new();
            {
                let mut lists = self.lists.lock();
                batch.append(&mut lists.ready);
                if batch.is_empty() {
                    lists.working = false;
                    return;
                }
            }
            misc::plugged(|| {
                while let Some(held) = batch.pop() {
                    held.submit();
                }
            });
            misc::cond_resched();
        }
    }
}

impl WorkItem for Target {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.submit_ready();
    }
}
