// SPDX-License-Identifier: GPL-2.0-only

//! Program `nrs-agent`: shares the service of this server fairly with other servers, as configured
//! in `/etc/nrs/agent.toml`.

use std::{
    env, fs, io,
    os::{
        linux::net::SocketAddrExt as _,
        unix::{ffi::OsStrExt as _, net::SocketAddr, net::UnixDatagram},
    },
    path::PathBuf,
    process::ExitCode,
    sync::{
        atomic::{AtomicBool, Ordering},
        Arc,
    },
};

use clap::Parser;
use nrs_agent::{
    config,
    daemon::{self, Daemon},
    secret::Secret,
    socket::{self, Lock},
    store::Store,
    toml::Fault,
    transport::{Clock, Transport as _},
    zenoh::{Zenoh, LOG},
};
use nrs_client::agent::Agent;
use rustix::time::{clock_gettime, ClockId};
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    flag,
};

/// Interval of watchdog notifications to the service manager, ns.
const WATCHDOG_NS: u64 = 1_000_000_000;

/// Shares the service of this server fairly with other servers.
#[derive(Parser, Debug)]
#[command(name = "nrs-agent", version)]
struct Args {
    /// Configuration file; check it with nrsctl check.
    #[arg(long, value_name = "FILE", default_value = config::PATH)]
    config: PathBuf,
    /// Unix socket on which the agent reports its status.
    #[arg(long, value_name = "PATH", default_value = socket::PATH)]
    socket: PathBuf,
    /// Directory for the state that is kept over restarts.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/nrs-agent")]
    state: PathBuf,
}

/// Clocks of the kernel.
struct System;

impl System {
    fn read(id: ClockId) -> u64 {
        let time = clock_gettime(id);
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }
}

impl Clock for System {
    fn now(&self) -> u64 {
        Self::read(ClockId::Monotonic)
    }

    fn shared(&self) -> u64 {
        Self::read(ClockId::Realtime)
    }
}

/// Sends `state` to the service manager, if `NOTIFY_SOCKET` is set; see sd_notify(3).
fn notify(state: &str) {
    let Some(path) = env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    let address = match path.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&path),
    };
    // Errors are ignored: a manager that misses notifications terminates the agent itself.
    let sent = address.and_then(|address| {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        socket.send_to_addr(state.as_bytes(), &address)
    });
    drop(sent);
}

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reasons) => {
            for reason in reasons.lines() {
                eprintln!("nrs-agent: {reason}");
            }
            ExitCode::FAILURE
        }
    }
}

/// Runs the agent until a signal ends it.
///
/// # Errors
///
/// The reasons for which the agent cannot run, one per line.
fn run(args: &Args) -> Result<(), String> {
    let path = args.config.display();
    let at = |path: &PathBuf, error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let text = fs::read_to_string(&args.config).map_err(|error| at(&args.config, &error))?;
    let lines = |faults: Vec<Fault>| {
        let lines = faults.iter().map(Fault::to_string);
        lines.collect::<Vec<_>>().join("\n")
    };
    let config = config::parse(&path.to_string(), &text, &config::host()).map_err(lines)?;
    let wrong = config::check_files(&config);
    if !wrong.is_empty() {
        return Err(lines(wrong));
    }
    let secret = Secret::read(&config.secret).map_err(|reason| at(&config.secret, &reason))?;
    if !config.servers.is_empty() && !config.servers.contains_key(&config.server) {
        let server = &config.server;
        eprintln!("nrs-agent: warning: {path}: this server ({server}) is missing in [servers]");
    }
    let starting = Arc::new(AtomicBool::new(true));
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // During the start a signal ends the process immediately: there is nothing to clean up.
        let registered = flag::register_conditional_default(signal, Arc::clone(&starting))
            .and_then(|_| flag::register(signal, Arc::clone(&ended)));
        registered.map_err(|error: io::Error| error.to_string())?;
    }
    zenoh::init_log_from_env_or(LOG);
    let lock = Lock::take(&args.socket).map_err(|error| at(&args.socket, &error))?;
    let mut transport = Zenoh::open(&config).map_err(|error| format!("zenoh: {error}"))?;
    starting.store(false, Ordering::Relaxed);
    let socket = lock.bind().map_err(|error| at(&args.socket, &error))?;
    let store = Store::new(&args.state);
    let mut daemon = Daemon::new(config, secret, store, Agent::bind);
    notify("READY=1");
    let mut pinged = System.now();
    daemon::run(
        &mut daemon,
        &mut transport,
        &System,
        &ended,
        |daemon, transport| {
            let now = System.now();
            socket.answer(|| daemon.status(now, transport.dropped()));
            if now - pinged >= WATCHDOG_NS {
                pinged = now;
                notify("WATCHDOG=1");
            }
        },
    );
    notify("STOPPING=1");
    transport.close();
    drop(socket);
    Ok(())
}
