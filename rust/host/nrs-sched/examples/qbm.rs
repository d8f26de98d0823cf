// SPDX-License-Identifier: GPL-2.0-only

//! Prints the figures of Documentation/qbm.md: what bandwidth management makes of typical loads, in simulated
//! time, and what many clients cost on this host.
//!
//! ```text
//! cargo run --release --example qbm [-- --svg FILE]
//! ```
//!
//! With `--svg`, also draws what two greedy clients and a mover have beside a regular load.

use nrs_sched::{
    bandwidth::{Load, Place, Setup, Sim, MB, MS, SECOND, WALK},
    class::DEFAULT_ID,
    key::Key,
    mem::Shared,
    policy::qbm::Brief,
    qbm::{
        gate::{Gates, NO_SEAT},
        manager::Manager,
        plan::{Party, Plan, Who},
        terms::Class,
    },
};
use std::{
    fmt::Write,
    time::{Duration, Instant},
};

const GREEDY: Load = Load::Greedy(8);

fn megabytes(rate: u64) -> f64 {
    rate as f64 / 1e6
}

/// Time until `reached`, ms; ten seconds at most.
fn until(sim: &mut Sim, reached: impl Fn(&Sim) -> bool) -> u64 {
    let from = sim.time();
    while !reached(sim) && sim.time() - from < 10 * SECOND {
        sim.run(10 * MS);
    }
    (sim.time() - from) / MS
}

/// Each class against each lower one.
fn classes() {
    println!("One asks for 70 of 100 MB/s while another of a lower class has 100:\n");
    println!(
        "| class | from | has it after, ms | MB/s | the other | which has it back after, ms |"
    );
    println!("|---|---|---|---|---|---|");
    for (rank, high) in Class::ALL.into_iter().enumerate() {
        for low in Class::ALL.into_iter().skip(rank + 1) {
            let text = format!(
                "by uid; group all capacity=100MB
                client 1 class={} min=70MB max=70MB
                client 2 class={} min=100MB",
                high.name(),
                low.name()
            );
            let mut sim = Sim::new(&text, Setup::default());
            sim.load(2, GREEDY);
            sim.run(5 * SECOND);
            sim.load(1, GREEDY);
            let taken = until(&mut sim, |sim| sim.allocated(1) == Some(70 * MB));
            sim.run(SECOND);
            let (from, to) = sim.run(5 * SECOND);
            let (first, second) = (sim.served(1, from, to), sim.served(2, from, to));
            sim.load(1, Load::Off);
            let back = until(&mut sim, |sim| sim.allocated(2) == Some(100 * MB));
            println!(
                "| {} | {} | {taken} | {:.1} | {:.1} | {back} |",
                high.name(),
                low.name(),
                megabytes(first),
                megabytes(second),
            );
        }
    }
    println!();
}

/// What 1000 MB/s become for four of 300, and for two and five of 1000.
fn shares() {
    println!("1000 MB/s shared, by who came first to last, MB/s:\n");
    println!("| class | clients | minimum | each has |");
    println!("|---|---|---|---|");
    for (class, clients, min) in [
        (Class::FirstCome, 4, 300),
        (Class::FairShare, 4, 300),
        (Class::FairShare, 2, 1000),
        (Class::FairShare, 5, 1000),
    ] {
        let text = format!(
            "by uid; group all capacity=1000MB; default class={} min={min}MB max={min}MB",
            class.name()
        );
        let setup = Setup {
            bandwidth: 1000 * MB,
            slots: 8,
            ..Setup::default()
        };
        let mut sim = Sim::new(&text, setup);
        for user in 1..=clients {
            sim.shape(user, 256, 0);
            sim.load(user, GREEDY);
            sim.run(100 * MS);
        }
        sim.run(2 * SECOND);
        let (from, to) = sim.run(10 * SECOND);
        let each: Vec<String> = (1..=clients)
            .map(|user| format!("{:.1}", megabytes(sim.served(user, from, to))))
            .collect();
        println!(
            "| {} | {clients} | {min} | {} |",
            class.name(),
            each.join(", ")
        );
    }
    println!();
}

