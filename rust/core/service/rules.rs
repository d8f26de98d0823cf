// SPDX-License-Identifier: GPL-2.0-only

//! The rules of `tbf`: commands for them, what they are, what they did.
//!
//! A service keeps one book of rules per head, for as long as `tbf` is started there. A command makes new
//! books of all heads that it is for and compiles them; only then they are handed to the partitions, so that
//! it takes effect everywhere or nowhere.

use core::fmt::Write;

use kernel::{prelude::*, sync::Arc};

use super::{
    config::{addresses, Settings},
    Service,
};
use crate::{
    core::{partition::Partition, refused},
    sched::{
        attr::Priority,
        error,
        mem::Shared,
        policy::{
            tbf::{self, RowBuf, Update},
            AnyUpdate, Config, Part, ROWS,
        },
        rules::{Action, Book, Command, Name, RuleError},
        text::Heads,
    },
    sys::{misc, timer::Timed},
};

/// The rules of each head, regular first; none where `tbf` is not started.
pub(super) type Books = [Option<Arc<Book>>; 2];

/// How often each rule is referred to, by identifier.
struct Refs(KVec<(u32, u64)>);

impl Refs {
    fn of(book: &Book) -> Result<Self> {
        let mut refs = KVec::with_capacity(book.len(), GFP_KERNEL)?;
        for rule in book.rules() {
            refs.push((rule.id(), 0), GFP_KERNEL)?;
        }
        crate::sched::sort::sort_by(&mut refs, |a: &(u32, u64), b: &(u32, u64)| a.0.cmp(&b.0));
        Ok(Self(refs))
    }

    fn at(&mut self, id: u32) -> Option<&mut u64> {
        let index = self.0.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        self.0.get_mut(index).map(|(_, count)| count)
    }

    fn get(&self, id: u32) -> u64 {
        let index = self.0.binary_search_by_key(&id, |(id, _)| *id).ok();
        index
            .and_then(|index| self.0.get(index))
            .map_or(0, |(_, count)| *count)
    }

    /// Forgets what was counted.
    fn clear(&mut self) {
        self.0.iter_mut().for_each(|(_, count)| *count = 0);
    }

    /// Counts the classes of `partition`, too.
    fn count(&mut self, partition: &Timed<Partition>, priority: Priority) {
        partition.sweep(|inner, from| {
            let part = inner.head(priority).primary_mut()?.tbf()?;
            part.refs(from, ROWS as u32, |id| {
                if let Some(count) = self.at(id) {
                    *count = count.saturating_add(1);
                }
            })
        });
    }
}

/// What a rule file shows above the lines of a head.
fn section(priority: Priority) -> &'static str {
    match priority {
        Priority::Regular => "regular_requests:",
        Priority::High => "high_priority_requests:",
    }
}

/// The configuration of `tbf` if that is what `config` starts.
pub(super) fn tbf_of(config: &Option<Config>) -> Option<&tbf::Config> {
    match config {
        Some(Config::Tbf(config)) => Some(config),
        _ => None,
    }
}

/// The books after a change of the primaries from `old` to `new`: those of heads whose type stays are kept.
///
/// # Errors
///
/// `ENOMEM`.
pub(super) fn carry_over(
    books: &Books,
    old: &[Option<Config>; 2],
    new: &[Option<Config>; 2],
) -> Result<Books> {
    let mut kept = [const { None }; 2];
    let heads = books.iter().zip(old.iter().zip(new));
    for (place, (book, (old, new))) in kept.iter_mut().zip(heads) {
        let Some(config) = tbf_of(new) else {
            continue;
        };
        let same = tbf_of(old).is_some_and(|old| old.fields() == config.fields());
        *place = match book {
            Some(book) if same && old == new => Some(book.clone()),
            Some(book) if same => {
                let rate = config.default_rate().map_err(|_| ENOMEM)?;
                let max = config.tunables().rules_max.get();
                let book = book.with_defaults(rate, max).map_err(|_| ENOMEM)?;
                Some(Arc::new(book, GFP_KERNEL)?)
            }
            _ => Some(Arc::new(config.book().map_err(|_| ENOMEM)?, GFP_KERNEL)?),
        };
    }
    Ok(kept)
}

impl Settings {
    /// The rules of `book` for parts that were started with `config`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn update_of(&mut self, book: &Book, config: &tbf::Config) -> Result<AnyUpdate> {
        self.generation = self.generation.wrapping_add(1);
        let set = book.compile(self.generation).map_err(|_| ENOMEM)?;
        let set = Shared::new(set).map_err(|_| ENOMEM)?;
        let update = Update::new(set, config).map_err(|_| ENOMEM)?;
        Ok(AnyUpdate::Tbf(update))
    }
}

impl Service {
    /// Carries out a write to `nrs_tbf_rule`, on all heads that it is for or on none.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: malformed; a start where `tbf` is not started.
    /// - `ENODEV`: a change or stop where `tbf` is not started.
    /// - What [`Book::apply`] refuses.
    ///
    /// Nothing is changed then; why is kept for [`Service::write_rule_error`].
    pub(crate) fn command_rules(&self, text: &str) -> refused::Result {
        let mut settings = self.settings.lock();
        let applied = self.apply_rules(&mut settings, text);
        applied.inspect_err(|error| settings.rule_error = Some(*error))?;
        drop(settings);
        self.refresh_parts();
        self.partitions.run_all();
        Ok(())
    }

