// SPDX-License-Identifier: GPL-2.0-only

//! `nrs-report demo`: results of tests/vm/demo.sh as the table and the chart of the demo.
//!
//! A small user and a greedy user with two jobs share one device under fifo, fairshare and tbf. All
//! figures, and the texts about them, are generated from the results.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use nrs_report::table::Table;

use crate::fio;

/// Runs in order.
const RUNS: [&str; 4] = ["alone", "fifo", "fairshare", "tbf"];

/// Users and their jobs.
const JOBS: [(&str, &str); 3] = [
    ("small", "small"),
    ("greedy", "large"),
    ("greedy", "medium"),
];

/// Busy time of the CPU, percent, above which the CPU determines the results and not the device.
const BUSY_LIMIT: f64 = 60.0;

/// Maximum relative deviation of a client from half, or from its limit.
const TOLERANCE: f64 = 0.05;

/// Directory of the results, and file of the chart.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Directory of the results.
    dir: PathBuf,
    /// Output file of the chart, SVG.
    picture: PathBuf,
    /// Output file of the table for the README.
    readme: PathBuf,
}

/// Job of a run: service from the counters of nrs, latency from fio.
struct Job {
    mb_per_s: f64,
    iops: f64,
    p50_ms: f64,
    p99_ms: f64,
}

/// Run: jobs by name, and busy time of the CPU in percent.
struct DemoRun {
    jobs: BTreeMap<&'static str, Job>,
    busy: f64,
}

impl DemoRun {
    fn read(dir: &Path, name: &str) -> Result<Self, Box<dyn Error>> {
        let facts = |when: &str| -> Result<BTreeMap<String, f64>, Box<dyn Error>> {
            let text = fs::read_to_string(dir.join(format!("{name}.{when}")))?;
            let pairs = text.lines().filter_map(|line| line.split_once(' '));
            let numbers = pairs.map(|(name, value)| Ok((name.to_owned(), value.trim().parse()?)));
            numbers.collect()
        };
        let (before, after) = (facts("before")?, facts("after")?);
        let change = |fact: &str| Some(after.get(fact)? - before.get(fact)?);
        let seconds = change("seconds").ok_or("no time")?;
        let idle = change("idle_seconds").ok_or("no idle time")?;
        let mut jobs = BTreeMap::new();
        for (_, job) in JOBS {
            let got = change(&format!("{job}_bytes")).zip(change(&format!("{job}_requests")));
            if let Some((bytes, requests)) = got {
                let report = fio::job(&dir.join(format!("{name}-{job}.json")))?;
                let latency = |percent: &str| {
                    let times = &report["read"]["clat_ns"]["percentile"];
                    times[percent]
                        .as_f64()
                        .map(|ns| ns / 1e6)
                        .ok_or("no latency")
                };
                let job_got = Job {
                    mb_per_s: bytes / seconds / 1e6,
                    iops: requests / seconds,
                    p50_ms: latency("50.000000")?,
                    p99_ms: latency("99.000000")?,
                };
                jobs.insert(job, job_got);
            }
        }
        Ok(Self {
            jobs,
            busy: 100.0 - 100.0 * idle / seconds,
        })
    }

    fn small(&self) -> &Job {
        &self.jobs["small"]
    }

    /// Returns the throughput of the jobs of a user, MB/s; of all users if `user` is empty.
    fn mb_per_s(&self, user: &str) -> f64 {
        let own = JOBS.iter().filter(|(of, _)| user.is_empty() || *of == user);
        own.filter_map(|(_, job)| Some(self.jobs.get(job)?.mb_per_s))
            .sum()
    }

    /// Returns the share of a user in the throughput, percent.
    fn share(&self, user: &str) -> f64 {
        100.0 * self.mb_per_s(user) / self.mb_per_s("")
    }

    /// Returns the share of a job in the throughput of its user, percent.
    fn share_within(&self, user: &str, job: &str) -> f64 {
        100.0 * self.jobs[job].mb_per_s / self.mb_per_s(user)
    }
}

/// All results.
struct Demo {
    runs: [DemoRun; 4],
    /// Rule of tbf, and its rate.
    rule: String,
    rate: String,
}

fn ms(value: f64) -> String {
    match value < 100.0 {
        true => format!("{value:.1}"),
        false => format!("{value:.0}"),
    }
}

fn is_half(part: f64) -> bool {
    (part - 50.0).abs() < 50.0 * TOLERANCE
}

impl Demo {
    fn read(dir: &Path) -> Result<Self, Box<dyn Error>> {
        let rule = fs::read_to_string(dir.join("rule"))?.trim().to_owned();
        let rate = rule.split(' ').find_map(|word| word.strip_prefix("rate="));
        let rate = rate.ok_or("the rule has no rate")?.to_owned();
        let [alone, fifo, fairshare, tbf] = RUNS.map(|name| DemoRun::read(dir, name));
        Ok(Self {
            runs: [alone?, fifo?, fairshare?, tbf?],
            rule,
            rate,
        })
    }

