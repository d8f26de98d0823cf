// SPDX-License-Identifier: GPL-2.0-only

//! A draw over the published ranges (ThemisIO, SC'23, statistical tokens).
//!
//! A number of 32 bits is drawn and found in the table of ranges that the worker published. If the leaf
//! drawn has no request here, or there is no table, the oldest request is served, whoever sent it. So a
//! leaf that comes after the publication waits for the next one or for such a fall-through, and the
//! shares are off as far as draws fall through; that is why this is not the default
//! (Documentation/fairshare.md).
//!
//! Every active leaf has a range of at least one number ([`crate::sched::ranges`]), so no leaf starves.
//! A draw does not see costs and remembers nothing: no leaf has a lag.

use super::select::{Dice, Nodes};

/// Draws a leaf; none if the leaf has no requests: the oldest request is next.
pub(super) fn pick(nodes: &impl Nodes, dice: Dice<'_>) -> Option<u32> {
    let draw = dice.rng.next_u32();
    let drawn = dice.table.and_then(|table| table.find(draw))?;
    let slot = nodes.find(drawn)?;
    nodes.arrival(slot).map(|_| slot)
}
