// SPDX-License-Identifier: GPL-2.0-only

//! Reports the loss and the recovery of a client (uevent, kernel log).
//!
//! The kernel log gets a line for each change. Listeners for changes of the mapped device get a
//! uevent with `NRS_EVENT=lost` or `NRS_EVENT=found`, `NRS_CLIENT=…` and `NRS_SERVICE=…`. If
//! requests of a lost client are to fail, its queued requests are dispatched, so that they fail.
//! All requests queued for its device are dispatched with them, because queues are not separated by
//! client.
//!
//! Losses and recoveries alternate, so the number of changes determines the reports to make.

use kernel::{
    impl_has_work, new_mutex, new_work,
    prelude::*,
    str::CString,
    sync::{Arc, Mutex},
    workqueue::{Work, WorkItem},
};

use crate::{
    engine::partitions::Partitions,
    sys::{atomic::AtomicWord, disk::Disk, misc, queue},
};

/// State of the reporting work.
struct NotifierContext {
    /// The mapped device, which emits the uevents.
    disk: Option<Disk>,
    /// Number of changes that were reported.
    reported: u64,
    /// True if queued requests of a lost client are to fail.
    fails: bool,
    partitions: Arc<Partitions>,
    /// Index of the client's target.
    target: u16,
}

/// Reporter of the changes of one client.
#[pin_data]
pub(crate) struct ClientNotifier {
    client: CString,
    service: CString,
    /// Number of changes: lost, found, lost, …
    changes: AtomicWord,
    /// State of the work; `None`: the client was removed.
    #[pin]
    context: Mutex<Option<NotifierContext>>,
    #[pin]
    work: Work<Self>,
}

impl_has_work! {
    impl HasWork<Self> for ClientNotifier { self.work }
}

/// Returns `name` with control characters replaced, for one line of text.
fn printable(name: &CStr) -> Result<CString> {
    let mut bytes = KVec::new();
    for byte in name.to_bytes() {
        let byte = if byte.is_ascii_control() { b'?' } else { *byte };
        bytes.push(byte, GFP_KERNEL_ACCOUNT)?;
    }
    bytes.push(0, GFP_KERNEL_ACCOUNT)?;
    CString::try_from(CStr::from_bytes_with_nul(&bytes).map_err(|_| EINVAL)?).map_err(Error::from)
}

impl ClientNotifier {
    /// Creates the notifier of `client` of `service`, whose requests are queued in `partitions` for
    /// `target`.
    pub(crate) fn new(
        client: &CStr,
        service: &CStr,
        partitions: Arc<Partitions>,
        target: u16,
    ) -> Result<Arc<Self>> {
        let (client, service) = (printable(client)?, printable(service)?);
        let context = NotifierContext {
            disk: None,
            reported: 0,
            fails: false,
            partitions,
            target,
        };
        Arc::pin_init(
            pin_init!(Self {
                client,
                service,
                changes: AtomicWord::new(0),
                context <- new_mutex!(Some(context), "nrs_notifier"),
                work <- new_work!("nrs_notifier"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Enables uevents of `disk`. With `fails`, queued requests fail while the client is lost.
    pub(crate) fn open(&self, disk: Disk, fails: bool) {
        let mut context = self.context.lock();
        if let Some(context) = &mut *context {
            context.disk = Some(disk);
            context.fails = fails;
        }
    }

    /// Stops reporting; waits for a report in progress.
    pub(crate) fn close(&self) {
        let context = self.context.lock().take();
        drop(context);
    }

    /// Records a loss or a recovery of the client. Any context.
    pub(crate) fn changed(self: &Arc<Self>) {
        self.changes.add(1);
        self.look_after();
    }

    /// Schedules the work, which also handles requests that were queued since. Any context.
    pub(crate) fn look_after(self: &Arc<Self>) {
        // If the work is queued already, that run suffices.
        let _ = queue::upkeep().enqueue(self.clone());
    }

    /// Reports one change.
    fn send_event(&self, disk: Option<&Disk>, lost: bool) {
        let (client, service) = (&*self.client, &*self.service);
        if misc::may_print() {
            if lost {
                pr_warn!(
                    "service {service}: client {client} is lost: \
                     its device completed no request within the timeout\n"
                );
            } else {
                pr_notice!("service {service}: client {client} has recovered\n");
            }
        }
        let event = if lost { "lost" } else { "found" };
        let words = || -> Result<[CString; 3]> {
            Ok([
                CString::try_from_fmt(fmt!("NRS_EVENT={event}"))?,
                CString::try_from_fmt(fmt!("NRS_CLIENT={client}"))?,
                CString::try_from_fmt(fmt!("NRS_SERVICE={service}"))?,
            ])
        };
        if let (Some(disk), Ok([event, client, service])) = (disk, words()) {
            disk.send_uevent([&event, &client, &service], lost);
        }
    }
}

impl WorkItem for ClientNotifier {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let mut context = this.context.lock();
        let Some(context) = &mut *context else {
            return;
        };
        loop {
            let changes = this.changes.get();
            if context.reported == changes {
                // Odd: the client is lost.
                if context.fails && changes & 1 != 0 {
                    if let Some(partitions) = context.partitions.of(context.target) {
                        partitions.drain();
                    }
                }
                return;
            }
            let lost = context.reported & 1 == 0;
            context.reported = context.reported.wrapping_add(1);
            misc::without_io(|| this.send_event(context.disk.as_ref(), lost));
        }
    }
}
