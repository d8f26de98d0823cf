// SPDX-License-Identifier: GPL-2.0-only

//! The table of classes and the heap against models that are easy to believe.

use nrs_sched::{
    class::{ClassId, ClassTable, Found, DEFAULT, IDLE_NS},
    key::Key,
    mem::Need,
};
use proptest::prelude::*;
use std::collections::HashMap;

#[derive(Clone, Debug)]
enum Op {
    Classify(u32),
    Busy(u32),
    Idle(u32),
    Age,
    Feed,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0u32..300).prop_map(Op::Classify),
        2 => (0u32..300).prop_map(Op::Busy),
        2 => (0u32..300).prop_map(Op::Idle),
        1 => Just(Op::Age),
        1 => Just(Op::Feed),
    ]
}

proptest! {
    #[test]
    fn the_table_agrees_with_a_map(
        ops in proptest::collection::vec(op(), 1..600),
        max in 64u32..200,
        seed in any::<u64>(),
    ) {
        let mut table = ClassTable::new(max, seed, Key::Default, u32::MAX).expect("memory");
        // What is busy must stay; what is idle may go.
        let mut known: HashMap<u32, (ClassId, bool)> = HashMap::new();
        let (mut now, mut overflow) = (0u64, 0u64);
        for op in ops {
            now += 500_000_000;
            match op {
                Op::Classify(uid) => {
                    let limit = table.target();
                    match table.classify(Key::Uid(uid), now, limit, || uid) {
                        Found::Known(id) => {
                            prop_assert_eq!(known.get(&uid).map(|(known, _)| *known), Some(id));
                        }
                        Found::New(id) => {
                            prop_assert!(known.get(&uid).is_none_or(|(_, busy)| !busy));
                            known.insert(uid, (id, false));
                        }
                        Found::Overflow(id) => {
                            overflow += 1;
                            prop_assert_eq!(id.slot(), DEFAULT);
                        }
                    }
                }
                Op::Busy(uid) => {
                    if let Some((id, busy)) = known.get_mut(&uid) {
                        if table.is_live(*id) {
                            table.busy(id.slot());
                            *busy = true;
                        }
                    }
                }
                Op::Idle(uid) => {
                    if let Some((id, busy)) = known.get_mut(&uid) {
                        if table.is_live(*id) {
                            table.idle(id.slot(), now);
                            *busy = false;
                        }
                    }
                }
                Op::Age => {
                    now += IDLE_NS;
                    let _ = table.age(now, u32::MAX);
                }
                Op::Feed => {
                    let spare = table.need().allocate().expect("memory");
                    table.grow(spare);
                }
            }
            known.retain(|_, (id, busy)| *busy || table.is_live(*id));
            prop_assert_eq!(table.len(), known.len());
            prop_assert!(table.len() <= max as usize);
            prop_assert_eq!(table.overflow(), overflow);
            for (uid, (id, _)) in &known {
                prop_assert!(table.is_live(*id));
                prop_assert_eq!(table.find(&Key::Uid(*uid)), Some(id.slot()));
                prop_assert_eq!(table.at(id.slot()), Some(uid));
            }
        }
    }
}
