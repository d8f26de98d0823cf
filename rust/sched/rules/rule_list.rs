// SPDX-License-Identifier: GPL-2.0-only

//! Rule lists: the ordered rules of one head.
//!
//! A new rule becomes the first rule, or is placed before the rule that `rank=` names. The rule
//! `default` always exists. It applies to requests that no other rule matches, regardless of its
//! position.
//!
//! A rule list is never modified: a command creates a new list, which shares its rules with the
//! previous list.

use crate::sched::{
    error::Code,
    mem::{GrowingList, NoMemory, Shared},
    rules::{
        command::{Located, RuleAction, RuleCommand, RulePairs},
        AlsoRules, Conditions, Fields, Name, Rate, Rule, RuleError, RuleLimits, RuleSet, Unit,
    },
    sort::sort_by,
};
use core::fmt;

/// Maximum number of patterns and of conjunctions of several conditions in all rules. A lookup runs
/// under a lock, and may have to compare each of them.
pub const COMPARISONS_MAX: usize = 8_192;

/// Identifier of the default rule.
const DEFAULT: u32 = 0;

/// Rules of one head.
///
/// # Context
///
/// All methods that create a rule list or a rule set may sleep, and so may [`RuleList::write`] and
/// dropping.
///
/// # Invariants
///
/// - The default rule exists. Names and identifiers are unique, and identifiers are below `next`.
/// - Each rule named in an `also=` exists.
///
/// # Examples
///
/// ```
/// use nrs_sched::{
///     arena::attrs,
///     key::Field,
///     rules::{Fields, Rate, RuleCommand, RuleError, RuleList, Subject, Unit},
/// };
///
/// let (uid, rate) = (Fields::only(Field::Uid), Rate::new(100, Unit::Plain).unwrap());
/// let mut list = RuleList::new(uid, rate, 10)?;
/// for text in ["start staff uid={1 2} rate=50", "start two uid={2} rate=5"] {
///     list = list.apply(&RuleCommand::parse(text)?)?;
/// }
/// let set = list.compile(0)?;
/// let rule_of = |id| set.rule(set.find(&Subject::of(&attrs(id), uid))).unwrap().name.to_string();
/// // A new rule is the first one, and the first rule that matches applies.
/// assert_eq!([2, 1, 3].map(rule_of), ["two", "staff", "default"]);
/// # Ok::<(), RuleError>(())
/// ```
pub struct RuleList {
    fields: Fields,
    rate: Rate,
    max: u32,
    next: u32,
    rules: GrowingList<Shared<Rule>>,
}

/// Position of a rule.
#[derive(Clone, Copy)]
enum RulePosition {
    Front,
    /// Before the rule with this identifier.
    Before(u32),
}

impl RuleList {
    /// Creates a rule list with the default rule only. Conditions may refer to `fields`; `rate` is
    /// that of the default rule and of rules that are started without a rate. `max` is the maximum
    /// number of rules without the default rule.
    pub fn new(fields: Fields, rate: Rate, max: u32) -> Result<Self, NoMemory> {
        let conditions = Shared::new(Conditions::never()?)?;
        let rule = Rule::new(DEFAULT, Name::DEFAULT, conditions, RuleLimits::new(rate));
        let mut rules = GrowingList::with_capacity(1)?;
        rules.push(Shared::new(rule)?)?;
        // INVARIANT: the default rule exists, and has no `also=`.
        Ok(Self {
            fields,
            rate,
            max,
            next: 1,
            rules,
        })
    }

    /// Returns a rule list with the same rules, another rate for rules that are started without a
    /// rate, and another maximum.
    pub fn with_defaults(&self, rate: Rate, max: u32) -> Result<Self, NoMemory> {
        let mut list = self.edit(None, None)?;
        list.rate = rate;
        list.max = max;
        Ok(list)
    }

    /// Returns the fields to which conditions may refer.
    #[cfg(not(MODULE))]
    pub fn fields(&self) -> Fields {
        self.fields
    }

