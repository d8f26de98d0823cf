// SPDX-License-Identifier: GPL-2.0-only

//! Requests that are taken out of the middle of a queue, of every policy: nothing else comes out, nothing is
//! lost, and nobody is charged for it; random removals are those of the fuzz target `part`.

use crate::settings::{self, Setting};
use nrs_sched::{
    arena::{attrs, feed, lone_part, view, walk, Number, Request},
    attr::{Attrs, Id},
    class::ClassId,
    item::{Direction, Item, Spot},
    jobid::JobId,
    nid::Nid,
    policy::{
        fairshare::params::{CostModel, Locality, OppThreshold},
        AnyPart, Config, Get, Grant, Kind, Part, Tunables,
    },
    rng::Rng,
    sim::SECOND,
};
use std::collections::VecDeque;

const START: u64 = 86_400 * SECOND;

/// Somebody who is known by everything.
fn who(owner: u32) -> Attrs {
    Attrs {
        nid: Nid::parse(&format!("10.0.{}.{}@tcp", owner / 250, 1 + owner % 250)).ok(),
        uid: Id::new(owner),
        gid: Id::new(owner / 4),
        jobid: JobId::new(format!("job{owner}").as_bytes()),
        client: owner + 1,
        object: u64::from(owner % 7),
        target: owner % 3,
        stream: u64::from(owner),
        length: 4096,
        ..Attrs::UNKNOWN
    }
}

/// A request that is queued.
struct Queued {
    id: u64,
    owner: u32,
    class: ClassId,
    place: Number,
}

/// A part, and what should be in it.
struct Model {
    name: String,
    part: AnyPart<Request>,
    queued: Vec<Queued>,
    running: Vec<(Request, Grant)>,
    now: u64,
    next: u64,
    rng: Rng,
}

impl Model {
    fn new(kind: Kind, argument: Option<&str>, tunables: &Tunables, seed: u64) -> Self {
        let config = Config::parse(kind, argument, tunables).expect("valid");
        Self {
            name: format!("{} {argument:?} seed {seed}", kind.name()),
            part: lone_part(&config, seed).expect("memory"),
            queued: Vec::new(),
            running: Vec::new(),
            now: START,
            next: 0,
            rng: Rng::new(seed),
        }
    }

    /// A request of `owner` is queued; whether the policy took it.
    fn arrive(&mut self, owner: u32) -> bool {
        feed(&mut self.part);
        // The worker comes a while after somebody new.
        if self.next % 4 == 0 {
            walk(&mut self.part, self.now);
        }
        let attrs = who(owner);
        let class = self.part.classify(&attrs, self.now);
        let mut request = Request {
            owner,
            id: self.next,
            pages: 1 + self.rng.below(8) as u32,
            arrival: self.now,
            spot: Spot::new(attrs.object, self.rng.below(1 << 30) << 12, 4096),
            direction: Direction::Write,
            ..Request::default()
        };
        let place = request.register();
        let id = self.next;
        self.next += 1;
        match self.part.enqueue(request, class, self.now) {
            Ok(()) => {
                self.queued.push(Queued {
                    id,
                    owner,
                    class,
                    place,
                });
                true
            }
            Err(mut request) => {
                request.unregister(place);
                false
            }
        }
    }

    /// The request that is `at` in the list of those queued is taken out.
    fn take(&mut self, at: usize) {
        let taken = self.queued.swap_remove(at);
        let item = self.part.dequeue(taken.class, &taken.place, self.now);
        let mut item = item.unwrap_or_else(|| panic!("{}: {} is not there", self.name, taken.id));
        assert_eq!(item.id, taken.id, "{}", self.name);
        // It is there once.
        let again = self.part.dequeue(taken.class, &taken.place, self.now);
        assert!(again.is_none(), "{}", self.name);
        item.unregister(taken.place);
    }

    /// Serves the next request; `false` if there is none.
    fn serve(&mut self, force: bool) -> bool {
        let Get::Item((mut item, grant)) = self.part.get(&view(self.now, force)) else {
            assert!(self.queued.is_empty(), "{}", self.name);
            return false;
        };
        let at = self.queued.iter().position(|queued| queued.id == item.id);
        let at = at.unwrap_or_else(|| panic!("{}: {} came twice", self.name, item.id));
        item.unregister(self.queued.swap_remove(at).place);
        self.running.push((item, grant));
        true
    }

    /// A request in service ends.
    fn stop(&mut self) {
        if !self.running.is_empty() {
            let at = self.rng.below(self.running.len() as u64) as usize;
            let (item, grant) = self.running.swap_remove(at);
            self.part.stop(&grant, item.cost(), self.now);
        }
    }

    /// The number of those queued, and of nobody else.
    fn check(&self) {
        assert_eq!(self.part.len() as usize, self.queued.len(), "{}", self.name);
    }
}

/// All policies; some with opportunity, and costs that are known late.
fn settings() -> Vec<Setting> {
    let modes = [
        "uid_fair",
        "gid_then_uid_fair",
        "nid_fair",
        "gid_then_uid_then_jobid_fair",
    ];
    let mut all = settings::all(&modes);
    for (_, mode, tunables) in &mut all {
        if *mode == Some("gid_then_uid_fair") {
            tunables.fairshare.opp_threshold = OppThreshold::new(4).expect("within limits");
            tunables.fairshare.cost_model = CostModel::Time;
        }
    }
    all
}

