// SPDX-License-Identifier: GPL-2.0-only

//! Report: page, JSON and charts.

use std::io;
use std::path::Path;

use nrs_report::chart::Diagram;
use nrs_report::stat::Spread;
use nrs_report::table::Table;
use serde_json::{json, Map, Value};

use super::figures::{Figures, BUSY, FIGURES};
use super::input::{Device, PEERS};
use super::words::Sentence;

/// Returns the description of a device.
fn what(device: &str) -> &'static str {
    match device {
        "fast" => {
            "null_blk that completes immediately: the CPU is the bottleneck, and shares are CPU \
             shares"
        }
        "band" => "null_blk capped at 32 MiB/s (`mbps`; its budget is filled up every 20 ms)",
        "slow" => "null_blk that takes 2 ms per request, 8 at a time, without jitter",
        "loop" => {
            "loop device with direct I/O on a file of ext4 on a memory-backed null_blk that takes \
             8 ms per request, 4 at a time"
        }
        _ => "",
    }
}

/// Returns the page in Markdown: the table, the impossible peers, the sentences, and the method.
pub fn markdown(
    devices: &[Device],
    figures: &Figures,
    said: &[Sentence],
    took: Option<u64>,
) -> String {
    let mut head = vec!["device", "peer"];
    head.extend(FIGURES.iter().map(|figure| figure.head));
    head.push("CPU busy %, shares");
    let mut table = Table::new(&head);
    for device in devices {
        for peer in PEERS {
            let mut row = vec![device.name.clone(), peer.to_string()];
            if device.not.contains_key(peer) {
                row.extend(vec!["not possible".to_string(); FIGURES.len() + 1]);
            } else if figures.peers(&device.name).contains(&peer) {
                row.extend(FIGURES.iter().map(|figure| {
                    let value = figures.get(&device.name, peer, figure.key);
                    value.map_or("-".to_string(), |value| value.text(figure.places))
                }));
                let busy = figures.busy(&device.name, peer, "equal");
                row.push(busy.map_or("-".to_string(), |busy| format!("{busy:.0}")));
            } else {
                continue;
            }
            table.row(&row);
        }
    }
    let mut page = String::from("# nrs beside the schedulers of the kernel\n\n");
    page += &table.markdown();
    page += "\nMedian of the repeats, lowest–highest in brackets where they differ.\n\n";
    for device in devices {
        for (peer, why) in &device.not {
            page += &format!("* Not possible: {peer} on `{}`: {why}.\n", device.name);
        }
    }
    page += "\n## Best peer per figure\n\n";
    for device in devices {
        for sentence in said.iter().filter(|said| said.device == device.name) {
            page += &format!("* {}\n", sentence.text);
        }
        page.push('\n');
    }
    page + &how(devices, figures, took)
}

