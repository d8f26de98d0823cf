// SPDX-License-Identifier: GPL-2.0-only

use super::*;

#[test]
fn an_entry_that_is_created_again_has_the_default() {
    let mut values = PerIndex::<u32>::new(100).unwrap();
    values.feed(values.wants(2).allocate().unwrap());
    (0..2).for_each(|idx| values.create(idx));
    *values.get_mut(0).unwrap() = 5;
    *values.get_mut(1).unwrap() = 6;
    values.create(0);
    assert_eq!((values.get(0), values.get(1)), (Some(&0), Some(&6)));
}

#[test]
fn bulk_uses_only_what_it_was_fed() {
    let per = Bulk::<u64>::PER_CHUNK;
    let mut bulk = Bulk::new(3 * per).unwrap();
    assert_eq!((bulk.push(1u64), bulk.capacity()), (Err(1), 0));
    assert_eq!(
        [1, per + 1, 9 * per].map(|extra| bulk.wants(extra).count()),
        [1, 2, 3]
    );
    let rest = bulk.feed(ChunkPile::allocate(2).unwrap());
    assert_eq!((rest.len(), bulk.capacity()), (0, 2 * per));
    for i in 0..2 * per as u64 {
        bulk.push(i).unwrap();
    }
    assert_eq!(bulk.push(7), Err(7));
    let rest = bulk.feed(ChunkPile::allocate(3).unwrap());
    assert_eq!((rest.len(), bulk.wants(9 * per).count()), (2, 0));
    bulk.push(7).unwrap();
    assert_eq!(bulk.get(2 * per), Some(&7));
    assert_eq!(bulk.get(per), Some(&(per as u64)));
    assert_eq!(bulk.get(2 * per + 1), None);
    assert_eq!(bulk.run(per - 2, 4), [per as u64 - 2, per as u64 - 1]);
    *bulk.get_mut(0).unwrap() = 99;
    assert_eq!(bulk.run(0, 2), [99, 1]);
    for i in (0..=2 * per).rev() {
        assert!(bulk.pop().is_some());
        assert_eq!(bulk.len(), i);
    }
    assert_eq!((bulk.pop(), bulk.capacity()), (None, 3 * per));
}

#[test]
fn blocks_are_bounded() {
    assert!(Block::<u8, { BLOCK_BYTES + 1 }>::new().is_err());
    let mut block = Block::<u32, 3>::new().unwrap();
    for i in 0..3 {
        block.push(i).unwrap();
    }
    assert!(block.is_full());
    assert_eq!(block.push(3), Err(3));
    assert_eq!(block.iter().sum::<u32>(), 3);
    block.clear();
    assert!(!block.is_full() && block.as_slice().is_empty());
}

#[test]
fn shared_is_one_value() {
    let one = Shared::new(vec![7]).unwrap();
    let (same, other) = (one.clone(), Shared::new(vec![7]).unwrap());
    assert!(one.ptr_eq(&same) && !one.ptr_eq(&other));
    drop(one);
    assert_eq!(*same, *other);
}

#[test]
fn list_grows() {
    let mut list = GrowingList::with_capacity(1).unwrap();
    for i in 0..1000 {
        list.push(i).unwrap();
    }
    list.as_mut_slice().reverse();
    list.truncate(2);
    assert_eq!(list.as_slice(), [999, 998]);
}
