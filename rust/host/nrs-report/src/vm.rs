// SPDX-License-Identifier: GPL-2.0-only

//! `nrs-report vm`: results of tests/vm/bench.sh: `count` (instructions per request) and `free-N`
//! (N CPUs, free-running).

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use nrs_report::stat::spread;
use nrs_report::table::{commas, Table};

use crate::fio;

/// Time of an instruction, ns: -icount shift=3.
const INSTRUCTION: f64 = 8.0;

/// Configurations: name and title; minimum throughput relative to dm-linear with batches of 1 and
/// 32 requests; the same configuration without timeouts, or empty.
const CONFIGURATIONS: [(&str, &str, [Option<f64>; 2], &str); 14] = [
    ("raw", "null_blk", [None; 2], ""),
    ("linear", "dm-linear", [None; 2], ""),
    ("deadline", "mq-deadline on null_blk, no dm", [None; 2], ""),
    ("bfq", "BFQ on null_blk, no dm", [None; 2], ""),
    ("sched-64", "nrs scheduler, 64 slots, fifo", [None; 2], ""),
    (
        "sched-64-fair",
        "nrs scheduler, 64, fairshare",
        [None; 2],
        "",
    ),
    ("sched-8", "nrs scheduler, 8 slots, fifo", [None; 2], ""),
    ("sched-8-fair", "nrs scheduler, 8, fairshare", [None; 2], ""),
    (
        "nrs-64",
        "dm-nrs, 64 slots, fifo",
        [Some(0.95), None],
        "nrs-64-off",
    ),
    ("nrs-64-off", "the same without timeouts", [None; 2], ""),
    (
        "nrs-64-fair",
        "dm-nrs, 64 slots, fairshare",
        [Some(0.95), None],
        "",
    ),
    (
        "nrs-8-fifo",
        "dm-nrs, 8 slots, fifo",
        [None, Some(0.80)],
        "nrs-8-off",
    ),
    ("nrs-8-off", "the same without timeouts", [None; 2], ""),
    (
        "nrs-8-fair",
        "dm-nrs, 8 slots, fairshare",
        [None, Some(0.80)],
        "",
    ),
];

/// Minimum throughput with timeouts, relative to the throughput without timeouts.
const TIMED: f64 = 0.98;

/// Directory of the results.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Directory of the results.
    dir: PathBuf,
}

/// Returns the instructions per request, and the fraction of requests that were queued.
fn counted(dir: &Path, name: &str, batch: u32) -> Result<(f64, f64), Box<dyn Error>> {
    let path = dir.join(format!("{name}.{batch}.json"));
    let job = fio::job(&path)?;
    let number = |key: &str| job["read"][key].as_f64().ok_or(format!("{name}: no {key}"));
    let queued: f64 = fs::read_to_string(path.with_extension("queued"))?
        .trim()
        .parse()?;
    let requests = number("total_ios")?;
    Ok((
        number("runtime")? * 1e6 / INSTRUCTION / requests,
        queued / requests,
    ))
}

fn verdict(ratio: f64, wanted: f64) -> String {
    let word = if ratio >= wanted { "yes" } else { "no" };
    format!("{wanted:.2}: {word}")
}

