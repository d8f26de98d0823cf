// SPDX-License-Identifier: GPL-2.0-only

//! Simulates the agent of a service on `/dev/nrs-control`, and checks that the control node behaves
//! as documented in `Documentation/control.md`.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    fs, io,
    io::Write as _,
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use anyhow::{bail, ensure, Context as _};
use nrs_client::{
    agent::{Account, Accounts, Agent, Refused},
    wire,
};
use nrs_sched::{control::WORDS_MAX, policy::control::CONFIG_MAX};

use crate::Outcome;

/// Maximum time for any expected event.
const SOON: Duration = Duration::from_secs(20);

/// Maximum size of a command that the module accepts, bytes.
const COMMAND_MAX: usize = CONFIG_MAX + WORDS_MAX;

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
            eprintln!("nrs-test factors: {error:#}");
            ExitCode::from(1)
        }
    })
}

/// Level and account of each leaf, by path.
type Leaves = BTreeMap<String, (String, Account)>;

/// Returns the leaves of `accounts` and their levels by path: keys joined by slashes, as in
/// nrs_fairshare_stats.
fn paths(agent: &mut Agent, accounts: &Accounts) -> Outcome<Leaves> {
    let ids: Vec<u64> = accounts.list.iter().map(|account| account.id).collect();
    let names = agent.names(&ids)?;
    let names: BTreeMap<u64, _> = names.into_iter().map(|name| (name.id, name)).collect();
    let by_id: BTreeMap<u64, &Account> = accounts.list.iter().map(|a| (a.id, a)).collect();
    ensure!(by_id.len() == accounts.list.len(), "duplicate id");
    let mut paths = BTreeMap::new();
    let mut levels: BTreeMap<u32, String> = BTreeMap::new();
    for account in &accounts.list {
        let name = names
            .get(&account.id)
            .context("an account without a name")?;
        let level = levels.entry(account.level).or_insert(name.level.clone());
        let same = *level == name.level;
        ensure!(
            same,
            "level {} is {level} and {}",
            account.level,
            name.level
        );
        if !account.leaf {
            continue;
        }
        let (mut path, mut at) = (name.key.clone(), account);
        while at.parent != 0 {
            at = by_id
                .get(&at.parent)
                .context("an account without its group")?;
            let above = names.get(&at.id).context("a group without a name")?;
            path = format!("{}/{path}", above.key);
        }
        paths.insert(path, (name.level.clone(), *account));
    }
    Ok(paths)
}

