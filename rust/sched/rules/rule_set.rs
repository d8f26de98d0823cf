// SPDX-License-Identifier: GPL-2.0-only

//! Rule sets: the rules of a rule list, compiled for lookups of subjects.
//!
//! The ordinal of a conjunction is its index among all conjunctions of all rules, in the order of
//! the rules. The access path of a conjunction is the one condition by which lookups find the
//! conjunction; the other conditions are checked afterwards. [`Postings`] contain the ordinals for
//! each exact value of access paths. A guard represents a pattern of an access path; guards are
//! searched in the order of ordinals.
//!
//! A lookup merges the ordinals under each value of the subject, at most eight lists. It checks
//! them in ascending order until a conjunction holds, and then searches the guards before that
//! conjunction. So exact values cost a binary search regardless of the number of rules, and a
//! pattern costs a comparison of one or three words.
//!
//! The access path is the condition whose values the fewest conjunctions share; conditions without
//! patterns are preferred.

use crate::sched::{
    attr::{cgroup::PATH_MAX, CgroupPath},
    glob,
    jobid::JobId,
    key::Field,
    mem::{GrowingList, NoMemory, Shared},
    nid::{
        pattern::{self, Span},
        Nid,
    },
    rules::{
        conditions::{Condition, Conditions},
        Rule, Subject, ALSO_MAX,
    },
    sort,
};

/// Rule and the indices of the rules that it names in `also=`.
struct SetEntry {
    rule: Shared<Rule>,
    also: [u32; ALSO_MAX],
    len: u8,
}

/// Conjunction of a rule.
#[derive(Clone, Copy)]
struct Conjunction {
    /// Index of the rule.
    rule: u32,
    /// Conditions, in the rule's array.
    conditions: Span,
}

/// Ordinals by value.
///
/// # Invariants
///
/// Values ascend. The ordinals of a value range from its start to the start of the next value, and
/// ascend.
struct Postings<V> {
    starts: GrowingList<(V, u32)>,
    ordinals: GrowingList<u32>,
}

impl<V: Ord + Copy> Postings<V> {
    /// Creates the postings of `pairs`.
    fn new(mut pairs: GrowingList<(V, u32)>) -> Result<Self, NoMemory> {
        sort::sort_by(pairs.as_mut_slice(), Ord::cmp);
        let mut starts = GrowingList::<(V, u32)>::new();
        let mut ordinals = GrowingList::new();
        let mut last = None;
        for &pair in pairs.as_slice() {
            let (value, ordinal) = pair;
            if last.replace(pair) == Some(pair) {
                continue;
            }
            if starts.as_slice().last().map(|&(v, _)| v) != Some(value) {
                starts.push((value, ordinals.as_slice().len() as u32))?;
            }
            ordinals.push(ordinal)?;
        }
        // INVARIANT: the pairs were sorted.
        Ok(Self { starts, ordinals })
    }

    /// Returns the ordinals of `value`.
    fn get(&self, value: &V) -> &[u32] {
        let starts = self.starts.as_slice();
        let Ok(at) = starts.binary_search_by(|(other, _)| other.cmp(value)) else {
            return &[];
        };
        let start = |at: usize| starts.get(at).map(|&(_, start)| start as usize);
        let ordinals = self.ordinals.as_slice();
        let from = start(at).unwrap_or_default();
        let to = start(at.saturating_add(1)).unwrap_or(ordinals.len());
        ordinals.get(from..to).unwrap_or_default()
    }
}

/// Guard of a pattern of cgroups: number of its names, and quick test.
#[derive(Clone, Copy)]
struct CgroupGuard {
    names: usize,
    prefilter: glob::NamePrefilter,
}

/// Returns the number of slashes of a path or pattern, which is that of its names.
fn names_of(path: &[u8]) -> usize {
    path.iter().filter(|byte| **byte == b'/').count()
}

/// Conjunctions by the cgroups that they name.
struct CgroupIndex {
    exact: Postings<CgroupPath>,
    /// Guards of patterns, by the number of names, then by ordinal.
    guards: GrowingList<(CgroupGuard, u32)>,
}

impl CgroupIndex {
    fn is_empty(&self) -> bool {
        self.exact.starts.as_slice().is_empty() && self.guards.as_slice().is_empty()
    }

