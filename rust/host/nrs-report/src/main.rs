// SPDX-License-Identifier: GPL-2.0-only

//! `nrs-report`: results of `make compare`, `bench`, `bench-vm`, `demo` and `cluster`, as tables
//! and charts.

mod bench;
mod cluster;
mod compare;
mod demo;
mod fio;
mod profile;
mod vm;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Tables and charts from measurements of nrs.
#[derive(Parser, Debug)]
#[command(version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// nrs compared with the schedulers of the kernel, from the results of `make compare`.
    Compare(compare::Args),
    /// Time and memory of the scheduling code, from the results of `make bench`.
    Bench(bench::Args),
    /// Cost of a request in virtual machines, from the results of `make bench-vm`.
    Vm(vm::Args),
    /// Instructions per request by function, from the results of `scripts/bench-vm.sh --profile`.
    Profile(profile::Args),
    /// Two users on one device, from the results of `make demo`.
    Demo(demo::Args),
    /// Shares over two servers, from the results of `make cluster`.
    Cluster(cluster::Args),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Compare(args) => compare::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Vm(args) => vm::run(args),
        Command::Profile(args) => profile::run(args),
        Command::Demo(args) => demo::run(args),
        Command::Cluster(args) => cluster::run(args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("nrs-report: {error}");
            ExitCode::FAILURE
        }
    }
}