/// How long restoring takes, at worst.
fn restore() -> u64 {
    let mut longest = 0;
    for phase in 0..20 {
        let text = "by uid; group all capacity=100MB; client 1 class=fair_share min=50MB max=50MB";
        let mut sim = Sim::new(text, Setup::default());
        sim.load(1, Load::Rate(4 * MB));
        sim.run(200 * SECOND + phase * 11 * MS);
        sim.load(1, GREEDY);
        longest = longest.max(until(&mut sim, |sim| sim.allocated(1) == Some(50 * MB)));
    }
    longest
}

/// Periods slept in, percent, of a client that is offered `percent` of what it has.
fn sleeps(percent: u64) -> f64 {
    let text = "by uid; group all capacity=100MB; default class=fair_share min=48MB max=48MB";
    let mut sim = Sim::new(text, Setup::default());
    for user in 1..=2 {
        sim.load(user, Load::Rate(48 * MB / 100 * percent));
    }
    let count = |sim: &Sim| -> u64 {
        let status = sim.status();
        let lines = status
            .lines()
            .filter_map(|line| line.split_once("sleeps: "));
        let counts = lines.filter_map(|(_, count)| count.parse::<u64>().ok());
        counts.max().unwrap_or(0)
    };
    sim.run(5 * SECOND);
    let before = count(&sim);
    sim.run(25 * SECOND);
    (count(&sim) - before) as f64 * 100.0 / 625.0
}

/// Changes of allocation in the last fifty minutes of an hour with two greedy clients, and what they have.
fn hour(one: Class, two: Class) -> (u64, u64, u64) {
    let text = format!(
        "by uid; group all capacity=20MB
        client 1 class={} min=4MB
        client 2 class={} min=4MB",
        one.name(),
        two.name()
    );
    let setup = Setup {
        bandwidth: 20 * MB,
        ..Setup::default()
    };
    let mut sim = Sim::new(&text, setup);
    for user in 1..=2 {
        sim.shape(user, 64, 0);
        sim.load(user, GREEDY);
    }
    sim.run(600 * SECOND);
    let settled = sim.changes(1) + sim.changes(2);
    let (from, to) = sim.run(3_000 * SECOND);
    (
        sim.changes(1) + sim.changes(2) - settled,
        sim.served(1, from, to),
        sim.served(2, from, to),
    )
}

fn adjusting() {
    println!("Clients that ask for more and less by themselves:\n");
    println!("| what | figure |");
    println!("|---|---|");
    println!(
        "| restored what it had given up, after the first request that waits, at most | {} ms |",
        restore()
    );
    for percent in [80, 90, 95, 99] {
        println!(
            "| periods slept in when offered {percent} % of the allocation | {:.1} % |",
            sleeps(percent)
        );
    }
    for (one, two) in [
        (Class::FairShare, Class::FairShare),
        (Class::FirstCome, Class::FairShare),
    ] {
        let (changes, first, second) = hour(one, two);
        println!(
            "| two greedy clients, {} and {}, an hour: changes after the first ten minutes | {changes} \
             ({:.1} and {:.1} of 20 MB/s) |",
            one.name(),
            two.name(),
            megabytes(first),
            megabytes(second),
        );
    }
    println!();
}

/// What user 1 gets, and movers, while it has the loads in `turns` in turn.
fn beside(turns: &[(Load, u64)], slots: usize, movers: bool) -> (u64, u64) {
    let text = "by uid; group all capacity=100MB strategy=mover
        client 8 class=mover min=10MB
        client 9 class=mover min=10MB";
    let setup = Setup {
        slots,
        ..Setup::default()
    };
    let mut sim = Sim::new(text, setup);
    if movers {
        sim.load(8, GREEDY);
        sim.load(9, GREEDY);
    }
    sim.run(10 * SECOND);
    let from = sim.time();
    for (load, seconds) in turns.iter().cycle().take(turns.len() * 4) {
        sim.load(1, *load);
        sim.run(seconds * SECOND);
    }
    let served = |user| sim.served(user, from, sim.time());
    (served(1), served(8) + served(9))
}

