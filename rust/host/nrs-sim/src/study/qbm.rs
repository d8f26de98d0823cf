// SPDX-License-Identifier: GPL-2.0-only

//! Bandwidth management (`qbm`) under typical loads: guarantees of classes, and bandwidth for
//! movers.
//!
//! A *greedy* user keeps 8 requests of 256 KiB outstanding. Rates are measured after allocations
//! have settled.

use nrs_sched::qbm::terms::BandwidthClass;
use nrs_sched::units::NSEC_PER_SEC as SECOND;

use super::{all, keep, Failure, Options, Titled};
use crate::outcome::Outcome;
use crate::scenario::Scenario;
use crate::show;

/// Formats a job of a user.
fn user(uid: u32, rest: &str) -> String {
    format!(
        "[[job]]\nname = \"u{uid}\"\nuid = {uid}\nmix = {{ read = 1 }}\nio = \"256KiB\"\n{rest}\n"
    )
}

/// Keys of a greedy user's job.
const GREEDY: &str = "procs = 8";

/// Returns a scenario of `seconds`: a server of `mb` MB/s with a plan.
fn scenario(mb: u32, plan: &str, seconds: u64, jobs: &[String]) -> Result<Scenario, Failure> {
    let text = format!(
        "name = \"qbm\"\ntitle = \"Two greedy users, a regular one and a mover\"\n\
         duration = \"{seconds}s\"\nsample = \"500ms\"\nsettle = \"0s\"\n\
         [[device]]\nname = \"d\"\nkind = \"pipe\"\nbandwidth = \"{mb}MB/s\"\n\
         [[server]]\nname = \"s\"\ndevice = \"d\"\nslots = 4\npolicy = \"qbm\"\n\
         plan = \"\"\"\nby uid\ngroup all capacity={mb}MB {plan}\n\"\"\"\n{}",
        jobs.concat()
    );
    Ok(Scenario::parse("qbm", &text, &[])?)
}

/// Returns the rate of a job between two times in seconds, MB/s.
fn rate(outcome: &Outcome, job: usize, from: u64, to: u64) -> f64 {
    outcome.rate(job, from * SECOND, to * SECOND) / 1e6
}

/// Formats rates with one decimal.
fn texts(rates: &[f64]) -> Vec<String> {
    rates.iter().map(|rate| format!("{rate:.1}")).collect()
}

/// Measures the division of 1000 MB/s between users with higher demand.
fn shares(options: &Options) -> Result<Titled, Failure> {
    let cases = [
        ("first_come", 4, 300),
        ("fair_share", 4, 300),
        ("fair_share", 5, 1000),
    ];
    let mut scenarios = Vec::new();
    for (class, users, min) in cases {
        let plan = format!("\ndefault class={class} min={min}MB max={min}MB");
        let job = |uid| user(uid, &format!("{GREEDY}\nstart = \"{}ms\"", uid * 100));
        let jobs: Vec<String> = (1..=users).map(job).collect();
        scenarios.push(scenario(1000, &plan, 13, &jobs)?);
    }
    let head = "class | users | minimum | MB/s by user";
    let mut table = Titled::new("1000 MB/s shared, MB/s", head);
    for ((class, users, min), outcome) in cases.iter().zip(all(&scenarios, options)?) {
        let rates: Vec<f64> = (0..*users as usize)
            .map(|job| rate(&outcome, job, 3, 13))
            .collect();
        let rates = texts(&rates).join(", ");
        table.row(&[class.to_string(), users.to_string(), min.to_string(), rates]);
    }
    Ok(table)
}

