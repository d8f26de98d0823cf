// SPDX-License-Identifier: GPL-2.0-only

//! Commands that start, change or stop a rule.
//!
//! Parsing a command needs neither memory nor the rules. [`crate::sched::rules::RuleList::apply`]
//! checks the conditions that depend on the existing rules or on the type of the policy.

use crate::sched::{
    error::Code,
    rules::{
        conditions,
        scanner::{is_blank, Scanner},
        Burst, Name, Rate, RuleError, ALSO_MAX, NAME_MAX,
    },
    text::Heads,
};

/// Maximum length of a command, bytes.
pub const COMMAND_MAX: usize = 4095;

/// Maximum bytes of a command as it is shown: with the head, and with limits that were not given.
const SHOWN_MAX: usize = COMMAND_MAX + 182;

/// Value with the offset in the command at which it was read.
pub type Located<T> = (usize, T);

/// Parsed command.
#[derive(Clone, Copy, Debug)]
pub struct RuleCommand<'a> {
    /// Heads that the command addresses; the service may not have them.
    pub heads: Heads,
    /// Name of the rule.
    pub name: Located<Name>,
    /// Operation on the rule.
    pub action: RuleAction<'a>,
}

/// Operation of a command.
#[derive(Clone, Copy, Debug)]
pub enum RuleAction<'a> {
    /// Creates the rule, with the text of its conditions.
    Start(Scanner<'a>, RulePairs),
    /// Changes the given limits.
    Change(RulePairs),
    /// Removes the rule.
    Stop,
}

/// Values of `NAME=VALUE` pairs; `None` for pairs that are not given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RulePairs {
    /// Rate limit of each class.
    pub rate: Option<Located<Rate>>,
    /// Guaranteed minimum of the rule; inner `None` for `minrate=0`.
    pub minrate: Option<Located<Option<Rate>>>,
    /// Credit of an idle class; inner `None` for `burst=0`.
    pub burst: Option<Located<Option<Burst>>>,
    /// Rule before which the rule is placed.
    pub rank: Option<Located<Name>>,
    /// True if lost time is made up for.
    pub realtime: Option<bool>,
    /// True if unused rates of other rules may be borrowed.
    pub borrow: Option<bool>,
    /// Rules whose limits also apply; all `None` for an empty `also=`.
    pub also: Option<[Option<Located<Name>>; ALSO_MAX]>,
}

impl<'a> RuleCommand<'a> {
    /// Parses a command; see [`crate::sched::rules`] for the grammar.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: much longer than [`COMMAND_MAX`] bytes, a non-printable character, text that
    ///   does not match the grammar, or a `change` without pairs.
    /// - `ENAMETOOLONG`: a name of more than [`NAME_MAX`] characters.
    pub fn parse(text: &'a str) -> Result<Self, RuleError> {
        if text.len() > SHOWN_MAX {
            let reason = "command is too long (limit: 4095 bytes)";
            return Err(RuleError::new(Code::Invalid, COMMAND_MAX, reason));
        }
        let mut scan = Scanner::new(text)?;
        let (mut at, mut verb) = scan.word();
        let heads = match verb {
            "reg" => Heads::Regular,
            "hp" => Heads::High,
            _ => Heads::All,
        };
        if heads != Heads::All {
            (at, verb) = scan.word();
        }
        let verb = match verb {
            "start" => RuleAction::Start,
            "change" => |_, pairs| RuleAction::Change(pairs),
            "stop" => |_, _| RuleAction::Stop,
            _ => return Err(RuleError::invalid(at, "start, change or stop")),
        };
        let name = rule_name(&mut scan)?;
        let mut conditions = scan;
        let mut action = verb(scan, RulePairs::default());
        match action {
            RuleAction::Start(..) => {
                let from = scan.at();
                conditions::walk(&mut scan, &mut conditions::ConditionCheck::new())?;
                conditions = scan.rewound(from);
                if scan.peek().is_some_and(|b| !is_blank(b)) {
                    return Err(scan.expected("a blank, ',' or '&' after '}'"));
                }
            }
            RuleAction::Change(_) => {}
            RuleAction::Stop => scan.blanks(),
        }
        if !matches!(action, RuleAction::Stop) {
            let pairs = RulePairs::parse(&mut scan)?;
            if matches!(action, RuleAction::Change(_)) && pairs == RulePairs::default() {
                return Err(scan.expected(PAIR));
            }
            action = verb(conditions, pairs);
        }
        match scan.peek() {
            None => Ok(Self {
                heads,
                name,
                action,
            }),
            Some(_) => Err(scan.expected("nothing after the name")),
        }
    }
}