    /// Returns the guards of patterns with as many names as `path`, by ordinal.
    fn guards_of(&self, path: &[u8]) -> &[(CgroupGuard, u32)] {
        let (guards, names) = (self.guards.as_slice(), names_of(path));
        let from = guards.partition_point(|(guard, _)| guard.names < names);
        let rest = guards.get(from..).unwrap_or_default();
        let len = rest.partition_point(|(guard, _)| guard.names == names);
        let all = rest.get(..len).filter(|_| !path.is_empty());
        all.unwrap_or_default()
    }
}

/// Index of conjunctions.
struct Index {
    /// Fields with numeric values, by [`number_key`].
    numbers: Postings<u64>,
    jobs: Postings<JobId>,
    cgroups: CgroupIndex,
    nids: Postings<Nid>,
    job_guards: GrowingList<(glob::NamePrefilter, u32)>,
    nid_guards: GrowingList<(pattern::NidGuard, u32)>,
}

/// Fields with numeric values.
const NUMBERS: [Field; 6] = [
    Field::Uid,
    Field::Gid,
    Field::Projid,
    Field::Nodemap,
    Field::Opcode,
    Field::IoPriority,
];

/// Returns field and number as one word.
const fn number_key(field: Field, number: u32) -> u64 {
    ((field as u64) << 32) | number as u64
}

/// Iterates over all conjunctions, with the ordinal, the conditions of the rule, and the conditions
/// of the conjunction.
fn conjunctions<'a>(
    entries: &'a [SetEntry],
    conjunctions: &'a [Conjunction],
) -> impl Iterator<Item = (u32, &'a Conditions, &'a [Condition])> {
    (0u32..)
        .zip(conjunctions)
        .filter_map(|(ordinal, conjunction)| {
            let rule = &entries.get(conjunction.rule as usize)?.rule;
            let conditions = &*rule.conditions;
            Some((
                ordinal,
                conditions,
                conditions.conditions(conjunction.conditions),
            ))
        })
}

impl Index {
    /// Creates the index of conjunctions by the conditions for which `takes` returns true; `takes`
    /// gets the ordinal of the conjunction and the index of the condition.
    fn new(
        entries: &[SetEntry],
        all: &[Conjunction],
        takes: impl Fn(u32, usize) -> bool,
    ) -> Result<Self, NoMemory> {
        let (mut numbers, mut jobs) = (GrowingList::new(), GrowingList::new());
        let (mut cgroups, mut nids) = (GrowingList::new(), GrowingList::new());
        let (mut job_guards, mut cgroup_guards) = (GrowingList::new(), GrowingList::new());
        let mut nid_guards = GrowingList::new();
        for (ordinal, rule, conditions) in conjunctions(entries, all) {
            for (place, condition) in conditions.iter().enumerate() {
                if !takes(ordinal, place) {
                    continue;
                }
                for &number in rule.numbers(condition) {
                    numbers.push((number_key(condition.field(), number), ordinal))?;
                }
                for &job in rule.jobs(condition) {
                    jobs.push((job, ordinal))?;
                }
                for &path in rule.cgroups(condition) {
                    cgroups.push((path, ordinal))?;
                }
                for &nid in rule.nids(condition) {
                    nids.push((nid, ordinal))?;
                }
                for pattern in rule.name_patterns(condition) {
                    let prefilter = glob::NamePrefilter::of(pattern);
                    if condition.field() == Field::Cgroup {
                        let names = names_of(pattern);
                        cgroup_guards.push((CgroupGuard { names, prefilter }, ordinal))?;
                    } else {
                        job_guards.push((prefilter, ordinal))?;
                    }
                }
                for pattern in rule.nid_patterns(condition) {
                    nid_guards.push((pattern.guard(rule.ranges()), ordinal))?;
                }
            }
        }
        sort::sort_by(cgroup_guards.as_mut_slice(), |(a, i), (b, j)| {
            (a.names, i).cmp(&(b.names, j))
        });
        Ok(Self {
            numbers: Postings::new(numbers)?,
            jobs: Postings::new(jobs)?,
            cgroups: CgroupIndex {
                exact: Postings::new(cgroups)?,
                guards: cgroup_guards,
            },
            nids: Postings::new(nids)?,
            job_guards,
            nid_guards,
        })
    }