/// Returns the section about the method.
fn how(devices: &[Device], figures: &Figures, took: Option<u64>) -> String {
    let fact = |device: &Device, name: &str| {
        let fact = device.facts.get(name).cloned();
        fact.unwrap_or_else(|| "?".to_string())
    };
    let mut page = String::from("## Method\n\n");
    if let Some(first) = devices.first() {
        page += &format!(
            "Kernel {}, one emulated CPU whose clock counts instructions (8 ns each, 125 per µs), \
             {} repeats, peers in alternating order. Such a CPU is slow, so CPU time has more \
             weight relative to device time.\n",
            fact(first, "kernel"),
            fact(first, "repeats")
        );
    }
    if let Some(took) = took {
        page += &format!("`make compare` took {} min {} s.\n", took / 60, took % 60);
    }
    page +=
        "\nRandom reads by fio (libaio, direct). Each client has its own cgroup and user. *One \
             job*: 4 KiB, 32 in flight; *four jobs*: 16 each. *Small beside greedy* (p50, p99, \
             p99.9, from submission to completion): 4 KiB, one at a time, beside six processes of \
             another client with 32 of 64 KiB each. *Shares*: 16 KiB; 1:1 is one process against \
             four, at 1:4 the client of weight 1 has three processes and the other client one, \
             every second of the 8 has two. The *error* is the largest deviation of a client from \
             the due share, in percent of the due share. *Unused* is relative to `none`, for \
             dm-nrs to dm-linear. *CPU* is the time in which any task ran, including fio, as the \
             scheduler measures it; interrupts during idle time are not included.\n\n\
             none, mq-deadline, kyber, dm-linear and nrs-fifo have no weights: their shares are \
             not controlled. io.max and nrs-tbf have caps, computed from the measured capacity (95 \
             % of the capacity, times the due share); a cap cannot be lent: unused capacity is \
             lost. io.cost has a model of the same measurement, vrate fixed at 100 %; io.cost, BFQ \
             and fairshare have weights. nrs-qbm has the same capacity in bytes and minimums in \
             proportion to the weights. nrs-iosched is fairshare as the I/O scheduler of the \
             device. BFQ's `low_latency` is off where shares are judged. The limits are lifted for \
             IOPS and CPU.\n\n";
    for device in devices {
        let [small, middle, large, huge, slots] =
            ["iops_4k", "iops_16k", "iops_64k", "iops_256k", "slots"]
                .map(|name| fact(device, name));
        page += &format!(
            "* `{}`: {}. Measured: {small}, {middle}, {large}, {huge} requests/s of 4, 16, 64, \
             256 KiB. dm-nrs has {slots} slots.\n",
            device.name,
            what(&device.name),
        );
    }
    page += &format!(
        "\nShares are determined by the device only if the CPU was less than {:.0} % busy.",
        BUSY * 100.0
    );
    let mut over: Vec<String> = Vec::new();
    for device in devices {
        for ((name, peer, measure), busy) in &figures.busy {
            if *name == device.name
                && name != "fast"
                && ["equal", "four", "eight", "lone"].contains(&measure.as_str())
                && busy.median > BUSY * 100.0
            {
                over.push(format!("{name}/{peer}/{measure} {:.0} %", busy.median));
            }
        }
    }
    page += &match over.is_empty() {
        true => " It was, on all devices except `fast`.\n".to_string(),
        false => format!(" Exceeded in: {}.\n", over.join(", ")),
    };
    let few: Vec<String> = figures
        .samples
        .iter()
        .filter(|(_, n)| **n < 1000)
        .map(|((device, peer), n)| format!("{device}/{peer} {n}"))
        .collect();
    if !few.is_empty() {
        page += &format!(
            "The p99.9 of fewer than 1000 requests is near the greatest of them: {}.\n",
            few.join(", ")
        );
    }
    page
}

/// Returns all results as JSON; units are in the keys.
pub fn json(devices: &[Device], figures: &Figures, said: &[Sentence]) -> Value {
    let mut all = Map::new();
    for device in devices {
        let mut peers = Map::new();
        for peer in figures.peers(&device.name) {
            let mut values = Map::new();
            for figure in FIGURES {
                if let Some(value) = figures.get(&device.name, peer, figure.key) {
                    values.insert(figure.key.to_string(), json!(value));
                }
            }
            let of = |key: &(String, String, String)| key.0 == device.name && key.1 == peer;
            let busy = figures.busy.iter().filter(|(key, _)| of(key));
            let busy = busy.map(|(key, busy)| (key.2.clone(), json!(busy)));
            let busy: Map<String, Value> = busy.collect();
            values.insert("cpu_busy_percent".to_string(), busy.into());
            let shares = figures.shares.iter().filter(|(key, _)| of(key));
            let shares = shares.map(|(key, shares)| (key.2.clone(), json!(shares)));
            let shares: Map<String, Value> = shares.collect();
            values.insert("shares_by_repeat".to_string(), shares.into());
            let key = (device.name.clone(), peer.to_string());
            values.insert(
                "small_requests".to_string(),
                json!(figures.samples.get(&key)),
            );
            peers.insert(peer.to_string(), values.into());
        }
        all.insert(
            device.name.clone(),
            json!({ "facts": device.facts, "not_possible": device.not, "peers": peers }),
        );
    }
    json!({ "devices": all, "sentences": said })
}

