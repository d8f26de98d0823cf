// SPDX-License-Identifier: GPL-2.0-only

//! `nrsctl`: the operator's tool of nrs.
//!
//! # Vocabulary
//!
//! - *Kernel*: the running module as its tool sees it: services with parameters ([`kernel::Kernel`]). [`live::Live`]
//!   is the one of this machine, [`mock::Mock`] one for tests.
//! - *Parameter*: a value of a service by name, as `nrs_sched::parameters` lists them.
//! - *Configuration*: what a file says the services are to be ([`configuration`]).
//! - *Snapshot*: what the module has counted, of one service at one time ([`stats`]).
//! - *Recording*: a file of snapshots ([`recording`]).
//! - *Command*: a verb of the command line; each is a file in [`commands`].
//!
//! ```text
//!   cli ──▶ commands::VERB ──▶ configuration │ stats ──▶ Kernel ──▶ /dev/nrs-control, configfs, dmsetup
//! ```

pub mod accounts;
pub mod cli;
pub mod commands;
pub mod configuration;
pub mod examples;
pub mod exporter;
pub mod failure;
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
