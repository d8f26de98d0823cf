// SPDX-License-Identifier: GPL-2.0-only

//! nrs: a network request scheduler for storage servers.
//!
//! Front-ends bring requests, policies decide which is served next. See `Documentation/design.md`.

use kernel::prelude::*;

mod control;
mod core;
mod frontend;
mod sched;
mod sys;

module! {
    type: Nrs,
    name: "nrs",
    authors: ["The nrs authors"],
    description: "Network request scheduler for storage servers",
    license: "GPL",
}

/// The loaded module.
///
/// Fields are dropped from top to bottom: first what lets others in, last what everything stands on.
struct Nrs {
    _chardev: sys::chardev::Registration<frontend::chardev::Handle>,
    _dm: sys::dm::Registration<frontend::dm::Device>,
    _node: sys::chardev::Registration<control::node::Node>,
    _control: control::Control,
    _reasons: sys::global::Installed<core::reasons::Listeners>,
    _registry: sys::global::Installed<core::registry::Registry>,
    _queue: sys::queue::WorkQueue,
    _rcu: sys::rcu::Barrier,
}

impl kernel::Module for Nrs {
    fn init(module: &'static ThisModule) -> Result<Self> {
        let rcu = sys::rcu::Barrier;
        let queue = sys::queue::WorkQueue::new()?;
        let registry = core::registry::init()?;
        let reasons = core::reasons::init()?;
        let control = control::Control::new()?;
        let dm = sys::dm::Registration::new(module)?;
        let node = sys::chardev::Registration::new()?;
        let chardev = sys::chardev::Registration::new()?;
        sys::chardev::loaded();
        pr_info!("loaded\n");
        Ok(Self {
            _chardev: chardev,
            _dm: dm,
            _node: node,
            _control: control,
            _reasons: reasons,
            _registry: registry,
            _queue: queue,
            _rcu: rcu,
        })
    }
}