/// Figure, file, title and label of each chart; true for a logarithmic axis.
#[rustfmt::skip]
const PICTURES: [(&str, &str, &str, &str, bool); 7] = [
    ("iops_1", "iops.svg", "4 KiB random reads, one job, 32 in flight", "requests/s", true),
    ("cpu_us_1", "cpu.svg", "CPU per request, fio included (1 µs = 125 instructions)", "µs", false),
    ("p99_ms", "p99.svg", "p99 of a small client beside a greedy one", "ms", true),
    (
        "error_equal_percent",
        "error-1-1.svg",
        "Error of shares, two equal clients",
        "% of the due share",
        false,
    ),
    (
        "error_four_percent",
        "error-1-4.svg",
        "Error of shares, weights 1 and 4",
        "% of the due share",
        false,
    ),
    (
        "error_eight_percent",
        "error-8.svg",
        "Error of shares, eight equal clients",
        "% of the due share",
        false,
    ),
    (
        "unused_lone_percent",
        "unused-one.svg",
        "Unused while one of two clients is active",
        "%",
        false,
    ),
];

/// Writes a chart for each figure in `PICTURES`: peers side by side, a bar for each device.
///
/// # Errors
///
/// A file cannot be written.
pub fn pictures(figures: &Figures, out: &Path) -> io::Result<()> {
    for (key, file, title, label, log) in PICTURES {
        let measured = |peer: &&str| {
            let mut devices = figures.devices.iter();
            devices.any(|device| figures.get(device, peer, key).is_some())
        };
        let peers: Vec<&str> = PEERS.into_iter().filter(measured).collect();
        if peers.is_empty() {
            continue;
        }
        let mut chart = Diagram::bars(title, label).groups(peers.clone());
        if log {
            chart = chart.log_y();
        }
        for device in &figures.devices {
            let value = |peer: &&str| figures.get(device, peer, key).unwrap_or(f64::NAN.into());
            chart = chart.bar::<Spread>(device, peers.iter().map(value).collect());
        }
        chart.save(&out.join(file))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{fixture, words};
    use super::*;

    #[test]
    fn page_and_json() {
        let devices = [fixture::device()];
        let figures = Figures::of(&devices);
        let said = words::sentences(&figures);
        let page = markdown(&devices, &figures, &said, Some(61));
        for want in [
            "| slow   | nrs-fairshare |",
            "not possible",
            "kyber on `slow`: module not available",
            "beats dm-nrs",
            "1 min 1 s",
            "fewer than 1000",
        ] {
            assert!(page.contains(want), "{want}: {page}");
        }
        let json = json(&devices, &figures, &said);
        assert_eq!(
            json["devices"]["slow"]["peers"]["none"]["iops_1"]["median"],
            1000.0
        );
        assert_eq!(
            json["devices"]["slow"]["not_possible"]["kyber"],
            "module not available"
        );
        assert_eq!(
            json["devices"]["slow"]["peers"]["none"]["cpu_busy_percent"]["equal"]["median"],
            25.0
        );
    }

    #[test]
    fn drawn() {
        let out = std::env::temp_dir().join(format!("nrs-report-compare-{}", std::process::id()));
        pictures(&Figures::of(&[fixture::device()]), &out).unwrap();
        let files = std::fs::read_dir(&out).unwrap().count();
        let svg = std::fs::read_to_string(out.join("p99.svg")).unwrap();
        std::fs::remove_dir_all(&out).unwrap();
        assert_eq!(files, 7);
        assert!(svg.contains("<svg") && svg.contains("nrs-fairshare"));
    }
}
