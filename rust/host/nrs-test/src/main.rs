// SPDX-License-Identifier: GPL-2.0-only

//! Test tool for machines with nrs. Data on the named devices and directories is lost.
//!
//! | subcommand | purpose |
//! |---|---|
//! | [`check`] | checks that `/dev/nrs` behaves as documented in `Documentation/dev-nrs.md` |
//! | [`storm`] | makes random calls on every interface; each answer must be documented |
//! | [`overlap`] | checks that overlapping requests to a block device keep their order |
//! | [`load`] | simulates a server with many clients on `/dev/nrs` |
//! | [`clients`] | loads a block device with clients, each with a user and a cgroup |
//! | [`factors`] | simulates the agent of a service on `/dev/nrs-control` |
//! | [`integrity`] | transfers protection information through a block device |
//! | [`disk`] | simulates a disk with one arm, behind an nbd device |
//!
//! Exit statuses: [`STATUS`].

use std::process::ExitCode;

use clap::Parser;

mod aio;
mod check;
mod clients;
mod direct;
mod disk;
mod factors;
mod integrity;
mod latency;
mod load;
mod nowhere;
mod overlap;
mod random;
mod storm;

/// Outcome of a test; an error means that the test could not run.
type Outcome<T = ExitCode> = anyhow::Result<T>;

/// Exit statuses of all subcommands.
const STATUS: &str = "Exit status: 0 if the test passed, 1 if it failed, \
    2 if it could not run or was inconclusive.";

/// Tests nrs; data on the named devices and directories is lost.
#[derive(Parser)]
#[command(version, after_help = STATUS)]
enum Command {
    Check(check::Args),
    Storm(storm::Args),
    Overlap(overlap::Args),
    Load(load::Args),
    Clients(clients::Args),
    Disk(disk::Args),
    Factors(factors::Args),
    Integrity(integrity::Args),
}

fn main() -> ExitCode {
    let outcome = match Command::parse() {
        Command::Check(args) => check::run(args),
        Command::Storm(args) => storm::run(args),
        Command::Overlap(args) => overlap::run(&args),
        Command::Load(args) => load::run(args),
        Command::Clients(args) => clients::run(&args),
        Command::Disk(args) => disk::run(&args),
        Command::Factors(args) => factors::run(args),
        Command::Integrity(args) => integrity::run(&args),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("nrs-test: {error:#}");
        ExitCode::from(2)
    })
}
