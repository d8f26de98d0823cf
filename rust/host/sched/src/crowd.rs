// SPDX-License-Identifier: GPL-2.0-only

//! Parts with many classes that always have requests, to measure what a decision costs.

use crate::{
    arena::{self, feed, hand_gates, lone_part, walk, Request},
    attr::{Attrs, Id},
    item::{Direction, Item, Spot},
    jobid::JobId,
    policy::{
        fairshare::params::Select,
        params::{BufferMax, ClassesMax},
        tbf, AnyPart, Config, Get, Grant, Kind, Part, Tunables, View,
    },
    qbm::plan::By,
    ranges::{BriefBuf, Outline, Table},
    rng::Rng,
};

/// Requests that every class keeps queued.
pub const QUEUED: u32 = 8;

/// A part and the classes in it.
pub struct Crowd {
    part: AnyPart<Request>,
    table: Option<Table>,
    now: u64,
}

/// Member `i` of `count`, in a tree of `depth` levels whose nodes have about the same number of children; a
/// client with an object and a target of its own.
fn member(i: u32, count: u32, depth: u32) -> Attrs {
    let fan = f64::from(count).powf(1.0 / f64::from(depth)).ceil() as u32;
    let own = Attrs {
        client: i,
        target: i,
        object: i.into(),
        ..Attrs::UNKNOWN
    };
    match depth {
        1 => Attrs {
            uid: Id::new(i),
            ..own
        },
        2 => Attrs {
            gid: Id::new(i / fan),
            uid: Id::new(i),
            ..own
        },
        _ => Attrs {
            gid: Id::new(i / fan / fan),
            uid: Id::new(i / fan),
            jobid: JobId::new(format!("job{i}").as_bytes()),
            ..own
        },
    }
}

impl Crowd {
    /// A part of `kind`, for `fairshare` with `select` and `depth` levels (1 to 3), with `classes` that have
    /// [`QUEUED`] requests of 1 to `pages` pages each. With one size, classes take turns in the order of their
    /// memory.
    ///
    /// # Panics
    ///
    /// There is no memory.
    pub fn new(kind: Kind, select: Select, depth: u32, classes: u32, pages: u32) -> Self {
        let mut tunables = Tunables::default();
        tunables.fairshare.select = select;
        let most = ClassesMax::new(1 << 20).expect("within limits");
        tunables.fairshare.classes_max = most;
        tunables.tbf.classes_max = most;
        tunables.crrn.classes_max = most;
        tunables.qbm.classes_max = most;
        tunables.qbm.by = By::Uid;
        for sorted in [&mut tunables.orr, &mut tunables.trr] {
            sorted.classes_max = most;
            sorted.buffer_max = BufferMax::new(1 << 20).expect("within limits");
        }
        // Twice what a decision per microsecond uses, so that there is always one to make.
        let rate = (2_000_000 / classes).max(1);
        tunables.tbf.rate = tbf::params::Rate::new(rate).expect("within limits");
        let argument = match (kind, depth) {
            (Kind::Fifo | Kind::Crrn | Kind::Orr | Kind::Trr | Kind::Delay | Kind::Qbm, _) => None,
            (Kind::Fairshare, 1) => Some("uid_fair"),
            (Kind::Fairshare, 2) => Some("gid_then_uid_fair"),
            (Kind::Fairshare, _) => Some("gid_then_uid_then_jobid_fair"),
            (Kind::Tbf, _) => Some("uid"),
        };
        let config = Config::parse(kind, argument, &tunables).expect("valid");
        arena::reserve((classes * QUEUED) as usize + 64).expect("memory");
        let mut part = lone_part(&config, 1).expect("memory");
        let (count, bytes) = (classes.min(16_383) + 1, 4096 * u64::from(rate));
        hand_gates(&mut part, count, |_| (bytes, 1)).expect("memory");
        let mut rng = Rng::new(1);
        let mut id = 0;
        for owner in 0..classes {
            feed(&mut part);
            let class = part.classify(&member(owner, classes, depth), 0);
            for _ in 0..QUEUED {
                let request = Request {
                    owner,
                    id,
                    pages: 1 + rng.below(pages.into()) as u32,
                    arrival: id,
                    spot: Spot::new(0, rng.below(1 << 40), 4096),
                    direction: Direction::Read,
                    ..Request::default()
                };
                assert!(part.enqueue(request, class, 0).is_ok());
                id += 1;
            }
        }
        walk(&mut part, 0);
        let mut crowd = Self {
            part,
            table: None,
            now: 0,
        };
        crowd.publish();
        for _ in 0..u64::from(classes) * 2 {
            crowd.step();
        }
        crowd
    }

    /// Publishes the shares, if there are any.
    fn publish(&mut self) {
        let Some(state) = self.part.fairshare_mut() else {
            return;
        };
        let mut outline = Outline::new();
        let mut buf = BriefBuf::new().expect("memory");
        let mut from = Some(0);
        while let Some(slot) = from {
            buf.clear();
            from = state.briefs(slot, self.now, &mut buf);
            outline.extend(buf.as_slice()).expect("memory");
        }
        self.table = Some(outline.build(1).expect("memory").table);
    }

    /// What goes next, as soon as something may.
    #[inline]
    fn get(&mut self) -> (Request, Grant) {
        loop {
            let view = View {
                now: self.now,
                force: false,
                table: self.table.as_ref(),
            };
            match self.part.get(&view) {
                Get::Item(found) => return found,
                Get::Throttled { until } => self.now = until,
                Get::Empty => panic!("all have requests"),
            }
        }
    }

    /// A request is chosen and ends, and its class brings the next, a microsecond later.
    ///
    /// # Panics
    ///
    /// Nothing is queued.
    pub fn step(&mut self) {
        self.now += 1000;
        let (request, grant) = self.get();
        self.part.stop(&grant, request.cost(), self.now);
        assert!(self.part.enqueue(request, grant.class, self.now).is_ok());
    }
}