/// Compares each class with each lower class.
fn classes(options: &Options) -> Result<Titled, Failure> {
    let pairs: Vec<(BandwidthClass, BandwidthClass)> = BandwidthClass::ALL
        .into_iter()
        .enumerate()
        .flat_map(|(rank, high)| {
            BandwidthClass::ALL
                .into_iter()
                .skip(rank + 1)
                .map(move |low| (high, low))
        })
        .collect();
    let mut scenarios = Vec::new();
    for (high, low) in &pairs {
        let plan = format!(
            "\nclient 1 class={} min=70MB max=70MB\nclient 2 class={} min=100MB",
            high.name(),
            low.name()
        );
        let jobs = [
            user(1, &format!("{GREEDY}\nstart = \"5s\"\nstop = \"12s\"")),
            user(2, GREEDY),
        ];
        scenarios.push(scenario(100, &plan, 20, &jobs)?);
    }
    let mut table = Titled::new(
        "User with a guaranteed minimum of 70 MB/s against a user of a lower class with 100 MB/s",
        "class | lower class | MB/s | lower class, MB/s | before, MB/s | 2 s after, MB/s",
    );
    for ((high, low), outcome) in pairs.iter().zip(all(&scenarios, options)?) {
        let rates = [
            rate(&outcome, 0, 6, 12),
            rate(&outcome, 1, 6, 12),
            rate(&outcome, 1, 2, 5),
            rate(&outcome, 1, 14, 20),
        ];
        let mut cells = vec![high.name().to_string(), low.name().to_string()];
        cells.extend(texts(&rates));
        table.row(&cells);
    }
    Ok(table)
}

/// Measures the bandwidth of movers beside a regular load.
fn movers(options: &Options) -> Result<Titled, Failure> {
    let plan = "strategy=mover\nclient 8 class=mover min=10MB\nclient 9 class=mover min=10MB";
    let open = |mb: u32| {
        let rate = mb * 1_000_000 / 262_144;
        format!("loop = \"open\"\narrival = \"even\"\nrate = {rate}")
    };
    let phases = |on: u32| format!("phases = {{ on = \"{on}s\", off = \"{on}s\" }}");
    let loads = [
        ("steady, 40 MB/s", open(40)),
        ("greedy", GREEDY.to_string()),
        (
            "greedy, comes and goes, 20 s each",
            format!("{GREEDY}\n{}", phases(20)),
        ),
        (
            "50 MB/s, comes and goes, 15 s each",
            format!("{}\n{}", open(50), phases(15)),
        ),
    ];
    let mut scenarios = Vec::new();
    for (_, load) in &loads {
        let jobs = [user(1, load), user(8, GREEDY), user(9, GREEDY)];
        scenarios.push(scenario(100, plan, 130, &jobs[..1])?);
        scenarios.push(scenario(100, plan, 130, &jobs)?);
    }
    let mut table = Titled::new(
        "Two movers beside a regular load, 100 MB/s",
        "regular load | alone | beside movers | movers | of the rest, %",
    );
    let outcomes = all(&scenarios, options)?;
    for ((what, _), pair) in loads.iter().zip(outcomes.chunks(2)) {
        let of = |outcome: &Outcome, job| rate(outcome, job, 10, 130);
        let (alone, beside) = (of(&pair[0], 0), of(&pair[1], 0));
        let movers = of(&pair[1], 1) + of(&pair[1], 2);
        let left = 100.0 - alone;
        let mut cells = vec![what.to_string()];
        cells.extend(texts(&[alone, beside, movers]));
        cells.push(match left > 5.0 {
            true => format!("{:.1}", movers * 100.0 / left),
            false => "-".to_string(),
        });
        table.row(&cells);
    }
    Ok(table)
}

/// Plots two greedy users, a mover and a regular load over time.
fn picture(options: &Options) -> Result<(), Failure> {
    let Some(out) = &options.out else {
        return Ok(());
    };
    let plan = "\nclient 1 class=fair_share min=25MB\nclient 2 class=fair_share min=15MB\n\
        client 3 class=first_come min=40MB max=40MB\nclient 8 class=mover min=10MB";
    let jobs = [
        user(1, GREEDY),
        user(2, &format!("{GREEDY}\nstart = \"60s\"")),
        user(
            3,
            "start = \"180s\"\nstop = \"300s\"\nloop = \"open\"\narrival = \"even\"\nrate = 133",
        ),
        user(8, GREEDY),
    ];
    let outcome = crate::engine::run(&scenario(100, plan, 420, &jobs)?)?;
    show::write(&outcome, out)?;
    Ok(())
}

/// Runs the study.
///
/// # Errors
///
/// The error of a run or of the file system.
pub fn run(options: &Options) -> Result<String, Failure> {
    let tables = [shares(options)?, classes(options)?, movers(options)?];
    picture(options)?;
    let markdown: String = tables.iter().map(Titled::markdown).collect();
    keep("qbm-tables", &markdown, &tables, options)?;
    Ok(markdown)
}
