// SPDX-License-Identifier: GPL-2.0-only

//! Sentences from figures: the best peer per figure and device with its margin, and the peers
//! better than dm-nrs.
//!
//! Two figures are *alike* if the ranges of their repeats overlap, or if their difference is small.
//! The limit is 2 %, or one point for percentages.

use nrs_report::stat::Spread;
use serde::Serialize;

use super::figures::{Figure, Figures, Kind, BUSY, FIGURES};

/// Sentence about one figure on one device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sentence {
    /// Name of the device.
    pub device: String,
    /// Key of the figure.
    pub figure: &'static str,
    /// Peer with the best median.
    pub best: String,
    /// Best of the nrs peers.
    pub nrs: String,
    /// Peers other than nrs that are clearly better than the best nrs peer.
    pub beaten_by: Vec<String>,
    /// Text of the sentence.
    pub text: String,
}

/// Returns true if `a` is better than `b`, by median.
fn better(kind: Kind, a: f64, b: f64) -> bool {
    match kind {
        Kind::Rate => a > b,
        Kind::Cost | Kind::Percent => a < b,
    }
}

/// Returns true if the figures differ so little that neither is better.
fn alike(kind: Kind, a: Spread, b: Spread) -> bool {
    let near = match kind {
        Kind::Percent => (a.median - b.median).abs() < 1.0,
        Kind::Rate | Kind::Cost => (a.median - b.median).abs() < 0.02 * a.median.max(b.median),
    };
    near || (a.low <= b.high && b.low <= a.high)
}

/// Formats a figure with its unit.
fn shown(figure: &Figure, value: f64) -> String {
    format!("{value:.*}{}", figure.places, figure.unit)
}

/// Describes the difference of `b` from `a`, in words that precede "than a".
fn gap(figure: &Figure, a: f64, b: f64) -> String {
    let word = if b > a { "more" } else { "less" };
    let (low, high) = (a.min(b), a.max(b));
    match figure.kind {
        Kind::Percent => format!("{:.1} points {word}", high - low),
        Kind::Rate | Kind::Cost if high >= 2.0 * low && b > a => {
            format!("{:.1} times as much", b / a)
        }
        Kind::Rate | Kind::Cost => format!("{:.0} % {word}", (b / a - 1.0).abs() * 100.0),
    }
}

/// Formats a list as `a, b and c`.
pub fn list(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [all @ .., last] => format!("{} and {last}", all.join(", ")),
    }
}

fn sentence(figures: &Figures, device: &str, figure: &Figure) -> Option<Sentence> {
    let mut all: Vec<(&str, Spread)> = figures
        .peers(device)
        .into_iter()
        .filter_map(|peer| Some((peer, figures.get(device, peer, figure.key)?)))
        .collect();
    all.sort_by(|a, b| {
        let order = a.1.median.total_cmp(&b.1.median);
        if figure.kind == Kind::Rate {
            order.reverse()
        } else {
            order
        }
    });
    let best = *all.first()?;
    let ours = |peer: &str| peer.starts_with("nrs-");
    let nrs = *all.iter().find(|(peer, _)| ours(peer))?;
    let clearly =
        |a: Spread, b: Spread| better(figure.kind, a.median, b.median) && !alike(figure.kind, a, b);
    let beaten_by: Vec<String> = all
        .iter()
        .filter(|(peer, value)| !ours(peer) && clearly(*value, nrs.1))
        .map(|(peer, _)| (*peer).to_string())
        .collect();
    let mut text = format!(
        "`{device}`, {}: {} is best with {}",
        figure.name,
        best.0,
        shown(figure, best.1.median)
    );
    let second = all.iter().find(|(peer, _)| ours(peer) != ours(best.0));
    if ours(best.0) {
        if let Some((peer, value)) = second {
            let how = if alike(figure.kind, best.1, *value) {
                "no clear difference to".to_string()
            } else {
                format!("{} than", gap(figure, value.median, best.1.median))
            };
            text += &format!(
                ", {how} {peer}, the best of the others ({})",
                shown(figure, value.median)
            );
        }
    } else if !beaten_by.iter().any(|peer| peer == best.0) {
        text += &format!(
            ", no clear difference to {} ({})",
            nrs.0,
            shown(figure, nrs.1.median)
        );
    } else {
        text += &format!(
            "; **{} beats dm-nrs**, whose best is {} with {}, {}",
            best.0,
            nrs.0,
            shown(figure, nrs.1.median),
            gap(figure, best.1.median, nrs.1.median)
        );
        let more: Vec<String> = beaten_by
            .iter()
            .filter(|peer| *peer != best.0)
            .cloned()
            .collect();
        if !more.is_empty() {
            let verb = if more.len() == 1 { "is" } else { "are" };
            text += &format!("; {} {verb} better than that, too", list(&more));
        }
    }
    let busy = [best.0, nrs.0]
        .iter()
        .filter_map(|peer| figures.busy(device, peer, figure.measure))
        .fold(0.0, f64::max);
    if figure.kind == Kind::Percent && busy > BUSY * 100.0 {
        text += &format!(" (the CPU was {busy:.0} % busy, so it was shared, not the device)");
    }
    Some(Sentence {
        device: device.to_string(),
        figure: figure.key,
        best: best.0.to_string(),
        nrs: nrs.0.to_string(),
        beaten_by,
        text: text + ".",
    })
}

