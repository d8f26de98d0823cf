// SPDX-License-Identifier: GPL-2.0-only

//! The scheduling part of nrs for the host. It consists of the source files that `nrs.ko` is built
//! from, and a request type to drive them with ([`arena`]).
//!
//! Unit tests of those files run here; tests of the whole part are in `tests/`.

/// Directory of the kernel module.
#[path = "../../.."]
mod module {
    pub mod sched;
}

pub(crate) use module::sched;
pub use module::sched::*;

/// Records of `/dev/nrs`.
#[cfg(test)]
#[allow(dead_code, unreachable_pub)]
#[path = "../../../frontend/chardev"]
mod chardev {
    mod decode;
    mod wire;
}

/// Comparison of structures with the kernel's type information.
#[cfg(test)]
#[allow(dead_code)]
#[path = "../../../sys/layout"]
mod layout {
    mod btf;
}

pub mod arena;
pub mod backlog;
pub mod managed;
pub mod max_min;
pub mod running_parts;
pub mod scale;
pub mod script;
pub mod server;
pub mod service_world;
pub mod sim;
pub mod threads;
pub mod watched;
