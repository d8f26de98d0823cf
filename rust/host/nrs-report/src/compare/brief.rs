// SPDX-License-Identifier: GPL-2.0-only

//! Short tables for the manual and the README, with the devices side by side in each cell.

use nrs_report::table::Table;

use super::figures::{Figures, FIGURES};
use super::input::PEERS;
use super::words::{list, Sentence};

/// Columns of the table of the manual: key and head.
const MANUAL: [(&str, &str); 6] = [
    ("error_four_percent", "error at 1:4, %"),
    ("error_eight_percent", "error of 8 equal clients, %"),
    ("", "CPU busy then, %"),
    ("p99_ms", "p99 of a small client, ms"),
    ("unused_all_percent", "unused, both clients, %"),
    ("unused_lone_percent", "unused, one client, %"),
];

/// Measure whose busy time of the CPU is shown.
const BUSY_MEASURE: &str = "eight";

/// Columns of the table of the README.
const README: [(&str, &str); 3] = [MANUAL[0], MANUAL[3], MANUAL[5]];

/// Peers of the table of the README.
const SHOWN: [&str; 4] = ["nrs-iosched", "bfq", "io.max", "io.cost"];

/// Returns the name of a peer for readers.
fn title(peer: &str) -> String {
    match peer {
        "bfq" => "BFQ".into(),
        "nrs-iosched" => "nrs scheduler, fairshare".into(),
        _ => match peer.strip_prefix("nrs-") {
            Some(policy) => format!("dm-nrs, {policy}"),
            None => peer.into(),
        },
    }
}

/// Returns the devices whose shares are not shares of the CPU.
fn devices(figures: &Figures) -> Vec<&str> {
    let names = figures.devices.iter().map(String::as_str);
    names.filter(|name| *name != "fast").collect()
}

/// Formats a median with about two significant digits.
fn short(value: f64) -> String {
    match value.abs() {
        0.0..0.05 => "0".into(),
        0.05..10.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// Returns a table of the columns, and of the busy time of the CPU, which has no key.
fn table(figures: &Figures, peers: &[&str], columns: &[(&'static str, &str)]) -> String {
    let devices = devices(figures);
    let heads = columns.iter().map(|(_, head)| *head);
    let first = format!("on {}", devices.join(", "));
    let mut table = Table::new(
        &[first.as_str()]
            .into_iter()
            .chain(heads)
            .collect::<Vec<_>>(),
    );
    for peer in peers {
        let cell = |key: &'static str| {
            let of = |device: &&str| match key {
                "" => figures.busy(device, peer, BUSY_MEASURE),
                _ => figures.get(device, peer, key).map(|value| value.median),
            };
            let values = devices.iter().map(of);
            let texts = values.map(|value| value.map_or("–".into(), short));
            texts.collect::<Vec<_>>().join(", ")
        };
        let cells = columns.iter().map(|(key, _)| cell(key));
        table.row(&[title(peer)].into_iter().chain(cells).collect::<Vec<_>>());
    }
    table.markdown()
}

/// Returns the peers that are better than the best nrs peer, a line per figure.
fn better(said: &[Sentence]) -> String {
    let mut lines = String::new();
    for figure in FIGURES {
        let of_figure = said.iter().filter(|said| said.figure == figure.key);
        let beaten = of_figure.filter(|said| !said.beaten_by.is_empty());
        let peers = beaten.map(|said| {
            let peers: Vec<String> = said.beaten_by.iter().map(|peer| title(peer)).collect();
            format!("{} on `{}`", list(&peers), said.device)
        });
        let peers: Vec<String> = peers.collect();
        if !peers.is_empty() {
            lines += &format!("* {}: {}\n", figure.name, peers.join("; "));
        }
    }
    match lines.is_empty() {
        true => "No peer is clearly better than nrs in any figure.\n".into(),
        false => format!("Peers clearly better than the best of nrs:\n\n{lines}"),
    }
}

/// Returns the text for the page of results.
pub fn manual(figures: &Figures, said: &[Sentence]) -> String {
    let measured = |peer: &&str| {
        let peers = devices(figures)
            .into_iter()
            .map(|device| figures.peers(device));
        peers.flatten().any(|other| other == *peer)
    };
    let peers: Vec<&str> = PEERS.into_iter().filter(measured).collect();
    format!("{}\n{}", table(figures, &peers, &MANUAL), better(said))
}

/// Returns the table for the README.
pub fn readme(figures: &Figures) -> String {
    table(figures, &SHOWN, &README)
}

#[cfg(test)]
mod tests {
    use super::super::{fixture, words};
    use super::*;

    #[test]
    fn tables() {
        let figures = Figures::of(&[fixture::device()]);
        let page = manual(&figures, &words::sentences(&figures));
        assert!(page.contains("| dm-nrs, fairshare |"), "{page}");
        assert!(
            page.contains("* IOPS of one job: none and dm-linear on `slow`"),
            "{page}"
        );
        assert!(readme(&figures).contains("| BFQ "));
    }

    #[test]
    fn digits() {
        let shown = [0.01, 0.06, 9.94, 62.4, -0.5, 255.9].map(short);
        assert_eq!(shown, ["0", "0.1", "9.9", "62", "-0.5", "256"]);
    }
}
