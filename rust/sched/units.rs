// SPDX-License-Identifier: GPL-2.0-only

//! Units of time, by their names in the kernel.

/// Nanoseconds per microsecond.
pub const NSEC_PER_USEC: u64 = 1_000;

/// Nanoseconds per millisecond.
pub const NSEC_PER_MSEC: u64 = 1_000 * NSEC_PER_USEC;

/// Nanoseconds per second.
pub const NSEC_PER_SEC: u64 = 1_000 * NSEC_PER_MSEC;

/// Microseconds per millisecond.
pub const USEC_PER_MSEC: u64 = 1_000;

/// Microseconds per second.
pub const USEC_PER_SEC: u64 = 1_000 * USEC_PER_MSEC;

/// Milliseconds per second.
pub const MSEC_PER_SEC: u64 = 1_000;
