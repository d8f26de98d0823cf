// SPDX-License-Identifier: GPL-2.0-only

//! Entities that come and go: no request is lost, tables stay within their limits, and unused
//! entities are evicted.

use nrs_sched::{
    arena::{feed, rows, Request},
    attr::{Attrs, Id},
    item::Item,
    jobid::JobId,
    policy::{
        fairshare::{params::Select, stats::NodeRow, totals::SharedTotals},
        params::ClassesMax,
        AnyPart, AnyShared, Config, Decision, Kind, Part, PartView, Tunables,
    },
    rng::Rng,
    sim::{Setup, Sim, Source, SECOND},
};
use std::collections::HashMap;

/// Parts of one service, with a count of the queued requests.
struct ChurnService {
    parts: Vec<AnyPart<Request>>,
    shared: AnyShared,
    now: u64,
    next: u64,
    /// Queued requests of each owner.
    queued: HashMap<u32, Vec<u64>>,
}

impl ChurnService {
    fn new(mode: &str, select: Select, classes_max: u32, parts: u32) -> Self {
        let mut tunables = Tunables::default();
        tunables.fairshare.select = select;
        tunables.fairshare.classes_max = ClassesMax::new(classes_max).expect("within limits");
        let config = Config::parse(Kind::Fairshare, Some(mode), &tunables).expect("valid");
        let shared = AnyShared::new(&config, 9, parts).expect("memory");
        let make = |seed| AnyPart::new(&config, seed, &shared).expect("memory");
        Self {
            parts: (0..u64::from(parts)).map(make).collect(),
            shared,
            now: 86_400 * SECOND,
            next: 0,
            queued: HashMap::new(),
        }
    }

    fn arrive(&mut self, part: usize, owner: u32, attrs: &Attrs) {
        let part = &mut self.parts[part];
        let class = part.classify(attrs, self.now);
        let request = Request::new(owner, self.next, 1 + owner % 7, self.now);
        self.next += 1;
        self.queued.entry(owner).or_default().push(request.id);
        assert!(part.enqueue(request, class, self.now).is_ok());
    }

    /// Serves a request of `part`, which ends at once; returns false if there is none.
    fn serve(&mut self, part: usize) -> bool {
        let view = PartView {
            now: self.now,
            force: false,
            table: None,
        };
        let Decision::Item((request, grant)) = self.parts[part].get(&view) else {
            return false;
        };
        self.parts[part].stop(&grant, request.cost(), self.now);
        let queue = self.queued.get_mut(&request.owner).expect("it was queued");
        let place = queue.iter().position(|id| *id == request.id);
        queue.swap_remove(place.expect("it was queued once"));
        if queue.is_empty() {
            self.queued.remove(&request.owner);
        }
        true
    }

    /// Does the work of the worker, as every second.
    fn upkeep(&mut self) {
        for part in &mut self.parts {
            feed(part);
            part.age(self.now, 1 << 20);
        }
    }

    fn rows(&self, part: usize) -> Vec<NodeRow> {
        rows(&self.parts[part])
    }

    fn counters(&self) -> Option<&SharedTotals> {
        match &self.shared {
            AnyShared::Fairshare(shared) => shared.counters.as_ref(),
            _ => None,
        }
    }
}

