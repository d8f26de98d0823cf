// SPDX-License-Identifier: GPL-2.0-only

//! Client round robin: every client gets the same number of requests served, a batch at a time.
//!
//! A class is a client: who has a network identifier is known by it, the others by the number that the
//! front-end gave them; requests of nobody are one class. In a class the order is that of arrival. How
//! turns are taken is [`super::robin`]'s.

use super::robin::{self, plain::Plain, Bounds, Robin, Ties, Tuned};
use crate::sched::{
    attr::{Attrs, Priority},
    item::Item,
    key::{Hashed, Hasher, Key},
    nid::Nid,
    parameters::schema::parameters,
    policy::{params::ClassesMax, Tuning},
};

pub use crate::sched::policy::{
    Nothing as Counts, Nothing as Kept, Nothing as Overseer, Nothing as Shared,
};

parameters! {
    /// What users can set; it survives stops and starts.
    pub struct Tunables of |values| values.policies.crrn, "crrn.md", "ENOMEM" {
        /// Requests of one client in a batch.
        "nrs_crrn_quantum" quantum: [heads "quantum" number Quantum, "requests, ", 1..=65_535 = 8],
    }
    also {
        /// Bound of the class table.
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

    /// No request needs more memory than it brings.
    fn bounds(&self) -> Bounds {
        Bounds {
            classes: self.classes_max.get(),
            requests: 0,
        }
    }
}

/// How a part was started.
pub type Config = robin::Config<Tunables>;

/// What a running part is told.
pub type Update = robin::Update<()>;

/// Round robin over clients on one head.
pub type State<I> = robin::State<I, Crrn>;

/// A client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// All that no class could be made for.
    Default,
    /// By its network identifier.
    Nid(Nid),
    /// By its number in the service; 0: nobody.
    Number(u32),
}

impl Hashed for Client {
    fn mix(&self, hasher: &Hasher) -> u64 {
        match self {
            Self::Default => hasher.word(u64::MAX),
            Self::Nid(nid) => Key::Nid(*nid).mix(hasher),
            Self::Number(number) => hasher.mix(hasher.word(1 << 32), u64::from(*number)),
        }
    }
}

/// The policy.
pub enum Crrn {}

impl<I: Item> Robin<I> for Crrn {
    type Key = Client;
    type Store = Plain<I>;
    type Tunables = Tunables;

    const TIES: Ties = Ties::Sequence;
    const DEFAULT: Client = Client::Default;

    fn key(attrs: &Attrs) -> Client {
        match attrs.nid {
            Some(nid) => Client::Nid(nid),
            None => Client::Number(attrs.client),
        }
    }

    /// Ties are broken by sequence.
    fn tie(_client: &Client) -> [u64; 2] {
        [0; 2]
    }
}