/// Returns a sentence for each device and figure that was measured with nrs.
pub fn sentences(figures: &Figures) -> Vec<Sentence> {
    figures
        .devices
        .iter()
        .flat_map(|device| FIGURES.iter().map(move |figure| (device, figure)))
        .filter_map(|(device, figure)| sentence(figures, device, figure))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;

    fn find(key: &str) -> Sentence {
        let all = sentences(&Figures::of(&[fixture::device()]));
        all.into_iter()
            .find(|sentence| sentence.figure == key)
            .unwrap()
    }

    #[test]
    fn a_peer_wins() {
        let said = find("iops_1");
        assert_eq!(
            (said.best.as_str(), said.nrs.as_str()),
            ("none", "nrs-fairshare")
        );
        assert_eq!(said.beaten_by, ["none", "dm-linear"]);
        assert_eq!(
            said.text,
            "`slow`, IOPS of one job: none is best with 1000/s; **none beats dm-nrs**, whose best \
             is nrs-fairshare with 800/s, 20 % less; dm-linear is better than that, too."
        );
    }

    #[test]
    fn nrs_wins() {
        let said = find("error_four_percent");
        assert_eq!(
            (said.best.as_str(), said.beaten_by.len()),
            ("nrs-fairshare", 0)
        );
        assert_eq!(
            said.text,
            "`slow`, error of shares at 1:4: nrs-fairshare is best with 0.0 %, 275.0 points less \
             than none, the best of the others (275.0 %)."
        );
    }

    #[test]
    fn no_clear_winner() {
        let said = find("p99_ms");
        assert!(said.beaten_by.is_empty());
        assert!(said.text.contains("no clear difference"), "{}", said.text);
    }

    #[test]
    fn alikeness() {
        for (kind, a, b, want) in [
            (Kind::Rate, [100.0; 3], [101.0; 3], true),
            (Kind::Rate, [100.0; 3], [110.0; 3], false),
            (
                Kind::Cost,
                [90.0, 100.0, 120.0],
                [105.0, 110.0, 115.0],
                true,
            ),
            (Kind::Percent, [0.1; 3], [0.9; 3], true),
            (Kind::Percent, [0.0; 3], [3.0; 3], false),
        ] {
            let [a, b] = [a, b].map(|[low, median, high]| Spread { low, median, high });
            assert_eq!(alike(kind, a, b), want, "{a:?} {b:?}");
        }
        assert_eq!(list(&["a".into(), "b".into(), "c".into()]), "a, b and c");
    }
}
