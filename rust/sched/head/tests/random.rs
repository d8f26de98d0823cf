// SPDX-License-Identifier: GPL-2.0-only

//! Random sequences of operations on a head.

use super::*;
use crate::sched::rng::Rng;
use std::collections::HashSet;

/// Returns true if the ticket does not belong to the instance that takes new requests.
fn stale(head: &TestHead, ticket: &HeadTicket) -> bool {
    ticket.place != head.primary || head.find(ticket.instance()).is_none()
}

#[test]
fn random_sequences() {
    for seed in 1..=300u64 {
        let mut random = Rng::new(seed);
        let mut head = TestHead::new(Mock::plain(), 0);
        // In some runs serial numbers wrap.
        head.serial = (random.below(6) as u32).wrapping_neg();
        let mut kept = vec![head.classify(&attrs(0), 0)];
        let (mut queued, mut started) = (HashSet::new(), vec![]);
        let (mut next, mut tag, mut now) = (1u64, 0u32, 0u64);
        let (mut installed, mut reaped) = (0, 0);
        for _ in 0..2000 {
            now += random.below(3);
            match random.below(100) {
                0..=34 => {
                    let at = attrs(random.below(8));
                    // A ticket of any age, as from a cache.
                    let ticket = match random.below(3) {
                        0 => kept[random.below(kept.len() as u64) as usize],
                        _ => head.classify(&at, now),
                    };
                    let ticket = match head.is_live(&ticket)
                        || random.below(2) == 0 && stale(&head, &ticket)
                    {
                        true => ticket,
                        false => head.classify(&at, now),
                    };
                    kept.push(ticket);
                    let got = head.enqueue(req(next), ticket, || at, now).unwrap();
                    assert!(head.find(got.instance()).is_some_and(|i| !i.stopping));
                    queued.insert(next);
                    next += 1;
                }
                35..=64 => {
                    // Tags grow like serial numbers. With force the oldest stopping instance is
                    // served first.
                    let stopping = head
                        .instances()
                        .filter(|s| s.state == PolicyState::Stopping);
                    let with_queued = stopping.filter(|s| s.queued > 0);
                    let oldest = with_queued.map(|s| *s.tag).min();
                    let may_go = |i: &&PolicyInstance<Mock, u32>| {
                        i.queued > 0 && i.part.throttled(now).is_none()
                    };
                    let may_go: Vec<_> = head.iter().filter(may_go).map(|i| i.id).collect();
                    let is_running =
                        |id: &&InstanceId| head.find(**id).is_some_and(|i| !i.stopping);
                    let running = may_go.iter().filter(is_running).count();
                    let (others, old) = (running > 0, running < may_go.len());
                    let (full, turn) = (head.can_install().is_err(), !head.stopping_last);
                    let force = random.below(10) == 0;
                    let contended = random.below(4) == 0;
                    let view = PartView { force, ..view(now) };
                    match head.get(&view, || contended) {
                        Decision::Item((item, ticket)) => {
                            assert!(queued.remove(&item.id), "{} came out twice", item.id);
                            let from = head.find(ticket.instance()).unwrap();
                            if force {
                                assert!(oldest.is_none_or(|tag| from.stopping && from.tag == tag));
                            } else if from.stopping {
                                // Served in its turn and within its limits while another instance
                                // has eligible requests.
                                assert!(turn || !others);
                                assert!(may_go.contains(&from.id) || !others && !contended || full);
                            } else {
                                assert!(others && !(turn && old));
                            }
                            started.push((item, ticket));
                        }
                        Decision::Empty => assert!(queued.is_empty()),
                        Decision::Throttled { until } => {
                            assert!(!queued.is_empty() && until > now && !force);
                            assert_eq!(head.fallback.queued, 0);
                        }
                    }
                }
                65..=89 if !started.is_empty() => {
                    let index = random.below(started.len() as u64) as usize;
                    let (_, ticket) = started.swap_remove(index);
                    assert!(head.find(ticket.instance()).is_some_and(|i| i.active > 0));
                    head.stop(&ticket, COST, now);
                }
                90..=91 => {
                    let manner = MockBehaviour {
                        declines: [None, Some(2), Some(3)][random.below(3) as usize],
                        until: now + random.below(60),
                        every: random.below(3) * 5,
                        broken: false,
                    };
                    tag += 1;
                    let room = head.can_install().is_ok();
                    let done = head.install(Mock::new(manner), tag);
                    assert_eq!(done.is_ok(), room);
                    installed += u32::from(room);
                }
                92 => head.drop_primary(),
                93..=95 => {
                    if let Some(part) = head.reap() {
                        assert!(part.queue.is_empty());
                        assert!(part.stopped <= part.inside + part.passed);
                        reaped += 1;
                    }
                }
                96..=97 => {
                    let ticket = head.classify(&attrs(random.below(8)), now);
                    let active = head.active();
                    let _ = pass(&mut head, &ticket);
                    head.stop(&ticket, COST, now);
                    assert_eq!(head.active(), active);
                }
                98 if head.queued() == 0 && started.is_empty() => {
                    // Classes are replaced while they are empty.
                    head.parts_mut().for_each(|(_, part)| part.renew());
                }
                _ => {}
            }
            let all: Vec<_> = head.instances().collect();
            assert!(all.len() <= MAX_INSTANCES);
            assert!(all[0].fallback && all[0].state == PolicyState::Started);
            let primaries = all[1..].iter().filter(|s| s.state == PolicyState::Started);
            assert!(primaries.count() <= 1 && all[1..].iter().all(|s| !s.fallback));
            assert_eq!(head.queued() as usize, queued.len());
            assert_eq!(head.active() as usize, started.len());
            let stopping = head.iter().filter(|i| i.stopping).count();
            assert_eq!(usize::from(head.stopping), stopping);
            assert!(head.iter().all(|i| i.queued == i.part.len()));
        }
        // At the end, all requests are dispatched, and all instances but the fallback are reaped.
        head.drop_primary();
        for (_, ticket) in started.drain(..) {
            head.stop(&ticket, COST, now);
        }
        for number in drain(&mut head, now) {
            assert!(queued.remove(&number));
        }
        assert!(queued.is_empty());
        while head.reap().is_some() {
            reaped += 1;
        }
        assert_eq!(installed, reaped);
        assert_eq!(shown(&head), [("started", 0, 0, 0)]);
    }
}
