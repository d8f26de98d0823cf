// SPDX-License-Identifier: GPL-2.0-only

//! `nrs_policies`: the policies of each head, summed over the partitions.

use super::{of_head, HeadAccess, Primaries, ServiceHead, ServiceParts};
use crate::sched::{
    count::Count,
    error::Result,
    item::Item,
    mem::GrowingList,
    policy::{control::ByHead, Config, Kind, Part, COUNTS_MAX},
    report::Report,
    text::{self, PolicyRow, PolicyState},
};
use core::fmt::Write;

/// A policy of one head, summed over the partitions.
#[derive(Clone, Copy)]
struct PolicySum {
    kind: Kind,
    state: PolicyState,
    queued: u64,
    active: u64,
    counts: [u64; COUNTS_MAX],
}

/// The policies of one head, in the order of [`Kind::ALL`]; too large for the stack.
type HeadSums = GrowingList<PolicySum>;

impl PolicySum {
    const fn of(kind: Kind) -> Self {
        Self {
            kind,
            state: PolicyState::Stopped,
            queued: 0,
            active: 0,
            counts: [0; COUNTS_MAX],
        }
    }
}

fn add<I: Item>(sums: &mut HeadSums, head: &ServiceHead<I>) {
    for status in head.instances() {
        let mut all = sums.as_mut_slice().iter_mut();
        let Some(sum) = all.find(|sum| sum.kind == status.tag.kind()) else {
            bug!();
            continue;
        };
        // A policy that restarts while its previous instance stops counts as started.
        if sum.state != PolicyState::Started {
            sum.state = status.state;
        }
        sum.queued.count(status.queued.into());
        sum.active.count(status.active.into());
        status.part.add_counts(&mut sum.counts);
    }
}

/// Returns the rows for one head, whose primary was started with `primary`.
fn rows<'a>(
    sums: &'a HeadSums,
    primary: &'a Option<Config>,
) -> impl Iterator<Item = PolicyRow<'a>> {
    sums.as_slice().iter().map(|sum| PolicyRow {
        name: sum.kind.name(),
        argument: primary
            .as_ref()
            .filter(|config| config.kind() == sum.kind)
            .and_then(Config::argument),
        state: sum.state,
        fallback: sum.kind == Kind::FALLBACK,
        queued: sum.queued,
        active: sum.active,
        stats: sum.kind.counts(),
        counts: &sum.counts,
    })
}

/// Returns the policies of both heads.
fn sums(host: &impl ServiceParts) -> Result<ByHead<HeadSums>> {
    let stopped = || -> Result<HeadSums> {
        let mut sums = GrowingList::with_capacity(Kind::ALL.len())?;
        for kind in Kind::ALL {
            sums.push(PolicySum::of(*kind))?;
        }
        Ok(sums)
    };
    let mut sums: ByHead<HeadSums> = [stopped()?, stopped()?];
    for head in host.heads() {
        let sums = of_head(&mut sums, head.priority());
        head.with(|head| add(sums, head));
    }
    Ok(sums)
}

/// Writes `nrs_policies` for heads that were started with `primaries`.
///
/// # Errors
///
/// `ENOSPC`: `out` is full. `ENOMEM`.
pub fn write_policies(
    host: &impl ServiceParts,
    primaries: &Primaries,
    out: &mut dyn Write,
) -> Result {
    let [regular, high] = &sums(host)?;
    let [regular_config, high_config] = primaries;
    Ok(text::write_policies(
        &mut &mut *out,
        rows(regular, regular_config),
        rows(high, high_config),
    )?)
}

/// Reports `nrs_policies`: a list of heads, regular first, each with the list of its policies.
///
/// # Errors
///
/// `ENOSPC`: `report` is full. `ENOMEM`.
pub fn report_policies(
    host: &impl ServiceParts,
    primaries: &Primaries,
    report: &mut Report<'_>,
) -> Result {
    let sums = sums(host)?;
    let heads = sums.iter().zip(primaries).zip(["regular", "high"]);
    Ok(report.list(|list| {
        for ((sums, primary), name) in heads {
            list.entry(|head| {
                head.word("name", name)?;
                head.entries("policies", |list| {
                    rows(sums, primary).try_for_each(|row| row.report(list))
                })
            })?;
        }
        Ok(())
    })?)
}
