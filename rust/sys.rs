// SPDX-License-Identifier: GPL-2.0-only

//! The only modules with `unsafe` code: safe wrappers of kernel interfaces that the kernel crate
//! lacks.
//!
//! | module | wraps |
//! |---|---|
//! | [`dm`] | device-mapper targets and their bios |
//! | [`bio`] | attributes of a bio |
//! | [`disk`] | uevents of a disk |
//! | [`elevator`] | I/O schedulers of blk-mq and their requests |
//! | [`hotplug`] | CPUs that go offline |
//! | [`node`] | requests linked through memory of their front-end |
//! | [`timer`] | a timer that is cancelled before its owner is freed |
//! | [`queue`] | the module's own workqueues |
//! | [`rcu`] | a pointer that readers follow without a lock |
//! | [`atomic`] | atomic words of the hot path |
//! | [`global`] | a value that callbacks of the kernel have to find |
//! | [`task`] | the running task |
//! | [`capi`] | functions exported to other modules |
//! | [`chardev`] | a character device with `poll`, and requests in boxes of their own |
//! | [`debugfs`] | files that keep the module loaded while they are open |
//! | [`configfs`] | directories that cannot be removed while they are in use |
//! | [`layout`] | the check of private structures against the running kernel |
//! | [`params`] | module parameters |
//! | [`series`] | names that only some supported kernel series have |
//! | [`text`] | texts of bounded length, generated as a whole |
//! | [`trace`] | tracepoints |
//! | `raw` | bindings of the module's own headers |
//! | [`mutex`] | a mutex under which allocations start no I/O |
//! | [`misc`] | the clock, CPUs, plugs, allocation scopes |

pub(crate) mod atomic;
pub(crate) mod bio;
pub(crate) mod capi;
pub(crate) mod chardev;
pub(crate) mod configfs;
pub(crate) mod debugfs;
pub(crate) mod disk;
pub(crate) mod dm;
#[cfg(feature = "elevator")]
pub(crate) mod elevator;
pub(crate) mod global;
#[cfg(feature = "elevator")]
pub(crate) mod hotplug;
#[cfg(feature = "elevator")]
pub(crate) mod layout;
pub(crate) mod misc;
pub(crate) mod mutex;
pub(crate) mod node;
pub(crate) mod params;
pub(crate) mod queue;
mod raw;
pub(crate) mod rcu;
pub(crate) mod series;
pub(crate) mod task;
pub(crate) mod text;
pub(crate) mod timer;
pub(crate) mod trace;