    fn run(&self, name: &str) -> &DemoRun {
        let place = RUNS.iter().position(|other| *other == name);
        &self.runs[place.unwrap_or(0)]
    }

    /// Returns the ratio of the small user's IOPS alone to its IOPS in the run `name`.
    fn slowdown(&self, name: &str) -> f64 {
        self.run("alone").small().iops / self.run(name).small().iops
    }

    fn table(&self) -> String {
        let head = format!(
            "{:<11}{:<8}{:<7}{:>7}{:>6}{:>9}{:>9}{:>11}{:>11}",
            "run", "user", "job", "MB/s", "IOPS", "p50 ms", "p99 ms", "user gets", "job of it"
        );
        let width = head.len();
        let head = head + "  small against alone";
        let mut lines = vec![head.clone(), "-".repeat(head.len())];
        for (name, run) in RUNS.iter().zip(&self.runs) {
            for (user, job) in JOBS {
                let Some(got) = run.jobs.get(job) else {
                    continue;
                };
                let share = match job {
                    "medium" => String::new(),
                    _ => format!("{:.1}%", run.share(user)),
                };
                let within = match user {
                    "greedy" => format!("{:.1}%", run.share_within(user, job)),
                    _ => String::new(),
                };
                let (p50, p99) = (ms(got.p50_ms), ms(got.p99_ms));
                let line = format!(
                    "{name:<11}{user:<8}{job:<7}{:>7.1}{:>6.0}\
                     {p50:>9}{p99:>9}{share:>11}{within:>11}",
                    got.mb_per_s, got.iops
                );
                lines.push(match user == "small" && *name != "alone" {
                    true => format!("{line:<width$}  {:.1} times slower", self.slowdown(name)),
                    false => line.trim_end().to_owned(),
                });
            }
        }
        lines.join("\n")
    }

    /// Returns the small user's results for the README.
    fn readme(&self) -> String {
        let limited = format!("greedy one limited to {}", self.rate);
        let mut table = Table::new(&[
            "a small user",
            "alone",
            "beside a greedy one",
            "with `fairshare`",
            &limited,
        ]);
        let row = |title: &str, value: &dyn Fn(&Job) -> String| {
            let cells = self.runs.iter().map(|run| value(run.small()));
            [title.to_owned()]
                .into_iter()
                .chain(cells)
                .collect::<Vec<_>>()
        };
        table.row(&row("throughput, MB/s", &|job| {
            format!("{:.1}", job.mb_per_s)
        }));
        table.row(&row("p99 latency, ms", &|job| ms(job.p99_ms)));
        let kept = self.run("fairshare").mb_per_s("") / self.run("fifo").mb_per_s("");
        format!(
            "{}\nWith `fairshare` both users together get {:.0} % of the throughput without nrs.\n",
            table.markdown(),
            100.0 * kept
        )
    }

    /// Returns true if each user got half under fairshare, and each job of the greedy user half of
    /// that.
    fn is_fair(&self) -> bool {
        let run = self.run("fairshare");
        is_half(run.share("small")) && is_half(run.share_within("greedy", "large"))
    }

    /// Returns true if the greedy user got the rate of its rule under tbf.
    fn is_limited(&self) -> bool {
        let limit = self
            .rate
            .trim_end_matches("MB/s")
            .parse()
            .unwrap_or(f64::NAN);
        (self.run("tbf").mb_per_s("greedy") / limit - 1.0).abs() < TOLERANCE
    }

    /// Returns true if the device was the bottleneck.
    fn is_valid(&self) -> bool {
        self.runs.iter().all(|run| run.busy < BUSY_LIMIT)
    }

    fn sharing(&self) -> String {
        let p99 = |name| ms(self.run(name).small().p99_ms);
        let (fifo, fair) = (self.run("fifo"), self.run("fairshare"));
        let large = |run: &DemoRun| run.share_within("greedy", "large");
        let kept = 100.0 * fair.mb_per_s("") / fifo.mb_per_s("");
        let text = format!(
            "Beside the greedy user the small one runs {:.1} times slower than alone under fifo \
             (p99 {} ms instead of {} ms), \
             and {:.1} times slower under fairshare (p99 {} ms); together they get {kept:.0} % of \
             what they got under fifo.",
            self.slowdown("fifo"),
            p99("fifo"),
            p99("alone"),
            self.slowdown("fairshare"),
            p99("fairshare"),
        );
        text + &match self.is_fair() {
            true => format!(
                " The mode is uid_then_jobid_fair: each user gets half, and each of the greedy \
                 user's two jobs half of that, \
                 though one has three times the other's processes (under fifo it got {:.0} % of \
                 its user's part).",
                large(fifo)
            ),
            false => format!(
                " Each user should get half and each of the greedy user's two jobs half of that, \
                 but the small user got \
                 {:.1} % and the large job {:.1} % of its user's part, which is NOT as expected.",
                fair.share("small"),
                large(fair)
            ),
        }
    }

