// SPDX-License-Identifier: GPL-2.0-only

//! What fairshare promises: equal shares of cost, soon, and nobody waits for long.

use nrs_sched::{
    arena::{lone_part, Request},
    attr::{Attrs, Id},
    class::ClassId,
    item::Item,
    mem::Need,
    policy::{
        fairshare,
        fairshare::params::{CostModel, Select},
        AnyPart, Config, Get, Kind, Part, Tunables, View,
    },
    ranges::Table,
    rng::Rng,
    stats::Rows,
};

fn attrs(uid: u32) -> Attrs {
    Attrs {
        uid: Id::new(uid),
        ..Attrs::UNKNOWN
    }
}

/// Entities in a closed loop: whoever is served brings the next request.
struct Loop {
    part: AnyPart<Request>,
    table: Option<Table>,
    classes: Vec<ClassId>,
    pages: Vec<u32>,
    queued: Vec<u32>,
    served: Vec<u64>,
    next: u64,
}

impl Loop {
    /// Entity `i` brings requests of `pages[i]` pages.
    fn new(select: Select, cost_model: CostModel, seed: u64, pages: &[u32]) -> Self {
        let mut tunables = Tunables::default();
        tunables.fairshare.select = select;
        tunables.fairshare.cost_model = cost_model;
        let config = Config::parse(Kind::Fairshare, Some("uid_fair"), &tunables).expect("valid");
        let mut part = lone_part(&config, seed).expect("memory");
        let mut classes = Vec::new();
        for uid in 0..pages.len() as u32 {
            while !part.need().is_empty() {
                let spare = part.need().allocate().expect("memory");
                part.grow(spare);
            }
            classes.push(part.classify(&attrs(uid), 0));
        }
        Self {
            part,
            table: None,
            classes,
            pages: pages.to_vec(),
            queued: vec![0; pages.len()],
            served: vec![0; pages.len()],
            next: 0,
        }
    }

    fn bring(&mut self, owner: usize) {
        let request = Request {
            owner: owner as u32,
            id: self.next,
            pages: self.pages[owner],
            arrival: self.next,
        };
        self.next += 1;
        self.queued[owner] += 1;
        let class = self.classes[owner];
        assert!(self.part.enqueue(request, class, self.next).is_ok());
    }

    /// Publishes shares, as the worker does every delta.
    fn publish(&mut self) {
        let mut rows = Rows::new();
        let mut buf = fairshare::RowBuf::new().expect("memory");
        let mut from = Some(0);
        while let Some(slot) = from {
            buf.clear();
            from = self
                .part
                .fairshare()
                .expect("fairshare")
                .rows(slot, &mut buf);
            rows.extend(buf.as_slice()).expect("memory");
        }
        rows.merge();
        self.table = Some(Table::build(rows.as_slice(), 1).expect("memory"));
    }

    /// Serves one request; returns its owner.
    fn serve(&mut self) -> Option<usize> {
        let view = View {
            now: self.next,
            force: false,
            table: self.table.as_ref(),
        };
        let Get::Item((request, class)) = self.part.get(&view) else {
            return None;
        };
        let owner = request.owner as usize;
        self.queued[owner] -= 1;
        self.served[owner] += u64::from(request.pages);
        self.part.stop(class, request.cost(), self.next);
        Some(owner)
    }

    /// Keeps eight requests of everybody queued and serves `count`.
    fn run(&mut self, count: u32) {
        for owner in 0..self.pages.len() {
            while self.queued[owner] < 8 {
                self.bring(owner);
            }
        }
        self.publish();
        for _ in 0..count {
            let owner = self.serve().expect("everybody has requests");
            self.bring(owner);
        }
    }

    /// Largest deviation from an equal share, percent.
    fn error(&self) -> f64 {
        let ideal = self.served.iter().sum::<u64>() as f64 / self.served.len() as f64;
        let worst = |pages: &u64| (*pages as f64 / ideal - 1.0).abs() * 100.0;
        self.served.iter().map(worst).fold(0.0, f64::max)
    }
}

