// SPDX-License-Identifier: GPL-2.0-only

//! nrs: a network request scheduler for storage servers.
//!
//! Front-ends bring requests, policies decide which is served next. See `Documentation/design.md`.
//!
//! # Errors
//!
//! What allocates returns `ENOMEM`, and what writes a text `ENOSPC`; functions say which errors they return beside these.

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

/// What a server of another module is.
type KernelServer = frontend::capi::Server;

/// What a framework of another module is.
type KernelFramework = frontend::capi::Framework;

/// The loaded module.
///
/// Fields are dropped from top to bottom: first what lets others in, last what everything stands on.
struct Nrs {
    #[cfg(feature = "elevator")]
    _elevator: Option<frontend::elevator::Registration>,
    _dm: sys::dm::Registration<frontend::dm::Device>,
    _control: control::Control,
    _chardev: sys::chardev::Registration<frontend::chardev::Handle>,
    _node: sys::chardev::Registration<control::node::Node>,
    _registry: sys::global::Installed<engine::registry::Registry>,
    _queue: sys::queue::WorkQueues,
    _rcu: sys::rcu::Barrier,
}

impl kernel::Module for Nrs {
    fn init(module: &'static ThisModule) -> Result<Self> {
        let rcu = sys::rcu::Barrier;
        let queue = sys::queue::WorkQueues::new()?;
        let registry = engine::registry::init()?;
        // Files of /dev and directories of configfs cannot be had before all is there. A table can be loaded, and keeps
        // the module from going, so device-mapper comes last.
        let node = sys::chardev::Registration::new()?;
        let chardev = sys::chardev::Registration::new()?;
        let control = control::Control::new()?;
        let dm = sys::dm::Registration::new(module)?;
        #[cfg(feature = "elevator")]
        let elevator = frontend::elevator::Registration::new(module);
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
