// SPDX-License-Identifier: GPL-2.0-only

//! Prints the figures of Documentation/adaptive-timeouts.md: what timeouts do with many clients of one server,
//! in simulated time, fixed ones and adaptive ones.
//!
//! ```text
//! cargo run --release --example timeouts [-- --svg FILE | TABLE...]
//! ```
//!
//! Prints all tables, or those that are named: `story`, `compare`, `start`, `loss`, `network`, `recovery`,
//! `withheld`. With `--svg`, draws the story of ten thousand clients instead, and when a dead server is detected.

use nrs_sched::{
    network::{
        fixed,
        story::{deaths, server, until, whole, with, Phase},
        Counts, Net, Setup, Sim, MS, SECOND,
    },
    timeouts::terms::{AtCountPolicyDelay, AtEstimator, Terms},
};

#[path = "timeouts/plot.rs"]
mod plot;

/// What the server can do, requests/s.
const RATE: u64 = 2_000;

const SIZES: [u32; 3] = [1_000, 10_000, 100_000];

const ESTIMATORS: [AtEstimator; 2] = [AtEstimator::Worst, AtEstimator::Average];

/// Seconds at which the server dies, and what the time is.
const DEATHS: [(u64, &str); 5] = [
    (55, "few clients, nothing else ever seen"),
    (595, "all clients, steady"),
    (655, "the device slow for 55 s"),
    (900, "all clients, 240 s after that"),
    (1_855, "few clients, 1,195 s after that"),
];

/// A number of clients, and the whole story with the default terms.
type Told = (u32, Sim, [(Counts, u32); 6]);

fn seconds(ms: u32) -> f64 {
    f64::from(ms) / 1e3
}

fn percent(part: u64, of: u64) -> f64 {
    part as f64 * 100.0 / of.max(1) as f64
}

/// A number with separators.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// The smallest fixed timeout without false ones, from the longest wait, s.
fn least(longest: u32) -> u32 {
    longest / 1_000 + 1
}

/// The whole story with `terms`.
fn tell(clients: u32, terms: Terms) -> (Sim, [(Counts, u32); 6]) {
    whole(server(clients, RATE, terms))
}

fn longest(phases: &[(Counts, u32); 6]) -> u32 {
    phases
        .iter()
        .map(|(_, longest)| *longest)
        .max()
        .unwrap_or(0)
}

/// Mean and longest of times waited in vain, s.
fn mean_and_max(times: &[u32]) -> (f64, f64) {
    let sum: u64 = times.iter().copied().map(u64::from).sum();
    let max = times.iter().copied().max().unwrap_or(0);
    (sum as f64 / 1e3 / times.len().max(1) as f64, seconds(max))
}

/// The story, phase by phase.
fn phases(told: &[Told]) {
    println!("The story, adaptive timeouts as they are by default:\n");
    println!("| clients | phase | s | requests | longest wait, s | estimate at the end, s | timeout at the end, s | early replies | of messages | most in a second | false timeouts |");
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    for (clients, sim, phases) in told {
        let mut from = 0;
        for (phase, (counts, longest)) in Phase::ALL.into_iter().zip(phases) {
            let trace = sim.trace();
            let (end, begin) = (phase.end() as usize, from);
            let point = trace[end - 1];
            let early = |second: usize| match second {
                0 => 0,
                _ => trace[second - 1].counts.early(),
            };
            let burst = (begin + 1..=end).map(|second| early(second) - early(second - 1));
            println!(
                "| {} | {} | {} | {} | {:.1} | {:.1} | {:.1} | {} | {:.3} % | {} | {} |",
                grouped(u64::from(*clients)),
                phase.name(),
                phase.seconds(),
                grouped(counts.replied),
                seconds(*longest),
                seconds(point.estimate),
                seconds(point.timeout),
                grouped(counts.early()),
                percent(counts.early(), counts.messages),
                grouped(burst.max().unwrap_or(0)),
                counts.false_timeouts,
            );
            from = end;
        }
    }
    println!();
}

