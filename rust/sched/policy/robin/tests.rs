// SPDX-License-Identifier: GPL-2.0-only

//! When batches begin, resume and end.

use super::*;

/// One class, alone with its rounds.
struct One {
    rounds: Rounds,
    batch: Batch,
}

impl One {
    fn new(ties: Ties, quantum: u32) -> Self {
        Self {
            rounds: Rounds::new(ties, quantum),
            batch: Batch::default(),
        }
    }

    /// The round of a request that comes at `now` and finds `queued` others of its class.
    fn come(&mut self, queued: u32, now: u64) -> u64 {
        let tag = self.rounds.admit(&mut self.batch, queued > 0, 1, now);
        tag.round
    }

    /// Somebody else's request of `round` is served.
    fn other(&mut self, round: u64) {
        let next = Turn { round, tie: [0; 2] };
        self.rounds.leave(Tag { round, sequence: 0 }, Some(&next));
    }
}

#[test]
fn a_batch_has_a_quantum() {
    for ties in [Ties::Sequence, Ties::Key] {
        let mut one = One::new(ties, 3);
        let rounds: Vec<u64> = (0..8).map(|queued| one.come(queued, 0)).collect();
        assert_eq!(rounds, [0, 0, 0, 1, 1, 1, 2, 2]);
        // A change is for the next batch.
        assert_eq!(one.rounds.set_quantum(1), 3);
        let rounds: Vec<u64> = (0..3).map(|_| one.come(9, 0)).collect();
        assert_eq!(rounds, [2, 3, 4]);
    }
}

/// What comes after the class was dry, by how long, and by how many others were served meanwhile.
#[test]
fn dry() {
    for (ties, quantum, pause, others, round) in [
        (Ties::Sequence, 256, 0, 0, 1),
        (Ties::Key, 256, 0, 0, 0),
        (Ties::Key, 256, PAUSE_NS, 0, 0),
        (Ties::Key, 256, PAUSE_NS + 1, 0, 1),
        (Ties::Key, 256, 5, 1, 0),
        // Of so small a quantum no batch goes on after others.
        (Ties::Key, BREAK - 1, 5, 1, 1),
        (Ties::Key, BREAK - 1, 5, 0, 0),
        (Ties::Key, BREAK, 5, 1, 0),
    ] {
        let mut one = One::new(ties, quantum);
        assert_eq!(one.come(0, 7), 0);
        one.rounds.dry(&mut one.batch, 7);
        (0..others).for_each(|_| one.other(0));
        let got = one.come(0, 7 + pause);
        assert_eq!(got, round, "{ties:?} {quantum} {pause} {others}");
    }
}

/// A class that is dry again and again loses its batches, until it fills one.
#[test]
fn fickle() {
    let mut one = One::new(Ties::Key, 2 * BREAK);
    let mut round = |queued| {
        let round = one.come(queued, 0);
        one.rounds.dry(&mut one.batch, 0);
        one.other(0);
        round
    };
    assert_eq!([0; 5].map(&mut round), [0, 0, 0, 1, 2]);
    // It fills the rest of its batch, and then one more.
    let filled: Vec<u64> = (0..2 * BREAK).map(|i| round(i + 1)).collect();
    assert_eq!((filled[0], filled[2 * BREAK as usize - 1]), (2, 3));
    assert_eq!([0; 4].map(&mut round), [3, 3, 4, 5]);
}

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
