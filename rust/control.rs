// SPDX-License-Identifier: GPL-2.0-only

//! What an administrator sees and sets.
//!
//! # Vocabulary
//!
//! - *Files*: the parameters of each service ([`crate::engine::parameters`]) in `nrs/SERVICE/` of debugfs
//!   ([`debugfs`]); they come and go with the service.
//! - *Directories*: services that an administrator makes before a client needs them, in `nrs/` of configfs
//!   ([`configfs`]), with its rules in it ([`configfs::rules`]). A service that its first client made has none.
//! - *Pin*: a [`Dependency`] that keeps a directory while its service is in use.
//!
//! ```text
//!   mkdir ──▶ kept, idle ──first client──▶ kept, in use, pinned ──last client──▶ kept, idle ──rmdir──▶ gone
//! ```
//!
//! Should the first client come while `rmdir` or `mkdir` runs, there is no pin; a directory that is removed
//! then leaves a service that goes with its last client.
//!
//! The node `/dev/nrs-control` reaches the same parameters ([`node`]).
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
//! Pins are made and dropped by clients that hold none of these.

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

use self::{configfs::Root, debugfs::Trees};
use crate::{
    engine::{
        registry::{self, Observer},
        service::Service,
    },
    sys::{
        configfs::{depend, Dependency},
        mutex::NoIoMutex,
    },
};

/// A pinned directory.
struct Pin {
    /// Address of the service, which lives at least until its last client has gone.
    service: usize,
    _dependency: Dependency<Root>,
}

/// What the registry reports to.
#[pin_data]
struct State {
    #[pin]
    trees: Trees,
    #[pin]
    subsystem: Mutex<Option<Arc<Subsystem<Root>>>>,
    #[pin]
    pins: NoIoMutex<KVec<Pin>>,
}

impl Observer for State {
    fn created(&self, service: &Arc<Service>) {
        if self.trees.add(service).is_err() {
            pr_warn!("no memory for the files of {}\n", service.name());
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
            // No directory, or not yet, or no longer.
            Err(ENOENT) => return Ok(()),
            Err(error) => return Err(error),
        };
        let pin = Pin {
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

/// Everything an administrator sees; it goes when this is dropped.
pub(crate) struct Control {
    state: Arc<State>,
}

impl Control {
    /// Shows every service that is made from now on, and lets services be made.
    ///
    /// The registry has to be there, front-ends must not be.
    /// - `EBUSY`: somebody else observes the registry.
    /// - What registering with configfs returns.
    pub(crate) fn new() -> Result<Self> {
        let state = Arc::pin_init(
            try_pin_init!(State {
                trees <- Trees::new(),
                subsystem <- new_mutex!(None, "nrs_subsystem"),
                pins <- NoIoMutex::new(new_mutex!(KVec::new(), "nrs_pins")),
            }),
            GFP_KERNEL,
        )?;
        // Before the first directory can be made.
        registry::observe(state.clone())?;
        let subsystem = Arc::pin_init(configfs::subsystem(), GFP_KERNEL)?;
        *state.subsystem.lock() = Some(subsystem);
        Ok(Self { state })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // The registry goes on holding the state. An existing directory keeps the module loaded, so none
        // is left, and neither is a pin.
        let subsystem = self.state.subsystem.lock().take();
        drop(subsystem);
        self.state.trees.close();
    }
}
