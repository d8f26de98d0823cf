// SPDX-License-Identifier: GPL-2.0-only

//! Client round robin: every client gets the same number of requests dispatched, a batch at a time.
//!
//! A class is a client, identified by its network identifier, or else by the number from the
//! front-end; requests without a client form one class. The requests of a class are in the order of
//! arrival. [`super::robin`] defines the order of classes.

use super::robin::{self, plain::Plain, Bounds, Robin, TieBreak, Tuned};
use crate::sched::{
    attr::{Attrs, Priority},
    item::Item,
    key::{Hashed, Hasher, Key},
    nid::Nid,
    parameters::schema::parameters,
    policy::{params::ClassesMax, Tuning},
};

pub use crate::sched::policy::{
    Nothing as Counts, Nothing as PolicyData, Nothing as Overseer, Nothing as Shared,
};

parameters! {
    /// Parameters of the policy, kept across stops and starts.
    pub struct Tunables of |values| values.policies.crrn, "crrn.md", "ENOMEM" {
        /// Requests of one client in a batch.
        "nrs_crrn_quantum" quantum: [heads "quantum" number Quantum, "requests, ", 1..=65_535 = 8],
    }
    also {
        /// Largest number of classes in the table.
        classes_max: ClassesMax,
    }
    texts {}
}

impl Tuning for Tunables {
    fn set_classes_max(&mut self, max: ClassesMax) {
        self.classes_max = max;
    }
}

impl Tuned for Tunables {
    type Setting = ();

    fn quantum(&self, priority: Priority) -> u32 {
        self.quantum.of(priority).get()
    }

    fn setting(&self, _priority: Priority) {}

    /// Returns the limits; requests need no memory beside their own.
    fn bounds(&self) -> Bounds {
        Bounds {
            classes: self.classes_max.get(),
            requests: 0,
        }
    }
}

/// Configuration of a part.
pub type Config = robin::Config<Tunables>;

/// Update of a running part.
pub type Update = robin::Update<()>;

/// Round robin over clients on one head.
pub type State<I> = robin::State<I, Crrn>;

/// Client, the key of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrrnClient {
    /// Requests for which no class could be created.
    Default,
    /// Client with a network identifier.
    Nid(Nid),
    /// Client with a number in the service; 0 for requests without a client.
    Number(u32),
}

impl Hashed for CrrnClient {
    fn mix(&self, hasher: &Hasher) -> u64 {
        match self {
            Self::Default => hasher.word(u64::MAX),
            Self::Nid(nid) => Key::Nid(*nid).mix(hasher),
            Self::Number(number) => hasher.mix(hasher.word(1 << 32), u64::from(*number)),
        }
    }
}

/// Round robin over clients.
pub enum Crrn {}

impl<I: Item> Robin<I> for Crrn {
    type Key = CrrnClient;
    type Store = Plain<I>;
    type Tunables = Tunables;

    const TIES: TieBreak = TieBreak::Sequence;
    const DEFAULT: CrrnClient = CrrnClient::Default;

    fn key(attrs: &Attrs) -> CrrnClient {
        match attrs.nid {
            Some(nid) => CrrnClient::Nid(nid),
            None => CrrnClient::Number(attrs.client),
        }
    }

    /// Returns a constant, because ties are broken by sequence.
    fn tie(_client: &CrrnClient) -> [u64; 2] {
        [0; 2]
    }
}