/// False timeouts of fixed and adaptive ones, and when a server that dies would be detected.
fn compare(told: &[Told]) {
    let mut table = String::new();
    println!("The whole story, with one timeout or another:\n");
    println!("| clients | timeout | requests | false timeouts | of requests | early replies | of messages |");
    println!("|---|---|---|---|---|---|---|");
    for (clients, _, worst) in told {
        let size = grouped(u64::from(*clients));
        let least = least(longest(worst));
        let rows = [10, 30, 100, least].map(|s| (format!("fixed, {s} s"), fixed(s)));
        let estimators = ESTIMATORS.map(|kind| (format!("adaptive, {kind}"), with(kind)));
        let rows: Vec<(String, Terms)> = rows.into_iter().chain(estimators).collect();
        let seconds = DEATHS.map(|(second, _)| second);
        // At a time; the results are the same.
        let results = std::thread::scope(|scope| {
            let start = |(_, terms): &(String, Terms)| {
                let setup = server(*clients, RATE, *terms);
                scope.spawn(move || {
                    let (sim, deaths) = deaths(setup, &seconds);
                    (sim.counts(), deaths)
                })
            };
            let started: Vec<_> = rows.iter().map(start).collect();
            let ended = started.into_iter().map(|row| row.join().expect("no panic"));
            ended.collect::<Vec<_>>()
        });
        for ((name, _), (counts, deaths)) in rows.iter().zip(results) {
            println!(
                "| {size} | {name} | {} | {} | {:.3} % | {} | {:.3} % |",
                grouped(counts.replied),
                grouped(counts.false_timeouts),
                percent(counts.false_timeouts, counts.sent),
                grouped(counts.early()),
                percent(counts.early(), counts.messages),
            );
            let cells = deaths.iter().map(|times| {
                let (mean, max) = mean_and_max(times);
                format!("{mean:.1}, {max:.1} ({:.1})", f64::from(least) / max)
            });
            let cells: Vec<String> = cells.collect();
            table += &format!(
                "| {size} | {name} | {} | {} |\n",
                grouped(counts.false_timeouts),
                cells.join(" | ")
            );
        }
    }
    println!();
    println!("The server dies: how long clients wait in vain, mean and longest, s, and how many times as long the longest is with the smallest fixed timeout without false ones:\n");
    println!(
        "| clients | timeout | false timeouts | {} |",
        DEATHS
            .map(|(second, when)| format!("{second} s: {when}"))
            .join(" | ")
    );
    println!("|---|---|---|---|---|---|---|---|");
    println!("{table}");
}

/// All clients begin within one second.
fn starts() {
    println!("All clients begin within one second, a server that has seen nothing:\n");
    println!("| clients | all served at best after, s | all served after, s | false timeouts | early replies per client | estimate after that, s |");
    println!("|---|---|---|---|---|---|");
    for clients in SIZES {
        for ideal in [5, 20, 100, 500] {
            let setup = Setup {
                think: 4_000 * SECOND,
                ..server(clients, u64::from(clients) / ideal, Terms::default())
            };
            let mut sim = Sim::new(setup);
            sim.active(clients, SECOND);
            while sim.all_served().is_none() && sim.time() < 1_000 * SECOND {
                sim.run(SECOND);
            }
            println!(
                "| {} | {ideal} | {} | {} | {:.2} | {:.1} |",
                grouped(clients.into()),
                sim.all_served()
                    .map_or("-".to_string(), |time| format!("{:.1}", time as f64 / 1e6)),
                sim.counts().false_timeouts,
                sim.counts().early() as f64 / f64::from(clients),
                seconds(sim.estimate()),
            );
        }
    }
    println!();
}

/// Messages that are lost.
fn losses() {
    println!("10,000 clients, a network that loses messages, the whole story:\n");
    println!("| lost, of a million | timeout | requests | gave up on what was lost | false timeouts | after an early reply was lost | early replies |");
    println!("|---|---|---|---|---|---|---|");
    for loss in [10, 100, 1_000, 10_000] {
        let worst = with(AtEstimator::Worst);
        for (name, terms) in [("fixed, 100 s", fixed(100)), ("adaptive, worst", worst)] {
            let mut setup = server(10_000, RATE, terms);
            setup.net.loss = loss;
            let counts = whole(setup).0.counts();
            println!(
                "| {loss} | {name} | {} | {} | {} | {} | {} |",
                grouped(counts.replied),
                grouped(counts.lost),
                grouped(counts.false_timeouts),
                grouped(counts.after_lost_early),
                grouped(counts.early()),
            );
        }
    }
    println!();
}

