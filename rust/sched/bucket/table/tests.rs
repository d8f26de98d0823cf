// SPDX-License-Identifier: GPL-2.0-only

use super::*;
use crate::sched::{
    bucket::{instant, Pace},
    key::Key,
    tagged_table::tests::at_gap,
};
use std::rc::Rc;

const NOW: u64 = instant(1_000_000_000);

fn tag(buckets: &BucketTable, uid: u32, window: u64) -> BucketTag {
    BucketTag::new(buckets.hash(&Key::Uid(uid)), window, window)
}

#[test]
fn one_tag_is_one_bucket() {
    let buckets = BucketTable::new(100, 1).unwrap();
    let pace = Pace::new(1000);
    let window = pace.span(3);
    let charge = Charge::new(pace, 1, window);
    let mut bucket_refs = [(); 2].map(|()| BucketRef::new(tag(&buckets, 7, window)));
    let mut other = BucketRef::new(tag(&buckets, 8, window));
    // Three at once through either reference, then one per millisecond.
    for i in 0..5u64 {
        let bucket = &mut bucket_refs[i as usize % 2];
        let early = buckets.ready(bucket, window, charge, NOW);
        let ready = buckets.take(bucket, window, charge, NOW);
        assert_eq!(ready, early);
        assert_eq!(ready, Some(NOW - window + (i + 1) * charge.span));
    }
    assert!(buckets.ready(&mut other, window, charge, NOW).unwrap() <= NOW);
    buckets.refund(&bucket_refs[0], 5 * charge.span);
    assert_eq!(
        buckets.level(&bucket_refs[1]),
        Some(BucketLevel(NOW - window))
    );
    assert_eq!(buckets.full(), 0);
}

/// Fills the table with its rated number of buckets, all of one rule and thus with one unit.
#[test]
fn buckets_of_one_rule_are_all_over_the_table() {
    let buckets = BucketTable::new(4000, 1).unwrap();
    let pace = Pace::new(10);
    let window = pace.span(1);
    let charge = Charge::new(pace, 1, window);
    for uid in 0..4000 {
        let mut bucket = BucketRef::new(tag(&buckets, uid, window));
        buckets.take(&mut bucket, window, charge, NOW);
    }
    assert!(buckets.full() < 40, "{}", buckets.full());
}

/// Changes the unit of a bucket, which keeps the number of units used up.
#[test]
fn another_unit_is_the_same_bucket() {
    let buckets = BucketTable::new(100, 1).unwrap();
    let hash = buckets.hash(&Key::Uid(7));
    let [slow, fast] = [10, 1000].map(|rate| Pace::new(rate).span(1));
    let [mut old, mut new] =
        [slow, fast].map(|unit| BucketRef::new(BucketTag::new(hash, 3 * unit, unit)));
    let charge = Charge::new(Pace::new(10), 2, 3 * slow);
    buckets.take(&mut old, 3 * slow, charge, NOW);
    let charge = Charge::new(Pace::new(1000), 1, 3 * fast);
    let ready = buckets.ready(&mut new, 3 * fast, charge, NOW).unwrap();
    assert!(ready.abs_diff(NOW) < fast / 32, "{}", ready.abs_diff(NOW));
    let left = NOW - buckets.level(&new).unwrap().0;
    assert!(left.abs_diff(fast) < fast / 32, "{left} for {fast}");
    assert_eq!(old.idx, new.idx);
}

/// Part that takes one request after the other: the steps of [`BucketTable::change`] and of
/// [`SharedLevel::convert`].
#[derive(Clone, Copy)]
struct Taker {
    tag: BucketTag,
    step: BucketStep,
    left: u32,
    seeks: u32,
    /// Number of requests that were charged, and of requests that were not.
    charged: u32,
    missed: u32,
}

#[derive(Clone, Copy)]
enum BucketStep {
    Level,
    Tag(BucketLevel),
    Take(BucketLevel),
    Follow(BucketTag),
    Rescale(BucketTag),
    Followed,
}

impl Taker {
    fn end(&mut self, charged: bool) -> BucketStep {
        self.left -= 1;
        self.seeks = 0;
        self.charged += u32::from(charged);
        self.missed += u32::from(!charged);
        BucketStep::Level
    }

