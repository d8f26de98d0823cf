// SPDX-License-Identifier: GPL-2.0-only

//! Ordering constraints of a request.

use super::{tree::Extent, Forced, RecordId, PREDECESSORS_MAX};
use crate::sched::item::{ByteRange, Direction, Item};

/// Number of domains; higher bits are ignored.
const DOMAINS: u64 = 1 << 61;

/// Relation of a request to earlier requests.
#[derive(Clone, Copy, Debug)]
pub enum Relation {
    /// No constraint.
    Free,
    /// After overlapping requests, if one of the two writes.
    Overlap {
        /// Object that contains the range; 61 bits.
        domain: u64,
        /// First byte of the range.
        start: u64,
        /// First byte after the range.
        end: u64,
        /// True if the request writes.
        writes: bool,
    },
    /// After these requests, unless they have ended.
    After([Option<RecordId>; PREDECESSORS_MAX]),
}

impl Relation {
    /// Creates the relation to requests that overlap `range` in `domain`. Every request that does
    /// not read counts as a write. Requests without length are unrelated.
    pub const fn overlap(domain: u64, range: &ByteRange, direction: Direction) -> Self {
        if range.length == 0 {
            return Self::Free;
        }
        Self::Overlap {
            domain,
            start: range.offset,
            end: range.offset.saturating_add(range.length),
            writes: !matches!(direction, Direction::Read),
        }
    }

    /// Creates the relation to all requests in `domain`, for requests of one stream.
    pub const fn sequence(domain: u64) -> Self {
        Self::Overlap {
            domain,
            start: 0,
            end: u64::MAX,
            writes: true,
        }
    }

    /// Returns the extent of an `Overlap` that is not empty.
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

/// Data stored in the mark of an item that has no record.
///
/// # Invariants
///
/// In a mark, the low 61 bits are the domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OverflowMark {
    pub(super) domain: u64,
    pub(super) high: bool,
    pub(super) forced: Forced,
}

impl OverflowMark {
    const HIGH: u64 = 1 << 61;
    const IN_TURN: u64 = 1 << 62;
    const AT_ONCE: u64 = 1 << 63;

    /// Encodes the data as a mark.
    pub(super) const fn mark(self) -> u64 {
        let mut mark = self.domain & DOMAINS.wrapping_sub(1);
        if self.high {
            mark |= Self::HIGH;
        }
        mark | match self.forced {
            Forced::No => 0,
            Forced::InTurn => Self::IN_TURN,
            Forced::AtOnce => Self::AT_ONCE,
        }
    }

    /// Decodes a mark from [`OverflowMark::mark`].
    pub(super) const fn of_mark(mark: u64) -> Self {
        Self {
            domain: mark & DOMAINS.wrapping_sub(1),
            high: mark & Self::HIGH != 0,
            forced: match mark {
                _ if mark & Self::AT_ONCE != 0 => Forced::AtOnce,
                _ if mark & Self::IN_TURN != 0 => Forced::InTurn,
                _ => Forced::No,
            },
        }
    }

    /// Returns the relation of `item`, whose mark the data was.
    pub(super) fn relation<I: Item>(self, item: &I) -> Relation {
        Relation::overlap(self.domain, &item.byte_range(), item.cost().direction)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_fit_into_marks() {
        for domain in [0, 1, DOMAINS - 1] {
            for forced in [Forced::No, Forced::InTurn, Forced::AtOnce] {
                for high in [false, true] {
                    let note = OverflowMark {
                        domain,
                        high,
                        forced,
                    };
                    assert_eq!(OverflowMark::of_mark(note.mark()), note);
                }
            }
        }
    }

    #[test]
    fn extents() {
        let range = ByteRange::new(0, 4096, 8192);
        for (direction, writes) in [
            (Direction::Read, false),
            (Direction::Write, true),
            (Direction::Other, true),
        ] {
            let extent = Relation::overlap(u64::MAX, &range, direction).extent();
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
            let range = ByteRange::new(0, offset, length);
            let extent = Relation::overlap(0, &range, Direction::Write).extent();
            assert_eq!(extent.map(|extent| extent.end), end, "{offset} {length}");
        }
        assert!(Relation::Free.extent().is_none());
        let whole = Relation::sequence(3).extent().unwrap();
        assert!(whole.conflicts(&whole));
    }
}
