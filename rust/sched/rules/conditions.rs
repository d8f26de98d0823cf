// SPDX-License-Identifier: GPL-2.0-only

//! Conditions, which select the requests of a rule.

use crate::sched::{
    attr::{
        cgroup::{self, PATH_MAX},
        CgroupPath, IoPriority, Opcode,
    },
    error::Code,
    glob,
    jobid::{JobId, JOBID_MAX},
    key::Field,
    mem::{GrowingList, NoMemory},
    nid::{
        pattern::{self, NumberRange, Pattern, Span},
        Nid,
    },
    rules::{
        scanner::{is_blank, Scanner},
        Fields, Name, RuleError, Subject,
    },
    sort,
};
use core::fmt;

/// Receiver of the parts of conditions as they are read.
pub trait ConditionVisitor {
    /// Starts a conjunction.
    fn conjunction(&mut self) -> Result<(), RuleError>;

    /// Starts a condition at offset `at`; without a field, the condition refers to the policy's
    /// only field.
    fn condition(&mut self, at: usize, field: Option<Field>) -> Result<(), RuleError>;

    /// Adds a value of the condition, at offset `at`.
    fn item(&mut self, at: usize, text: &str) -> Result<(), RuleError>;
}

/// Reads conditions; stops after the last `}`.
///
/// # Errors
///
/// `EINVAL`: text that does not match the grammar, or an error of `visit`.
pub fn walk(scan: &mut Scanner<'_>, visit: &mut impl ConditionVisitor) -> Result<(), RuleError> {
    scan.blanks();
    visit.conjunction()?;
    if scan.peek() == Some(b'{') {
        visit.condition(scan.at(), None)?;
        return list(scan, visit);
    }
    loop {
        scan.blanks();
        let at = scan.at();
        let field = Field::parse(scan.take(Name::takes)).ok_or(RuleError::invalid(
            at,
            "a field: nid, jobid, uid, gid, projid, nodemap, cgroup or opcode",
        ))?;
        visit.condition(at, Some(field))?;
        scan.blanks();
        if !scan.skip(b'=') {
            return Err(scan.expected("'='"));
        }
        scan.blanks();
        if scan.peek() != Some(b'{') {
            return Err(scan.expected("'{'"));
        }
        list(scan, visit)?;
        let mut ahead = *scan;
        ahead.blanks();
        if ahead.skip(b',') {
            visit.conjunction()?;
        } else if !ahead.skip(b'&') {
            return Ok(());
        }
        *scan = ahead;
    }
}

/// Reads `{ITEM…}`.
fn list(scan: &mut Scanner<'_>, visit: &mut impl ConditionVisitor) -> Result<(), RuleError> {
    scan.skip(b'{');
    let mut empty = true;
    loop {
        scan.blanks();
        let at = scan.at();
        match scan.peek() {
            None => return Err(scan.expected("'}'")),
            Some(b'{') => return Err(scan.expected("a value or '}'")),
            Some(b'}') if empty => return Err(scan.expected("at least one value")),
            Some(b'}') => {
                scan.skip(b'}');
                return Ok(());
            }
            Some(_) => visit.item(at, scan.take(|b| !is_blank(b) && b != b'{' && b != b'}'))?,
        }
        empty = false;
    }
}

/// Value of a field, or a pattern of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionValue {
    /// A number.
    Number(u32),
    /// A job identifier.
    Job(JobId),
    /// The path of a cgroup.
    Cgroup(CgroupPath),
    /// A pattern of job identifiers or of paths, given by the text.
    NamePattern,
    /// A network identifier.
    Nid(Nid),
    /// A pattern of network identifiers.
    NidPattern(Pattern),
}

