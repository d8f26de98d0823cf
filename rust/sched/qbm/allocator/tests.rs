// SPDX-License-Identifier: GPL-2.0-only

//! Helpers for the tests of the allocator: groups in MB/s.

use super::*;
use BandwidthClass::{FairShare, FirstCome, LowShare, Mover};

mod examples;
mod random;
mod rules;

/// Bytes/s per MB/s.
const MB: u64 = 1_000_000;
/// Floor, bytes/s.
const FLOOR: u64 = 32 << 10;
/// Grant threshold, bytes/s.
const GRANT: u64 = 256 << 10;

/// Creates the parameters of a group with `capacity` and `reserves`, MB/s.
fn parameters(capacity: u64, reserves: [u64; CLASSES]) -> AllocatorParameters {
    AllocatorParameters {
        capacity: capacity * MB,
        reserves: reserves.map(|reserve| reserve * MB),
        floor: FLOOR,
        grant: GRANT,
    }
}

/// Creates the terms of a client of `class`, MB/s.
fn terms(class: BandwidthClass, min: u64, max: u64) -> Entitlement {
    Entitlement {
        class,
        min: min * MB,
        max: max * MB,
    }
}

/// Creates a group without reserves, and registers clients of class, minimum and maximum in this
/// order.
fn group<const N: usize>(
    capacity: u64,
    clients: [(BandwidthClass, u64, u64); N],
) -> (Allocator, [ClientId; N]) {
    let mut allocator = Allocator::new(parameters(capacity, [0; CLASSES]));
    let ids = clients.map(|(class, min, max)| register(&mut allocator, class, min, max));
    (allocator, ids)
}

fn register(allocator: &mut Allocator, class: BandwidthClass, min: u64, max: u64) -> ClientId {
    let id = allocator.register(terms(class, min, max)).unwrap();
    random::check(allocator);
    id
}

/// Returns the allocations of the clients, MB/s, rounded to the nearest.
fn megabytes<const N: usize>(allocator: &Allocator, ids: [ClientId; N]) -> [u64; N] {
    random::check(allocator);
    ids.map(|id| (allocator.allocation(id) + MB / 2) / MB)
}
