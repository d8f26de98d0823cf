// SPDX-License-Identifier: GPL-2.0-only

//! A draw over the published ranges (ThemisIO, SC'23, statistical tokens).
//!
//! A number of 32 bits is drawn and found in the table of ranges that the worker published. If the leaf
//! drawn has no request here, or there is no table, the oldest request is served, whoever sent it. So a
//! leaf that comes after the publication waits for the next one or for such a fall-through, and the
//! shares are off as far as draws fall through; that is why this is not the default
//! (Documentation/fairshare.md).

use super::{
    flat::Flat,
    select::{Dice, Nodes},
};

/// Draws a leaf; none if it has no requests: the oldest request is next.
pub(super) fn pick(flat: &Flat, nodes: &impl Nodes, dice: Dice<'_>) -> Option<u32> {
    let draw = dice.rng.next_u32();
    let drawn = dice.table.and_then(|table| table.find(draw))?;
    nodes.find(drawn).filter(|&slot| flat.is_member(slot))
}
