// SPDX-License-Identifier: GPL-2.0-only

//! A partition with its device, and what happens to it: the first bytes are its policy, slots and
//! records, each one after them an operation, with its operands behind it. The partition is that of
//! the kernel.

use nrs_sched::{
    arena::Request,
    item::{Direction, Spot},
    order::{Relation, PREDECESSORS_MAX},
    server::{Relate, Server},
};
use std::collections::HashSet;

use crate::{
    bytes::Bytes,
    part::{config, who},
};

/// Operations, at most.
const OPERATIONS: usize = 600;

/// A partition, and the requests that should be in it.
struct Model {
    server: Server,
    started: HashSet<u64>,
    running: Vec<u64>,
    next: u64,
    ended: usize,
    refused: usize,
}

impl Model {
    /// Looks at what has started.
    fn watch(&mut self) {
        for id in std::mem::take(&mut self.server.started) {
            assert!(self.started.insert(id), "{id} starts twice");
            self.running.push(id);
        }
        let gone = self.ended + self.refused;
        assert_eq!(self.server.len() + gone, self.next as usize, "one is lost");
    }

    /// A request comes.
    fn arrive(&mut self, kind: u8, bytes: &mut Bytes<'_>) {
        let (owner, block, blocks) = (bytes.byte(), bytes.byte() % 24, bytes.byte());
        let attrs = who(owner);
        let request = Request {
            owner: owner.into(),
            id: self.next,
            pages: 1 + u32::from(blocks % 8),
            arrival: self.server.now,
            spot: Spot::new(0, u64::from(block) * 4096, u64::from(blocks % 8) * 4096),
            direction: [Direction::Read, Direction::Write][usize::from(blocks / 8 % 2)],
            ..Request::default()
        };
        let relate = match kind % 4 {
            0 => Relate::Not,
            1 => Relate::Range(u64::from(owner % 2)),
            2 => Relate::As(Relation::sequence(100 + u64::from(block))),
            _ => {
                let mut named = [None; PREDECESSORS_MAX];
                for (back, name) in (0u64..).step_by(1 + usize::from(block)).zip(&mut named) {
                    let id = self.next.checked_sub(back);
                    *name = id.and_then(|id| self.server.record(id));
                }
                Relate::As(Relation::After(named))
            }
        };
        self.next += 1;
        let forced = blocks >= 240;
        let taken = self.server.arrive(request, &attrs, relate, forced);
        self.refused += usize::from(!taken);
    }

    /// A request ends, if one is at the device.
    fn complete(&mut self, at: u8) -> bool {
        if self.running.is_empty() {
            return false;
        }
        let id = self
            .running
            .swap_remove(usize::from(at) % self.running.len());
        assert!(self.server.complete(id).is_some());
        self.ended += 1;
        true
    }

    /// Everything ends by itself: with what is done, with memory, and with the time of the timer.
    fn drain(&mut self) {
        for _ in 0..1_000 * (self.next + 10) {
            self.watch();
            if self.server.len() == 0 {
                break;
            }
            if self.complete(0) {
                continue;
            }
            self.server.feed();
            self.watch();
            if self.running.is_empty() {
                let until = self.server.next_expiry().expect("a timer");
                self.server.wait(until.saturating_sub(self.server.now));
            }
        }
        let order = self.server.order();
        assert_eq!(
            (order.live(), order.blocked(), order.overflowed()),
            (0, 0, 0)
        );
        assert_eq!(self.server.len(), 0, "everything ends");
    }
}

/// Takes the bytes as a policy and operations.
pub fn run(data: &[u8]) {
    let bytes = &mut Bytes(data);
    let config = config(bytes);
    let (slots, records) = (1 + u32::from(bytes.byte() % 4), bytes.of(&[2, 8, 256]));
    let mut model = Model {
        server: Server::new(&config, slots, records, 7).expect("memory"),
        started: HashSet::new(),
        running: Vec::new(),
        next: 0,
        ended: 0,
        refused: 0,
    };
    for _ in 0..OPERATIONS {
        let Some(operation) = bytes.next() else {
            break;
        };
        match operation % 16 {
            0..=6 => model.arrive(operation / 16, bytes),
            7..=10 => drop(model.complete(bytes.byte())),
            11 => {
                let id = model.next.checked_sub(bytes.byte().into());
                id.map(|id| model.server.promote(id));
            }
            12 => model.server.wait(1 << (bytes.byte() % 35)),
            13 => model.server.feed(),
            14 if operation / 16 == 0 => model.server.force_all(),
            _ => {
                let seed = model.next;
                model.server.install(&config, seed).expect("memory");
            }
        }
        model.watch();
    }
    model.drain();
}
