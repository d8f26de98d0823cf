// SPDX-License-Identifier: GPL-2.0-only

//! Commands: what is written to start, change or stop a rule.
//!
//! A command is parsed without memory and without knowing any rule; what depends on the rules that are
//! there, and on the type of the policy, is checked when it is applied ([`crate::sched::rules::Book::apply`]).

use crate::sched::{
    error::Code,
    rules::{
        conditions,
        scan::{is_blank, Scan},
        Name, Rate, RuleError, ALSO_MAX, NAME_MAX,
    },
    text::Heads,
};

/// Bytes of a command, at most.
pub const COMMAND_MAX: usize = 4095;

/// Something and the offset in the command at which it was read.
pub type At<T> = (usize, T);

/// A command as it was written.
#[derive(Clone, Copy, Debug)]
pub struct Command<'a> {
    /// Heads it is for; whether the service has them is not known here.
    pub heads: Heads,
    /// The rule, and where it was named.
    pub name: At<Name>,
    /// What happens to the rule.
    pub action: Action<'a>,
}

/// What a command does.
#[derive(Clone, Copy, Debug)]
pub enum Action<'a> {
    /// Makes the rule, with the text of its conditions.
    Start(Scan<'a>, Pairs),
    /// Changes what is given.
    Change(Pairs),
    /// Removes the rule.
    Stop,
}

/// What `NAME=VALUE` pairs set; what was not written is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pairs {
    /// What a class gets, at most.
    pub rate: Option<At<Rate>>,
    /// What a class gets at least; none inside for `minrate=0`.
    pub minrate: Option<At<Option<Rate>>>,
    /// The rule to stand before.
    pub rank: Option<At<Name>>,
    /// Whether lost time is made up for.
    pub realtime: Option<bool>,
    /// Whether what others leave unused may be used.
    pub borrow: Option<bool>,
    /// Rules whose limits hold too, each with its place; none inside for `also=`.
    pub also: Option<[Option<At<Name>>; ALSO_MAX]>,
}

impl<'a> Command<'a> {
    /// Parses a command; see [`crate::sched::rules`] for the grammar.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: longer than [`COMMAND_MAX`] bytes, a character that does not print, or text that the
    ///   grammar does not take; a `change` that changes nothing.
    /// - `ENAMETOOLONG`: a name of more than [`NAME_MAX`] characters.
    pub fn parse(text: &'a str) -> Result<Self, RuleError> {
        if text.len() > COMMAND_MAX {
            return Err(RuleError::invalid(
                COMMAND_MAX,
                "a command of up to 4095 bytes",
            ));
        }
        let mut scan = Scan::new(text)?;
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
            "start" => Action::Start,
            "change" => |_, pairs| Action::Change(pairs),
            "stop" => |_, _| Action::Stop,
            _ => return Err(RuleError::invalid(at, "start, change or stop")),
        };
        let name = rule_name(&mut scan)?;
        let mut conditions = scan;
        let mut action = verb(scan, Pairs::default());
        match action {
            Action::Start(..) => {
                let from = scan.at();
                conditions::walk(&mut scan, &mut conditions::Check::new())?;
                conditions = scan.back_to(from);
                if scan.peek().is_some_and(|b| !is_blank(b)) {
                    return Err(scan.expected("a blank, ',' or '&' after '}'"));
                }
            }
            Action::Change(_) => {}
            Action::Stop => scan.blanks(),
        }
        if !matches!(action, Action::Stop) {
            let pairs = Pairs::parse(&mut scan)?;
            if matches!(action, Action::Change(_)) && pairs == Pairs::default() {
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

/// What is expected where a pair should be.
const PAIR: &str = "rate=, minrate=, rank=, realtime=, borrow= or also=";

/// Reads the name of the rule that a command is for.
fn rule_name(scan: &mut Scan<'_>) -> Result<At<Name>, RuleError> {
    let (at, word) = scan.word();
    if let Some(name) = Name::new(word) {
        return Ok((at, name));
    }
    let valid = word.bytes().all(Name::takes);
    if valid && word.len() > NAME_MAX {
        let expected = "a name of up to 15 characters";
        return Err(RuleError::new(Code::NameTooLong, at, expected));
    }
    Err(RuleError::invalid(
        at,
        "the name of a rule: letters, digits and '_'",
    ))
}

impl Pairs {
    /// Reads pairs up to the end of the command; of those that are repeated the last counts.
    fn parse(scan: &mut Scan<'_>) -> Result<Self, RuleError> {
        let mut pairs = Self::default();
        loop {
            let (at, word) = scan.word();
            if word.is_empty() {
                return Ok(pairs);
            }
            // A rate by its place is the form before there were pairs.
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
                "rank" => pairs.rank = Some(name_in(value_at, value)?),
                "realtime" => pairs.realtime = Some(realtime(value_at, value)?),
                "borrow" => pairs.borrow = Some(borrow(value_at, value)?),
                "also" => pairs.also = Some(also(value_at, value)?),
                _ => return Err(RuleError::invalid(at, PAIR)),
            }
        }
    }
}

/// The name of another rule inside a pair.
fn name_in(at: usize, text: &str) -> Result<At<Name>, RuleError> {
    let expected = "the name of a rule: 1 to 15 letters, digits and '_'";
    let name = Name::new(text).ok_or(RuleError::invalid(at, expected))?;
    Ok((at, name))
}

/// `realtime=` takes a number: 0 is off, all others are on.
fn realtime(at: usize, text: &str) -> Result<bool, RuleError> {
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    match text.parse::<u64>() {
        Ok(number) if digits => Ok(number > 0),
        _ => Err(RuleError::invalid(at, "a number; 0 is off, others are on")),
    }
}

/// `borrow=` takes 0 or 1.
fn borrow(at: usize, text: &str) -> Result<bool, RuleError> {
    match text {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err(RuleError::invalid(at, "0 or 1")),
    }
}

/// `also=` takes names joined by `+`, or nothing.
fn also(at: usize, text: &str) -> Result<[Option<At<Name>>; ALSO_MAX], RuleError> {
    let mut names = [None; ALSO_MAX];
    let mut slots = names.iter_mut();
    if text.is_empty() {
        return Ok(names);
    }
    let mut from = at;
    for text in text.split('+') {
        let slot = slots
            .next()
            .ok_or(RuleError::invalid(from, "three rules at most"))?;
        *slot = Some(name_in(from, text)?);
        from = from.saturating_add(text.len()).saturating_add(1);
    }
    Ok(names)
}
