// SPDX-License-Identifier: GPL-2.0-only

//! `nrsctl exporter`

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nrs_agent::{socket, status::Status};

use crate::exporter::encode::CONTENT_TYPE;
use crate::exporter::family::Gathered;
use crate::exporter::http::{self, Answer, Request};
use crate::exporter::others::Memory;
use crate::exporter::page;
use crate::failure::{failure, Failure, FailureKind, Result};
use crate::kernel::{self, is_gone, Kernel};
use crate::replace::replace;
use crate::stats::{self, Snapshot};

/// Default address of the HTTP server.
const LISTEN: &str = "127.0.0.1:9719";

/// Arguments of `nrsctl exporter`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// HTTP address of /metrics.
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        default_value = LISTEN,
        conflicts_with_all = ["textfile", "once"],
    )]
    pub listen: String,
    /// Writes a page atomically to this file (*.prom), for the textfile collector.
    #[arg(long, value_name = "FILE", conflicts_with = "once")]
    pub textfile: Option<PathBuf>,
    /// Period of rewriting the file, in seconds (default: write it once and exit).
    #[arg(
        long,
        value_name = "SECONDS",
        requires = "textfile",
        value_parser = clap::value_parser!(u64).range(1..=86_400),
    )]
    pub every: Option<u64>,
    /// Prints one page and exits.
    #[arg(long)]
    pub once: bool,
    /// Number of entities shown per policy and head, by dispatched requests; the rest is summed up.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 100,
        value_parser = clap::value_parser!(u32).range(0..=10_000),
    )]
    pub top: u32,
    /// Name of a service to show; may be repeated (default: all).
    #[arg(long = "service", value_name = "NAME")]
    pub services: Vec<String>,
    /// Reads snapshots from this file, as `status --json` prints them, instead of the module.
    #[arg(long, value_name = "FILE", hide = true)]
    pub from: Option<PathBuf>,
}

/// Runs `nrsctl exporter`.
///
/// # Errors
///
/// - [`FailureKind::Usage`]: the address or the file cannot be used.
/// - With `--once`: all errors of reading statistics, with the kind of the first.
pub fn run(args: &Args, kernel: &dyn Kernel, out: &mut dyn Write) -> Result {
    let top = usize::try_from(args.top).unwrap_or(usize::MAX);
    if args.once {
        let mut gathered = gather(args, kernel);
        gathered.seconds = 0.0;
        if let (true, Some(failure)) = (gathered.snapshots.is_empty(), &gathered.failure) {
            return Err(failure.clone());
        }
        let page = page::render(&gathered, top, None);
        out.write_all(page.as_bytes())?;
        return gathered.failure.map_or(Ok(()), Err);
    }
    match &args.textfile {
        Some(path) => write_file(args, kernel, path, top),
        None => listen(args, kernel, out, top),
    }
}

/// Returns the snapshots of the selected services; read errors of single services are added to
/// `failures`.
///
/// # Errors
///
/// No snapshot could be read.
fn snapshots(
    args: &Args,
    kernel: &dyn Kernel,
    failures: &mut Vec<Failure>,
) -> Result<Vec<Snapshot>> {
    if let Some(path) = &args.from {
        return recorded(path);
    }
    let mut note = |result: Result<Snapshot>| match result {
        Ok(snapshot) => Some(snapshot),
        Err(failure) => {
            failures.push(failure);
            None
        }
    };
    if !args.services.is_empty() {
        let services: BTreeSet<&String> = args.services.iter().collect();
        let snapshots = services.iter().map(|name| stats::read(kernel, name));
        return Ok(snapshots.filter_map(note).collect());
    }
    let read = |service: &str| match stats::read(kernel, service) {
        Err(failure) if is_gone(kernel, service, &failure)? => Err(failure),
        result => Ok(note(result)),
    };
    Ok(kernel::each(kernel, read)?.into_iter().flatten().collect())
}

fn recorded(path: &Path) -> Result<Vec<Snapshot>> {
    let failure = |error: &dyn std::fmt::Display| {
        failure!(NotFound: "{}: {error}", path.display();
            "expected the output of nrsctl status --json")
    };
    let text = fs::read_to_string(path).map_err(|error| failure(&error))?;
    serde_json::from_str(&text).map_err(|error| failure(&error))
}

