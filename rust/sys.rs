// SPDX-License-Identifier: GPL-2.0-only

//! The only home of `unsafe`: safe wrappers over what the kernel crate does not offer.
//!
//! | module | wraps |
//! |---|---|
//! | [`dm`] | device-mapper targets and the bios they get |
//! | [`bio`] | what a bio says of itself |
//! | [`disk`] | events about a disk |
//! | [`elevator`] | I/O schedulers of blk-mq and the requests they get |
//! | [`hotplug`] | CPUs that go offline |
//! | [`node`] | requests linked through their front-end's memory |
//! | [`timer`] | a timer that is cancelled before its owner goes |
//! | [`queue`] | the module's own workqueue |
//! | [`rcu`] | a pointer that readers follow without a lock |
//! | [`atomic`] | words of the hot path |
//! | [`global`] | a value that callbacks from outside have to find |
//! | [`task`] | who is running |
//! | [`capi`] | what other modules call |
//! | [`chardev`] | a character device that can be polled, and requests in boxes of their own |
//! | [`debugfs`] | files that keep the module loaded while they are open |
//! | [`configfs`] | directories that are kept while they are in use |
//! | [`layout`] | the check of private structures against the running kernel |
//! | [`params`] | module parameters |
//! | [`series`] | names that not every supported series of the kernel has |
//! | [`text`] | texts that are made whole, and bounded |
//! | [`trace`] | tracepoints |
//! | `raw` | bindings of the module's own header |
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