#[test]
fn shares_converge() {
    let mixed = [1, 16, 256, 3, 64, 1, 128, 7];
    let cases: [(&str, Select, &[u32], u32, f64); 9] = [
        ("two", Select::Deadline, &[1; 2], 1_000, 0.2),
        ("eight", Select::Deadline, &[1; 8], 1_000, 0.5),
        ("4 KiB and 1 MiB", Select::Deadline, &[1, 256], 10_000, 2.0),
        ("mixed sizes", Select::Deadline, &mixed, 100_000, 0.5),
        ("two", Select::DeadlineMemory, &[1; 2], 1_000, 0.2),
        (
            "4 KiB and 1 MiB",
            Select::DeadlineMemory,
            &[1, 256],
            10_000,
            2.0,
        ),
        ("1,000", Select::Deadline, &[1; 1_000], 10_000, 10.0),
        // A binomial draw: four standard deviations.
        ("eight", Select::Random, &[1; 8], 10_000, 11.0),
        ("eight", Select::Paper, &[1; 8], 10_000, 11.0),
    ];
    for (name, select, pages, count, limit) in cases {
        for seed in 1..4 {
            let mut entities = Loop::new(select, CostModel::Pages, seed, pages);
            entities.run(count);
            let error = entities.error();
            assert!(error <= limit, "{name}, {select}, seed {seed}: {error} %");
        }
    }
}

#[test]
fn with_rpcs_a_share_is_a_share_of_requests() {
    let mut entities = Loop::new(Select::Deadline, CostModel::Rpcs, 1, &[1, 256]);
    entities.run(1_000);
    let requests: Vec<u64> = [1, 256]
        .iter()
        .zip(&entities.served)
        .map(|(p, s)| s / p)
        .collect();
    assert_eq!(requests, [500, 500]);
}

/// Nobody with queued work waits longer than three of its fair periods and one round: with n equal
/// entities a fair period is n of the largest request, and so is a round.
#[test]
fn nobody_waits_longer_than_the_bound() {
    const LARGEST: u32 = 256;
    for seed in 1..20 {
        let mut rng = Rng::new(seed);
        let pages: Vec<u32> = (0..8)
            .map(|_| [1, 16, LARGEST][rng.below(3) as usize])
            .collect();
        let mut entities = Loop::new(Select::Deadline, CostModel::Pages, seed, &pages);
        let n = pages.len() as u64;
        let bound = (3 * n + n) * u64::from(LARGEST);
        let mut on = vec![true; pages.len()];
        let mut waited = vec![0u64; pages.len()];
        let mut worst = 0;
        for _ in 0..20_000 {
            for (owner, on) in on.iter_mut().enumerate() {
                // Entities come and go.
                if rng.below(200) == 0 {
                    *on = !*on;
                }
                while *on && entities.queued[owner] < 4 {
                    entities.bring(owner);
                }
            }
            let Some(served) = entities.serve() else {
                continue;
            };
            for (owner, waited) in waited.iter_mut().enumerate() {
                if owner == served || entities.queued[owner] == 0 {
                    *waited = 0;
                } else {
                    *waited += u64::from(pages[served]);
                    worst = worst.max(*waited);
                }
            }
        }
        assert!(worst <= bound, "seed {seed}: {worst} of {bound} pages");
    }
}

/// A newcomer does not wait for the next delta.
#[test]
fn a_newcomer_is_served_within_a_round() {
    for select in [Select::Deadline, Select::DeadlineMemory] {
        let mut entities = Loop::new(select, CostModel::Pages, 1, &[1; 9]);
        entities.classes.rotate_right(1);
        for owner in 1..9 {
            for _ in 0..8 {
                entities.bring(owner);
            }
        }
        for _ in 0..5_000 {
            let owner = entities.serve().expect("work");
            entities.bring(owner);
        }
        entities.bring(0);
        let mut waited = 0;
        loop {
            match entities.serve() {
                Some(0) => break,
                Some(owner) => entities.bring(owner),
                None => panic!("work"),
            }
            waited += 1;
        }
        assert!(waited <= 9, "{select}: {waited}");
    }
}

#[test]
fn published_ranges_cover_everything() {
    for n in [1usize, 2, 3, 7, 64, 1000] {
        let mut entities = Loop::new(Select::Deadline, CostModel::Pages, 1, &vec![1; n]);
        entities.run(1);
        let table = entities.table.take().expect("published");
        assert_eq!(table.len(), n);
        let (first, last) = (table.find(0), table.find(u32::MAX));
        let first = table.range_of(first.expect("covered")).expect("there");
        let last = table.range_of(last.expect("covered")).expect("there");
        assert_eq!((first.lo, last.end), (0, 1 << 32), "{n}");
    }
}