    fn step(&mut self, place: &SharedLevel) {
        let own = self.tag;
        self.step = match self.step {
            BucketStep::Level => BucketStep::Tag(BucketLevel(place.level.get())),
            BucketStep::Tag(level) => match BucketTag(place.tag.get()) {
                there if there == own => BucketStep::Take(level),
                there if there == there.changing() || self.seeks == SEARCHES_MAX => self.end(false),
                there => {
                    self.seeks += 1;
                    BucketStep::Follow(there)
                }
            },
            BucketStep::Take(level) if place.level.get() != level.0 => BucketStep::Level,
            BucketStep::Take(level) => {
                place.level.set(level.0 + own.unit());
                self.end(true)
            }
            BucketStep::Follow(there) => match place.retag(there, own.changing()) {
                true => BucketStep::Rescale(there),
                false => BucketStep::Level,
            },
            BucketStep::Rescale(there) => {
                place.rescale(there, own, NOW, &AtomicWord::new(0));
                BucketStep::Followed
            }
            BucketStep::Followed => {
                assert!(place.retag(own.changing(), own));
                BucketStep::Level
            }
        };
    }
}

/// Runs `takers` to completion in all orders of their steps; returns the number of orders.
fn interleave(
    place: &SharedLevel,
    takers: [Taker; 2],
    end: &impl Fn(&SharedLevel, [Taker; 2]),
) -> u64 {
    let (tag, level) = (place.tag.get(), place.level.get());
    let mut orders = 0;
    for index in 0..2 {
        if takers[index].left > 0 {
            let mut after = takers;
            after[index].step(place);
            orders += interleave(place, after, end);
            place.tag.set(tag);
            place.level.set(level);
        }
    }
    if orders == 0 {
        end(place, takers);
        orders = 1;
    }
    orders
}

/// Changes the unit of a bucket in opposite directions by two parts concurrently. The bucket keeps
/// its contents, less the charges; few requests pass uncharged during a change.
#[test]
fn opposite_changes_of_a_unit_lose_nothing() {
    // Units that a tag represents exactly.
    let tags = [1 << 12, 1 << 9].map(|unit| BucketTag::new(77 << TERMS_BITS, 1 << 20, unit));
    let mut orders = 0;
    for (was, tokens) in [(0, -1000), (1, -1000), (0, 3), (1, 3), (0, 30), (1, 30)] {
        let unit = |tag: BucketTag| tag.unit() as i64;
        let level = NOW as i64 - tokens * unit(tags[was]);
        let place = SharedLevel {
            tag: AtomicWord::new(tags[was].0),
            level: AtomicWord::new(level as u64),
        };
        let takers = tags.map(|tag| Taker {
            tag,
            step: BucketStep::Level,
            left: 1,
            seeks: 0,
            charged: 0,
            missed: 0,
        });
        orders += interleave(&place, takers, &|place, takers| {
            let tag = BucketTag(place.tag.get());
            assert_ne!(tag, tag.changing());
            let sum = |of: fn(&Taker) -> u32| takers.iter().map(of).sum::<u32>();
            let (charged, missed) = (sum(|t| t.charged), sum(|t| t.missed));
            let left = NOW as i64 - place.level.get() as i64;
            let want = (tokens - i64::from(charged)) * unit(tag);
            assert!(left.abs_diff(want) <= 8, "{tokens}: {left} for {want}");
            assert!(charged + missed == 2 && missed <= 1, "{missed}");
        });
    }
    assert!(orders > 1_000, "{orders}");
}