impl ConditionValue {
    /// Parses a value of `field` at offset `at`; `keep` stores ranges of network identifiers.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: not a value of the field.
    /// - `ENOMEM`: `keep` is out of memory.
    pub fn parse(
        field: Field,
        at: usize,
        text: &str,
        keep: &mut dyn FnMut(NumberRange) -> Result<usize, NoMemory>,
    ) -> Result<Self, RuleError> {
        match field {
            Field::Uid | Field::Gid | Field::Projid | Field::Nodemap => number(text)
                .map(Self::Number)
                .ok_or(RuleError::invalid(at, "a number, 0 to 4294967295")),
            Field::Cgroup => match CgroupPath::parse(text.as_bytes()) {
                Some(_) if glob::is_pattern(text.as_bytes()) => Ok(Self::NamePattern),
                Some(path) if text.len() <= PATH_MAX => Ok(Self::Cgroup(path)),
                _ => Err(RuleError::invalid(at, cgroup::EXPECTED)),
            },
            Field::Opcode => Opcode::parse(text)
                .map(|opcode| Self::Number(opcode.number()))
                .ok_or(RuleError::invalid(at, "an operation, such as ost_read")),
            Field::IoPriority => IoPriority::parse(text)
                .map(|priority| Self::Number(priority.number().into()))
                .ok_or(RuleError::invalid(
                    at,
                    "rt-0 to rt-7, be-0 to be-7, or idle",
                )),
            Field::Jobid => {
                let bytes = text.as_bytes();
                if glob::least(bytes) > JOBID_MAX {
                    let expected = "a job identifier of up to 31 bytes";
                    Err(RuleError::invalid(at, expected))
                } else if glob::is_pattern(bytes) {
                    Ok(Self::NamePattern)
                } else {
                    Ok(Self::Job(JobId::new(bytes)))
                }
            }
            Field::Nid => match Pattern::parse(text, keep) {
                Ok(pattern::Parsed::One(nid)) => Ok(Self::Nid(nid)),
                Ok(pattern::Parsed::Many(pattern)) => Ok(Self::NidPattern(pattern)),
                Err(error) => Err(error.after(at)),
            },
        }
    }
}

/// Parses an unsigned number: decimal, `0x` hexadecimal, or octal after a `0`.
fn number(text: &str) -> Option<u32> {
    let (digits, radix) = match text.strip_prefix('0') {
        None | Some("") => (text, 10),
        Some(rest) => match rest.strip_prefix(['x', 'X']) {
            Some(hex) => (hex, 16),
            None => (rest, 8),
        },
    };
    let valid = digits.bytes().all(|b| b.is_ascii_hexdigit());
    u32::from_str_radix(digits, radix).ok().filter(|_| valid)
}

/// Receiver that checks conditions without storing them.
pub struct ConditionCheck {
    field: Option<Field>,
}

impl ConditionCheck {
    /// Creates the receiver.
    pub const fn new() -> Self {
        Self { field: None }
    }
}

impl ConditionVisitor for ConditionCheck {
    fn conjunction(&mut self) -> Result<(), RuleError> {
        Ok(())
    }

    fn condition(&mut self, _at: usize, field: Option<Field>) -> Result<(), RuleError> {
        self.field = field;
        Ok(())
    }

    fn item(&mut self, at: usize, text: &str) -> Result<(), RuleError> {
        match self.field {
            Some(field) => ConditionValue::parse(field, at, text, &mut |_| Ok(0)).map(|_| ()),
            // The field is that of the policy, which is unknown here.
            None => Ok(()),
        }
    }
}

/// Field and its accepted values.
#[derive(Clone, Copy)]
pub struct Condition {
    field: Field,
    exact: Span,
    patterns: Span,
}

/// Conditions of a rule.
///
/// # Invariants
///
/// The exact values of each condition are sorted. Spans refer to the arrays for the type of the
/// field.
pub struct Conditions {
    text: GrowingList<u8>,
    conjunctions: GrowingList<Span>,
    conditions: GrowingList<Condition>,
    numbers: GrowingList<u32>,
    jobs: GrowingList<JobId>,
    cgroups: GrowingList<CgroupPath>,
    /// Ranges of bytes in `text`, of job identifiers and paths.
    name_patterns: GrowingList<Span>,
    nids: GrowingList<Nid>,
    nid_patterns: GrowingList<Pattern>,
    ranges: GrowingList<NumberRange>,
}

