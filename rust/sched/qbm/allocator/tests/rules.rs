// SPDX-License-Identifier: GPL-2.0-only

//! Individual rules, and the requests.

use super::*;

#[test]
fn a_reserve_comes_first_and_is_for_its_class() {
    let mut allocator = Allocator::new(parameters(1000, [0, 300, 0, 0]));
    assert_eq!(allocator.free(), 700 * MB);
    // Other classes cannot draw from the reserve, even if unmet.
    let greedy = register(&mut allocator, FirstCome, 800, 1000);
    assert!(allocator.is_unmet(greedy));
    let fair = register(&mut allocator, FairShare, 100, 1000);
    assert_eq!(allocator.allocation(fair), 100 * MB);
    assert_eq!(allocator.reserve_left(FairShare), 200 * MB);
    // Bandwidth drawn from the reserve is not stolen.
    allocator.set_terms(greedy, terms(FirstCome, 700, 1000));
    assert_eq!(megabytes(&allocator, [greedy, fair]), [700, 100]);
    assert_eq!(allocator.free(), 0);
    // Released bandwidth refills the reserve.
    allocator.leave(fair);
    assert_eq!(allocator.reserve_left(FairShare), 300 * MB);
    assert_eq!(allocator.free(), 0);
}

#[test]
fn then_the_pool_then_extra_then_what_lower_classes_have() {
    let (mut allocator, [low, fair, mover]) = group(
        1000,
        [
            (LowShare, 300, 1000),
            (FairShare, 200, 1000),
            (Mover, 100, 300),
        ],
    );
    // 300 + 200 + 300, and 200 in the pool.
    assert_eq!(megabytes(&allocator, [low, fair, mover]), [300, 200, 300]);
    assert_eq!(allocator.free(), 200 * MB);
    assert_eq!(
        allocator.increase(fair, 100 * MB),
        Ok(Increase::Whole(300 * MB))
    );
    assert_eq!(allocator.free(), 100 * MB);
    // 100 from the pool, then extra: 200 of the mover, 100 of fair share.
    let first = register(&mut allocator, FirstCome, 350, 350);
    let ids = [first, fair, low, mover];
    assert_eq!(megabytes(&allocator, ids), [350, 250, 300, 100]);
    allocator.set_terms(first, terms(FirstCome, 400, 400));
    assert_eq!(megabytes(&allocator, ids), [400, 200, 300, 100]);
    // Stolen down to the floor: from the mover, from low share, then from fair share.
    allocator.set_terms(first, terms(FirstCome, 550, 550));
    assert_eq!(allocator.allocation(mover), FLOOR);
    assert_eq!(megabytes(&allocator, ids), [550, 200, 250, 0]);
    allocator.set_terms(first, terms(FirstCome, 900, 900));
    assert_eq!(allocator.allocation(low), FLOOR);
    assert_eq!(megabytes(&allocator, ids), [900, 100, 0, 0]);
    // Returned: to fair share, to low share, then to the mover.
    allocator.decrease(first, 250 * MB);
    assert_eq!(megabytes(&allocator, ids), [650, 200, 150, 0]);
    allocator.leave(first);
    assert_eq!(megabytes(&allocator, [fair, low, mover]), [200, 300, 300]);
}

#[test]
fn nothing_is_stolen_inside_a_class_or_from_above() {
    for class in BandwidthClass::ALL {
        for other in BandwidthClass::ALL {
            let (allocator, [first, second]) = group(1000, [(class, 900, 900), (other, 900, 900)]);
            let got = megabytes(&allocator, [first, second]);
            let want = match (class, other) {
                (FirstCome, FirstCome) => [900, 0],
                _ if other < class => [100, 900],
                _ if other == class => [500, 500],
                _ => [900, 100],
            };
            assert_eq!(got, want, "{class:?} {other:?}");
        }
    }
}

