// SPDX-License-Identifier: GPL-2.0-only

//! Patterns of job identifiers: `*` is any run of bytes, also none; every other byte is itself. Weights
//! have `?`, too, which is any one byte ([`glob`]); in rules it is itself.
//!
//! A pattern is read once, from left to right, with the set of all bytes of the subject that may come next:
//! no recursion and no way back, so the time is proportional to the length of the pattern.

use crate::sched::jobid::{JobId, JOBID_MAX};

/// Whether `text` is a pattern, not a name.
pub fn is_pattern(text: &[u8]) -> bool {
    text.contains(&b'*')
}

/// Bytes that a subject needs at least to match `pattern`.
pub fn least(pattern: &[u8]) -> usize {
    pattern.iter().filter(|&&byte| byte != b'*').count()
}

/// Whether `job` matches `pattern`. `*` in a subject is a byte like others.
pub fn matches(pattern: &[u8], job: &JobId) -> bool {
    run::<false>(pattern, job)
}

/// The same for a pattern in which `?` is any one byte.
pub fn glob(pattern: &[u8], job: &JobId) -> bool {
    run::<true>(pattern, job)
}

/// Whether `job` matches `pattern`, in which `?` is special if `ONE` says so.
#[inline]
fn run<const ONE: bool>(pattern: &[u8], job: &JobId) -> bool {
    const {
        assert!(
            JOBID_MAX < 32,
            "a word has a bit for each place and the end"
        )
    };
    let bytes = job.as_bytes();
    // Bit i: what was read so far matches the first i bytes.
    let mut places = 1u32;
    for &byte in pattern {
        places = if byte == b'*' {
            // From the first place on, any.
            places | places.wrapping_neg()
        } else if ONE && byte == b'?' {
            places << 1
        } else {
            let same = bytes
                .iter()
                .rev()
                .fold(0u32, |same, &other| (same << 1) | u32::from(other == byte));
            (places & same) << 1
        };
        if places == 0 {
            return false;
        }
    }
    let end = 1u32.checked_shl(u32::from(job.len()));
    end.is_some_and(|end| places & end != 0)
}

/// A quick test: who does not pass does not match the pattern it was made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard {
    /// First bytes, the first one lowest, up to the first `*`.
    head: u64,
    head_mask: u64,
    /// Last bytes, the last one lowest, down to the last `*`.
    tail: u64,
    tail_mask: u64,
    /// Bytes that occur, see [`bit`].
    need: u64,
}

/// What a [`Guard`] looks at in a job identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest {
    head: u64,
    tail: u64,
    have: u64,
}

/// The bit of a word of 64 that stands for `byte` and three others.
const fn bit(byte: u8) -> u64 {
    1u64.wrapping_shl(byte as u32)
}

/// Up to eight of `bytes`, the first one lowest, and a mask of as many.
fn word<'a>(bytes: impl Iterator<Item = &'a u8>) -> (u64, u64) {
    let (mut word, mut mask) = (0u64, 0u64);
    for (&byte, place) in bytes.zip((0u32..64).step_by(8)) {
        word |= u64::from(byte).wrapping_shl(place);
        mask |= 0xffu64.wrapping_shl(place);
    }
    (word, mask)
}

impl Digest {
    /// The digest of `job`.
    pub fn of(job: &JobId) -> Self {
        let bytes = job.as_bytes();
        Self {
            head: word(bytes.iter()).0,
            tail: word(bytes.iter().rev()).0,
            have: bytes.iter().fold(0, |have, &byte| have | bit(byte)),
        }
    }
}

impl Guard {
    /// What every job that matches `pattern` passes.
    pub fn of(pattern: &[u8]) -> Self {
        let literal = |byte: &&u8| **byte != b'*';
        let (head, head_mask) = word(pattern.iter().take_while(literal));
        let (tail, tail_mask) = word(pattern.iter().rev().take_while(literal));
        let literals = pattern.iter().filter(literal);
        Self {
            head,
            head_mask,
            tail,
            tail_mask,
            need: literals.fold(0, |need, &byte| need | bit(byte)),
        }
    }