fn movers() {
    println!("Two movers beside a regular client, 100 MB/s:\n");
    println!("| regular load | slots | alone, MB/s | beside movers | movers | of what is left |");
    println!("|---|---|---|---|---|---|");
    for (what, turns, slots) in [
        ("none", &[(Load::Off, 20)][..], 4),
        ("steady, 40 MB/s", &[(Load::Rate(40 * MB), 20)], 4),
        ("greedy", &[(Load::Greedy(8), 20)], 4),
        (
            "greedy, comes and goes, 20 s each",
            &[(Load::Greedy(8), 20), (Load::Off, 20)],
            4,
        ),
        (
            "the same, nothing waits before the device",
            &[(Load::Greedy(32), 20), (Load::Off, 20)],
            64,
        ),
        (
            "50 MB/s, comes and goes, 15 s each",
            &[(Load::Rate(50 * MB), 15), (Load::Off, 15)],
            4,
        ),
        (
            "80, 20, 60 MB/s, 15 s each",
            &[
                (Load::Rate(80 * MB), 15),
                (Load::Rate(20 * MB), 15),
                (Load::Rate(60 * MB), 15),
            ],
            4,
        ),
    ] {
        let (alone, _) = beside(turns, slots, false);
        let (regular, movers) = beside(turns, slots, true);
        let left = 100 * MB - alone.min(100 * MB);
        let part = if left > 5 * MB {
            format!("{:.1} %", movers as f64 * 100.0 / left as f64)
        } else {
            "-".to_string()
        };
        println!(
            "| {what} | {slots} | {:.1} | {:.1} ({:.1} %) | {:.1} | {part} |",
            megabytes(alone),
            megabytes(regular),
            regular as f64 * 100.0 / alone.max(1) as f64,
            megabytes(movers),
        );
    }
    println!();
}

fn brief(uid: u32, seat: u32) -> Brief {
    Brief {
        id: DEFAULT_ID,
        who: Who {
            party: Party::Key(Key::Uid(uid)),
            target: 0,
        },
        seat,
        busy: true,
    }
}

/// What it costs that so many clients of a class join at once, and what a walk and a tick cost then.
fn crowd(clients: u32, default: &str) -> [Duration; 2] {
    let text = format!("by uid; group all capacity=1GB; default {default}");
    let plan = Shared::new(Plan::parse(&text).expect("a plan")).expect("memory");
    let gates = Shared::new(Gates::new(16_384).expect("memory")).expect("memory");
    let mut manager = Manager::new(plan, gates, 3).expect("memory");
    let mut seats = vec![NO_SEAT; clients as usize];
    let mut walk = |manager: &mut Manager, now| {
        for (uid, seat) in (0..).zip(&mut seats) {
            *seat = manager.meet(&brief(uid, *seat), &Place, now);
        }
        manager.has_changed();
    };
    let begin = Instant::now();
    walk(&mut manager, SECOND);
    let joined = begin.elapsed();
    let begin = Instant::now();
    for tick in 1..=100 {
        let now = SECOND + tick * WALK;
        walk(&mut manager, now);
        manager.tick(now);
    }
    [joined, begin.elapsed() / 100]
}

fn crowds() {
    println!("Many clients at once, on this host:\n");
    println!("| clients | each of | all have joined after, ms | a walk and a tick, us |");
    println!("|---|---|---|---|");
    for (clients, default) in [
        (100, "class=fair_share min=100MB"),
        (1_000, "class=fair_share min=10MB"),
        (10_000, "class=first_come min=64KiB max=64KiB"),
        (10_000, "class=fair_share min=1MB"),
    ] {
        let [joined, tick] = crowd(clients, default);
        println!(
            "| {clients} | `{default}` | {:.1} | {:.0} |",
            joined.as_secs_f64() * 1e3,
            tick.as_secs_f64() * 1e6,
        );
    }
    println!();
}

/// Seconds that are drawn.
const SECONDS: u64 = 420;

/// Users that are drawn: number, name, colour.
const LINES: [(u32, &str, &str); 4] = [
    (1, "fair_share, greedy, minimum 25", "#1f77b4"),
    (2, "fair_share, greedy, minimum 15, from 60 s on", "#d95f02"),
    (3, "first_come, regular, 35 of 40, 180 to 300 s", "#2ca02c"),
    (8, "mover, greedy", "#7f7f7f"),
];

