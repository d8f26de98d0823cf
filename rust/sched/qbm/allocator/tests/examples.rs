// SPDX-License-Identifier: GPL-2.0-only

//! Published examples of the method.

use super::*;

/// Verifies: "The first three clients to request and use 300MB/s will retain their bandwidth, while
/// the fourth client will have to wait for more bandwidth to become available."
#[test]
fn first_come_300_300_300_wait() {
    let (mut allocator, ids) = group(1000, [(FirstCome, 300, 1000); 4]);
    let [first, second, third, fourth] = ids;
    for id in [first, second, third] {
        assert_eq!(allocator.allocation(id), 300 * MB);
        assert!(!allocator.is_unmet(id));
    }
    assert_eq!(allocator.allocation(fourth), FLOOR);
    assert!(allocator.is_unmet(fourth));
    assert_eq!(allocator.free(), 100 * MB - FLOOR);
    // Clients keep the bandwidth that they use; repeated requests do not help.
    allocator.restore(fourth);
    assert_eq!(allocator.increase(fourth, MB), Err(NoBandwidth));
    assert_eq!(megabytes(&allocator, ids), [300, 300, 300, 0]);
    // Bandwidth that the fourth client cannot use is not idle.
    let all = 400 * MB - FLOOR;
    assert_eq!(
        allocator.increase(first, 300 * MB),
        Ok(Increase::Partly(all))
    );
    assert_eq!(allocator.free(), 0);
    // A client leaves, and extra is taken back.
    allocator.leave(second);
    assert_eq!(megabytes(&allocator, [third, fourth]), [300; 2]);
    assert!(!allocator.is_unmet(fourth));
    assert_eq!(allocator.allocation(first) + allocator.free(), 400 * MB);
}

/// Verifies: "The Fair Share Strategy splits the 1000MB/s between all four clients, such that all
/// of them would have 250MB/s available."
#[test]
fn fair_share_250_each() {
    let (mut allocator, ids) = group(1000, [(FairShare, 300, 1000); 4]);
    for id in ids {
        assert_eq!(allocator.allocation(id), 250 * MB);
    }
    assert_eq!(allocator.free(), 0);
    let [first, second, third, fourth] = ids;
    allocator.leave(fourth);
    assert_eq!(megabytes(&allocator, [first, second, third]), [300; 3]);
    assert_eq!(allocator.free(), 100 * MB);
}

#[test]
fn fair_share_in_proportion_to_what_is_configured() {
    let (allocator, ids) = group(
        1000,
        [
            (FairShare, 200, 1000),
            (FairShare, 400, 1000),
            (FairShare, 600, 1000),
            (FairShare, 800, 1000),
        ],
    );
    assert_eq!(megabytes(&allocator, ids), [100, 200, 300, 400]);
}
