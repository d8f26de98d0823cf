// SPDX-License-Identifier: GPL-2.0-only

//! Finding the line for a client: names by a binary search, patterns one after the other.

use super::{parts::Parts, By, PlanError};
use crate::sched::{
    error::Code,
    jobid::JOBID_MAX,
    mem::{List, NoMemory},
    nid::{
        range::{Digest, Guard, Parsed, Pattern, Range, Refused},
        Nid,
    },
    sort,
};
use core::cmp::Ordering;

/// Ranges of addresses of a plan, at most: what a [`crate::sched::nid::range::Span`] can tell apart.
const RANGES_MAX: usize = u16::MAX as usize;

/// What the name in a line is for.
#[derive(Clone, Copy)]
enum Match {
    Nid(Nid),
    Nids(Pattern, Guard),
    Number(u32),
    /// The job or device of that name.
    Name,
    /// Those whose names match it.
    Glob(Ends),
}

impl Match {
    /// Whether it is for one client only.
    const fn is_exact(&self) -> bool {
        matches!(self, Self::Nid(_) | Self::Number(_) | Self::Name)
    }
}

/// The first and the last bytes of a name or pattern, up to eight each.
///
/// Most names differ from most patterns there, and two words tell.
#[derive(Clone, Copy)]
pub(super) struct Ends {
    /// The first one lowest.
    head: u64,
    head_mask: u64,
    /// The last one lowest.
    tail: u64,
    tail_mask: u64,
}

impl Ends {
    /// Those of `first` and `last`, which begins with the last byte.
    fn of<'a>(first: impl Iterator<Item = &'a u8>, last: impl Iterator<Item = &'a u8>) -> Self {
        let (head, head_mask) = word(first);
        let (tail, tail_mask) = word(last);
        Self {
            head,
            head_mask,
            tail,
            tail_mask,
        }
    }

    /// Those of `pattern` that are themselves.
    fn of_pattern(pattern: &[u8]) -> Self {
        let literal = |byte: &&u8| !matches!(byte, b'*' | b'?');
        let first = pattern.iter().take_while(literal);
        Self::of(first, pattern.iter().rev().take_while(literal))
    }

    /// Whether a name with ends `name` may match the pattern of these.
    const fn pass(&self, name: &Self) -> bool {
        let head = (self.head ^ name.head) & self.head_mask;
        let tail = (self.tail ^ name.tail) & self.tail_mask;
        head | tail == 0
    }
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

/// What is looked for.
#[derive(Clone, Copy)]
pub(super) enum Probe<'a> {
    Nid(Nid, Digest),
    Number(u32),
    /// A job or a device, and the ends of its name.
    Name(&'a [u8], Ends),
}

impl<'a> Probe<'a> {
    /// A job or a device.
    pub(super) fn name(name: &'a [u8]) -> Self {
        Self::Name(name, Ends::of(name.iter(), name.iter().rev()))
    }

    /// A network identifier.
    pub(super) fn nid(nid: &Nid) -> Self {
        Self::Nid(*nid, Digest::of(nid))
    }
}

/// The lines by what they are for.
///
/// # Invariants
///
/// `exact` has the lines that are for one client, in the order of what they are for and then of the lines;
/// `patterns` the others in the order of the lines. All of a plan are of one kind, that of its `by`.
pub(super) struct Index {
    matches: List<Match>,
    exact: List<u32>,
    patterns: List<u32>,
    ranges: List<Range>,
}

impl Index {
    /// The index of nothing.
    pub(super) const fn new() -> Self {
        Self {
            matches: List::new(),
            exact: List::new(),
            patterns: List::new(),
            ranges: List::new(),
        }
    }

