// SPDX-License-Identifier: GPL-2.0-only

//! The clients of a service.

use kernel::{new_mutex, prelude::*, sync::Arc};

use super::client::Client;
use crate::sys::mutex::NoIoMutex;

/// Maximum number of clients of one service.
const CLIENTS_MAX: usize = 4096;

/// Clients, ordered by the time at which they were added.
pub(crate) struct ClientRoster {
    list: KVec<Arc<Client>>,
    next_serial: u32,
}

impl ClientRoster {
    /// Returns all clients.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Client>> {
        self.list.iter()
    }

    /// Adds the client that `make` creates from its serial number.
    ///
    /// # Errors
    ///
    /// `ENOSPC`: the service has [`CLIENTS_MAX`] clients. `ENOMEM`. Any error of `make`.
    pub(crate) fn add(
        &mut self,
        make: impl FnOnce(u32) -> Result<Arc<Client>>,
    ) -> Result<Arc<Client>> {
        if self.list.len() >= CLIENTS_MAX {
            return Err(ENOSPC);
        }
        let client = make(self.next_serial)?;
        self.list.push(client.clone(), GFP_KERNEL_ACCOUNT)?;
        self.next_serial = self.next_serial.wrapping_add(1);
        Ok(client)
    }

    /// Removes `client`.
    pub(crate) fn remove(&mut self, client: &Arc<Client>) {
        self.list.retain(|other| !Arc::ptr_eq(other, client));
    }
}

/// The clients of a service, behind their mutex.
#[pin_data]
pub(crate) struct ClientList {
    #[pin]
    clients: NoIoMutex<ClientRoster>,
}

impl ClientList {
    /// Creates an empty client list.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                clients <- NoIoMutex::new(new_mutex!(ClientRoster {
                    list: KVec::new(),
                    next_serial: 1,
                }, "nrs_clients")),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Runs `f` with the mutex held.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut ClientRoster) -> R) -> R {
        f(&mut self.clients.lock())
    }

    /// Passes the name of the client with number `serial` to `f`, if the client exists.
    pub(crate) fn name_of(&self, serial: u32, f: &mut dyn FnMut(&[u8])) {
        self.with(|clients| {
            let mut all = clients.iter();
            if let Some(client) = all.find(|client| client.serial() == serial) {
                f(client.name().to_bytes());
            }
        });
    }
}