/// Returns the number of ids that find a place in `counters`; releases all of them.
fn places(counters: &SharedTotals, ids: u64) -> usize {
    let claims: Vec<_> = (1..=ids)
        .filter_map(|id| counters.claim(id.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
        .collect();
    let count = claims.len();
    claims.into_iter().for_each(|claim| counters.release(claim));
    count
}

/// Returns user `i` of a group of ten, with a job of its own.
fn who(i: u32) -> Attrs {
    Attrs {
        gid: Id::new(i / 10),
        uid: Id::new(i),
        jobid: JobId::new(format!("job{i}").as_bytes()),
        ..Attrs::UNKNOWN
    }
}

/// Checks a thousand new entities every second for a minute, with a few requests each on any part.
#[test]
fn a_thousand_entities_a_second() {
    const DEEP: &str = "gid_then_uid_then_jobid_fair";
    for (mode, select, max, parts) in [
        ("uid_fair", Select::Deadline, 64, 1),
        (DEEP, Select::Deadline, 256, 2),
        (DEEP, Select::Deadline, 256, 1),
        ("gid_then_uid_fair", Select::Deadline, 128, 1),
        (DEEP, Select::Paper, 256, 1),
    ] {
        let mut service = ChurnService::new(mode, select, max, parts);
        let mut rng = Rng::new(3);
        for i in 0..60_000u32 {
            service.now += SECOND / 1000;
            if i % 1000 == 0 {
                service.upkeep();
            }
            for _ in 0..1 + rng.below(3) {
                let part = rng.below(parts.into()) as usize;
                service.arrive(part, i, &who(i));
            }
            // One slow second in ten fills the table with backlogged entities.
            let serves = if i / 1000 % 10 == 5 { 1 } else { 3 };
            for _ in 0..serves {
                for part in 0..parts as usize {
                    service.serve(part);
                }
            }
            if i % 997 == 0 {
                for part in 0..parts as usize {
                    let rows = service.rows(part).len();
                    assert!(rows <= max as usize + 1, "{mode}, {select}: {rows} rows");
                }
            }
        }
        let overflow: u64 = service.parts.iter().map(Part::overflow).sum();
        assert!(overflow > 0, "{mode}, {select}");
        for part in 0..parts as usize {
            while service.serve(part) {}
        }
        assert!(service.queued.is_empty(), "{mode}, {select}");
        // Idle nodes are evicted after 10 s, and their ancestors with the last of them.
        for _ in 0..20 {
            service.now += SECOND;
            service.upkeep();
        }
        for part in 0..parts as usize {
            let rows = service.rows(part);
            let left: Vec<_> = rows.iter().map(|row| (row.level, row.key)).collect();
            assert!(
                left.iter().all(|(level, _)| *level == "default"),
                "{mode}, {select}: {left:?}"
            );
        }
        if let Some(counters) = service.counters() {
            let fresh = SharedTotals::new(max as usize).expect("memory");
            let ids = u64::from(max) * 8;
            let wanted = places(&fresh, ids);
            assert_eq!(places(counters, ids), wanted, "{mode}, {select}");
            assert!(parts > 1);
        }
    }
}

/// Checks that a group keeps its share while its members change, and is evicted after the last
/// member.
#[test]
fn a_group_outlives_its_members() {
    let user = |gid, uid| Attrs {
        gid: Id::new(gid),
        uid: Id::new(uid),
        ..Attrs::UNKNOWN
    };
    // The first group has one member at a time, twenty in all; the second has three.
    let mut who: Vec<Source> = (0..20).map(|uid| Source::new(user(1, uid)).off()).collect();
    who.extend((0..3).map(|uid| Source::new(user(2, uid)).of(&[2])));
    let mut sim = Sim::new(&Setup::new("gid_then_uid_fair"), who);
    sim.step = SECOND / 200;
    for member in 0..20 {
        sim.switch(member, true);
        sim.run(400);
        sim.switch(member, false);
        // The next member starts before the queue of this one is empty.
    }
    let served = sim.served();
    let first: u64 = served[..20].iter().sum();
    let second: u64 = served[20..].iter().sum();
    let error = (first as f64 / second as f64 - 1.0) * 100.0;
    assert!(error.abs() <= 0.5, "{first} to {second}: {error} %");
    // The first members are evicted, but not the last two.
    let count = |sim: &Sim| sim.rows(0).len();
    assert!((6..=16).contains(&count(&sim)), "{}", count(&sim));
    (20..23).for_each(|source| sim.switch(source, false));
    sim.run(100);
    assert_eq!(sim.queued(), 0);
    sim.idle(20);
    assert_eq!(count(&sim), 0);
}
