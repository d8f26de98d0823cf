// SPDX-License-Identifier: GPL-2.0-only

//! Full tables that the parts of a head share: users see the counts in `nrs_policies`.

use nrs_sched::{
    arena::{attrs, feed, Request},
    attr::Attrs,
    jobid::JobId,
    nid::Nid,
    policy::{
        params::ClassesMax, tbf::params::RulesMax, AnyPart, AnyShared, Config, Kind, Part,
        Tunables, Tuning, COUNTS_MAX,
    },
};

/// Creates `count` parts of one head.
fn parts(config: &Config, count: u32) -> Vec<AnyPart<Request>> {
    let shared = AnyShared::new(config, 1, count).expect("memory");
    let part = |seed| AnyPart::new(config, u64::from(seed), &shared).expect("memory");
    (0..count).map(part).collect()
}

/// Returns the count `name`, as `nrs_policies` shows it.
fn counted(kind: Kind, parts: &[AnyPart<Request>], name: &str) -> u64 {
    let mut sums = [0; COUNTS_MAX];
    parts.iter().for_each(|part| part.add_counts(&mut sums));
    let mut rows = kind.counts().iter().zip(sums);
    let found = rows.find(|(row, _)| row.name == name);
    found.expect("a row").1
}

/// Enqueues requests of 60 different users at each part.
fn bring(parts: &mut [AnyPart<Request>]) {
    for (n, part) in (0..).zip(parts) {
        for uid in n * 1_000..n * 1_000 + 60 {
            let class = part.classify(&attrs(uid), 1);
            feed(part);
            assert!(part.enqueue(Request::new(uid, 1, 1, 1), class, 1).is_ok());
        }
    }
}

#[test]
fn buckets_of_all_cpts() {
    let mut tunables = Tunables::default();
    tunables
        .tbf
        .set_classes_max(ClassesMax::new(64).expect("valid"));
    tunables.tbf.rules_max = RulesMax::new(1).expect("valid");
    let config = Config::parse(Kind::Tbf, Some("uid"), &tunables).expect("valid");
    let mut parts = parts(&config, 8);
    assert_eq!(counted(Kind::Tbf, &parts, "buckets_full"), 0);
    // The table has 256 entries.
    bring(&mut parts);
    let full = counted(Kind::Tbf, &parts, "buckets_full");
    assert!(full >= 480 - 256, "{full}");
}

#[test]
fn counters_of_all_cpts() {
    let mut tunables = Tunables::default();
    let max = ClassesMax::new(64).expect("valid");
    tunables.fairshare.set_classes_max(max);
    let config = Config::parse(Kind::Fairshare, Some("uid_fair"), &tunables).expect("valid");
    let mut parts = parts(&config, 8);
    bring(&mut parts);
    // The table has 128 entries.
    let full = counted(Kind::Fairshare, &parts, "counters_full");
    assert!((480 - 128..=480).contains(&full), "{full}");
    assert_eq!(counted(Kind::Fairshare, &parts, "sizes_full"), 0);
}

#[test]
fn sizes_of_jobs() {
    let config = Config::parse(Kind::Fairshare, Some("size_fair"), &Tunables::default());
    let config = config.expect("valid");
    let mut parts = parts(&config, 1);
    for job in 0..2_000 {
        let attrs = Attrs {
            jobid: JobId::new(format!("job.{job}").as_bytes()),
            nid: Nid::parse("10.0.0.1@tcp").ok(),
            ..Attrs::UNKNOWN
        };
        let part = &mut parts[0];
        let class = part.classify(&attrs, 1);
        part.record_attrs(class, &attrs, 1);
        feed(part);
    }
    // The table has 1,024 entries.
    let full = counted(Kind::Fairshare, &parts, "sizes_full");
    assert!((2_000 - 1_024..2_000).contains(&full), "{full}");
}
