// SPDX-License-Identifier: GPL-2.0-only

//! Tests of the whole scheduling part; the tests of a module are beside its code.
//!
//! A single program, which is built and linked once.

mod agent;
mod arrival;
mod bench;
mod churn;
mod classes;
mod counters;
mod counters_shared;
mod cpts;
mod dequeue;
mod device;
mod drains;
mod engine;
mod full;
mod hold;
mod isolation;
mod knee;
mod lags;
mod lease;
mod limits;
mod locality;
mod order;
mod parts;
mod passing;
mod peek;
mod plan;
mod pull;
mod qbm;
mod robin;
mod rules;
mod scale;
mod service;
mod settings;
mod shares;
mod targets;
mod tbf;
mod timer;
mod tree;
mod unaware;
mod uptime;
mod waits;
mod withheld;
mod yaml;

#[expect(dead_code, reason = "the fuzz target takes more of it")]
#[path = "../../../fuzz/src/rules.rs"]
mod fuzz_rules;
