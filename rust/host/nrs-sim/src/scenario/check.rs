// SPDX-License-Identifier: GPL-2.0-only

//! Checks of a scenario beyond types: names exist, times are in order, and counts have bounds. The
//! bounds limit the memory of a run before it begins.

use std::collections::BTreeMap;

use super::{Device, Exchange, Job, Loop, Model, Scenario, Server, Servers, Time, SECOND};
use crate::engine::policy;
use nrs_sched::partition::slot_pool::CPTS_MAX;

/// Maximum simulated time: one day.
pub const DURATION_MAX: Time = Time(86_400 * SECOND);
/// Maximum number of bins of results.
pub const BINS_MAX: u64 = 100_000;
/// Maximum number of devices.
pub const DEVICES_MAX: u64 = 64;
/// Maximum number of servers.
pub const SERVERS_MAX: u64 = 1024;
/// Maximum number of slots of a server.
pub const SLOTS_MAX: u64 = 65_536;
/// Maximum number of jobs.
pub const JOBS_MAX: u64 = 100_000;
/// Maximum number of nodes of all jobs.
pub const NODES_MAX: u64 = 1_000_000;
/// Maximum sum of outstanding requests of the processes of all jobs.
pub const PROCS_MAX: u64 = 8_000_000;
/// Maximum number of outstanding requests of a process.
pub const DEPTH_MAX: u64 = 1024;
/// Maximum number of cells of results: the product of jobs, bins and servers.
pub const CELLS_MAX: u64 = 64_000_000;
/// Maximum number of channels of a flash device.
pub const CHANNELS_MAX: u64 = 4096;
/// Maximum rate of a node, requests/s.
pub const RATE_MAX: u64 = 10_000_000;
/// Maximum size of a request, bytes.
pub const IO_MAX: u64 = 1 << 30;

/// Faults found: pairs of a key path and a reason.
struct Found(Vec<(String, String)>);

impl Found {
    fn add(&mut self, key: impl Into<String>, reason: impl Into<String>) {
        self.0.push((key.into(), reason.into()));
    }

    /// Adds a fault if `value` is not from `low` to `high`.
    fn bounds(&mut self, key: impl Into<String>, value: u64, low: u64, high: u64) {
        if !(low..=high).contains(&value) {
            self.add(key, format!("{value} is out of range ({low} to {high})"));
        }
    }

    /// Adds a fault and returns true if the total `value` is more than `most`.
    fn total(&mut self, key: impl Into<String>, value: u64, what: &str, most: u64) -> bool {
        if value > most {
            self.add(key, format!("too many {what}: {value} (limit: {most})"));
        }
        value > most
    }

    /// Adds a fault if `value` is not from 0 to 1.
    fn fraction(&mut self, key: impl Into<String>, value: f64) {
        if !(0.0..=1.0).contains(&value) {
            self.add(key, format!("{value} is out of range (0 to 1)"));
        }
    }

    /// Adds a fault if `value` is zero.
    fn positive(&mut self, key: impl Into<String>, value: u64) {
        if value == 0 {
            self.add(key, "is 0 (minimum: 1)");
        }
    }

    /// Adds a fault if `text` is not a valid name.
    fn name(&mut self, key: impl Into<String>, text: &str) {
        let good = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if text.is_empty() || text.len() > 64 || !text.chars().all(good) {
            self.add(
                key,
                format!("\"{text}\" is not a valid name: 1 to 64 letters, digits, `-`, `_` or `.`"),
            );
        }
    }

    /// Adds a fault if `name` is not in `servers`.
    fn server(&mut self, key: String, name: &String, servers: &[String]) {
        if !servers.contains(name) {
            self.add(key, format!("unknown server \"{name}\""));
        }
    }

    /// Adds a fault for each duplicate name.
    fn unique<'a>(&mut self, list: &str, names: impl Iterator<Item = &'a str>) {
        let mut first = BTreeMap::new();
        for (n, name) in names.enumerate() {
            if let Some(other) = first.insert(name, n) {
                self.add(
                    format!("{list}[{n}].name"),
                    format!("duplicate name \"{name}\" (also {list}[{other}])"),
                );
            }
        }
    }
}