    fn limiting(&self) -> String {
        let run = self.run("tbf");
        let wrong = match self.is_limited() {
            true => "",
            false => ", which is NOT the rate of the rule,",
        };
        format!(
            "Under tbf the rule \"{}\" keeps the greedy user, with both jobs, at {:.1} \
             MB/s{wrong} and leaves the rest of the \
             device to the small one: {:.1} MB/s, {:.1} times slower than alone (p99 {} ms).",
            self.rule,
            run.mb_per_s("greedy"),
            run.small().mb_per_s,
            self.slowdown("tbf"),
            ms(run.small().p99_ms)
        )
    }

    fn busy(&self) -> String {
        let busy = RUNS.iter().zip(&self.runs);
        let busy = busy.map(|(name, run)| format!("{name} {:.0} %", run.busy.max(0.0)));
        let verdict = match self.is_valid() {
            true => format!("below {BUSY_LIMIT} %, so the device was the bottleneck"),
            false => format!("NOT below {BUSY_LIMIT} %, so the figures are invalid"),
        };
        let busy = busy.collect::<Vec<_>>().join(", ");
        format!("The virtual machine's one CPU was busy {busy}: {verdict}.")
    }

    /// Returns the chart: shares of the users, and latency of the small user.
    fn svg(&self) -> String {
        const LEFT: f64 = 110.0;
        const WIDTH: f64 = 560.0;
        let mut out = String::new();
        let mut text = |x: f64, y: f64, words: &str, class: &str, anchor: &str| {
            out += &format!(
                "<text x=\"{x:.0}\" y=\"{y:.0}\" class=\"{class}\" \
                 text-anchor=\"{anchor}\">{words}</text>\n"
            );
        };
        let mut bars = String::new();
        let mut bar = |x: f64, y: f64, width: f64, class: &str| {
            let width = width.max(1.5);
            bars += &format!(
                "<rect x=\"{x:.1}\" y=\"{y}\" width=\"{width:.1}\" height=\"34\" \
                 rx=\"2\" class=\"{class}\"/>\n"
            );
        };
        let title = "Two users on one device: a small one, and a greedy one with two jobs";
        text(24.0, 36.0, title, "title", "start");
        text(24.0, 72.0, "Share of the throughput", "", "start");
        let mut y = 88.0;
        for (name, run) in RUNS.iter().zip(&self.runs).skip(1) {
            text(LEFT - 12.0, y + 22.0, name, "", "end");
            // A label that does not fit into the bar of the small user is drawn in the next bar.
            let room = if WIDTH * run.share("small") > 11_000.0 {
                120.0
            } else {
                220.0
            };
            let mut x = LEFT;
            for (user, job) in JOBS {
                let part = 100.0 * run.jobs[job].mb_per_s / run.mb_per_s("");
                let width = WIDTH * part / 100.0;
                bar(x, y, width, job);
                match job {
                    "small" if width > 110.0 => {
                        text(
                            x + 10.0,
                            y + 22.0,
                            &format!("small {part:.1} %"),
                            "on",
                            "start",
                        );
                    }
                    "small" => {
                        let words = format!("small {part:.1} %");
                        text(x + width + 10.0, y + 22.0, &words, "", "start");
                    }
                    _ if width > 60.0 => {
                        let who = if width > room {
                            format!("{user} ")
                        } else {
                            String::new()
                        };
                        let words = format!("{who}{part:.1} %");
                        text(x + width - 10.0, y + 22.0, &words, "", "end");
                    }
                    _ => {}
                }
                x += width;
            }
            y += 46.0;
        }
        let half = LEFT + WIDTH / 2.0;
        let line = format!(
            "<line x1=\"{half}\" y1=\"84\" x2=\"{half}\" y2=\"{}\" class=\"fair\"/>\n",
            y - 8.0
        );
        text(half, y + 8.0, "half each", "note", "middle");
        y += 46.0;
        text(
            24.0,
            y,
            "Latency of the small user, 99th percentile",
            "",
            "start",
        );
        y += 16.0;
        let times = self.runs.each_ref().map(|run| run.small().p99_ms);
        let longest = times.iter().copied().fold(0.0, f64::max);
        for (name, time) in RUNS.iter().zip(times) {
            let length = (WIDTH - 90.0) * time / longest;
            text(LEFT - 12.0, y + 22.0, name, "", "end");
            bar(LEFT, y, length, "small");
            text(
                LEFT + length + 10.0,
                y + 22.0,
                &format!("{} ms", ms(time)),
                "",
                "start",
            );
            y += 46.0;
        }
        y += 24.0;
        for words in [
            "64 KiB random reads. small: 1 process, 16 requests in flight; greedy: jobs of 12 and \
             of 4 processes, 32 each.",
            "8 slots. The device (null_blk) takes 8 ms per request and stores nothing.",
            &format!(
                "fairshare: by users, then by their jobs. tbf: one rule, which keeps the \
                 greedy user at {}.",
                self.rate
            ),
        ] {
            text(24.0, y, words, "note", "start");
            y += 18.0;
        }
        let said = format!("{} {}", self.sharing(), self.limiting());
        let said = said
            .replace('&', "&amp;")
            .replace('"', "&quot;")
            .replace('<', "&lt;");
        let below = y - 1.0;
        format!(
            "<!-- SPDX-License-Identifier: GPL-2.0-only -->\n\
             <svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 720 {y}\" width=\"720\" \
             height=\"{y}\" role=\"img\" \
             aria-label=\"Share of throughput and latency of a small user beside a greedy one. \
             {said}\">\n\
             <style>{STYLE}</style>\n\
             <rect x=\"0.5\" y=\"0.5\" width=\"719\" height=\"{below}\" rx=\"8\" \
             class=\"back\"/>\n{bars}{line}{out}</svg>\n"
        )
    }
}

