// SPDX-License-Identifier: GPL-2.0-only

//! Front-ends translate submitted I/O into requests: attributes, cost, range, flags.

pub(crate) mod block;
pub(crate) mod capi;
pub(crate) mod chardev;
pub(crate) mod dm;
#[cfg(feature = "elevator")]
pub(crate) mod elevator;
