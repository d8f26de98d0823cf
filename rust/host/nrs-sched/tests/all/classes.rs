// SPDX-License-Identifier: GPL-2.0-only

//! Comparison of the table of classes and the heap with simple models.

use nrs_sched::{
    class::{ClassId, ClassQuota, ClassTable, IDLE_NS, KEPT},
    key::Key,
    mem::Need,
};
use proptest::prelude::*;
use std::collections::{HashMap, HashSet};

/// Number of owners of classes.
const OWNERS: u32 = 3;

/// Returns the number of classes of each owner, according to the model.
fn counts(known: &HashMap<u32, (ClassId, bool)>) -> [usize; OWNERS as usize] {
    let mut counts = [0; OWNERS as usize];
    let owned = known.keys().filter(|uid| **uid % 7 >= 2);
    owned.for_each(|uid| counts[(uid % OWNERS) as usize] += 1);
    counts
}

#[derive(Clone, Debug)]
enum ClassOp {
    Classify(u32),
    Busy(u32),
    Idle(u32),
    Age,
    Feed,
}

fn op() -> impl Strategy<Value = ClassOp> {
    prop_oneof![
        6 => (0u32..300).prop_map(ClassOp::Classify),
        2 => (0u32..300).prop_map(ClassOp::Busy),
        2 => (0u32..300).prop_map(ClassOp::Idle),
        1 => Just(ClassOp::Age),
        1 => Just(ClassOp::Feed),
    ]
}

proptest! {
    #[test]
    fn the_table_agrees_with_a_map(
        ops in proptest::collection::vec(op(), 1..600),
        max in 64u32..200,
        seed in any::<u64>(),
    ) {
        let mut table = ClassTable::new(max, KEPT, seed, Key::Default, u32::MAX).expect("memory");
        let owners = (0..OWNERS).map(|owner| table.owned_by(&Key::Gid(owner)).owner());
        prop_assume!(owners.collect::<HashSet<_>>().len() == OWNERS as usize);
        // Busy classes must stay; idle classes may be evicted.
        let mut known: HashMap<u32, (ClassId, bool)> = HashMap::new();
        let mut now = 0u64;
        for op in ops {
            now += 500_000_000;
            match op {
                ClassOp::Classify(uid) => {
                    let limit = table.target();
                    if let Some(id) = table.lookup(&Key::Uid(uid), now) {
                        prop_assert_eq!(known.get(&uid).map(|(known, _)| *known), Some(id));
                        continue;
                    }
                    let place = match uid % 7 {
                        0 => ClassQuota::Free,
                        1 => ClassQuota::Shared,
                        _ => table.owned_by(&Key::Gid(uid % OWNERS)),
                    };
                    let (len, counts) = (known.len(), counts(&known));
                    let Some(id) = table.create(Key::Uid(uid), place, limit, now, || uid) else {
                        continue;
                    };
                    known.retain(|_, (id, busy)| *busy || table.is_live(*id));
                    known.insert(uid, (id, false));
                    let kept = if place == ClassQuota::Shared { 0 } else { max / 16 };
                    prop_assert!(known.len() <= len.max((max - kept) as usize));
                    if len >= (max / 4 * 3) as usize && matches!(place, ClassQuota::Owned(_)) {
                        // A crowded table: the owner has less than an equal part, with one part
                        // left for others, or a class replaces one of its own.
                        let before = counts[(uid % OWNERS) as usize];
                        let owners = counts.iter().filter(|count| **count > 0).count();
                        let owners = owners + 1 + usize::from(before == 0);
                        let part = (max - max / 16) as usize / owners;
                        let after = self::counts(&known)[(uid % OWNERS) as usize];
                        prop_assert!(
                            before < part || after <= before,
                            "{before} of {part}, {after}"
                        );
                    }
                }
                ClassOp::Busy(uid) => {
                    if let Some((id, busy)) = known.get_mut(&uid) {
                        if table.is_live(*id) {
                            table.busy(id.idx());
                            *busy = true;
                        }
                    }
                }
                ClassOp::Idle(uid) => {
                    if let Some((id, busy)) = known.get_mut(&uid) {
                        if table.is_live(*id) {
                            table.idle(id.idx(), now);
                            *busy = false;
                        }
                    }
                }
                ClassOp::Age => {
                    now += IDLE_NS;
                    let _ = table.age(now, u32::MAX);
                }
                ClassOp::Feed => {
                    let spare = table.need().allocate().expect("memory");
                    table.grow(spare);
                }
            }
            known.retain(|_, (id, busy)| *busy || table.is_live(*id));
            prop_assert_eq!(table.len(), known.len());
            prop_assert!(table.len() <= max as usize);
            for (uid, (id, _)) in &known {
                prop_assert!(table.is_live(*id));
                prop_assert_eq!(table.find(&Key::Uid(*uid)), Some(id.idx()));
                prop_assert_eq!(table.at(id.idx()), Some(uid));
            }
        }
    }
}

