// SPDX-License-Identifier: GPL-2.0-only

//! Periodic work of a service on its heads: memory, ageing, removal of stopped policies, shares.
//!
//! # Context
//!
//! All functions may sleep. Each takes the lock of a partition for at most [`ROWS`] classes at a
//! time.

use super::{change::reap, HeadAccess, ServiceHead, ServiceParts};
use crate::sched::{
    attr::Priority,
    mem::{Need, NoMemory},
    policy::{control::refresh_stale, AnyPart, Part, ROWS},
    ranges::{NodeReport, NodeReports, RangeBuilder},
};

/// Maximum number of ageing steps for a part in one run, of [`ROWS`] classes each.
const AGE_ROUNDS: u32 = 64;

/// Allocates the memory that the part of `head` selected by `find` needs, if the part exists. The
/// submitter is not charged: a cgroup without free memory must not delay requests.
///
/// # Errors
///
/// `ENOMEM`.
#[cold]
#[inline(never)]
pub fn feed<A: HeadAccess>(
    head: &A,
    find: impl Fn(&mut ServiceHead<A::Item>) -> Option<&mut AnyPart<A::Item>>,
) -> Result<(), NoMemory> {
    let need = head.with(|head| find(head).map(|part| part.need()));
    let Some(need) = need.filter(|need| !need.is_empty()) else {
        return Ok(());
    };
    let spare = need.take(false)?;
    let left = head.with(|head| match find(head) {
        Some(part) => part.grow(spare),
        None => spare,
    });
    // Dropped without the lock.
    drop(left);
    Ok(())
}

/// Removes stopped instances, evicts idle classes, and allocates the memory that parts need.
///
/// # Errors
///
/// `ENOMEM`: all heads have been maintained as far as memory permits.
pub fn maintain(host: &impl ServiceParts) -> Result<(), NoMemory> {
    let mut done = Ok(());
    for head in host.heads() {
        reap(&head);
        for id in head.with(|head| head.ids()).into_iter().flatten() {
            let now = host.now();
            for _ in 0..AGE_ROUNDS {
                let more = head.with(|head| Some(head.part_mut(id)?.age(now, ROWS as u32)));
                if more != Some(true) {
                    break;
                }
            }
            // Lack of memory for one part does not stop the maintenance of the others.
            done = done.and(feed(&head, |head| head.part_mut(id)));
        }
    }
    done
}

/// Refreshes all classes that depend on counters or on time. A target without users may get a user
/// at any time, so its parts are refreshed, too.
pub fn refresh(host: &impl ServiceParts) {
    for head in host.heads() {
        refresh_stale(&head, host.now());
    }
}

/// Adds the competitors that the primaries of the `heads` of `priority` report at `now`, ns, to
/// `builder`. Returns true if any primary reads published shares.
///
/// # Errors
///
/// `ENOMEM`.
pub fn gather(
    heads: impl Iterator<Item = impl HeadAccess>,
    builder: &mut RangeBuilder,
    priority: Priority,
    now: impl Fn() -> u64,
) -> Result<bool, NoMemory> {
    let mut wants_table = false;
    let mut buf = NodeReports::new()?;
    for head in heads.filter(|head| head.priority() == priority) {
        let part = head.cpt();
        let mut from = Some(0);
        while let Some(idx) = from {
            buf.clear();
            from = head.with(|head| {
                let primary = head.primary_mut()?;
                wants_table |= primary.wants_table();
                primary.node_reports(idx, now(), &mut buf)
            });
            for report in buf.as_slice() {
                builder.extend(&[NodeReport { part, ..*report }])?;
            }
        }
    }
    Ok(wants_table)
}