#[test]
fn everybody_has_the_floor_even_beyond_the_capacity() {
    let (mut allocator, [first, _]) = group(1000, [(FirstCome, 1000, 1000), (FirstCome, 10, 10)]);
    assert_eq!(allocator.oversubscribed(), FLOOR);
    let low = register(&mut allocator, LowShare, 10, 10);
    let mover = register(&mut allocator, Mover, 10, 10);
    assert_eq!(allocator.oversubscribed(), 3 * FLOOR);
    assert_eq!(allocator.allocation(first), 1000 * MB);
    // Released bandwidth reduces the oversubscription first.
    allocator.decrease(first, 2 * FLOOR);
    assert_eq!(allocator.oversubscribed(), FLOOR);
    assert_eq!((allocator.allocation(low), allocator.free()), (FLOOR, 0));
    allocator.decrease(first, 2 * FLOOR);
    assert_eq!(allocator.oversubscribed(), 0);
    assert_eq!(allocator.allocation(low), 2 * FLOOR);
    assert_eq!(allocator.allocation(mover), FLOOR);
}

#[test]
fn freed_bandwidth_goes_to_the_oldest_request() {
    let (mut allocator, [first, old, young]) = group(
        1000,
        [
            (FirstCome, 900, 1000),
            (FirstCome, 600, 1000),
            (FirstCome, 500, 1000),
        ],
    );
    assert!(allocator.is_unmet(old) && allocator.is_unmet(young));
    allocator.leave(first);
    assert_eq!(megabytes(&allocator, [old, young]), [600, 0]);
    // The older client decreases and restores: its request is now the younger one.
    allocator.decrease(old, 200 * MB);
    assert_eq!(megabytes(&allocator, [old, young]), [400, 500]);
    allocator.restore(old);
    assert_eq!(megabytes(&allocator, [old, young]), [400, 500]);
    assert!(allocator.is_unmet(old));
    allocator.leave(young);
    assert_eq!(megabytes(&allocator, [old]), [600]);
}

#[test]
fn all_have_their_minimum_before_any_has_more() {
    let (mut allocator, [first, fair, low]) = group(
        1000,
        [
            (FirstCome, 600, 1000),
            (FairShare, 300, 1000),
            (LowShare, 200, 1000),
        ],
    );
    let ids = [first, fair, low];
    assert_eq!(megabytes(&allocator, ids), [600, 300, 100]);
    assert_eq!(allocator.increase(first, 100 * MB), Err(NoBandwidth));
    assert!(allocator.wants(first) && allocator.is_unmet(low));
    // 150 are released: low share first, then the wanting client.
    allocator.decrease(fair, 150 * MB);
    assert_eq!(megabytes(&allocator, ids), [650, 150, 200]);
    assert!(allocator.wants(first));
    // The lower class takes the extra back for its minimum.
    allocator.restore(fair);
    assert_eq!(megabytes(&allocator, ids), [600, 300, 100]);
}

#[test]
fn who_wants_more_waits_in_line() {
    let (mut allocator, [hog, low, fair, other]) = group(
        1000,
        [
            (FirstCome, 700, 700),
            (LowShare, 100, 1000),
            (FairShare, 100, 200),
            (FairShare, 100, 200),
        ],
    );
    for id in [low, other, fair] {
        assert_eq!(allocator.increase(id, 100 * MB), Err(NoBandwidth));
    }
    // A repeated request keeps the queue position.
    assert_eq!(allocator.increase(other, 100 * MB), Err(NoBandwidth));
    let ids = [hog, low, fair, other];
    allocator.decrease(hog, 60 * MB);
    assert_eq!(megabytes(&allocator, ids), [640, 100, 100, 160]);
    allocator.decrease(hog, 90 * MB);
    assert_eq!(megabytes(&allocator, ids), [550, 100, 150, 200]);
    assert!(!allocator.wants(other) && allocator.wants(fair));
    allocator.decrease(hog, 100 * MB);
    assert_eq!(megabytes(&allocator, ids), [450, 150, 200, 200]);
    allocator.leave(hog);
    assert_eq!(allocator.free(), 400 * MB);
    assert_eq!(allocator.increase(fair, MB), Ok(Increase::Whole(200 * MB)));
}

