// SPDX-License-Identifier: GPL-2.0-only

//! `nrs-report cluster`: output of the servers of tests/vm/cluster/server.sh as a table and a
//! chart.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::PathBuf;

use nrs_report::chart::Diagram;
use nrs_report::table::Table;

/// Maximum relative deviation of a user from the expected rate.
const TOLERANCE: f64 = 0.05;

/// Maximum relative deviation of a user over a short period.
const SHORT_TOLERANCE: f64 = 0.1;

/// Length of a short period, ms.
const SHORT_MS: f64 = 3000.0;

/// Length of the period at the end of a phase in which shares are measured, ms; at most the second
/// half of the phase.
const RESULT_MS: f64 = 10_000.0;

/// Time between two points of the chart, ms.
const POINT_MS: f64 = 1000.0;

/// User of all servers, and the users of one server each.
const USERS: [&str; 3] = ["1001", "1002", "1003"];

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

/// Cumulative requests of the user of all servers and of the server's own user, by time in ms.
type Samples = Vec<(f64, [f64; 2])>;

/// Period with a constant load.
struct Phase {
    name: String,
    start: f64,
    /// Expected shares of the users, fractions of the sum; `None`: the phase is not evaluated.
    wanted: Option<[f64; 3]>,
}

/// Evaluated phase, with its end.
struct Span<'a> {
    name: &'a str,
    start: f64,
    end: f64,
    wanted: [f64; 3],
}

impl Span<'_> {
    /// Returns the period in which the result is measured.
    fn result(&self) -> (f64, f64) {
        let middle = (self.start + self.end) / 2.0;
        ((self.end - RESULT_MS).max(middle), self.end)
    }
}

/// All evaluated output.
#[derive(Default)]
struct Cluster {
    /// Samples by server: `one` has user 1002, `two` has user 1003. The counters of a rebooted
    /// machine restart at 0.
    samples: BTreeMap<String, Samples>,
    phases: Vec<Phase>,
}