    /// The index of the clients of `parts`; sleeps.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: a name that is not one of `by`.
    /// - `EEXIST`: a client that is twice in a group.
    /// - `ENOSPC`: more than [`RANGES_MAX`] ranges of addresses.
    /// - `ENOMEM`: the allocator had none.
    pub(super) fn of(parts: &Parts) -> Result<Self, PlanError> {
        let clients = parts.clients.as_slice();
        let mut index = Self {
            matches: List::with_capacity(clients.len())?,
            ..Self::new()
        };
        let mut patterns = List::new();
        for (line, client) in (0u32..).zip(clients) {
            let name = core::str::from_utf8(parts.name_of(line)).unwrap_or_default();
            let found = read(parts.by, name, client.line, &mut index.ranges)?;
            index.matches.push(found)?;
            if found.is_exact() {
                index.exact.push(line)?;
            } else {
                index.patterns.push(line)?;
                patterns.push(line)?;
            }
        }
        let of = |line: u32| clients.get(line as usize);
        let group = |line: u32| of(line).map(|client| client.group);
        let matches = index.matches.as_slice();
        let by_match = |a: u32, b: u32| {
            let order = match (matches.get(a as usize), matches.get(b as usize)) {
                (Some(Match::Nid(a)), Some(Match::Nid(b))) => a.cmp(b),
                (Some(Match::Number(a)), Some(Match::Number(b))) => a.cmp(b),
                _ => parts.name_of(a).cmp(parts.name_of(b)),
            };
            order.then_with(|| group(a).cmp(&group(b)))
        };
        let by_name = |a: u32, b: u32| {
            let order = parts.name_of(a).cmp(parts.name_of(b));
            order.then_with(|| group(a).cmp(&group(b)))
        };
        // INVARIANT: Sorted here; `patterns` of the index stays in the order of the lines.
        let twice = sorted(index.exact.as_mut_slice(), by_match);
        let twice = twice.or(sorted(patterns.as_mut_slice(), by_name));
        match twice.and_then(of) {
            None => Ok(index),
            Some(client) => Err(PlanError::new(
                client.line,
                Code::Exists,
                "there is a line for this client already",
            )),
        }
    }

    /// The first line for what `probe` is in `group`.
    pub(super) fn find(&self, parts: &Parts, group: u32, probe: Probe<'_>) -> Option<u32> {
        let clients = parts.clients.as_slice();
        let is_in = |line: u32| {
            let client = clients.get(line as usize);
            client.is_some_and(|client| client.is_in(group))
        };
        let matches = self.matches.as_slice();
        let compare = |line: u32| match (matches.get(line as usize), probe) {
            (Some(Match::Nid(nid)), Probe::Nid(other, _)) => nid.cmp(&other),
            (Some(Match::Number(number)), Probe::Number(other)) => number.cmp(&other),
            (Some(Match::Name), Probe::Name(other, _)) => parts.name_of(line).cmp(other),
            // Parties of another kind than that of the plan.
            _ => Ordering::Less,
        };
        let exact = self.exact.as_slice();
        let from = exact.partition_point(|line| compare(*line).is_lt());
        // One for each group and one for all, at most.
        let same = exact
            .iter()
            .skip(from)
            .take_while(|line| compare(**line).is_eq());
        let exact = same.copied().filter(|line| is_in(*line)).min();
        let before = |line: &u32| exact.is_none_or(|exact| *line < exact);
        let matched = |line: &u32| match (matches.get(*line as usize), probe) {
            (Some(Match::Nids(pattern, guard)), Probe::Nid(nid, digest)) => {
                guard.passes(digest) && pattern.has(&nid, self.ranges.as_slice())
            }
            (Some(Match::Glob(ends)), Probe::Name(name, others)) => {
                ends.pass(&others) && glob(parts.name_of(*line), name)
            }
            _ => false,
        };
        let mut patterns = self.patterns.as_slice().iter().copied().take_while(before);
        let pattern = patterns.find(|line| is_in(*line) && matched(line));
        pattern.or(exact)
    }
}

/// Sorts `lines` in the order of `compare`, equal ones in the order of the lines; the first one that is equal
/// to the one before it.
fn sorted(lines: &mut [u32], compare: impl Fn(u32, u32) -> Ordering) -> Option<u32> {
    sort::sort_by(lines, |a, b| compare(*a, *b).then(a.cmp(b)));
    let mut pairs = lines.iter().zip(lines.iter().skip(1));
    let pair = pairs.find(|(a, b)| compare(**a, **b).is_eq());
    pair.map(|(_, line)| *line)
}

