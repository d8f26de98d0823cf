// SPDX-License-Identifier: GPL-2.0-only

//! Throughput of a lone job, and of two competing jobs.
//!
//! The published main result of ThemisIO, 13.5 to 13.7 % more throughput than other schedulers,
//! compares a lone job: 19,832 MB/s with ThemisIO, 17,470 with GIFT and 17,446 with a token bucket.
//! A throttle with a rate below the bandwidth of the device limits a lone job; sharing does not.
//! This study compares the policies of nrs with models of two throttles
//! ([`crate::engine::throttle`]).
//!
//! One job runs for 60 s, an equal job from 15 s to 45 s. *Solo* is the first job before the second
//! job starts and after the second job stops. *Competing* is the time in between. Both exclude the
//! settle time after each change; the *whole run* includes the settle times.

use nrs_report::chart::Bars;
use nrs_report::stat::{spread, Spread};
use nrs_report::table::Table;

use super::{all, keep, seeded, Failure, Options};
use crate::outcome::Outcome;
use crate::scenario::Scenario;

const FILE: (&str, &str) = ("solo.toml", include_str!("../../scenarios/solo.toml"));

/// Rate of the published token bucket for a lone job, MB/s, on a device of about 21,900 MB/s.
const PINNED: f64 = 17_684.0;
/// Bandwidth of the device, MB/s.
const DEVICE: f64 = 21_900.0;

/// Scheduler with the published results of its kind.
struct Way {
    what: &'static str,
    policy: String,
    /// Requests per second of each job, for `tbf`.
    rate: Option<f64>,
    solo: Option<f64>,
    competing: Option<f64>,
}

/// Converts MB/s to 1 MiB requests per second.
fn requests(megabytes: f64) -> f64 {
    megabytes * 1e6 / 1_048_576.0
}

fn ways(scale: f64) -> Vec<Way> {
    let way = |what, policy: &str| Way {
        what,
        policy: policy.to_string(),
        rate: None,
        solo: None,
        competing: None,
    };
    let megabytes = |rate: f64| format!("throttle-static {}MB/s", (rate * scale).round());
    vec![
        way("fifo", "fifo"),
        Way {
            solo: Some(19_832.0),
            competing: Some(10_179.0),
            ..way("fairshare jobid_fair", "fairshare jobid_fair")
        },
        Way {
            rate: Some(requests(PINNED * scale)),
            solo: Some(17_446.0),
            competing: Some(8_878.0),
            ..way("tbf, each job at 17,684 MB/s", "tbf jobid")
        },
        Way {
            rate: Some(requests(DEVICE * scale / 2.0)),
            ..way("tbf, each job at half", "tbf jobid")
        },
        way("static caps at 17,684 MB/s", &megabytes(PINNED)),
        way("static caps at half", &megabytes(DEVICE / 2.0)),
        Way {
            solo: Some(17_470.0),
            competing: Some(9_436.0),
            ..way("a model of GIFT", "throttle-gift")
        },
    ]
}

/// Results of one run, MB/s.
struct Measured {
    solo: f64,
    competing: [f64; 2],
    whole: f64,
}

/// Returns the throughput of the first job alone, of both jobs while they compete, and of the whole
/// run, MB/s.
fn measure(scenario: &Scenario, outcome: &Outcome) -> Measured {
    let settle = scenario.settle.0;
    let end = scenario.duration.0;
    let came = scenario.jobs[1].start.0;
    let gone = scenario.jobs[1].stop.map_or(end, |stop| stop.0);
    let before = outcome.rate(0, settle, came) * (came - settle) as f64;
    let after = outcome.rate(0, gone + settle, end) * (end - gone - settle) as f64;
    let solo = (before + after) / (came + end - gone - 2 * settle) as f64;
    let both = [0, 1].map(|job| outcome.rate(job, came + settle, gone) / 1e6);
    let bytes: u64 = outcome.jobs.iter().map(|job| job.total.bytes).sum();
    Measured {
        solo: solo / 1e6,
        competing: both,
        whole: bytes as f64 * 1e3 / end as f64,
    }
}

