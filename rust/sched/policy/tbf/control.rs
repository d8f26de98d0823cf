// SPDX-License-Identifier: GPL-2.0-only

//! Rules of a service: commands, display and statistics.
//!
//! A service keeps a rule list for each head while `tbf` is started there. A command creates new
//! rule lists for all heads that it addresses. Only then are the parts updated, so that the command
//! takes effect on all heads or on none.

use super::{
    params::Tunables,
    stats::{self, TbfRows},
    Config, TbfRowBuf, Update,
};
use crate::sched::{
    attr::Priority,
    count::Count,
    error::{Code, Error, Result},
    mem::{GrowingList, NoMemory, Shared},
    policy::{
        control::{
            addresses, show_error, ByHead, Host, Keep, RefusalReason, RunningPart, TextParameter,
        },
        Kind, ROWS,
    },
    report::Report,
    rules::{Name, RuleAction, RuleCommand, RuleError, RuleList},
    service::text::{head_word, TextHash},
    sort::sort_by,
    text::Heads,
};
use core::fmt::Write;

/// State that a service keeps for `tbf`.
#[derive(Clone)]
pub struct PolicyData {
    /// `None` if `tbf` is not started on the head.
    rule_lists: ByHead<Option<Shared<RuleList>>>,
    /// Error of the last command.
    error: Option<Error>,
    /// Generation of the rules that were compiled last.
    generation: u64,
}

impl PolicyData {
    /// Returns the rules of the head of `priority`.
    pub fn rule_list(&self, priority: Priority) -> Option<&Shared<RuleList>> {
        let [regular, high] = &self.rule_lists;
        match priority {
            Priority::Regular => regular,
            Priority::High => high,
        }
        .as_ref()
    }

    /// Returns the rules of the first head in `heads` that has a rule named `name`.
    pub fn rule_list_with(&self, name: &Name, heads: Heads) -> Option<Shared<RuleList>> {
        let mut priorities = Priority::ALL.into_iter();
        priorities.find_map(|priority| {
            let rule_list = self.rule_list(priority)?;
            (addresses(heads, priority) && rule_list.get(name).is_some()).then(|| rule_list.clone())
        })
    }

    /// Executes `command`, on all heads that it addresses or on none.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: a start, but `tbf` is not started on the head.
    /// - `ENODEV`: a change or stop, but `tbf` is not started on the head.
    /// - The errors of [`RuleList::apply`].
    fn apply(&mut self, command: &RuleCommand<'_>) -> core::result::Result<(), RuleError> {
        let is_started = self.rule_lists.each_ref().map(Option::is_some);
        for (priority, place) in Priority::ALL.into_iter().zip(&mut self.rule_lists) {
            if !addresses(command.heads, priority) {
                continue;
            }
            let Some(rule_list) = place else {
                // Without a prefix, a head with another policy is skipped if `tbf` is started on
                // the other head.
                if matches!(command.heads, Heads::All) && is_started.contains(&true) {
                    continue;
                }
                let code = match command.action {
                    RuleAction::Start(..) => Code::Invalid,
                    _ => Code::NoDevice,
                };
                return Err(RuleError::anywhere(code, "tbf is not started on the head"));
            };
            let new = rule_list.apply(command)?;
            *place = Some(Shared::new(new).map_err(|_| RuleError::no_memory())?);
        }
        Ok(())
    }
}

impl Keep<Config> for PolicyData {
    fn empty() -> core::result::Result<Self, NoMemory> {
        Ok(Self {
            rule_lists: [None, None],
            error: None,
            generation: 0,
        })
    }

    /// Keeps the rules of heads whose type is unchanged.
    fn sync(
        &mut self,
        old: &ByHead<Option<Config>>,
        new: &ByHead<Option<Config>>,
    ) -> core::result::Result<(), NoMemory> {
        for (place, (old, new)) in self.rule_lists.iter_mut().zip(old.iter().zip(new)) {
            let Some(config) = new else {
                *place = None;
                continue;
            };
            let same = old.is_some_and(|old| old.fields() == config.fields());
            match place {
                Some(_) if same && old == new => {}
                Some(rule_list) if same => {
                    let max = config.tunables.rules_max.get();
                    let new = rule_list.with_defaults(config.default_rate()?, max)?;
                    *place = Some(Shared::new(new)?);
                }
                _ => *place = Some(Shared::new(config.rule_list()?)?),
            }
        }
        Ok(())
    }

