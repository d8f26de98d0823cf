// SPDX-License-Identifier: GPL-2.0-only

//! Sentences from figures: the best peer per figure and device with its margin, and the peers
//! better than nrs.
//!
//! Two figures are *alike* if the ranges of their boots overlap, or if their difference is small.
//! The limit is 2 %, or one point for percentages.

use nrs_report::stat::Spread;
use serde::Serialize;

use super::figures::{Device, Figure, Kind};
use super::input::PEERS;
use super::BUSY;
use crate::{page, Result};

/// Sentence about one figure on one device.
#[derive(Serialize)]
pub struct Sentence {
    device: &'static str,
    /// Key of the figure.
    figure: String,
    /// Peer with the best median, and best of the nrs peers.
    best: &'static str,
    nrs: &'static str,
    /// Peers other than nrs that are clearly better than the best nrs peer.
    beaten_by: Vec<&'static str>,
    text: String,
}

/// Content of the text; a peer is a pair of name and value.
#[derive(Serialize)]
struct Content<'a> {
    device: &'a str,
    figure: &'a Figure,
    best: (&'a str, Spread),
    nrs: (&'a str, Spread),
    is_nrs_best: bool,
    /// Best peer of nrs, if the best one is none of nrs, and the reverse.
    second: Option<(&'a str, Spread)>,
    is_clear: bool,
    beaten_by: &'a [&'a str],
    /// Busy time of the CPU, percent, if the CPU was the bottleneck.
    busy: Option<f64>,
}

/// Returns true if `a` is better than `b`, and they are not alike.
pub fn clearly_better(kind: Kind, a: Spread, b: Spread) -> bool {
    let (low, high) = (a.median.min(b.median), a.median.max(b.median));
    let is_near = match kind {
        Kind::Percent => high - low < 1.0,
        Kind::Rate | Kind::Cost => high - low < 0.02 * high,
    };
    let overlap = a.low <= b.high && b.low <= a.high;
    !is_near && !overlap && (kind == Kind::Rate) == (a.median > b.median)
}

impl Sentence {
    /// Returns the sentence, if the figure was measured with nrs.
    pub fn new(name: &'static str, device: &Device, figure: &Figure) -> Result<Option<Self>> {
        let value = |peer| Some((peer, device.value(peer, figure)?));
        let mut all: Vec<_> = PEERS.into_iter().filter_map(value).collect();
        all.sort_by(|(_, a), (_, b)| match figure.kind {
            Kind::Rate => b.median.total_cmp(&a.median),
            Kind::Cost | Kind::Percent => a.median.total_cmp(&b.median),
        });
        let ours = |peer: &str| peer.starts_with("nrs") || peer.starts_with("dm-");
        let nrs = all.iter().find(|(peer, _)| ours(peer));
        let (Some(best), Some(nrs)) = (all.first(), nrs) else {
            return Ok(None);
        };
        let second = all.iter().find(|(peer, _)| ours(peer) != ours(best.0));
        let clearly = |a: Spread, b: Spread| clearly_better(figure.kind, a, b);
        let beaten_by = all
            .iter()
            .filter(|(peer, value)| !ours(peer) && clearly(*value, nrs.1));
        let beaten_by: Vec<&str> = beaten_by.map(|(peer, _)| *peer).collect();
        let busy = |peer| device.peers[peer].cpu_busy_percent.get(&figure.measure);
        let busy = [best.0, nrs.0].into_iter().filter_map(busy);
        let busy = busy.map(|busy| busy.median).fold(0.0, f64::max);
        let content = Content {
            device: name,
            figure,
            best: *best,
            nrs: *nrs,
            is_nrs_best: ours(best.0),
            second: second.copied(),
            is_clear: second.is_some_and(|second| clearly(best.1, second.1)),
            beaten_by: &beaten_by,
            busy: Some(busy).filter(|busy| figure.kind == Kind::Percent && *busy > BUSY),
        };
        let text = page::render(include_str!("../templates/sentence.md.j2"), content)?;
        Ok(Some(Self {
            device: name,
            figure: figure.key.clone(),
            best: best.0,
            nrs: nrs.0,
            beaten_by,
            text: text.trim_end().to_owned(),
        }))
    }
}
