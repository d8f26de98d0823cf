// SPDX-License-Identifier: GPL-2.0-only

//! What is read of the module's texts: those that a machine showed, and those of the module's own writers.

use crate::texts::{self, fixture, fixtures, module, numbered, snapshot};
use nrsctl::failure::Kind;
use nrsctl::mock::Mock;
use nrsctl::stats::{self, fairshare, lines, qbm, tbf, Bandwidth, Entity, Rate, Snapshot};
use proptest::prelude::*;
use serde_yaml_ng::{Mapping, Value};

/// What the lines from `place` on that are `depth` deep or deeper stand for, as YAML.
fn tree(lines: &[lines::Line<'_>], place: &mut usize, depth: usize) -> Value {
    let is_sequence = lines.get(*place).is_some_and(|line| line.item);
    let mut sequence = Vec::new();
    let mut mapping = Mapping::new();
    while let Some(line) = lines.get(*place).filter(|line| line.depth >= depth) {
        if line.item && !mapping.is_empty() {
            sequence.push(Value::Mapping(std::mem::take(&mut mapping)));
        }
        *place += 1;
        let value = match &line.value {
            lines::Value::Bare(word) => scalar(word),
            lines::Value::Quoted(text) => Value::String(text.clone().into_owned()),
            lines::Value::Empty => Value::Sequence(Vec::new()),
            lines::Value::Pairs(_) => {
                let mut pairs = Mapping::new();
                let put = |key: &str, value: &str| {
                    pairs.insert(Value::String(key.into()), scalar(value));
                    Some(())
                };
                line.pairs(put).expect("pairs");
                Value::Mapping(pairs)
            }
            lines::Value::Nothing => match lines.get(*place) {
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

/// Reads `text` line by line and with a reader of all of YAML: the same has to come of it.
fn compare(text: &str) {
    let lines: Result<Vec<_>, _> = lines::lines(text).collect();
    let lines = lines.unwrap_or_else(|error| panic!("{error:?}: {}", numbered(text)));
    let ours = tree(&lines, &mut 0, 0);
    let theirs: Value =
        serde_yaml_ng::from_str(text).unwrap_or_else(|error| panic!("{error}: {}", numbered(text)));
    assert_eq!(ours, theirs, "{}", numbered(text));
}

#[test]
fn what_machines_showed_is_read_as_yaml_is() {
    let mut texts = 0;
    for dir in fixtures().read_dir().expect("fixtures") {
        let dir = dir.expect("a fixture");
        if !dir.path().is_dir() {
            continue;
        }
        let name = dir.file_name();
        for (parameter, text) in fixture(&name.to_string_lossy()) {
            if !matches!(parameter.as_str(), "health" | "nrs_fairshare_weights") {
                compare(&text);
                texts += 1;
            }
        }
    }
    assert!(texts > 40, "{texts}");
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
    compare(&texts::policies("fairshare", "uid_fair"));
}

/// Each entity that was written is read with its name, whatever that is, and nothing is mixed up.
#[test]
fn names_that_do_their_worst() {
    let entities = fairshare::read(&texts::fairshare(260)).expect("entities");
    assert_eq!(entities.len(), 260);
    for number in 0..260 {
        let bytes = texts::job(number);
        // What is not ASCII is shown byte by byte.
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

#[test]
fn shares_of_a_machine() {
    let snapshot = snapshot("fairshare");
    assert_eq!(
        (snapshot.counter("slots"), snapshot.counter("limit")),
        (8, 8)
    );
    assert_eq!(snapshot.heads.len(), 2);
    let policy = &snapshot.heads[0].policies[6];
    assert_eq!(policy.name, "fairshare");
    assert_eq!(policy.argument.as_deref(), Some("uid_then_jobid_fair"));
    assert_eq!((policy.state.as_str(), policy.fallback), ("started", false));
    assert!(snapshot.heads[0].policies[0].fallback);
    assert!(snapshot.unhealthy.is_none() && snapshot.progress.contains("queued"));
    let entity = |name: &str| {
        snapshot
            .entities
            .iter()
            .find(|entity| entity.name == name)
            .expect("an entity")
    };
    let double = entity("uid:1002/jobid:fio.1002");
    let single = entity("uid:1001/jobid:fio.1001");
    assert!(
        double.share_wanted > single.share_wanted,
        "{double:?} {single:?}"
    );
    assert_eq!(double.bytes(), Some(double.counter("cost") * 4096));
    assert!(double.counter("dispatched") > 0 && double.busy);
    entity("uid:1006/jobid:a\"b.1006");
    entity("uid:1006/jobid:b\\c.1006");
    assert_eq!(snapshot.clients.len(), 2);
    assert!(snapshot.clients[0].counters["ended"] > 0 && !snapshot.clients[0].lost);
    assert_eq!(snapshot.targets.len(), 1);
    assert_eq!(snapshot.targets[0].counters["users"], 2);
    assert_eq!(snapshot.timeouts.len(), 7);
    assert_eq!(snapshot.concurrency["buffer_max"], 65536);
}

#[test]
fn limits_of_a_machine() {
    let snapshot = snapshot("tbf");
    let greedy = snapshot
        .rules
        .iter()
        .find(|rule| rule.name == "greedy")
        .expect("a rule");
    assert_eq!(
        (
            greedy.head.as_str(),
            greedy.rate.as_str(),
            greedy.unit.as_str()
        ),
        ("regular", "1MB/s", "bytes")
    );
    assert!(greedy.counter("limit_hits") > 10 && greedy.counter("throttled_ns") > 0);
    assert!(snapshot.rules.iter().any(|rule| rule.head == "high"));
    let class = snapshot
        .entities
        .iter()
        .find(|class| class.within.as_deref() == Some("greedy"));
    let class = class.expect("a class");
    assert_eq!(
        (class.policy.as_str(), class.limit.as_deref()),
        ("tbf", Some("1MB/s"))
    );
    assert_eq!(class.bytes(), Some(class.counter("cost")));
    assert!(class.counter("dispatched") > 0 && class.counter("limit_hits") > 0);
}

#[test]
fn bandwidth_of_a_machine() {
    let snapshot = snapshot("qbm");
    let [group] = snapshot.groups.as_slice() else {
        panic!("{:?}", snapshot.groups);
    };
    assert_eq!(
        (group.name.as_str(), group.strategy.as_str()),
        ("all", "classes")
    );
    assert_eq!(group.counters["capacity"], 40_000_000);
    assert_eq!(group.counters["reserve_low_share"], 2_000_000);
    assert!(group.counters["requests"] > 0 && group.counters["read_bytes"] > 0);
    let names: Vec<&str> = snapshot
        .entities
        .iter()
        .map(|client| client.name.as_str())
        .collect();
    let mut sorted = names.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, ["jobid:-x:", "jobid:a\\b", "jobid:job\"1"]);
    let place = names.iter().position(|name| *name == "jobid:job\"1");
    let first = &snapshot.entities[place.expect("a client")];
    assert_eq!(
        (first.head.as_str(), first.within.as_deref()),
        ("both", Some("all"))
    );
    assert_eq!(first.limit.as_deref(), Some("10000000"));
    assert!(first.counter("dispatched") > 0 && first.counter("cost") > 0 && first.unit == "bytes");
    let given = first.bandwidth.as_ref().expect("bandwidth");
    assert_eq!(
        (given.class.as_str(), given.min, given.max, given.unmet),
        ("first_come", 10_000_000, 20_000_000, false)
    );
    let all: u64 = snapshot
        .entities
        .iter()
        .map(|client| client.counter("dispatched"))
        .sum();
    assert!(all.abs_diff(group.counters["requests"]) < 50, "{all}");
}

#[test]
fn a_machine_that_hangs() {
    let snapshot = snapshot("hung");
    let reason = snapshot.unhealthy.expect("unhealthy");
    assert!(
        reason.contains("queued, the first one ready for"),
        "{reason}"
    );
    assert_eq!(snapshot.progress, reason);
}

/// Before qbm's texts are read it is stopped: nothing is missing. If it still is started, its failure counts.
#[test]
fn qbm_that_stops_meanwhile() {
    let mut all = fixture("qbm");
    all.retain(|(name, _)| name != "nrs_qbm_status");
    let failure = stats::read(&module(&all), "svc").expect_err("no status");
    assert_eq!(failure.kind, Kind::NotFound);
    for (name, text) in &mut all {
        if name == "nrs_policies" {
            *text = text.replace("state: started", "state: stopping");
        }
    }
    let snapshot = stats::read(&module(&all), "svc").expect("a snapshot");
    assert!(snapshot.groups.is_empty() && snapshot.entities.is_empty());
}

#[test]
fn lost_clients_and_devices_that_are_not_regulated() {
    let mut all = fixture("fifo");
    for (name, text) in &mut all {
        if name == "clients" {
            *text = text.replacen("state: live", "state: lost", 1);
        }
    }
    let snapshot = stats::read(&module(&all), "svc").expect("a snapshot");
    let lost: Vec<bool> = snapshot.clients.iter().map(|client| client.lost).collect();
    assert_eq!(lost, [true, false]);
    let text = "- group: \"g\"\n  strategy: \"mover\"\n  capacity: 5\n  clients:\n  - client: \"device:a\"\n    \
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

/// Fields, texts and lines that a later module may have do no harm; those of an earlier one may be missing.
#[test]
fn other_versions() {
    let text =
        "- entity: \"uid:1\"\n  dispatched: 3\n  colour: \"red\"\n  deep:\n    deeper: { a: 1 }\n";
    let entities = fairshare::read(text).expect("entities");
    assert_eq!((entities.len(), entities[0].counter("dispatched")), (1, 3));
    let texts = [
        (
            "clients",
            "service: { slots: 1, new: 2 }\nclients:\ntargets:\nothers: []\n",
        ),
        (
            "nrs_policies",
            "\nregular_requests:\n  - name: new thing\n    state: started\n    colour: red\n\n",
        ),
    ];
    let snapshot = stats::read(&Mock::with(&[("svc", &texts)]), "svc").expect("a snapshot");
    assert_eq!(
        (
            snapshot.counter("slots"),
            snapshot.heads[0].policies[0].name.as_str()
        ),
        (1, "new")
    );
}

#[test]
fn what_is_wrong_is_said_with_its_line() {
    for (parameter, text, want) in [
        (
            "clients",
            "service: { slots: x }\n",
            "line 1: expected { KEY: NUMBER, ... }, found 'service: { slots: x }'",
        ),
        (
            "clients",
            "clients:\n- client: \"q\"1\\x22\"\n",
            "line 2: expected a string in double quotes",
        ),
        (
            "clients",
            "  counters: { a: 1 }\n",
            "line 1: expected a client or a target before",
        ),
        (
            "clients",
            "nothing\n",
            "line 1: expected KEY: VALUE, found 'nothing'",
        ),
        (
            "nrs_policies",
            "  - name: fifo\n",
            "line 1: expected regular_requests:",
        ),
        (
            "nrs_policies",
            "regular_requests:\n    state: x\n",
            "line 2: expected - name: POLICY",
        ),
        (
            "nrs_policies",
            "regular_requests:\n  - name: a\n    queued: -1\n",
            "line 3: expected a number",
        ),
        (
            "nrs_fairshare_stats",
            "  weight: 1\n",
            "line 1: expected - entity: NAME",
        ),
        (
            "nrs_fairshare_stats",
            "- entity: \"a\"\n\n  weight: inf\n",
            "line 3: expected a number with decimals",
        ),
        (
            "nrs_fairshare_stats",
            "- entity: \"a\"\n  active: maybe\n",
            "line 2: expected true or false",
        ),
        (
            "nrs_fairshare_stats",
            "- entity: \"a\\q\"\n",
            "line 1: expected a string in double quotes",
        ),
        (
            "nrs_fairshare_stats",
            "- entity: \"a\\x4\"\n",
            "line 1: expected a string in double quotes",
        ),
        (
            "nrs_fairshare_stats",
            "- entity: \"\n",
            "line 1: expected a string in double quotes",
        ),
        (
            "nrs_fairshare_stats",
            "- entity: \"a\"\n  queue: \"slow\"\n",
            "line 2: expected regular or high_priority",
        ),
        (
            "at_stats",
            "lost: 99999999999999999999\n",
            "line 1: expected a number",
        ),
    ] {
        let mut all = fixture("fairshare");
        for (name, old) in &mut all {
            if name == parameter {
                *old = text.into();
            }
        }
        let failure = stats::read(&module(&all), "svc").expect_err(text);
        assert_eq!(failure.kind, Kind::Other);
        let want = format!("{parameter} of service 'svc', {want}");
        assert!(failure.message.starts_with(&want), "{}", failure.message);
        assert!(failure.hint.is_some());
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
        "- group: \"g\"\n  capacity: 99999999999999999999\n",
    ] {
        assert!(qbm::read_status(text).is_err(), "{text}");
    }
    let missing = stats::read(&Mock::with(&[]), "svc").expect_err("no service");
    assert_eq!(missing.kind, Kind::NotFound);
}

#[test]
fn rates() {
    for (text, unit, want) in [
        ("10000", "requests", Some(Rate::Requests(10_000))),
        ("10000", "pages", Some(Rate::Bytes(40_960_000))),
        ("7iops", "pages", Some(Rate::Requests(7))),
        ("3MB/s", "bytes", Some(Rate::Bytes(3_000_000))),
        ("3MiB/s", "bytes", Some(Rate::Bytes(3 << 20))),
        ("41B/s", "bytes", Some(Rate::Bytes(41))),
        ("1024GiB/s", "bytes", Some(Rate::Bytes(1 << 40))),
        ("99999999999999999999", "bytes", None),
        ("MB/s", "bytes", None),
        ("3XB/s", "bytes", None),
        ("", "bytes", None),
    ] {
        assert_eq!(Rate::of(text, unit), want, "{text}");
    }
}

/// A snapshot is the same after it was written as JSON; what is missing there is nothing.
#[test]
fn recorded_and_read_again() {
    for name in ["fairshare", "tbf", "qbm", "hung", "fifo", "empty"] {
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
    let module = module(&fixture("empty"));
    let times: Vec<u64> = (0..3)
        .map(|_| stats::read(&module, "svc").expect("a snapshot").at_ns)
        .collect();
    assert!(times.windows(2).all(|pair| pair[0] < pair[1]), "{times:?}");
}

proptest! {
    /// Whatever a text is, nothing panics.
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

    /// What the writers escape is read as it was.
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