    /// Rules that are equal to old ones keep their identifiers, and so their classes.
    fn resume(
        &mut self,
        old: &Self,
        _before: &ByHead<Option<Config>>,
        _after: &ByHead<Option<Config>>,
    ) -> core::result::Result<(), NoMemory> {
        self.generation = old.generation;
        for (place, old) in self.rule_lists.iter_mut().zip(&old.rule_lists) {
            if let (Some(new), Some(old)) = (&place, old) {
                *place = match new.resumed(old)? {
                    Some(new) => Some(Shared::new(new)?),
                    None => Some(old.clone()),
                };
            }
        }
        Ok(())
    }

    fn write_commands(&self, out: &mut dyn Write) -> core::fmt::Result {
        let hash = |list: &RuleList| TextHash::of(|out| list.write_commands("", out));
        match &self.rule_lists {
            [Some(one), Some(other)] if hash(one) == hash(other) => one.write_commands("", out),
            lists => {
                let lists = lists.iter().zip(Priority::ALL);
                lists
                    .filter_map(|(list, priority)| Some((list.as_ref()?, head_word(priority))))
                    .try_for_each(|(list, head)| list.write_commands(head, out))
            }
        }
    }

    fn check(&self, tunables: &Tunables) -> Result {
        let max = tunables.rules_max.get();
        match self
            .rule_lists
            .iter()
            .flatten()
            .all(|rule_list| rule_list.fits(max))
        {
            true => Ok(()),
            false => Err(Error::new(
                Code::Busy,
                "nrs_tbf_rules_max is below the number of rules of a head (stop rules first)",
            )),
        }
    }

    fn update(
        &mut self,
        config: &Config,
        _tunables: &Tunables,
        priority: Priority,
    ) -> core::result::Result<Option<Update>, NoMemory> {
        self.generation = self.generation.wrapping_add(1);
        let Some(rule_list) = self.rule_list(priority) else {
            return Ok(None);
        };
        let set = Shared::new(rule_list.compile(self.generation)?)?;
        Update::new(set, config).map(Some)
    }

    fn is_news(
        &self,
        _config: &Config,
        _tunables: &Tunables,
        old: &Self,
        _old_tunables: &Tunables,
        priority: Priority,
    ) -> bool {
        match (self.rule_list(priority), old.rule_list(priority)) {
            (Some(new), Some(old)) => !new.ptr_eq(old),
            _ => false,
        }
    }

    fn texts<H: Host + 'static>() -> &'static [TextParameter<H>] {
        const {
            &[
                TextParameter::both("nrs_tbf_rule", show_rules, command),
                TextParameter::read("nrs_tbf_rule_error", |host, out| {
                    show_error(out, host.parameters().kept.tbf.error)
                }),
                TextParameter::report("nrs_tbf_stats", report),
                TextParameter::write("nrs_tbf_stats_reset", |host, _| {
                    host.reset(Kind::Tbf);
                    Ok(())
                }),
            ]
        }
    }
}

/// Executes a command for rules, and stores its error.
///
/// # Errors
///
/// - `EINVAL`: malformed, or a start where `tbf` is not started.
/// - `ENODEV`: a change or stop where `tbf` is not started.
/// - The errors of [`RuleList::apply`].
pub fn command<H: Host>(host: &H, text: &str) -> core::result::Result<(), H::Refusal> {
    let mut error = None;
    let done = host.change(|parameters| {
        let kept = &mut parameters.kept.tbf;
        let applied = RuleCommand::parse(text).and_then(|command| kept.apply(&command));
        kept.error = None;
        applied.map_err(|refused| *error.insert(Error::from(refused)))
    });
    done.inspect_err(|refusal| {
        // A refusal without a reason is due to memory.
        let error = error.or(refusal.reason()).unwrap_or(NoMemory.into());
        host.update_policy_data(|kept| kept.tbf.error = Some(error));
    })
}

/// Number of references to each rule, by identifier.
struct RuleRefs(GrowingList<(u32, u64)>);

impl RuleRefs {
    fn of(rule_list: &RuleList) -> Result<Self> {
        let mut refs = GrowingList::with_capacity(rule_list.len())?;
        for rule in rule_list.rules() {
            refs.push((rule.id, 0))?;
        }
        sort_by(refs.as_mut_slice(), |a: &(u32, u64), b: &(u32, u64)| {
            a.0.cmp(&b.0)
        });
        Ok(Self(refs))
    }

