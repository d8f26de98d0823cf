// SPDX-License-Identifier: GPL-2.0-only

//! Fixed and adaptive timeouts with many clients of one server.
//!
//! The server has 64 slots and a capacity of 2,000 requests/s. *Least* is the smallest fixed
//! timeout, in whole seconds, without false timeouts.

use super::{keep, Failure, Options, Titled};
use crate::timeouts::{
    fixed,
    story::{deaths, server, until, whole, with, Phase},
    Counts, Net, Setup, Sim, MS, SECOND,
};
use nrs_report::chart::Lines;
use nrs_sched::timeouts::terms::{AtCountPolicyDelay, AtEstimator, TimeoutTerms};

/// Capacity of the server, requests/s.
const RATE: u64 = 2_000;

const ESTIMATORS: [AtEstimator; 2] = [AtEstimator::Worst, AtEstimator::Average];

/// Seconds at which the server dies, with descriptions.
const DEATHS: [(u64, &str); 5] = [
    (55, "few clients, no other load before"),
    (595, "all clients, steady"),
    (655, "the device slow for 55 s"),
    (900, "all clients, 240 s after that"),
    (1_855, "few clients, 1,195 s after that"),
];

/// Number of clients, and the whole story with the default terms: the simulation and the counts of
/// each phase.
type Told = (u32, Sim, [(Counts, u32); 6]);

fn seconds(ms: u32) -> String {
    format!("{:.1}", f64::from(ms) / 1e3)
}

fn percent(part: u64, of: u64) -> String {
    format!("{:.3} %", part as f64 * 100.0 / of.max(1) as f64)
}

/// Returns the smallest fixed timeout without false timeouts, s: *least* of the module's text.
fn least((_, _, phases): &Told) -> u32 {
    let longest = phases.iter().map(|(_, longest)| *longest).max();
    longest.unwrap_or(0) / 1_000 + 1
}

/// Returns the mean and the maximum of detection times, s.
fn mean_and_max(times: &[u32]) -> (f64, f64) {
    let sum: u64 = times.iter().copied().map(u64::from).sum();
    let max = times.iter().copied().max().unwrap_or(0);
    (
        sum as f64 / 1e3 / times.len().max(1) as f64,
        f64::from(max) / 1e3,
    )
}

/// Lists the story by phase.
fn phases(told: &[Told]) -> Titled {
    let mut table = Titled::new(
        "Load phases, default adaptive timeouts",
        "clients | phase | s | requests | longest wait, s | estimate at the end, s | \
         timeout at the end, s | early replies | of messages | false timeouts",
    );
    for (clients, sim, phases) in told {
        for (phase, (counts, longest)) in Phase::ALL.into_iter().zip(phases) {
            let point = sim.trace()[phase.end() as usize - 1];
            table.row(&[
                clients.to_string(),
                phase.name().to_string(),
                phase.seconds().to_string(),
                counts.replied.to_string(),
                seconds(*longest),
                seconds(point.estimate),
                seconds(point.timeout),
                counts.early().to_string(),
                percent(counts.early(), counts.messages),
                counts.false_timeouts.to_string(),
            ]);
        }
    }
    table
}

/// Compares false timeouts and detection times of fixed and adaptive timeouts.
fn compare(told: &[Told]) -> [Titled; 2] {
    let mut whole = Titled::new(
        "All load phases, by kind of timeout",
        "clients | timeout | requests | false timeouts | of requests | early replies | \
         of messages",
    );
    let head = format!(
        "clients | timeout | {}",
        DEATHS.map(|(_, when)| when).join(" | ")
    );
    let mut dead = Titled::new(
        "Detection time of a dead server, mean and maximum, s",
        &head,
    );
    for story in told {
        let clients = story.0;
        let rows = [10, 30, 100, least(story)].map(|s| (format!("fixed, {s} s"), fixed(s)));
        let estimators = ESTIMATORS.map(|kind| (format!("adaptive, {kind}"), with(kind)));
        for (name, terms) in rows.into_iter().chain(estimators) {
            let times = DEATHS.map(|(second, _)| second);
            let (sim, found) = deaths(server(clients, RATE, terms), &times);
            let counts = sim.counts();
            whole.row(&[
                clients.to_string(),
                name.clone(),
                counts.replied.to_string(),
                counts.false_timeouts.to_string(),
                percent(counts.false_timeouts, counts.sent),
                counts.early().to_string(),
                percent(counts.early(), counts.messages),
            ]);
            let mut cells = vec![clients.to_string(), name];
            cells.extend(found.iter().map(|times| {
                let (mean, max) = mean_and_max(times);
                format!("{mean:.1}, {max:.1}")
            }));
            dead.row(&cells);
        }
    }
    [whole, dead]
}

