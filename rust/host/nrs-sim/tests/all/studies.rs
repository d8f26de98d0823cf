// SPDX-License-Identifier: GPL-2.0-only

//! Tests of quick studies: each keeps its limits, and broken limits and faults are reported.

use std::path::{Path, PathBuf};

use nrs_sim::scenario::Scenario;
use nrs_sim::study::{self, Options};
use nrs_sim::{engine, show};

const SCENARIOS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios");
const TMP: &str = env!("CARGO_TARGET_TMPDIR");

fn quick() -> Options {
    Options {
        out: None,
        seeds: 1,
        quick: true,
        quiet: true,
    }
}

/// Checks that each study of the crate keeps its limits, and writes its files.
#[test]
fn studies_of_the_crate() {
    let out = Path::new(TMP).join("studies");
    let options = Options {
        out: Some(out.clone()),
        ..quick()
    };
    let mut count = 0;
    for entry in std::fs::read_dir(Path::new(SCENARIOS).join("studies")).unwrap() {
        let path = entry.unwrap().path();
        let report = study::run(&path, &options).unwrap_or_else(|error| panic!("{error}"));
        assert!(report.broken.is_empty(), "{path:?}: {:#?}", report.broken);
        let name = path.file_stem().unwrap().to_str().unwrap();
        let table = std::fs::read_to_string(out.join(format!("{name}.md"))).unwrap();
        assert_eq!(table, report.markdown);
        assert!(out.join(format!("{name}.json")).exists());
        let chart = std::fs::read_to_string(&path).unwrap().contains("[chart]");
        assert_eq!(out.join(format!("{name}.svg")).exists(), chart, "{name}");
        count += 1;
    }
    assert_eq!(count, 7);
}

/// Study of one scenario: four nodes and one, with shares by size.
const SIZES: &str = r#"shorten = true
[[table]]
columns = [
  { head = "error, %", measure = "share-error", name = "error" },
  { head = "limits", measure = "limits" },
]
[table.all]
runs = [{ file = "SCENARIOS/size-fair-4v1.toml" }]
ideal = [4, 1]
most = { error = 1.2 }
[[table.axis]]
head = "policy"
cases = [
  { label = "fair" },
  { label = "by job", set = { "server.0.policy" = "fairshare jobid_fair" } },
]
"#;

/// Writes a study with a line replaced; returns its path.
fn written(name: &str, from: &str, to: &str) -> PathBuf {
    let path = Path::new(TMP).join(format!("{name}.toml"));
    assert!(SIZES.contains(from));
    let text = SIZES.replace(from, to).replace("SCENARIOS", SCENARIOS);
    std::fs::write(&path, text).unwrap();
    path
}

/// Checks that the program names the row with a broken limit, and exits with status 1.
#[test]
fn a_broken_limit() {
    let path = written("broken", "", "");
    let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_nrs-sim"));
    let program = program.arg("study").arg(&path);
    let output = program
        .args(["--quick", "--quiet", "--seeds", "2"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let table = String::from_utf8(output.stdout).unwrap();
    let rows: Vec<&str> = table.lines().skip(2).collect();
    assert!(
        rows[0].contains("| fair ") && rows[0].contains("| met "),
        "{table}"
    );
    assert!(rows[1].contains("| NOT met: error |"), "{table}");
    let reason = String::from_utf8(output.stderr).unwrap();
    assert!(reason.contains("by job: error, % "), "{reason}");
    assert!(reason.contains(" (at most 1.2)"), "{reason}");
}

/// Wrong studies: a part of [`SIZES`], its replacement, and a part of the message.
const WRONG: &str = r#"
share-error
    shares-error
    4:34: key `table[0].columns[0].measure`: unknown variant
name = "error"
    name = "eror"
    no measured column "error" for a limit
name = "error"
    name = "error", run = 1
    fair: error, %: there is no run 1
name = "error"
    name = "error", from = "back"
    : a time needs a unit
name = "error"
    name = "error", jobs = ["x"]
    fair: error, %: unknown job "x"
ideal = [4, 1]
    ideal = [4]
    fair: error, %: needs an ideal share of each job
size-fair-4v1
    none
    No such file
jobid_fair
    fair
    server[0].policy`: `fairshare fair`: 
size-fair-4v1
    random/ideal
    not measured of ideal servers
size-fair-4v1.toml"
    random/cluster.toml", set = { "random.servers" = 0 }
    out of
"#;

#[test]
fn wrong_studies() {
    let lines: Vec<&str> = WRONG.trim_matches('\n').lines().collect();
    for (n, case) in lines.chunks(3).enumerate() {
        let (to, want) = (case[1].trim(), case[2].trim_start());
        let path = written(&format!("wrong-{n}"), case[0], to);
        let error = study::run(&path, &quick()).map(drop).unwrap_err();
        assert!(
            error.to_string().contains(want),
            "{to}\n  got  {error}\n  want {want}"
        );
    }
}

/// Checks the tables, JSON and charts of a run.
#[test]
fn files_and_tables() {
    let mut scenario =
        Scenario::load(&Path::new(SCENARIOS).join("user-fair-2v1.toml"), &[]).unwrap();
    study::input::shorten(&mut scenario);
    let outcome = engine::run(&scenario).unwrap();
    let paths = show::write(&outcome, &Path::new(TMP).join("files")).unwrap();
    assert_eq!(paths.len(), 4);
    for path in &paths {
        assert!(std::fs::metadata(path).unwrap().len() > 1000);
    }
    let tables = show::tables(&outcome);
    for name in ["a1", "a2", "b", "oss"] {
        assert!(tables.contains(&format!("| {name} ")), "{tables}");
    }
}