    fn index(&self, id: u32) -> Option<usize> {
        let refs = self.0.as_slice();
        refs.binary_search_by_key(&id, |(id, _)| *id).ok()
    }

    fn count(&mut self, id: u32) {
        let index = self.index(id);
        if let Some((_, count)) = index.and_then(|index| self.0.as_mut_slice().get_mut(index)) {
            count.count(1);
        }
    }

    fn get(&self, id: u32) -> u64 {
        let index = self.index(id);
        let found = index.and_then(|index| self.0.as_slice().get(index));
        found.map_or(0, |(_, count)| *count)
    }

    /// Resets the numbers.
    fn clear(&mut self) {
        self.0
            .as_mut_slice()
            .iter_mut()
            .for_each(|(_, count)| *count = 0);
    }
}

/// Returns true if `part` runs on the head of `priority` in a partition of `cpt`.
fn is_at(part: &impl RunningPart, cpt: u16, priority: Priority) -> bool {
    part.cpt() == cpt && part.priority() == priority
}

/// Shows the rules of each head and CPT, in order.
fn show_rules<H: Host>(host: &H, out: &mut dyn Write) -> core::result::Result<(), H::Refusal> {
    let kept = host.parameters().kept.tbf;
    if kept.rule_lists.iter().all(Option::is_none) {
        return Err(Error::new(Code::NoDevice, "tbf is not started").into());
    }
    for priority in Priority::ALL {
        let section = match priority {
            Priority::Regular => "regular_requests:",
            Priority::High => "high_priority_requests:",
        };
        writeln!(out, "{section}").map_err(Error::from)?;
        let Some(rule_list) = kept.rule_list(priority) else {
            continue;
        };
        let mut refs = RuleRefs::of(rule_list)?;
        for cpt in 0..host.cpts() {
            refs.clear();
            let here = |part: &_| is_at(part, cpt, priority);
            for part in host.running().filter(here) {
                let mut from = Some(0);
                while let Some(idx) = from {
                    from = part.with(|part| {
                        let part = part.tbf()?;
                        part.refs(idx, ROWS as u32, |id| refs.count(id))
                    });
                }
            }
            writeln!(out, "CPT {cpt}:").map_err(Error::from)?;
            rule_list
                .write(&mut &mut *out, |id| refs.get(id))
                .map_err(Error::from)?;
        }
    }
    Ok(())
}

fn report<H: Host>(host: &H, out: &mut Report<'_>) -> core::result::Result<(), H::Refusal> {
    let (mut rows, mut buf) = (TbfRows::new(), TbfRowBuf::new().map_err(Error::from)?);
    let now = host.now();
    for part in host.running() {
        let mut from = Some(0);
        while let Some(idx) = from {
            buf.clear();
            from = part.with(|part| part.tbf()?.rows(idx, now, &mut buf));
            let high = part.priority() == Priority::High;
            rows.extend(buf.as_slice(), high).map_err(Error::from)?;
        }
    }
    rows.merge();
    let sums = rows.sums().map_err(Error::from)?;
    Ok(stats::report(out, rows.as_slice(), sums.as_slice()).map_err(Error::from)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::policy::{tbf::params::RulesMax, Configuration};

    fn tunables(rules_max: u32) -> Tunables {
        Tunables {
            rules_max: RulesMax::new(rules_max).unwrap(),
            ..Tunables::default()
        }
    }

    /// Rejects a limit below the number of rules, so that a restart and saved rules have room for
    /// all of them.
    #[test]
    fn rules_that_exist_have_room() {
        let mut kept = <PolicyData as Keep<Config>>::empty().unwrap();
        let config = Config::parse(Some("uid"), &tunables(5)).unwrap();
        kept.sync(&[None; 2], &[Some(config), None]).unwrap();
        for name in ["a", "b"] {
            let text = format!("start {name} uid={{1}} rate=5");
            kept.apply(&RuleCommand::parse(&text).unwrap()).unwrap();
        }
        let refused = kept.check(&tunables(1)).unwrap_err();
        assert_eq!(refused.code, Code::Busy);
        assert!(kept.check(&tunables(2)).is_ok());
        kept.apply(&RuleCommand::parse("stop a").unwrap()).unwrap();
        assert!(kept.check(&tunables(1)).is_ok());
    }
}
