// SPDX-License-Identifier: GPL-2.0-only

//! Storms of system calls against nrs: every call is generated from a seed, and every answer is
//! counted.
//!
//! - *Storm*: one subcommand; it ends after its time, or when the file `--stop` exists.
//! - *Kind*: operation and object of a call, for example `write tbf`.
//! - *Finding*: an undocumented answer, or a wrong state.
//!
//! ```text
//!  schema, grammar ──▶ mutation ──▶ file, message, record, ioctl ──▶ answer ──▶ tally
//!                                                                      │
//!                                                                      └─ not allowed ──▶ finding
//! ```
//!
//! `--counts FILE` is rewritten periodically: a line `COUNT ERRNO KIND` for each kind and errno
//! (`ok` for success), and `finding TEXT`.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::Subcommand;

use crate::{random::Random, Outcome};

mod allowed;
mod change;
mod device;
mod files;
mod message;
mod tally;
mod tree;
mod words;

use tally::Tally;

/// Makes random system calls against nrs; data on the named devices and directories is lost.
#[derive(clap::Args)]
#[command(after_help = crate::STATUS)]
pub struct Args {
    /// Seed of the random numbers; equal seeds give equal sequences of calls.
    #[arg(long, global = true, default_value_t = 1)]
    seed: u64,
    /// Duration, seconds.
    #[arg(long, global = true, default_value_t = 10.0)]
    seconds: f64,
    /// File whose existence ends the storm.
    #[arg(long, global = true, value_name = "FILE")]
    stop: Option<PathBuf>,
    /// Pause after each call, microseconds.
    #[arg(long, global = true, default_value_t = 2000)]
    rest: u64,
    /// File for the counts, rewritten twice a second and at the end.
    #[arg(long, global = true, value_name = "FILE")]
    counts: Option<PathBuf>,
    #[command(subcommand)]
    storm: Storm,
}

#[derive(Subcommand)]
enum Storm {
    /// Makes valid changes to a service under load: policies, rules, plans, weights, numbers.
    Change {
        /// Name of the service.
        service: String,
        /// Device of the service, for messages.
        #[arg(long)]
        device: Option<String>,
    },
    /// Writes valid and mutated texts to all files of services in debugfs and configfs, and changes
    /// directories.
    Files {
        /// Prefix of the names of the services.
        prefix: String,
    },
    /// Sends messages to a device, and creates devices from table lines.
    Message {
        /// Name of the device, and prefix of the names of created devices.
        device: String,
        /// Block device that tables may name.
        lower: String,
        /// Service that tables may name.
        service: String,
    },
    /// Makes calls with records and ioctls on /dev/nrs, from four threads.
    Device {
        /// Name of the service.
        service: String,
    },
    /// Runs a metadata load in a directory, and compares the contents with the expected ones.
    Tree {
        /// Path of the directory, which is created and removed.
        directory: PathBuf,
    },
}

/// End and pace of a storm.
#[derive(Clone)]
struct Until {
    end: Instant,
    stop: Option<PathBuf>,
    rest: Duration,
}

impl Until {
    /// Pauses, and returns true if the storm continues.
    fn more(&self) -> bool {
        std::thread::sleep(self.rest);
        Instant::now() < self.end && !self.stop.as_deref().is_some_and(Path::exists)
    }
}

/// State of a running storm: end and pace, random numbers, counts.
struct StormRun(Until, Random, Tally);

/// Runs the storm, and prints the counts.
pub fn run(args: Args) -> Outcome {
    let until = Until {
        end: Instant::now() + Duration::from_secs_f64(args.seconds),
        stop: args.stop,
        rest: Duration::from_micros(args.rest),
    };
    let (random, tally) = (Random::with_seed(args.seed), Tally::new(args.counts));
    let mut run = StormRun(until, random, tally);
    let result = match &args.storm {
        Storm::Change { service, device } => change::run(&mut run, service, device.as_deref()),
        Storm::Files { prefix } => files::run(&mut run, prefix),
        Storm::Message {
            device,
            lower,
            service,
        } => message::run(&mut run, device, lower, service),
        Storm::Device { service } => device::run(&mut run, service),
        Storm::Tree { directory } => tree::run(&mut run, directory),
    };
    let StormRun(_, _, mut tally) = run;
    tally.put();
    print!("{tally}");
    result?;
    Ok(ExitCode::from(u8::from(tally.findings() > 0)))
}
