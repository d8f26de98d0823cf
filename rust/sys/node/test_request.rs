// SPDX-License-Identifier: GPL-2.0-only

//! Requests for tests; a probe records their submissions.

use kernel::{
    prelude::*,
    sync::{
        atomic::{ordering, Atomic},
        Arc,
    },
};

use super::{Held, NodeAccount};
use crate::{
    sched::{
        attr::Priority,
        item::{ByteRange, Cost, Direction},
        units::NSEC_PER_SEC,
    },
    sys::{
        chardev::boxed::{BoxedRequest, Submit},
        series::{new_spinlock_irq, SpinLockIrq},
    },
};

/// Number of submissions that one probe can record.
const REMEMBERED: usize = 256;

/// Submissions of the requests of a test.
#[pin_data]
pub(crate) struct SubmitProbe {
    submitted: Atomic<u64>,
    /// Name and account of each submitted request, in order.
    #[pin]
    seen: SpinLockIrq<KVec<(u64, NodeAccount)>>,
}

impl SubmitProbe {
    /// Creates a probe without submissions.
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

    /// Returns the number of submitted requests.
    pub(crate) fn submitted(&self) -> u64 {
        self.submitted.load(ordering::Acquire)
    }

    /// Returns the name and the account of the submission with this `index`.
    pub(crate) fn seen(&self, index: usize) -> Option<(u64, NodeAccount)> {
        self.seen.lock().get(index).copied()
    }

    /// Waits until `count` requests were submitted; returns false after ten seconds.
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

/// Data of a request of a test.
struct TestRequest {
    name: u64,
    probe: Arc<SubmitProbe>,
}

impl Submit for TestRequest {
    /// Records the submission and ends the request.
    fn submitted(this: BoxedRequest<Self>) {
        let TestRequest { name, probe } = this.value();
        let seen = (*name, this.account());
        let _ = probe.seen.lock().push_within_capacity(seen);
        probe.submitted.fetch_add(1, ordering::Release);
    }
}

/// Creates request `name` to read `bytes` of target 0, held since `name` ns.
pub(crate) fn request(
    probe: &Arc<SubmitProbe>,
    name: u64,
    bytes: u64,
    priority: Priority,
) -> Result<Held> {
    let fake = TestRequest {
        name,
        probe: probe.clone(),
    };
    let cost = Cost::new(Direction::Read, bytes);
    let range = ByteRange::new(0, 0, bytes);
    let boxed = BoxedRequest::new(fake, cost, range, NodeAccount::new(priority, 0), GFP_KERNEL)?;
    let mut held = boxed.into_held();
    held.prepare_queued(name);
    Ok(held)
}

/// Ends a request without submitting it.
pub(crate) fn discard(held: Held) {
    drop(BoxedRequest::<TestRequest>::from_held(held));
}
