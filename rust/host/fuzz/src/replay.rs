// SPDX-License-Identifier: GPL-2.0-only

//! The bounded run: what is in the corpus of a target, and changes of it, always the same ones.

use std::{fs, path::Path};

/// Numbers without a pattern, always the same ones (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// One below `end`, which is not 0.
    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

/// The files of the corpus of `target` and the words of its dictionary, in the order of their names.
///
/// # Panics
///
/// There is no corpus.
fn read(target: &str) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz");
    let dir = fuzz.join("corpus").join(target);
    let entries = fs::read_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let mut paths: Vec<_> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    paths.sort();
    let files: Vec<_> = paths
        .iter()
        .map(|path| fs::read(path).expect("a file"))
        .collect();
    let dictionary = fuzz.join("dictionaries").join(format!("{target}.dict"));
    let text = fs::read_to_string(dictionary).unwrap_or_default();
    (files, text.lines().filter_map(word).collect())
}

/// The word of a line of a dictionary: `"TEXT"`, with `\xNN`, `\"` and `\\` in it.
fn word(line: &str) -> Option<Vec<u8>> {
    let mut rest = line.trim().strip_prefix('"')?.strip_suffix('"')?;
    let mut word = Vec::new();
    while let Some(char) = rest.chars().next() {
        rest = &rest[char.len_utf8()..];
        if char != '\\' {
            word.extend(char.to_string().as_bytes());
        } else if let Some(code) = rest.strip_prefix('x') {
            word.push(u8::from_str_radix(code.get(..2)?, 16).ok()?);
            rest = &code[2..];
        } else {
            word.push(*rest.as_bytes().first()?);
            rest = &rest[1..];
        }
    }
    Some(word)
}

/// Changes `bytes` somewhere: a byte, a piece of it, a word of the dictionary, a piece of `other`.
fn change(bytes: &mut Vec<u8>, other: &[u8], words: &[Vec<u8>], numbers: &mut Numbers) {
    let at = numbers.below(bytes.len() + 1);
    let end = at + numbers.below((bytes.len() - at).min(16) + 1);
    match numbers.below(8) {
        0 => drop(bytes.drain(at..end)),
        1 => bytes.insert(at, numbers.next() as u8),
        2 | 3 if at < bytes.len() => {
            bytes[at] = match numbers.below(4) {
                0 => bytes[at].wrapping_add(1),
                1 => bytes[at] ^ (1 << numbers.below(8)),
                2 => *[0, b' ', b'\n', b'0', b'9', 0xff]
                    .get(numbers.below(6))
                    .unwrap_or(&0),
                _ => numbers.next() as u8,
            }
        }
        4 => {
            let piece = bytes[at..end].to_vec();
            let to = numbers.below(bytes.len() + 1);
            bytes.splice(to..to, piece);
        }
        5 if !words.is_empty() => {
            let word = &words[numbers.below(words.len())];
            let end = if numbers.below(2) == 0 { at } else { end };
            bytes.splice(at..end, word.iter().copied());
        }
        _ => {
            let from = numbers.below(other.len() + 1);
            let to = from + numbers.below((other.len() - from).min(64) + 1);
            bytes.splice(at..at, other[from..to].iter().copied());
        }
    }
}

/// Hands `run` all files of the corpus of `target` and then `count` changed ones of at most `longest` bytes.
///
/// # Panics
///
/// There is no corpus, or something does not hold; what was handed over is printed before.
pub fn bounded(target: &str, count: u32, longest: usize, run: fn(&[u8])) {
    /// Prints what did not hold.
    struct Shown<'a>(&'a str, &'a [u8]);

    impl Drop for Shown<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("{}: b\"{}\"", self.0, self.1.escape_ascii());
            }
        }
    }

    let try_one = |bytes: &[u8]| {
        let _shown = Shown(target, bytes);
        run(bytes);
    };
    let (files, words) = read(target);
    assert!(!files.is_empty(), "{target} has no corpus");
    files.iter().for_each(|file| try_one(file));
    let mut numbers = Numbers(0x6e72_7300);
    for _ in 0..count {
        let mut bytes = files[numbers.below(files.len())].clone();
        let other = &files[numbers.below(files.len())];
        for _ in 0..=numbers.below(6) {
            change(&mut bytes, other, &words, &mut numbers);
        }
        bytes.truncate(longest);
        try_one(&bytes);
    }
}
