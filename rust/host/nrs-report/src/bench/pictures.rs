// SPDX-License-Identifier: GPL-2.0-only

//! The report's pictures.

use std::{io, path::Path};

use nrs_report::chart::{Bars, Lines};

use super::{anchors::ANCHORS, measured::Measured};

/// Lines of decisions of some policies.
fn decisions(measured: &Measured, title: &str, policies: &[&str]) -> Lines {
    let lines = Lines::new(title, "classes", "ns per decision")
        .log_x()
        .log_y();
    let busy = measured.busy();
    policies.iter().fold(lines, |lines, policy| {
        let points = measured.series("decision", policy);
        let each = points
            .iter()
            .map(|(count, one)| (f64::from(*count), one.figure(busy)));
        let lines = lines.series(policy, each.collect());
        if busy {
            return lines;
        }
        let bands = points
            .iter()
            .map(|(count, one)| (f64::from(*count), one.ns.low, one.ns.high));
        lines.band(policy, bands.collect())
    })
}

/// Writes all pictures that there is something for to `dir`.
///
/// # Errors
///
/// They cannot be written.
pub fn save(measured: &Measured, dir: &Path) -> io::Result<()> {
    if measured.timings.iter().any(|one| one.group == "decision") {
        let policies = [
            "fifo",
            "crrn",
            "orr",
            "trr",
            "delay",
            "tbf",
            "qbm",
            "fairshare",
        ];
        decisions(measured, "A decision, by policy", &policies).save(&dir.join("decisions.svg"))?;
        let fair = ["fairshare", "fairshare2", "fairshare3", "paper"];
        decisions(
            measured,
            "A decision of fairshare, by levels and selection",
            &fair,
        )
        .save(&dir.join("fairshare.svg"))?;
        let mut both = decisions(
            measured,
            "A decision, beside others",
            &["fairshare", "tbf", "qbm"],
        );
        for anchor in ANCHORS {
            let points = anchor.spreads().map(|(count, ns)| (f64::from(count), ns));
            let middle = points
                .clone()
                .map(|(count, ns)| (count, ns.median))
                .collect();
            let band = points.map(|(count, ns)| (count, ns.low, ns.high)).collect();
            both = both.series(anchor.name, middle).band(anchor.name, band);
        }
        both.save(&dir.join("anchors.svg"))?;
    }
    let memory: Vec<_> = measured
        .memory
        .iter()
        .filter(|one| one.classes == 16_384)
        .collect();
    if !memory.is_empty() {
        let names = memory.iter().map(|one| one.policy.clone()).collect();
        let per_class = memory.iter().map(|one| one.per_class());
        let per_request = memory.iter().map(|one| one.per_request());
        Bars::new("Memory with 16,384 classes", "bytes")
            .groups(names)
            .series("per class", per_class.collect())
            .series("per queued request", per_request.collect())
            .save(&dir.join("memory.svg"))?;
    }
    Ok(())
}