impl Conditions {
    /// Returns conditions that never hold, shown as `*`: the conditions of the default rule.
    pub fn never() -> Result<Self, NoMemory> {
        let mut never = Self::empty();
        never.text.push(b'*')?;
        Ok(never)
    }

    const fn empty() -> Self {
        Self {
            text: GrowingList::new(),
            conjunctions: GrowingList::new(),
            conditions: GrowingList::new(),
            numbers: GrowingList::new(),
            jobs: GrowingList::new(),
            cgroups: GrowingList::new(),
            name_patterns: GrowingList::new(),
            nids: GrowingList::new(),
            nid_patterns: GrowingList::new(),
            ranges: GrowingList::new(),
        }
    }

    /// Parses the conditions at `scan` for a policy that uses `fields`; may sleep.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: text that does not match the grammar, or a field that the policy does not use.
    /// - `EINVAL`: a bare list, if the policy has several fields.
    /// - `ENOMEM`: out of memory.
    pub fn parse(mut scan: Scanner<'_>, fields: Fields) -> Result<Self, RuleError> {
        scan.blanks();
        let from = scan.at();
        let mut build = ConditionsBuilder {
            made: Self::empty(),
            fields,
            from,
            shift: 0,
            open: None,
            first: 0,
        };
        if scan.peek() == Some(b'{') {
            // A bare list is shown with its field.
            for byte in fields.single().map_or("", Field::name).bytes() {
                build.made.text.push(byte)?;
            }
            build.made.text.push(b'=')?;
        }
        build.shift = build.made.text.as_slice().len();
        walk(&mut scan, &mut build)?;
        let mut made = build.finish()?;
        for byte in scan.since(from).bytes() {
            made.text.push(if is_blank(byte) { b' ' } else { byte })?;
        }
        Ok(made)
    }

