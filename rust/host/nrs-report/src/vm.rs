// SPDX-License-Identifier: GPL-2.0-only

//! `nrs-report vm`: results of tests/vm/bench.sh: `count` (instructions per request) and `free-N`
//! (N CPUs, free-running).

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use nrs_report::stat::spread;

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
    let word = if ratio >= wanted { "yes" } else { "NO" };
    format!("  required {wanted:.2}: {word}")
}

fn counts(dir: &Path, batch: u32) -> Result<(), Box<dyn Error>> {
    let each = if batch == 1 {
        ""
    } else {
        " (one io_submit each)"
    };
    println!("Submitted {batch} at a time{each}:\n");
    println!(
        "  {:<32}{:>13}{:>14}{:>8}",
        "", "instructions", "to dm-linear", "queued"
    );
    let (linear, _) = counted(dir, "linear", batch)?;
    for (name, title, wanted, _) in CONFIGURATIONS {
        let (instructions, waited) = counted(dir, name, batch)?;
        let ratio = linear / instructions;
        let waited = match name.starts_with("nrs") || name.starts_with("sched") {
            true => format!("{:.0} %", 100.0 * waited),
            false => "-".into(),
        };
        let wanted = wanted[usize::from(batch > 1)];
        let verdict = wanted.map_or(String::new(), |wanted| verdict(ratio, wanted));
        println!("  {title:<32}{instructions:>13.0}{ratio:>14.3}{waited:>8}{verdict}");
    }
    for (name, title, _, off) in CONFIGURATIONS.iter().filter(|(.., off)| !off.is_empty()) {
        let ratio = counted(dir, off, batch)?.0 / counted(dir, name, batch)?.0;
        let title = format!("{title}:");
        println!(
            "  timeouts on to off, {title:<26}{ratio:.3}{}",
            verdict(ratio, TIMED)
        );
    }
    println!();
    Ok(())
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

/// Prints the tables.
///
/// # Errors
///
/// Missing or unreadable results.
pub fn run(args: Args) -> Result<(), Box<dyn Error>> {
    println!(
        "Cost of a request through the whole stack, fio included: 4 KiB random reads, \
     libaio, 32 in flight,"
    );
    println!("null_blk irqmode 0. Attributes of every request are counted.\n");
    println!(
        "Instructions per request, one emulated CPU, -icount (time is instructions, repeatable):\n"
    );
    for batch in [1, 32] {
        counts(&args.dir.join("count"), batch)?;
    }
    let free = [1, 2, 4, 8].map(|cpus| (cpus, args.dir.join(format!("free-{cpus}"))));
    let free: Vec<(u32, PathBuf)> = free.into_iter().filter(|(_, dir)| dir.is_dir()).collect();
    if free.is_empty() {
        return Ok(());
    }
    println!(
        "Free-running, IOPS as a part of dm-linear's, median of the rounds (lowest to \
     highest); reported only:\n"
    );
    let heads = free
        .iter()
        .map(|(cpus, _)| format!("{:>22}", format!("{cpus} CPUs")));
    println!("  {:<32}{}", "", heads.collect::<String>());
    for (name, title, ..) in CONFIGURATIONS.iter().filter(|(name, ..)| *name != "linear") {
        let mut line = format!("  {title:<32}");
        for (_, dir) in &free {
            let all = spread(&ratios(dir, name)?);
            let shown = format!("{:.2} ({:.2} to {:.2})", all.median, all.low, all.high);
            line += &format!("{shown:>22}");
        }
        println!("{line}");
    }
    println!();
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
