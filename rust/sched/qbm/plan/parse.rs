// SPDX-License-Identifier: GPL-2.0-only

//! Parser of plans.

use super::{
    byte,
    entries::PlanGroup,
    invalid, refused,
    settings::{is_setting, EntitlementSpec, GroupSettings, TWICE},
    tune, By, Plan, TEXT_MAX,
};
use crate::sched::{
    error::{Code, Error},
    rules::{is_blank, Scanner},
};

/// Strips the comment from `line`: a `#` at the start of a word, and the rest of the line.
fn without_comment(line: &str) -> &str {
    let mut before = b' ';
    for (at, byte) in line.bytes().enumerate() {
        if byte == b'#' && matches!(before, b' ' | b'\t' | b';') {
            return line.get(..at).unwrap_or_default();
        }
        before = byte;
    }
    line
}

/// Offset in the line, and word.
type PlanWord<'a> = (usize, &'a str);

impl Plan {
    /// Parses a plan; see [`crate::sched::qbm::plan`] for the grammar. May sleep.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: a syntax error, a non-printable character, or numbers that are out of range or
    ///   inconsistent.
    /// - `ENOENT`: a group that no earlier line defines.
    /// - `EEXIST`: a duplicate group, target or client.
    /// - `ENAMETOOLONG`: a name that is too long.
    /// - `ENOSPC`: more than [`TEXT_MAX`] bytes, or too many groups, client lines or address
    ///   ranges.
    /// - `ENOMEM`: no memory.
    pub fn parse(text: &str) -> Result<Self, Error> {
        if text.len() > TEXT_MAX {
            let reason = "plan is too long (limit: 262144 bytes)";
            return Err(Error::new(Code::NoSpace, reason));
        }
        let mut read = PlanParser {
            plan: Self::none(),
            line: 0,
            from: 0,
            words: Scanner::part(""),
            has_by: false,
            has_default: false,
            tuned: 0,
            tuned_line: 0,
        };
        let one_line = !text.trim_end().contains('\n');
        for (line, content) in (1u32..).zip(text.split('\n')) {
            let content = content.strip_suffix('\r').unwrap_or(content);
            let mut next = 0usize;
            for (place, statement) in (1u32..).zip(without_comment(content).split(';')) {
                let from = next;
                next = from.saturating_add(statement.len()).saturating_add(1);
                // If statements count as lines, columns count from the start of the statement.
                let (line, from) = if one_line { (place, 0) } else { (line, from) };
                (read.line, read.from) = (line, from);
                let printable = |b: u8| b.is_ascii_graphic() || is_blank(b);
                if let Some(at) = statement.bytes().position(|byte| !printable(byte)) {
                    let at = from.saturating_add(at);
                    return Err(read.wrong(at, "unprintable character"));
                }
                read.words = Scanner::part(statement);
                read.statement()?;
            }
        }
        if let Some(reason) = tune::wrong(&read.plan.tuning) {
            return Err(invalid(read.tuned_line, reason));
        }
        read.plan.check()
    }
}

/// Parser state.
struct PlanParser<'a> {
    plan: Plan,
    /// Current line number.
    line: u32,
    /// Offset of the statement in the line.
    from: usize,
    /// Rest of the statement.
    words: Scanner<'a>,
    has_by: bool,
    has_default: bool,
    /// Bits of the parameters that `tune` has set.
    tuned: u32,
    /// Last line number with `tune`.
    tuned_line: u32,
}

