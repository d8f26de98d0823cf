// SPDX-License-Identifier: GPL-2.0-only

//! Storms of system calls against nrs, for test machines: what is written is drawn from a seed, and every answer is counted.
//!
//! # Vocabulary
//!
//! - *Storm*: one subcommand; it goes on until its time is over or the file `--stop` is there.
//! - *Kind*: what was done to what, for example `write tbf rule`.
//! - *Finding*: an answer that no document allows, or a state that should not be.
//!
//! ```text
//!   grammar ──▶ words ──▶ mutation ──▶ file, message, record, ioctl ──▶ answer ──▶ tally ──▶ allowed? ── no ──▶ finding
//! ```
//!
//! | storm | what it does |
//! |---|---|
//! | `change` | valid commands on a service that carries load: policies, rules, plans, weights, tunables |
//! | `files` | valid and mutated texts to every file of debugfs and configfs; makes and removes directories |
//! | `message` | the same by `dmsetup message`, and wrong table lines |
//! | `device` | records, ioctls and reads of `/dev/nrs` |
//! | `tree` | a metadata load in a directory: what is there is compared with what should be |
//!
//! `--counts FILE` is replaced again and again: a line `COUNT ERRNO KIND` for each, `ok` for none, and `finding TEXT`. Status 0:
//! no finding; 1: findings; 2: it could not run.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::{Parser, Subcommand};

#[path = "nrs-storm/allowed.rs"]
mod allowed;
#[path = "nrs-storm/chance.rs"]
mod chance;
#[path = "nrs-storm/change.rs"]
mod change;
#[path = "nrs-storm/device.rs"]
mod device;
#[path = "nrs-storm/files.rs"]
mod files;
#[path = "nrs-storm/message.rs"]
mod message;
#[path = "nrs-storm/tally.rs"]
mod tally;
#[path = "nrs-storm/tree.rs"]
mod tree;
#[path = "nrs-storm/words.rs"]
mod words;

use chance::Chance;
use tally::Tally;

/// Storms of random system calls against nrs; what the devices and directories named hold is lost.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// What follows from the same number is the same sequence of calls.
    #[arg(long, global = true, default_value_t = 1)]
    seed: u64,
    /// Ends after this time, seconds.
    #[arg(long, global = true, default_value_t = 10.0)]
    seconds: f64,
    /// Ends when this file is there.
    #[arg(long, global = true, value_name = "FILE")]
    stop: Option<PathBuf>,
    /// Rests so long after each call, microseconds.
    #[arg(long, global = true, default_value_t = 2000)]
    rest: u64,
    /// Where the counts go, twice a second and at the end.
    #[arg(long, global = true, value_name = "FILE")]
    counts: Option<PathBuf>,
    #[command(subcommand)]
    storm: Storm,
}

#[derive(Subcommand)]
enum Storm {
    /// Valid changes of a service.
    Change {
        /// The service.
        service: String,
        /// A device of it, for messages.
        #[arg(long)]
        device: Option<String>,
    },
    /// Texts to all files of services whose names begin so, and directories of that beginning.
    Files {
        /// How the names begin.
        prefix: String,
    },
    /// Messages to a device, and table lines for devices of its name and more.
    Message {
        /// The device.
        device: String,
        /// A block device that tables may name.
        lower: String,
        /// A service that they may name.
        service: String,
    },
    /// Records and ioctls of /dev/nrs, by four threads.
    Device {
        /// The service.
        service: String,
    },
    /// Makes, renames, links, writes and removes files in a directory.
    Tree {
        /// The directory.
        directory: PathBuf,
    },
}

/// When a storm is over, and how fast it goes.
#[derive(Clone)]
struct Until {
    end: Instant,
    stop: Option<PathBuf>,
    rest: Duration,
}

impl Until {
    /// Whether to go on; rests first.
    fn more(&self) -> bool {
        std::thread::sleep(self.rest);
        Instant::now() < self.end && !self.stop.as_deref().is_some_and(Path::exists)
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    let until = Until {
        end: Instant::now() + Duration::from_secs_f64(args.seconds),
        stop: args.stop,
        rest: Duration::from_micros(args.rest),
    };
    let mut chance = Chance::new(args.seed);
    let mut tally = Tally::new(args.counts);
    let result = match &args.storm {
        Storm::Change { service, device } => {
            change::run(service, device.as_deref(), &until, &mut chance, &mut tally)
        }
        Storm::Files { prefix } => files::run(prefix, &until, &mut chance, &mut tally),
        Storm::Message {
            device,
            lower,
            service,
        } => message::run(device, lower, service, &until, &mut chance, &mut tally),
        Storm::Device { service } => device::run(service, &until, &mut chance, &mut tally),
        Storm::Tree { directory } => tree::run(directory, &until, &mut chance, &mut tally),
    };
    tally.put();
    print!("{tally}");
    match result {
        Ok(()) if tally.findings() == 0 => ExitCode::SUCCESS,
        Ok(()) => ExitCode::from(1),
        Err(error) => {
            eprintln!("nrs-storm: {error}");
            ExitCode::from(2)
        }
    }
}
