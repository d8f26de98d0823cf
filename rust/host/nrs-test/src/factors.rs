// SPDX-License-Identifier: GPL-2.0-only

//! Simulates the agent of a service on `/dev/nrs-control`, and checks that the control node behaves
//! as documented in `Documentation/control.md`.

use std::{
    collections::BTreeMap,
    error::Error,
    fs, io,
    io::Write as _,
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use nrs_client::{
    agent::{Account, Accounts, Agent, Refused},
    wire,
};

use crate::Outcome;

type FactorsResult<T = ()> = Result<T, Box<dyn Error>>;

/// Maximum time for any expected event.
const SOON: Duration = Duration::from_secs(20);

/// Maximum size of a command that the module accepts, bytes.
const COMMAND_MAX: usize = (256 << 10) + 4096;

/// Reads accounts of a service and sets factors of weights.
#[derive(clap::Args)]
#[command(after_help = crate::STATUS)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

/// Kinds of tests.
#[derive(clap::Subcommand)]
enum What {
    /// Checks that accounts and names agree with nrs_fairshare_stats.
    Agree {
        /// Name of the service.
        service: String,
    },
    /// Checks that accounts are reported when they change, and a last time when an entity is
    /// removed.
    Changes {
        /// Name of the service; it must have entities, and serve no requests.
        service: String,
    },
    /// Checks that refused commands change nothing; at least one entity must exist.
    Refuse {
        /// Name of the service.
        service: String,
    },
    /// Sets and renews factors until killed; prints "stale" and exits if the instance changes.
    Hold {
        /// Name of the service.
        service: String,
        /// Lease of the factors, ms.
        #[arg(long, default_value_t = 3000)]
        lease: u64,
        /// Set the factors once, without renewals.
        #[arg(long)]
        once: bool,
        /// Factors as KEY=FACTOR, such as uid:1001=0.25.
        #[arg(required = true)]
        factors: Vec<String>,
    },
}

/// Runs the selected test.
pub fn run(args: Args) -> Outcome {
    let done = match args.what {
        What::Agree { service } => agree(&service),
        What::Changes { service } => changes(&service),
        What::Refuse { service } => refuse(&service),
        What::Hold {
            service,
            lease,
            once,
            factors,
        } => hold(&service, Duration::from_millis(lease), once, &factors),
    };
    Ok(match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("nrs-test factors: {error}");
            ExitCode::from(1)
        }
    })
}

/// Returns the leaves of `accounts` and their levels by path: keys joined by slashes, as in
/// nrs_fairshare_stats.
fn paths(
    agent: &mut Agent,
    accounts: &Accounts,
) -> FactorsResult<BTreeMap<String, (String, Account)>> {
    let ids: Vec<u64> = accounts.list.iter().map(|account| account.id).collect();
    let names = agent.names(&ids)?;
    let names: BTreeMap<u64, _> = names.into_iter().map(|name| (name.id, name)).collect();
    let by_id: BTreeMap<u64, &Account> = accounts.list.iter().map(|a| (a.id, a)).collect();
    if by_id.len() != accounts.list.len() {
        return Err("duplicate id".into());
    }
    let mut paths = BTreeMap::new();
    let mut levels: BTreeMap<u32, String> = BTreeMap::new();
    for account in &accounts.list {
        let name = names.get(&account.id).ok_or("an account without a name")?;
        let level = levels.entry(account.level).or_insert(name.level.clone());
        if *level != name.level {
            return Err(format!("level {} is {level} and {}", account.level, name.level).into());
        }
        if !account.leaf {
            continue;
        }
        let (mut path, mut at) = (name.key.clone(), account);
        while at.parent != 0 {
            at = *by_id
                .get(&at.parent)
                .ok_or("an account without its group")?;
            let above = names.get(&at.id).ok_or("a group without a name")?;
            path = format!("{}/{path}", above.key);
        }
        paths.insert(path, (name.level.clone(), *account));
    }
    Ok(paths)
}

/// Returns the fields of each entity on the regular head in nrs_fairshare_stats, except the default
/// class and shared leaves.
fn statistics(service: &str) -> FactorsResult<BTreeMap<String, BTreeMap<String, String>>> {
    let file = format!("/sys/kernel/debug/nrs/{service}/nrs_fairshare_stats");
    let text = fs::read_to_string(&file).map_err(|error| format!("{file}: {error}"))?;
    let mut all: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    let mut fields = BTreeMap::new();
    for line in text.lines().rev() {
        let (name, value) = line.split_once(": ").ok_or("a line without a field")?;
        let value = value.trim_matches('"').to_owned();
        if name != "- entity" {
            fields.insert(name.trim_start().to_owned(), value);
            continue;
        }
        let fields = std::mem::take(&mut fields);
        if value.rsplit('/').next() != Some("default")
            && fields.get("queue").is_some_and(|queue| queue == "regular")
        {
            all.insert(value, fields);
        }
    }
    Ok(all)
}

