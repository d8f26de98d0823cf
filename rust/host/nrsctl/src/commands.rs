// SPDX-License-Identifier: GPL-2.0-only

//! Verbs of the command line: one module per verb, with arguments and implementation.

pub mod agent;
pub mod apply;
pub mod check;
pub mod complete;
pub mod device;
pub mod exporter;
pub mod generate;
pub mod get_param;
pub mod limit;
pub mod list_param;
pub mod measure;
pub mod monitor;
pub mod owner;
pub mod plot;
pub mod policy;
pub mod record;
pub mod reset;
pub mod rule;
pub mod save;
pub mod service;
pub mod set_param;
pub mod status;
pub mod top;
pub mod weight;
