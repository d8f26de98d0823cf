// SPDX-License-Identifier: GPL-2.0-only

//! Tests of scenario files: the files of the crate are valid, and faults are reported with their
//! places.

use nrs_sim::engine;
use nrs_sim::scenario::{fault, Faults, Scenario};
use nrs_sim::study::Study;

/// Valid scenario with one key per line.
const GOOD: &str = r#"name = "x"
duration = "10s"
[network]
latency = "5us"
[[device]]
name = "d"
kind = "pipe"
bandwidth = "1GB/s"
[[server]]
name = "s"
device = "d"
policy = "fairshare jobid_fair"
weights = "jobid:a:2"
[[job]]
name = "a"
procs = 4
[[job]]
name = "b"
io = [{ size = "4KiB", weight = 3 }, { size = "1MiB", weight = 1 }]
"#;

/// Cases of three lines: a prefix of a line of [`GOOD`], its replacement (`\n` separates lines),
/// and the place and message of the fault.
const WRONG: &str = r#"procs = 4
  procs = 0
  16:1: key `job[0].procs`: 0 is out of range
procs = 4
  procs = "4"
  16:9: key `job[0].procs`: invalid type
procs = 4
  proc = 4
  16:1: key `job[0].proc`: unknown field `proc`
procs = 4
  procs = 99000000
  16:1: key `job[0].procs`: 99000000 is out of range
procs = 4
  stop = "0s"
  16:1: key `job[0].stop`: is not after the start
procs = 4
  start = "1h"
  16:1: key `job[0].start`: is not before
procs = 4
  servers = ["s", "t"]
  16:17: key `job[0].servers[1]`: unknown server "t"
procs = 4
  servers = 2
  16:1: key `job[0].servers`: 2 is out of range
procs = 4
  servers = "some"
  16:11: key `job[0].servers`: expected "all", a number or a list of names
procs = 4
  loop = "open"
  14:1: key `job[0].rate`: is missing
procs = 4
  mix = { read = 0 }
  16:1: key `job[0].mix`: all weights are 0
procs = 4
  mix = { reed = 1 }
  16:9: key `job[0].mix.reed`: unknown field
procs = 4
  think = 5
  16:9: key `job[0].think`: invalid type: integer `5`, expected
procs = 4
  think = "5"
  16:9: key `job[0].think`: a time needs a unit
procs = 4
  phases = { on = "1s", off = "0s" }
  16:23: key `job[0].phases.off`: is 0 (minimum: 1)
procs = 4
  burst = { bytes = "1MiB" }
  16:9: key `job[0].burst.compute`: missing field
name = "b"
  name = "a"
  18:1: key `job[1].name`: duplicate name "a" (also job[0])
name = "b"
  
  17:1: key `job[1].name`: missing field
