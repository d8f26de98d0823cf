// SPDX-License-Identifier: GPL-2.0-only

//! What has to end before a request may start.

use super::{tree::Extent, RecordId, PREDECESSORS_MAX};
use crate::sched::item::{Direction, Item, Spot};

/// Domains are numbers below this one; higher bits are ignored.
const DOMAINS: u64 = 1 << 62;

/// How a request is related to those before it.
#[derive(Clone, Copy, Debug)]
pub enum Relation {
    /// Not at all.
    Free,
    /// After those that overlap it, where one of the two writes.
    Overlap {
        /// What the range is in; 62 bits.
        domain: u64,
        /// First byte.
        start: u64,
        /// First byte after it.
        end: u64,
        /// Whether it writes.
        writes: bool,
    },
    /// After these, as far as they have not ended.
    After([Option<RecordId>; PREDECESSORS_MAX]),
}

impl Relation {
    /// After those that overlap `spot` in `domain`; what does not read is taken for a write. What has no
    /// length is not related to anything.
    pub const fn overlap(domain: u64, spot: &Spot, direction: Direction) -> Self {
        if spot.length == 0 {
            return Self::Free;
        }
        Self::Overlap {
            domain,
            start: spot.offset,
            end: spot.offset.saturating_add(spot.length),
            writes: !matches!(direction, Direction::Read),
        }
    }

    /// After everything in `domain`: for requests of one stream.
    pub const fn sequence(domain: u64) -> Self {
        Self::Overlap {
            domain,
            start: 0,
            end: u64::MAX,
            writes: true,
        }
    }

    /// Its range, if that is what it is about.
    pub(super) const fn extent(&self) -> Option<Extent> {
        match *self {
            Self::Overlap {
                domain,
                start,
                end,
                writes,
            } if start < end => Some(Extent {
                domain: domain & DOMAINS.wrapping_sub(1),
                start,
                end,
                writes,
            }),
            _ => None,
        }
    }
}

/// What is noted with an item while there is no record for it.
///
/// # Invariants
///
/// As a mark, the domain is in the low 62 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) domain: u64,
    pub(super) high: bool,
    pub(super) forced: bool,
}

impl Note {
    const HIGH: u64 = 1 << 62;
    const FORCED: u64 = 1 << 63;

    /// As a mark.
    pub(super) const fn mark(self) -> u64 {
        let mut mark = self.domain & DOMAINS.wrapping_sub(1);
        if self.high {
            mark |= Self::HIGH;
        }
        if self.forced {
            mark |= Self::FORCED;
        }
        mark
    }

    /// What [`Note::mark`] made.
    pub(super) const fn of_mark(mark: u64) -> Self {
        Self {
            domain: mark & DOMAINS.wrapping_sub(1),
            high: mark & Self::HIGH != 0,
            forced: mark & Self::FORCED != 0,
        }
    }

    /// How `item`, which it was noted with, is related to others.
    pub(super) fn relation<I: Item>(self, item: &I) -> Relation {
        Relation::overlap(self.domain, &item.spot(), item.cost().direction)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_fit_into_marks() {
        for domain in [0, 1, DOMAINS - 1] {
            for (high, forced) in [(false, false), (true, false), (false, true), (true, true)] {
                let note = Note {
                    domain,
                    high,
                    forced,
                };
                assert_eq!(Note::of_mark(note.mark()), note);
            }
        }
    }

    #[test]
    fn extents() {
        let spot = Spot::new(0, 4096, 8192);
        for (direction, writes) in [
            (Direction::Read, false),
            (Direction::Write, true),
            (Direction::Other, true),
        ] {
            let extent = Relation::overlap(u64::MAX, &spot, direction).extent();
            let want = Extent {
                domain: DOMAINS - 1,
                start: 4096,
                end: 12288,
                writes,
            };
            assert_eq!(extent, Some(want));
        }
        for (offset, length, end) in [
            (7, 0, None),
            (u64::MAX, 0, None),
            (u64::MAX - 1, 9, Some(u64::MAX)),
            (u64::MAX, 1, None),
        ] {
            let spot = Spot::new(0, offset, length);
            let extent = Relation::overlap(0, &spot, Direction::Write).extent();
            assert_eq!(extent.map(|extent| extent.end), end, "{offset} {length}");
        }
        assert!(Relation::Free.extent().is_none());
        let whole = Relation::sequence(3).extent().unwrap();
        assert!(whole.conflicts(&whole));
    }
}
