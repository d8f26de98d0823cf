// SPDX-License-Identifier: GPL-2.0-only

//! Reports of parts to an agent, and the factors that the agent sets.

use nrs_sched::{
    agent::{
        self, faded,
        reading::{self, LastReading, Reading},
        FactorPairs, Lease, Report, ONE,
    },
    arena::{self, attrs, feed, view, Request},
    attr::Priority,
    key::{Hasher, Key},
    mem::Shared,
    parameters::Values,
    policy::{
        control::{Parameters, Parts, RunningPart},
        params::ClassesMax,
        AnyPart, AnyShared, AnyUpdate, Config, Decision, Kind, Part, PoliciesData, Tunables,
        Tuning as _,
    },
    running_parts::RunningParts,
    units::{NSEC_PER_MSEC, NSEC_PER_SEC},
};
use std::cell::{Cell, RefCell};

const SEED: u64 = 77;

fn config(kind: Kind, argument: Option<&str>) -> Config {
    Config::parse(kind, argument, &Tunables::default()).expect("valid")
}

/// Creates two parts of each of `configs`, which share state like the parts of a service.
fn parts(configs: &[(Priority, Config)]) -> RunningParts {
    arena::reserve(64).expect("memory");
    let mut parts = RunningParts::default();
    let shared: Vec<AnyShared> = configs
        .iter()
        .map(|(_, config)| AnyShared::new(config, SEED, 2).expect("memory"))
        .collect();
    for seed in 1..3 {
        for ((priority, config), shared) in configs.iter().zip(&shared) {
            let mut part = AnyPart::new(config, seed, shared).expect("memory");
            feed(&mut part);
            parts.add(*priority, part);
        }
    }
    parts
}

/// Enqueues and serves a request of user `uid` with `pages` pages.
fn serve(part: &mut AnyPart<Request>, uid: u32, pages: u32, now: u64) {
    let class = part.classify(&attrs(uid), now);
    feed(part);
    let request = Request::new(uid, 1, pages, now);
    assert!(part.enqueue(request, class, now).is_ok());
    let Decision::Item((request, grant)) = part.get(&view(now, false)) else {
        panic!("nothing to serve");
    };
    let cost = nrs_sched::item::Item::cost(&request);
    part.stop(&grant, cost, now);
}

/// Returns the reports that a new agent receives.
fn all(parts: &RunningParts) -> Vec<Report> {
    let reading = Reading::of(parts).expect("memory");
    let told = LastReading::new();
    let changes = told.changes(1, &reading, true);
    changes.map(|(report, _)| report).collect()
}

fn names(parts: &RunningParts, ids: &[u64]) -> String {
    let mut text = String::new();
    reading::write_names(parts, ids.iter().copied(), &mut text).expect("memory");
    text
}

#[test]
fn reports_of_all_parts_add_up() {
    let fair = config(Kind::Fairshare, Some("gid_then_uid_fair"));
    let parts = parts(&[(Priority::Regular, fair), (Priority::High, fair)]);
    assert!(all(&parts).is_empty());
    // Regular and high of the first partition, then of the second one.
    for (part, uid, pages) in [(0, 5, 10), (1, 5, 20), (2, 5, 30), (3, 7, 40)] {
        serve(&mut parts.part(part), uid, pages, 0);
    }
    let reports = all(&parts);
    assert_eq!(reports.len(), 3, "{reports:?}");
    let ids: Vec<u64> = reports.iter().map(|report| report.account.id).collect();
    assert!(ids.is_sorted());
    let leaves: Vec<_> = reports
        .iter()
        .filter(|report| report.account.leaf)
        .collect();
    let mut service: Vec<u64> = leaves.iter().map(|leaf| leaf.account.service).collect();
    service.sort_unstable();
    assert_eq!(service, [40, 60]);
    let group = reports.iter().find(|report| !report.account.leaf).unwrap();
    assert_eq!((group.level, group.account.parent), (0, 0));
    for leaf in &leaves {
        assert_eq!((leaf.level, leaf.account.parent), (1, group.account.id));
        assert_eq!((leaf.account.weight, leaf.factor), (4096, ONE));
        assert!(!leaf.account.active && !leaf.account.waiting);
    }
    let names = names(&parts, &[1, ids[0], ids[1], ids[2], u64::MAX, 0]);
    let mut kinds: Vec<&str> = names.lines().map(|line| &line[17..]).collect();
    assert_eq!(kinds.len(), 3, "{names}");
    for (line, id) in names.lines().zip(&ids) {
        assert_eq!(line[..16], format!("{id:016x}"));
    }
    kinds.sort_unstable();
    assert_eq!(kinds, ["gid gid:absent", "uid uid:5", "uid uid:7"]);
}

