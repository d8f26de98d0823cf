// SPDX-License-Identifier: GPL-2.0-only

//! `nrsctl`: the operator's command line tool of nrs.
//!
//! # Vocabulary
//!
//! - *Kernel*: interface to the running module: services with parameters ([`kernel::Kernel`]).
//!   [`live::Live`] accesses this machine's module, [`mock::Mock`] is for tests.
//! - *Parameter*: a named value of a service, as listed in `nrs_sched::parameters`.
//! - *Configuration*: services as defined in a file ([`configuration`]).
//! - *Snapshot*: statistics of one service at one time ([`stats`]).
//! - *Recording*: a file of snapshots ([`recording`]).
//! - *Command*: a verb of the command line; each is a file in [`commands`].
//!
//! ```text
//!   cli ──▶ commands ──▶ configuration │ stats ──▶ Kernel ──▶ /dev/nrs-control, configfs, dmsetup
//! ```

pub mod accounts;
pub mod cli;
pub mod commands;
pub mod configuration;
pub mod examples;
pub mod exporter;
pub mod failure;
pub mod items;
pub mod kernel;
pub mod live;
pub mod mock;
pub mod names;
pub mod recording;
pub mod reference;
pub mod refusal;
pub mod replace;
pub mod show;
pub mod stats;
pub mod top;