    /// Returns the text as entered; a bare list with its field.
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(self.text.as_slice()).unwrap_or_default()
    }

    /// Returns true if one of the conjunctions holds for `subject`; linear search.
    #[cfg(not(MODULE))]
    pub fn matches(&self, subject: &Subject) -> bool {
        let mut buf = [0; PATH_MAX + 1];
        let path = subject.cgroup.text(&mut buf).unwrap_or(&[]);
        self.conjunctions()
            .any(|conjunction| self.holds(conjunction, subject, path))
    }

    /// Returns the conjunctions.
    pub fn conjunctions(&self) -> impl Iterator<Item = Span> + '_ {
        self.conjunctions.as_slice().iter().copied()
    }

    /// Returns the conditions of a conjunction.
    pub fn conditions(&self, conjunction: Span) -> &[Condition] {
        conjunction.of(self.conditions.as_slice())
    }

    /// Returns true if `conjunction` holds for `subject`, whose cgroup has the text `path`.
    pub fn holds(&self, conjunction: Span, subject: &Subject, path: &[u8]) -> bool {
        let mut conditions = self.conditions(conjunction).iter();
        conditions.all(|condition| self.has(condition, subject, path))
    }

    /// Returns true if the field of `condition` has one of the condition's values in `subject`.
    fn has(&self, condition: &Condition, subject: &Subject, path: &[u8]) -> bool {
        match condition.field {
            Field::Jobid => {
                self.jobs(condition).binary_search(&subject.jobid).is_ok()
                    || self
                        .name_patterns(condition)
                        .any(|pattern| glob::matches(pattern, subject.jobid.as_bytes()))
            }
            Field::Cgroup => {
                let exact = self.cgroups(condition).binary_search(&subject.cgroup);
                exact.is_ok() || self.has_path(condition, path)
            }
            Field::Nid => subject.nid.as_ref().is_some_and(|nid| {
                self.nids(condition).binary_search(nid).is_ok()
                    || self
                        .nid_patterns(condition)
                        .iter()
                        .any(|pattern| pattern.has(nid, self.ranges()))
            }),
            field => {
                let number = subject.number(field);
                self.numbers(condition).binary_search(&number).is_ok()
            }
        }
    }

    /// Returns the exact values of a condition on numbers.
    pub fn numbers(&self, condition: &Condition) -> &[u32] {
        match condition.field {
            Field::Nid | Field::Jobid | Field::Cgroup => &[],
            _ => condition.exact.of(self.numbers.as_slice()),
        }
    }

    /// Returns the exact values of a condition on job identifiers.
    pub fn jobs(&self, condition: &Condition) -> &[JobId] {
        match condition.field {
            Field::Jobid => condition.exact.of(self.jobs.as_slice()),
            _ => &[],
        }
    }

    /// Returns the exact values of a condition on cgroups.
    pub fn cgroups(&self, condition: &Condition) -> &[CgroupPath] {
        match condition.field {
            Field::Cgroup => condition.exact.of(self.cgroups.as_slice()),
            _ => &[],
        }
    }

    /// Returns true if a pattern of a condition on cgroups matches `path`.
    fn has_path(&self, condition: &Condition, path: &[u8]) -> bool {
        let mut patterns = self.name_patterns(condition);
        patterns.any(|pattern| cgroup::matches(pattern, path))
    }

    /// Returns true if a pattern of cgroups in `conjunction` matches `path`.
    pub fn name_cgroup(&self, conjunction: Span, path: &[u8]) -> bool {
        let mut all = self.conditions(conjunction).iter();
        all.any(|condition| condition.field == Field::Cgroup && self.has_path(condition, path))
    }

    /// Returns the patterns of a condition on job identifiers or cgroups.
    pub fn name_patterns(&self, condition: &Condition) -> impl Iterator<Item = &[u8]> + '_ {
        let patterns = match condition.field {
            Field::Jobid | Field::Cgroup => condition.patterns.of(self.name_patterns.as_slice()),
            _ => &[],
        };
        patterns.iter().map(|span| span.of(self.text.as_slice()))
    }

    /// Returns the exact values of a condition on network identifiers.
    pub fn nids(&self, condition: &Condition) -> &[Nid] {
        match condition.field {
            Field::Nid => condition.exact.of(self.nids.as_slice()),
            _ => &[],
        }
    }

    /// Returns the patterns of a condition on network identifiers.
    pub fn nid_patterns(&self, condition: &Condition) -> &[Pattern] {
        match condition.field {
            Field::Nid => condition.patterns.of(self.nid_patterns.as_slice()),
            _ => &[],
        }
    }

    /// Returns the number of patterns and of conjunctions of several conditions, which a lookup may
    /// have to compare one by one.
    pub fn comparisons(&self) -> usize {
        let patterns = self.nid_patterns.as_slice().len();
        let several = self.conjunctions().map(|span| self.conditions(span).len());
        patterns
            .saturating_add(self.name_patterns.as_slice().len())
            .saturating_add(several.filter(|len| *len > 1).count())
    }

    /// Returns the ranges to which patterns of network identifiers refer.
    pub fn ranges(&self) -> &[NumberRange] {
        self.ranges.as_slice()
    }
}

impl Condition {
    /// Returns the field.
    pub const fn field(&self) -> Field {
        self.field
    }
}

/// Text as entered; a bare list with its field.
impl fmt::Display for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Receiver that builds [`Conditions`].
struct ConditionsBuilder {
    made: Conditions,
    fields: Fields,
    /// Offset of the conditions in the command.
    from: usize,
    /// Offset of the conditions in the stored text.
    shift: usize,
    /// Condition that is being read.
    open: Option<Condition>,
    /// Index of the first condition of the conjunction that is being read.
    first: usize,
}

