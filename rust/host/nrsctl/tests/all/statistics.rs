// SPDX-License-Identifier: GPL-2.0-only

//! Tests of parsing texts from the module's own writers.

use crate::texts::{self, module, service, snapshot};
use nrsctl::failure::{Failure, FailureKind};
use nrsctl::mock::Mock;
use nrsctl::stats::{self, fairshare, lines, qbm, tbf, Bandwidth, Entity, Rule, Snapshot};
use proptest::prelude::*;
use serde_yaml_ng::{Mapping, Value};

/// Returns the lines from `place` on with at least `depth` as a YAML value.
fn tree(lines: &[lines::KeyLine<'_>], place: &mut usize, depth: usize) -> Value {
    let is_sequence = lines.get(*place).is_some_and(|line| line.item);
    let mut sequence = Vec::new();
    let mut mapping = Mapping::new();
    while let Some(line) = lines.get(*place).filter(|line| line.depth >= depth) {
        if line.item && !mapping.is_empty() {
            sequence.push(Value::Mapping(std::mem::take(&mut mapping)));
        }
        *place += 1;
        let value = match &line.value {
            lines::LineValue::Bare(word) => scalar(word),
            lines::LineValue::Quoted(text) => Value::String(text.clone().into_owned()),
            lines::LineValue::Empty => Value::Sequence(Vec::new()),
            lines::LineValue::Pairs(_) => {
                let mut pairs = Mapping::new();
                let put = |key: &str, value: &str| {
                    pairs.insert(Value::String(key.into()), scalar(value));
                    Some(())
                };
                line.pairs(put).expect("pairs");
                Value::Mapping(pairs)
            }
            lines::LineValue::Nothing => match lines.get(*place) {
                Some(next) if next.depth > line.depth => tree(lines, place, next.depth),
                _ => Value::Null,
            },
        };
        mapping.insert(Value::String(line.key.into()), value);
    }
    if is_sequence {
        sequence.push(Value::Mapping(mapping));
        Value::Sequence(sequence)
    } else if mapping.is_empty() {
        Value::Null
    } else {
        Value::Mapping(mapping)
    }
}

fn scalar(word: &str) -> Value {
    if let Ok(number) = word.parse::<u64>() {
        Value::from(number)
    } else if let Ok(number) = word.parse::<i64>() {
        Value::from(number)
    } else if let Ok(number) = word.parse::<f64>() {
        Value::from(number)
    } else if let Ok(switch) = word.parse::<bool>() {
        Value::from(switch)
    } else {
        Value::from(word)
    }
}

/// Parses `text` with the line parser and with a full YAML reader, and compares the results.
fn compare(text: &str) {
    let lines: Result<Vec<_>, _> = lines::lines(text).collect();
    let lines = lines.unwrap_or_else(|error| panic!("{error:?}: {text}"));
    let ours = tree(&lines, &mut 0, 0);
    let theirs = serde_yaml_ng::from_str::<Value>(text);
    assert_eq!(
        ours,
        theirs.unwrap_or_else(|error| panic!("{error}: {text}")),
        "{text}"
    );
}

#[test]
fn what_the_writers_write_is_read_as_yaml_is() {
    for entities in [1, 2, 26, 300] {
        compare(&texts::fairshare(entities));
        compare(&texts::tbf(entities));
        texts::qbm(entities).iter().for_each(|text| compare(text));
    }
    for text in [texts::fairshare(0), texts::tbf(0)] {
        assert!(lines::lines(&text).all(|line| line.is_ok()));
    }
    assert_eq!(fairshare::read(&texts::fairshare(0)), Ok(Vec::new()));
    assert_eq!(tbf::read(&texts::tbf(0)), Ok((Vec::new(), Vec::new())));
    assert_eq!(qbm::read_status("[]\n"), Ok((Vec::new(), Vec::new())));
    for (name, text) in service("fairshare", 1) {
        if !matches!(&name[..], "health" | "nrs_fairshare_weights") {
            compare(&text);
        }
    }
}

/// Verifies that each written entity is read with its name, whatever characters the name contains,
/// and with its numbers.
#[test]
fn names_that_do_their_worst() {
    let entities = fairshare::read(&texts::fairshare(260)).expect("entities");
    assert_eq!(entities.len(), 260);
    for number in 0..260 {
        let bytes = texts::job(number);
        // Bytes that are not ASCII are shown as one character each.
        let name: String = bytes
            .as_bytes()
            .iter()
            .map(|byte| char::from(*byte))
            .collect();
        let name = format!("uid:{}/jobid:{name}", 1000 + number % 97);
        let entity = entities.iter().find(|entity| entity.name == name);
        let entity = entity.unwrap_or_else(|| panic!("no {name:?}"));
        assert_eq!(
            entity.counter("dispatched"),
            u64::from(number % 3 + 1),
            "{name}"
        );
        assert_eq!(entity.queued, u64::from(number % 20), "{name}");
        assert_eq!(
            entity.head,
            if number % 10 == 0 { "high" } else { "regular" }
        );
        assert_eq!(entity.busy, number % 3 != 0);
        assert_eq!(entity.weight, Some(f64::from(1 + number % 3)));
        assert_eq!(
            entity.debt_pages,
            Some((f64::from(number % 200) - 100.0) / 10.0)
        );
        assert!(entity.wait_us["max"] >= entity.wait_us["p50"]);
    }
    let sum: f64 = entities.iter().filter_map(|entity| entity.share_1s).sum();
    assert!(
        (sum - 2.0).abs() < 0.13,
        "one for each head, rounded: {sum}"
    );
    let (rules, classes) = tbf::read(&texts::tbf(260)).expect("classes");
    assert_eq!(classes.len(), 260);
    assert_eq!(rules.len(), 6);
    let served: u64 = classes
        .iter()
        .map(|class| class.counter("dispatched"))
        .sum();
    assert_eq!(served, (0..260).sum::<u64>());
    assert_eq!(
        rules
            .iter()
            .map(|rule| rule.counter("dispatched"))
            .sum::<u64>(),
        served
    );
    assert!(classes.iter().any(|class| class.name == "default"));
    assert!(classes
        .iter()
        .any(|class| class.name == "jobid:a\"b uid:1000"));
    let [status, stats] = texts::qbm(260);
    let (mut groups, mut clients) = qbm::read_status(&status).expect("clients");
    qbm::read_stats(&stats, &mut groups, &mut clients).expect("statistics");
    assert_eq!((groups.len(), clients.len()), (2, 260));
    assert_eq!(groups[0].counters["requests"], 0);
    assert!(clients.iter().any(|client| client.name == "jobid:b\\c"));
}

/// Reads a snapshot of a service under `policy` after `from` is replaced by `to` in one text.
fn changed(policy: &str, text: &str, from: &str, to: &str) -> Result<Snapshot, Failure> {
    let mut all = service(policy, 14);
    let found = all
        .iter_mut()
        .find(|(name, _)| name == text)
        .expect("a text");
    assert!(found.1.contains(from), "{}", found.1);
    found.1 = found.1.replace(from, to);
    stats::read(&module(&all), "svc")
}

/// Verifies that a policy qbm that stops before its texts are read is no failure; a failure of a
/// started qbm is reported.
#[test]
fn qbm_that_stops_meanwhile() {
    let mut all = service("qbm", 14);
    all.retain(|(name, _)| name != "nrs_qbm_status");
    let failure = stats::read(&module(&all), "svc").expect_err("no status");
    assert_eq!(failure.kind, FailureKind::NotFound);
    for (name, text) in &mut all {
        if name == "nrs_policies" {
            *text = text.replace("state: started", "state: stopping");
        }
    }
    let snapshot = stats::read(&module(&all), "svc").expect("a snapshot");
    assert!(snapshot.groups.is_empty() && snapshot.entities.is_empty());
}

#[test]
fn lost_clients_health_and_devices_that_are_not_regulated() {
    let lost = changed("crrn", "clients", "state: live", "state: lost").expect("a snapshot");
    assert!(lost.clients[0].lost && lost.clients[0].name == "q\"1\\x22");
    let hung = changed("crrn", "health", "healthy", "NOT healthy").expect("a snapshot");
    let reason = "3 queued, the first one ready for 0 s";
    assert_eq!(
        (hung.unhealthy.as_deref(), &*hung.progress),
        (Some(reason), reason)
    );
    let text = "- group: \"g\"\n  strategy: \"mover\"\n  capacity: 5\n  clients:\n  - client: \
                \"device:a\"\n    \
        class: \"unregulated\"\n    allocated: \"unregulated\"\n    used_fast: 7\n";
    let (_, clients) = qbm::read_status(text).expect("clients");
    let want = Bandwidth {
        class: "unregulated".into(),
        used_fast: 7,
        ..Bandwidth::default()
    };
    assert_eq!(clients[0].bandwidth.as_ref(), Some(&want));
    assert_eq!(clients[0].limit, None);
}

/// Verifies that unknown fields, texts and lines of newer modules are ignored, and that fields
/// missing in older modules are accepted.
#[test]
fn other_versions() {
    let text =
        "- entity: \"uid:1\"\n  dispatched: 3\n  colour: \"red\"\n  deep:\n    deeper: { a: 1 }\n";
    let entities = fairshare::read(text).expect("entities");
    assert_eq!((entities.len(), entities[0].counter("dispatched")), (1, 3));
    let texts = [
        (
            "clients",
            "service: { slots: 1, new: 2, mode: x }\nclients:\n\
             - client: \"a\"\n  counters: { passed: 1, \
             mode: x, share: 0.5, state: lost }\ntargets:\n\
             - target: \"8:0\"\n  counters: { depth: 3, mode: x }\n\
             others: []\n",
        ),
        (
            "nrs_policies",
            "\nregular_requests:\n  - name: new thing\n    state: started\n    colour: red\n\n",
        ),
        ("at_stats", "a: 1\nmode: x\nname: \"5\"\n"),
    ];
    let found = stats::read(&Mock::with(&[("svc", &texts)]), "svc").expect("a snapshot");
    let only = |name: &'static str, number| [(name.into(), number)].into();
    assert_eq!(found.counters, only("slots", 1));
    assert_eq!(found.heads[0].policies[0].name, "new");
    assert!(found.clients[0].lost && found.clients[0].counters == only("passed", 1));
    assert_eq!(found.targets[0].counters, only("depth", 3));
    assert_eq!(found.timeouts, only("a", 1));
    let status =
        "- group: \"all\"\n  strategy: even\n  mode: x\n  reserves: { high: 1, kind: y }\n";
    let (mut groups, mut clients) = qbm::read_status(status).expect("a group");
    let counted = "- group: \"all\"\n  mode: x\n  sleeps: 3\n";
    qbm::read_stats(counted, &mut groups, &mut clients).expect("numbers");
    let counters = [("reserve_high".into(), 1), ("sleeps".into(), 3)].into();
    assert_eq!(
        (&*groups[0].strategy, &groups[0].counters),
        ("even", &counters)
    );
}

/// Texts of parameters, with ` ; ` between lines, each followed by the error.
const WRONG: &str = r#"
clients = service: { slots: x }
    1: expected { KEY: NUMBER, ... }, found 'service: {
clients = clients: ; - client: "q"1\x22"
    2: expected a string in double quotes
clients =   counters: { a: 1 }
    1: expected a line '- client: NAME' or '- target: NAME' before
clients = clients: ; - client: a ;   counters: { a: 18446744073709551616 }
    3: expected { KEY: NUMBER, ... }
clients = nothing
    1: expected KEY: VALUE, found 'nothing'
nrs_policies =   - name: fifo
    1: expected regular_requests:
nrs_policies = regular_requests: ;     state: x
    2: expected - name: POLICY
nrs_policies = regular_requests: ;   - name: a ;     queued: -1
    3: expected a number
nrs_fairshare_stats =   weight: 1
    1: expected - entity: NAME
nrs_fairshare_stats = - entity: a ;  ;   weight: inf
    3: expected a number with decimals
nrs_fairshare_stats = - entity: a ;   active: maybe
    2: expected true or false
nrs_fairshare_stats = - entity: "a\q"
    1: expected a string in double quotes
nrs_fairshare_stats = - entity: "a\x4"
    1: expected a string in double quotes
nrs_fairshare_stats = - entity: "
    1: expected a string in double quotes
nrs_fairshare_stats = - entity: a ;   queue: slow
    2: expected regular or high_priority
at_stats = lost: 99999999999999999999
    1: expected a number
"#;

#[test]
fn what_is_wrong_is_said_with_its_line() {
    let wrong: Vec<&str> = WRONG.trim().lines().collect();
    for pair in wrong.chunks(2) {
        let (parameter, text) = pair[0].split_once(" = ").expect("a parameter");
        let (text, want) = (text.replace(" ; ", "\n"), pair[1].trim());
        let mut all = service("fairshare", 14);
        let place = all.iter_mut().find(|(name, _)| name == parameter);
        place.expect("a text").1 = format!("{text}\n");
        let failure = stats::read(&module(&all), "svc").expect_err(&text);
        let want = format!("{parameter} of service 'svc', line {want}");
        assert!(failure.message.starts_with(&want), "{}", failure.message);
        assert!(failure.kind == FailureKind::Other && failure.hint.is_some());
    }
    for (text, want) in [
        ("  head: reg\n", 1),
        ("rules:\n- rule: \"a\"\n  head: middle\n", 3),
    ] {
        assert_eq!(tbf::read(text).expect_err(text).number, want);
    }
    for text in [
        "  capacity: 1\n",
        "    class: \"x\"\n",
        "deep:\n",
        "- group: g\n  capacity: 99999999999999999999\n",
    ] {
        assert!(qbm::read_status(text).is_err(), "{text}");
    }
    let missing = stats::read(&Mock::with(&[]), "svc").expect_err("no service");
    assert_eq!(missing.kind, FailureKind::NotFound);
}

#[test]
fn limits_of_rules() {
    for (rate, unit, want) in [
        ("10000", "requests", Some((10_000, false))),
        ("10000", "pages", Some((40_960_000, true))),
        ("7iops", "pages", Some((7, false))),
        ("3MB/s", "bytes", Some((3_000_000, true))),
        ("3XB/s", "bytes", None),
    ] {
        let rule = Rule {
            rate: rate.into(),
            unit: unit.into(),
            ..Rule::default()
        };
        assert_eq!(rule.limit(), want, "{rate}");
    }
}

/// Verifies that a snapshot is unchanged by a conversion to JSON and back, and that missing fields
/// get their defaults.
#[test]
fn recorded_and_read_again() {
    for name in ["fairshare", "tbf", "qbm"] {
        let snapshot = snapshot(name);
        let text = serde_json::to_string(&snapshot).expect("JSON");
        assert_eq!(
            serde_json::from_str::<Snapshot>(&text).expect("a snapshot"),
            snapshot
        );
    }
    let old: Snapshot =
        serde_json::from_str(r#"{"service":"a","entities":[{"name":"b"}]}"#).expect("a snapshot");
    assert_eq!(
        old.entities[0],
        Entity {
            name: "b".into(),
            ..Entity::default()
        }
    );
}

#[test]
fn time_goes_forward() {
    let module = module(&service("crrn", 0));
    let times: Vec<u64> = (0..3)
        .map(|_| stats::read(&module, "svc").expect("a snapshot").at_ns)
        .collect();
    assert!(times.windows(2).all(|pair| pair[0] < pair[1]), "{times:?}");
}

proptest! {
    /// Verifies that no text causes a panic.
    #[test]
    fn any_text(text in "([ -]{0,4}[a-z_]{0,6}:? ?[\"\\\\{}\\[\\],:x0-9a-f. -]{0,20}\n){0,6}") {
        let _ = fairshare::read(&text);
        let _ = tbf::read(&text);
        if let Ok((mut groups, mut clients)) = qbm::read_status(&text) {
            let _ = qbm::read_stats(&text, &mut groups, &mut clients);
        }
        let _ = stats::policies::read(&text);
        let _ = stats::plain::numbers(&text);
        let _ = stats::clients::read(&text, &mut Snapshot::default());
    }

    /// Verifies that strings escaped by the writers are read unchanged.
    #[test]
    fn any_string(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
        let mut text = String::from("name: \"");
        nrs_sched::key::escape(&bytes, &mut text).expect("a string takes everything");
        text.push_str("\"\n");
        let line = lines::lines(&text).next().expect("a line").expect("a key");
        let want: String = bytes.iter().map(|byte| char::from(*byte)).collect();
        prop_assert_eq!(line.text().expect("a string"), want);
    }
}