    fn apply_rules(&self, settings: &mut Settings, text: &str) -> Result<(), RuleError> {
        let command = Command::parse(text)?;
        let not_started = |at| match command.action {
            Action::Start(..) => RuleError::invalid(at, "tbf to be started on the head"),
            _ => RuleError::new(error::Code::NoDevice, at, "tbf to be started on the head"),
        };
        let mut changed: [Option<(Arc<Book>, AnyUpdate)>; 2] = [const { None }; 2];
        for (index, priority) in Priority::ALL.into_iter().enumerate() {
            if !addresses(command.heads, priority) {
                continue;
            }
            let primary = settings.primary(index);
            let (Some(config), Some(book)) = (tbf_of(&primary), settings.book(index)) else {
                // Without a prefix, a head that does other things is left alone if the other one limits.
                let other = settings.book(index ^ 1).is_some();
                if matches!(command.heads, Heads::All) && other {
                    continue;
                }
                return Err(not_started(0));
            };
            let book = book.apply(&command)?;
            let book = Arc::new(book, GFP_KERNEL).map_err(|_| RuleError::no_memory())?;
            let update = settings.update_of(&book, config);
            let update = update.map_err(|_| RuleError::no_memory())?;
            if let Some(place) = changed.get_mut(index) {
                *place = Some((book, update));
            }
        }
        // From here on nothing fails.
        for (index, (priority, change)) in Priority::ALL.into_iter().zip(changed).enumerate() {
            let Some((book, update)) = change else {
                continue;
            };
            self.hand_over(priority, &update);
            settings.set_book(index, Some(book));
        }
        settings.rule_error = None;
        Ok(())
    }

    /// Hands `update` to the primaries of `priority`, if it is one for them.
    pub(super) fn hand_over(&self, priority: Priority, update: &AnyUpdate) {
        for partition in self.partitions.iter() {
            let now = misc::now();
            let update = update.clone();
            let old = partition.with(|inner| match inner.head(priority).primary_mut() {
                Some(part) => part.update(update, now),
                None => update,
            });
            // Dropped without the lock.
            drop(old);
        }
    }

    /// Has all classes follow what was handed over last.
    pub(super) fn refresh_parts(&self) {
        self.partitions
            .each_part(|part, from| part.refresh(from, ROWS as u32, misc::now()));
    }

    /// The rules of the first head of `heads` that has one named `name`.
    pub(crate) fn book_with(&self, name: &Name, heads: Heads) -> Option<Arc<Book>> {
        let settings = self.settings.lock();
        let mut indices = Priority::ALL.into_iter().enumerate();
        indices.find_map(|(index, priority)| {
            let book = settings.book(index)?;
            (addresses(heads, priority) && book.get(name).is_some()).then(|| book.clone())
        })
    }

    /// Writes `nrs_tbf_rule`: the rules of each head and partition, in order.
    ///
    /// # Errors
    ///
    /// `ENODEV`: `tbf` is started on no head; `ENOMEM`; `ENOSPC`: what `out` cannot take.
    pub(crate) fn write_rules(&self, out: &mut dyn Write) -> Result {
        let books = self.settings.lock().books.clone();
        if books.iter().all(Option::is_none) {
            return Err(ENODEV);
        }
        for (priority, book) in Priority::ALL.into_iter().zip(&books) {
            writeln!(out, "{}", section(priority)).map_err(|_| ENOSPC)?;
            let Some(book) = book else {
                continue;
            };
            let mut refs = Refs::of(book)?;
            for cpt in 0..self.count {
                refs.clear();
                for partition in self.partitions.lanes().filter_map(|lanes| lanes.at(cpt)) {
                    refs.count(partition, priority);
                }
                writeln!(out, "CPT {cpt}:").map_err(|_| ENOSPC)?;
                book.write(&mut &mut *out, |id| refs.get(id))
                    .map_err(|_| ENOSPC)?;
            }
        }
        Ok(())
    }

    /// Writes why the last command was refused, nothing if it was not.
    ///
    /// # Errors
    ///
    /// `ENOSPC`: what `out` cannot take.
    pub(crate) fn write_rule_error(&self, out: &mut dyn Write) -> Result {
        match self.settings.lock().rule_error {
            Some(error) => writeln!(out, "{error}").map_err(|_| ENOSPC),
            None => Ok(()),
        }
    }

    /// Writes the statistics of `tbf`, YAML.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `ENOSPC`: what `out` cannot take.
    pub(crate) fn write_tbf_stats(&self, out: &mut dyn Write) -> Result {
        let mut rows = tbf::stats::Rows::new();
        let mut buf = RowBuf::new().map_err(|_| ENOMEM)?;
        for partition in self.partitions.iter() {
            for priority in Priority::ALL {
                partition.walk(
                    &mut buf,
                    |buf, inner, from| {
                        buf.clear();
                        let part = inner.head(priority).primary_mut()?;
                        part.tbf()?.rows(from, buf)
                    },
                    |buf| {
                        rows.extend(buf.as_slice(), priority == Priority::High)
                            .map_err(|_| ENOMEM)
                    },
                )?;
            }
        }
        rows.merge();
        let sums = rows.sums().map_err(|_| ENOMEM)?;
        tbf::stats::write_yaml(&mut &mut *out, rows.as_slice(), sums.as_slice()).map_err(|_| ENOSPC)
    }
}
