// SPDX-License-Identifier: GPL-2.0-only

//! Settings: parameters, terms of timeouts, tables of weights, plans of `qbm`.

use crate::{check_reason, shown};
use nrs_sched::{
    attr::Opcode,
    jobid::JobId,
    key::{Field, Key},
    nid::Nid,
    parameters::{all, Parameter, Values},
    policy::fairshare::{
        entity_table::{split, Weights, ITEMS_MAX, WEIGHT_MAX},
        mode::Mode,
    },
    qbm::plan::{ClientKey, OverseerContext, Plan},
    timeouts::{
        early::{margin, on_arrival, wake},
        estimator::Estimator,
        recovery::Recovery,
        terms::{millis, TimeoutMode, TimeoutTerms},
    },
};

/// Checks the value `text` of `parameter`; sets it in `values` if it is accepted.
fn set(parameter: &Parameter, values: &mut Values, text: &str) {
    let (name, before) = (parameter.name(), *values);
    let stored = parameter.value.as_ref().expect("a value is stored");
    if let Err(error) = values.set(stored, text) {
        assert_eq!(*values, before, "{name} {text:?}");
        return check_reason(&error);
    }
    let check = parameter.check.expect("stored parameters have a check");
    assert_eq!(check(text), Ok(()), "{name} {text:?}");
    assert_eq!(values.check(), Ok(()), "{name} {text:?}");
    let shown = shown(|out| (stored.show)(values, out));
    assert_eq!(
        shown.lines().count(),
        1 + usize::from(parameter.heads),
        "{name}"
    );
    // The printed text is accepted, a line at a time, and yields the same value.
    let mut again = *values;
    for line in shown.lines() {
        assert_eq!(
            again.set(stored, line.trim_end()),
            Ok(()),
            "{name} {line:?}"
        );
    }
    assert_eq!(again, *values, "{name} {text:?}");
}

/// Checks each line as a value of the parameter that the first byte selects among those that store
/// values, and the whole text as a value of all other parameters.
pub(crate) fn parameters((first, text): (u8, &str)) {
    let (stored, texts): (Vec<_>, Vec<_>) = all().partition(|one| one.value.is_some());
    let mut values = Values::default();
    for (at, line) in text.split_inclusive('\n').take(32).enumerate() {
        // Values of adjacent parameters may contradict each other.
        let which = (usize::from(first) + at % 3) % stored.len();
        set(stored[which], &mut values, line);
    }
    for check in texts.into_iter().filter_map(|one| one.check) {
        let _ = check(text).inspect_err(check_reason);
    }
}

/// Checks the properties of all consistent terms.
fn check_terms(terms: &TimeoutTerms) {
    let (min, max) = (millis(terms.min.get()), millis(terms.max.get()));
    let above = max.wrapping_add(1);
    let mut last = (0, 0);
    for estimate in [0, 1, min, max, above, 1 << 20, u32::MAX / 2, u32::MAX] {
        let rule = terms.rule();
        let clamped = rule.clamp(estimate);
        assert!(clamped >= min && (max == 0 || clamped <= max));
        assert_eq!(rule.clamp(clamped), clamped);
        let timeout = terms.timeout(estimate);
        match terms.mode() {
            TimeoutMode::Adaptive => assert!(timeout >= clamped),
            TimeoutMode::Fixed => assert_eq!(timeout, millis(terms.fixed.get())),
            TimeoutMode::Off => assert_eq!(timeout, 0),
        }
        let (before, shorter) = last;
        assert!(
            estimate < before || timeout >= shorter,
            "{terms:?} {estimate}"
        );
        last = (estimate, timeout);
    }
    assert!(margin(terms) <= millis(3600));
}

/// Checks terms of timeouts, set one by one, and estimators with these terms. Each line is `NAME
/// VALUE`, or two numbers: the ms that pass, and a sample in ms.
pub(crate) fn timeouts(text: &str) {
    let mut values = Values::default();
    let (mut estimator, mut recovery) = (Estimator::new(), Recovery::new());
    let (mut now, mut worst) = (5_000_000_000u64, 0);
    for line in text.split('\n').take(256) {
        let Some((one, two)) = line.split_once(' ') else {
            continue;
        };
        let (Ok(passed), Ok(sample)) = (one.parse::<u32>(), two.parse::<u32>()) else {
            if values.set_named(one, two).is_ok() {
                check_terms(&values.timeouts);
            }
            continue;
        };
        let terms = values.timeouts;
        now += u64::from(passed);
        worst = worst.max(sample);
        let rule = terms.rule();
        let (filter, before) = (estimator.filter(now, &rule), estimator.seen(now, &rule));
        estimator.measure(sample, now, &rule);
        let (seen, estimate) = (estimator.seen(now, &rule), estimator.estimate(now, &rule));
        if filter.holds(sample, now) && seen.worst.is_some_and(|(ever, _)| ever > sample) {
            assert_eq!(seen, before, "{filter:?} {sample}");
        }
        assert_eq!(estimate, rule.clamp(estimate), "{terms:?}");
        assert_eq!(seen.worst.map_or(0, |(sample, _)| sample), worst);
        assert!(seen.current == estimate && seen.bins.iter().all(|bin| *bin <= worst));
        let timeout = terms.timeout(estimate);
        assert_eq!(timeout == 0, terms.mode() == TimeoutMode::Off);
        if let Some(deadline) = on_arrival(&terms, now, timeout, estimate) {
            assert!(wake(&terms, deadline) <= deadline);
        }
        let ends = recovery.ends();
        let joined = recovery.join(now, sample, &terms);
        assert!(recovery.is_over(now) || joined >= ends);
        assert!(recovery.largest() <= worst && recovery.extra(&terms) <= millis(terms.extra.get()));
    }
}

