// SPDX-License-Identifier: GPL-2.0-only

//! Partition of a server: the state that the kernel protects by a lock, and a timer.

use super::item::{Item, Record};
use nrs_sched::{
    attr::Priority,
    mem::{Need, Owned},
    order::Order,
    partition::{head_cache::HeadCache, ident::Ident, PartitionMachine},
    policy::{AnyPart, AnyShared, Config, Kind, Part, Tunables},
    rng::avalanche,
};

/// Maximum number of ageing steps for a part in one run of the worker.
const AGE_ROUNDS: u32 = 64;

/// Classes to visit in one ageing or refresh step.
const ROWS: u32 = nrs_sched::policy::ROWS as u32;

/// Partition with its timer.
pub struct SimPartition {
    /// State of the partition.
    pub machine: PartitionMachine<Item, AnyPart<Item>, Config>,
    /// Expiry time of the timer, ns; 0 if it is not armed.
    pub timer: u64,
    /// True if the class depends on the file.
    by_object: bool,
}

impl SimPartition {
    /// Creates a partition at `now`, ns, with `part`, which was started with `config`.
    ///
    /// # Panics
    ///
    /// Panics if memory is exhausted.
    pub fn new(config: Config, part: AnyPart<Item>, now: u64) -> Self {
        let fifo = Config::parse(Kind::FALLBACK, None, &Tunables::default()).expect("no argument");
        let shared = AnyShared::new(&fifo, 0, 1).expect("memory");
        let head = || {
            let fallback = AnyPart::new(&fifo, 0, &shared).expect("memory");
            HeadCache::new(fallback, fifo).expect("memory")
        };
        // No request is ordered.
        let order = Order::new(1, 0).and_then(Owned::new).expect("memory");
        let mut machine = PartitionMachine::new(head(), head(), order, 1, now);
        if config.kind() != Kind::FALLBACK {
            let head = machine.head(Priority::Regular);
            assert!(head.install(part, config).is_ok(), "all places are free");
        }
        Self {
            machine,
            timer: 0,
            by_object: AnyPart::<Item>::wants_file(config.kind()),
        }
    }

    /// Returns the part that schedules: the last one of the head.
    pub fn part(&mut self) -> &mut AnyPart<Item> {
        let parts = self.machine.head(Priority::Regular).parts_mut();
        let (_, part) = parts.last().expect("there is a fallback");
        part
    }

    /// Returns the values on which the class of `record` depends.
    pub fn ident(&self, record: &Record) -> Ident {
        let object = if self.by_object { record.object } else { 0 };
        let client = (u64::from(record.node) << 2) | record.op as u64;
        [avalanche(client), object, 0, 0, 0]
    }

    /// Does the worker's tasks for the parts: evicts idle classes and allocates memory.
    ///
    /// # Panics
    ///
    /// Panics if memory is exhausted.
    pub fn maintain(&mut self, now: u64) {
        for (_, part) in self.machine.head(Priority::Regular).parts_mut() {
            for _ in 0..AGE_ROUNDS {
                if !part.age(now, ROWS) {
                    break;
                }
            }
            let need = part.need();
            if !need.is_empty() {
                drop(part.grow(need.allocate().expect("memory")));
            }
        }
    }

    /// Refreshes all classes after an update or new counts.
    pub fn refresh(&mut self, now: u64) {
        let part = self.part();
        let mut from = Some(0);
        while let Some(class) = from {
            from = part.refresh(class, ROWS, now);
        }
    }

    /// Refreshes the classification of clients and the classes if the part requests a refresh at
    /// `now`.
    pub fn refresh_cache(&mut self, now: u64) {
        if self.part().wants_refresh(now) {
            self.machine.refresh_cache(Priority::Regular, now);
            self.refresh(now);
        }
    }
}