/// Runs starts at which all clients begin within one second.
fn starts(sizes: &[u32]) -> Titled {
    let mut table = Titled::new(
        "All clients begin within one second, server without estimates",
        "clients | minimum time to serve all, s | time to serve all, s | false timeouts | \
         early replies per client | estimate after that, s",
    );
    for clients in sizes {
        for ideal in [5, 20, 100, 500] {
            let setup = Setup {
                think: 4_000 * SECOND,
                ..server(
                    *clients,
                    u64::from(*clients) / ideal,
                    TimeoutTerms::default(),
                )
            };
            let mut sim = Sim::new(setup);
            sim.active(*clients, SECOND);
            while sim.all_served().is_none() && sim.time() < 1_000 * SECOND {
                sim.run(SECOND);
            }
            let served = sim.all_served();
            table.row(&[
                clients.to_string(),
                ideal.to_string(),
                served.map_or("-".to_string(), |time| format!("{:.1}", time as f64 / 1e6)),
                sim.counts().false_timeouts.to_string(),
                format!("{:.2}", sim.counts().early() as f64 / f64::from(*clients)),
                seconds(sim.estimate()),
            ]);
        }
    }
    table
}

/// Runs the story with lost messages.
fn losses(clients: u32) -> Titled {
    let mut table = Titled::new(
        "All load phases, with lost messages",
        "lost per million | timeout | requests | timeouts after a loss | \
         false timeouts | after an early reply was lost",
    );
    for loss in [100, 1_000, 10_000] {
        for (name, terms) in [
            ("adaptive", TimeoutTerms::default()),
            ("fixed, 100 s", fixed(100)),
        ] {
            let mut setup = server(clients, RATE, terms);
            setup.net.loss = loss;
            let counts = whole(setup).0.counts();
            let mut cells = vec![loss.to_string(), name.to_string()];
            let counts = [
                counts.replied,
                counts.lost,
                counts.false_timeouts,
                counts.after_lost_early,
            ];
            cells.extend(counts.map(|count| count.to_string()));
            table.row(&cells);
        }
    }
    table
}

/// Runs a network that becomes slow.
fn networks() -> Titled {
    let mut table = Titled::new(
        "1,000 clients, a network that becomes slow for 300 s",
        "latency, s | false timeouts | timeout at the end, s",
    );
    for latency in [1, 3, 5, 10, 20] {
        let mut sim = Sim::new(server(1_000, RATE, TimeoutTerms::default()));
        sim.active(1_000, SECOND);
        sim.run(60 * SECOND);
        sim.net(Net {
            latency: latency * SECOND,
            jitter: 100 * MS,
            loss: 0,
        });
        let counts = sim.run(300 * SECOND);
        let timeout = sim.trace().last().map_or(0, |point| point.timeout);
        table.row(&[
            latency.to_string(),
            counts.false_timeouts.to_string(),
            seconds(timeout),
        ]);
    }
    table
}

