// SPDX-License-Identifier: GPL-2.0-only

//! The kernel's partition, with a device. The first bytes are its policy, slots and records; each
//! byte after them is an operation, followed by its operands.

use nrs_sched::{
    arena::Request,
    item::{ByteRange, Direction},
    order::Relation,
    server::Relate,
    watched::{Arrival, Watched},
};

use crate::{bytes::Bytes, part::config};

/// Maximum number of operations.
const OPERATIONS: usize = 300;

/// Submits a request.
fn arrive(watched: &mut Watched, kind: u8, bytes: &mut Bytes<'_>) {
    let (owner, place, blocks) = (bytes.byte(), bytes.byte(), bytes.byte());
    let (block, last) = (u64::from(place % 24), watched.len());
    let request = Request {
        pages: 1 + u32::from(blocks % 8),
        range: ByteRange::new(0, block * 4096, u64::from(blocks % 8) * 4096),
        direction: [Direction::Read, Direction::Write, Direction::Other]
            [usize::from(blocks / 8 % 3)],
        ..Request::default()
    };
    let relate = match kind % 5 {
        0 => Relate::Not,
        1 => Relate::Range(u64::from(owner % 2)),
        2 => Relate::As(Relation::sequence(100 + block)),
        3 => Relate::As(Relation::Free),
        _ => {
            let back = (1u64..).step_by(1 + usize::from(place % 24)).take(8);
            let ids: Vec<u64> = back.filter_map(|back| last.checked_sub(back)).collect();
            watched.after(&ids)
        }
    };
    let how = Arrival {
        owner: u32::from(owner % 8),
        high: owner >= 232,
        forced: blocks >= 240,
    };
    watched.arrive(request, relate, how);
}

/// Interprets the bytes as a policy and operations.
pub fn run(data: &[u8]) {
    let bytes = &mut Bytes(data);
    let first = config(bytes);
    let (slots, records) = (1 + u32::from(bytes.byte() % 4), bytes.of(&[2, 8, 256]));
    let mut watched = Watched::new(&first, slots, records);
    for _ in 0..OPERATIONS {
        let Some(operation) = bytes.next() else {
            break;
        };
        match operation % 16 {
            0..=6 => arrive(&mut watched, operation / 16, bytes),
            7..=10 => drop(watched.complete(bytes.byte().into())),
            11 => {
                if let Some(id) = watched.len().checked_sub(bytes.byte().into()) {
                    watched.promote(id);
                }
            }
            12 => watched.wait(1 << (bytes.byte() % 35)),
            13 => watched.feed(),
            14 if operation / 16 == 0 => watched.force_all(),
            _ => watched.install(&config(bytes)),
        }
        watched.check_urgent();
    }
    watched.drain(|| 0);
}