#[test]
fn an_increase_is_whole_partial_or_to_be_asked_for_again() {
    let (mut allocator, [first, low]) = group(1000, [(FirstCome, 500, 2000), (LowShare, 100, 500)]);
    assert_eq!(
        allocator.increase(low, 300 * MB),
        Ok(Increase::Whole(400 * MB))
    );
    // 100 from the pool, and the extra of the lower class.
    assert_eq!(
        allocator.increase(first, 250 * MB),
        Ok(Increase::Whole(750 * MB))
    );
    assert_eq!(
        allocator.increase(first, 250 * MB),
        Ok(Increase::Partly(900 * MB))
    );
    assert!(!allocator.wants(first));
    assert_eq!(allocator.increase(first, 250 * MB), Err(NoBandwidth));
    // The extra of a higher class is never taken.
    assert_eq!(allocator.increase(low, MB), Err(NoBandwidth));
    assert!(allocator.wants(first) && allocator.wants(low));
    allocator.decrease(first, MB);
    assert!(!allocator.wants(first), "who does with less wants no more");
    assert_eq!(megabytes(&allocator, [first, low]), [899, 101]);
    // Up to the minimum an increase is handled like the first request, and takes extra from higher
    // classes.
    allocator.decrease(low, 51 * MB);
    assert_eq!(
        allocator.increase(first, 200 * MB),
        Ok(Increase::Partly(950 * MB))
    );
    assert_eq!(
        allocator.increase(low, 20 * MB),
        Ok(Increase::Whole(70 * MB))
    );
    assert_eq!(megabytes(&allocator, [first, low]), [930, 70]);
}

#[test]
fn little_free_bandwidth_is_not_given_beyond_minimums() {
    let (mut allocator, [fair, hog]) = group(1000, [(FairShare, 100, 1000), (FirstCome, 900, 900)]);
    allocator.decrease(hog, GRANT - 1);
    assert_eq!(allocator.increase(fair, MB), Err(NoBandwidth));
    assert_eq!(allocator.free(), GRANT - 1);
    allocator.decrease(hog, 1);
    assert_eq!(allocator.free(), 0);
    assert_eq!(allocator.allocation(fair), 100 * MB + GRANT);
    // A minimum gets free bandwidth below the threshold, too.
    allocator.decrease(fair, GRANT);
    allocator.decrease(hog, 1);
    let low = register(&mut allocator, LowShare, 100, 1000);
    assert_eq!(allocator.allocation(low), GRANT + 1);
}

#[test]
fn more_from_the_reserve_of_the_class() {
    let mut allocator = Allocator::new(parameters(1000, [0, 300, 0, 0]));
    let first = register(&mut allocator, FirstCome, 700, 700);
    let fair = register(&mut allocator, FairShare, 100, 1000);
    assert_eq!(
        allocator.increase(fair, 100 * MB),
        Ok(Increase::Whole(200 * MB))
    );
    assert_eq!(allocator.reserve_left(FairShare), 100 * MB);
    // While a client is unmet, no client has extra; the extra returns to the reserve.
    let other = register(&mut allocator, FirstCome, 10, 10);
    assert!(allocator.is_unmet(other));
    assert_eq!(megabytes(&allocator, [first, fair, other]), [700, 100, 0]);
    assert_eq!(allocator.reserve_left(FairShare), 200 * MB);
    assert_eq!(allocator.increase(fair, 100 * MB), Err(NoBandwidth));
}

