// SPDX-License-Identifier: GPL-2.0-only

//! Texts of `nrs_qbm_config`: a written plan parses to the same plan.

use nrs_sched::{
    error::Error,
    jobid::JobId,
    key::{Field, Key},
    nid::Nid,
    qbm::plan::{ClientKey, OverseerContext, Plan},
};

/// A service with devices `d1` to `d9`.
pub struct Nine;

impl OverseerContext for Nine {
    fn device_name(&self, device: u32, f: &mut dyn FnMut(&[u8])) {
        if (1..=9).contains(&device) {
            f(format!("d{device}").as_bytes());
        }
    }
}

/// Returns the text of a plan.
pub fn text(plan: &Plan) -> String {
    let mut out = String::new();
    plan.write(&mut out).expect("strings take all");
    out
}

/// Returns clients that lines are likely to match.
pub fn parties() -> impl Iterator<Item = ClientKey> {
    let nids = [
        "0@lo",
        "10.0.0.1@tcp",
        "10.0.7.2@tcp1",
        "fe80::1@o2ib",
        "7@gni",
    ];
    let nids = nids.map(|nid| Key::Nid(Nid::parse(nid).expect("valid")));
    let jobs = ["a", "dd.0", "dd.1", "*", "d1"].map(|job| Key::Jobid(JobId::new(job.as_bytes())));
    let others = [
        Key::Uid(0),
        Key::Uid(1000),
        Key::Absent(Field::Uid),
        Key::Absent(Field::Jobid),
        Key::Absent(Field::Nid),
        Key::Default,
    ];
    let keys = nids.into_iter().chain(jobs).chain(others);
    keys.map(ClientKey::Key)
        .chain([0, 1, 2, 10].map(ClientKey::Device))
}

/// Asserts that both plans have the same terms for all clients.
fn same(plan: &Plan, other: &Plan) {
    assert_eq!(plan.by(), other.by());
    assert_eq!(plan.tuning(), other.tuning());
    assert_eq!(plan.groups().len(), other.groups().len());
    for (index, (group, twin)) in (0u32..).zip(plan.groups().iter().zip(other.groups())) {
        assert_eq!(group.name(), twin.name());
        assert_eq!(group.settings(), twin.settings());
        for party in parties() {
            let terms = plan.terms(index, &party, &Nine);
            assert_eq!(terms, other.terms(index, &party, &Nine));
        }
    }
}

/// Checks the properties of every plan.
pub fn check(plan: &Plan) {
    let written = text(plan);
    let again = Plan::parse(&written).unwrap_or_else(|error| panic!("{written}: {error}"));
    assert_eq!(text(&again), written);
    same(plan, &again);
    let floor = plan.tuning().floor;
    for (index, group) in (0u32..).zip(plan.groups()) {
        assert!(group.capacity() >= floor);
        assert!(group.reserves().iter().sum::<u64>() <= group.capacity());
        if let Some(target) = group.target() {
            assert_eq!(plan.group_of(target), Some(index));
        }
        for party in parties() {
            if let Some(terms) = plan.terms(index, &party, &Nine) {
                assert!(floor <= terms.min && terms.min <= terms.max);
                assert!(terms.max <= group.capacity());
            }
        }
    }
}

/// Checks the text of a plan.
pub fn run(text: &str) {
    match Plan::parse(text) {
        Ok(plan) => check(&plan),
        Err(error) => refused(text, error),
    }
}

/// Checks the properties of every refusal.
fn refused(text: &str, error: Error) {
    let lines = text.bytes().filter(|b| matches!(b, b'\n' | b';')).count() + 1;
    assert!(error.line() as usize <= lines, "{text:?}: {error}");
    assert!(!error.reason.is_empty() && !error.to_string().contains('\n'));
}
