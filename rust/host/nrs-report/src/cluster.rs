// SPDX-License-Identifier: GPL-2.0-only

//! `nrs-report cluster`: output of the servers of tests/vm/cluster/server.sh as a table and a
//! chart.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use nrs_report::chart::Diagram;
use serde::Serialize;

use crate::{page, Result};

/// Maximum relative deviation of a user from the expected rate.
const TOLERANCE: f64 = 0.05;

/// Maximum relative deviation of a user over a short period.
const SHORT_TOLERANCE: f64 = 0.1;

/// Length of a short period, ms.
const SHORT_MS: f64 = 3000.0;

/// Length of the period in the second half of a phase in which shares are measured, ms; at most the
/// second half.
const RESULT_MS: f64 = 5000.0;

/// Time between the starts of two periods, ms.
const STEP_MS: f64 = 500.0;

/// Time between two points of the chart, ms.
const POINT_MS: f64 = 1000.0;

/// Input files and the chart.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Output files of the servers.
    #[arg(required = true)]
    logs: Vec<PathBuf>,
    /// Output file of the chart, SVG.
    #[arg(long, value_name = "FILE")]
    picture: Option<PathBuf>,
    /// Print a line "ok" or "not ok" for each phase; fail if a phase is not ok.
    #[arg(long)]
    check: bool,
}

/// All evaluated output.
#[derive(Default)]
struct Cluster {
    /// Cumulative requests of the user of all servers and of the server's own user, by server and
    /// time in ms: `one` has user 1002, `two` has user 1003. The counters of a rebooted machine
    /// restart at 0.
    samples: BTreeMap<String, Vec<(f64, [f64; 2])>>,
    /// Periods with a constant load: start in ms, expected ratio of the users, and name. A phase
    /// without a ratio is not evaluated.
    phases: Vec<(f64, Option<[f64; 3]>, String)>,
}

/// Results of the evaluated phases.
#[derive(Serialize)]
struct Results {
    phases: Vec<Phase>,
}

#[derive(Serialize)]
struct Phase {
    name: String,
    /// Expected ratio of the users.
    wanted: String,
    /// Rate of each user in the measured period, requests/s.
    rates: [f64; 3],
    /// Largest deviation of a user from the expected rate, a fraction.
    error: f64,
    is_ok: bool,
    /// Time until all short periods are within the tolerance, s.
    settled: Option<f64>,
}

impl Cluster {
    /// Parses a line; unknown lines are ignored.
    fn line(&mut self, line: &str) -> Option<()> {
        let words: Vec<&str> = line.trim_end().splitn(4, ' ').collect();
        match words[..] {
            ["sample", server, time, counts] => {
                let (wide, own) = counts.split_once(' ')?;
                let sample = (time.parse().ok()?, [wide.parse().ok()?, own.parse().ok()?]);
                self.samples.entry(server.into()).or_default().push(sample);
            }
            ["phase", start, ratio, name] => {
                let ratio: Vec<f64> = ratio.split(':').flat_map(str::parse).collect();
                let sum: f64 = ratio.iter().sum();
                let ratio = <[f64; 3]>::try_from(ratio).ok();
                let wanted = ratio.map(|ratio| ratio.map(|part| part / sum));
                self.phases.push((start.parse().ok()?, wanted, name.into()));
            }
            _ => {}
        }
        Some(())
    }

    /// Returns the rate of each user between two times, requests/s.
    fn rates(&self, from: f64, to: f64) -> [f64; 3] {
        let mut all = [0.0; 3];
        for (server, samples) in &self.samples {
            let own = if server == "one" { 1 } else { 2 };
            for (user, count) in [(0, 0), (own, 1)] {
                all[user] += grown(samples, count, from, to) * 1000.0 / (to - from);
            }
        }
        all
    }

