// SPDX-License-Identifier: GPL-2.0-only

//! Administration interfaces: debugfs, configfs and the control node.
//!
//! # Interfaces
//!
//! - *Files*: the parameters of each service ([`crate::engine::parameters`]) in `nrs/SERVICE/` of
//!   debugfs ([`debugfs`]); they are created and removed with the service.
//! - *Directories*: services created by an administrator before a client needs them, in `nrs/` of
//!   configfs ([`configfs`]), with their rules ([`configfs::rules`]). A service created by its
//!   first client has no directory.
//! - *Pin*: a [`Dependency`] that prevents the removal of a directory while its service is in use.
//!
//! ```text
//!             ┌────────── last client ──────────┐
//!             ▼                                 │
//!   mkdir ──▶ idle ── first client ──▶ in use, pinned
//!             │
//!             └── rmdir ──▶ removed
//! ```
//!
//! If the first client arrives during `rmdir` or `mkdir`, there is no pin. A directory that is
//! removed then leaves a service that is removed with its last client.
//!
//! The node `/dev/nrs-control` gives access to the same parameters ([`node`]).
//!
//! Module parameters are in `sys/params.c`.
//!
//! # Lock order
//!
//! 0. the mutex of an open file of the node ([`node`])
//! 1. configfs: the inode lock of `nrs/`, then the subsystem's mutex
//! 2. the mutex of a rule's directory ([`configfs::rules`])
//! 3. the mutex of a service's directory ([`configfs::Directory`])
//! 4. the registry's mutex ([`crate::engine::registry`])
//! 5. the mutex of the files; debugfs's own locks
//!
//! Clients that create and drop pins hold none of these locks.

pub(crate) mod configfs;
pub(crate) mod debugfs;
pub(crate) mod node;

use kernel::{
    configfs::Subsystem,
    new_mutex,
    prelude::*,
    str::CString,
    sync::{Arc, Mutex},
};

use self::{configfs::RootGroup, debugfs::Trees};
use crate::{
    engine::{
        registry::{self, ServiceObserver},
        service::Service,
    },
    sys::{
        configfs::{depend, Dependency},
        mutex::NoIoMutex,
    },
};

/// Pinned directory.
struct PinnedDirectory {
    /// Address of the service, which exists at least until its last client is removed.
    service: usize,
    _dependency: Dependency<RootGroup>,
}

/// Observer of the registry.
#[pin_data]
struct State {
    #[pin]
    trees: Trees,
    #[pin]
    subsystem: Mutex<Option<Arc<Subsystem<RootGroup>>>>,
    #[pin]
    pins: NoIoMutex<KVec<PinnedDirectory>>,
}

impl ServiceObserver for State {
    fn created(&self, service: &Arc<Service>) {
        if self.trees.add(service).is_err() {
            pr_warn!(
                "service {}: no memory for its debugfs files\n",
                service.name()
            );
        }
    }

    fn removed(&self, service: &Service) {
        self.trees.remove(service);
    }

    fn first_use(&self, service: &Service) -> Result {
        let Some(subsystem) = self.subsystem.lock().clone() else {
            return Ok(());
        };
        let name = CString::try_from_fmt(fmt!("{}", service.name()))?;
        let dependency = match depend(&subsystem, &name) {
            Ok(dependency) => dependency,
            // The service has no directory, or the directory is being created or removed.
            Err(ENOENT) => return Ok(()),
            Err(error) => return Err(error),
        };
        let pin = PinnedDirectory {
            service: core::ptr::from_ref(service).addr(),
            _dependency: dependency,
        };
        self.pins.lock().push(pin, GFP_KERNEL)?;
        Ok(())
    }

    fn last_use(&self, service: &Service) {
        let address = core::ptr::from_ref(service).addr();
        let mut pins = self.pins.lock();
        let index = pins.iter().position(|pin| pin.service == address);
        let pin = index.and_then(|index| pins.remove(index).ok());
        drop(pins);
        drop(pin);
    }
}

/// Administration interfaces; dropping removes them.
pub(crate) struct ControlInterfaces {
    state: Arc<State>,
}

impl ControlInterfaces {
    /// Creates the interfaces. They cover every service created later.
    ///
    /// The registry must exist; front-ends must not.
    ///
    /// # Errors
    ///
    /// - `EBUSY`: the registry already has an observer.
    /// - The errors of registering with configfs.
    pub(crate) fn new() -> Result<Self> {
        let state = Arc::pin_init(
            try_pin_init!(State {
                trees <- Trees::new(),
                subsystem <- new_mutex!(None, "nrs_subsystem"),
                pins <- NoIoMutex::new(new_mutex!(KVec::new(), "nrs_pins")),
            }),
            GFP_KERNEL,
        )?;
        // This precedes the creation of the first directory.
        registry::observe(state.clone())?;
        let subsystem = Arc::pin_init(configfs::subsystem(), GFP_KERNEL)?;
        *state.subsystem.lock() = Some(subsystem);
        Ok(Self { state })
    }
}

impl Drop for ControlInterfaces {
    fn drop(&mut self) {
        // The registry still holds the state. An existing directory keeps the module loaded, so
        // neither directories nor pins are left.
        let subsystem = self.state.subsystem.lock().take();
        drop(subsystem);
        self.state.trees.close();
    }
}
