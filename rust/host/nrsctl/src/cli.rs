// SPDX-License-Identifier: GPL-2.0-only

//! Command line of `nrsctl`.

use std::io::Write;

use clap::{Parser, Subcommand};

use crate::commands::*;
use crate::failure::Result;
use crate::kernel::Kernel;

/// The network request scheduler nrs: parameters, rules, configuration files, statistics.
#[derive(Parser, Debug)]
#[command(name = "nrsctl", version, about, infer_subcommands = false)]
pub struct Cli {
    /// Command to run.
    #[command(subcommand)]
    pub command: Command,
}

/// Commands of `nrsctl`.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Shows parameters by name, as `lctl get_param` does.
    #[command(name = "get_param")]
    GetParam(get_param::Args),
    /// Sets parameters, as `lctl set_param` does.
    #[command(name = "set_param")]
    SetParam(set_param::Args),
    /// Lists parameters, as `lctl list_param` does.
    #[command(name = "list_param")]
    ListParam(list_param::Args),
    /// Services: list, show, add, remove, set.
    #[command(subcommand)]
    Service(service::ServiceAction),
    /// Devices and disks of services: list, show, add, remove, schedule, unschedule.
    #[command(subcommand, visible_alias = "client")]
    Device(device::DeviceAction),
    /// Rules of tbf: list, show, test, start, change, stop.
    #[command(subcommand)]
    Rule(rule::RuleAction),
    /// Weights of fairshare: list, set, unset.
    #[command(subcommand)]
    Weight(weight::WeightAction),
    /// Limits of entities of fairshare: list, set, unset.
    #[command(subcommand)]
    Limit(limit::LimitAction),
    /// Owners of cgroups, users whose requests all theirs are: list, set, unset.
    #[command(subcommand)]
    Owner(owner::OwnerAction),
    /// Policies: list, set.
    #[command(subcommand)]
    Policy(policy::PolicyAction),
    /// Shows policies, limits and queues on one screen.
    Status(status::Args),
    /// Prints changes of health, policies, slots and clients as they happen.
    Monitor(monitor::Args),
    /// Measures a device, read-only: recommends slots and a group for qbm.
    Measure(measure::Args),
    /// Resets counters of statistics.
    Reset(reset::Args),
    /// Shows shares, rates and latencies live.
    Top(top::Args),
    /// Records statistics periodically.
    Record(record::Args),
    /// Plots a recording as SVG.
    Plot(plot::Args),
    /// Validates configuration files without applying them.
    Check(check::Args),
    /// Applies the configuration files.
    Apply(apply::Args),
    /// Writes the running state as a configuration.
    Save(save::Args),
    /// Agent that coordinates with other servers: status.
    #[command(subcommand)]
    Agent(agent::AgentAction),
    /// Exports statistics to Prometheus.
    Exporter(exporter::Args),
    /// Prints possible next words of a command line, for shell completion.
    #[command(hide = true)]
    Complete(complete::Args),
    /// Writes manual pages, shell completions and the reference.
    #[command(subcommand, hide = true)]
    Generate(generate::Generated),
}

impl Command {
    /// Runs the command on `kernel` and writes its output to `out`.
    ///
    /// # Errors
    ///
    /// The failure of the command.
    pub fn run(&self, kernel: &dyn Kernel, out: &mut dyn Write) -> Result {
        match self {
            Command::GetParam(args) => get_param::run(args, kernel, out),
            Command::SetParam(args) => set_param::run(args, kernel, out),
            Command::ListParam(args) => list_param::run(args, kernel, out),
            Command::Service(args) => service::run(args, kernel, out),
            Command::Device(args) => device::run(args, kernel, out),
            Command::Rule(args) => rule::run(args, kernel, out),
            Command::Weight(args) => weight::run(args, kernel, out),
            Command::Limit(args) => limit::run(args, kernel, out),
            Command::Owner(args) => owner::run(args, kernel, out),
            Command::Policy(args) => policy::run(args, kernel, out),
            Command::Status(args) => status::run(args, kernel, out),
            Command::Monitor(args) => monitor::run(args, kernel, out),
            Command::Measure(args) => measure::run(args, kernel, out),
            Command::Reset(args) => reset::run(args, kernel, out),
            Command::Top(args) => top::run(args, kernel, out),
            Command::Record(args) => record::run(args, kernel, out),
            Command::Plot(args) => plot::run(args, kernel, out),
            Command::Check(args) => check::run(args, kernel, out),
            Command::Apply(args) => apply::run(args, kernel, out),
            Command::Save(args) => save::run(args, kernel, out),
            Command::Agent(action) => agent::run(action, kernel, out),
            Command::Exporter(args) => exporter::run(args, kernel, out),
            Command::Complete(args) => complete::run(args, kernel, out),
            Command::Generate(args) => generate::run(args, kernel, out),
        }
    }
}

/// Returns the output of the command line `line`, which is split at blanks.
///
/// # Errors
///
/// The failure of the command.
#[cfg(test)]
pub fn output_of(kernel: &dyn Kernel, line: &str) -> Result<String> {
    let cli = Cli::try_parse_from(format!("nrsctl {line}").split(' ')).unwrap();
    let mut out = Vec::new();
    cli.command.run(kernel, &mut out)?;
    Ok(String::from_utf8(out).unwrap())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_tree_is_sound() {
        Cli::command().debug_assert();
    }
}
