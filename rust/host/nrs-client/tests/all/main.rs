// SPDX-License-Identifier: GPL-2.0-only

//! The tests of the client that need no device.
//!
//! One program, which is built and linked once.

mod bytes;
mod header;