    /// Returns the rules in order.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.rules.as_slice().iter().map(|rule| &**rule)
    }

    /// Returns the rule named `name`.
    pub fn get(&self, name: &Name) -> Option<&Rule> {
        self.rules().find(|rule| rule.name == *name)
    }

    /// Returns the number of rules, including the default rule.
    pub fn len(&self) -> usize {
        self.rules.as_slice().len()
    }

    /// Returns true if the number of rules, without the default rule, is at most `max`.
    pub fn fits(&self, max: u32) -> bool {
        self.len() <= (max as usize).saturating_add(1)
    }

    /// Returns the rule list after `command`; the present list stays unchanged. Stopping a rule
    /// that does not exist changes nothing and is no error. The heads of the command are not
    /// checked.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: a condition refers to a field that the policy does not use, or a bare list is
    ///   ambiguous; `minrate` is above `rate`; `minrate` or
    ///   `burst` has another unit than `rate`; a rule names itself in `also=`.
    /// - `EEXIST`: start of a rule that exists, or of `default`.
    /// - `ENOENT`: change of a rule that does not exist; `rank=` or `also=` names a rule that does
    ///   not exist.
    /// - `EPERM`: stop of `default`.
    /// - `EBUSY`: stop of a rule that another rule names in `also=`.
    /// - `ENOSPC`: the maximum number of rules is reached, or [`COMPARISONS_MAX`] is exceeded.
    /// - `ENOMEM`: out of memory.
    pub fn apply(&self, command: &RuleCommand<'_>) -> Result<Self, RuleError> {
        let (at, name) = command.name;
        let known = self.rules.as_slice().iter().find(|rule| rule.name == name);
        let missing = RuleError::new(Code::NoEntry, at, "no rule of this name");
        match &command.action {
            RuleAction::Start(conditions, pairs) => {
                let conditions = Conditions::parse(*conditions, self.fields)?;
                if known.is_some() {
                    let reason = "a rule of this name exists";
                    return Err(RuleError::new(Code::Exists, at, reason));
                }
                let all = self.rules().map(|rule| rule.conditions.comparisons());
                if all.fold(conditions.comparisons(), usize::saturating_add) > COMPARISONS_MAX {
                    let reason = "too many patterns and conjunctions (limit per head: 8192)";
                    return Err(RuleError::new(Code::NoSpace, at, reason));
                }
                let place = self.position(pairs, RulePosition::Front)?;
                let limits = self.limits(RuleLimits::new(self.rate), pairs, None)?;
                let id = self.next;
                // The default rule does not count.
                let next = id
                    .checked_add(1)
                    .filter(|_| self.len() <= self.max as usize);
                let reason = "too many rules (limit: nrs_tbf_rules_max)";
                let next = next.ok_or(RuleError::new(Code::NoSpace, at, reason))?;
                let rule = Rule::new(id, name, Shared::new(conditions)?, limits);
                let mut list = self.edit(None, Some((Shared::new(rule)?, place)))?;
                // INVARIANT: the identifier of the new rule is below.
                list.next = next;
                Ok(list)
            }
            RuleAction::Change(pairs) => {
                let rule = known.ok_or(missing)?;
                let place = self.position(pairs, RulePosition::Before(rule.id))?;
                let limits = self.limits(rule.limits, pairs, Some(rule.id))?;
                let new = if limits == rule.limits {
                    rule.clone()
                } else {
                    Shared::new(rule.changed(limits))?
                };
                Ok(self.edit(Some(rule.id), Some((new, place)))?)
            }
            RuleAction::Stop => {
                let id = known.map(|rule| rule.id);
                if id == Some(DEFAULT) {
                    let reason = "rule default cannot be stopped";
                    return Err(RuleError::new(Code::Permission, at, reason));
                }
                let named = |rule: &Rule| id.is_some_and(|id| rule.limits.also.ids().contains(&id));
                if self.rules().any(named) {
                    let reason = "rule is named in also= of another rule";
                    return Err(RuleError::new(Code::Busy, at, reason));
                }
                Ok(self.edit(id, None)?)
            }
        }
    }

    /// Returns the identifier of the rule named in a pair.
    fn named(&self, (at, name): Located<Name>) -> Result<u32, RuleError> {
        match self.get(&name) {
            Some(rule) => Ok(rule.id),
            None => Err(RuleError::new(Code::NoEntry, at, "no rule of this name")),
        }
    }

    /// Returns the position that `pairs` set, else `position`.
    fn position(&self, pairs: &RulePairs, place: RulePosition) -> Result<RulePosition, RuleError> {
        match pairs.rank {
            Some(name) => Ok(RulePosition::Before(self.named(name)?)),
            None => Ok(place),
        }
    }

    /// Returns `limits` changed by `pairs`; `own` is the identifier of the rule, if the rule
    /// exists.
    fn limits(
        &self,
        mut limits: RuleLimits,
        pairs: &RulePairs,
        own: Option<u32>,
    ) -> Result<RuleLimits, RuleError> {
        let mut blame = 0;
        if let Some((at, rate)) = pairs.rate {
            (blame, limits.rate) = (at, rate);
        }
        if let Some((at, minrate)) = pairs.minrate {
            (blame, limits.minrate) = (at, minrate);
        }
        if let Some((at, burst)) = pairs.burst {
            (blame, limits.burst) = (at, burst);
        }
        limits.realtime = pairs.realtime.unwrap_or(limits.realtime);
        limits.borrow = pairs.borrow.unwrap_or(limits.borrow);
        if let Some(names) = pairs.also {
            limits.also = AlsoRules::NONE;
            for (at, name) in names.into_iter().flatten() {
                let id = self.named((at, name))?;
                // `AlsoRules` has room for all names that the grammar allows.
                if own == Some(id) || !limits.also.add(id) {
                    let reason = "a rule cannot name itself in also=";
                    return Err(RuleError::new(Code::Invalid, at, reason));
                }
            }
        }
        // INVARIANT: this check maintains the invariant of `RuleLimits`.
        let fits = limits.minrate.is_none_or(|minrate| {
            minrate.unit() == limits.rate.unit() && minrate.per_second() <= limits.rate.per_second()
        });
        if !fits {
            let reason = "minrate must have the unit of rate and be at most rate";
            return Err(RuleError::new(Code::Invalid, blame, reason));
        }
        if !limits.burst.is_none_or(|burst| burst.fits(limits.rate)) {
            let reason = "burst must have the unit of rate, or be a time";
            return Err(RuleError::new(Code::Invalid, blame, reason));
        }
        Ok(limits)
    }

    /// Returns the rule list without the rule `remove`, and with the rule `insert` at its position.
    fn edit(
        &self,
        remove: Option<u32>,
        insert: Option<(Shared<Rule>, RulePosition)>,
    ) -> Result<Self, NoMemory> {
        let mut rules = GrowingList::with_capacity(self.len().saturating_add(1))?;
        let mut insert = insert;
        for rule in self.rules.as_slice() {
            let here = |place: &RulePosition| match place {
                RulePosition::Front => true,
                RulePosition::Before(id) => *id == rule.id,
            };
            if let Some((new, _)) = insert.take_if(|(_, place)| here(place)) {
                rules.push(new)?;
            }
            if remove != Some(rule.id) {
                rules.push(rule.clone())?;
            }
        }
        // INVARIANT: callers name existing rules and do not remove the default rule or a rule that
        // others need. An inserted rule replaces the removed rule, or has a new name and
        // identifier.
        Ok(Self {
            fields: self.fields,
            rate: self.rate,
            max: self.max,
            next: self.next,
            rules,
        })
    }

    /// Returns the rules compiled for lookups; `generation` identifies the compilation.
    pub fn compile(&self, generation: u64) -> Result<RuleSet, NoMemory> {
        RuleSet::new(self.rules.as_slice(), DEFAULT, generation)
    }

    /// Returns the positions of the rules, sorted by identifier.
    fn places(&self) -> Result<GrowingList<(u32, usize)>, NoMemory> {
        let mut places = GrowingList::with_capacity(self.rules.as_slice().len())?;
        for (place, rule) in self.rules.as_slice().iter().enumerate() {
            places.push((rule.id, place))?;
        }
        sort_by(
            places.as_mut_slice(),
            |a: &(u32, usize), b: &(u32, usize)| a.0.cmp(&b.0),
        );
        Ok(places)
    }

    /// Returns this rule list as the successor of `old`: rules with the name and conditions of an
    /// old rule have its identifier, others have new ones. `None` if both are equal.
    pub fn resumed(&self, old: &Self) -> Result<Option<Self>, NoMemory> {
        let mut next = old.next;
        let mut ids = GrowingList::with_capacity(self.len())?;
        for rule in self.rules() {
            let known = old.get(&rule.name);
            let known = known.filter(|old| old.conditions.as_str() == rule.conditions.as_str());
            let id = match known {
                Some(old) => old.id,
                None => {
                    let id = next;
                    next = next.checked_add(1).ok_or(NoMemory)?;
                    id
                }
            };
            ids.push((rule.id, id))?;
        }
        let by_own = |a: &(u32, u32), b: &(u32, u32)| a.0.cmp(&b.0);
        sort_by(ids.as_mut_slice(), by_own);
        let id = |own: u32| {
            let ids = ids.as_slice();
            let found = ids.binary_search_by_key(&own, |(own, _)| *own);
            found
                .ok()
                .and_then(|at| ids.get(at))
                .map_or(own, |(_, id)| *id)
        };
        let mut rules = GrowingList::with_capacity(self.len())?;
        for rule in self.rules() {
            let mut limits = rule.limits;
            limits.also = AlsoRules::NONE;
            for also in rule.limits.also.ids() {
                // There were no more before.
                limits.also.add(id(*also));
            }
            let conditions = rule.conditions.clone();
            rules.push(Shared::new(Rule::new(
                id(rule.id),
                rule.name,
                conditions,
                limits,
            ))?)?;
        }
        // INVARIANT: identifiers of old rules are below `old.next`, new ones are unique.
        let new = Self {
            fields: self.fields,
            rate: self.rate,
            max: self.max,
            next,
            rules,
        };
        Ok((!new.equals(old)).then_some(new))
    }

    /// Returns true if both lists have the same rules in the same order, and the same defaults.
    fn equals(&self, other: &Self) -> bool {
        let key = |rule: &Rule| (rule.id, rule.limits);
        (self.fields, self.rate, self.max, self.len())
            == (other.fields, other.rate, other.max, other.len())
            && self.rules().map(key).eq(other.rules().map(key))
    }

    /// Returns the name of the rule with an identifier.
    fn names(&self) -> impl Fn(u32) -> Option<Name> + '_ {
        let places = self.places();
        move |id| {
            let rule = match &places {
                Ok(places) => {
                    let places = places.as_slice();
                    let found = places.binary_search_by_key(&id, |(id, _)| *id).ok()?;
                    let (_, place) = places.get(found)?;
                    self.rules.as_slice().get(*place)?
                }
                // Slow, but needs no memory.
                Err(NoMemory) => self.rules.as_slice().iter().find(|rule| rule.id == id)?,
            };
            Some(rule.name)
        }
    }

    /// Writes a line for each rule, in order:
    /// `NAME CONDITIONS RATE[ minrate=RATE][ burst=BURST][ realtime=1][ borrow=1][ also=NAMES],
    /// ref N`. `refs`
    /// returns N, the number of classes of the rule with an identifier.
    pub fn write(&self, out: &mut impl fmt::Write, refs: impl Fn(u32) -> u64) -> fmt::Result {
        let write_limits = self.limits_writer();
        self.rules().try_for_each(|rule| {
            let limits = &rule.limits;
            write!(out, "{} {} {}", rule.name, *rule.conditions, limits.rate)?;
            write_limits(limits, out)?;
            writeln!(out, ", ref {}", refs(rule.id))
        })
    }

    /// Returns a function that writes limits as they follow the rate of a rule, each after a blank.
    pub fn limits_writer(&self) -> impl Fn(&RuleLimits, &mut dyn fmt::Write) -> fmt::Result + '_ {
        let name = self.names();
        move |limits, out| {
            write_options(limits, out)?;
            write_also(limits, &name, out)
        }
    }

    /// Writes commands for `heads`, a word with a blank or nothing, that create these rules from a
    /// list with the default rule only.
    pub fn write_commands(&self, heads: &str, out: &mut dyn fmt::Write) -> fmt::Result {
        let name = self.names();
        // Each new rule becomes the first one.
        let mut after: Option<&Rule> = None;
        for rule in self.rules.as_slice().iter().rev() {
            let (limits, behind) = (&rule.limits, after.replace(rule));
            if rule.id != DEFAULT {
                let (name, conditions) = (rule.name, &*rule.conditions);
                write!(out, "nrs_tbf_rule {heads}start {name} {conditions}")?;
            } else if behind.is_some() || *limits != RuleLimits::new(self.rate) {
                write!(out, "nrs_tbf_rule {heads}change {}", rule.name)?;
            } else {
                continue;
            }
            write!(out, " rate={}", limits.rate)?;
            write_options(limits, out)?;
            if let Some(behind) = behind.filter(|_| rule.id == DEFAULT) {
                write!(out, " rank={}", behind.name)?;
            }
            out.write_char('\n')?;
        }
        // The rules that others name exist now.
        for rule in self.rules() {
            if !rule.limits.also.ids().is_empty() {
                write!(out, "nrs_tbf_rule {heads}change {}", rule.name)?;
                write_also(&rule.limits, &name, out)?;
                out.write_char('\n')?;
            }
        }
        Ok(())
    }
}