/// Returns the fields of each entity on the regular head in nrs_fairshare_stats, except the default
/// class and shared leaves.
fn statistics(service: &str) -> Outcome<BTreeMap<String, BTreeMap<String, String>>> {
    let file = format!("/sys/kernel/debug/nrs/{service}/nrs_fairshare_stats");
    let text = fs::read_to_string(&file).context(file)?;
    let mut all: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    let mut fields = BTreeMap::new();
    for line in text.lines().rev() {
        let (name, value) = line.split_once(": ").context("a line without a field")?;
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
fn near(what: &str, seen: f64, shown: Option<&String>) -> Outcome<()> {
    let shown: f64 = shown.with_context(|| format!("no {what}"))?.parse()?;
    ensure!(
        (seen - shown).abs() <= 0.0006,
        "{what}: {seen}, statistics show {shown}"
    );
    Ok(())
}

fn agree(service: &str) -> Outcome<()> {
    let mut agent = Agent::bind(service)?;
    let first = agent.accounts(true)?;
    let leaves = paths(&mut agent, &first)?;
    let shown = statistics(service)?;
    let same = !leaves.is_empty() && leaves.keys().eq(shown.keys());
    ensure!(
        same,
        "accounts of {:?}, statistics of {:?}",
        leaves.keys(),
        shown.keys()
    );
    for (path, (level, account)) in &leaves {
        let fields = &shown[path];
        let factor = f64::from(account.factor) / f64::from(wire::FACTOR_ONE);
        let weight = f64::from(account.weight) / 4096.0 * factor;
        near("factor", factor, fields.get("factor")).with_context(|| path.clone())?;
        near("weight", weight, fields.get("weight")).with_context(|| path.clone())?;
        let shown = fields.get("type");
        ensure!(shown == Some(level), "{path}: level {level}, not {shown:?}");
    }
    let second = agent.accounts(true)?;
    let same = (first.instance, first.terms) == (second.instance, second.terms);
    let valid = first.instance != 0 && first.terms != 0 && first.time_ns < second.time_ns;
    ensure!(same && valid, "{first:?}, then {second:?}");
    println!("{} entities agree", leaves.len());
    Ok(())
}

fn changes(service: &str) -> Outcome<()> {
    let mut agent = Agent::bind(service)?;
    let all = agent.accounts(false)?;
    ensure!(!all.list.is_empty(), "there is no entity");
    let changed = agent.accounts(false)?.list;
    ensure!(changed.is_empty(), "nothing changed but {changed:?}");
    ensure!(agent.accounts(true)?.list == all.list, "accounts changed");
    // A new bind reports all accounts.
    agent.command(format!("bind {service}").as_bytes())?;
    let again = agent.accounts(false)?.list;
    ensure!(again == all.list, "accounts changed after a second bind");
    let end = Instant::now() + 2 * SOON;
    let mut left: Vec<u64> = all.list.iter().map(|account| account.id).collect();
    while !left.is_empty() {
        ensure!(Instant::now() <= end, "{left:?} are not removed");
        thread::sleep(Duration::from_millis(200));
        for account in agent.accounts(false)?.list {
            left.retain(|id| !account.gone || *id != account.id);
        }
    }
    let left = agent.accounts(true)?.list;
    ensure!(left.is_empty(), "removed entities are still reported");
    Ok(())
}

/// Fails unless `command` is refused with `errno` and a reason.
fn refused(agent: &mut Agent, command: &[u8], errno: i32) -> Outcome<()> {
    let shown = start(command);
    let Err(error) = agent.command(command) else {
        bail!("{shown:?} was accepted");
    };
    let why = error
        .get_ref()
        .and_then(|why| why.downcast_ref::<Refused>());
    let as_expected = why.is_some_and(|why| {
        why.errno == errno && !why.reason.is_empty() && !why.reason.contains('\n')
    });
    ensure!(
        as_expected,
        "{shown:?}: {error}, error {errno} was expected"
    );
    Ok(())
}

/// Returns the first characters of `command`.
fn start(command: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(&command[..command.len().min(60)])
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

fn refuse(service: &str) -> Outcome<()> {
    const LEASE: Duration = Duration::from_secs(60);
    let mut agent = Agent::open()?;
    for line in ["accounts", "accounts all", "names 1", "factors 1 1\n"] {
        refused(&mut agent, line.as_bytes(), libc::EINVAL)?;
    }
    refused(&mut agent, b"bind no-such-service", libc::ENODEV)?;
    agent.command(format!("bind {service}\n").as_bytes())?;
    let mut other = Agent::open()?;
    let bind = format!("bind {service}");
    refused(&mut other, bind.as_bytes(), libc::EBUSY)?;
    let accounts = agent.accounts(true)?;
    let id = accounts.list.first().context("there is no entity")?.id;
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
        let same = factor == Some(quarter) && now.instance == accounts.instance;
        ensure!(same, "after {:?} the factor is {factor:?}", start(case));
    }
    // The maximum number of factors.
    let most: Vec<(u64, u32)> = (1..=wire::FACTORS_MAX as u64).map(|id| (id, one)).collect();
    agent.factors(accounts.instance, LEASE, &most)?;
    let names = agent.names(&[1, 2, u64::MAX])?;
    ensure!(names.is_empty(), "unknown ids have names");
    println!("{} commands refused", cases.len());
    Ok(())
}

fn hold(service: &str, lease: Duration, once: bool, wanted: &[String]) -> Outcome<()> {
    let mut agent = Agent::bind(service)?;
    let mut keys = BTreeMap::new();
    for word in wanted {
        let (key, factor) = word.rsplit_once('=').context("factors are KEY=FACTOR")?;
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
        let leaves = leaves.keys();
        ensure!(
            Instant::now() <= end,
            "entities {keys:?} missing in {leaves:?}"
        );
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