/// Checks lists with more classes and more ids than one lock hold covers.
#[test]
fn long_lists_are_whole() {
    let parts = parts(&[(Priority::Regular, config(Kind::Fairshare, Some("uid_fair")))]);
    for uid in 0..500 {
        serve(&mut parts.part(uid as usize % 2), uid, 1, 0);
    }
    let reports = all(&parts);
    assert_eq!(reports.len(), 500);
    let ids: Vec<u64> = reports.iter().map(|report| report.account.id).collect();
    assert_eq!(names(&parts, &ids).lines().count(), 500);
}

/// Checks that only parts that share state with the regular parts of the first partition are
/// reported, if their terms are the same.
#[test]
fn only_sharing_parts_are_reported() {
    let fair = |mode| config(Kind::Fairshare, Some(mode));
    let fifo = config(Kind::Fifo, None);
    for (regular, high, told) in [
        (fair("uid_fair"), fair("uid_fair"), 2),
        (fair("uid_fair"), fair("jobid_fair"), 1),
        (fair("uid_fair"), fifo, 1),
        (fifo, fair("uid_fair"), 0),
    ] {
        let parts = parts(&[(Priority::Regular, regular), (Priority::High, high)]);
        serve(&mut parts.part(0), 1, 1, 0);
        serve(&mut parts.part(1), 2, 1, 0);
        let reading = Reading::of(&parts).expect("memory");
        assert_eq!(all(&parts).len(), told);
        assert_eq!(reading.terms() == 0, told == 0);
    }
    let terms = |mode| terms(mode, SEED);
    assert_eq!(
        terms("uid_fair"),
        agent::digest(format_args!("uid_fair pages"))
    );
    assert_ne!(terms("uid_fair"), terms("gid_fair"));
}

/// Checks that entities without a class of their own have no account, because the shared class
/// differs on each server. Their service counts for their group.
#[test]
fn shared_leaves_are_of_their_group() {
    for (mode, levels) in [("gid_then_uid_fair", 2), ("uid_fair", 1)] {
        let mut tunables = Tunables::default();
        tunables.set_classes_max(ClassesMax::new(64).expect("valid"));
        let config = Config::parse(Kind::Fairshare, Some(mode), &tunables).expect("valid");
        let parts = parts(&[(Priority::Regular, config)]);
        let users = 100;
        for uid in 0..users {
            let mut part = parts.part(0);
            let class = part.classify(&attrs(uid), 0);
            feed(&mut *part);
            let request = Request::new(uid, 1, 1, 0);
            assert!(part.enqueue(request, class, 0).is_ok());
        }
        let waits = |report: &Report| report.account.waiting && report.account.active;
        assert!(all(&parts).iter().all(waits), "{mode}");
        let mut part = parts.part(0);
        while let Decision::Item((request, grant)) = part.get(&view(0, false)) {
            let cost = nrs_sched::item::Item::cost(&request);
            part.stop(&grant, cost, 0);
        }
        drop(part);
        let reports = all(&parts);
        let ids: Vec<u64> = reports.iter().map(|report| report.account.id).collect();
        let said = names(&parts, &ids);
        assert_eq!(said.lines().count(), ids.len());
        assert!(!said.contains("default"), "{said}");
        let sum = |leaf| -> u64 {
            let of = reports.iter().filter(|report| report.account.leaf == leaf);
            of.map(|report| report.account.service).sum()
        };
        let users = u64::from(users);
        assert!(sum(true) > 0 && sum(true) < users, "{mode}");
        // The group above the classes of one level is the root, which has no account.
        let rest = if levels > 1 { users - sum(true) } else { 0 };
        assert_eq!(sum(false), rest, "{mode}");
        for report in reports.iter().filter(|report| !report.account.leaf) {
            let shared = Hasher::new(SEED).path(report.account.id, &Key::Default);
            assert_eq!(names(&parts, &[shared]), "");
        }
    }
}

