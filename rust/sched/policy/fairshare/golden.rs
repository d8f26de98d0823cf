// SPDX-License-Identifier: GPL-2.0-only

//! A draw among the leaves that have requests by steps of the golden ratio, gated by what they are owed.
//!
//! Multiples of the golden ratio modulo 1 fill the interval more evenly than random numbers do (Weyl, 1916;
//! Knuth, "The Art of Computer Programming", volume 3, section 6.4). They do not see costs: so a leaf that has
//! had more than its share is passed over and the next number is taken, up to [`TRIES`] times; then the one of
//! those drawn that is furthest behind is served. Shares of cost come out, with a larger spread than by
//! deadlines (Documentation/fairshare.md).

use super::flat::Flat;

/// The golden ratio's fraction of 2^64, made odd.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Numbers drawn for one choice, at most.
const TRIES: u32 = 8;

/// Draws a member; none if there are none. `last` is the number drawn last.
pub(super) fn pick(flat: &Flat, last: &mut u64) -> Option<u32> {
    let total = match flat.total() {
        0 => return None,
        total => u128::from(total),
    };
    let mut best: Option<(i64, u32)> = None;
    for _ in 0..TRIES {
        *last = last.wrapping_add(STEP);
        let point = u128::from(*last).wrapping_mul(total) >> 64;
        let drawn = flat.locate(point as u64);
        let lag = flat.lag_of(drawn);
        if lag >= 0 {
            return Some(drawn);
        }
        if best.is_none_or(|(other, _)| lag > other) {
            best = Some((lag, drawn));
        }
    }
    best.map(|(_, slot)| slot)
}