    /// Returns the maximum number of conjunctions that share a value of `condition`. A condition
    /// with patterns has a higher result than any condition without.
    fn path_length(&self, rule: &Conditions, condition: &Condition) -> usize {
        let patterns = rule.nid_patterns(condition).len();
        let patterns = patterns.saturating_add(rule.name_patterns(condition).count());
        if patterns > 0 {
            return patterns.saturating_add(u32::MAX as usize);
        }
        let numbers = rule
            .numbers(condition)
            .iter()
            .map(|&number| self.numbers.get(&number_key(condition.field(), number)));
        let jobs = rule.jobs(condition).iter().map(|job| self.jobs.get(job));
        let cgroups = rule.cgroups(condition).iter();
        let cgroups = cgroups.map(|path| self.cgroups.exact.get(path));
        let nids = rule.nids(condition).iter().map(|nid| self.nids.get(nid));
        let lists = numbers.chain(jobs).chain(cgroups).chain(nids);
        lists.map(<[u32]>::len).max().unwrap_or_default()
    }

    /// Returns the access path of each conjunction, as an index among its conditions.
    fn paths(
        &self,
        entries: &[SetEntry],
        all: &[Conjunction],
    ) -> Result<GrowingList<u16>, NoMemory> {
        let mut paths = GrowingList::with_capacity(all.len())?;
        for (_, rule, conditions) in conjunctions(entries, all) {
            let lengths = conditions
                .iter()
                .map(|condition| self.path_length(rule, condition));
            let path = (0u16..).zip(lengths).min_by_key(|&(_, length)| length);
            paths.push(path.map_or(0, |(place, _)| place))?;
        }
        Ok(paths)
    }
}

/// Compiled rules of a rule list: immutable; lookups need no memory.
pub struct RuleSet {
    generation: u64,
    default: u32,
    entries: GrowingList<SetEntry>,
    conjunctions: GrowingList<Conjunction>,
    /// Conjunctions by their access paths.
    index: Index,
    /// Conjunctions by all cgroups that they name; `None` if the index has these.
    cgroups: Option<CgroupIndex>,
}

impl RuleSet {
    /// Compiles `rules`; may sleep. The rule with identifier `default` applies to subjects that no
    /// other rule matches.
    pub fn new(rules: &[Shared<Rule>], default: u32, generation: u64) -> Result<Self, NoMemory> {
        let mut places = GrowingList::with_capacity(rules.len())?;
        for (index, rule) in (0u32..).zip(rules) {
            places.push((rule.id, index))?;
        }
        sort::sort_by(places.as_mut_slice(), Ord::cmp);
        let place = |id: u32| {
            let places = places.as_slice();
            let at = places.binary_search_by_key(&id, |&(id, _)| id).ok()?;
            places.get(at).map(|&(_, index)| index)
        };

        let mut entries = GrowingList::with_capacity(rules.len())?;
        let mut all = GrowingList::new();
        for (index, rule) in (0u32..).zip(rules) {
            let (mut also, mut len) = ([0; ALSO_MAX], 0u8);
            let others = rule.limits.also.ids().iter().filter_map(|&id| place(id));
            for (to, other) in also.iter_mut().zip(others) {
                *to = other;
                len = len.wrapping_add(1);
            }
            for conditions in rule.conditions.conjunctions() {
                all.push(Conjunction {
                    rule: index,
                    conditions,
                })?;
            }
            let rule = rule.clone();
            entries.push(SetEntry { rule, also, len })?;
        }

        let mut index = Index::new(entries.as_slice(), all.as_slice(), |_, _| true)?;
        let several = conjunctions(entries.as_slice(), all.as_slice())
            .any(|(_, _, conditions)| conditions.len() > 1);
        let mut cgroups = None;
        if several {
            let paths = index.paths(entries.as_slice(), all.as_slice())?;
            let path = |ordinal: u32| paths.as_slice().get(ordinal as usize);
            cgroups = Some(index.cgroups);
            index = Index::new(entries.as_slice(), all.as_slice(), |ordinal, place| {
                path(ordinal).is_some_and(|&path| usize::from(path) == place)
            })?;
        }
        Ok(Self {
            generation,
            default: place(default).unwrap_or_default(),
            entries,
            conjunctions: all,
            index,
            cgroups,
        })
    }

