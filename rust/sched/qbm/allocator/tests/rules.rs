// SPDX-License-Identifier: GPL-2.0-only

//! Individual rules, the requests, and published examples of the method.

use super::*;
use BandwidthClass::{FairShare, FirstCome, Mover};

/// Cases of [`play`].
const RULES: &str = "
# a reserve comes first and is for its class
group 1000 fs=300                            | free=700
// Other classes cannot draw from the reserve, even if unmet.
fc greedy 800, fs fair 100                   | unmet=greedy fair==100 fs=200
// Bandwidth drawn from the reserve is not stolen.
greedy fc 700                                | greedy=700 fair=100 free=0
// Released bandwidth refills the reserve.
fair leave                                   | fs=300 free=0

# then the pool, then extra, then what lower classes have
// 300 + 200 + 300, and 200 in the pool.
ls low 300, fs fair 200, mover last 100/300  | low=300 fair=200 last=300 free=200
fair +100 whole                              | fair=300 free=100
// 100 from the pool, then extra: 200 of the mover, 100 of fair share.
fc first 350/350                             | first=350 fair=250 low=300 last=100
first fc 400/400                             | first=400 fair=200 low=300 last=100
// Stolen down to the floor: from the mover, from low share, then from fair share.
first fc 550/550                             | first=550 fair=200 low=250 last==1f
first fc 900/900                             | first=900 fair=100 low==1f last==1f
// Returned: to fair share, to low share, then to the mover.
first -250                                   | first=650 fair=200 low=150 last=0
first leave                                  | fair=200 low=300 last=300

# everybody has the floor, even beyond the capacity
fc first 1000, fc second 10/10               | over=1f
ls low 10/10, mover last 10/10               | over=3f first==1000
// Released bandwidth reduces the oversubscription first.
first -2f                                    | over=1f low==1f free=0
first -2f                                    | over=0 low==2f last==1f

# freed bandwidth goes to the oldest request
fc first 900, fc old 600, fc young 500       | unmet=old,young
first leave                                  | old=600 young=0
// The older client decreases and restores: its request is now the younger one.
old -200                                     | old=400 young=500
old restore                                  | old=400 young=500 unmet=old
young leave                                  | old=600

# all have their minimum before any has more
fc first 600, fs fair 300, ls low 200        | first=600 fair=300 low=100
first +100 none                              | wants=first unmet=low
// 150 are released: low share first, then the wanting client.
fair -150                                    | first=650 fair=150 low=200 wants=first
// The lower class takes the extra back for its minimum.
fair restore                                 | first=600 fair=300 low=100

# who wants more waits in line
fc hog 700/700, ls low 100, fs fair 100/200, fs other 100/200
low +100 none, other +100 none, fair +100 none
// A repeated request keeps the queue position.
other +100 none
hog -60                                      | hog=640 low=100 fair=100 other=160
hog -90                                      | hog=550 low=100 fair=150 other=200 wants=low,fair
hog -100                                     | hog=450 low=150 fair=200 other=200
hog leave                                    | free=400
fair +1 whole                                | fair==200

# an increase is whole, partial or to be asked for again
fc first 500/2000, ls low 100/500
low +300 whole                               | low==400
// 100 from the pool, and the extra of the lower class.
first +250 whole                             | first==750
first +250 partly                            | first==900 wants=
first +250 none
// The extra of a higher class is never taken.
low +1 none                                  | wants=first,low
// A client that decreases no longer wants more.
first -1                                     | wants= first=899 low=101
// Up to the minimum an increase is handled like the first request, and takes extra from higher
// classes.
low -51, first +200 partly                   | first==950
low +20 whole                                | low==70 first=930

# little free bandwidth is not given beyond minimums
fs fair 100, fc hog 900/900
hog -1g-1b
fair +1 none                                 | free=1g-1b
hog -1b                                      | free=0 fair==100+1g
// A minimum gets free bandwidth below the threshold, too.
fair -1g, hog -1b, ls low 100                | low==1g+1b

# more from the reserve of the class
group 1000 fs=300
fc first 700/700, fs fair 100, fair +100 whole | fair==200 fs=100
// While a client is unmet, no client has extra; the extra returns to the reserve.
fc other 10/10                               | unmet=other first=700 fair=100 other=0 fs=200
fair +100 none

