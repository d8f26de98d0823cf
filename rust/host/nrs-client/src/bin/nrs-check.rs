// SPDX-License-Identifier: GPL-2.0-only

//! Checks that `/dev/nrs` behaves as `Documentation/dev-nrs.md` says; for test machines, since it makes
//! services and changes their slots.
//!
//! `nrs-check --list` names the checks, `nrs-check --list-order` those of order and credits, `nrs-check --list-timeouts` those of
//! deadlines; `nrs-check NAME [FILE=VALUE...]` runs one, on services with these
//! settings, and fails if it fails. Two more do not end by themselves: `nrs-check block` reads until a signal comes, `nrs-check hold SERVICE` is a client
//! until its standard input ends.

use std::{
    collections::BTreeSet,
    error::Error,
    fmt::Debug,
    fs::{self, File},
    io::{self, ErrorKind, Read, Write},
    sync::{Arc, Mutex, OnceLock},
    thread,
    time::{Duration, Instant},
};

use nrs_client::{ioctl, wire, Client, Completion, Options, Released, Request, DEVICE};

#[path = "nrs-check/life.rs"]
mod life;
#[path = "nrs-check/order.rs"]
mod order;
#[path = "nrs-check/records.rs"]
mod records;
#[path = "nrs-check/share.rs"]
mod share;
#[path = "nrs-check/timeouts.rs"]
mod timeouts;

type Done = Result<(), Box<dyn Error>>;

/// Numbers of errors.
mod errno {
    pub const ENOENT: i32 = 2;
    pub const E2BIG: i32 = 7;
    pub const EAGAIN: i32 = 11;
    pub const EFAULT: i32 = 14;
    pub const EEXIST: i32 = 17;
    pub const EINVAL: i32 = 22;
    pub const ENOTTY: i32 = 25;
    pub const EPROTONOSUPPORT: i32 = 93;
    pub const ENOTCONN: i32 = 107;
    pub const EALREADY: i32 = 114;
}

/// How long anything may take that is to happen soon.
const SOON: Duration = Duration::from_secs(20);

/// A check and its name.
type Check = (&'static str, fn() -> Done);

const CHECKS: [Check; 14] = [
    ("attach", records::attach),
    ("unattached", records::unattached),
    ("roundtrip", records::roundtrip),
    ("refused", records::refused),
    ("sizes", records::sizes),
    ("parts", records::parts),
    ("limit", records::limit),
    ("order", life::order),
    ("waiting", life::waiting),
    ("readers", life::readers),
    ("fault", life::fault),
    ("lease", life::lease),
    ("close", life::close),
    ("garbage", life::garbage),
];

/// Checks of order and credits, which hold under every policy.
const ORDER: [Check; 13] = [
    ("promote", order::promote),
    ("come-along", order::come_along),
    ("stream", order::stream),
    ("graph", order::graph),
    ("predecessors", order::predecessors),
    ("window", order::window),
    ("late", order::late),
    ("close-blocked", order::close_blocked),
    ("writers", order::writers),
    ("levels", order::levels),
    ("credits", share::credits),
    ("newcomer", share::newcomer),
    ("buffer", share::buffer),
];

/// Checks of deadlines and early replies.
const TIMEOUTS: [Check; 7] = [
    ("early", timeouts::early),
    ("busy", timeouts::busy),
    ("crowd", timeouts::crowd),
    ("rate", timeouts::rate),
    ("recovery", timeouts::recovery),
    ("hostile", timeouts::hostile),
    ("silent", timeouts::silent),
];

/// Settings of services that checks make, as files and values.
static SETTINGS: OnceLock<Vec<(String, String)>> = OnceLock::new();

/// Fails unless both are equal.
fn same<T: PartialEq + Debug>(what: &str, seen: T, wanted: T) -> Done {
    if seen == wanted {
        Ok(())
    } else {
        Err(format!("{what}: {seen:?}, {wanted:?} was expected").into())
    }
}

/// Fails unless `result` is the error `wanted`.
fn fails<T: Debug>(what: &str, result: io::Result<T>, wanted: i32) -> Done {
    match result {
        Err(error) if error.raw_os_error() == Some(wanted) => Ok(()),
        other => Err(format!("{what}: {other:?}, error {wanted} was expected").into()),
    }
}

/// A service named after the check, with `slots` slots.
fn client(service: &str, slots: u32) -> Result<Client, Box<dyn Error>> {
    client_with(Options::new(service).nonblocking(true), service, slots)
}

fn client_with(options: Options, service: &str, slots: u32) -> Result<Client, Box<dyn Error>> {
    let client = options.open()?;
    set(service, "slots", &slots.to_string())?;
    for (file, value) in SETTINGS.get().into_iter().flatten() {
        set(service, file, value)?;
    }
    Ok(client)
}

/// Writes a file of a service in debugfs.
fn set(service: &str, file: &str, value: &str) -> Done {
    let file = format!("/sys/kernel/debug/nrs/{service}/{file}");
    let end = Instant::now() + SOON;
    loop {
        match fs::write(&file, value) {
            // Instances of policies that still end.
            Err(error) if error.kind() == ErrorKind::WouldBlock && Instant::now() < end => {
                thread::sleep(Duration::from_millis(20));
            }
            done => return done.map_err(|error| format!("{file}: {error}").into()),
        }
    }
}

/// Numbers without visible order.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// One below `end`, which is not 0.
    fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 11) % end
    }
}

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

/// Submits all of `requests`, however many calls that takes.
fn submit(client: &Client, requests: &[Request]) -> Done {
    let mut rest = requests;
    while !rest.is_empty() {
        rest = &rest[client.submit(rest)?..];
    }
    Ok(())
}

/// The next `count` requests that are released, waiting for each.
fn released(client: &Client, count: usize) -> Result<Vec<Released>, Box<dyn Error>> {
    let (mut all, end) = (Vec::new(), Instant::now() + SOON);
    while all.len() < count {
        if Instant::now() > end {
            return Err(format!("{} of {count} were released", all.len()).into());
        }
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

/// Reads without end.
fn block() -> Done {
    let client = Options::new("block").open()?;
    println!("reading");
    client.released(1)?;
    Ok(())
}

/// Is a client until standard input ends.
fn hold(service: &str) -> Done {
    let client = Options::new(service).name("hold").open()?;
    submit(&client, &requests(1..=3))?;
    println!("holding");
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

fn main() -> Done {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["--list"] => {
            CHECKS.iter().for_each(|(name, _)| println!("{name}"));
            Ok(())
        }
        ["--list-order"] => {
            ORDER.iter().for_each(|(name, _)| println!("{name}"));
            Ok(())
        }
        ["--list-timeouts"] => {
            TIMEOUTS.iter().for_each(|(name, _)| println!("{name}"));
            Ok(())
        }
        ["block"] => block(),
        ["hold", service] => hold(service),
        [name, ref settings @ ..] => {
            let pair = |text: &&str| {
                let (file, value) = text.split_once('=')?;
                Some((file.to_string(), value.to_string()))
            };
            let settings: Option<Vec<_>> = settings.iter().map(pair).collect();
            SETTINGS.get_or_init(|| settings.unwrap_or_default());
            let check = CHECKS
                .iter()
                .chain(&ORDER)
                .chain(&TIMEOUTS)
                .find(|(known, _)| *known == name);
            check.ok_or("no such check, see --list")?.1()
        }
        _ => Err(
            "usage: nrs-check --list | --list-order | --list-timeouts | NAME [FILE=VALUE...] | block | hold SERVICE"
                .into(),
        ),
    }
}