#[test]
fn restore_gives_back_what_a_client_was_given() {
    let (mut allocator, [fair, first]) =
        group(1000, [(FairShare, 600, 1000), (FirstCome, 300, 1000)]);
    allocator.decrease(fair, 500 * MB);
    assert_eq!(allocator.allocation(fair), 100 * MB);
    assert_eq!(allocator.given(fair), 600 * MB);
    // Extra that other clients took is returned.
    assert_eq!(
        allocator.increase(first, 500 * MB),
        Ok(Increase::Whole(800 * MB))
    );
    allocator.restore(fair);
    assert_eq!(megabytes(&allocator, [fair, first]), [600, 400]);
    assert_eq!(allocator.given(fair), 600 * MB);
    // Bandwidth that other clients took for their minimum is not returned.
    allocator.decrease(fair, 500 * MB);
    allocator.set_terms(first, terms(FirstCome, 800, 1000));
    allocator.restore(fair);
    assert_eq!(megabytes(&allocator, [fair, first]), [200, 800]);
    assert_eq!(allocator.given(fair), 200 * MB);
    assert!(allocator.is_unmet(fair));
}

#[test]
fn a_dip_costs_no_share() {
    let (mut allocator, ids) = group(1000, [(FairShare, 300, 1000); 4]);
    let [dips, others @ ..] = ids;
    for _ in 0..10 {
        allocator.decrease(dips, 150 * MB);
        assert_eq!(allocator.given(dips), 250 * MB);
        assert_eq!(megabytes(&allocator, others), [300; 3]);
        allocator.restore(dips);
        assert_eq!(megabytes(&allocator, ids), [250; 4]);
    }
}

#[test]
fn sharing_is_in_proportion_to_what_was_asked_for() {
    let (mut allocator, ids) = group(1000, [(FairShare, 500, 1000); 4]);
    assert_eq!(megabytes(&allocator, ids), [250; 4]);
    let [less, ..] = ids;
    allocator.decrease(less, 150 * MB);
    // Goals are 100, 500, 500, 500.
    assert_eq!(megabytes(&allocator, ids), [63, 313, 313, 313]);
    // The share recovers gradually.
    for _ in 0..12 {
        let by = allocator.allocation(less) / 10 * 3;
        let _ = allocator.increase(less, by);
        random::check(&allocator);
    }
    assert_eq!(megabytes(&allocator, ids), [250; 4]);
}

#[test]
fn movers_share_what_is_left() {
    let (mut allocator, [small, large, fair]) = group(
        1000,
        [(Mover, 10, 1000), (Mover, 30, 1000), (FairShare, 200, 1000)],
    );
    let ids = [small, large, fair];
    assert_eq!(megabytes(&allocator, ids), [200, 600, 200]);
    // Other clients take bandwidth back, and release it again.
    assert_eq!(
        allocator.increase(fair, 400 * MB),
        Ok(Increase::Whole(600 * MB))
    );
    assert_eq!(megabytes(&allocator, ids), [100, 300, 600]);
    allocator.decrease(fair, 560 * MB);
    assert_eq!(megabytes(&allocator, ids), [240, 720, 40]);
    // A mover with little load leaves its share to the other mover, until its load increases.
    allocator.decrease(large, 700 * MB);
    assert_eq!(megabytes(&allocator, ids), [940, 20, 40]);
    allocator.restore(large);
    assert_eq!(megabytes(&allocator, ids), [240, 720, 40]);
    // Movers get at most their maximum.
    allocator.set_terms(large, terms(Mover, 30, 500));
    assert_eq!(megabytes(&allocator, ids), [460, 500, 40]);
    allocator.set_terms(small, terms(Mover, 10, 20));
    assert_eq!(megabytes(&allocator, ids), [20, 500, 40]);
    assert_eq!(allocator.free(), 440 * MB);
}