/// Runs a server that dies and restarts without its state.
fn recoveries(clients: u32) -> Titled {
    let mut table = Titled::new(
        "The server dies, and restarts after 60 s without state",
        "when it died | timeout | recovery takes, s | \
         waiting clients that missed recovery | all served again after, s",
    );
    for (second, when) in &DEATHS[..4] {
        for (name, terms) in [
            ("adaptive", TimeoutTerms::default()),
            ("fixed, 100 s", fixed(100)),
        ] {
            let mut sim = Sim::new(server(clients, RATE, terms));
            until(&mut sim, clients, *second);
            sim.kill(false);
            sim.run(60 * SECOND);
            sim.revive();
            let back = sim.time();
            let mut ends = back / MS;
            while let Some(end) = sim.recovery() {
                ends = end;
                sim.run(SECOND);
            }
            sim.run(1_000 * SECOND);
            let joined = sim.joined().map(|time| (time - back) as f64 / 1e6);
            table.row(&[
                when.to_string(),
                name.to_string(),
                format!("{:.1}", (ends - back / MS) as f64 / 1e3),
                sim.counts().missed.to_string(),
                joined.map_or("-".to_string(), |time| format!("{time:.1}")),
            ]);
        }
    }
    table
}

/// Runs a rate-limited class beside other clients.
fn withheld() -> Titled {
    let mut table = Titled::new(
        "1,000 clients, some of them of a class with one request a second, after 1,800 s",
        "of the class | at_count_policy_delay | their longest wait, s | estimate, s | \
         everybody's timeout, s | early replies of messages | false timeouts | \
         dead server detected after, mean and longest, s",
    );
    for class in [0, 20, 50, 200, 650] {
        for count_policy_delay in [AtCountPolicyDelay::Off, AtCountPolicyDelay::On] {
            let terms = TimeoutTerms {
                count_policy_delay,
                ..TimeoutTerms::default()
            };
            let mut sim = Sim::new(Setup {
                withheld: class,
                ..server(1_000, RATE, terms)
            });
            sim.active(1_000, SECOND);
            let counts = sim.run(1_800 * SECOND);
            let (longest, estimate) = (sim.take_longest(), sim.estimate());
            let timeout = sim.trace().last().map_or(0, |point| point.timeout);
            sim.kill(true);
            sim.run(900 * SECOND);
            let (mean, max) = mean_and_max(sim.detections());
            table.row(&[
                class.to_string(),
                count_policy_delay.to_string(),
                seconds(longest),
                seconds(estimate),
                seconds(timeout),
                percent(counts.early(), counts.messages),
                counts.false_timeouts.to_string(),
                format!("{mean:.1}, {max:.1}"),
            ]);
        }
    }
    table
}

/// Plots the story over time.
fn picture((clients, sim, _): &Told) -> Lines {
    let title = format!("Waits, estimate and timeout of {clients} clients");
    let line = |pick: fn(&crate::timeouts::Point) -> u32| {
        let points = sim.trace().iter();
        points
            .map(move |point| (point.second as f64, f64::from(pick(point)) / 1e3))
            .collect()
    };
    Lines::new(&title, "time, s", "s")
        .series("longest wait", line(|point| point.longest))
        .series("estimate", line(|point| point.estimate))
        .series("timeout", line(|point| point.timeout))
}

/// Runs the study.
///
/// # Errors
///
/// An error of the file system.
pub fn run(options: &Options) -> Result<String, Failure> {
    let sizes: &[u32] = match options.quick {
        true => &[1_000],
        false => &[1_000, 10_000, 100_000],
    };
    let told: Vec<Told> = sizes
        .iter()
        .map(|clients| {
            let (sim, phases) = whole(server(*clients, RATE, TimeoutTerms::default()));
            (*clients, sim, phases)
        })
        .collect();
    let middle = &told[told.len() / 2];
    let mut tables = vec![phases(&told)];
    tables.extend(compare(&told));
    tables.extend([starts(sizes), losses(middle.0), networks()]);
    tables.extend([recoveries(middle.0), withheld()]);
    let markdown: String = tables.iter().map(Titled::markdown).collect();
    keep("timeouts", &markdown, &tables, options)?;
    if let Some(out) = &options.out {
        picture(middle).save(&out.join("timeouts.svg"))?;
    }
    Ok(markdown)
}