/// Returns the table of instructions per request.
fn counts(dir: &Path) -> Result<String, Box<dyn Error>> {
    let mut table = Table::headed(
        "device | 1 at a time | to dm-linear | required | 32 at a time | to dm-linear | required \
         | queued",
    );
    let both = |name: &str| -> Result<[(f64, f64); 2], Box<dyn Error>> {
        Ok([counted(dir, name, 1)?, counted(dir, name, 32)?])
    };
    let linear = both("linear")?;
    for (name, title, wanted, _) in CONFIGURATIONS {
        let counts = both(name)?;
        let mut row = vec![title.to_owned()];
        for (batch, wanted) in wanted.into_iter().enumerate() {
            let instructions = counts[batch].0;
            let ratio = linear[batch].0 / instructions;
            row.extend([
                commas(instructions.round() as u32),
                format!("{ratio:.3}"),
                wanted.map_or(String::new(), |wanted| verdict(ratio, wanted)),
            ]);
        }
        row.push(match name.starts_with("nrs") || name.starts_with("sched") {
            true => format!("{:.0} %", 100.0 * counts[1].1),
            false => String::new(),
        });
        table.row(&row);
    }
    let mut text = table.markdown() + "\n";
    for (name, title, _, off) in CONFIGURATIONS.iter().filter(|(.., off)| !off.is_empty()) {
        let ([(one_off, _), (many_off, _)], [(one, _), (many, _)]) = (both(off)?, both(name)?);
        let (one, many) = (one_off / one, many_off / many);
        text += &format!(
            "* Timeouts on to off, {title}: {one:.3}, {many:.3}; required {}\n",
            verdict(one.min(many), TIMED)
        );
    }
    Ok(text)
}

/// Returns the IOPS of a configuration relative to dm-linear, per round.
fn ratios(dir: &Path, name: &str) -> Result<Vec<f64>, Box<dyn Error>> {
    let iops = |name: &str, round: u32| {
        let job = fio::job(&dir.join(format!("{name}.{round}.json")))?;
        job["read"]["iops"]
            .as_f64()
            .ok_or(Box::<dyn Error>::from("no iops"))
    };
    let rounds = (1..).take_while(|round| dir.join(format!("{name}.{round}.json")).is_file());
    rounds
        .map(|round| Ok(iops(name, round)? / iops("linear", round)?))
        .collect()
}

/// Returns the table of free-running machines; empty without results of such machines.
fn free(dir: &Path) -> Result<String, Box<dyn Error>> {
    let free = [1, 2, 4, 8].map(|cpus| (cpus, dir.join(format!("free-{cpus}"))));
    let free: Vec<(u32, PathBuf)> = free.into_iter().filter(|(_, dir)| dir.is_dir()).collect();
    if free.is_empty() {
        return Ok(String::new());
    }
    let heads = free.iter().map(|(cpus, _)| format!("{cpus} CPUs"));
    let heads: Vec<String> = ["device".to_owned()].into_iter().chain(heads).collect();
    let mut table = Table::new(&heads);
    for (name, title, ..) in CONFIGURATIONS.iter().filter(|(name, ..)| *name != "linear") {
        let mut row = vec![title.to_string()];
        for (_, dir) in &free {
            row.push(spread(&ratios(dir, name)?).text(2));
        }
        table.row(&row);
    }
    Ok(format!(
        "\nFree-running CPUs: median IOPS relative to dm-linear, with the range:\n\n{}",
        table.markdown()
    ))
}

/// Prints the tables in Markdown.
///
/// # Errors
///
/// Missing or unreadable results.
pub fn run(args: Args) -> Result<(), Box<dyn Error>> {
    print!("{}{}", counts(&args.dir.join("count"))?, free(&args.dir)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_of_a_request() {
        let dir = std::env::temp_dir().join(format!("nrs-report-vm-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let report = r#"{"jobs":[{"error":0,"read":{"runtime":8,"total_ios":1000,"iops":2}}]}"#;
        fs::write(dir.join("raw.1.json"), report).unwrap();
        fs::write(dir.join("raw.1.queued"), "250\n").unwrap();
        fs::write(dir.join("linear.1.json"), report.replace(":2}", ":4}")).unwrap();
        let found = (
            counted(&dir, "raw", 1).unwrap(),
            ratios(&dir, "raw").unwrap(),
        );
        fs::write(
            dir.join("raw.1.json"),
            report.replace("\"error\":0", "\"error\":5"),
        )
        .unwrap();
        let error = counted(&dir, "raw", 1).unwrap_err().to_string();
        fs::remove_dir_all(&dir).unwrap();
        assert_eq!(found, ((1000.0, 0.25), vec![0.5]));
        assert!(error.ends_with("fio failed with error 5"), "{error}");
    }
}