/// Writes the limits other than the rate and other rules.
fn write_options(limits: &RuleLimits, out: &mut (impl fmt::Write + ?Sized)) -> fmt::Result {
    if let Some(minrate) = limits.minrate {
        write!(out, " minrate={minrate}")?;
    }
    if let Some(burst) = limits.burst {
        write!(out, " burst={burst}")?;
    }
    for (word, is_set) in [("realtime", limits.realtime), ("borrow", limits.borrow)] {
        if is_set {
            write!(out, " {word}=1")?;
        }
    }
    Ok(())
}

/// Writes the names of the rules that also apply.
fn write_also(
    limits: &RuleLimits,
    name: impl Fn(u32) -> Option<Name>,
    out: &mut (impl fmt::Write + ?Sized),
) -> fmt::Result {
    let mut before = " also=";
    for name in limits.also.ids().iter().filter_map(|id| name(*id)) {
        write!(out, "{before}{name}")?;
        before = "+";
    }
    Ok(())
}

/// Checks a command for rules against any type of `tbf` and any existing rules; sleeps.
///
/// # Errors
///
/// - The errors of [`RuleCommand::parse`].
/// - For a start, the errors of [`RuleList::apply`] that do not depend on existing rules.
pub fn check(text: &str) -> Result<(), RuleError> {
    let command = RuleCommand::parse(text)?;
    let RuleAction::Start(mut conditions, _) = command.action else {
        return Ok(());
    };
    conditions.blanks();
    if conditions.peek() != Some(b'{') {
        return start(&command, Fields::ALL);
    }
    // A list without a field is for the only field of the type, which may be any field.
    let mut worst: Option<RuleError> = None;
    for field in Fields::ALL.iter() {
        match start(&command, Fields::only(field)) {
            Ok(()) => return Ok(()),
            Err(error) if worst.is_none_or(|other| other.column < error.column) => {
                worst = Some(error);
            }
            Err(_) => {}
        }
    }
    worst.map_or(Ok(()), Err)
}

/// Executes `command` without existing rules and with the type `fields`; references to other rules
/// are ignored.
fn start(command: &RuleCommand<'_>, fields: Fields) -> Result<(), RuleError> {
    let rate = Rate::new(1, Unit::Plain).ok_or(RuleError::no_memory())?;
    match RuleList::new(fields, rate, u32::MAX)?.apply(command) {
        Err(error) if error.code != Code::NoEntry => Err(error),
        _ => Ok(()),
    }
}
