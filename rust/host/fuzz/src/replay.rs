// SPDX-License-Identifier: GPL-2.0-only

//! Bounded run: the corpus of a target, and modifications of its inputs, always the same ones.

use crate::{Target, TARGETS};
use nrs_sched::{parameters::all, rng::Rng};
use std::{fs, path::PathBuf};

/// Prints the input of a failed check.
struct Shown<'a>(&'a str, &'a [u8]);

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}: b\"{}\"", self.0, self.1.escape_ascii());
        }
    }
}

/// Returns the files in `dir` of the crate, in the order of their names.
fn files(dir: &str) -> Vec<PathBuf> {
    let dir = format!("{}/{dir}", env!("CARGO_MANIFEST_DIR"));
    let entries = fs::read_dir(&dir).unwrap_or_else(|error| panic!("{dir}: {error}"));
    let mut paths: Vec<_> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    paths.sort();
    paths
}

/// Draws a number below `end`.
fn below(rng: &mut Rng, end: usize) -> usize {
    rng.below(end as u64) as usize
}

/// Modifies `bytes` at a random place: a byte, a piece, a word, a piece of `other`.
fn change(bytes: &mut Vec<u8>, other: &[u8], words: &[&str], rng: &mut Rng) {
    let at = below(rng, bytes.len() + 1);
    let end = at + below(rng, (bytes.len() - at).min(16) + 1);
    match below(rng, 8) {
        0 => drop(bytes.drain(at..end)),
        1 => bytes.insert(at, rng.next_u64() as u8),
        2 | 3 if at < bytes.len() => {
            bytes[at] = match below(rng, 4) {
                0 => bytes[at].wrapping_add(1),
                1 => bytes[at] ^ (1 << below(rng, 8)),
                2 => [0, b' ', b'\n', b'0', b'9', 0xff][below(rng, 6)],
                _ => rng.next_u64() as u8,
            }
        }
        4 => {
            let piece = bytes[at..end].to_vec();
            let to = below(rng, bytes.len() + 1);
            bytes.splice(to..to, piece);
        }
        5 if !words.is_empty() => {
            let word = words[below(rng, words.len())];
            let end = if below(rng, 2) == 0 { at } else { end };
            bytes.splice(at..end, word.bytes());
        }
        _ => {
            let from = below(rng, other.len() + 1);
            let to = from + below(rng, (other.len() - from).min(64) + 1);
            bytes.splice(at..at, other[from..to].iter().copied());
        }
    }
}

/// Runs `target` on its corpus and on modified inputs.
///
/// # Panics
///
/// The corpus is missing, or a check fails; the input is printed before.
pub(crate) fn bounded(target: &Target) {
    let try_one = |bytes: &[u8]| {
        let _shown = Shown(target.name, bytes);
        (target.run)(bytes);
    };
    let paths = files(&format!("corpus/{}", target.name));
    let mut files: Vec<_> = paths
        .iter()
        .map(|path| fs::read(path).expect("a file"))
        .collect();
    if target.name == "parameters" {
        // Each limit or choice of each parameter, wherever the parameter is in the schema.
        for (one, which) in all().filter(|one| one.value.is_some()).zip(0u8..) {
            let words = one.takes.split([' ', ',']);
            files.extend(words.map(|word| [&[which], word.as_bytes()].concat()));
        }
    }
    let words = target.words();
    assert!(!files.is_empty(), "{} has no corpus", target.name);
    files.iter().for_each(|file| try_one(file));
    let mut rng = Rng::new(0x6e72_7300);
    for _ in 0..target.count {
        let mut bytes = files[below(&mut rng, files.len())].clone();
        let other = &files[below(&mut rng, files.len())];
        for _ in 0..=below(&mut rng, 6) {
            change(&mut bytes, other, &words, &mut rng);
        }
        bytes.truncate(target.longest);
        try_one(&bytes);
    }
}

#[test]
fn each_target_has_a_corpus() {
    let names = files("corpus")
        .into_iter()
        .map(|path| path.file_name().expect("a name").to_owned());
    assert!(names.eq(TARGETS.iter().map(|target| target.name)));
}