/// A network that becomes slow.
fn networks() {
    println!("1,000 clients, few requests, a network that becomes slow for 300 s, one way:\n");
    println!(
        "| message takes, s | false timeouts | early replies | timeout stated at the end, s |"
    );
    println!("|---|---|---|---|");
    for latency in [1, 3, 5, 10, 20] {
        let mut sim = Sim::new(server(1_000, RATE, Terms::default()));
        sim.active(1_000, SECOND);
        sim.run(60 * SECOND);
        sim.net(Net {
            latency: latency * SECOND,
            jitter: 100 * MS,
            loss: 0,
        });
        let counts = sim.run(300 * SECOND);
        println!(
            "| {latency} | {} | {} | {:.1} |",
            counts.false_timeouts,
            counts.early(),
            seconds(sim.trace().last().map_or(0, |point| point.timeout)),
        );
    }
    println!();
}

/// A server that comes back.
fn recoveries() {
    println!("10,000 clients; the server dies, and comes back without its memory:\n");
    println!("| when it died | dead for, s | timeout | recovery takes, s | clients that waited and came too late | all served again after it came back, s |");
    println!("|---|---|---|---|---|---|");
    for (second, when) in &DEATHS[..4] {
        for dead in [5, 60] {
            for (name, terms) in [("adaptive", Terms::default()), ("fixed, 100 s", fixed(100))] {
                let mut sim = Sim::new(server(10_000, RATE, terms));
                until(&mut sim, 10_000, *second);
                sim.kill(false);
                sim.run(dead * SECOND);
                sim.revive();
                let back = sim.time();
                let mut ends = back / MS;
                while let Some(end) = sim.recovery() {
                    ends = end;
                    sim.run(SECOND);
                }
                sim.run(1_000 * SECOND);
                println!(
                    "| {when} | {dead} | {name} | {:.1} | {} | {} |",
                    (ends - back / MS) as f64 / 1e3,
                    sim.counts().missed,
                    sim.joined().map_or("-".to_string(), |time| format!(
                        "{:.1}",
                        (time - back) as f64 / 1e6
                    )),
                );
            }
        }
    }
    println!();
}

/// A class with a rate among others.
fn withheld() {
    println!("1,000 clients with little to do, some of them of a class with one request a second; after 1,800 s:\n");
    println!("| of the class | their longest wait, s | at_count_policy_delay | estimate, s | everybody's timeout, s | early replies of messages | refused | false timeouts | dead server detected after, mean and longest, s |");
    println!("|---|---|---|---|---|---|---|---|---|");
    for class in [0, 20, 50, 200, 650] {
        for count_policy_delay in [AtCountPolicyDelay::Off, AtCountPolicyDelay::On] {
            let terms = Terms {
                count_policy_delay,
                ..Terms::default()
            };
            let mut sim = Sim::new(Setup {
                withheld: class,
                ..server(1_000, RATE, terms)
            });
            sim.active(1_000, SECOND);
            let counts = sim.run(1_800 * SECOND);
            let longest = sim.take_longest();
            let (estimate, point) = (sim.estimate(), sim.trace().last().copied());
            sim.kill(true);
            sim.run(900 * SECOND);
            let (mean, max) = mean_and_max(sim.detections());
            println!(
                "| {class} | {:.1} | {count_policy_delay} | {:.1} | {:.1} | {:.3} % | {} | {} | {mean:.1}, {max:.1} |",
                seconds(longest),
                seconds(estimate),
                seconds(point.map_or(0, |point| point.timeout)),
                percent(counts.early(), counts.messages),
                grouped(counts.refused),
                grouped(counts.false_timeouts),
            );
        }
    }
    println!();
}

/// The tables, by name.
const TABLES: [(&str, fn()); 7] = [
    ("story", || phases(&all_told())),
    ("compare", || compare(&all_told())),
    ("start", starts),
    ("loss", losses),
    ("network", networks),
    ("recovery", recoveries),
    ("withheld", withheld),
];

fn all_told() -> [Told; 3] {
    SIZES.map(|clients| {
        let (sim, phases) = tell(clients, Terms::default());
        (clients, sim, phases)
    })
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, file] = arguments.as_slice() {
        if flag == "--svg" {
            if let Err(error) = std::fs::write(file, plot::svg()) {
                eprintln!("{file}: {error}");
                std::process::exit(1);
            }
            return;
        }
    }
    let known = |name: &String| TABLES.iter().any(|(table, _)| table == name);
    if !arguments.iter().all(known) {
        eprintln!("usage: timeouts [--svg FILE | TABLE...]");
        eprintln!("tables: {}", TABLES.map(|(table, _)| table).join(", "));
        std::process::exit(2);
    }
    for (name, print) in TABLES {
        if arguments.is_empty() || arguments.iter().any(|wanted| wanted == name) {
            print();
        }
    }
}
