// SPDX-License-Identifier: GPL-2.0-only

//! The overseer of a service, if it has one ([`crate::sched::service::overseer`]), with its lock.
//!
//! # Context
//!
//! All functions here may sleep. A request may depend on the end of a look, so nothing under the
//! mutex starts I/O.

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{ordering, Atomic},
        Arc,
    },
};

use super::{client_list::ClientList, partitions::Partitions};
use crate::{
    sched::{
        policy::{control::OverseerContext, AnyOverseer},
        service::{overseer, HeadAccess, ServiceParts},
    },
    sys::{misc, mutex::NoIoMutex, node::Held},
};

impl OverseerContext for ClientList {
    fn device_name(&self, device: u32, f: &mut dyn FnMut(&[u8])) {
        self.name_of(device, f);
    }
}

/// The overseer of a service, if it has one.
#[pin_data]
pub(crate) struct OverseerState {
    partitions: Arc<Partitions>,
    clients: Arc<ClientList>,
    /// True if there is an overseer.
    running: Atomic<bool>,
    #[pin]
    overseer: NoIoMutex<Option<AnyOverseer>>,
}

impl OverseerState {
    /// Creates the state of a service without an overseer; `clients` lists the clients.
    pub(crate) fn new(partitions: Arc<Partitions>, clients: Arc<ClientList>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                partitions,
                clients,
                running: Atomic::new(false),
                overseer <- NoIoMutex::new(new_mutex!(None, "nrs_overseer")),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Returns true if there is an overseer.
    pub(crate) fn is_running(&self) -> bool {
        self.running.load(ordering::Relaxed)
    }

    /// Polls the overseer, with `due` also its interval; dispatches requests that become eligible.
    pub(crate) fn poll(&self, due: bool) -> Result {
        if !self.is_running() {
            return Ok(());
        }
        let (moved, done) = overseer::poll(self, due);
        if moved {
            self.partitions.run_all();
        }
        done.map_err(|_| ENOMEM)
    }
}

impl ServiceParts for OverseerState {
    type Item = Held;

    fn now(&self) -> u64 {
        misc::now()
    }

    fn heads(&self) -> impl Iterator<Item = impl HeadAccess<Item = Held>> {
        self.partitions.heads()
    }

    fn overseer<R>(
        &self,
        f: impl FnOnce(&mut Option<AnyOverseer>, &dyn OverseerContext) -> R,
    ) -> R {
        let mut overseer = self.overseer.lock();
        let done = f(&mut overseer, &*self.clients);
        self.running.store(overseer.is_some(), ordering::Relaxed);
        done
    }
}