    /// Returns the largest relative deviation of a user from `wanted` between two times.
    fn error(&self, wanted: &[f64; 3], from: f64, to: f64) -> f64 {
        let rates = self.rates(from, to);
        let sum: f64 = rates.iter().sum();
        let off = rates.iter().zip(wanted);
        let off = off.map(|(rate, part)| (rate / (sum * part) - 1.0).abs());
        // A user with an expected share of 0 that gets nothing is NaN, which `max` ignores.
        off.fold(0.0, f64::max)
    }

    /// Returns the period with the most requests in the second half of a phase. The machines share
    /// the processors of one computer, and a period in which one stood still shows no shares.
    fn fullest(&self, start: f64, end: f64) -> (f64, f64) {
        let middle = (start + end) / 2.0;
        let length = RESULT_MS.min(end - middle);
        let steps = ((end - middle - length) / STEP_MS) as i32;
        let starts = (0..=steps).map(|step| end - length - f64::from(step) * STEP_MS);
        let periods = starts.map(|from| (from, from + length));
        let sum = |(from, to): &(f64, f64)| self.rates(*from, *to).iter().sum::<f64>();
        let most = periods.max_by(|a, b| sum(a).total_cmp(&sum(b)));
        most.unwrap_or((middle, end))
    }

    fn phase(&self, name: &str, wanted: [f64; 3], start: f64, end: f64) -> Phase {
        let (from, to) = self.fullest(start, end);
        let error = self.error(&wanted, from, to);
        let steps = ((end - start - SHORT_MS) / 100.0).floor() as i32;
        let starts = (0..=steps).map(|step| f64::from(step) * 100.0).rev();
        let near = |after: &f64| {
            let from = start + after;
            self.error(&wanted, from, from + SHORT_MS) <= SHORT_TOLERANCE
        };
        let least = wanted.into_iter().filter(|part| *part > 0.0);
        let least = least.fold(1.0, f64::min);
        Phase {
            name: name.into(),
            wanted: wanted.map(|part| format!("{:.0}", part / least)).join(":"),
            rates: self.rates(from, to),
            error,
            is_ok: error <= TOLERANCE,
            settled: starts.take_while(near).last().map(|after| after / 1000.0),
        }
    }

    fn results(&self) -> Results {
        let pairs = self.phases.windows(2);
        let phases = pairs.filter_map(|pair| {
            let (start, wanted, name) = &pair[0];
            Some(self.phase(name, (*wanted)?, *start, pair[1].0))
        });
        let phases = phases.collect();
        Results { phases }
    }

    fn picture(&self) -> Diagram {
        let start = self.phases.first().map_or(0.0, |phase| phase.0);
        let end = self.phases.last().map_or(start, |phase| phase.0);
        let steps = ((end - start) / POINT_MS).floor() as i32;
        let times = (1..=steps).map(|step| start + f64::from(step) * POINT_MS);
        let point = |time: f64| ((time - start) / 1000.0, self.rates(time - POINT_MS, time));
        let points: Vec<_> = times.map(point).collect();
        let title = "A user of two servers, and a user of each";
        let mut chart = Diagram::lines(title, "s", "requests/s");
        let names = ["1001, both", "1002, one", "1003, two"];
        for (user, name) in names.iter().enumerate() {
            let series = points.iter().map(|(time, rates)| (*time, rates[user]));
            chart = chart.series(name, series.collect());
        }
        for (at, _, name) in &self.phases {
            chart = chart.rule_at_x((at - start) / 1000.0, name);
        }
        chart
    }
}

/// Returns the increase of the counter `count` between two times, interpolated linearly between
/// samples.
fn grown(samples: &[(f64, [f64; 2])], count: usize, from: f64, to: f64) -> f64 {
    let pieces = samples.windows(2).map(|pair| {
        let ((start, before), (end, after)) = (pair[0], pair[1]);
        let within = to.min(end) - from.max(start);
        let grown = after[count] - before[count];
        // After a reboot the counter is below its previous value.
        if within <= 0.0 || grown < 0.0 {
            return 0.0;
        }
        grown * within / (end - start)
    });
    pieces.sum()
}