/// Fails unless both values are equal to three decimals.
fn near(what: &str, seen: f64, shown: Option<&String>) -> FactorsResult {
    let shown: f64 = shown.ok_or_else(|| format!("no {what}"))?.parse()?;
    if (seen - shown).abs() > 0.0006 {
        return Err(format!("{what}: {seen}, statistics show {shown}").into());
    }
    Ok(())
}

fn agree(service: &str) -> FactorsResult {
    let mut agent = Agent::bind(service)?;
    let first = agent.accounts(true)?;
    let leaves = paths(&mut agent, &first)?;
    let shown = statistics(service)?;
    if leaves.is_empty() || !leaves.keys().eq(shown.keys()) {
        let names = |keys: Vec<&String>| format!("{keys:?}");
        let (told, shown) = (leaves.keys().collect(), shown.keys().collect());
        return Err(format!(
            "accounts of {}, statistics of {}",
            names(told),
            names(shown)
        )
        .into());
    }
    for (path, (level, account)) in &leaves {
        let fields = &shown[path];
        let factor = f64::from(account.factor) / f64::from(wire::FACTOR_ONE);
        let weight = f64::from(account.weight) / 4096.0 * factor;
        near("factor", factor, fields.get("factor")).map_err(|e| format!("{path}: {e}"))?;
        near("weight", weight, fields.get("weight")).map_err(|e| format!("{path}: {e}"))?;
        if fields.get("type") != Some(level) {
            return Err(format!("{path}: level {level}, not {:?}", fields.get("type")).into());
        }
    }
    let second = agent.accounts(true)?;
    let same = (first.instance, first.terms) == (second.instance, second.terms);
    if !same || first.instance == 0 || first.terms == 0 || second.time_ns <= first.time_ns {
        return Err(format!("{first:?}, then {second:?}").into());
    }
    println!("{} entities agree", leaves.len());
    Ok(())
}

fn changes(service: &str) -> FactorsResult {
    let mut agent = Agent::bind(service)?;
    let all = agent.accounts(false)?;
    if all.list.is_empty() {
        return Err("there is no entity".into());
    }
    let same = agent.accounts(false)?;
    if !same.list.is_empty() {
        return Err(format!("nothing changed but {:?}", same.list).into());
    }
    if agent.accounts(true)?.list != all.list {
        return Err("accounts changed".into());
    }
    // A new bind reports all accounts.
    agent.command(format!("bind {service}").as_bytes())?;
    if agent.accounts(false)?.list != all.list {
        return Err("accounts changed after a second bind".into());
    }
    let end = Instant::now() + 2 * SOON;
    let mut left: Vec<u64> = all.list.iter().map(|account| account.id).collect();
    while !left.is_empty() {
        if Instant::now() > end {
            return Err(format!("{left:?} are not removed").into());
        }
        thread::sleep(Duration::from_millis(200));
        for account in agent.accounts(false)?.list {
            if account.gone {
                left.retain(|id| *id != account.id);
            }
        }
    }
    if !agent.accounts(true)?.list.is_empty() {
        return Err("removed entities are still reported".into());
    }
    Ok(())
}

/// Fails unless `command` is refused with `errno` and a reason.
fn refused(agent: &mut Agent, command: &[u8], errno: i32) -> FactorsResult {
    let shown = String::from_utf8_lossy(&command[..command.len().min(60)]).into_owned();
    let error = match agent.command(command) {
        Ok(_) => return Err(format!("{shown:?} was accepted").into()),
        Err(error) => error,
    };
    let why = error
        .get_ref()
        .and_then(|why| why.downcast_ref::<Refused>());
    let why = why.ok_or_else(|| format!("{shown:?}: {error}"))?;
    if why.errno != errno || why.reason.is_empty() || why.reason.contains('\n') {
        return Err(format!("{shown:?}: {error}, error {errno} was expected").into());
    }
    Ok(())
}

/// Returns a command that sets factors.
fn command(line: &str, pairs: &[(u64, u32, u32)]) -> Vec<u8> {
    let mut command = format!("{line}\n").into_bytes();
    for &(id, factor, reserved) in pairs {
        let pair = wire::Factor {
            id,
            factor,
            reserved,
        };
        command.extend(pair.encode());
    }
    command
}

