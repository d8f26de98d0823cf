// SPDX-License-Identifier: GPL-2.0-only

//! What a round takes in; the rest is held against a model (`tests/all/robin/model.rs`).

use super::*;

/// The round that is served takes in so many new batches; what comes later is of the next one.
#[test]
fn newcomers() {
    let mut rounds = Rounds::new(Ties::Key, 8);
    for round in 0..3 {
        for i in 0..2 * NEWCOMERS {
            let mut batch = Batch::default();
            let tag = rounds.admit(&mut batch, false, 5, 0);
            let late = u64::from(i >= NEWCOMERS + 5);
            assert_eq!(tag.round, round + late, "{i}");
        }
        let tag = Tag {
            round: round + 1,
            sequence: 0,
        };
        rounds.leave(tag, None);
    }
}