/// Verifies that only buckets that are full again are replaced by others.
#[test]
fn what_is_in_use_stays() {
    let buckets = BucketTable::new(4, 1).unwrap();
    let pace = Pace::new(10);
    let window = pace.span(1);
    let charge = Charge::new(pace, 1, window);
    let mut bucket_refs: Vec<BucketRef> = (0..12)
        .map(|uid| BucketRef::new(tag(&buckets, uid, window)))
        .collect();
    for (i, bucket) in bucket_refs.iter_mut().enumerate() {
        let taken = buckets.take(bucket, window, charge, NOW);
        assert_eq!(taken.is_some(), i < 8, "{i}");
    }
    assert_eq!(buckets.full(), 4);
    // Full again for long enough: others may claim the places.
    let later = NOW + 8 * window;
    assert!(buckets
        .take(&mut bucket_refs[9], window, charge, later)
        .is_some());
    let there = bucket_refs[..8]
        .iter()
        .filter(|bucket| buckets.level(bucket).is_some());
    assert_eq!(there.count(), 7);
    // A reference that lost its place finds another, with a full bucket.
    for bucket in &mut bucket_refs[..8] {
        let ready = buckets.take(bucket, window, charge, later);
        assert!(ready.is_none_or(|ready| ready <= later));
    }
}

/// Takes from the bucket of `uid` at gap `moment` of a take from the bucket of user 1; returns true
/// if there is such a gap. A third bucket is in the first place before the gap, or during the take.
fn takes_meet(uid: u32, moment: u32, before: bool, during: bool) -> bool {
    let buckets = Rc::new(BucketTable::new(4, 1).unwrap());
    let pace = Pace::new(10);
    let window = pace.span(3);
    let charge = Charge::new(pace, 1, window);
    let take = move |buckets: &BucketTable, uid| {
        let mut bucket = BucketRef::new(tag(buckets, uid, window));
        buckets.take(&mut bucket, window, charge, NOW);
    };
    let use_first = move |buckets: &BucketTable, used: bool| {
        let (place, third) = (buckets.places.get(0).unwrap(), tag(buckets, 3, window).0);
        if used && place.tag.replace(0, third) {
            place.level.set(NOW);
        } else if !used && place.tag.get() == third {
            place.level.set(BucketLevel::FULL.0);
            place.tag.set(0);
        }
    };
    use_first(&buckets, before);
    let shared = buckets.clone();
    let other = move || {
        use_first(&shared, during);
        take(&shared, uid);
        use_first(&shared, false);
    };
    let is_gap = at_gap(moment, other, || take(&buckets, 1));
    let takes = if uid == 1 { 2 } else { 1 };
    for owner in [1, uid] {
        let tag = tag(&buckets, owner, window).0;
        let places = buckets.places.places(0).map(|(_, place)| place);
        let own = places.filter(|place| place.tag.get() == tag);
        let levels: Vec<u64> = own.map(|place| place.level.get()).collect();
        assert!(!is_gap || levels == [NOW - window + takes * charge.span]);
    }
    is_gap
}

/// Verifies that a new bucket leaves a full bucket in the table if another place is unused.
#[test]
fn an_unused_place_is_preferred() {
    let buckets = BucketTable::new(4, 1).unwrap();
    let pace = Pace::new(10);
    let window = pace.span(1);
    let mut refs = [1, 2].map(|uid| BucketRef::new(tag(&buckets, uid, window)));
    for (bucket, now) in refs.iter_mut().zip([NOW, NOW + 8 * window]) {
        buckets.take(bucket, window, Charge::new(pace, 1, window), now);
    }
    assert!(refs.iter().all(|bucket| buckets.level(bucket).is_some()));
}

/// Verifies that takes at the same time leave one place for each bucket, with all charges.
#[test]
fn takes_at_the_same_time_are_all_charged() {
    for (before, during) in [(false, false), (true, false), (false, true)] {
        for uid in [1, 2] {
            let meets = |&moment: &u32| takes_meet(uid, moment, before, during);
            let moments = (1..).take_while(meets).count();
            assert!(moments > BLOCK, "{moments}");
        }
    }
}

#[test]
fn tags_are_never_the_empty_tag() {
    for window in [0, 1, 1 << 20, 1 << 55, u64::MAX] {
        for hash in [0, 1, u64::MAX] {
            let tag = BucketTag::new(hash, window, window);
            assert_ne!(tag, BucketRef::NONE.tag);
            let (unit, wanted) = (tag.unit(), window | 1);
            assert!(unit <= wanted && wanted - unit <= wanted / 64, "{window}");
            assert!(
                tag.is_of(BucketTag::new(hash, 7, 9))
                    && !tag.is_of(BucketTag::new(!hash, window, window))
            );
        }
    }
}