# restore gives back what a client was given
fs fair 600, fc first 300
fair -500                                    | fair==100 fair.given=600
// Extra that other clients took is returned.
first +500 whole                             | first==800
fair restore                                 | fair=600 first=400 fair.given=600
// Bandwidth that other clients took for their minimum is not returned.
fair -500, first fc 800, fair restore        | fair=200 first=800 fair.given=200 unmet=fair

# a dip costs no share
fs dips 300, fs a 300, fs b 300, fs c 300
dips -150                                    | dips.given=250 a=300 b=300 c=300
dips restore                                 | dips=250 a=250 b=250 c=250
dips -150                                    | dips.given=250 a=300 b=300 c=300
dips restore                                 | dips=250 a=250 b=250 c=250

# movers share what is left
mover small 10, mover large 30, fs fair 200  | small=200 large=600 fair=200
// Other clients take bandwidth back, and release it again.
fair +400 whole                              | small=100 large=300 fair=600
fair -560                                    | small=240 large=720 fair=40
// A mover with little load leaves its share to the other mover, until its load increases.
large -700                                   | small=940 large=20 fair=40
large restore                                | small=240 large=720 fair=40
// Movers get at most their maximum.
large mover 30/500                           | small=460 large=500 fair=40
small mover 10/20                            | small=20 large=500 fair=40 free=440

# movers follow the capacity
mover a 100, mover b 300                     | a=250 b=750
group 400                                    | a=100 b=300
group 100                                    | a=25 b=75
group 0                                      | a=0 b=0
group 2000                                   | a=1000 b=1000

# a new setup leaves those that had theirs
fc old 400, fc waits 700, fc young 300, fs fair 200 | old=400 waits=0 young=300 fair=200
// The unmet client is older than `young`, and stays unmet.
group 900                                    | old=400 waits=0 young=300 fair=200
group 800                                    | old=400 waits=0 young=300 fair=100
group 500                                    | old=400 waits=0 young=0 fair=100
group 1700 fs=200                            | old=400 waits=700 young=300 fair=200 free=100
// Extra is kept while there is enough bandwidth.
young +50 whole                              | young==350
group 1690 fs=100 ls=50                      | old=400 waits=700 young=340 fair=200

# changes are said once
fs one 1000, fs other 1000                   | changed=one:500,other:500 changed=
fc third 200, third leave                    | changed=
one leave                                    | changed=other:1000
// The identifier is reused.
fs again 1000                                | changed=one:500,other:500
// Another class, the same bandwidth.
again fc 500/500                             | changed=

# an unmet first come client does not keep idle bandwidth from other clients
fc first 1, fc second 1000                   | unmet=second
first +1000 partly                           | first==1000-1f unmet=second

# movers get the remaining bandwidth without a request
fc first 900, fc second 200, mover last 10   | free=0 first=900 second=0 last=100
";

/// Cases of [`play`] for sentences of a page about the method.
const EXAMPLES: &str = "
# the first three clients retain their bandwidth, the fourth has to wait
// The first three clients to request and use 300MB/s will retain their bandwidth, while the fourth
// client will have to wait for more bandwidth to become available.
fc first 300, fc second 300, fc third 300    | first==300 second==300 third==300 unmet=
fc fourth 300                                | fourth==1f unmet=fourth free=100-1f
// Clients keep the bandwidth that they use; repeated requests do not help.
fourth restore, fourth +1 none               | first=300 second=300 third=300 fourth=0
// Bandwidth that the fourth client cannot use is not idle.
first +300 partly                            | first==400-1f free=0
// A client leaves, and extra is taken back.
second leave                                 | first==400-1f third=300 fourth=300 unmet= free=1f

# The Fair Share Strategy splits the 1000MB/s between all four clients, such that all of them would
// have 250MB/s available.
fs first 300, fs second 300, fs third 300, fs fourth 300
first fs 300                                 | first==250 second==250 third==250 fourth==250 free=0
fourth leave                                 | first=300 second=300 third=300 free=100

# fair share in proportion to what is configured
fs a 200, fs b 400, fs c 600, fs d 800       | a=100 b=200 c=300 d=400
";

#[test]
fn rules() {
    play(RULES);
}

#[test]
fn examples() {
    play(EXAMPLES);
}

#[test]
fn nothing_is_stolen_inside_a_class_or_from_above() {
    for class in BandwidthClass::ALL {
        for other in BandwidthClass::ALL {
            let (name, of) = (class.name(), other.name());
            let mut scene = Scene::of(&format!("{name} first 900/900, {of} second 900/900"));
            let [first, second] = match (class, other) {
                (FirstCome, FirstCome) => [900, 0],
                _ if other < class => [100, 900],
                _ if other == class => [500, 500],
                _ => [900, 100],
            };
            scene.check(&format!("first={first} second={second}"));
        }
    }
}