/// Compares the allocations of movers when the capacity follows the usage of other clients.
#[test]
fn movers_follow_the_capacity() {
    let (mut allocator, ids) = group(1000, [(Mover, 100, 1000), (Mover, 300, 1000)]);
    for (capacity, want) in [
        (1000, [250, 750]),
        (400, [100, 300]),
        (100, [25, 75]),
        (0, [0, 0]),
        (2000, [1000, 1000]),
    ] {
        allocator.set_parameters(parameters(capacity, [0; CLASSES]));
        assert_eq!(megabytes(&allocator, ids), want, "{capacity}");
    }
}

#[test]
fn a_new_setup_leaves_those_that_had_theirs() {
    let (mut allocator, [old, waits, young, fair]) = group(
        1000,
        [
            (FirstCome, 400, 1000),
            (FirstCome, 700, 1000),
            (FirstCome, 300, 1000),
            (FairShare, 200, 1000),
        ],
    );
    let ids = [old, waits, young, fair];
    assert_eq!(megabytes(&allocator, ids), [400, 0, 300, 200]);
    // The unmet client is older than `young`, and stays unmet.
    allocator.set_parameters(parameters(900, [0; CLASSES]));
    assert_eq!(megabytes(&allocator, ids), [400, 0, 300, 200]);
    allocator.set_parameters(parameters(800, [0; CLASSES]));
    assert_eq!(megabytes(&allocator, ids), [400, 0, 300, 100]);
    allocator.set_parameters(parameters(500, [0; CLASSES]));
    assert_eq!(megabytes(&allocator, ids), [400, 0, 0, 100]);
    allocator.set_parameters(parameters(1700, [0, 200, 0, 0]));
    assert_eq!(megabytes(&allocator, ids), [400, 700, 300, 200]);
    assert_eq!(allocator.free(), 100 * MB);
    // Extra is kept while there is enough bandwidth.
    assert_eq!(
        allocator.increase(young, 50 * MB),
        Ok(Increase::Whole(350 * MB))
    );
    allocator.set_parameters(parameters(1690, [0, 100, 50, 0]));
    assert_eq!(megabytes(&allocator, ids), [400, 700, 340, 200]);
}

#[test]
fn changes_are_said_once() {
    let (mut allocator, [one, other]) =
        group(1000, [(FairShare, 1000, 1000), (FairShare, 1000, 1000)]);
    let changed = |allocator: &mut Allocator| {
        let mut changed = Vec::new();
        allocator.drain_changed(|id, allocation| changed.push((id, allocation / MB)));
        changed
    };
    assert_eq!(changed(&mut allocator), [(one, 500), (other, 500)]);
    assert_eq!(changed(&mut allocator), []);
    let third = register(&mut allocator, FirstCome, 200, 1000);
    allocator.leave(third);
    assert_eq!(changed(&mut allocator), []);
    allocator.leave(one);
    assert_eq!(changed(&mut allocator), [(other, 1000)]);
    // The identifier is reused.
    let again = register(&mut allocator, FairShare, 1000, 1000);
    assert_eq!(again, one);
    assert_eq!(changed(&mut allocator), [(one, 500), (other, 500)]);
    // Another class, the same bandwidth.
    allocator.set_terms(one, terms(FirstCome, 500, 500));
    assert_eq!(changed(&mut allocator), []);
}

#[test]
fn names_that_are_not_there_do_nothing() {
    let (mut allocator, [one]) = group(1000, [(FairShare, 100, 1000)]);
    let gone = register(&mut allocator, FairShare, 100, 1000);
    allocator.leave(gone);
    for id in [gone, 17, u32::MAX] {
        allocator.leave(id);
        allocator.restore(id);
        allocator.decrease(id, 5);
        allocator.set_terms(id, terms(Mover, 1, 2));
        assert_eq!(allocator.increase(id, 5), Err(NoBandwidth));
        assert_eq!((allocator.allocation(id), allocator.given(id)), (0, 0));
        assert!(!allocator.wants(id) && !allocator.is_unmet(id));
    }
    assert_eq!(allocator.len(), 1);
    assert_eq!(megabytes(&allocator, [one]), [100]);
}

