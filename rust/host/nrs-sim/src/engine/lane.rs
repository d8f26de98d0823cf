// SPDX-License-Identifier: GPL-2.0-only

//! One partition of a server: what the kernel protects by a lock, and its timer.

use super::item::{Item, Record};
use nrs_sched::{
    attr::Priority,
    mem::{Need, Owned},
    order::Order,
    partition::{lane, Machine},
    policy::{AnyPart, AnyShared, Config, Kind, Part, Tunables},
    rng::avalanche,
};

/// How often one run of the worker has a part forget what is idle, at most.
const AGE_ROUNDS: u32 = 64;

/// Classes that are looked at in one go.
const ROWS: u32 = nrs_sched::policy::ROWS as u32;

/// A partition and its timer.
pub struct Lane {
    /// The partition.
    pub machine: Machine<Item, AnyPart<Item>, Config>,
    /// When the timer expires, ns; 0: it does not.
    pub timer: u64,
    /// The file makes the class, too.
    by_object: bool,
}

impl Lane {
    /// Creates a partition that serves with `part`, which was started with `config`, at `now`, ns.
    ///
    /// # Panics
    ///
    /// There is no memory.
    pub fn new(config: Config, part: AnyPart<Item>, now: u64) -> Self {
        let fifo = Config::parse(Kind::FALLBACK, None, &Tunables::default()).expect("no argument");
        let shared = AnyShared::new(&fifo, 0, 1).expect("memory");
        let lane = || {
            let fallback = AnyPart::new(&fifo, 0, &shared).expect("memory");
            lane::Lane::new(fallback, fifo).expect("memory")
        };
        // No request is ordered.
        let order = Order::new(1, 0).and_then(Owned::new).expect("memory");
        let mut machine = Machine::new(lane(), lane(), order, 1, now);
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

    /// The part that serves.
    pub fn part(&mut self) -> &mut AnyPart<Item> {
        let parts = self.machine.head(Priority::Regular).parts_mut();
        let (_, part) = parts.last().expect("there is a fallback");
        part
    }

    /// What the class of `record` depends on.
    pub fn ident(&self, record: &Record) -> lane::Ident {
        let object = if self.by_object { record.object } else { 0 };
        let client = (u64::from(record.node) << 2) | record.op as u64;
        [avalanche(client), object, 0, 0, 0]
    }

    /// What the worker does for a part: forgets what is idle and brings memory.
    ///
    /// # Panics
    ///
    /// There is no memory.
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

    /// Has all classes follow what was told or counted.
    pub fn refresh(&mut self, now: u64) {
        let part = self.part();
        let mut from = Some(0);
        while let Some(slot) = from {
            from = part.refresh(slot, ROWS, now);
        }
    }

    /// Has clients classified again from time to time, and classes follow what was counted, if the part wants that.
    pub fn refresh_cache(&mut self, now: u64) {
        if self.part().wants_refresh(now) {
            self.machine.refresh_cache(Priority::Regular, now);
            self.refresh(now);
        }
    }
}
