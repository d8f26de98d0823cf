// SPDX-License-Identifier: GPL-2.0-only

//! See `rust/sched/atomic.rs`.

pub(crate) use crate::sched::atomic::{AtomicWord, Counter, Hint};
