// SPDX-License-Identifier: GPL-2.0-only

//! Who tells others that a client was lost or found again.
//!
//! The kernel log gets a line for each, and programs that listen for changes of the mapped device get
//! `NRS_EVENT=lost` or `NRS_EVENT=found`, `NRS_CLIENT=…` and `NRS_SERVICE=…`. While a client is lost whose
//! requests fail, what it has queued is sent on its way, so that it fails: with it everything that is queued
//! for its device, for nobody else knows where its requests are.
//!
//! A client is lost and found in turns, so the number of changes tells what there is to say.

use kernel::{
    impl_has_work, new_mutex, new_work,
    prelude::*,
    str::CString,
    sync::{Arc, Mutex},
    workqueue::{Work, WorkItem},
};

use crate::{
    engine::partitions::Partitions,
    sys::{atomic::Word, disk::Disk, misc, queue},
};

/// What the work of a herald needs.
struct Stage {
    /// The device that others know.
    disk: Option<Disk>,
    /// Changes that were told.
    told: u64,
    /// What is queued goes where it fails.
    fails: bool,
    partitions: Arc<Partitions>,
    /// Index of its target.
    target: u16,
}

/// Tells of one client.
#[pin_data]
pub(crate) struct Herald {
    client: CString,
    service: CString,
    /// Changes: lost, found, lost, …
    changes: Word,
    /// `None`: the client is gone.
    #[pin]
    stage: Mutex<Option<Stage>>,
    #[pin]
    work: Work<Self>,
}

impl_has_work! {
    impl HasWork<Self> for Herald { self.work }
}

/// `name` in one line.
fn printable(name: &CStr) -> Result<CString> {
    let mut bytes = KVec::new();
    for byte in name.to_bytes() {
        let byte = if byte.is_ascii_control() { b'?' } else { *byte };
        bytes.push(byte, GFP_KERNEL)?;
    }
    bytes.push(0, GFP_KERNEL)?;
    CString::try_from(CStr::from_bytes_with_nul(&bytes).map_err(|_| EINVAL)?).map_err(Error::from)
}

impl Herald {
    /// One for `client` of `service`, whose requests are queued in `partitions` for `target`.
    pub(crate) fn new(
        client: &CStr,
        service: &CStr,
        partitions: Arc<Partitions>,
        target: u16,
    ) -> Result<Arc<Self>> {
        let (client, service) = (printable(client)?, printable(service)?);
        let stage = Stage {
            disk: None,
            told: 0,
            fails: false,
            partitions,
            target,
        };
        Arc::pin_init(
            pin_init!(Self {
                client,
                service,
                changes: Word::new(0),
                stage <- new_mutex!(Some(stage), "nrs_herald"),
                work <- new_work!("nrs_herald"),
            }),
            GFP_KERNEL,
        )
    }

    /// Tells of `disk` from now on; what is queued fails while the client is lost, if `fails`.
    pub(crate) fn open(&self, disk: Disk, fails: bool) {
        let mut stage = self.stage.lock();
        if let Some(stage) = &mut *stage {
            stage.disk = Some(disk);
            stage.fails = fails;
        }
    }

    /// Tells of nothing any more; waits for what is being told.
    pub(crate) fn close(&self) {
        let stage = self.stage.lock().take();
        drop(stage);
    }

    /// The client is lost now, or found. Any context.
    pub(crate) fn changed(self: &Arc<Self>) {
        self.changes.add(1);
        self.look_after();
    }

    /// What is queued has to be looked after. Any context.
    pub(crate) fn look_after(self: &Arc<Self>) {
        // If it is queued already, that run serves.
        let _ = queue::upkeep().enqueue(self.clone());
    }

    /// Tells of one change.
    fn say(&self, disk: Option<&Disk>, lost: bool) {
        let (client, service) = (&*self.client, &*self.service);
        if misc::may_print() {
            if lost {
                pr_warn!("service {service}: {client} is lost, its device gives no sign of life\n");
            } else {
                pr_notice!("service {service}: {client} is found again\n");
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
            disk.tell([&event, &client, &service], lost);
        }
    }
}

impl WorkItem for Herald {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let mut stage = this.stage.lock();
        let Some(stage) = &mut *stage else {
            return;
        };
        loop {
            let changes = this.changes.get();
            if stage.told == changes {
                // Odd: it is lost.
                if stage.fails && changes & 1 != 0 {
                    if let Some(lanes) = stage.partitions.of(stage.target) {
                        lanes.drain();
                    }
                }
                return;
            }
            let lost = stage.told & 1 == 0;
            stage.told = stage.told.wrapping_add(1);
            misc::without_io(|| this.say(stage.disk.as_ref(), lost));
        }
    }
}
