// SPDX-License-Identifier: GPL-2.0-only

//! Tests of the number of batches in a round; `tests/all/robin/model.rs` compares the rest with a
//! model.

use super::*;

/// Verifies that a round accepts a limited number of new batches while it is served, and that later
/// batches are of the next round.
#[test]
fn newcomers() {
    let mut rounds = Rounds::new(TieBreak::Key, 8);
    for round in 0..3 {
        for i in 0..2 * NEWCOMERS {
            let mut batch = Batch::default();
            let tag = rounds.admit(&mut batch, false, 5, 0);
            let late = u64::from(i >= NEWCOMERS + 5);
            assert_eq!(tag.round, round + late, "{i}");
        }
        let tag = BatchTag {
            round: round + 1,
            sequence: 0,
        };
        rounds.leave(tag, None);
    }
}