/// What `name` is for; ranges of addresses go to `ranges`.
fn read(by: By, name: &str, line: u32, ranges: &mut List<Range>) -> Result<Match, PlanError> {
    let invalid = |reason| Err(PlanError::invalid(line, reason));
    match by {
        By::Nid => {
            let mut full = false;
            let parsed = Pattern::parse(name, &mut |range| {
                let at = ranges.as_slice().len();
                full |= at >= RANGES_MAX;
                ranges.push(range)?;
                Ok(at)
            });
            match parsed {
                _ if full => {
                    let reason = "the ranges of addresses of all lines are more than 65535";
                    Err(PlanError::new(line, Code::NoSpace, reason))
                }
                Ok(Parsed::One(nid)) => Ok(Match::Nid(nid)),
                Ok(Parsed::Many(nids)) => Ok(Match::Nids(nids, nids.guard(ranges.as_slice()))),
                Err(Refused::NoMemory) => Err(NoMemory.into()),
                Err(Refused::Expected(..)) => {
                    invalid("the client is no NID and no range of them, such as 10.0.0.[1-9]@tcp")
                }
            }
        }
        By::Uid => {
            let digits = name.bytes().all(|byte| byte.is_ascii_digit());
            match name.parse() {
                Ok(number) if digits => Ok(Match::Number(number)),
                _ => invalid("the client is no uid, a number from 0 to 4294967295"),
            }
        }
        By::Jobid | By::Device => {
            let runs = name.bytes().filter(|byte| *byte == b'*').count();
            if by == By::Jobid && name.len().saturating_sub(runs) > JOBID_MAX {
                invalid("the client is no job identifier: these have up to 31 characters")
            } else if name.contains(['*', '?']) {
                Ok(Match::Glob(Ends::of_pattern(name.as_bytes())))
            } else {
                Ok(Match::Name)
            }
        }
    }
}

/// Whether `name` matches `pattern`, in which `*` is any run of bytes and `?` any byte.
///
/// After a mismatch it goes on one byte further behind the last `*`, so the time is that of the product of
/// both lengths at most.
fn glob(pattern: &[u8], name: &[u8]) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::rng::Rng;

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
    fn globs() {
        let glob = |pattern: &[u8], name: &[u8]| {
            let found = glob(pattern, name);
            let Probe::Name(_, ends) = Probe::name(name) else {
                panic!("a name");
            };
            assert!(Ends::of_pattern(pattern).pass(&ends) || !found);
            found
        };
        for (pattern, yes, no) in [
            ("*", &["", "a", "a.b"][..], &[][..]),
            ("dd.*", &["dd.", "dd.0"], &["dd", "xdd.0"]),
            ("*.500", &[".500", "a.500.500"], &["a.5000", "500"]),
            ("a?c", &["abc", "a?c", "a*c"], &["ac", "abbc"]),
            ("*a*b", &["ab", "xaxb", "abab"], &["ba", "a", "abx"]),
        ] {
            for name in yes {
                assert!(
                    glob(pattern.as_bytes(), name.as_bytes()),
                    "{pattern} {name}"
                );
            }
            for name in no {
                assert!(
                    !glob(pattern.as_bytes(), name.as_bytes()),
                    "{pattern} {name}"
                );
            }
        }
        let mut rng = Rng::new(5);
        let mut text = |letters: &[u8], max: u32| -> Vec<u8> {
            let len = rng.next_u32() % max;
            let letter = |_| letters[rng.next_u32() as usize % letters.len()];
            (0..len).map(letter).collect()
        };
        let mut hits = 0;
        for _ in 0..20_000 {
            let (pattern, name) = (text(b"ab**?", 9), text(b"ab*", 9));
            let want = slow(&pattern, &name);
            assert_eq!(glob(&pattern, &name), want, "{pattern:?} {name:?}");
            hits += u32::from(want);
        }
        assert!(hits > 2_000, "{hits}");
    }
}