#[test]
fn numbers_out_of_bounds_count_as_the_bound() {
    let mut allocator = Allocator::new(AllocatorParameters {
        capacity: u64::MAX,
        reserves: [u64::MAX, u64::MAX, 0, 1],
        floor: 0,
        grant: u64::MAX,
    });
    assert_eq!(allocator.parameters().floor, 1);
    assert_eq!(allocator.reserve_left(FirstCome), RATE_MAX);
    assert_eq!(allocator.reserve_left(FairShare), 0);
    for class in BandwidthClass::ALL {
        for (min, max) in [(0, 0), (u64::MAX, u64::MAX), (u64::MAX, 0), (0, u64::MAX)] {
            let id = allocator.register(Entitlement { class, min, max }).unwrap();
            random::check(&allocator);
            let _ = allocator.increase(id, u64::MAX);
            random::check(&allocator);
            allocator.decrease(id, u64::MAX);
            random::check(&allocator);
            allocator.restore(id);
            random::check(&allocator);
        }
    }
    allocator.set_parameters(AllocatorParameters {
        capacity: 0,
        reserves: [0; CLASSES],
        floor: u64::MAX,
        grant: 0,
    });
    random::check(&allocator);
    assert_eq!(allocator.oversubscribed(), 16 * FLOOR_MAX);
}

#[test]
fn as_many_clients_as_there_may_be() {
    let mut allocator = Allocator::new(parameters(1000, [0; CLASSES]));
    for _ in 0..client::CLIENTS_MAX {
        allocator.enter(terms(FirstCome, 0, 0)).unwrap();
    }
    assert_eq!(allocator.enter(terms(Mover, 0, 0)), Err(NoMemory));
    allocator.settle();
    assert_eq!(allocator.len(), 32_768);
    random::check(&allocator);
    allocator.set_parameters(parameters(2000, [0; CLASSES]));
    allocator.set_terms(7, terms(FairShare, 1, 1));
    random::check(&allocator);
    allocator.leave(9);
    assert_eq!(allocator.register(terms(Mover, 1, 2)), Ok(9));
    random::check(&allocator);
}

/// Verifies that an unmet first come client does not keep idle bandwidth from other clients.
#[test]
fn nothing_is_idle_for_ever() {
    let (mut allocator, ids) = group(1000, [(FirstCome, 1, 1000), (FirstCome, 1000, 1000)]);
    let [first, second] = ids;
    assert!(allocator.is_unmet(second));
    assert_eq!(
        allocator.increase(first, 1000 * MB),
        Ok(Increase::Partly(1000 * MB - FLOOR))
    );
    assert!(allocator.is_unmet(second));
    // Movers get the remaining bandwidth without a request.
    let (allocator, ids) = group(
        1000,
        [
            (FirstCome, 900, 1000),
            (FirstCome, 200, 1000),
            (Mover, 10, 1000),
        ],
    );
    assert_eq!(allocator.free(), 0);
    assert_eq!(megabytes(&allocator, ids), [900, 0, 100]);
}

/// Verifies that a client with a goal above the weight of the ratio is pinned, although a 64-bit
/// product would wrap.
#[test]
fn shares_of_a_terabyte() {
    let (goal, room, least) = (1 << 35, 1 << 20, 1024);
    let capacity = (1 << 39) + room + goal + least;
    let mut allocator = Allocator::new(AllocatorParameters {
        capacity,
        reserves: [0; 4],
        floor: least,
        grant: 1,
    });
    let mover = |min, max| Entitlement {
        class: Mover,
        min,
        max,
    };
    let heavy = allocator.register(mover(goal, goal + room)).unwrap();
    let light = allocator.register(mover(least, capacity)).unwrap();
    assert_eq!(allocator.allocation(heavy), goal + room);
    assert_eq!(allocator.allocation(light), (1 << 39) + least);
}
