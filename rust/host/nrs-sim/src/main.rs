// SPDX-License-Identifier: GPL-2.0-only

//! `nrs-sim`: simulator for the schedulers of nrs.

use std::error::Error;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use nrs_sim::scenario::{Faults, Scenario};
use nrs_sim::{engine, show, study};

/// Simulates the schedulers of nrs.
#[derive(Parser, Debug)]
#[command(version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Runs a scenario and prints tables of the results.
    Run {
        /// Scenario file (TOML).
        scenario: PathBuf,
        /// Seed of random numbers, instead of the seed in the scenario.
        #[arg(long)]
        seed: Option<u64>,
        /// Directory for NAME.json and NAME-*.svg; without it, no files are written.
        #[arg(long)]
        out: Option<PathBuf>,
        /// Hides the progress.
        #[arg(long)]
        quiet: bool,
        /// Overrides a key of the scenario: `job.a.procs=4`, `server.0.policy="fifo"`.
        #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
        set: Vec<(String, String)>,
    },
    /// Checks scenario files; for faults, prints FILE:LINE:COLUMN and exits with status 2.
    Check {
        /// Scenario files (TOML).
        #[arg(required = true)]
        scenarios: Vec<PathBuf>,
    },
    /// Measures the speed of the simulator in events per second.
    Events {
        /// Number of events to simulate.
        #[arg(long, default_value_t = 10_000_000)]
        events: u64,
    },
    /// Runs studies, which are families of scenarios, and prints their tables; exits with status 1
    /// if a limit is broken.
    Study {
        /// Study files (TOML).
        #[arg(required = true)]
        studies: Vec<PathBuf>,
        /// Directory for NAME.md, NAME.json and NAME.svg; without it, no files are written.
        #[arg(long)]
        out: Option<PathBuf>,
        /// Maximum number of seeds for each row of a table.
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1000))]
        seeds: u64,
        /// Leaves out long cases, and shortens runs where the study allows it.
        #[arg(long)]
        quick: bool,
        /// Hides the progress.
        #[arg(long)]
        quiet: bool,
    },
}

/// Parses `KEY=VALUE`.
fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("is not KEY=VALUE")?;
    Ok((key.trim().to_string(), value.trim().to_string()))
}

/// Prints to stdout; ignores a closed pipe.
fn print(text: &str) -> std::io::Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

fn run(command: Command) -> Result<(), Box<dyn Error>> {
    match command {
        Command::Run {
            scenario,
            seed,
            out,
            quiet,
            set,
        } => {
            let mut scenario = Scenario::load(&scenario, &set)?;
            scenario.seed = seed.unwrap_or(scenario.seed);
            let progress = show::Progress::new(quiet, 1000);
            let outcome = engine::run_with(&scenario, engine::Settings::default(), |now, end| {
                progress.set((u128::from(now) * 1000 / u128::from(end.max(1))) as u64);
            })?;
            drop(progress);
            print(&show::tables(&outcome))?;
            print(&format!(
                "{} events in {:.2} s: {:.2} million per second\n",
                outcome.events,
                outcome.wall.as_secs_f64(),
                outcome.events as f64 / outcome.wall.as_secs_f64().max(1e-9) / 1e6
            ))?;
            if let Some(out) = out {
                for path in show::write(&outcome, &out)? {
                    print(&format!("{}\n", path.display()))?;
                }
            }
        }
        Command::Check { scenarios } => {
            let mut faults = Vec::new();
            for path in &scenarios {
                if let Err(found) = Scenario::load(path, &[]) {
                    faults.push(found);
                }
            }
            // All faults are printed; the last one sets the exit status.
            if let Some(last) = faults.pop() {
                for found in faults {
                    eprintln!("{found}");
                }
                return Err(last.into());
            }
        }
        Command::Events { events } => {
            let outcome = engine::speed(events)?;
            let seconds = outcome.wall.as_secs_f64();
            print(&format!(
                "{} events in {seconds:.2} s: {:.2} million per second\n",
                outcome.events,
                outcome.events as f64 / seconds.max(1e-9) / 1e6
            ))?;
        }
        Command::Study {
            studies,
            out,
            seeds,
            quick,
            quiet,
        } => {
            let options = study::Options {
                out,
                seeds,
                quick,
                quiet,
            };
            let mut broken = Vec::new();
            for path in &studies {
                if studies.len() > 1 {
                    print(&format!("\n## {}\n\n", path.display()))?;
                }
                let report = study::run(path, &options)?;
                print(&report.markdown)?;
                broken.extend(report.broken);
            }
            if !broken.is_empty() {
                return Err(format!("broken limits:\n{}", broken.join("\n")).into());
            }
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => match error.downcast_ref::<Faults>() {
            Some(faults) => {
                eprintln!("{faults}");
                ExitCode::from(2)
            }
            None => {
                eprintln!("nrs-sim: {error}");
                ExitCode::FAILURE
            }
        },
    }
}