/// Text expected where a pair should be.
const PAIR: &str = "rate=, minrate=, burst=, rank=, realtime=, borrow= or also=";

/// Reads the name of the command's rule.
fn rule_name(scan: &mut Scanner<'_>) -> Result<Located<Name>, RuleError> {
    let (at, word) = scan.word();
    if let Some(name) = Name::new(word) {
        return Ok((at, name));
    }
    let valid = word.bytes().all(Name::takes);
    if valid && word.len() > NAME_MAX {
        let reason = "name is too long (limit: 15 characters)";
        return Err(RuleError::new(Code::NameTooLong, at, reason));
    }
    Err(RuleError::invalid(
        at,
        "the name of a rule: letters, digits and '_'",
    ))
}

impl RulePairs {
    /// Reads pairs up to the end of the command; the last of repeated pairs counts.
    fn parse(scan: &mut Scanner<'_>) -> Result<Self, RuleError> {
        let mut pairs = Self::default();
        loop {
            let (at, word) = scan.word();
            if word.is_empty() {
                return Ok(pairs);
            }
            // A rate without a key is the older form.
            let Some((key, value)) = word.split_once('=') else {
                let rate = Rate::parse(word).ok_or(RuleError::invalid(at, PAIR))?;
                pairs.rate = Some((at, rate));
                continue;
            };
            let value_at = at.saturating_add(key.len()).saturating_add(1);
            let rate = || Rate::parse(value).ok_or(RuleError::invalid(value_at, Rate::EXPECTED));
            match key {
                "rate" => pairs.rate = Some((value_at, rate()?)),
                "minrate" if value == "0" => pairs.minrate = Some((value_at, None)),
                "minrate" => pairs.minrate = Some((value_at, Some(rate()?))),
                "burst" if value == "0" => pairs.burst = Some((value_at, None)),
                "burst" => {
                    let wrong = RuleError::invalid(value_at, Burst::EXPECTED);
                    pairs.burst = Some((value_at, Some(Burst::parse(value).ok_or(wrong)?)));
                }
                "rank" => pairs.rank = Some(name_in(value_at, value)?),
                "realtime" => pairs.realtime = Some(realtime(value_at, value)?),
                "borrow" => pairs.borrow = Some(borrow(value_at, value)?),
                "also" => pairs.also = Some(also(value_at, value)?),
                _ => return Err(RuleError::invalid(at, PAIR)),
            }
        }
    }
}

/// Parses the name of another rule in a pair.
fn name_in(at: usize, text: &str) -> Result<Located<Name>, RuleError> {
    let expected = "the name of a rule: 1 to 15 letters, digits and '_'";
    let name = Name::new(text).ok_or(RuleError::invalid(at, expected))?;
    Ok((at, name))
}

/// Parses the value of `realtime=`, a number: 0 is off, all other numbers are on.
fn realtime(at: usize, text: &str) -> Result<bool, RuleError> {
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    match text.parse::<u64>() {
        Ok(number) if digits => Ok(number > 0),
        _ => Err(RuleError::invalid(at, "a number (0: off)")),
    }
}

/// Parses the value of `borrow=`, 0 or 1.
fn borrow(at: usize, text: &str) -> Result<bool, RuleError> {
    match text {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err(RuleError::invalid(at, "0 or 1")),
    }
}

/// Parses the value of `also=`: names joined by `+`, or nothing.
fn also(at: usize, text: &str) -> Result<[Option<Located<Name>>; ALSO_MAX], RuleError> {
    let mut names = [None; ALSO_MAX];
    let mut places = names.iter_mut();
    if text.is_empty() {
        return Ok(names);
    }
    let mut from = at;
    for text in text.split('+') {
        let reason = "too many rules in also= (limit: 3)";
        let place = places
            .next()
            .ok_or(RuleError::new(Code::Invalid, from, reason))?;
        *place = Some(name_in(from, text)?);
        from = from.saturating_add(text.len()).saturating_add(1);
    }
    Ok(names)
}
