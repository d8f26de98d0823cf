// SPDX-License-Identifier: GPL-2.0-only

//! nrs: a network request scheduler for storage servers.
//!
//! Front-ends submit requests; policies select the next request to dispatch. See
//! `Documentation/design.md`.
//!
//! # Errors
//!
//! Functions that allocate return `ENOMEM`, and functions that write text return `ENOSPC`; docs
//! list further errors.

use kernel::prelude::*;

mod control;
mod engine;
mod frontend;
mod sched;
mod sys;

module! {
    type: Nrs,
    name: "nrs",
    authors: ["The nrs authors"],
    description: "Network request scheduler for storage servers",
    license: "GPL",
    alias: ["nrs-iosched"],
}

/// Server of another module.
type KernelServer = frontend::capi::Server;

/// Framework of another module.
type KernelFramework = frontend::capi::Framework;

/// Loaded module.
///
/// Fields are dropped from top to bottom: first the front-ends, last the facilities that all others
/// use.
struct Nrs {
    #[cfg(feature = "elevator")]
    _elevator: Option<frontend::elevator::ElevatorRegistration>,
    _dm: sys::dm::TargetRegistration<frontend::dm::DmDevice>,
    _control: control::ControlInterfaces,
    _chardev: sys::chardev::DeviceRegistration<frontend::chardev::NrsFile>,
    _node: sys::chardev::DeviceRegistration<control::node::ControlNode>,
    _registry: sys::global::GlobalGuard<engine::registry::Registry>,
    _queue: sys::queue::WorkQueues,
    _rcu: sys::rcu::RcuBarrier,
}

impl kernel::Module for Nrs {
    fn init(module: &'static ThisModule) -> Result<Self> {
        sched::attr::cgroup::set_secret(sys::misc::random());
        let rcu = sys::rcu::RcuBarrier;
        let queue = sys::queue::WorkQueues::new()?;
        let registry = engine::registry::init()?;
        // Files of /dev and directories of configfs cannot be opened or created before
        // initialisation ends. A device-mapper table can be loaded, and then keeps the module
        // loaded, so device-mapper is registered last.
        let node = sys::chardev::DeviceRegistration::new()?;
        let chardev = sys::chardev::DeviceRegistration::new()?;
        let control = control::ControlInterfaces::new()?;
        let dm = sys::dm::TargetRegistration::new(module)?;
        #[cfg(feature = "elevator")]
        let elevator = frontend::elevator::ElevatorRegistration::new(module);
        sys::misc::loaded();
        pr_info!("loaded\n");
        Ok(Self {
            #[cfg(feature = "elevator")]
            _elevator: elevator,
            _dm: dm,
            _control: control,
            _chardev: chardev,
            _node: node,
            _registry: registry,
            _queue: queue,
            _rcu: rcu,
        })
    }
}
