// SPDX-License-Identifier: MIT OR Apache-2.0

//! Tests of the client that need no device.
//!
//! They form one program, so that it is built and linked once.

mod bytes;
mod examples;
mod header;
mod package;