    /// Returns the conjunctions by all cgroups that they name.
    fn cgroups(&self) -> &CgroupIndex {
        self.cgroups.as_ref().unwrap_or(&self.index.cgroups)
    }

    /// Returns true if a rule names the cgroup `path` with the text `text`. Adds the number of
    /// comparisons to `work`.
    fn names_cgroup(&self, path: CgroupPath, text: &[u8], work: &mut u32) -> bool {
        if !self.cgroups().exact.get(&path).is_empty() {
            return true;
        }
        let guards = self.cgroups().guards_of(text);
        *work = work.saturating_add(guards.len() as u32);
        let digest = glob::NameDigest::of(text);
        let mut last = None;
        let passing = guards
            .iter()
            .filter(|(guard, _)| guard.prefilter.passes(&digest));
        // All patterns of a conjunction are compared at once.
        passing.map(|(_, ordinal)| *ordinal).any(|ordinal| {
            let is_new = last.replace(ordinal) != Some(ordinal);
            let conjunction = self.conjunctions.as_slice().get(ordinal as usize);
            conjunction.filter(|_| is_new).is_some_and(|conjunction| {
                let rule = self.rule(conjunction.rule);
                rule.is_some_and(|rule| rule.conditions.name_cgroup(conjunction.conditions, text))
            })
        })
    }

    /// Returns the subject of the class of requests of `subject`, as [`Self::resolve`] does.
    pub fn class_of(&self, subject: Subject) -> Subject {
        match self.named_cgroup(&subject) {
            Some(_) => self.resolve(&subject).0,
            None => subject,
        }
    }

    /// Returns the cgroup of `subject`, if it has one and rules name cgroups.
    fn named_cgroup(&self, subject: &Subject) -> Option<CgroupPath> {
        subject.cgroup.get().filter(|_| !self.cgroups().is_empty())
    }

    /// Returns the subject of the class of requests of `subject`, the index of their rule, and the
    /// number of comparisons made.
    ///
    /// The cgroup of the class is the nearest that a rule names and for which a rule holds: that of
    /// `subject` or one above it. So what is below a cgroup counts as a part of it.
    pub fn resolve(&self, subject: &Subject) -> (Subject, u32, u32) {
        let mut work = 0;
        if let Some(path) = self.named_cgroup(subject) {
            let mut found = None;
            path.nearest(|path, text| {
                let named = Subject {
                    cgroup: path,
                    ..*subject
                };
                if self.names_cgroup(path, text, &mut work) {
                    let rule = self.look_up(&named, text, &mut work);
                    found = rule.map(|rule| (named, rule));
                }
                found.is_some()
            });
            if let Some((named, rule)) = found {
                return (named, rule, work);
            }
        }
        // No rule has the cgroup.
        let rule = self.look_up(subject, &[], &mut work);
        (*subject, rule.unwrap_or(self.default), work)
    }

    /// Returns true if rules name cgroups, but the cgroup of `subject` is neither named nor has a
    /// text that is known, so that its rule cannot be found.
    pub fn is_unknown(&self, subject: &Subject) -> bool {
        self.named_cgroup(subject).is_some_and(|path| {
            self.cgroups().exact.get(&path).is_empty()
                && path.text(&mut [0; PATH_MAX + 1]).is_none()
        })
    }

    /// Returns the index of the rule for `subject`: the first rule whose conditions hold, else the
    /// default rule.
    #[cfg(not(MODULE))]
    pub fn find(&self, subject: &Subject) -> u32 {
        self.find_with_cost(subject).0
    }

    /// Returns the index of the rule for `subject`, and the number of patterns and conjunctions
    /// compared.
    pub fn find_with_cost(&self, subject: &Subject) -> (u32, u32) {
        let (_, rule, work) = self.resolve(subject);
        (rule, work)
    }

