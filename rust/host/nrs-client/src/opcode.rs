// SPDX-License-Identifier: MIT OR Apache-2.0

//! Common operations, numbered as in Lustre's wire protocol. A server may use any other number too.

/// Read of an object's data.
pub const OST_READ: u32 = 3;

/// Write of an object's data.
pub const OST_WRITE: u32 = 4;