io = [
  io = [{ size = "4KB" }, { size = "0B" }]
  19:27: key `job[1].io[1].size`: 0 is out of range (1 to 1073741824)
io = [
  io = [{ size = "4XB" }]
  19:16: key `job[1].io[0].size`: a size needs a unit
device = "d"
  device = "e"
  11:1: key `server[0].device`: unknown device "e"
policy =
  policy = "sfq"
  12:1: key `server[0].policy`: `sfq`: no policy of this name (fifo, crrn, orr, trr, tbf,
policy =
  policy = "fairshare one"
  12:1: key `server[0].policy`: `fairshare one`: 
policy =
  policy = "tbf"\nrules = ["start"]
  13:1: key `server[0].rules`: `start`: 
policy =
  policy = "qbm"\nplan = "nonsense"
  13:1: key `server[0].plan`: `nonsense`: 
weights =
  params = { quantum = 3 }
  13:12: key `server[0].params.quantum`: `3`: 
weights =
  weights = "jobid:a:0"
  13:1: key `server[0].weights`: `jobid:a:0`: 
weights =
  rules = ["start"]
  13:1: key `server[0].rules`: `start`: only allowed with the policy tbf
weights =
  count = 2000
  13:1: key `server[0].count`: 2000 is out of range
bandwidth =
  bandwidth = "1GB"
  8:13: key `device[0].bandwidth`: a rate needs a unit
bandwidth =
  
  5:1: key `device[0].bandwidth`: is missing
bandwidth =
  seek = "1ms"
  8:1: key `device[0].seek`: not allowed for kind = 
bandwidth =
  jitter = 2.0
  8:1: key `device[0].jitter`: 2 is out of range
kind =
  kind = "tape"
  7:8: key `device[0].kind`: unknown variant `tape`
duration =
  
  1:1: key `duration`: missing field
duration =
  duration = "10s"\nsample = "1ns"
  3:1: key `sample`: too many bins of the duration: 10000000000
duration =
  duration = 10s
  2:14: expected newline
latency =
  [exchange]\nloss = 1.5
  5:1: key `exchange.loss`: 1.5 is out of range
latency =
  [exchange]\ncut = [{ server = "s", from = "2s", to = "1s" }]
  5:37: key `exchange.cut[0].to`: is not after
name = "x"
  name = "../x"
  1:1: key `name`: "../x" is not a valid name"#;

#[test]
fn wrong_scenarios() {
    assert!(Scenario::parse("x.toml", GOOD, &[]).is_ok());
    let mut wrong = Vec::new();
    let lines: Vec<&str> = WRONG.lines().collect();
    for case in lines.chunks(3) {
        let [line, instead, message] = case else {
            panic!("{case:?}");
        };
        let instead = instead.trim().replace("\\n", "\n");
        let message = format!("x.toml:{}", message.trim());
        let text = GOOD
            .lines()
            .map(|l| if l.starts_with(line) { &instead } else { l })
            .collect::<Vec<_>>()
            .join("\n");
        let got = match Scenario::parse("x.toml", &text, &[]) {
            Ok(_) => "nothing".to_string(),
            Err(faults) => faults.to_string(),
        };
        if !got.lines().any(|l| l.starts_with(&message)) {
            wrong.push(format!("{instead}\n  got  {got}\n  want {message}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns all scenario files of the crate.
fn files() -> Vec<std::path::PathBuf> {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios");
    let mut files: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "toml"))
        .collect();
    files.sort();
    files
}

/// Checks that each file is valid, is named after its scenario, and can be started.
#[test]
fn files_of_the_crate() {
    let files = files();
    assert!(files.len() >= 8);
    for path in files {
        let scenario = Scenario::load(&path, &[]).unwrap_or_else(|faults| panic!("{faults}"));
        assert_eq!(Some(scenario.name.as_ref()), path.file_stem());
        assert!(!scenario.title.is_empty(), "{}", path.display());
        let settings = engine::Settings {
            events: 2_000,
            ..engine::Settings::default()
        };
        let outcome = engine::run_with(&scenario, settings, |_, _| ());
        let outcome = outcome.unwrap_or_else(|reason| panic!("{}: {reason}", path.display()));
        assert!(outcome.events >= 2_000, "{}", path.display());
    }
}

/// Checks that `--set` selects list entries by name and by index, and that the result is checked.
#[test]
fn keys_overridden() {
    let parse = |set: &[(&str, &str)]| {
        let set: Vec<_> = set
            .iter()
            .map(|(k, v)| (k.to_string(), v.to_string()))
            .collect();
        Scenario::parse("x.toml", GOOD, &set)
    };
    let scenario = parse(&[
        ("job.a.procs", "7"),
        ("job.1.nodes", "3"),
        ("server.s.policy", "fifo"),
        ("server.0.weights", "[]"),
        ("network.latency", "1ms"),
        ("seed", "9"),
    ])
    .unwrap();
    assert_eq!((scenario.jobs[0].procs, scenario.jobs[1].nodes), (7, 3));
    assert_eq!(scenario.servers[0].policy, "fifo");
    assert_eq!((scenario.network.latency.0, scenario.seed), (1_000_000, 9));
    for (set, message) in [
        (
            ("job.c.procs", "1"),
            "--set: key `job.c.procs`: `job` has no entry `c`",
        ),
        (
            ("job.9.procs", "1"),
            "--set: key `job.9.procs`: `job` has no entry `9`",
        ),
        (("job", "1"), "x.toml with --set:"),
        (
            ("job.a.procs", "0"),
            "key `job[0].procs`: 0 is out of range",
        ),
        (
            ("name.x", "1"),
            "--set: key `name.x`: `name` is not a table",
        ),
    ] {
        let faults = parse(&[set]).unwrap_err().to_string();
        assert!(faults.contains(message), "{set:?}: {faults}");
    }
}

/// Returns the keys of a table, from the parser's message about an unknown key.
fn keys(table: &str, error: &Faults) -> Vec<String> {
    let reason = &error.list[0].reason;
    let (_, expected) = reason
        .split_once(", expected ")
        .unwrap_or_else(|| panic!("{table}: {reason}"));
    let mut keys: Vec<String> = expected
        .split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_string)
        .collect();
    keys.sort();
    keys
}

/// Checks that the page has one row for each key of each table: `| key | ... |` under `### table`.
#[test]
fn the_page_has_all_keys() {
    let page = include_str!("../../../../../Documentation/simulator.md");
    let with = |line: &str, more: &str| {
        let lines = GOOD.lines().map(|l| match l.starts_with(line) {
            true => format!("{l}\n{more}"),
            false => l.to_string(),
        });
        lines.collect::<Vec<_>>().join("\n")
    };
    let top = format!("zzz = 1\n{GOOD}");
    let scenarios = [
        ("The scenario", top),
        ("network", with("latency", "zzz = 1")),
        ("device", with("kind", "zzz = 1")),
        ("server", with("policy", "zzz = 1")),
        ("job", with("procs", "zzz = 1")),
        ("exchange", format!("{GOOD}\n[exchange]\nzzz = 1")),
        ("cut", format!("{GOOD}\n[exchange]\ncut = [{{ zzz = 1 }}]")),
        ("phases", with("procs", "phases = { zzz = 1 }")),
        ("mix", with("procs", "mix = { zzz = 1 }")),
        ("io", with("procs", "io = [{ zzz = 1 }]")),
        ("burst", with("procs", "burst = { zzz = 1 }")),
        ("read and write", with("kind", "read = { zzz = 1 }")),
    ];
    let scenarios = scenarios.map(|(table, text)| {
        let error = Scenario::parse("x.toml", &text, &[]).unwrap_err();
        (table, error)
    });
    let studies = [
        ("study", "zzz = 1"),
        ("table", "[[table]]\nzzz = 1"),
        ("axis", "[[table]]\naxis = [{ zzz = 1 }]"),
        ("case", "[[table]]\nall = { zzz = 1 }"),
        ("column", "[[table]]\ncolumns = [{ zzz = 1 }]"),
        ("chart", "[chart]\nzzz = 1"),
    ];
    let studies = studies.map(|(table, text)| {
        let error = fault::read::<Study>("x.toml", text).unwrap_err();
        (table, error)
    });
    for (table, error) in scenarios.into_iter().chain(studies) {
        let heading = format!("### {table}\n");
        let (_, section) = page
            .split_once(&heading)
            .unwrap_or_else(|| panic!("the page has no \"{heading}\""));
        let section = section.split("\n#").next().unwrap_or_default();
        let mut told: Vec<String> = section
            .lines()
            .filter_map(|line| line.strip_prefix("| `"))
            .filter_map(|line| line.split('`').next())
            .map(str::to_string)
            .collect();
        told.sort();
        assert_eq!(told, keys(table, &error), "{table}");
    }
    let column = "[[table]]\ncolumns = [{ head = \"\", measure = \"zzz\" }]";
    let error = fault::read::<Study>("x.toml", column).unwrap_err();
    for measure in keys("measure", &error) {
        assert!(page.contains(&format!("`{measure}`")), "{measure}");
    }
}

/// Checks the exit status of the program: 2 with the place of each fault, 0 without faults.
#[test]
fn the_program_checks() {
    let dir = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let (good, bad) = (dir.join("good.toml"), dir.join("bad.toml"));
    std::fs::write(&good, GOOD).unwrap();
    std::fs::write(&bad, GOOD.replace("procs = 4", "procs = 0")).unwrap();
    let check = |paths: &[&std::path::Path]| {
        let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_nrs-sim"));
        let output = program.arg("check").args(paths).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), text)
    };
    assert_eq!(check(&[&good]), (Some(0), String::new()));
    let (code, text) = check(&[&bad, &good, &bad]);
    assert_eq!(code, Some(2));
    let line = format!(
        "{}:16:1: key `job[0].procs`: 0 is out of range (1 to 8000000)\n",
        bad.display()
    );
    assert_eq!(text, line.repeat(2));
    assert_eq!(check(&[&dir.join("none.toml")]).0, Some(2));
}