/// What everybody had at each walk: user, ns, bytes/s.
fn history() -> Vec<(u32, u64, u64)> {
    let text = "by uid; group all capacity=100MB
        client 1 class=fair_share min=25MB
        client 2 class=fair_share min=15MB
        client 3 class=first_come min=40MB max=40MB
        client 8 class=mover min=10MB";
    let mut sim = Sim::new(text, Setup::default());
    sim.trace = Some(Vec::new());
    sim.load(1, GREEDY);
    sim.load(8, GREEDY);
    sim.run(60 * SECOND);
    sim.load(2, GREEDY);
    sim.run(120 * SECOND);
    sim.load(3, Load::Rate(35 * MB));
    sim.run(120 * SECOND);
    sim.load(3, Load::Off);
    sim.run((SECONDS - 300) * SECOND);
    sim.trace.take().unwrap_or_default()
}

/// Draws the history.
fn svg() -> String {
    const LEFT: f64 = 52.0;
    const TOP: f64 = 92.0;
    const WIDTH: f64 = 640.0;
    const HEIGHT: f64 = 260.0;
    let x = |ns: u64| LEFT + ns as f64 / (SECONDS * SECOND) as f64 * WIDTH;
    let y = |rate: u64| TOP + HEIGHT - megabytes(rate) / 100.0 * HEIGHT;
    let mut out = String::new();
    let (right, bottom) = (LEFT + WIDTH, TOP + HEIGHT);
    let mut line = |text: String| {
        out.push_str(&text);
        out.push('\n');
    };
    line(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" font-size=\"12\">",
        right + 16.0,
        bottom + 44.0
    ));
    line("<!-- SPDX-License-Identifier: GPL-2.0-only -->".to_string());
    line(
        "<title>Allocations of two greedy clients, a mover and a regular load</title>".to_string(),
    );
    line("<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>".to_string());
    for step in 0..=5 {
        let rate = step * 20 * MB;
        line(format!(
            "<path d=\"M{LEFT} {y:.1}H{right}\" stroke=\"#dddddd\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 6.0,
            y(rate) + 4.0,
            step * 20,
            y = y(rate),
        ));
    }
    for second in (0..=SECONDS).step_by(60) {
        line(format!(
            "<path d=\"M{x:.1} {TOP}V{bottom}\" stroke=\"#eeeeee\"/><text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{second}</text>",
            bottom + 16.0,
            x = x(second * SECOND),
        ));
    }
    line(format!(
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">time, s</text>",
        LEFT + WIDTH / 2.0,
        bottom + 34.0
    ));
    line(format!(
        "<text x=\"{LEFT}\" y=\"18\" font-size=\"14\">What each client may use, MB/s of 100</text>"
    ));
    let history = history();
    for (place, (user, name, colour)) in LINES.into_iter().enumerate() {
        let top = 30.0 + place as f64 * 14.0;
        line(format!(
            "<path d=\"M{LEFT} {top}h22\" stroke=\"{colour}\" stroke-width=\"2.5\"/><text x=\"{}\" y=\"{}\">{name}</text>",
            LEFT + 28.0,
            top + 4.0
        ));
        let mut path = String::new();
        let mut before: Option<(u64, u64)> = None;
        for (_, time, rate) in history.iter().filter(|row| row.0 == user) {
            // A string takes everything.
            let _ = match before {
                Some((last, _)) if time - last > SECOND => {
                    write!(path, "M{:.1} {:.1}", x(*time), y(*rate))
                }
                Some((_, old)) if old != *rate => write!(path, "H{:.1}V{:.1}", x(*time), y(*rate)),
                Some(_) => Ok(()),
                None => write!(path, "M{:.1} {:.1}", x(*time), y(*rate)),
            };
            before = Some((*time, *rate));
        }
        if let Some((time, _)) = before {
            let _ = write!(path, "H{:.1}", x(time));
        }
        line(format!(
            "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-linejoin=\"round\"/>"
        ));
    }
    line("</svg>".to_string());
    out
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [] => {}
        [flag, file] if flag == "--svg" => {
            if let Err(error) = std::fs::write(file, svg()) {
                eprintln!("{file}: {error}");
                std::process::exit(1);
            }
            return;
        }
        _ => {
            eprintln!("usage: qbm [--svg FILE]");
            std::process::exit(2);
        }
    }
    shares();
    classes();
    adjusting();
    movers();
    crowds();
}
