// SPDX-License-Identifier: GPL-2.0-only

//! `nrs-report`: what `make compare`, `bench`, `bench-vm`, `demo` and `cluster` measured, as tables and pictures.

mod bench;
mod cluster;
mod compare;
mod demo;
mod fio;
mod profile;
mod vm;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// From measurements to tables and pictures.
#[derive(Parser, Debug)]
#[command(version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// nrs beside the schedulers of the kernel, from what `make compare` measured.
    Compare(compare::Args),
    /// Time and memory of the scheduling code, from what `make bench` measured.
    Bench(bench::Args),
    /// Cost of a request in virtual machines, from what `make bench-vm` measured.
    Vm(vm::Args),
    /// Instructions of a request by function, from what `scripts/bench-vm.sh --profile` measured.
    Profile(profile::Args),
    /// Two users on one device, from what `make demo` measured.
    Demo(demo::Args),
    /// Shares over two servers, from what `make cluster` measured.
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
