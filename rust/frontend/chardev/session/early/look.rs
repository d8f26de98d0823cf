// SPDX-License-Identifier: GPL-2.0-only

//! What becomes of deadlines when it is time, or when the server says that it is busy.

use super::{between, now, Found, Husks, Place, Watch, WatchNode};
use crate::{
    frontend::chardev::{session::table::Inner, wire},
    sched::{
        timeouts::{
            early::{self, Answer, Refusal, Stated},
            terms::{AtCountPolicyDelay, Mode, Terms},
        },
        units::NSEC_PER_MSEC,
    },
    sys::misc,
};

impl Inner {
    /// Looks at what is due, as many watches as `husks` has room for, and has the rest looked at when that is due.
    pub(super) fn look(&mut self, terms: &Terms, husks: &mut Husks) -> Found {
        let mut found = Found::default();
        let now = now();
        // INVARIANT: It has come, so it is armed for nothing.
        self.deadlines.armed = u64::MAX;
        found.readable = self.deadlines.window.close(now);
        let recovery = self.deadlines.window.extra(terms, now);
        for husk in husks.iter_mut() {
            if let Some((watch, node)) = self.unread(now) {
                found.late = found.late.wrapping_add(1);
                self.expire(&watch, &mut found);
                *husk = Some(node);
                continue;
            }
            let Some((number, watch, node)) = self.due(now) else {
                break;
            };
            let kept = self.kept(&watch);
            match answer(terms, &watch, now, kept.unwrap_or(0), recovery) {
                Answer::Grant { deadline, feed } => {
                    // What waits may be withheld, unless that counts anyway.
                    let counted = terms.count_policy_delay == AtCountPolicyDelay::On;
                    if counted || kept.is_some() {
                        found.feed = found.feed.max(feed);
                    }
                    let granted = Watch {
                        granted: deadline,
                        ..watch
                    };
                    let place = Place::Told(watch.stated.deadline);
                    found.readable |= self.move_watch(node, place, number, granted);
                }
                Answer::Refuse(why) if watch.stated.deadline <= now => {
                    if matches!(why, Refusal::Late) && !watch.last {
                        found.late = found.late.wrapping_add(1);
                    }
                    self.expire(&watch, &mut found);
                    *husk = Some(node);
                }
                Answer::Refuse(_) => {
                    found.refused = found.refused.wrapping_add(1);
                    let last = Watch {
                        last: true,
                        ..watch
                    };
                    self.move_watch(node, Place::Waiting(watch.stated.deadline), number, last);
                }
            }
        }
        let next = self.deadlines.next();
        if next < u64::MAX {
            self.deadlines.look_at(next);
        }
        found
    }

    /// Takes out the early reply whose deadline passed first, if that has passed at `now`.
    fn unread(&mut self, now: u64) -> Option<(Watch, WatchNode)> {
        let (deadline, number) = *self.deadlines.told.cursor_front()?.current().0;
        if deadline > now {
            return None;
        }
        self.deadlines.remove(Place::Told(deadline), number)
    }

    /// Takes out the watch that is to be looked at first, if that is due at `now`; also returns its number.
    fn due(&mut self, now: u64) -> Option<(u64, Watch, WatchNode)> {
        let (look, number) = *self.deadlines.waiting.cursor_front()?.current().0;
        if look > now {
            return None;
        }
        let (watch, node) = self.deadlines.remove(Place::Waiting(look), number)?;
        Some((number, watch, node))
    }

    /// For how long a policy kept a request on purpose, ms; `None`: it is not released, so nobody knows.
    fn kept(&self, watch: &Watch) -> Option<u32> {
        let released = [&self.released, &self.late];
        let entry = released
            .into_iter()
            .find_map(|tree| tree.get(&watch.cookie));
        entry.map(|entry| entry.withheld)
    }

    /// Moves the deadline of a request that the server itself says takes until `until`. `None`: it was not read,
    /// or is completed.
    pub(super) fn busy(&mut self, cookie: &u64, until: u64, terms: &Terms) -> Option<Moved> {
        let now = now();
        let entry = self.released_mut(cookie).filter(|entry| entry.read)?;
        let lasts = u64::from(between(now, until)).saturating_mul(NSEC_PER_MSEC);
        entry.since = entry.since.max(misc::now().saturating_add(lasts));
        let (place, number) = (entry.place, entry.number);
        let Some(watch) = self.deadlines.get(place, number).copied() else {
            return Some(Moved::Lease);
        };
        let stated = watch.stated;
        let limit = early::limit(terms, &stated);
        let granted = until.min(limit).max(watch.granted);
        if stated.deadline <= now || granted <= stated.deadline || terms.mode() != Mode::Adaptive {
            return Some(Moved::Refused);
        }
        let (watch, node) = self.deadlines.remove(place, number)?;
        let told = Watch {
            granted,
            busy: until.max(watch.busy),
            flags: watch.flags | wire::EARLY_BUSY,
            last: false,
            ..watch
        };
        let first = self.move_watch(node, Place::Told(stated.deadline), number, told);
        Some(Moved::Deadline { first })
    }
}

/// What became of a server's word that it is busy.
pub(super) enum Moved {
    /// Only its lease moved: it has no deadline.
    Lease,
    /// Its deadline could not be moved.
    Refused,
    /// Its client is to be told; whether that is the first thing to be read.
    Deadline { first: bool },
}

/// What is said of a request whose margin is reached at `now`, and that a policy kept for `withheld` ms; `recovery`: what is
/// granted meanwhile, ms.
fn answer(terms: &Terms, watch: &Watch, now: u64, withheld: u32, recovery: Option<u32>) -> Answer {
    let stated = &watch.stated;
    if stated.deadline <= now {
        return Answer::Refuse(Refusal::Late);
    }
    if watch.last || terms.mode() != Mode::Adaptive {
        return Answer::Refuse(Refusal::Limit);
    }
    let stated = &Stated {
        arrival: stated.arrival.saturating_add(withheld.into()),
        ..*stated
    };
    let answer = match recovery {
        Some(extra) => early::in_recovery(stated, now, extra),
        None => {
            let busy = Some(watch.busy).filter(|busy| *busy != 0);
            early::at_margin(terms, stated, now, true, busy)
        }
    };
    let limit = early::limit(terms, stated);
    match answer {
        Answer::Grant { deadline, feed } if deadline.min(limit) > stated.deadline => {
            let deadline = deadline.min(limit);
            Answer::Grant { deadline, feed }
        }
        Answer::Grant { .. } => Answer::Refuse(Refusal::Limit),
        answer => answer,
    }
}