/// Two heads; the part of the high head is replaced after its first reports.
struct Restarted {
    regular: RefCell<AnyPart<Request>>,
    high: [RefCell<AnyPart<Request>>; 2],
    holds: Cell<usize>,
}

struct RestartedPart<'a>(&'a Restarted, Priority);

impl RunningPart for RestartedPart<'_> {
    type Item = Request;

    fn cpt(&self) -> u16 {
        0
    }

    fn priority(&self) -> Priority {
        self.1
    }

    fn with<R>(&self, f: impl FnOnce(&mut AnyPart<Request>) -> Option<R>) -> Option<R> {
        let Restarted {
            regular,
            high,
            holds,
        } = self.0;
        if self.1 == Priority::Regular {
            return f(&mut regular.borrow_mut());
        }
        // The first hold checks whether the part wants a refresh, the second one returns the first
        // reports.
        let hold = holds.replace(holds.get() + 1);
        f(&mut high[usize::from(hold >= 2)].borrow_mut())
    }
}

impl Parts for Restarted {
    type Item = Request;

    fn now(&self) -> u64 {
        0
    }

    fn running(&self) -> impl Iterator<Item = impl RunningPart<Item = Request>> {
        [Priority::Regular, Priority::High]
            .into_iter()
            .map(|priority| RestartedPart(self, priority))
    }
}

/// Checks that reports of a part that starts while another part is read are not mixed: its terms
/// differ.
#[test]
fn parts_of_two_starts_do_not_mix() {
    arena::reserve(64).expect("memory");
    let part = |mode| {
        let config = config(Kind::Fairshare, Some(mode));
        let shared = AnyShared::new(&config, SEED, 1).expect("memory");
        let mut part = AnyPart::new(&config, 1, &shared).expect("memory");
        feed(&mut part);
        for uid in 0..200 {
            serve(&mut part, uid, 1, 0);
        }
        RefCell::new(part)
    };
    let parts = Restarted {
        regular: part("uid_fair"),
        high: [part("uid_fair"), part("gid_then_uid_fair")],
        holds: Cell::new(0),
    };
    let reading = Reading::of(&parts).expect("memory");
    let told = LastReading::new();
    let mut reports = told.changes(1, &reading, true).map(|(report, _)| report);
    assert!(reports.all(|report| report.account.leaf && report.account.parent == 0));
    assert!(parts.holds.get() > 2);
}

/// Returns the terms of a service with `seed` and `mode`.
fn terms(mode: &str, seed: u64) -> u64 {
    let config = config(Kind::Fairshare, Some(mode));
    let shared = AnyShared::new(&config, seed, 1).expect("memory");
    let part: AnyPart<Request> = AnyPart::new(&config, 1, &shared).expect("memory");
    part.terms()
}

/// Checks that servers share a mode if their terms are equal; ids of cgroups are valid on one
/// server only.
#[test]
fn cgroups_are_not_shared() {
    for (mode, shared) in [
        ("uid_fair", true),
        ("gid_then_jobid_fair", true),
        ("cgroup_fair", false),
        ("cgroup_then_uid_fair", false),
        ("uid_then_cgroup_fair", false),
    ] {
        assert_eq!(terms(mode, SEED), terms(mode, SEED));
        assert_eq!(terms(mode, SEED) == terms(mode, SEED + 1), shared, "{mode}");
    }
    assert_ne!(
        terms("cgroup_fair", SEED),
        terms("cgroup_then_uid_fair", SEED)
    );
}

