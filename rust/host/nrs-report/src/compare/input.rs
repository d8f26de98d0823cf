// SPDX-License-Identifier: GPL-2.0-only

//! Parser of the results of tests/vm/compare.sh.
//!
//! - *Facts* are two samples of the counters during a measure, the second some time after the
//!   first.
//! - A *run* is one measure of one repeat: the difference of the samples, and the latency reported
//!   by fio.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

/// Peers in the order of the page.
pub const PEERS: [&str; 12] = [
    "none",
    "mq-deadline",
    "kyber",
    "bfq",
    "io.max",
    "io.cost",
    "dm-linear",
    "nrs-fifo",
    "nrs-tbf",
    "nrs-fairshare",
    "nrs-qbm",
    "nrs-iosched",
];

/// Devices in the order of the page.
pub const DEVICES: [&str; 4] = ["fast", "band", "slow", "loop"];

/// Number of clients in a sample.
pub const CLIENTS: usize = 8;

/// Results of one device.
#[derive(Clone, Debug, Default)]
pub struct Device {
    /// Name of the device.
    pub name: String,
    /// Properties of the machine, by name.
    pub facts: BTreeMap<String, String>,
    /// Peers that are not possible on the device, and the reasons.
    pub not: BTreeMap<String, String>,
    /// Runs by peer, measure and repeat.
    pub runs: BTreeMap<(String, String), BTreeMap<u32, Run>>,
}

/// One measure of one repeat.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// Time between the samples, s.
    pub seconds: f64,
    /// Fraction of the time in which the CPU ran a task, 0 to 1.
    pub busy: f64,
    /// Number of requests that the disk completed.
    pub requests: f64,
    /// Number of requests of each client.
    pub clients: Vec<f64>,
    /// Latency of client 1, ns.
    pub latency: Option<Latency>,
}

/// Latency from submission to completion, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Latency {
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// Number of requests.
    pub requests: u64,
}

/// Reads all devices with results in `dir`.
///
/// # Errors
///
/// With the file's name: a file cannot be read or parsed; a job of fio failed; there are no
/// results.
pub fn read_all(dir: &Path) -> Result<Vec<Device>, String> {
    let mut devices = Vec::new();
    for name in DEVICES {
        let place = dir.join(name);
        if place.join("device").is_file() {
            devices.push(read(&place, name)?);
        }
    }
    if devices.is_empty() {
        return Err(format!("no results in {}", dir.display()));
    }
    Ok(devices)
}

fn text(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Parses lines of a name and a value.
fn pairs(text: &str) -> BTreeMap<String, String> {
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    lines
        .map(|(name, value)| (name.to_string(), value.to_string()))
        .collect()
}

fn read(place: &Path, name: &str) -> Result<Device, String> {
    let mut device = Device {
        name: name.to_string(),
        facts: pairs(&text(&place.join("device"))?),
        not: pairs(&text(&place.join("not"))?),
        runs: BTreeMap::new(),
    };
    for peer in PEERS {
        for repeat in 1.. {
            let facts = place.join(format!("{peer}.{repeat}.facts"));
            if !facts.is_file() {
                break;
            }
            let mut runs =
                parse_facts(&text(&facts)?).map_err(|e| format!("{}: {e}", facts.display()))?;
            let json = place.join(format!("{peer}.{repeat}.json"));
            parse_fio(&text(&json)?, &mut runs).map_err(|e| format!("{}: {e}", json.display()))?;
            for (measure, run) in runs {
                let key = (peer.to_string(), measure);
                device.runs.entry(key).or_default().insert(repeat, run);
            }
        }
    }
    Ok(device)
}

/// Parses runs by measure, from two lines `MEASURE TIME_US TASKS_NS REQUESTS CLIENT1 … CLIENT8`
/// each.
///
/// # Errors
///
/// A malformed line; a measure without exactly two samples; no time between the samples.
pub fn parse_facts(text: &str) -> Result<BTreeMap<String, Run>, String> {
    let mut looks: BTreeMap<String, Vec<Vec<f64>>> = BTreeMap::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let measure = words.next().unwrap_or_default();
        let numbers: Result<Vec<f64>, _> = words.map(str::parse).collect();
        match numbers {
            Ok(numbers) if numbers.len() == 3 + CLIENTS => {
                looks.entry(measure.to_string()).or_default().push(numbers);
            }
            _ => return Err(format!("malformed sample: {line}")),
        }
    }
    let mut runs = BTreeMap::new();
    for (measure, looks) in looks {
        let [before, after] = &looks[..] else {
            return Err(format!(
                "{measure}: expected 2 samples, found {}",
                looks.len()
            ));
        };
        let change: Vec<f64> = after.iter().zip(before).map(|(a, b)| a - b).collect();
        if change[0] <= 0.0 {
            return Err(format!("{measure}: no time between the samples"));
        }
        let run = Run {
            seconds: change[0] / 1e6,
            busy: (change[1] / 1e3 / change[0]).clamp(0.0, 1.0),
            requests: change[2],
            clients: change[3..].to_vec(),
            latency: None,
        };
        runs.insert(measure, run);
    }
    Ok(runs)
}