const STYLE: &str = "
  text { font: 14px system-ui, sans-serif; fill: #24292f }
  .title { font-size: 17px; font-weight: 600 }
  .note { font-size: 12px; fill: #57606a }
  .back { fill: #ffffff; stroke: #d0d7de }
  .small { fill: #0b6bcb }
  .large { fill: #b8c0c9 }
  .medium { fill: #d5dae0 }
  .fair { stroke: #24292f; stroke-dasharray: 4 3 }
  .on { fill: #ffffff }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 }
    .note { fill: #9aa4af }
    .back { fill: #0d1117; stroke: #30363d }
    .small { fill: #4ea1ff }
    .large { fill: #3d444d }
    .medium { fill: #2a3038 }
    .fair { stroke: #e6edf3 }
    .on { fill: #0d1117 }
  }
";

/// Prints the table, and draws the chart.
///
/// # Errors
///
/// Missing or unreadable results; a run with unexpected results.
pub fn run(args: Args) -> Result<(), Box<dyn Error>> {
    let demo = Demo::read(&args.dir)?;
    println!("{}", demo.table());
    let model = "Device model: null_blk, which takes 8 ms per request (timer interrupt) and \
     stores no data. 8 slots. Time in the \
                 virtual machine is counted in instructions, so the figures repeat and do not \
                 depend on this machine's load.";
    for text in [
        demo.sharing(),
        demo.limiting(),
        model.to_owned(),
        demo.busy(),
    ] {
        println!("\n{text}");
    }
    fs::write(&args.picture, demo.svg())?;
    fs::write(&args.readme, demo.readme())?;
    match demo.is_valid() && demo.is_fair() && demo.is_limited() {
        true => Ok(()),
        false => Err("unexpected results, see NOT above".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_picture() {
        let run = |small: f64, large: f64, medium: f64| {
            let job = |mb_per_s: f64| Job {
                mb_per_s,
                iops: mb_per_s * 16.0,
                p50_ms: 9.0,
                p99_ms: 1000.0 / mb_per_s,
            };
            let jobs = [("small", small), ("large", large), ("medium", medium)];
            let there = jobs.into_iter().filter(|(_, got)| *got > 0.0);
            DemoRun {
                jobs: there.map(|(name, got)| (name, job(got))).collect(),
                busy: 30.0,
            }
        };
        let runs = [
            run(50.0, 0.0, 0.0),
            run(2.0, 36.0, 12.0),
            run(25.0, 12.5, 12.5),
            run(40.0, 5.0, 5.0),
        ];
        let mut demo = Demo {
            runs,
            rule: "start greedy uid={1002} rate=10MB/s".into(),
            rate: "10MB/s".into(),
        };
        assert!(demo.is_fair() && demo.is_limited() && demo.is_valid());
        let table = demo.table();
        let line = "500       4.0%             25.0 times slower";
        assert!(table.contains(line), "{table}");
        assert!(demo
            .sharing()
            .contains("(under fifo it got 75 % of its user's part)"));
        let readme = demo.readme();
        assert!(readme.contains("| throughput, MB/s |  50.0 |"), "{readme}");
        let svg = demo.svg();
        assert!(
            svg.contains("small 50.0 %") && svg.contains("greedy 72.0 %") && svg.contains("500 ms")
        );
        demo.rate = "20MB/s".into();
        assert!(!demo.is_limited());
        assert!(demo
            .limiting()
            .contains("which is NOT the rate of the rule"));
    }
}
