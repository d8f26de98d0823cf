// SPDX-License-Identifier: GPL-2.0-only

//! Requests for tests: submitting one tells a probe.

use core::ptr::NonNull;

use kernel::{
    new_spinlock_irq,
    prelude::*,
    sync::{
        atomic::{ordering, Atomic},
        Arc, SpinLockIrq,
    },
};

use super::{Account, Held, Node, Ops};
use crate::sched::{
    attr::Priority,
    item::{Cost, Direction, Spot},
    units::NSEC_PER_SEC,
};

/// Requests that one probe can remember.
const REMEMBERED: usize = 256;

/// What became of the requests of a test.
#[pin_data]
pub(crate) struct Probe {
    submitted: Atomic<u64>,
    /// Name and account of the requests submitted, in order.
    #[pin]
    seen: SpinLockIrq<KVec<(u64, Account)>>,
}

impl Probe {
    /// A probe that has seen nothing.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let seen = KVec::with_capacity(REMEMBERED, GFP_KERNEL)?;
        Arc::pin_init(
            pin_init!(Self {
                submitted: Atomic::new(0),
                seen <- new_spinlock_irq!(seen, "nrs_probe"),
            }),
            GFP_KERNEL,
        )
    }

    /// Requests submitted.
    pub(crate) fn submitted(&self) -> u64 {
        self.submitted.load(ordering::Acquire)
    }

    /// Name and account of request `index` in the order of submission.
    pub(crate) fn seen(&self, index: usize) -> Option<(u64, Account)> {
        self.seen.lock().get(index).copied()
    }

    /// Waits until `count` requests were submitted; whether they were within ten seconds.
    pub(crate) fn wait_for(&self, count: u64) -> bool {
        let until = crate::sys::misc::now() + 10 * NSEC_PER_SEC;
        while self.submitted() < count {
            if crate::sys::misc::now() > until {
                return false;
            }
            kernel::time::delay::fsleep(kernel::time::Delta::from_micros(100));
        }
        true
    }
}

/// A request and who wants to know of it.
#[repr(C)]
struct Fake {
    node: Node,
    name: u64,
    probe: Arc<Probe>,
}

const OPS: &Ops = &Ops { hold, submit };

/// Nothing to prepare.
///
/// # Safety
///
/// As [`Ops::hold`] says.
unsafe fn hold(_node: NonNull<Node>) {}

/// Tells the probe and ends the request.
///
/// # Safety
///
/// As [`Ops::submit`] says.
unsafe fn submit(node: NonNull<Node>) {
    // SAFETY: All nodes with these ops are the first field of a box that `request` made.
    let fake = unsafe { KBox::from_raw(node.as_ptr().cast::<Fake>()) };
    let _ = fake
        .probe
        .seen
        .lock()
        .push_within_capacity((fake.name, *fake.node.account()));
    fake.probe.submitted.fetch_add(1, ordering::Release);
}

/// Request `name` to read `bytes` of target 0, held since `name` ns.
pub(crate) fn request(
    probe: &Arc<Probe>,
    name: u64,
    bytes: u64,
    priority: Priority,
) -> Result<Held> {
    let node = Node::new(
        OPS,
        Cost::new(Direction::Read, bytes),
        Spot::new(0, 0, bytes),
        Account::new(priority),
    );
    let fake = Fake {
        node,
        name,
        probe: probe.clone(),
    };
    let fake = KBox::into_raw(KBox::new(fake, GFP_KERNEL)?);
    // SAFETY: From a box, so it is valid, and not shared; the node is its first field.
    let mut held = unsafe { Held::from_raw(NonNull::new_unchecked(fake.cast())) };
    held.hold(name);
    Ok(held)
}

/// Ends a request without submitting it.
pub(crate) fn discard(held: Held) {
    if let Some(node) = held.into_raw() {
        // SAFETY: All requests of tests are made by `request`.
        drop(unsafe { KBox::from_raw(node.as_ptr().cast::<Fake>()) });
    }
}