/// Returns all faults as pairs of a key path and a reason, in the order of the document.
pub fn check(scenario: &Scenario) -> Vec<(String, String)> {
    let mut found = Found(Vec::new());
    found.name("name", &scenario.name);
    found.bounds("duration", scenario.duration.0, 1, DURATION_MAX.0);
    found.positive("sample", scenario.sample.0);
    let bins = scenario.duration.0.div_ceil(scenario.sample.0.max(1));
    found.total("sample", bins, "bins of the duration", BINS_MAX);
    if scenario.settle >= scenario.duration {
        found.add("settle", "is not shorter than the duration");
    }
    if scenario.network.bandwidth.is_some_and(|rate| rate.0 == 0) {
        found.add("network.bandwidth", "is 0 (minimum: 1)");
    }
    found.bounds(
        "network.latency",
        scenario.network.latency.0,
        0,
        60 * SECOND,
    );
    found.bounds("network.jitter", scenario.network.jitter.0, 0, 60 * SECOND);
    found.bounds("device", scenario.devices.len() as u64, 1, DEVICES_MAX);
    found.unique("device", scenario.devices.iter().map(|d| d.name.as_str()));
    for (n, device) in scenario.devices.iter().enumerate() {
        of_device(&mut found, &format!("device[{n}]"), device);
    }
    let servers = scenario.servers.iter().map(|s| u64::from(s.count)).sum();
    found.bounds("server", servers, 1, SERVERS_MAX);
    found.unique("server", scenario.servers.iter().map(|s| s.name.as_str()));
    for (n, server) in scenario.servers.iter().enumerate() {
        of_server(&mut found, &format!("server[{n}]"), server, scenario);
    }
    let jobs = scenario.jobs.len() as u64;
    found.bounds("job", jobs, 1, JOBS_MAX);
    found.unique("job", scenario.jobs.iter().map(|j| j.name.as_str()));
    // Names are expanded only if the number of servers is valid.
    let names = if servers <= SERVERS_MAX {
        scenario.server_names()
    } else {
        Vec::new()
    };
    let (mut nodes, mut procs) = (0u64, 0u64);
    for (n, job) in scenario.jobs.iter().enumerate() {
        let path = format!("job[{n}]");
        of_job(&mut found, &path, job, scenario, &names);
        nodes += u64::from(job.nodes);
        procs = u64::from(job.procs)
            .saturating_mul(job.depth.into())
            .saturating_mul(job.nodes.into())
            .saturating_add(procs);
        if found.total(format!("{path}.nodes"), nodes, "nodes", NODES_MAX)
            || found.total(
                format!("{path}.procs"),
                procs,
                "processes times depth",
                PROCS_MAX,
            )
        {
            break;
        }
    }
    let cells = jobs.saturating_mul(bins).saturating_mul(servers);
    found.total(
        "sample",
        cells,
        "bins of all jobs on all servers",
        CELLS_MAX,
    );
    if let Some(exchange) = &scenario.exchange {
        of_exchange(&mut found, exchange, &names);
    }
    found.0
}

fn of_device(found: &mut Found, path: &str, device: &Device) {
    found.name(format!("{path}.name"), &device.name);
    found.fraction(format!("{path}.jitter"), device.jitter);
    match device.model() {
        Err((key, reason)) => found.add(format!("{path}.{key}"), reason),
        Ok(Model::Pipe { bandwidth, .. }) => {
            found.positive(format!("{path}.bandwidth"), bandwidth.0);
        }
        Ok(Model::Flash {
            channels,
            read,
            write,
            ..
        }) => {
            let channels = u64::from(channels);
            found.bounds(format!("{path}.channels"), channels, 1, CHANNELS_MAX);
            found.positive(format!("{path}.read.bandwidth"), read.bandwidth.0);
            found.positive(format!("{path}.write.bandwidth"), write.bandwidth.0);
        }
        Ok(Model::Disk {
            rotation,
            bandwidth,
            ..
        }) => {
            found.positive(format!("{path}.rotation"), rotation.0);
            found.positive(format!("{path}.bandwidth"), bandwidth.0);
        }
    }
}

fn of_server(found: &mut Found, path: &str, server: &Server, scenario: &Scenario) {
    found.name(format!("{path}.name"), &server.name);
    found.bounds(format!("{path}.count"), server.count.into(), 1, SERVERS_MAX);
    found.bounds(
        format!("{path}.cpts"),
        server.cpts.into(),
        1,
        CPTS_MAX.into(),
    );
    found.bounds(format!("{path}.slots"), server.slots.into(), 1, SLOTS_MAX);
    if scenario.device(&server.device).is_none() {
        let reason = format!("unknown device \"{}\"", server.device);
        found.add(format!("{path}.device"), reason);
    }
    if let Err((key, reason)) = policy::check(server) {
        found.add(format!("{path}.{key}"), reason);
    }
}

