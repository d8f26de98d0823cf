// SPDX-License-Identifier: GPL-2.0-only

//! `nrsctl agent`

use std::io::Write;
use std::path::PathBuf;

use nrs_agent::socket;
use nrs_agent::status::{EntityStatus, PeerStatus, ServiceStatus, Status};

use crate::failure::{failure, Result};
use crate::kernel::Kernel;
use crate::show;
use crate::stats::words::{duration, safe};
use crate::top::numbers::printable;

/// Actions of `nrsctl agent`.
#[derive(clap::Subcommand, Debug)]
pub enum AgentAction {
    /// Shows the other servers (state, age, losses) and the level and factor of each entity.
    Status(Args),
}

/// Arguments of `nrsctl agent status`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Prints the whole status as JSON.
    #[arg(long)]
    pub json: bool,
    /// Path of the agent's socket.
    #[arg(long, value_name = "PATH", default_value = socket::PATH)]
    pub socket: PathBuf,
}

/// Runs `nrsctl agent`.
///
/// # Errors
///
/// - `NotFound`: no agent runs.
/// - `Unhealthy`: a service of the agent is not bound, or failed.
/// - Errors of [`Kernel::agent`].
pub fn run(action: &AgentAction, kernel: &dyn Kernel, out: &mut dyn Write) -> Result {
    let AgentAction::Status(args) = action;
    let Some(status) = kernel.agent(&args.socket)? else {
        return Err(
            failure!(NotFound: "no agent is running at {}", args.socket.display();
            "start: systemctl start nrs-agent; log: journalctl -u nrs-agent"),
        );
    };
    match args.json {
        true => show::json(out, &status)?,
        false => describe(&status, out)?,
    }
    let sick = |one: &&ServiceStatus| one.failure.is_some() || one.numbers.bound == 0;
    let sick = status.services.iter().filter(sick);
    let sick: Vec<String> = sick.map(|one| safe(&one.service)).collect();
    match sick.is_empty() {
        true => Ok(()),
        false => Err(failure!(Unhealthy: "not shared with other servers: {}", sick.join(", "))),
    }
}

/// Shows `status` as text.
fn describe(status: &Status, out: &mut dyn Write) -> Result {
    let Status {
        realm,
        server,
        transport,
        delta_ms,
        ..
    } = status;
    writeln!(
        out,
        "server {server}, realm {realm}, {transport}, {delta_ms} ms"
    )?;
    for (count, what) in [
        (
            status.dropped,
            "received datagrams dropped: receive buffer full",
        ),
        (status.strangers, "datagrams for groups without a service"),
        (
            status.own,
            "datagrams of another server that has this server's name",
        ),
    ] {
        if count > 0 {
            writeln!(out, "warning: {count} {what}")?;
        }
    }
    for one in &status.services {
        writeln!(out, "\n{}", headline(one))?;
        if !one.peers.is_empty() {
            let head = ["SERVER", "STATE", "AGE", "LOST", "ENTITIES", "UNITS/S"];
            show::list(out, false, &one.peers, head, peer)?;
        }
        if !one.entities.is_empty() {
            let head = [
                "ENTITY",
                "FACTOR",
                "LEVEL",
                "HERE/S",
                "ELSEWHERE/S",
                "QUEUED",
            ];
            show::list(out, false, &one.entities, head, entity)?;
        }
    }
    Ok(())
}

/// Returns a line about the service `one` of the agent.
pub fn headline(one: &ServiceStatus) -> String {
    let numbers = &one.numbers;
    let group = match one.group == one.service {
        true => String::new(),
        false => format!(" (group {})", safe(&one.group)),
    };
    let state = match &one.failure {
        Some(failure) => printable(failure),
        None if numbers.bound == 0 => "not bound".into(),
        None => format!(
            "{} other servers, {} of {} entities reduced, {} steps missed",
            numbers.servers, numbers.lowered, numbers.known, numbers.missed
        ),
    };
    format!("{}{group}: {state}", safe(&one.service))
}

/// Returns the fraction of the datagrams of `peer` that was lost, 0 to 1.
pub fn lost(peer: &PeerStatus) -> f64 {
    let all = peer.numbers.datagrams + peer.numbers.lost;
    peer.numbers.lost as f64 / all.max(1) as f64
}

fn peer(peer: &PeerStatus) -> [String; 6] {
    let numbers = &peer.numbers;
    let (state, heard) = match (numbers.datagrams, peer.left, numbers.connected) {
        (0, _, 0) => ("not connected", false),
        // The peer has another mode, cost model or secret, or does not share the service.
        (0, ..) => ("incompatible", false),
        (_, true, _) => ("left", true),
        (_, _, 0) => ("not connected", true),
        _ => ("connected", true),
    };
    let age = duration(numbers.age_us.saturating_mul(1000));
    let known = |text: String| if heard { text } else { "-".into() };
    [
        safe(&peer.server),
        state.into(),
        known(age),
        known(format!("{:.1}%", lost(peer) * 100.0)),
        known(numbers.records.to_string()),
        known(numbers.capacity.to_string()),
    ]
}

fn entity(entity: &EntityStatus) -> [String; 6] {
    [
        safe(&entity.entity),
        format!("{:.4}", entity.factor),
        format!("{:.0}", entity.level),
        entity.here.to_string(),
        entity.elsewhere.to_string(),
        if entity.waiting { "yes" } else { "no" }.into(),
    ]
}
