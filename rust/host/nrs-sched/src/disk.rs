// SPDX-License-Identifier: GPL-2.0-only

//! A disk in simulated time, and clients that read from it through a part.
//!
//! # Model
//!
//! A disk of 7,200 revolutions a minute and 4 TiB, one request at a time:
//!
//! ```text
//! time = seek + rotation + transfer
//!
//! seek      0.6 ms + 13.7 ms * sqrt(distance / 4 TiB); 8.5 ms for a third of the disk, 14.3 ms for all of it;
//!           0 within a track
//! rotation  until the first byte is below the head; a revolution is 8.333 ms
//! transfer  200 MB/s, so a track has 1.667 MB
//! ```
//!
//! The square root is that of an arm which speeds up for half of the way and slows down for the other half
//! (C. Ruemmler, J. Wilkes, "An introduction to disk drive modeling", IEEE Computer 27(3), 1994; their
//! linear part for long ways is left out). A request that begins where the last one ended costs its transfer
//! only, as disks read ahead. There is no queue in the disk: what is compared is the order that the part
//! decides.

use crate::{
    arena::{feed, view, Request},
    attr::Attrs,
    item::{Direction, Item, Spot},
    policy::{AnyPart, Get, Part},
    rng::Rng,
};
use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
};

pub mod loads;

/// Bytes of the disk.
pub const CAPACITY: u64 = 1 << 42;

/// A revolution, ns.
pub const REVOLUTION: u64 = 8_333_333;

/// Bytes that pass below the head in a second.
pub const RATE: u64 = 200_000_000;

/// Bytes of a track.
const TRACK: u64 = 1_666_666;

/// The time a seek over `distance` bytes takes, ns.
pub fn seek(distance: u64) -> u64 {
    if distance < TRACK {
        return 0;
    }
    let part = distance as f64 / CAPACITY as f64;
    600_000 + (13_700_000.0 * part.sqrt()) as u64
}

/// A disk, and what it did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disk {
    /// Where the last request ended, bytes.
    end: u64,
    /// Requests served.
    pub requests: u64,
    /// Bytes read or written.
    pub bytes: u64,
    /// Requests that began where the last one ended.
    pub sequential: u64,
    /// Bytes that the head went over.
    pub distance: u64,
    /// Time that went into seeks, ns.
    pub seeking: u64,
    /// Time in which requests were served, ns.
    pub busy: u64,
}

impl Disk {
    /// Serves `spot` from `now` on; when that is done, ns.
    pub fn serve(&mut self, now: u64, spot: &Spot) -> u64 {
        let distance = spot.offset.abs_diff(self.end);
        let seeking = seek(distance);
        let mut time = seeking;
        if distance == 0 {
            self.sequential += 1;
        } else {
            let arrived = (now + seeking) % REVOLUTION;
            let first = (spot.offset % TRACK) * REVOLUTION / TRACK;
            time += (first + REVOLUTION - arrived) % REVOLUTION;
        }
        time += spot.length * 1_000_000_000 / RATE;
        self.end = spot.offset + spot.length;
        self.requests += 1;
        self.bytes += spot.length;
        self.distance += distance;
        self.seeking += seeking;
        self.busy += time;
        now + time
    }
}

/// Which parts of its file a client reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// One after the other.
    Sequential,
    /// Anywhere; the same places in every run.
    Random,
}

/// A client that reads a file, which lies in one piece on the disk.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    /// Who it is; object, offset and length of each request are filled in.
    pub attrs: Attrs,
    /// Where the file starts on the disk, bytes.
    pub start: u64,
    /// Bytes of the file.
    pub size: u64,
    /// Bytes of a request.
    pub length: u64,
    /// How it is read.
    pub pattern: Pattern,
    /// Requests that it keeps on their way or queued, at most.
    pub depth: u32,
    /// Requests in all.
    pub count: u64,
}

/// Clients, and how unpunctual they are.
#[derive(Clone, Debug)]
pub struct Load {
    /// The clients.
    pub streams: Vec<Stream>,
    /// A client begins up to so much after the others, ns.
    pub start: u64,
    /// A request is on its way for up to so long, ns.
    pub jitter: u64,
    /// The disk serves something else for so long before, ns.
    pub busy: u64,
    /// Draws both; nothing else.
    pub seed: u64,
}

/// A request as it was dispatched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dispatched {
    /// Whose it is.
    pub stream: usize,
    /// Where on the disk, bytes.
    pub offset: u64,
}

/// What became of a [`Load`].
#[derive(Clone, Debug)]
pub struct Outcome {
    /// All requests in the order in which they were dispatched.
    pub order: Vec<Dispatched>,
    /// The disk at the end.
    pub disk: Disk,
    /// How long it took, ns.
    pub time: u64,
    /// The longest time that a request was queued, ns.
    pub longest: u64,
    /// Bytes that each stream had got when the first one was through.
    pub early: Vec<u64>,
}

impl Outcome {
    /// Megabytes (10^6) per second.
    pub fn throughput(&self) -> f64 {
        self.disk.bytes as f64 * 1_000.0 / self.time as f64
    }

    /// Mean time of a seek, over all requests, ms.
    pub fn mean_seek(&self) -> f64 {
        self.disk.seeking as f64 / 1e6 / self.disk.requests as f64
    }
}

/// What a client has still to do.
struct Client {
    next: u64,
    places: Rng,
}

