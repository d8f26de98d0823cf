// SPDX-License-Identifier: MIT OR Apache-2.0

//! The tests of the client that need no device.
//!
//! One program, which is built and linked once.

mod bytes;
mod examples;
mod header;
mod package;