impl<'a> PlanParser<'a> {
    /// Consumes the next word.
    fn word(&mut self) -> Option<PlanWord<'a>> {
        let (at, word) = self.words.word();
        (!word.is_empty()).then_some((self.from.saturating_add(at), word))
    }

    /// Creates an `EINVAL` error for the whole line.
    const fn invalid(&self, reason: &'static str) -> Error {
        invalid(self.line, reason)
    }

    /// Creates an `EINVAL` error at offset `at` of the line.
    fn wrong(&self, at: usize, reason: &'static str) -> Error {
        self.invalid(reason).at(byte(self.line, at))
    }

    fn statement(&mut self) -> Result<(), Error> {
        match self.word() {
            None => Ok(()),
            Some((_, "by")) => self.by(),
            Some((_, "tune")) => self.tune(),
            Some((_, "default")) => self.default(),
            Some((_, "group")) => self.group(),
            Some((_, "client")) => self.client(),
            Some((at, _)) => Err(self.wrong(at, "expected by, tune, default, group or client")),
        }
    }

    fn by(&mut self) -> Result<(), Error> {
        if self.has_by {
            return Err(self.invalid("duplicate line by"));
        }
        if !self.plan.clients.as_slice().is_empty() {
            return Err(self.invalid("by must precede all clients"));
        }
        let by = match self.word() {
            Some((at, word)) => By::parse(word).map_err(|error| self.wrong(at, error.reason)),
            None => By::parse("").map_err(|error| self.invalid(error.reason)),
        };
        self.plan.by = by?;
        self.has_by = true;
        match self.word() {
            None => Ok(()),
            Some((at, _)) => Err(self.wrong(at, "expected the end of the line")),
        }
    }

    fn tune(&mut self) -> Result<(), Error> {
        let mut none = true;
        while let Some(word) = self.word() {
            let (name, value) = self.pair(word)?;
            let (key, bit) = tune::TuningKey::parse(name).ok_or(self.wrong(
                word.0,
                "unknown parameter (parameters: \
                 period fast slow idle floor grant sleep high low raise lower headroom)",
            ))?;
            if self.tuned & bit != 0 {
                return Err(self.wrong(word.0, TWICE));
            }
            self.tuned |= bit;
            let set = key.set(&mut self.plan.tuning, value);
            set.map_err(|reason| self.wrong(word.0, reason))?;
            none = false;
        }
        self.tuned_line = self.line;
        if none {
            return Err(self.invalid("tune has no parameters"));
        }
        Ok(())
    }

    fn default(&mut self) -> Result<(), Error> {
        if self.has_default {
            return Err(self.invalid("duplicate line default"));
        }
        let mut defaults = EntitlementSpec::NONE;
        while let Some(word) = self.word() {
            self.set(word, |name, value| defaults.set(name, value))?;
        }
        if defaults == EntitlementSpec::NONE {
            return Err(self.invalid("default has no settings"));
        }
        self.has_default = true;
        self.plan.defaults = defaults;
        self.plan.defaults_line = self.line;
        Ok(())
    }

    fn group(&mut self) -> Result<(), Error> {
        let (_, name) = self.name("the group's name is missing")?;
        let mut settings = GroupSettings::default();
        while let Some(word) = self.word() {
            self.set(word, |name, value| settings.set(name, value))?;
        }
        // The default strategy is not stored, so that [`Plan::write`] omits it.
        settings.mover = settings.mover.filter(|mover| *mover);
        self.plan
            .add_group(PlanGroup::new(name, settings, self.line)?)
    }

    fn client(&mut self) -> Result<(), Error> {
        let name = self.name("the client's name is missing")?;
        let (mut promise, mut group) = (EntitlementSpec::NONE, None);
        while let Some((at, word)) = self.word() {
            let Some(wanted) = word.strip_prefix("group=") else {
                self.set((at, word), |name, value| promise.set(name, value))?;
                continue;
            };
            if group.is_some() {
                return Err(self.wrong(at, TWICE));
            }
            let reason = "no earlier line defines this group";
            let missing = refused(self.line, Code::NoEntry, reason).at(byte(self.line, at));
            group = Some(self.plan.group_named(wanted).ok_or(missing)?);
        }
        self.plan.add_client(name, group, promise, self.line)
    }

    /// Consumes the first word after `group` or `client`, the name.
    fn name(&mut self, missing: &'static str) -> Result<PlanWord<'a>, Error> {
        let word = self.word().ok_or(self.invalid(missing))?;
        // A `NAME=VALUE` pair here means that the name is missing.
        match word.1.split_once('=') {
            Some((key, _)) if is_setting(key) => Err(self.invalid(missing)),
            _ => Ok(word),
        }
    }

    /// Splits `NAME=VALUE`.
    fn pair<'w>(&self, (at, word): PlanWord<'w>) -> Result<(&'w str, &'w str), Error> {
        match word.split_once('=') {
            None => Err(self.wrong(at, "expected NAME=VALUE")),
            Some((_, "")) => Err(self.wrong(at, "no value after '='")),
            Some(pair) => Ok(pair),
        }
    }

    /// Splits `word` and passes name and value to `set`.
    fn set(
        &self,
        word: PlanWord<'_>,
        set: impl FnOnce(&str, &str) -> Result<(), &'static str>,
    ) -> Result<(), Error> {
        let (name, value) = self.pair(word)?;
        set(name, value).map_err(|reason| self.wrong(word.0, reason))
    }
}
