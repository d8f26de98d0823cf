// SPDX-License-Identifier: GPL-2.0-only

//! Independence of the engine, the front-ends and the controls from policies. They name no policy,
//! so that a new policy is a folder and a line in the registry.

use std::fs;
use std::path::{Path, PathBuf};

use nrs_sched::policy::Kind;

/// Names of policies that are also common words.
const WORDS: [&str; 2] = ["fifo", "delay"];

/// Types with a variant for each policy.
const TYPES: [&str; 6] = [
    "Kind",
    "Config",
    "AnyPart",
    "AnyShared",
    "AnyUpdate",
    "AnyOverseer",
];

/// Source of the configfs directory for the rules of one policy.
const OWN: &str = "control/configfs/rules.rs";

/// Collects all sources below `path`, without tests.
fn sources(path: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(path).expect("a directory") {
        let path = entry.expect("an entry").path();
        let is_test = path
            .file_stem()
            .is_some_and(|stem| stem == "tests" || stem == "target");
        if path.is_dir() && !is_test {
            sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs")
            && !is_test
            && !path.ends_with(OWN)
        {
            found.push(path);
        }
    }
}

/// Returns the lines of code in `files` for which `has_name` returns true.
fn lines(files: &[PathBuf], has_name: impl Fn(&str) -> bool) -> Vec<String> {
    let mut named = Vec::new();
    for file in files {
        let text = fs::read_to_string(file).expect("a source");
        for (number, line) in (1..).zip(text.lines()) {
            if has_name(line.split("//").next().unwrap_or_default()) {
                named.push(format!("{}:{number}: {line}", file.display()));
            }
        }
    }
    named
}

fn has_word(code: &str, name: &str) -> bool {
    let mut words = code.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.any(|word| word == name)
}

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn the_engine_names_no_policy() {
    let mut files = Vec::new();
    for folder in ["engine", "control", "frontend"] {
        sources(&top().join(folder), &mut files);
    }
    assert!(files.len() > 30, "{files:?}");
    let named = lines(&files, |code| {
        Kind::ALL.iter().any(|kind| {
            let name = kind.name();
            let has_variant = |of: &&str| code.contains(&format!("{of}::{kind:?}"));
            !WORDS.contains(&name) && has_word(code, name) || TYPES.iter().any(has_variant)
        })
    });
    assert!(named.is_empty(), "{}", named.join("\n"));
}

/// Checks that the policy for tests is named only in its own file and in one other line of the
/// module and the tools.
#[test]
fn a_policy_is_a_file_and_a_line() {
    let mut files = Vec::new();
    sources(&top(), &mut files);
    assert!(files.len() > 300, "{}", files.len());
    let mut kinds = Kind::ALL.iter().filter(|kind| kind.is_for_tests());
    let (kind, other) = (kinds.next().expect("a policy"), kinds.next());
    let own = format!("sched/policy/{}.rs", kind.name());
    files.retain(|file| !file.ends_with(&own));
    let named = lines(&files, |code| {
        has_word(code, kind.name()) || has_word(code, &format!("{kind:?}"))
    });
    assert!(other.is_none() && named.len() == 1, "{}", named.join("\n"));
    assert!(named[0].contains("/sched/policy.rs:"), "{}", named[0]);
}