/// Returns a function that creates a class in a table at each call, for a new user.
fn newcomers() -> impl FnMut(&mut ClassTable<Key, u32>, ClassQuota, u64) -> Option<ClassId> {
    let mut uid = 0;
    move |table, place, now| {
        uid += 1;
        let spare = table.need().allocate().expect("memory");
        table.grow(spare);
        table.create(Key::Uid(uid), place, usize::MAX, now, || uid)
    }
}

/// Checks an owner above its equal part when others arrive. It still gets classes, in place of its
/// idle ones, and its idle classes are evicted at once.
#[test]
fn an_owner_above_its_part_gives_back() {
    let mut table = ClassTable::new(64, KEPT, 1, Key::Default, 0).expect("memory");
    let greedy = table.owned_by(&Key::Gid(1));
    let mut class = newcomers();
    while table.len() < 48 {
        assert!(class(&mut table, greedy, 1).is_some());
    }
    for owner in 2..=4 {
        let place = table.owned_by(&Key::Gid(owner));
        assert!(class(&mut table, place, 2).is_some(), "{owner}");
    }
    assert!(class(&mut table, greedy, 3).is_some());
    assert_eq!(table.len(), 51);
    while table.age(4, 8) {}
    // Three quarters are not crowded any more.
    assert_eq!(table.len(), 47);
}

/// Checks that an owner at its part of a full table gets a class in place of its own idle class.
/// Older idle classes of others cost at most one try per eight of them.
#[test]
fn owner_replaces_own_idle_class_before_older_ones() {
    let mut table = ClassTable::new(64, KEPT, 1, Key::Default, 0).expect("memory");
    let [other, own] = [1, 2].map(|gid| table.owned_by(&Key::Gid(gid)));
    let mut class = newcomers();
    for (owner, count) in [(other, 30), (own, 20)] {
        for _ in 0..count {
            assert!(class(&mut table, owner, 1).is_some());
        }
    }
    let tries = (1..100).find(|_| class(&mut table, own, 2).is_some());
    assert!(tries.is_some_and(|tries| tries <= 30 / 8 + 1), "{tries:?}");
}

/// Checks the same while another owner without idle classes searches in turn.
#[test]
fn owner_replaces_own_idle_class_with_a_rival() {
    let mut table = ClassTable::new(64, KEPT, 1, Key::Default, 0).expect("memory");
    let [other, own, rival] = [1, 2, 3].map(|gid| table.owned_by(&Key::Gid(gid)));
    let mut class = newcomers();
    for (owner, count, busy) in [
        (other, 9, false),
        (own, 1, false),
        (other, 21, false),
        (own, 14, true),
        (rival, 15, true),
    ] {
        for _ in 0..count {
            let id = class(&mut table, owner, 1).expect("room");
            if busy {
                table.busy(id.idx());
            }
        }
    }
    let tries = (1..100).find(|_| {
        let got = class(&mut table, own, 2);
        assert_eq!(class(&mut table, rival, 2), None);
        got.is_some()
    });
    assert!(tries.is_some_and(|tries| tries <= 31 / 8 + 1), "{tries:?}");
}
