// SPDX-License-Identifier: GPL-2.0-only

//! A weighted draw among the leaves that have requests.
//!
//! Shares of requests come out as the published ranges, with the spread of independent draws: of `n` draws a
//! leaf with share `p` gets `n p`, give or take a few times `sqrt(n p (1 - p))`. A draw does not see costs,
//! so shares of cost do not come out if the request sizes of the leaves differ.

use super::flat::Flat;
use crate::sched::rng::Rng;

/// Draws a member; none if there are none.
pub(super) fn pick(flat: &Flat, rng: &mut Rng) -> Option<u32> {
    match flat.total() {
        0 => None,
        total => Some(flat.locate(rng.below(total))),
    }
}
