// SPDX-License-Identifier: GPL-2.0-only

//! Checks that `/dev/nrs` behaves as documented in `Documentation/dev-nrs.md`. For test machines
//! only, since the checks create services and change their slots.

use std::{
    collections::BTreeSet,
    fmt::Debug,
    fs::{self, File},
    io::{self, ErrorKind, Read, Write},
    process::ExitCode,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{bail, ensure, Context as _};
use nrs_client::{ioctl, wire, Client, Completion, Options, Released, Request, DEVICE};

use crate::{
    random::{Draw, Random},
    Outcome,
};
pub use records::{argument, field};

mod life;
mod order;
mod records;
mod share;
mod timeouts;

type CheckResult = Outcome<()>;

/// Maximum time for any expected event.
const SOON: Duration = Duration::from_secs(20);

/// Name and function of a check.
type Check = (&'static str, fn() -> CheckResult);

/// Builds the table of checks; each check is named after its function.
macro_rules! groups {
    ($($group:ident: $($module:ident { $($check:ident)+ })+;)+) => {
        [$((stringify!($group), &[$($((stringify!($check), $module::$check),)+)+])),+]
    };
}

/// Checks by group: the interface, order and credits (which hold under every policy), deadlines and
/// early replies.
const GROUPS: [(&str, &[Check]); 3] = groups! {
    interface:
        records { attach unattached roundtrip refused sizes parts limit }
        life { order waiting readers exclusive fault lease close };
    order:
        order { promote come_along stream graph predecessors window late close_blocked
            writers levels }
        share { credits newcomer buffer };
    timeouts:
        timeouts { early busy crowd rate recovery hostile silent };
};

/// Runs a check of /dev/nrs on services with the given parameters.
#[derive(clap::Args)]
#[command(after_help = crate::STATUS)]
pub struct Args {
    /// Print the names of the checks of a group.
    #[arg(long, value_name = "GROUP", value_parser = GROUPS.map(|(name, _)| name))]
    list: Option<String>,
    /// Name of the check; `block` reads until a signal arrives, `hold` is a client until the end of
    /// standard input.
    #[arg(required_unless_present = "list")]
    name: Option<String>,
    /// Parameters of the services, FILE=VALUE; for `hold`: names of services.
    settings: Vec<String>,
}

/// Parameters of the services of the check: files and values.
static SETTINGS: OnceLock<Vec<(String, String)>> = OnceLock::new();

/// Fails unless `seen` equals `wanted`.
fn same<T: PartialEq + Debug>(what: &str, seen: T, wanted: T) -> CheckResult {
    ensure!(
        seen == wanted,
        "{what}: found {seen:?}, expected {wanted:?}"
    );
    Ok(())
}

/// Reads a file of a service in debugfs.
fn get(service: &str, file: &str) -> Outcome<String> {
    let file = format!("/sys/kernel/debug/nrs/{service}/{file}");
    fs::read_to_string(&file).context(file)
}

/// Fails if the client becomes readable within `time`.
fn quiet(what: &str, client: &Client, time: Duration) -> CheckResult {
    same(what, client.wait(false, Some(time))?.readable, false)
}

/// Fails unless the next request is released without queueing, as in an idle service.
fn uncontended(client: &Client) -> CheckResult {
    let flags = released(client, 1)?[0].header.flags;
    same("uncontended", flags, wire::RELEASED_PASSED)
}

/// Fails unless `result` is the error `wanted`.
fn fails<T: Debug>(what: &str, result: io::Result<T>, wanted: i32) -> CheckResult {
    match result {
        Err(error) if error.raw_os_error() == Some(wanted) => Ok(()),
        other => bail!("{what}: found {other:?}, expected errno {wanted}"),
    }
}

/// Creates a client of a service named after the check, with `slots` slots.
fn client(service: &str, slots: u32) -> Outcome<Client> {
    client_with(Options::new(service).nonblocking(true), service, slots)
}

fn client_with(options: Options, service: &str, slots: u32) -> Outcome<Client> {
    let client = options.open()?;
    set(service, "slots", &slots.to_string())?;
    for (file, value) in SETTINGS.get().into_iter().flatten() {
        set(service, file, value)?;
    }
    Ok(client)
}

/// Writes a file of a service in debugfs.
fn set(service: &str, file: &str, value: &str) -> CheckResult {
    let file = format!("/sys/kernel/debug/nrs/{service}/{file}");
    let end = Instant::now() + SOON;
    loop {
        match fs::write(&file, value) {
            // Busy while instances of earlier policies are still ending.
            Err(error) if error.kind() == ErrorKind::WouldBlock && Instant::now() < end => {
                thread::sleep(Duration::from_millis(20));
            }
            done => return done.context(file),
        }
    }
}

/// Creates plain requests with these cookies.
fn requests(cookies: impl IntoIterator<Item = u64>) -> Vec<Request> {
    let all = cookies.into_iter();
    all.map(|cookie| {
        Request::new(cookie)
            .opcode(3)
            .uid(cookie as u32 % 5)
            .length(4096)
    })
    .collect()
}

/// Submits all of `requests`, in as many calls as necessary.
fn submit(client: &Client, requests: impl AsRef<[Request]>) -> CheckResult {
    Ok(each(requests.as_ref(), |rest| client.submit(rest))?)
}

/// Hands all of `records` over, in as many calls as necessary; each returns the accepted number.
pub fn each<T>(mut records: &[T], call: impl Fn(&[T]) -> io::Result<usize>) -> io::Result<()> {
    while !records.is_empty() {
        records = &records[call(records)?..];
    }
    Ok(())
}

/// Returns true if there is room for a request within `time`.
fn has_room(client: &Client, time: Duration) -> io::Result<bool> {
    Ok(client.wait(true, Some(time))?.writable)
}

/// Returns the next `count` released requests; waits for each.
fn released(client: &Client, count: usize) -> Outcome<Vec<Released>> {
    let (mut all, end) = (Vec::new(), Instant::now() + SOON);
    while all.len() < count {
        ensure!(
            Instant::now() <= end,
            "{} of {count} were released",
            all.len()
        );
        if client
            .wait(false, Some(Duration::from_millis(100)))?
            .readable
        {
            all.extend(client.released(count - all.len())?);
        }
    }
    Ok(all)
}

fn cookies(released: &[Released]) -> Vec<u64> {
    released.iter().map(|released| released.cookie).collect()
}

fn complete(client: &Client, cookie: u64) -> io::Result<usize> {
    client.complete(&[Completion::new(cookie, 0, 4096)])
}

fn device() -> io::Result<File> {
    File::options().read(true).write(true).open(DEVICE)
}

/// Locks data of several threads.
pub fn locked<T>(data: &Mutex<T>) -> MutexGuard<'_, T> {
    data.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the result of a thread.
fn join<T>(thread: JoinHandle<T>) -> Outcome<T> {
    thread.join().ok().context("a thread has panicked")
}

/// Reads until a signal arrives.
fn block() -> CheckResult {
    let client = Options::new("block").open()?;
    println!("reading");
    client.released(1)?;
    Ok(())
}

/// Runs a client of each service until the end of standard input, or of those before the first
/// service for which there is no room.
fn hold(services: &[String]) -> CheckResult {
    let mut clients = Vec::new();
    for service in services {
        match Options::new(service).name("hold").open() {
            Err(error) if error.raw_os_error() == Some(libc::ENOSPC) => break,
            client => clients.push(client?),
        }
    }
    for client in &clients {
        submit(client, requests(1..=3))?;
    }
    println!("holding {}", clients.len());
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// Runs the check, or prints the names of checks.
pub fn run(args: Args) -> Outcome {
    if let Some(group) = args.list {
        for (_, checks) in GROUPS.iter().filter(|(name, _)| *name == group) {
            checks.iter().for_each(|(name, _)| println!("{name}"));
        }
        return Ok(ExitCode::SUCCESS);
    }
    device().context(DEVICE)?;
    let name = args.name.unwrap_or_default();
    let done = match (name.as_str(), &args.settings[..]) {
        ("block", []) => block(),
        ("hold", services) => hold(services),
        (name, settings) => {
            let pair = |text: &String| {
                let (file, value) = text.split_once('=')?;
                Some((file.to_string(), value.to_string()))
            };
            let settings: Option<Vec<_>> = settings.iter().map(pair).collect();
            let settings = settings.context("expected parameters as FILE=VALUE")?;
            SETTINGS.get_or_init(|| settings);
            let mut all = GROUPS.iter().flat_map(|(_, checks)| *checks);
            let check = all.find(|(known, _)| *known == name);
            check.context("unknown check; see --list")?.1()
        }
    };
    Ok(match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("nrs-test check {name}: {error:#}");
            ExitCode::from(1)
        }
    })
}
