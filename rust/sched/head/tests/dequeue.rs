// SPDX-License-Identifier: GPL-2.0-only

//! Tests of removal from the middle of a queue, and of changed tags.

use super::*;

#[test]
fn a_request_is_taken_out_of_the_middle() {
    let mut head = Head::new(Mock::plain(), "fallback");
    head.install(Mock::plain(), "primary").ok().unwrap();
    let mut places = Vec::new();
    for name in 0..4 {
        let attrs = move || Attrs {
            object: name,
            ..Attrs::UNKNOWN
        };
        let ticket = head.classify(&attrs(), 0);
        let mut req = req(name);
        let place = req.register();
        places.push((head.enqueue(req, ticket, attrs, 0).unwrap(), place));
    }
    let (ticket, place) = &places[2];
    let mut req = head.dequeue(ticket, place, 0).unwrap();
    assert_eq!((req.id, head.queued()), (2, 3));
    assert!(head.dequeue(ticket, place, 0).is_none());
    let (ticket, place) = places.remove(2);
    req.unregister(place);
    // The ticket of an instance that does not exist finds nothing.
    let stale = HeadTicket {
        serial: 77,
        ..ticket
    };
    assert!(head.dequeue(&stale, &places[0].1, 0).is_none());
    let mut seen = Vec::new();
    let view = PartView {
        now: 0,
        force: false,
        table: None,
    };
    while let Decision::Item((req, _)) = head.get(&view, || false) {
        seen.push(req.id);
    }
    assert_eq!((seen, head.queued()), (vec![0, 1, 3], 0));
}

#[test]
fn a_new_tag_is_that_of_running_instances_only() {
    let mut head = Head::new(Mock::plain(), "old");
    head.install(Mock::plain(), "old").ok().unwrap();
    head.install(Mock::plain(), "old").ok().unwrap();
    head.retag(&"old", &"new");
    let tags: Vec<_> = head.instances().map(|one| (*one.tag, one.state)).collect();
    assert_eq!(
        tags,
        [
            ("old", PolicyState::Started),
            ("old", PolicyState::Stopping),
            ("new", PolicyState::Started)
        ]
    );
}