/// Returns the status of the agent with the selected services; `None` if no agent runs.
fn agent(args: &Args, kernel: &dyn Kernel) -> Result<Option<Status>> {
    if args.from.is_some() {
        return Ok(None);
    }
    let mut agent = kernel.agent(Path::new(socket::PATH))?;
    if let Some(status) = agent.as_mut().filter(|_| !args.services.is_empty()) {
        let asked = |name: &String| args.services.contains(name);
        status.services.retain(|one| asked(&one.service));
    }
    Ok(agent)
}

/// Returns snapshots and agent status, with the failures of reading them.
fn gather(args: &Args, kernel: &dyn Kernel) -> Gathered {
    let start = Instant::now();
    let mut failures = Vec::new();
    let snapshots = snapshots(args, kernel, &mut failures).unwrap_or_else(|failure| {
        failures.push(failure);
        Vec::new()
    });
    let agent = agent(args, kernel).unwrap_or_else(|failure| {
        failures.push(failure);
        None
    });
    Gathered {
        snapshots,
        agent,
        failure: Failure::of(failures).err(),
        seconds: start.elapsed().as_secs_f64(),
    }
}

/// Writes the file, once or periodically.
fn write_file(args: &Args, kernel: &dyn Kernel, path: &Path, top: usize) -> Result {
    let mut memory = args.every.map(|_| Memory::new());
    let mut said = None;
    loop {
        let gathered = gather(args, kernel);
        let page = page::render(&gathered, top, memory.as_mut());
        let written = replace(path, page.as_bytes()).map_err(|failure| match failure.kind {
            FailureKind::NotFound | FailureKind::Permission => failure.hint(
                "the directory must exist and be writable: \
                 the page is written to a temporary file and renamed",
            ),
            _ => failure,
        });
        let Some(seconds) = args.every else {
            written?;
            return gathered.failure.map_or(Ok(()), Err);
        };
        let failure = written.err().or(gathered.failure);
        if failure != said {
            // A failure is reported once, not in every period.
            if let Some(reason) = &failure {
                let _ = writeln!(io::stderr(), "nrsctl: {reason}");
            }
            said = failure;
        }
        thread::sleep(Duration::from_secs(seconds));
    }
}

/// Answers HTTP requests until the process ends.
fn listen(args: &Args, kernel: &dyn Kernel, out: &mut dyn Write, top: usize) -> Result {
    let listener = TcpListener::bind(&args.listen).map_err(|error| {
        failure!(Usage: "--listen {}: {error}", args.listen;
            "expected an unused local ADDRESS:PORT, such as 127.0.0.1:9719 or [::]:9719")
    })?;
    let address = listener.local_addr()?;
    writeln!(out, "listening at http://{address}/metrics")?;
    out.flush()?;
    let mut memory = Memory::new();
    http::serve(listener, |request| {
        answer(request, || gather(args, kernel), top, &mut memory)
    })
}

/// Returns the answer to `request`.
pub fn answer(
    request: &Request,
    gather: impl FnOnce() -> Gathered,
    top: usize,
    memory: &mut Memory,
) -> Answer {
    match request.path.as_str() {
        "/" => Answer {
            status: 200,
            content_type: "text/html; charset=utf-8",
            body: FRONT.into(),
        },
        "/metrics" => {
            let gathered = gather();
            let status = match &gathered.failure {
                Some(_) if gathered.snapshots.is_empty() => 503,
                _ => 200,
            };
            let mut body = String::new();
            if let Some(reason) = &gathered.failure {
                body = format!("# {}\n", one_line(&reason.to_string()));
            }
            body += &page::render(&gathered, top, Some(memory));
            Answer {
                status,
                content_type: CONTENT_TYPE,
                body,
            }
        }
        _ => Answer::text(404, "not found; see /metrics"),
    }
}

/// Body of the page `/`.
const FRONT: &str = "<!doctype html>\n<html><head><title>nrs</title></head><body>\
    <p>nrs, the network request scheduler: <a href=\"/metrics\">metrics</a></p></body></html>\n";

fn one_line(reason: &str) -> String {
    let lines = reason.lines().map(str::trim);
    // Further failures are shown with the program's name in front.
    let lines = lines.map(|line| line.strip_prefix("nrsctl: ").unwrap_or(line));
    let lines: Vec<&str> = lines.collect();
    lines.join("; ")
}
