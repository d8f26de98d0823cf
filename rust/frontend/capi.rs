// SPDX-License-Identifier: GPL-2.0-only

//! Servers and frameworks of other kernel modules: `include/nrs.h`.
//!
//! A server ([`Server`]) is a session like an open file of `/dev/nrs`, and uses the same records. A
//! work item that calls the server replaces the reader. A framework ([`Framework`]) drives the
//! policies of a service ([`crate::engine::framework`]).

mod framework;
mod server;

pub(crate) use framework::Framework;
pub(crate) use server::Server;
