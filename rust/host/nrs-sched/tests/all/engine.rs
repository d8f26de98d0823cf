// SPDX-License-Identifier: GPL-2.0-only

//! What the engine, its front-ends and controls know of policies by name: nothing, so that a new one is a folder and a
//! line in the registry.

use std::fs;
use std::path::{Path, PathBuf};

use nrs_sched::policy::Kind;

/// Names that are words of their own.
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

/// The directory of configfs that is for rules of one policy.
const OWN: &str = "control/configfs/rules.rs";

/// All sources below `path`, without tests.
fn sources(path: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(path).expect("a directory") {
        let path = entry.expect("an entry").path();
        let is_test = path.file_stem().is_some_and(|stem| stem == "tests");
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

#[test]
fn the_engine_names_no_policy() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    for folder in ["engine", "control", "frontend"] {
        sources(&top.join(folder), &mut files);
    }
    assert!(files.len() > 30, "{files:?}");
    let mut named = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).expect("a source");
        for (number, line) in (1..).zip(text.lines()) {
            let code = line.split("//").next().unwrap_or_default();
            let is_word = |c: char| c.is_alphanumeric() || c == '_';
            let has_name = Kind::ALL.iter().any(|kind| {
                let mut words = code.split(|c| !is_word(c));
                let name = kind.name();
                let has_variant = |of: &&str| code.contains(&format!("{of}::{kind:?}"));
                !WORDS.contains(&name) && words.any(|word| word == name)
                    || TYPES.iter().any(has_variant)
            });
            if has_name {
                named.push(format!("{}:{number}: {line}", file.display()));
            }
        }
    }
    assert!(named.is_empty(), "{}", named.join("\n"));
}
