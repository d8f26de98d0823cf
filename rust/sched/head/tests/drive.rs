// SPDX-License-Identifier: GPL-2.0-only

//! Tests of requests that a framework drives.

use super::*;

const VIEW: PartView<'static> = PartView {
    now: 5,
    force: false,
    table: None,
};

fn enqueue(head: &mut Head<Request, Mock, u32>, name: u64, tag: u32) -> Option<HeadTicket> {
    let attrs = Attrs {
        object: name,
        ..Attrs::UNKNOWN
    };
    let queued = head.drive_enqueue(req(name), &attrs, |own| *own == tag, 5);
    queued.ok().map(|(ticket, _)| ticket)
}

fn get(head: &mut Head<Request, Mock, u32>, tag: u32) -> Option<u64> {
    match head.drive_get(&VIEW, |own| *own == tag) {
        Decision::Item((item, ticket)) => {
            head.stop(&ticket, item.cost(), 6);
            Some(item.id)
        }
        _ => None,
    }
}

#[test]
fn only_the_framework_dispatches_what_it_drives() {
    let mut head = Head::new(Mock::plain(), 0);
    head.install(Mock::plain(), 1).ok().unwrap();
    assert!(enqueue(&mut head, 7, 1).is_some());
    assert!(enqueue(&mut head, 8, 2).is_none(), "no such policy");
    assert_eq!(head.queued(), 0);
    assert_eq!(get(&mut head, 0), None);
    assert!(matches!(
        head.drive_peek(&VIEW, |own| *own == 1),
        Decision::Item(())
    ));
    assert_eq!(get(&mut head, 1), Some(7));
    assert_eq!(get(&mut head, 1), None);
    assert_eq!(head.active(), 0);
}

#[test]
fn what_a_policy_declines_comes_back() {
    let mut head = Head::new(Mock::plain(), 0);
    let declines = MockBehaviour {
        declines: Some(2),
        ..MockBehaviour::default()
    };
    head.install(Mock::new(declines), 1).ok().unwrap();
    assert!(enqueue(&mut head, 4, 1).is_none());
    assert!(enqueue(&mut head, 5, 1).is_some());
    assert_eq!(get(&mut head, 1), Some(5));
}

#[test]
fn a_restarted_policy_is_one_policy() {
    let mut head = Head::new(Mock::plain(), 0);
    let throttled = || {
        Mock::new(MockBehaviour {
            until: 100,
            ..MockBehaviour::default()
        })
    };
    head.install(throttled(), 1).ok().unwrap();
    assert!(enqueue(&mut head, 1, 1).is_some());
    assert!(matches!(
        head.drive_get(&VIEW, |own| *own == 1),
        Decision::Throttled { until: 100 }
    ));
    head.install(Mock::plain(), 1).ok().unwrap();
    assert!(enqueue(&mut head, 2, 1).is_some());
    // The instance has a request.
    assert!(head.reap().is_none());
    // The older instance keeps its limit, and is served first if forced.
    assert_eq!(get(&mut head, 1), Some(2));
    assert_eq!(get(&mut head, 1), None);
    let force = PartView {
        force: true,
        ..VIEW
    };
    assert!(enqueue(&mut head, 3, 1).is_some());
    for name in [1, 3] {
        let Decision::Item((item, ticket)) = head.drive_get(&force, |own| *own == 1) else {
            panic!("{name} is queued");
        };
        head.stop(&ticket, Cost::of_bytes(0), 6);
        assert_eq!(item.id, name);
    }
    assert!(head.reap().is_some());
}

#[test]
fn another_policy_is_drained_by_its_own_name() {
    let mut head = Head::new(Mock::plain(), 0);
    head.install(Mock::plain(), 1).ok().unwrap();
    assert!(enqueue(&mut head, 1, 1).is_some());
    head.install(Mock::plain(), 2).ok().unwrap();
    // Requests for the first policy are still accepted.
    assert!(enqueue(&mut head, 2, 1).is_some());
    assert!(enqueue(&mut head, 3, 2).is_some());
    assert_eq!(get(&mut head, 2), Some(3));
    assert_eq!(get(&mut head, 2), None);
    assert_eq!([get(&mut head, 1), get(&mut head, 1)], [Some(1), Some(2)]);
    assert!(head.reap().is_some());
    assert!(enqueue(&mut head, 4, 1).is_none());
}

#[test]
fn what_is_taken_back_is_not_served() {
    let mut head = Head::new(Mock::plain(), 0);
    let mut item = req(9);
    let place = item.register();
    let queued = head.drive_enqueue(item, &Attrs::UNKNOWN, |own| *own == 0, 5);
    let (ticket, _) = queued.ok().unwrap();
    let mut item = head.drive_dequeue(&ticket, &place, 6).unwrap();
    assert!(head.drive_dequeue(&ticket, &place, 6).is_none());
    item.unregister(place);
    assert_eq!((item.id, get(&mut head, 0)), (9, None));
}