/// Prints the table and draws the chart, or checks the shares.
pub fn run(args: Args) -> Result {
    let mut cluster = Cluster::default();
    for log in &args.logs {
        for line in fs::read_to_string(log)?.lines() {
            cluster.line(line);
        }
    }
    if cluster.phases.len() < 2 {
        return Err("no completed phase in the logs".into());
    }
    let results = cluster.results();
    if args.check {
        print!(
            "{}",
            page::render(include_str!("templates/cluster.tap.j2"), &results)?
        );
        return match results.phases.iter().filter(|phase| !phase.is_ok).count() {
            0 => Ok(()),
            bad => Err(format!("{bad} phases exceed the tolerance").into()),
        };
    }
    print!(
        "{}",
        page::render(include_str!("templates/cluster.md.j2"), &results)?
    );
    match &args.picture {
        Some(path) => Ok(cluster.picture().save(path)?),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the results of two servers of 500 requests/s; user 1001 gets `before` of each until
    /// `turn`, s, then `after`.
    fn results(turn: i32, before: f64, after: f64) -> Results {
        let mut all = Cluster::default();
        for line in [
            "phase 0 2:1:1 without agents",
            "phase 20000 1:1:1 agents",
            "phase 40000 - end",
            "something else",
            "sample none",
        ] {
            all.line(line);
        }
        for server in ["one", "two"] {
            let (mut wide, mut own) = (0.0, 0.0);
            for second in 0..=40 {
                all.line(&format!("sample {server} {} {wide} {own}", second * 1000));
                let part = if second < turn { before } else { after };
                wide += part;
                own += 500.0 - part;
            }
        }
        assert!(all.picture().to_svg().unwrap().contains("agents"));
        all.results()
    }

    #[test]
    fn shares_of_phases() {
        let fair = results(23, 250.0, 500.0 / 3.0);
        let [first, second] = &fair.phases[..] else {
            panic!("{}", fair.phases.len());
        };
        assert!(first.is_ok && second.is_ok);
        assert_eq!(first.settled, Some(0.0));
        // Short periods that are mostly after the change count.
        let settled = second.settled.unwrap();
        assert!((2.0..3.0).contains(&settled), "{settled}");
        let table = page::render(include_str!("templates/cluster.md.j2"), &fair).unwrap();
        assert!(table.contains("| without agents |  2:1:1 |"), "{table}");
        let unfair = &results(40, 250.0, 0.0).phases[1];
        assert_eq!((unfair.is_ok, unfair.settled), (false, None));
    }

    #[test]
    fn a_machine_that_stood_still() {
        let mut all = Cluster::default();
        all.line("phase 0 1:1:1 agents");
        all.line("phase 20000 - end");
        for (server, stop) in [("one", 20), ("two", 18)] {
            for second in 0..=20 {
                let (wide, own) = (60 * second.min(stop), 120 * second.min(stop));
                all.line(&format!("sample {server} {} {wide} {own}", second * 1000));
            }
        }
        assert!(all.error(&[1.0 / 3.0; 3], 10_000.0, 20_000.0) > TOLERANCE);
        let phase = &all.results().phases[0];
        assert!(phase.is_ok, "{:?}", phase.rates);
        assert_eq!(phase.rates, [120.0; 3]);
    }

    #[test]
    fn a_server_that_is_gone() {
        let mut all = Cluster::default();
        for line in [
            "phase 0 1:1:0 killed",
            "phase 4000 - boots",
            "phase 5000 1:1:1 back",
            "sample one 0 0 0",
            "sample one 4000 8 8",
            "sample two 3500 900 900",
            "sample two 4000 1 1",
        ] {
            all.line(line);
        }
        assert_eq!(all.rates(0.0, 4000.0), [2.0, 2.0, 0.0]);
        assert!(all.results().phases[0].is_ok);
    }
}