    /// Whether a job of this digest may match.
    #[inline]
    pub const fn passes(&self, digest: &Digest) -> bool {
        let head = (self.head ^ digest.head) & self.head_mask;
        let tail = (self.tail ^ digest.tail) & self.tail_mask;
        head | tail | (self.need & !digest.have) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::rng::Rng;

    fn check(pattern: &str, subject: &str) -> bool {
        let job = JobId::new(subject.as_bytes());
        let found = matches(pattern.as_bytes(), &job);
        let passes = Guard::of(pattern.as_bytes()).passes(&Digest::of(&job));
        assert!(passes || !found, "{pattern} {subject}");
        found
    }

    #[test]
    fn table() {
        for (pattern, yes, no) in [
            ("*", &["", "a", "*", "dd.0"][..], &[][..]),
            ("**", &["", "a", "anything"], &[]),
            ("dd.*", &["dd.", "dd.0", "dd.*"], &["dd", "xdd.0", ""]),
            ("*.500", &[".500", "dd.500", "a.b.500"], &["dd.5000", "500"]),
            (
                "a*b",
                &["ab", "axb", "abb", "a*b"],
                &["a", "b", "abx", "xab"],
            ),
            ("a*b*c", &["abc", "aXbYc", "abcbc"], &["ac", "acb", "ab"]),
            ("*ab*ab*", &["abab", "xabyabz"], &["ab", "aba"]),
            ("a**b", &["ab", "aab"], &["a"]),
            ("plain", &["plain"], &["plai", "plain0", ""]),
            ("", &[""], &["a"]),
            ("*aab", &["aaab", "aaaaaaab"], &["aaba"]),
            ("aa*aa", &["aaaa", "aaaaa"], &["aaa", "aa"]),
        ] {
            for subject in yes {
                assert!(check(pattern, subject), "{pattern} {subject}");
            }
            for subject in no {
                assert!(!check(pattern, subject), "{pattern} {subject}");
            }
        }
        let full = "x".repeat(31);
        assert!(check(&full, &full) && check("*x*", &full) && check(&format!("{full}*"), &full));
        assert!(!check(&format!("{full}x"), &full) && !check(&format!("*{full}x*"), &full));
        let bytes = JobId::new(b"\xff\x80 b");
        assert!(matches(b"*\x80*", &bytes) && !matches(b"*\x81*", &bytes));
        assert_eq!((least(b"a*b**"), least(b"*")), (2, 0));
    }

    #[test]
    fn one_byte() {
        for (pattern, subject, want) in [
            ("?", "a", true),
            ("?", "?", true),
            ("?", "", false),
            ("?", "ab", false),
            ("dd.?", "dd.7", true),
            ("dd.?", "dd.77", false),
            ("*?", "a", true),
            ("*?", "", false),
            ("?*?", "a", false),
            ("?*?", "ab", true),
            ("a?c*", "abc", true),
            ("a?c*", "ac", false),
        ] {
            let job = JobId::new(subject.as_bytes());
            assert_eq!(glob(pattern.as_bytes(), &job), want, "{pattern} {subject}");
        }
        let full = JobId::new(&[b'x'; 31]);
        assert!(glob(&[b'?'; 31], &full));
        assert!(
            !glob(&[b'?'; 30], &full) && !glob(&[b'?'; 32], &full) && !glob(&[b'?'; 64], &full)
        );
        assert!(!matches(b"?", &JobId::new(b"a")), "only in weights");
    }

    fn slow(pattern: &[u8], subject: &[u8]) -> bool {
        match pattern.split_first() {
            None => subject.is_empty(),
            Some((b'*', rest)) => (0..=subject.len()).any(|i| slow(rest, &subject[i..])),
            Some((byte, rest)) => subject
                .split_first()
                .is_some_and(|(first, tail)| first == byte && slow(rest, tail)),
        }
    }

    #[test]
    fn agrees_with_the_definition() {
        let mut rng = Rng::new(9);
        let mut hits = 0;
        for _ in 0..20_000 {
            let mut text = |letters: &[u8], max: u32| {
                let len = rng.next_u32() % max;
                let letter = |_| letters[rng.next_u32() as usize % letters.len()];
                (0..len).map(letter).map(char::from).collect::<String>()
            };
            let (pattern, subject) = (text(b"ab**", 9), text(b"ab*", 9));
            let want = slow(pattern.as_bytes(), subject.as_bytes());
            assert_eq!(check(&pattern, &subject), want, "{pattern} {subject}");
            hits += u32::from(want);
        }
        assert!(hits > 2000, "{hits}");
    }

    /// Thousands of `*` over a subject that almost matches.
    #[test]
    fn long_patterns_are_quick() {
        let job = JobId::new(&[b'a'; 31]);
        let pattern = "*a".repeat(30) + &"*".repeat(4000) + "b";
        let start = std::time::Instant::now();
        for _ in 0..100 {
            assert!(!matches(pattern.as_bytes(), &job));
        }
        assert!(start.elapsed().as_secs() < 5);
    }
}
