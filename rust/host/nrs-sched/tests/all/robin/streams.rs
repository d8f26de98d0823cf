// SPDX-License-Identifier: GPL-2.0-only

//! Reproducible order of offset streams in spite of noise.
//!
//! # The model
//!
//! A disk with one head serves requests in the order of their dispatch. A request takes 0.2 ms if
//! it starts where the last one ended, and 5 ms otherwise. Eight clients read one sequential stream
//! each and keep 32 requests outstanding. The next request is submitted when one has ended, and
//! arrives after a random time. Two runs differ only in these times.

use crate::bench::read;
use nrs_sched::{
    arena::{feed, lone_part, view, Request},
    attr::Attrs,
    item::{ByteRange, Item},
    policy::{AnyPart, Config, Decision, Grant, Kind, Part, Tunables},
    rng::Rng,
};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
};

const STREAMS: u64 = 8;
const DEPTH: u64 = 32;
/// Number of requests of a stream.
const EACH: u64 = 4096;
const SEQUENTIAL_NS: u64 = 200_000;
const SEEK_NS: u64 = 5_000_000;

/// Attribute that identifies a stream.
#[derive(Clone, Copy, Debug)]
enum By {
    Object,
    Hint,
}

/// An event at a time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrival { stream: u64, number: u64 },
    End { id: u64 },
}

struct StreamSim {
    part: AnyPart<Request>,
    by: By,
    rng: Rng,
    jitter_ns: u64,
    events: BinaryHeap<Reverse<(u64, Event)>>,
    next: [u64; STREAMS as usize],
    active: BTreeMap<u64, (Request, Grant)>,
    /// Position of the head, and time at which all dispatched requests end.
    head: (u64, u64),
    order: Vec<u64>,
}

impl StreamSim {
    fn new(kind: Kind, by: By, jitter_ns: u64, seed: u64) -> Self {
        let config = Config::parse(kind, None, &Tunables::default()).expect("valid");
        let mut sim = Self {
            part: lone_part(&config, 1).expect("memory"),
            by,
            rng: Rng::new(seed),
            jitter_ns,
            events: BinaryHeap::new(),
            next: [0; STREAMS as usize],
            active: BTreeMap::new(),
            head: (u64::MAX, 0),
            order: Vec::new(),
        };
        for stream in 0..STREAMS {
            (0..DEPTH).for_each(|_| sim.send(stream, 0));
        }
        sim
    }

    /// Submits the next request of `stream`.
    fn send(&mut self, stream: u64, now: u64) {
        let next = &mut self.next[stream as usize];
        if *next == EACH {
            return;
        }
        let at = now + self.rng.below(self.jitter_ns + 1);
        let number = *next;
        self.events
            .push(Reverse((at, Event::Arrival { stream, number })));
        *next += 1;
    }

    /// Handles the arrival of a request.
    fn arrive(&mut self, stream: u64, number: u64, now: u64) {
        let attrs = match self.by {
            By::Object => Attrs {
                object: 100 + stream,
                ..Attrs::UNKNOWN
            },
            By::Hint => Attrs {
                stream: 1 + stream,
                object: number,
                ..Attrs::UNKNOWN
            },
        };
        let class = self.part.classify(&attrs, now);
        let request = Request {
            id: stream * EACH + number,
            owner: stream as u32,
            arrival: now,
            range: ByteRange::new(0, (stream << 40) | (number << 16), 1 << 16),
            ..read(0)
        };
        let queued = self.part.enqueue(request, class, now);
        queued.expect("reads are taken");
        feed(&mut self.part);
    }

    /// Dispatches while slots are free.
    fn dispatch(&mut self, slots: usize, now: u64) {
        while self.active.len() < slots {
            let Decision::Item((request, grant)) = self.part.get(&view(now, false)) else {
                return;
            };
            let range = request.range;
            self.order.push(range.offset);
            let time = match self.head.0 == range.offset {
                true => SEQUENTIAL_NS,
                false => SEEK_NS,
            };
            let end = self.head.1.max(now) + time;
            self.head = (range.offset + range.length, end);
            self.events
                .push(Reverse((end, Event::End { id: request.id })));
            self.active.insert(request.id, (request, grant));
        }
    }

    /// Returns the offsets in the order of dispatch, and the total time, ns.
    fn run(mut self, slots: usize) -> (Vec<u64>, u64) {
        let mut last = 0;
        while let Some(Reverse((now, event))) = self.events.pop() {
            last = now;
            match event {
                Event::Arrival { stream, number } => self.arrive(stream, number, now),
                Event::End { id } => {
                    let (request, grant) = self.active.remove(&id).expect("in service");
                    self.part.stop(&grant, request.cost(), now);
                    self.send(u64::from(request.owner), now);
                }
            }
            self.dispatch(slots, now);
        }
        assert_eq!(self.order.len() as u64, STREAMS * EACH);
        (self.order, last)
    }
}

/// Returns the fraction of equal positions in two sequences, and the time of the first, ns.
fn alike(kind: Kind, by: By, slots: usize, jitter_ns: u64) -> (f64, u64) {
    let run = |seed| StreamSim::new(kind, by, jitter_ns, seed).run(slots);
    let ((one, time), (other, _)) = (run(1), run(2));
    let same = one.iter().zip(&other).filter(|(a, b)| a == b).count();
    (same as f64 / one.len() as f64, time)
}

/// Checks that two runs agree to at least 95 %. Two runs with `fifo` have less than a tenth in
/// common, and take ten times as long.
#[test]
fn two_runs_are_alike() {
    for by in [By::Object, By::Hint] {
        for (slots, jitter_ns) in [
            (1, 100_000),
            (1, 500_000),
            (1, 1_000_000),
            (1, 3_000_000),
            (4, 100_000),
            (4, 1_000_000),
        ] {
            let (orr, time) = alike(Kind::Orr, by, slots, jitter_ns);
            let (fifo, longer) = alike(Kind::Fifo, by, slots, jitter_ns);
            println!(
                "{by:?}, {slots} slots, up to {jitter_ns} ns: orr {:.1} % in {:.1} s, \
                 fifo {:.1} % in {:.1} s",
                orr * 100.0,
                time as f64 / 1e9,
                fifo * 100.0,
                longer as f64 / 1e9,
            );
            assert!(orr >= 0.95, "{orr}");
            assert!(fifo < 0.1, "{fifo}");
            assert!(time * 10 < longer, "{time} {longer}");
        }
    }
}