impl ConditionsBuilder {
    /// Returns the numbers of exact values and of patterns in the arrays for `field`.
    fn counts(&self, field: Field) -> (usize, usize) {
        let made = &self.made;
        match field {
            Field::Jobid => (
                made.jobs.as_slice().len(),
                made.name_patterns.as_slice().len(),
            ),
            Field::Cgroup => (
                made.cgroups.as_slice().len(),
                made.name_patterns.as_slice().len(),
            ),
            Field::Nid => (
                made.nids.as_slice().len(),
                made.nid_patterns.as_slice().len(),
            ),
            _ => (made.numbers.as_slice().len(), 0),
        }
    }

    /// Ends the condition that is being read.
    fn close(&mut self) -> Result<(), RuleError> {
        let Some(Condition {
            field,
            exact,
            patterns,
        }) = self.open.take()
        else {
            return Ok(());
        };
        let (exacts, all_patterns) = self.counts(field);
        let exact = exact.up_to(exacts);
        let made = &mut self.made;
        // INVARIANT: sorted here; nothing is added to the span later.
        match field {
            Field::Jobid => sort::sort_by(exact.of_mut(made.jobs.as_mut_slice()), Ord::cmp),
            Field::Cgroup => sort::sort_by(exact.of_mut(made.cgroups.as_mut_slice()), Ord::cmp),
            Field::Nid => sort::sort_by(exact.of_mut(made.nids.as_mut_slice()), Ord::cmp),
            _ => sort::sort_by(exact.of_mut(made.numbers.as_mut_slice()), Ord::cmp),
        }
        made.conditions.push(Condition {
            field,
            exact,
            patterns: patterns.up_to(all_patterns),
        })?;
        Ok(())
    }

    /// Ends the conjunction that is being read.
    fn finish(mut self) -> Result<Conditions, RuleError> {
        self.conjunction()?;
        Ok(self.made)
    }
}

impl ConditionVisitor for ConditionsBuilder {
    fn conjunction(&mut self) -> Result<(), RuleError> {
        self.close()?;
        let end = self.made.conditions.as_slice().len();
        if end > self.first {
            self.made.conjunctions.push(Span::new(self.first, end))?;
            self.first = end;
        }
        Ok(())
    }

    fn condition(&mut self, at: usize, field: Option<Field>) -> Result<(), RuleError> {
        self.close()?;
        let field = match field {
            Some(field) if self.fields.has(field) => field,
            Some(_) => {
                let reason = "field is not part of the policy's type";
                return Err(RuleError::new(Code::Invalid, at, reason));
            }
            None => self.fields.single().ok_or(RuleError::invalid(
                at,
                "FIELD={…}, because the policy uses several fields",
            ))?,
        };
        let (exact, patterns) = self.counts(field);
        self.open = Some(Condition {
            field,
            exact: Span::new(exact, exact),
            patterns: Span::new(patterns, patterns),
        });
        Ok(())
    }

    fn item(&mut self, at: usize, text: &str) -> Result<(), RuleError> {
        let Some(Condition { field, .. }) = self.open else {
            return Ok(());
        };
        let made = &mut self.made;
        let ranges = &mut made.ranges;
        let item = ConditionValue::parse(field, at, text, &mut |range| {
            ranges.push(range)?;
            Ok(ranges.as_slice().len().saturating_sub(1))
        })?;
        match item {
            ConditionValue::Number(number) => made.numbers.push(number)?,
            ConditionValue::Job(job) => made.jobs.push(job)?,
            ConditionValue::Cgroup(path) => made.cgroups.push(path)?,
            ConditionValue::NamePattern => {
                let from = at.saturating_sub(self.from).saturating_add(self.shift);
                let to = from.saturating_add(text.len());
                made.name_patterns.push(Span::new(from, to))?;
            }
            ConditionValue::Nid(nid) => made.nids.push(nid)?,
            ConditionValue::NidPattern(pattern) => made.nid_patterns.push(pattern)?,
        }
        Ok(())
    }
}

impl From<NoMemory> for RuleError {
    fn from(_: NoMemory) -> Self {
        Self::no_memory()
    }
}