/// Checks that an idle class is reported once more when it is evicted.
#[test]
fn eviction_is_in_the_last_report() {
    let parts = parts(&[(Priority::Regular, config(Kind::Fairshare, Some("uid_fair")))]);
    let mut told = LastReading::new();
    let mut step = || {
        let reading = Reading::of(&parts).expect("memory");
        let said: Vec<_> = told.changes(1, &reading, false).collect();
        told.record(1, reading);
        said
    };
    serve(&mut parts.part(0), 1, 3, 0);
    serve(&mut parts.part(1), 1, 4, 0);
    serve(&mut parts.part(1), 2, 4, 0);
    assert_eq!(step().len(), 2);
    assert!(step().is_empty());
    serve(&mut parts.part(1), 1, 1, 0);
    let said = step();
    assert_eq!((said.len(), said[0].0.account.service), (1, 8));
    for part in 0..2 {
        while parts.part(part).age(11 * NSEC_PER_SEC, 64) {}
    }
    let said = step();
    assert!(
        said.len() == 2 && said.iter().all(|(_, gone)| *gone),
        "{said:?}"
    );
    assert!(step().is_empty());
}

/// Returns the parameters of a service before any is set.
fn parameters() -> Parameters {
    Parameters::new(Values::default()).expect("memory")
}

/// Sets the factor of the class `id`.
fn set_factor(kept: &mut PoliciesData, id: u64, factor: u32, lease: &Shared<Lease>) {
    let pairs = FactorPairs::of([(id, factor)]).expect("valid");
    kept.set_factors(pairs, lease).expect("memory");
}

/// Passes the state of the service to the parts, as the engine does.
fn republish(parts: &RunningParts, parameters: &mut Parameters, config: &Config, now: u64) {
    let update = parameters
        .update(config, Priority::Regular)
        .expect("memory");
    let update: AnyUpdate = update.expect("an update");
    for part in 0..2 {
        parts.part(part).update(update.clone(), now);
        refresh(parts, now);
    }
}

fn refresh(parts: &RunningParts, now: u64) {
    parts.set_time(now);
    for part in 0..2 {
        let mut from = Some(0);
        while let Some(idx) = from {
            from = parts.part(part).refresh(idx, 64, now);
        }
    }
}

