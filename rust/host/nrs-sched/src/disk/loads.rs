// SPDX-License-Identifier: GPL-2.0-only

//! What is compared on the simulated disk: policies, and work that is hard on a disk.

use super::{run, Load, Outcome, Pattern, Stream, CAPACITY};
use crate::{
    arena::lone_part,
    attr::{Attrs, Id},
    jobid::JobId,
    nid::Nid,
    policy::{fairshare::params::Locality, Config, Kind, Tunables},
};

/// Client `i` of user `uid`, which reads object `object`; everything about it is known but streams.
fn client(i: u32, uid: u32, object: u64) -> Attrs {
    Attrs {
        nid: Nid::parse(&format!("10.0.{}.{}@tcp", i / 250, i % 250 + 1)).ok(),
        jobid: JobId::new(format!("read.{i}").as_bytes()),
        uid: Id::new(1_000 + uid),
        client: i + 1,
        object,
        ..Attrs::UNKNOWN
    }
}

/// Eight clients that read a file each from front to end, `count` requests of 128 KiB, `depth` ahead. The
/// files lie an eighth of the disk apart.
pub fn streams(depth: u32, count: u64) -> Vec<Stream> {
    let stream = |i: u32| Stream {
        attrs: client(i, i, 100 + u64::from(i)),
        start: CAPACITY / 8 * u64::from(i),
        size: count * (128 << 10),
        length: 128 << 10,
        pattern: Pattern::Sequential,
        depth,
        count,
    };
    (0..8).map(stream).collect()
}

/// 64 clients of four users that read anywhere in an object each, `count` requests of 64 KiB, `depth` ahead.
/// The objects have 1 GiB and lie a 64th of the disk apart, in an order that has nothing to do with their
/// numbers.
pub fn random(depth: u32, count: u64) -> Vec<Stream> {
    let stream = |i: u32| Stream {
        attrs: client(i, i % 4, 100 + u64::from(i)),
        start: CAPACITY / 64 * u64::from(i * 37 % 64),
        size: 1 << 30,
        length: 64 << 10,
        pattern: Pattern::Random,
        depth,
        count,
    };
    (0..64).map(stream).collect()
}

/// A client that reads anywhere on the disk, 64 KiB at a time; nobody knows of objects.
pub fn scattered(depth: u32, count: u64) -> Vec<Stream> {
    vec![Stream {
        attrs: client(0, 0, 0),
        start: 0,
        size: CAPACITY,
        length: 64 << 10,
        pattern: Pattern::Random,
        depth,
        count,
    }]
}

/// A policy with its settings.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// What it is called in tables.
    pub name: &'static str,
    kind: Kind,
    locality: Locality,
}

impl Candidate {
    /// Those to compare.
    ///
    /// # Panics
    ///
    /// A policy is not there.
    pub fn all() -> Vec<Self> {
        [
            ("fifo", "fifo", Locality::Off),
            ("crrn", "crrn", Locality::Off),
            ("fairshare", "fairshare", Locality::Off),
            ("fairshare, locality", "fairshare", Locality::On),
            ("orr", "orr", Locality::Off),
            ("trr", "trr", Locality::Off),
        ]
        .map(|(name, kind, locality)| Self {
            name,
            kind: Kind::from_name(kind).expect("a policy"),
            locality,
        })
        .to_vec()
    }

    /// Serves `streams`, with a millisecond of noise.
    ///
    /// # Panics
    ///
    /// There is no memory.
    pub fn serve(&self, streams: &[Stream]) -> Outcome {
        let mut tunables = Tunables::default();
        tunables.fairshare.locality = self.locality;
        let argument = (self.kind == Kind::Fairshare).then_some("uid_fair");
        let config = Config::parse(self.kind, argument, &tunables).expect("valid");
        let mut part = lone_part(&config, 1).expect("memory");
        let load = Load {
            streams: streams.to_vec(),
            start: 5_000_000,
            jitter: 1_000_000,
            busy: 0,
            seed: 1,
        };
        run(&mut part, &load)
    }
}