/// Returns keys that weights and plans are likely to match.
fn keys() -> impl Iterator<Item = Key> {
    let nids = "0@lo 10.0.0.1@tcp 10.0.7.2@tcp1 fe80::1@o2ib fe80::1@o2ib1 7@gni".split(' ');
    let nids = nids.map(|nid| Key::Nid(Nid::parse(nid).expect("valid")));
    let jobs = ["a", "dd.0", "dd.1", "x y", "\"", "job#4", "*", "d1"];
    let jobs = jobs.map(|job| Key::Jobid(JobId::new(job.as_bytes())));
    let others = [
        Key::Default,
        Key::Uid(0),
        Key::Uid(1000),
        Key::Gid(7),
        Key::Projid(3),
        Key::Nodemap(1),
        Key::Opcode(Opcode::OST_READ),
    ];
    let absent = Field::ALL.map(Key::Absent);
    nids.chain(jobs).chain(others).chain(absent)
}

/// Checks the properties of every table of weights.
fn check_weights(weights: &Weights) {
    let text = |weights: &Weights| shown(|out| weights.write(out));
    let written = text(weights);
    let apply = |weights: Weights| weights.apply(&written).expect(&written);
    let again = apply(Weights::new());
    assert_eq!(text(&again), written);
    assert_eq!(again.len(), weights.len());
    assert!(weights.len() <= ITEMS_MAX && written.lines().count() == weights.len());
    for key in keys() {
        let weight = weights.of(&key);
        assert!((1..=WEIGHT_MAX).contains(&weight));
        assert_eq!(again.of(&key), weight, "{key}\n{written}");
    }
    // Applying the whole text to the table again changes nothing.
    assert_eq!(text(&apply(again)), written);
    assert!(weights.apply("clear").is_ok_and(|empty| empty.is_empty()));
}

/// Checks each line as a change of weights, one write to `nrs_fairshare_weights`; a line may begin
/// with a mode.
pub(crate) fn weights(all: &str) {
    if let Ok((mode, list)) = split(all) {
        assert_eq!(Mode::parse(&mode.to_string()), Ok(mode));
        assert!(all.contains(list.unwrap_or_default()));
    }
    let mut weights = Weights::new();
    for line in all.split('\n').take(64) {
        let list = split(line).map_or(Some(line), |(_, list)| list);
        let before = shown(|out| weights.write(out));
        match weights.apply(list.unwrap_or(line)) {
            Ok(next) => weights = next,
            Err(error) => {
                check_reason(&error);
                assert_eq!(shown(|out| weights.write(out)), before);
            }
        }
    }
    check_weights(&weights);
    // All lines at once: items after an error do not count.
    if let Ok(weights) = Weights::new().apply(all) {
        check_weights(&weights);
    }
}

/// A service with devices `d1` to `d9`.
struct Nine;

impl OverseerContext for Nine {
    fn device_name(&self, device: u32, f: &mut dyn FnMut(&[u8])) {
        if (1..=9).contains(&device) {
            f(format!("d{device}").as_bytes());
        }
    }
}

/// Checks a text of `nrs_qbm_config`: the written plan parses to a plan with the same terms for all
/// clients, and the terms are within their limits.
pub(crate) fn plan(text: &str) {
    let plan = match Plan::parse(text) {
        Ok(plan) => plan,
        Err(error) => {
            let lines = text.split(['\n', ';']).count();
            assert!(error.line() as usize <= lines, "{text:?}: {error}");
            return check_reason(&error);
        }
    };
    let written = shown(|out| plan.write(out));
    let again = Plan::parse(&written).unwrap_or_else(|error| panic!("{written}: {error}"));
    assert_eq!(shown(|out| again.write(out)), written);
    assert_eq!((again.by(), again.tuning()), (plan.by(), plan.tuning()));
    assert_eq!(again.groups().len(), plan.groups().len());
    let floor = plan.tuning().floor;
    for (index, (group, twin)) in (0u32..).zip(plan.groups().iter().zip(again.groups())) {
        assert_eq!(
            (twin.name(), twin.settings()),
            (group.name(), group.settings())
        );
        let capacity = group.capacity();
        assert!(capacity >= floor && group.reserves().iter().sum::<u64>() <= capacity);
        if let Some(target) = group.target() {
            assert_eq!(plan.group_of(target), Some(index));
        }
        let devices = [0, 1, 2, 10].map(ClientKey::Device);
        for client in keys().map(ClientKey::Key).chain(devices) {
            let terms = plan.terms(index, &client, &Nine);
            assert_eq!(again.terms(index, &client, &Nine), terms);
            if let Some(terms) = terms {
                assert!(floor <= terms.min && terms.min <= terms.max && terms.max <= capacity);
            }
        }
    }
}