/// Results of a scheduler over all seeds, MB/s.
struct Row {
    way: Way,
    solo: Spread,
    competing: [Spread; 2],
    whole: Spread,
}

impl Row {
    /// Returns the throughput of both jobs together while they compete, MB/s.
    fn both(&self) -> f64 {
        self.competing.iter().map(|each| each.median).sum()
    }
}

/// Runs the study.
///
/// # Errors
///
/// The error of a run or of the file system.
pub fn run(options: &Options) -> Result<String, Failure> {
    let scale = if options.quick { 0.1 } else { 1.0 };
    let mut rows: Vec<Row> = Vec::new();
    for way in ways(scale) {
        let policy = format!("\"{}\"", way.policy);
        let rules = match way.rate {
            Some(rate) => format!("[\"start all jobid={{*}} rate={}\"]", rate.round()),
            None => "[]".to_string(),
        };
        let set = [
            ("server.0.policy", policy.as_str()),
            ("server.0.rules", rules.as_str()),
        ];
        let scenarios = seeded(FILE, &set, options)?;
        let outcomes = all(&scenarios, options)?;
        let measured: Vec<Measured> = scenarios
            .iter()
            .zip(&outcomes)
            .map(|(scenario, outcome)| measure(scenario, outcome))
            .collect();
        let over =
            |pick: fn(&Measured) -> f64| spread(&measured.iter().map(pick).collect::<Vec<f64>>());
        rows.push(Row {
            way,
            solo: over(|m| m.solo),
            competing: [over(|m| m.competing[0]), over(|m| m.competing[1])],
            whole: over(|m| m.whole),
        });
    }
    let table = table(&rows);
    let text = format!(
        "{}\n\
         Median (least–greatest) of {} seeds. Published: a lone job gets 13.52 % more with \
         ThemisIO than with GIFT and 13.68 % more than with the token bucket (19,832 against \
         17,470 and 17,446 MB/s), two jobs 7.9 and 14.7 % more each. The rate of the token bucket \
         is the published one.\n",
        table.markdown(),
        options.seeds
    );
    keep("solo", &text, &table, options)?;
    if let Some(out) = &options.out {
        picture(&rows).save(&out.join("solo.svg"))?;
    }
    Ok(text)
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::headed(
        "scheduler | solo, MB/s | of fifo, % | published solo | competing, MB/s each | \
         both over fifo's solo, % | published each | whole run, MB/s | \
         fairshare gain, solo, % | whole run, %",
    );
    let fifo = rows.first().map_or(0.0, |row| row.solo.median);
    let fair = rows
        .iter()
        .find(|row| row.way.policy.starts_with("fairshare"));
    let optional = |value: Option<f64>| value.map_or("-".to_string(), |v| format!("{v:.0}"));
    for row in rows {
        let more = |pick: fn(&Row) -> f64| {
            fair.map_or(String::new(), |fair| {
                format!("{:+.2}", (pick(fair) / pick(row) - 1.0) * 100.0)
            })
        };
        table.row(&[
            row.way.what.to_string(),
            row.solo.text(0),
            format!("{:.1}", row.solo.median / fifo * 100.0),
            optional(row.way.solo),
            row.competing.map(|each| each.text(0)).join(" : "),
            format!("{:.1}", row.both() / fifo * 100.0),
            optional(row.way.competing),
            row.whole.text(0),
            more(|row| row.solo.median),
            more(|row| row.whole.median),
        ]);
    }
    table
}

fn picture(rows: &[Row]) -> Bars {
    Bars::new("A lone job, and two equal ones together", "MB/s")
        .groups(rows.iter().map(|row| row.way.what).collect())
        .series("solo", rows.iter().map(|row| row.solo).collect())
        .series(
            "two together",
            rows.iter().map(Row::both).collect::<Vec<f64>>(),
        )
        .series("whole run", rows.iter().map(|row| row.whole).collect())
}