/// A place of a request in one part means nothing to another one.
#[test]
fn a_place_is_of_one_part() {
    for (kind, argument, tunables) in settings() {
        let mut one = Model::new(kind, argument, &tunables, 1);
        let mut other = Model::new(kind, argument, &tunables, 1);
        for owner in 0..4 {
            one.arrive(owner);
            other.arrive(owner);
        }
        // A part is asked only for what it has; by FIFOs and handles it still may not answer with the other's.
        for at in (0..one.queued.len()).rev() {
            if matches!(kind, Kind::Fairshare | Kind::Tbf | Kind::Qbm | Kind::Fifo) {
                let strange = &other.queued[at];
                assert!(one
                    .part
                    .dequeue(strange.class, &strange.place, START)
                    .is_none());
                one.check();
            }
            one.take(at);
        }
    }
}

/// When everything was taken out the classes are idle: they are forgotten like others.
#[test]
fn nothing_holds_a_class() {
    for (kind, argument, tunables) in settings() {
        if !matches!(kind, Kind::Fairshare | Kind::Tbf | Kind::Qbm) {
            continue;
        }
        let mut model = Model::new(kind, argument, &tunables, 1);
        let mut classes = Vec::new();
        for round in 0..3 {
            for owner in 0..40 {
                assert!(model.arrive(owner));
                let queued = model.queued.last().expect("queued");
                classes.push(queued.class);
            }
            if round == 1 {
                while model.serve(true) {}
            } else {
                (0..model.queued.len()).rev().for_each(|at| model.take(at));
            }
        }
        walk(&mut model.part, model.now);
        assert!(classes.iter().any(|&class| model.part.is_live(class)));
        while !model.running.is_empty() {
            model.stop();
        }
        model.now += 60 * SECOND;
        while model.part.age(model.now, 64) {}
        assert!(
            !classes.iter().any(|&class| model.part.is_live(class)),
            "{}",
            model.name
        );
    }
}

/// Three users keep 16 requests queued each; those of the first are taken out all the time, one of each
/// `every`, and brought anew. What each of them is served, pages.
fn shares(locality: Locality, every: u64, whole: bool) -> [u64; 3] {
    let mut tunables = Tunables::default();
    tunables.fairshare.locality = locality;
    let mut model = Model::new(Kind::Fairshare, Some("uid_fair"), &tunables, 7);
    let mut served = [0; 3];
    let mut queued = [0; 3];
    for turn in 0..30_000 {
        model.now += 40_000;
        let absent = whole && (turn / 1_000) % 2 == 1;
        if turn % every == 0 || absent {
            loop {
                let at = model.queued.iter().position(|queued| queued.owner == 0);
                let Some(at) = at else {
                    break;
                };
                model.take(at);
                queued[0] -= 1;
                if !absent {
                    break;
                }
            }
        }
        for owner in 0..3u32 {
            while queued[owner as usize] < 16 && !(absent && owner == 0) {
                model.arrive(owner);
                queued[owner as usize] += 1;
            }
        }
        assert!(model.serve(false));
        let (item, grant) = model.running.pop().expect("served");
        model.part.stop(&grant, item.cost(), model.now);
        served[item.owner as usize] += u64::from(item.pages);
        queued[item.owner as usize] -= 1;
    }
    served
}

/// Who loses requests from the queue is charged nothing for them, and gains nothing by it.
#[test]
fn shares_stay() {
    for &locality in Locality::ALL {
        for every in [1, 7] {
            let got = shares(locality, every, false);
            let mean = got.iter().sum::<u64>() as f64 / 3.0;
            for pages in got {
                let off = (pages as f64 - mean).abs() / mean;
                assert!(off < 0.002, "every {every}: {got:?}");
            }
        }
        // Half of the time the first has nothing: a sixth for it, the rest is shared evenly.
        let got = shares(locality, 3, true);
        let all = got.iter().sum::<u64>() as f64;
        let off = (got[1] as f64 - got[2] as f64).abs() / got[2] as f64;
        assert!(off < 0.004, "{got:?}");
        let first = got[0] as f64 / all;
        assert!((first - 1.0 / 6.0).abs() < 0.01, "{got:?}");
    }
}

/// A token that a front took is given back when it leaves: the class still gets its rate, and not more.
#[test]
fn tokens_come_back() {
    let mut tunables = Tunables::default();
    tunables.tbf.rate = nrs_sched::policy::tbf::params::Rate::new(100).expect("within limits");
    let config = Config::parse(Kind::Tbf, Some("uid"), &tunables).expect("valid");
    for whole in [false, true] {
        let mut part = lone_part(&config, 1).expect("memory");
        let class = part.classify(&attrs(1), START);
        let mut queued: VecDeque<Number> = VecDeque::new();
        let (mut now, mut id, mut served) = (START, 0, 0u64);
        let mut rng = Rng::new(2);
        while now < START + 100 * SECOND {
            now += SECOND / 1_000;
            while queued.len() < 4 {
                let mut request = Request {
                    id,
                    // Of different cost, so that no front takes over what another one took.
                    pages: 1 + id as u32 % 2,
                    arrival: now,
                    ..Request::default()
                };
                id += 1;
                queued.push_back(request.register());
                assert!(part.enqueue(request, class, now).is_ok());
            }
            // A front is taken out before it goes, nine times of ten, or all are.
            if rng.below(100) < 30 {
                for _ in 0..if whole { 4 } else { 1 } {
                    let place = queued.pop_front().expect("queued");
                    let mut item = part.dequeue(class, &place, now).expect("queued");
                    item.unregister(place);
                }
            }
            if let Get::Item((mut item, grant)) = part.get(&view(now, false)) {
                item.unregister(queued.pop_front().expect("queued"));
                part.stop(&grant, item.cost(), now);
                served += 1;
            }
        }
        // 100 a second, and what the bucket held at first.
        assert!((9_900..=10_010).contains(&served), "{whole}: {served}");
    }
}
