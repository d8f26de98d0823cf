// SPDX-License-Identifier: GPL-2.0-only

//! The kernel's partition, with a device. The first bytes are its policy, slots and records; each
//! byte after them is an operation, followed by its operands.

use crate::part::config;
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use nrs_sched::{
    arena::Request,
    item::{ByteRange, Direction},
    order::Relation,
    server::Relate,
    watched::{Arrival, Watched},
};

/// Maximum number of operations.
const OPERATIONS: usize = 300;

/// Submits a request.
fn arrive(watched: &mut Watched, kind: u8, bytes: &mut Unstructured<'_>) -> Result<()> {
    let (owner, place, blocks): (u8, u8, u8) = bytes.arbitrary()?;
    let (block, last) = (u64::from(place % 24), watched.len());
    let all = [Direction::Read, Direction::Write, Direction::Other];
    let request = Request {
        pages: 1 + u32::from(blocks % 8),
        range: ByteRange::new(0, block * 4096, u64::from(blocks % 8) * 4096),
        direction: all[usize::from(blocks / 8 % 3)],
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
    Ok(())
}

/// Interprets the bytes as a policy and operations.
fn run(bytes: &mut Unstructured<'_>) -> Result<()> {
    let first = config(bytes)?;
    let slots = 1 + u32::from(bytes.arbitrary::<u8>()? % 4);
    let mut watched = Watched::new(&first, slots, *bytes.choose(&[2, 8, 256])?);
    for _ in 0..OPERATIONS {
        if bytes.is_empty() {
            break;
        }
        let operation: u8 = bytes.arbitrary()?;
        match operation % 16 {
            0..=6 => arrive(&mut watched, operation / 16, bytes)?,
            7..=10 => drop(watched.complete(bytes.arbitrary::<u8>()?.into())),
            11 => {
                if let Some(id) = watched.len().checked_sub(bytes.arbitrary::<u8>()?.into()) {
                    watched.promote(id);
                }
            }
            12 => watched.wait(1 << (bytes.arbitrary::<u8>()? % 35)),
            13 => watched.feed(),
            14 if operation / 16 == 0 => watched.force_all(),
            _ => watched.install(&config(bytes)?),
        }
        watched.check_urgent();
    }
    watched.drain(|| 0);
    Ok(())
}

/// Interprets the bytes as a policy and operations.
pub(crate) fn partition(data: &[u8]) {
    run(&mut Unstructured::new(data)).expect("zeros follow the last byte");
}