#[test]
fn factors_are_in_force_while_the_lease_lasts() {
    const MS: u64 = NSEC_PER_MSEC;
    let fair = config(Kind::Fairshare, Some("uid_fair"));
    let parts = parts(&[(Priority::Regular, fair)]);
    serve(&mut parts.part(0), 1, 1, 0);
    serve(&mut parts.part(1), 2, 1, 0);
    let ids: Vec<u64> = all(&parts).iter().map(|report| report.account.id).collect();
    let mut parameters = parameters();
    let kept = &mut parameters.kept;
    assert_eq!(kept.starts(), None);
    let set = |kept: &mut _, factor, lease: &_| set_factor(kept, ids[0], factor, lease);
    kept.sync(&[None, None], &[Some(fair), None])
        .expect("memory");
    assert_eq!((kept.starts(), kept.lease().is_some()), (Some(1), false));
    let lease = Shared::new(Lease::new(0, 1000)).expect("memory");
    set(kept, ONE / 4, &lease);
    assert!(kept.lease().is_some_and(|own| own.ptr_eq(&lease)));
    republish(&parts, &mut parameters, &fair, 0);
    let factors = || -> Vec<u32> { all(&parts).iter().map(|report| report.factor).collect() };
    let weights = || -> Vec<u32> {
        let rows = arena::rows(&parts.part(0));
        let more = arena::rows(&parts.part(1));
        let mut rows: Vec<_> = rows.iter().chain(&more).collect();
        rows.sort_unstable_by_key(|row| row.id);
        rows.iter().map(|row| row.weight).collect()
    };
    assert_eq!(factors(), [ONE / 4, ONE]);
    assert_eq!(weights(), [1024, 4096]);
    assert!(all(&parts)
        .iter()
        .all(|report| report.account.weight == 4096));
    // Other weights, and the same factors.
    let old = parameters.clone();
    assert!(!parameters.is_news(&old, &fair, Priority::Regular));
    republish(&parts, &mut parameters, &fair, 999 * MS);
    assert_eq!(factors(), [ONE / 4, ONE]);
    // A start on the other head changes nothing.
    let kept = &mut parameters.kept;
    kept.sync(&[Some(fair), None], &[Some(fair), Some(fair)])
        .expect("memory");
    assert_eq!((kept.starts(), kept.lease().is_some()), (Some(1), true));
    // The lease ends. Readers see the effect even if no worker runs.
    for (now, steps) in [(999, 0), (1000, 1), (1099, 1), (1100, 2), (5000, 10)] {
        let stale = factors()[0] != faded(ONE / 4, steps);
        assert_eq!(parts.part(0).wants_refresh(now * MS), stale, "{now}");
        parts.set_time(now * MS);
        assert_eq!(factors(), [faded(ONE / 4, steps), ONE], "{now}");
        assert!(!parts.part(0).wants_refresh(now * MS));
    }
    assert_eq!(weights(), [4096, 4096]);
    // Other factors are news, and so is their removal.
    let lease = Shared::new(Lease::new(5000 * MS, 1000)).expect("memory");
    set(&mut parameters.kept, ONE / 2, &lease);
    assert!(parameters.is_news(&old, &fair, Priority::Regular));
    republish(&parts, &mut parameters, &fair, 5000 * MS);
    assert_eq!(factors(), [ONE / 2, ONE]);
    let before = parameters.clone();
    let other = config(Kind::Fairshare, Some("gid_fair"));
    let kept = &mut parameters.kept;
    kept.sync(&[Some(fair), None], &[Some(other), None])
        .expect("memory");
    assert_eq!((kept.starts(), kept.lease().is_some()), (Some(2), false));
    assert!(parameters.is_news(&before, &fair, Priority::Regular));
    let kept = &mut parameters.kept;
    kept.sync(&[Some(other), None], &[None, None])
        .expect("memory");
    assert_eq!(kept.starts(), None);
    // Running parts lose their factors, too.
    lease.void();
    refresh(&parts, 5000 * MS);
    assert_eq!(factors(), [ONE, ONE]);
}

/// Checks that factors apply to one mode. Ids are paths in the mode of the regular head; an entity
/// in this mode may be a group in another one.
#[test]
fn factors_are_for_one_mode() {
    let fair = |mode| config(Kind::Fairshare, Some(mode));
    let regular = fair("uid_fair");
    for (high, takes) in [(regular, true), (fair("uid_then_jobid_fair"), false)] {
        let parts = parts(&[(Priority::Regular, regular), (Priority::High, high)]);
        serve(&mut parts.part(0), 1, 1, 0);
        serve(&mut parts.part(1), 1, 1, 0);
        let id = all(&parts)[0].account.id;
        let mut parameters = parameters();
        parameters
            .kept
            .sync(&[None, None], &[Some(regular), Some(high)])
            .expect("memory");
        let old = parameters.clone();
        let lease = Shared::new(Lease::new(0, 1000)).expect("memory");
        set_factor(&mut parameters.kept, id, ONE / 4, &lease);
        for (part, config, priority, takes) in [
            (0, regular, Priority::Regular, true),
            (1, high, Priority::High, takes),
        ] {
            assert_eq!(parameters.is_news(&old, &config, priority), takes);
            let update = parameters.update(&config, priority).expect("memory");
            parts.part(part).update(update.expect("an update"), 0);
            assert_eq!(parts.part(part).refresh(0, 64, 0), None);
            let rows = arena::rows(&parts.part(part));
            let row = rows.iter().find(|row| row.id == id).expect("a row");
            assert_eq!(row.weight, if takes { 1024 } else { 4096 });
        }
    }
}