/// A run that goes on.
struct Run<'a> {
    part: &'a mut AnyPart<Request>,
    load: &'a Load,
    clients: Vec<Client>,
    noise: Rng,
    /// Requests on their way: when they arrive, whose, and which.
    coming: BinaryHeap<Reverse<(u64, usize, u64)>>,
    spots: HashMap<u64, Spot>,
}

impl Run<'_> {
    /// Client `stream` sends its next request at `now`, if there is one.
    fn send(&mut self, stream: usize, now: u64) {
        let of = &self.load.streams[stream];
        let client = &mut self.clients[stream];
        if client.next == of.count {
            return;
        }
        let number = client.next;
        client.next += 1;
        let within = of.size / of.length;
        let piece = match of.pattern {
            Pattern::Sequential => number % within,
            Pattern::Random => client.places.below(within),
        };
        let logical = piece * of.length;
        let spot = Spot {
            object: of.attrs.object,
            offset: of.start + logical,
            logical,
            length: of.length,
        };
        // Requests of one client do not overtake each other by much: what is late is late for all.
        let at = now + self.noise.below(self.load.jitter + 1);
        let id = ((stream as u64) << 40) | number;
        self.spots.insert(id, spot);
        self.coming.push(Reverse((at, stream, id)));
    }

    /// Queues what has arrived at `now`.
    fn receive(&mut self, now: u64) {
        while let Some(&Reverse((at, stream, id))) = self.coming.peek() {
            if at > now {
                return;
            }
            self.coming.pop();
            let spot = self.spots.remove(&id).expect("sent once");
            let attrs = Attrs {
                offset: spot.logical,
                length: spot.length,
                ..self.load.streams[stream].attrs
            };
            feed(self.part);
            let class = self.part.classify(&attrs, at);
            let request = Request {
                owner: stream as u32,
                id,
                pages: (spot.length / 4096) as u32,
                arrival: at,
                spot,
                direction: Direction::Read,
                ..Request::default()
            };
            let queued = self.part.enqueue(request, class, at);
            assert!(queued.is_ok(), "the policy declines it");
        }
    }
}

/// Serves all of `load` through `part`, one request after the other.
///
/// # Panics
///
/// The policy declines a request, or loses one.
pub fn run(part: &mut AnyPart<Request>, load: &Load) -> Outcome {
    /// When it begins, ns: no policy should care.
    const START: u64 = 3_600_000_000_000;
    let client = |stream: usize| Client {
        next: 0,
        places: Rng::new(stream as u64),
    };
    let mut run = Run {
        part,
        load,
        clients: (0..load.streams.len()).map(client).collect(),
        noise: Rng::new(load.seed),
        coming: BinaryHeap::new(),
        spots: HashMap::new(),
    };
    for stream in 0..load.streams.len() {
        let from = START + run.noise.below(load.start + 1);
        (0..load.streams[stream].depth).for_each(|_| run.send(stream, from));
    }
    let total: u64 = load.streams.iter().map(|stream| stream.count).sum();
    let mut outcome = Outcome {
        order: Vec::with_capacity(total as usize),
        disk: Disk::default(),
        time: 0,
        longest: 0,
        early: Vec::new(),
    };
    let mut bytes = vec![0; load.streams.len()];
    let mut now = START + load.busy;
    while (outcome.order.len() as u64) < total {
        run.receive(now);
        match run.part.get(&view(now, false)) {
            Get::Item((request, grant)) => {
                let stream = request.owner as usize;
                outcome.order.push(Dispatched {
                    stream,
                    offset: request.spot.offset,
                });
                outcome.longest = outcome.longest.max(now - request.arrival);
                bytes[stream] += request.spot.length;
                let of = &load.streams[stream];
                if outcome.early.is_empty() && bytes[stream] == of.count * of.length {
                    outcome.early = bytes.clone();
                }
                now = outcome.disk.serve(now, &request.spot);
                run.receive(now);
                run.part.stop(&grant, request.cost(), now);
                run.send(stream, now);
            }
            Get::Throttled { until } => now = until,
            Get::Empty => {
                let Reverse((at, ..)) = run.coming.peek().expect("no request is lost");
                now = now.max(*at);
            }
        }
    }
    outcome.time = now - START;
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(got: u64, want: u64) {
        assert!(got.abs_diff(want) * 1_000 <= want, "{got} for {want}");
    }

    #[test]
    fn seeks() {
        assert_eq!((seek(0), seek(TRACK - 1)), (0, 0));
        near(seek(TRACK), 608_400);
        near(seek(CAPACITY / 3), 8_509_000);
        near(seek(CAPACITY), 14_300_000);
    }

    /// From the start of the disk to its end at the rate of transfer; elsewhere half a revolution more on
    /// average.
    #[test]
    fn requests() {
        let mut disk = Disk::default();
        let mut now = 0;
        let spot = |offset| Spot::new(0, offset, 1 << 20);
        for i in 0..1_000 {
            now = disk.serve(now, &spot(i << 20));
        }
        near(now, 1_000 * ((1 << 20) * 5));
        assert_eq!((disk.sequential, disk.seeking), (1_000, 0));
        let mut rng = Rng::new(1);
        let (before, start) = (disk.seeking, now);
        for _ in 0..10_000 {
            now = disk.serve(now, &spot(rng.below(CAPACITY >> 20) << 20));
        }
        let rotation = (now - start) - (disk.seeking - before) - 10_000 * ((1 << 20) * 5);
        assert!((rotation / 10_000).abs_diff(REVOLUTION / 2) < REVOLUTION / 50);
        assert_eq!(disk.requests, 11_000);
    }
}
