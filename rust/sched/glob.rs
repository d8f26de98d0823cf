// SPDX-License-Identifier: GPL-2.0-only

//! Patterns of names: `*` matches any sequence of bytes, including none; `?` matches any one byte;
//! every other byte matches itself.
//!
//! Conditions of rules, weights and `client` lines of qbm plans use the same patterns.

/// Returns true if `text` is a pattern and not a name.
pub fn is_pattern(text: &[u8]) -> bool {
    text.iter().any(is_special)
}

/// Returns true if `byte` is a wildcard.
const fn is_special(byte: &u8) -> bool {
    matches!(*byte, b'*' | b'?')
}

/// Returns the length, bytes, of the shortest name that matches `pattern`.
pub fn least(pattern: &[u8]) -> usize {
    pattern.iter().filter(|&&byte| byte != b'*').count()
}

/// Returns true if `name` matches `pattern`. `*` and `?` in a name are ordinary bytes.
///
/// After a mismatch the search resumes one byte further behind the last `*`. The time is at most
/// proportional to the product of both lengths.
pub fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut rest, mut bytes) = (pattern, name);
    let mut back = None;
    loop {
        match (rest.split_first(), bytes.split_first()) {
            (Some((b'*', after)), _) => {
                back = Some((after, bytes));
                rest = after;
            }
            (Some((want, after)), Some((byte, others))) if *want == b'?' || want == byte => {
                (rest, bytes) = (after, others);
            }
            (None, None) => return true,
            _ => {
                let Some((after, from)) = back else {
                    return false;
                };
                let Some((_, from)) = from.split_first() else {
                    return false;
                };
                back = Some((after, from));
                (rest, bytes) = (after, from);
            }
        }
    }
}

/// Quick test of a pattern: a name that does not pass does not match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamePrefilter {
    /// First bytes, up to the first wildcard; the first byte is the lowest.
    head: u64,
    head_mask: u64,
    /// Last bytes, after the last wildcard; the last byte is the lowest.
    tail: u64,
    tail_mask: u64,
    /// Set of bytes that a matching name must contain, see [`bit`].
    need: u64,
}

/// Properties of a name that a [`NamePrefilter`] tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameDigest {
    head: u64,
    tail: u64,
    have: u64,
}

/// Returns the bit of a 64-bit word that stands for `byte` and three other bytes.
const fn bit(byte: u8) -> u64 {
    1u64.wrapping_shl(byte as u32)
}

/// Returns up to eight of `bytes`, the first one lowest, and a mask of the same length.
fn word<'a>(bytes: impl Iterator<Item = &'a u8>) -> (u64, u64) {
    let (mut word, mut mask) = (0u64, 0u64);
    for (&byte, place) in bytes.zip((0u32..64).step_by(8)) {
        word |= u64::from(byte).wrapping_shl(place);
        mask |= 0xffu64.wrapping_shl(place);
    }
    (word, mask)
}

impl NameDigest {
    /// Computes the digest of `name`.
    pub fn of(name: &[u8]) -> Self {
        Self {
            head: word(name.iter()).0,
            tail: word(name.iter().rev()).0,
            have: name.iter().fold(0, |have, &byte| have | bit(byte)),
        }
    }
}

impl NamePrefilter {
    /// Computes the guard that every name matching `pattern` passes.
    pub fn of(pattern: &[u8]) -> Self {
        let literal = |byte: &&u8| !is_special(byte);
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

    /// Returns true if a name with this digest may match.
    #[inline]
    pub const fn passes(&self, digest: &NameDigest) -> bool {
        let head = (self.head ^ digest.head) & self.head_mask;
        let tail = (self.tail ^ digest.tail) & self.tail_mask;
        head | tail | (self.need & !digest.have) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::rng::Rng;

    fn check(pattern: &[u8], name: &[u8]) -> bool {
        let found = matches(pattern, name);
        let passes = NamePrefilter::of(pattern).passes(&NameDigest::of(name));
        assert!(passes || !found, "{pattern:?} {name:?}");
        found
    }

    #[test]
    fn table() {
        for (pattern, yes, no) in [
            ("*", &["", "a", "*", "dd.0"][..], &[][..]),
            ("**", &["", "a", "anything"], &[]),
            ("dd.*", &["dd.", "dd.0", "dd.*"], &["dd", "xdd.0", ""]),
            ("*.500", &[".500", "dd.500", "a.b.500"], &["dd.5000", "500"]),
            ("a*b", &["ab", "axb", "abb", "a*b"], &["a", "abx", "xab"]),
            ("a*b*c", &["abc", "aXbYc", "abcbc"], &["ac", "acb", "ab"]),
            ("*ab*ab*", &["abab", "xabyabz"], &["ab", "aba"]),
            ("plain", &["plain"], &["plai", "plain0", ""]),
            ("", &[""], &["a"]),
            ("*aab", &["aaab", "aaaaaaab"], &["aaba"]),
            ("aa*aa", &["aaaa", "aaaaa"], &["aaa", "aa"]),
            ("?", &["a", "?", "*"], &["", "ab"]),
            ("dd.?", &["dd.7"], &["dd.", "dd.77"]),
            ("*?", &["a", "ab"], &[""]),
            ("?*?", &["ab", "abc"], &["a", ""]),
            ("a?c*", &["abc", "a?cd", "a*c"], &["ac", "abbc"]),
        ] {
            for name in yes {
                assert!(
                    check(pattern.as_bytes(), name.as_bytes()),
                    "{pattern} {name}"
                );
            }
            for name in no {
                assert!(
                    !check(pattern.as_bytes(), name.as_bytes()),
                    "{pattern} {name}"
                );
            }
        }
        assert!(check(b"*\x80*", b"\xff\x80 b") && !check(b"*\x81*", b"\xff\x80 b"));
        assert_eq!((least(b"a*b?**"), least(b"*")), (3, 0));
        assert!(is_pattern(b"a?") && is_pattern(b"*") && !is_pattern(b"a.b"));
    }

    fn slow(pattern: &[u8], name: &[u8]) -> bool {
        match (pattern.split_first(), name.split_first()) {
            (None, _) => name.is_empty(),
            (Some((b'*', rest)), _) => (0..=name.len()).any(|at| slow(rest, &name[at..])),
            (Some((want, rest)), Some((byte, name))) => {
                (*want == b'?' || want == byte) && slow(rest, name)
            }
            (Some(_), None) => false,
        }
    }

    #[test]
    fn agrees_with_the_definition() {
        let mut rng = Rng::new(9);
        let mut hits = 0;
        for _ in 0..20_000 {
            let mut text = |letters: &[u8], max: u32| -> Vec<u8> {
                let len = rng.next_u32() % max;
                let letter = |_| letters[rng.next_u32() as usize % letters.len()];
                (0..len).map(letter).collect()
            };
            let (pattern, name) = (text(b"ab**?", 9), text(b"ab*", 9));
            let want = slow(&pattern, &name);
            assert_eq!(check(&pattern, &name), want, "{pattern:?} {name:?}");
            hits += u32::from(want);
        }
        assert!(hits > 2000, "{hits}");
    }

    /// Checks that thousands of `*` with a name that almost matches take little time. Backtracking
    /// over all possibilities would take forever.
    #[test]
    fn long_patterns_end() {
        let pattern = "*a".repeat(30) + &"*".repeat(4000) + "b";
        for _ in 0..100 {
            assert!(!matches(pattern.as_bytes(), &[b'a'; 31]));
        }
    }
}