#[test]
fn sharing_is_in_proportion_to_what_was_asked_for() {
    let mut scene = Scene::of("fs less 500, fs a 500, fs b 500, fs c 500, less -150");
    // Goals are 100, 500, 500, 500.
    scene.check("less=63 a=313 b=313 c=313");
    // The share recovers gradually.
    for _ in 0..12 {
        let less = scene.id("less");
        let by = scene.allocator.allocation(less) / 10 * 3;
        let _ = scene.allocator.increase(less, by);
        random::check(&scene.allocator);
    }
    scene.check("less=250 a=250 b=250 c=250");
}

#[test]
fn clients_that_do_not_exist_do_nothing() {
    let mut scene = Scene::of("fs one 100, fs gone 100, gone leave");
    for id in [scene.id("gone"), 17, u32::MAX] {
        let allocator = &mut scene.allocator;
        allocator.leave(id);
        allocator.restore(id);
        allocator.decrease(id, 5);
        allocator.set_terms(id, entitlement(Mover, 1, 2));
        assert_eq!(allocator.increase(id, 5), Err(NoBandwidth));
        assert_eq!((allocator.allocation(id), allocator.given(id)), (0, 0));
        assert!(!allocator.wants(id) && !allocator.is_unmet(id));
    }
    assert_eq!(scene.allocator.len(), 1);
    scene.check("one=100");
}

#[test]
fn numbers_out_of_bounds_count_as_the_bound() {
    let parameters = |capacity, reserves, floor, grant| AllocatorParameters {
        capacity,
        reserves,
        floor,
        grant,
    };
    let reserves = [u64::MAX, u64::MAX, 0, 1];
    let mut allocator = Allocator::new(parameters(u64::MAX, reserves, 0, u64::MAX));
    assert_eq!(allocator.parameters().floor, 1);
    assert_eq!(allocator.reserve_left(FirstCome), RATE_MAX);
    assert_eq!(allocator.reserve_left(FairShare), 0);
    for class in BandwidthClass::ALL {
        for (min, max) in [(0, 0), (u64::MAX, u64::MAX), (u64::MAX, 0), (0, u64::MAX)] {
            let id = allocator.register(entitlement(class, min, max)).unwrap();
            random::check(&allocator);
            let _ = allocator.increase(id, u64::MAX);
            random::check(&allocator);
            allocator.decrease(id, u64::MAX);
            random::check(&allocator);
            allocator.restore(id);
            random::check(&allocator);
        }
    }
    allocator.set_parameters(parameters(0, [0; CLASSES], u64::MAX, 0));
    random::check(&allocator);
    assert_eq!(allocator.oversubscribed(), 16 * FLOOR_MAX);
}

#[test]
fn as_many_clients_as_there_may_be() {
    let mut allocator = Allocator::new(parameters(1000, [0; CLASSES]));
    for _ in 0..client::CLIENTS_MAX {
        allocator.enter(entitlement(FirstCome, 0, 0)).unwrap();
    }
    assert_eq!(allocator.enter(entitlement(Mover, 0, 0)), Err(NoMemory));
    allocator.apply_rules();
    assert_eq!(allocator.len(), 32_768);
    random::check(&allocator);
    allocator.set_parameters(parameters(2000, [0; CLASSES]));
    allocator.set_terms(7, entitlement(FairShare, MB, MB));
    random::check(&allocator);
    allocator.leave(9);
    assert_eq!(allocator.register(entitlement(Mover, MB, 2 * MB)), Ok(9));
    random::check(&allocator);
}

/// Verifies that a client with a goal above the weight of the ratio is pinned, although a 64-bit
/// product would wrap.
#[test]
fn shares_of_a_terabyte() {
    let (goal, room, least) = (1 << 35, 1 << 20, 1024);
    let mut large = parameters(0, [0; CLASSES]);
    large.capacity = (1 << 39) + room + goal + least;
    (large.floor, large.grant) = (least, 1);
    let mut allocator = Allocator::new(large);
    let heavy = allocator.register(entitlement(Mover, goal, goal + room));
    let light = allocator.register(entitlement(Mover, least, large.capacity));
    assert_eq!(allocator.allocation(heavy.unwrap()), goal + room);
    assert_eq!(allocator.allocation(light.unwrap()), (1 << 39) + least);
}