fn refuse(service: &str) -> FactorsResult {
    const LEASE: Duration = Duration::from_secs(60);
    let mut agent = Agent::open()?;
    for line in ["accounts", "accounts all", "names 1", "factors 1 1\n"] {
        refused(&mut agent, line.as_bytes(), libc::EINVAL)?;
    }
    refused(&mut agent, b"bind no-such-service", libc::ENODEV)?;
    agent.command(format!("bind {service}\n").as_bytes())?;
    let mut other = Agent::open()?;
    refused(
        &mut other,
        format!("bind {service}").as_bytes(),
        libc::EBUSY,
    )?;
    let accounts = agent.accounts(true)?;
    let id = accounts.list.first().ok_or("there is no entity")?.id;
    let quarter = wire::FACTOR_ONE / 4;
    agent.factors(accounts.instance, LEASE, &[(id, quarter)])?;

    let one = wire::FACTOR_ONE;
    let line = format!("factors {:016x} 1000", accounts.instance);
    let stale = format!("factors {:016x} 1000", accounts.instance ^ 1);
    let lease = |ms| format!("factors {:016x} {ms}", accounts.instance);
    let many: Vec<_> = (1..=wire::FACTORS_MAX as u64 + 1)
        .map(|id| (id, one, 0))
        .collect();
    let cut = command(&line, &[(1, one, 0)]);
    let ids = format!("names{}", " 0123456789abcdef".repeat(241));
    let cases: Vec<(Vec<u8>, i32)> = vec![
        (b"bind".to_vec(), libc::EINVAL),
        (b"bind no-such-service".to_vec(), libc::ENODEV),
        (b"accounts some".to_vec(), libc::EINVAL),
        (b"names".to_vec(), libc::EINVAL),
        (b"names 1  2".to_vec(), libc::EINVAL),
        (b"names uid".to_vec(), libc::EINVAL),
        (ids.into_bytes(), libc::E2BIG),
        (line.clone().into_bytes(), libc::EINVAL),
        (b"factors\n".to_vec(), libc::EINVAL),
        (b"factors x 1000\n".to_vec(), libc::EINVAL),
        (command(&lease("0"), &[]), libc::EINVAL),
        (command(&lease("60001"), &[]), libc::EINVAL),
        (command(&lease("-1"), &[]), libc::EINVAL),
        (command(&lease(""), &[]), libc::EINVAL),
        (command(&stale, &[(id, one, 0)]), libc::ESTALE),
        (command("factors 0 1000", &[]), libc::ESTALE),
        (cut[..cut.len() - 1].to_vec(), libc::EINVAL),
        ([&cut[..], b"\n"].concat(), libc::EINVAL),
        (command(&line, &[(0, one, 0)]), libc::EINVAL),
        (command(&line, &[(7, one, 0), (7, one, 0)]), libc::EINVAL),
        (command(&line, &[(7, one, 0), (6, one, 0)]), libc::EINVAL),
        (command(&line, &[(id, 0, 0)]), libc::EINVAL),
        (command(&line, &[(id, one + 1, 0)]), libc::EINVAL),
        (command(&line, &[(id, u32::MAX, 0)]), libc::EINVAL),
        (command(&line, &[(id, one, 1)]), libc::EINVAL),
        // The last of several pairs is invalid.
        (
            command(&line, &[(id, one, 0), (u64::MAX, 0, 0)]),
            libc::EINVAL,
        ),
        (command(&line, &many), libc::E2BIG),
        (vec![b'x'; COMMAND_MAX + 1], libc::E2BIG),
    ];
    for (case, errno) in &cases {
        refused(&mut agent, case, *errno)?;
        let now = agent.accounts(true)?;
        let found = now.list.iter().find(|account| account.id == id);
        let factor = found.map(|account| account.factor);
        if factor != Some(quarter) || now.instance != accounts.instance {
            let shown = String::from_utf8_lossy(&case[..case.len().min(60)]).into_owned();
            return Err(format!("after {shown:?} the factor is {factor:?}").into());
        }
    }
    // The maximum number of factors.
    let most: Vec<(u64, u32)> = (1..=wire::FACTORS_MAX as u64).map(|id| (id, one)).collect();
    agent.factors(accounts.instance, LEASE, &most)?;
    if !agent.names(&[1, 2, u64::MAX])?.is_empty() {
        return Err("unknown ids have names".into());
    }
    println!("{} commands refused", cases.len());
    Ok(())
}

fn hold(service: &str, lease: Duration, once: bool, wanted: &[String]) -> FactorsResult {
    let mut agent = Agent::bind(service)?;
    let mut keys = BTreeMap::new();
    for word in wanted {
        let (key, factor) = word.rsplit_once('=').ok_or("factors are KEY=FACTOR")?;
        let factor: f64 = factor.parse()?;
        keys.insert(key, (factor * f64::from(wire::FACTOR_ONE)) as u32);
    }
    let end = Instant::now() + SOON;
    let (instance, pairs) = loop {
        let accounts = agent.accounts(true)?;
        let leaves = paths(&mut agent, &accounts)?;
        let pair = |(key, factor): (&&str, &u32)| Some((leaves.get(*key)?.1.id, *factor));
        let pairs: Option<Vec<(u64, u32)>> = keys.iter().map(pair).collect();
        if let Some(mut pairs) = pairs {
            pairs.sort_unstable();
            break (accounts.instance, pairs);
        }
        if Instant::now() > end {
            return Err(format!("entities {keys:?} missing in {:?}", leaves.keys()).into());
        }
        thread::sleep(Duration::from_millis(50));
    };
    agent.factors(instance, lease, &pairs)?;
    println!("held");
    io::stdout().flush()?;
    loop {
        thread::sleep(lease / 3);
        if once {
            continue;
        }
        match agent.factors(instance, lease, &pairs) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::StaleNetworkFileHandle => {
                println!("stale");
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        }
    }
}