    /// Returns the index of the first rule whose conditions hold for `subject`, whose cgroup has
    /// the text `path`.
    fn look_up(&self, subject: &Subject, path: &[u8], work: &mut u32) -> Option<u32> {
        let index = &self.index;
        let [uid, gid, projid, nodemap, opcode, priority] = NUMBERS.map(|field| {
            let key = number_key(field, subject.number(field));
            index.numbers.get(&key)
        });
        let nid = subject.nid.as_ref();
        let nids = nid.map_or(&[][..], |nid| index.nids.get(nid));
        let jobs = index.jobs.get(&subject.jobid);
        let cgroup = index.cgroups.exact.get(&subject.cgroup);
        let mut lists = [
            uid, gid, projid, nodemap, cgroup, opcode, priority, nids, jobs,
        ];
        let matching = &(subject, path);
        let mut best = self.first_of(&mut lists, matching, work);

        if let Some(digest) = nid.map(pattern::NidDigest::of) {
            let passes = |guard: &pattern::NidGuard| guard.passes(digest);
            let guards = index.nid_guards.as_slice();
            best = self.first_guarded(guards, passes, matching, best, work);
        }
        if !index.job_guards.as_slice().is_empty() {
            let digest = glob::NameDigest::of(subject.jobid.as_bytes());
            let passes = |guard: &glob::NamePrefilter| guard.passes(&digest);
            let guards = index.job_guards.as_slice();
            best = self.first_guarded(guards, passes, matching, best, work);
        }
        let guards = index.cgroups.guards_of(path);
        if !guards.is_empty() {
            let digest = glob::NameDigest::of(path);
            let passes = |guard: &CgroupGuard| guard.prefilter.passes(&digest);
            best = self.first_guarded(guards, passes, matching, best, work);
        }
        best.map(|(_, rule)| rule)
    }

    /// Returns the first ordinal in `lists` whose conjunction holds, and its rule.
    fn first_of(
        &self,
        lists: &mut [&[u32]; 9],
        matching: &(&Subject, &[u8]),
        work: &mut u32,
    ) -> Option<(u32, u32)> {
        loop {
            let list = lists
                .iter_mut()
                .filter(|list| !list.is_empty())
                .min_by_key(|list| list.first().copied())?;
            let (&ordinal, rest) = list.split_first()?;
            *work = work.saturating_add(1);
            if let Some(rule) = self.holds(ordinal, matching) {
                return Some((ordinal, rule));
            }
            *list = rest;
        }
    }

    /// Returns the first ordinal in `guards` before `best` whose guard passes and whose conjunction
    /// holds, and its rule; else `best`.
    fn first_guarded<G>(
        &self,
        guards: &[(G, u32)],
        passes: impl Fn(&G) -> bool,
        matching: &(&Subject, &[u8]),
        best: Option<(u32, u32)>,
        work: &mut u32,
    ) -> Option<(u32, u32)> {
        let end = best.map_or(u32::MAX, |(ordinal, _)| ordinal);
        guards
            .iter()
            .take_while(|&&(_, ordinal)| ordinal < end)
            .inspect(|_| *work = work.saturating_add(1))
            .filter(|(guard, _)| passes(guard))
            .find_map(|&(_, ordinal)| Some((ordinal, self.holds(ordinal, matching)?)))
            .or(best)
    }

    /// Returns the rule of a conjunction, if the conjunction holds for a subject and the text of
    /// its cgroup.
    fn holds(&self, ordinal: u32, (subject, path): &(&Subject, &[u8])) -> Option<u32> {
        let conjunction = self.conjunctions.as_slice().get(ordinal as usize)?;
        let conditions = &self.rule(conjunction.rule)?.conditions;
        conditions
            .holds(conjunction.conditions, subject, path)
            .then_some(conjunction.rule)
    }

    /// Returns rule `index`.
    pub fn rule(&self, index: u32) -> Option<&Rule> {
        let entry = self.entries.as_slice().get(index as usize)?;
        Some(&entry.rule)
    }

    /// Returns the indices of the rules that rule `index` names in `also=`.
    pub fn also(&self, index: u32) -> &[u32] {
        let entry = self.entries.as_slice().get(index as usize);
        let also = entry.and_then(|entry| entry.also.get(..usize::from(entry.len)));
        also.unwrap_or_default()
    }

    /// Returns the index of the default rule.
    pub fn default_index(&self) -> u32 {
        self.default
    }

    /// Returns the generation that was passed to [`crate::sched::rules::RuleList::compile`].
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the number of rules, including the default rule.
    pub fn len(&self) -> u32 {
        self.entries.as_slice().len() as u32
    }
}