/// Adds the latency of client 1 to `runs`, from fio's JSON with jobs named `MEASURE.cN`.
///
/// # Errors
///
/// Malformed JSON; a failed job; a job without latency.
pub fn parse_fio(text: &str, runs: &mut BTreeMap<String, Run>) -> Result<(), String> {
    // fio may print text before the JSON.
    let start = text.find('{').unwrap_or(0);
    let report: Value = serde_json::from_str(&text[start..]).map_err(|e| e.to_string())?;
    for job in report["jobs"].as_array().into_iter().flatten() {
        let name = job["jobname"].as_str().unwrap_or_default();
        if job["error"] != 0 {
            return Err(format!("job {name} failed with error {}", job["error"]));
        }
        let run = name
            .strip_suffix(".c1")
            .and_then(|measure| runs.get_mut(measure));
        let Some(run) = run else {
            continue;
        };
        let read = &job["read"];
        let at = |percent: &str| read["lat_ns"]["percentile"][percent].as_f64();
        let times = [at("50.000000"), at("99.000000"), at("99.900000")];
        let [Some(p50), Some(p99), Some(p999)] = times else {
            return Err(format!("job {name} has no latency"));
        };
        run.latency = Some(Latency {
            p50,
            p99,
            p999,
            requests: read["total_ios"].as_u64().unwrap_or(0),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts() {
        let text = "one 1000000 500000000 100 90 10 0 0 0 0 0 0\n\
                    one 3000000 2000000000 300 250 50 0 0 0 0 0 0\n";
        let runs = parse_facts(text).unwrap();
        let run = &runs["one"];
        assert_eq!((run.seconds, run.busy, run.requests), (2.0, 0.75, 200.0));
        assert_eq!(run.clients[..2], [160.0, 40.0]);
        for (text, want) in [
            ("one 1 2 3\n", "malformed sample"),
            ("one 1 x 3 0 0 0 0 0 0 0 0\n", "malformed sample"),
            ("one 1 1 1 0 0 0 0 0 0 0 0\n", "found 1"),
            (
                "one 1 1 1 0 0 0 0 0 0 0 0\none 1 1 1 0 0 0 0 0 0 0 0\n",
                "no time",
            ),
        ] {
            let error = parse_facts(text).unwrap_err();
            assert!(error.contains(want), "{error}");
        }
    }

    #[test]
    fn fio() {
        let job = |error: i64, percentile: &str| {
            format!(
                r#"note: this is text
                {{"jobs":[{{"jobname":"mix.ask","error":0,"read":{{"total_ios":0,"lat_ns":{{}}}}}},
                {{"jobname":"mix.c1","error":{error},"read":{{"total_ios":7,
                "lat_ns":{{"percentile":{percentile}}}}}}}]}}"#
            )
        };
        let all = r#"{"50.000000":1,"99.000000":2,"99.900000":3}"#;
        let mut runs = BTreeMap::from([("mix".to_string(), Run::default())]);
        parse_fio(&job(0, all), &mut runs).unwrap();
        let latency = runs["mix"].latency.unwrap();
        assert_eq!(
            (latency.p50, latency.p99, latency.p999, latency.requests),
            (1.0, 2.0, 3.0, 7)
        );
        for (text, want) in [
            (job(5, all), "failed with error 5"),
            (job(0, "{}"), "no latency"),
            ("nothing".to_string(), "expected"),
        ] {
            let error = parse_fio(&text, &mut runs).unwrap_err();
            assert!(error.contains(want), "{error}");
        }
    }
}
