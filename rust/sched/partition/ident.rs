// SPDX-License-Identifier: GPL-2.0-only

//! Idents of requests, and their places in small tables.

/// All properties of a request on which its class may depend.
pub type Ident = [u64; 5];

/// Number of places; a power of two.
pub(super) const PLACES: usize = 16;

/// Returns the place of an ident. The hash is cheap, because a collision only costs a
/// classification.
pub(super) fn row_of([client, ids, low, high, detail]: &Ident) -> usize {
    let sum = client
        .wrapping_add(*ids)
        .wrapping_add(low.wrapping_mul(3))
        .wrapping_add(high.wrapping_mul(5))
        .wrapping_add(*detail);
    (sum.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60) as usize & (PLACES - 1)
}