impl Cluster {
    /// Parses a line; unknown lines are ignored.
    fn line(&mut self, line: &str) -> Option<()> {
        let (kind, rest) = line.trim_end().split_once(' ')?;
        match kind {
            "sample" => {
                let words: Vec<&str> = rest.split(' ').collect();
                let [server, time, wide, own] = words[..] else {
                    return None;
                };
                let sample = (time.parse().ok()?, [wide.parse().ok()?, own.parse().ok()?]);
                self.samples.entry(server.into()).or_default().push(sample);
            }
            "phase" => {
                let mut words = rest.splitn(3, ' ');
                let start = words.next()?.parse().ok()?;
                let ratio: Vec<f64> = words.next()?.split(':').flat_map(str::parse).collect();
                let sum: f64 = ratio.iter().sum();
                let ratio = <[f64; 3]>::try_from(ratio).ok();
                self.phases.push(Phase {
                    name: words.next()?.into(),
                    start,
                    wanted: ratio.map(|ratio| ratio.map(|part| part / sum)),
                });
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
        let off = rates.iter().zip(wanted).map(|(rate, part)| {
            // A user with an expected share of 0 that gets nothing.
            if *part == 0.0 && *rate == 0.0 {
                return 0.0;
            }
            (rate / (sum * part) - 1.0).abs()
        });
        off.fold(0.0, f64::max)
    }

    /// Returns the time from the start of a span until all short periods are within the tolerance,
    /// s.
    fn settled(&self, span: &Span<'_>) -> Option<f64> {
        let steps = ((span.end - span.start - SHORT_MS) / 100.0).floor() as i32;
        let starts = (0..=steps).map(|step| f64::from(step) * 100.0);
        let near = |after: &f64| {
            let from = span.start + after;
            self.error(&span.wanted, from, from + SHORT_MS) <= SHORT_TOLERANCE
        };
        let first = starts.rev().take_while(near).last()?;
        Some(first / 1000.0)
    }

    /// Returns the phases to evaluate, with their ends.
    fn spans(&self) -> impl Iterator<Item = Span<'_>> {
        let next = self.phases.iter().skip(1);
        let spans = self.phases.iter().zip(next.map(|next| next.start));
        spans.filter_map(|(phase, end)| {
            Some(Span {
                name: &phase.name,
                start: phase.start,
                end,
                wanted: phase.wanted?,
            })
        })
    }

    fn table(&self) -> String {
        let head = [
            "phase",
            "wanted",
            "1001, requests/s",
            "1002",
            "1003",
            "largest error",
            "settled after",
        ];
        let mut table = Table::new(&head);
        for span in self.spans() {
            let (from, to) = span.result();
            let least = span.wanted.iter().copied().filter(|part| *part > 0.0);
            let least = least.fold(1.0, f64::min);
            let wanted = span.wanted.map(|part| format!("{:.0}", part / least));
            let [wide, one, two] = self.rates(from, to).map(|rate| format!("{rate:.0}"));
            let error = 100.0 * self.error(&span.wanted, from, to);
            let settled = self.settled(&span);
            let settled = settled.map_or("not".into(), |time| format!("{time:.1} s"));
            table.row(&[
                span.name,
                &wanted.join(":"),
                &wide,
                &one,
                &two,
                &format!("{error:.1} %"),
                &settled,
            ]);
        }
        table.markdown()
    }

    fn picture(&self) -> Diagram {
        let start = self.phases.first().map_or(0.0, |phase| phase.start);
        let end = self.phases.last().map_or(start, |phase| phase.start);
        let steps = ((end - start) / POINT_MS).floor() as i32;
        let times = (1..=steps).map(|step| start + f64::from(step) * POINT_MS);
        let points: Vec<_> = times
            .map(|time| ((time - start) / 1000.0, self.rates(time - POINT_MS, time)))
            .collect();
        let title = "A user of two servers, and a user of each";
        let mut lines = Diagram::lines(title, "s", "requests/s");
        let names = ["1001, both", "1002, one", "1003, two"];
        for (user, name) in names.iter().enumerate() {
            let series = points.iter().map(|(time, rates)| (*time, rates[user]));
            lines = lines.series(name, series.collect());
        }
        for phase in &self.phases {
            lines = lines.rule_at_x((phase.start - start) / 1000.0, &phase.name);
        }
        lines
    }

    /// Prints for each phase whether the shares are as expected; returns the number of phases that
    /// are not ok.
    fn check(&self) -> usize {
        let mut bad = 0;
        for (n, span) in self.spans().enumerate() {
            let (from, to) = span.result();
            let error = self.error(&span.wanted, from, to);
            let good = error <= TOLERANCE;
            bad += usize::from(!good);
            let word = if good { "ok" } else { "not ok" };
            let rates = self.rates(from, to);
            let got = USERS.iter().zip(rates);
            let got: Vec<String> = got
                .map(|(user, rate)| format!("{user} {rate:.0}"))
                .collect();
            println!(
                "{word} {} - {} # {} requests/s, {:.1} % off",
                n + 1,
                span.name,
                got.join(", "),
                100.0 * error
            );
        }
        bad
    }
}

/// Returns the increase of the counter `count` between two times, interpolated linearly between
/// samples.
fn grown(samples: &Samples, count: usize, from: f64, to: f64) -> f64 {
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
pub fn run(args: Args) -> Result<(), Box<dyn Error>> {
    let mut cluster = Cluster::default();
    for log in &args.logs {
        for line in fs::read_to_string(log)?.lines() {
            cluster.line(line);
        }
    }
    if cluster.phases.len() < 2 {
        return Err("no completed phase in the logs".into());
    }
    if args.check {
        return match cluster.check() {
            0 => Ok(()),
            bad => Err(format!("{bad} phases exceed the tolerance").into()),
        };
    }
    print!("{}", cluster.table());
    if let Some(path) = &args.picture {
        cluster.picture().save(path)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a cluster of two servers of 500 requests/s; user 1001 gets `before` of each until
    /// `turn`, s, then `after`.
    fn cluster(turn: i32, before: f64, after: f64) -> Cluster {
        let mut all = Cluster::default();
        all.line("phase 0 2:1:1 without agents");
        all.line("phase 20000 1:1:1 agents");
        all.line("phase 40000 - end");
        for server in ["one", "two"] {
            let (mut wide, mut own) = (0.0, 0.0);
            for second in 0..=40 {
                all.line(&format!("sample {server} {} {wide} {own}", second * 1000));
                let part = if second < turn { before } else { after };
                wide += part;
                own += 500.0 - part;
            }
        }
        all.line("something else");
        all.line("sample none");
        all
    }

    #[test]
    fn shares_of_phases() {
        let all = cluster(23, 250.0, 500.0 / 3.0);
        assert_eq!(all.check(), 0);
        let spans: Vec<_> = all.spans().collect();
        assert_eq!(spans.len(), 2);
        assert_eq!(all.settled(&spans[0]), Some(0.0));
        // Short periods that are mostly after the change count.
        let settled = all.settled(&spans[1]).unwrap();
        assert!((2.0..3.0).contains(&settled), "{settled}");
        let table = all.table();
        assert!(table.contains("| without agents |  2:1:1 |"), "{table}");
        assert!(all.picture().to_svg().unwrap().contains("agents"));
    }

    #[test]
    fn what_is_not_fair_is_not_ok() {
        let all = cluster(40, 250.0, 0.0);
        assert_eq!(all.check(), 1);
        let last = all.spans().last().unwrap();
        assert_eq!(all.settled(&last), None);
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
        assert_eq!(all.check(), 0);
    }
}