fn of_job(found: &mut Found, path: &str, job: &Job, scenario: &Scenario, servers: &[String]) {
    let key = |key: &str| format!("{path}.{key}");
    found.name(key("name"), &job.name);
    let jobid = job.jobid();
    if jobid.is_empty() || jobid.len() > 31 || jobid.contains(char::is_whitespace) {
        let name = if job.jobid.is_some() { "jobid" } else { "name" };
        found.add(key(name), "invalid jobid (1 to 31 bytes, no white space)");
    }
    found.bounds(key("nodes"), job.nodes.into(), 1, NODES_MAX);
    found.bounds(key("procs"), job.procs.into(), 1, PROCS_MAX);
    found.bounds(key("depth"), job.depth.into(), 1, DEPTH_MAX);
    found.bounds(
        key("size"),
        job.stated_size().into(),
        1,
        4096.max(job.nodes.into()),
    );
    if job.start >= scenario.duration {
        found.add(key("start"), "is not before the end of the run");
    }
    if let Some(stop) = job.stop {
        if stop <= job.start {
            found.add(key("stop"), "is not after the start");
        }
    }
    if let Some(phases) = job.phases {
        found.positive(key("phases.on"), phases.on.0);
        found.positive(key("phases.off"), phases.off.0);
    }
    match (job.kind, job.rate) {
        (Loop::Open, None) => found.add(key("rate"), "is missing (required by an open loop)"),
        (Loop::Open, Some(rate)) => found.bounds(key("rate"), rate, 1, RATE_MAX),
        (Loop::Closed, Some(_)) => found.add(key("rate"), "only allowed in an open loop"),
        (Loop::Closed, None) => {}
    }
    if job.kind == Loop::Open && job.think != Time(0) {
        found.add(key("think"), "only allowed in a closed loop");
    }
    let mix = job.mix;
    match [mix.read, mix.write, mix.metadata]
        .map(u64::from)
        .iter()
        .sum()
    {
        0 => found.add(key("mix"), "all weights are 0"),
        sum if sum > u64::from(u32::MAX) => {
            let reason = format!("sum of weights is too large (limit: {})", u32::MAX);
            found.add(key("mix"), reason);
        }
        _ => {}
    }
    if job.io.is_empty() {
        found.add(key("io"), "is empty");
    }
    let mut weights = 0u64;
    for (n, io) in job.io.iter().enumerate() {
        let at = if job.io.len() == 1 {
            key("io")
        } else {
            key(&format!("io[{n}].size"))
        };
        found.bounds(at, io.size.0, 1, IO_MAX);
        weights += u64::from(io.weight);
    }
    if weights == 0 || weights > u32::MAX.into() {
        found.add(
            key("io"),
            format!("sum of weights is not from 1 to {}", u32::MAX),
        );
    }
    match &job.servers {
        Servers::All => {}
        Servers::Count(count) => {
            found.bounds(
                key("servers"),
                (*count).into(),
                1,
                servers.len().max(1) as u64,
            );
        }
        Servers::Names(names) => {
            if names.is_empty() {
                found.add(key("servers"), "is empty");
            }
            for (n, name) in names.iter().enumerate() {
                found.server(key(&format!("servers[{n}]")), name, servers);
            }
        }
    }
    if job.work.is_some_and(|work| work.0 == 0) {
        found.add(key("work"), "is 0 (minimum: 1)");
    }
    if let Some(burst) = job.burst {
        found.positive(key("burst.bytes"), burst.bytes.0);
        for (other, there) in [
            ("phases", job.phases.is_some()),
            ("loop", job.kind == Loop::Open),
            ("think", job.think != Time(0)),
        ] {
            if there {
                found.add(key(other), "not allowed with burst");
            }
        }
        if mix.metadata > 0 && mix.read == 0 && mix.write == 0 {
            found.add(
                key("mix"),
                "has only metadata operations: a burst would not end",
            );
        }
    }
}

fn of_exchange(found: &mut Found, exchange: &Exchange, servers: &[String]) {
    found.bounds("exchange.delta", exchange.delta.0, 1_000_000, 60 * SECOND);
    found.bounds("exchange.latency", exchange.latency.0, 0, 60 * SECOND);
    found.bounds("exchange.jitter", exchange.jitter.0, 0, 60 * SECOND);
    found.fraction("exchange.loss", exchange.loss);
    found.bounds("exchange.hold", exchange.hold.into(), 1, 1_000_000);
    for (n, cut) in exchange.cut.iter().enumerate() {
        let path = format!("exchange.cut[{n}]");
        found.server(format!("{path}.server"), &cut.server, servers);
        if cut.to <= cut.from {
            found.add(format!("{path}.to"), "is not after `from`");
        }
    }
}
