// SPDX-License-Identifier: GPL-2.0-only

//! Rules of `tbf` created by an administrator: `nrs/SERVICE/rules/NAME/` in configfs.
//!
//! | attribute | holds |
//! |---|---|
//! | `match` | conditions; `EBUSY` while the rule is started |
//! | `head` | `reg`, `hp` or `all`; `EBUSY` while the rule is started |
//! | `rate` | rate of a class; empty: `nrs_tbf_rate` |
//! | `minrate` | guaranteed minimum of a class; `0`: none |
//! | `burst` | credit of an idle class; `0`: `nrs_tbf_depth` |
//! | `rank` | rule that this rule precedes; empty: first of all rules |
//! | `realtime`, `borrow` | `0` or `1` |
//! | `also` | names, joined by `+`, of further rules whose limits apply |
//! | `enabled` | `0` or `1`, see below |
//!
//! # Terms
//!
//! - *Draft*: the values written to a directory ([`RuleDraft`]), used to start the rule.
//! - *Started*: a rule in `nrs_tbf_rule` has the name of the directory, on a head of `head`. The
//!   directory shows and changes this rule, even if the rule was started another way.
//!
//! ```text
//!            ┌────────── tbf or the rule is stopped by other means ──────────┐
//!            ▼                                                               │
//!  mkdir ─▶ draft, enabled 0 ─────── 1 to enabled: "start" ────────▶ started, enabled 1
//!            │       ▲                                               │       │ values: "change"
//!            │       └─────────────── 0 to enabled: "stop" ──────────┘       │
//!            ▼                                                               │
//!          rmdir ◀───────────────────────── "stop" ──────────────────────────┘
//! ```
//!
//! Each change is executed as a command ([`command`]), so it fails for the same reasons. A failure
//! changes neither the rules nor the draft.

use core::fmt::{self, Write as _};

use kernel::{
    configfs::{AttributeOperations, Group, GroupOperations},
    new_mutex,
    page::PAGE_SIZE,
    prelude::*,
    str::CString,
    sync::{Arc, Mutex},
};

use super::{line, text_of, DirectoryService};
use crate::{
    engine::{refusal::RefusedError, service::Service},
    sched::{
        error,
        mem::Shared,
        policy::{control::Host, tbf::control::command},
        rules::{
            Name, RuleAction, RuleCommand, RuleError, RuleList, RulePairs, ALSO_MAX, COMMAND_MAX,
            NAME_MAX,
        },
        text::Heads,
    },
    sys::{
        misc::WithoutIo,
        series::{configfs_attributes, ENAMETOOLONG},
    },
};

/// Maximum bytes of the conditions: the rest of a command needs fewer than 256.
const MATCH_MAX: usize = COMMAND_MAX - 256;

/// Directory `rules` of a service.
#[pin_data]
pub(crate) struct Rules {
    place: Arc<DirectoryService>,
}

/// Creates the directory `rules` for the service of `place`.
pub(super) fn group(place: Arc<DirectoryService>) -> Result<impl PinInit<Group<Rules>, Error>> {
    let item_type = configfs_attributes! {
        container: Group<Rules>,
        data: Rules,
        child: RuleDirectory,
        attributes: [],
    };
    let path = c"rules".try_into()?;
    Ok(Group::new(path, item_type, try_pin_init!(Rules { place })))
}

#[vtable]
impl GroupOperations for Rules {
    type Child = RuleDirectory;

    fn make_group(&self, name: &CStr) -> Result<impl PinInit<Group<RuleDirectory>, Error>> {
        let item_type = configfs_attributes! {
            container: Group<RuleDirectory>,
            data: RuleDirectory,
            attributes: [
                match: 0,
                head: 1,
                rate: 2,
                minrate: 3,
                burst: 9,
                rank: 4,
                realtime: 5,
                borrow: 6,
                also: 7,
                enabled: 8,
            ],
        };
        // As for the directory of a service.
        let scope = WithoutIo::begin();
        let path = name.try_into()?;
        let name = rule_name(name)?;
        let started = rules_with(&self.place.service(), &name, Heads::All);
        if name == Name::DEFAULT || started.is_some() {
            return Err(EEXIST);
        }
        let place = self.place.clone();
        let rule = try_pin_init!(RuleDirectory {
            name,
            place,
            draft <- new_mutex!(RuleDraft::new()?, "nrs_rule"),
        }? Error);
        Ok(scope.around(Group::new(path, item_type, rule)))
    }
}

/// Returns the name of the rule of a directory.
///
/// # Errors
///
/// - `ENAMETOOLONG`: the name has more than [`NAME_MAX`] characters.
/// - `EINVAL`: the name has other characters than letters, digits and `_`.
fn rule_name(name: &CStr) -> Result<Name> {
    let text = name.to_str().map_err(|_| EINVAL)?;
    Name::new(text).ok_or_else(|| {
        if text.len() > NAME_MAX && text.bytes().all(Name::takes) {
            ENAMETOOLONG
        } else {
            EINVAL
        }
    })
}

/// Returns the rules of the first head of `heads` that has a rule called `name`.
fn rules_with(service: &Service, name: &Name, heads: Heads) -> Option<Shared<RuleList>> {
    service.parameters().kept.tbf.rule_list_with(name, heads)
}

/// Returns the errno of a syntax error, and logs the reason for `service` to the kernel log.
fn refused(service: &Service) -> impl Fn(RuleError) -> Error + '_ {
    |error| RefusedError::from(error::Error::from(error)).report(service.name())
}

/// Value that is set as `KEY=VALUE` in a command: a field of [`RulePairs`].
struct PairKey {
    name: &'static str,
    /// Returns true if the value is set.
    is_in: fn(&RulePairs) -> bool,
    /// Copies the value from the second to the first argument.
    copy: fn(&mut RulePairs, &RulePairs),
    /// Writes the value as in a command; the default if the value is not set.
    show: fn(&RulePairs, &mut fmt::Formatter<'_>) -> fmt::Result,
}

/// Defines keys and their attributes: number of the attribute, field of [`RulePairs`], formatter.
macro_rules! keys {
    ($($KEY:ident, $id:literal, $field:ident: $show:expr;)+) => {
        $(
            static $KEY: PairKey = PairKey {
                name: stringify!($field),
                is_in: |pairs| pairs.$field.is_some(),
                copy: |to, from| to.$field = from.$field,
                show: $show,
            };

            #[vtable]
            impl AttributeOperations<$id> for RuleDirectory {
                type Data = RuleDirectory;

                fn show(this: &RuleDirectory, page: &mut [u8; PAGE_SIZE]) -> Result<usize> {
                    this.show_pair(&$KEY, page)
                }

                fn store(this: &RuleDirectory, page: &[u8]) -> Result {
                    this.store_pair(&$KEY, page)
                }
            }
        )+

        /// All keys, in the order of a command.
        static KEYS: [&PairKey; 7] = [$(&$KEY),+];
    };
}

keys! {
    RATE, 2, rate: |pairs, f| match pairs.rate {
        Some((_, rate)) => write!(f, "{rate}"),
        None => Ok(()),
    };
    MINRATE, 3, minrate: |pairs, f| match pairs.minrate {
        Some((_, Some(rate))) => write!(f, "{rate}"),
        _ => f.write_char('0'),
    };
    BURST, 9, burst: |pairs, f| match pairs.burst {
        Some((_, Some(burst))) => write!(f, "{burst}"),
        _ => f.write_char('0'),
    };
    RANK, 4, rank: |pairs, f| match pairs.rank {
        Some((_, name)) => write!(f, "{name}"),
        None => Ok(()),
    };
    REALTIME, 5, realtime: |pairs, f| write!(f, "{}", u8::from(pairs.realtime == Some(true)));
    BORROW, 6, borrow: |pairs, f| write!(f, "{}", u8::from(pairs.borrow == Some(true)));
    ALSO, 7, also: |pairs, f| {
        let names = pairs.also.iter().flatten().flatten();
        for (index, (_, name)) in names.enumerate() {
            let joint = if index > 0 { "+" } else { "" };
            write!(f, "{joint}{name}")?;
        }
        Ok(())
    };
}

/// Value of a key, formatted as in a command.
struct PairValue<'a>(&'a RulePairs, &'a PairKey);

impl fmt::Display for PairValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(pairs, key) = self;
        (key.show)(pairs, f)
    }
}

/// All pairs that are set, with a blank before each.
struct WrittenPairs<'a>(&'a RulePairs);

impl fmt::Display for WrittenPairs<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut keys = KEYS.into_iter().filter(|key| (key.is_in)(self.0));
        keys.try_for_each(|key| write!(f, " {}={}", key.name, PairValue(self.0, key)))
    }
}

/// Returns the pairs of the rule `name` of `list`, except `rank`, which is not stored there.
fn pairs_in(list: &RuleList, name: &Name) -> RulePairs {
    let Some(rule) = list.get(name) else {
        return RulePairs::default();
    };
    let limits = &rule.limits;
    let named = |id: &u32| list.rules().find(|other| other.id == *id);
    let mut names = limits.also.ids().iter().filter_map(named);
    RulePairs {
        rate: Some((0, limits.rate)),
        minrate: Some((0, limits.minrate)),
        burst: Some((0, limits.burst)),
        rank: None,
        realtime: Some(limits.realtime),
        borrow: Some(limits.borrow),
        also: Some([(); ALSO_MAX].map(|()| names.next().map(|other| (0, other.name)))),
    }
}

/// Values written to a directory.
struct RuleDraft {
    heads: Heads,
    /// Conditions; empty if not set.
    conditions: CString,
    pairs: RulePairs,
}

impl RuleDraft {
    fn new() -> Result<Self> {
        Ok(Self {
            heads: Heads::All,
            conditions: c"".try_into()?,
            pairs: RulePairs::default(),
        })
    }

    /// Returns the prefix of a command for the heads.
    fn prefix(&self) -> &'static str {
        match self.heads {
            Heads::All => "",
            Heads::Regular => "reg ",
            Heads::High => "hp ",
        }
    }
}

/// Directory of a rule.
#[pin_data(PinnedDrop)]
pub(crate) struct RuleDirectory {
    name: Name,
    place: Arc<DirectoryService>,
    #[pin]
    draft: Mutex<RuleDraft>,
}

#[pinned_drop]
impl PinnedDrop for RuleDirectory {
    fn drop(self: Pin<&mut Self>) {
        let draft = self.draft.lock();
        let service = self.place.service();
        if let Err(error) = self.stop(&draft, &service) {
            pr_warn!(
                "service {}: rule {} is active without its directory: {:?}\n",
                service.name(),
                self.name.as_str(),
                error,
            );
        }
    }
}

impl RuleDirectory {
    /// Returns the rules of a head on which the rule is started; `None` if it is not started.
    fn started(&self, draft: &RuleDraft, service: &Service) -> Option<Shared<RuleList>> {
        rules_with(service, &self.name, draft.heads)
    }

    /// Executes the command `args`.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`.
    /// - The errors of [`command`].
    fn command(service: &Service, args: fmt::Arguments<'_>) -> Result {
        let command = CString::try_from_fmt(args)?;
        let done = self::command(service, command.to_str().map_err(|_| EINVAL)?);
        done.map_err(|refused| refused.report(service.name()))
    }

    /// Starts the rule.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: there are no conditions.
    /// - The errors of the command.
    fn start(&self, draft: &RuleDraft, service: &Service) -> Result {
        let conditions = draft.conditions.to_str().map_err(|_| EINVAL)?;
        if conditions.is_empty() {
            return Err(EINVAL);
        }
        let (prefix, pairs) = (draft.prefix(), WrittenPairs(&draft.pairs));
        Self::command(
            service,
            format_args!("{prefix}start {} {conditions}{pairs}", self.name),
        )
    }

    /// Stops the rule if it is started.
    ///
    /// # Errors
    ///
    /// The errors of the command.
    fn stop(&self, draft: &RuleDraft, service: &Service) -> Result {
        if self.started(draft, service).is_none() {
            return Ok(());
        }
        let prefix = draft.prefix();
        Self::command(service, format_args!("{prefix}stop {}", self.name))
    }

    /// Writes the value of `key` as one line to `page`: of the rule if it is started, else of the
    /// draft.
    fn show_pair(&self, key: &PairKey, page: &mut [u8; PAGE_SIZE]) -> Result<usize> {
        let draft = self.draft.lock();
        let pairs = match self.started(&draft, &self.place.service()) {
            Some(list) if key.name != RANK.name => pairs_in(&list, &self.name),
            _ => draft.pairs,
        };
        line(page, format_args!("{}", PairValue(&pairs, key)))
    }

    /// Sets `key` to the value in `page`, in the draft, and in the rule if it is started.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the text is not a value of `key`.
    /// - The errors of the command that changes the rule.
    fn store_pair(&self, key: &PairKey, page: &[u8]) -> Result {
        let value = text_of(page)?;
        // One word, so that the text cannot add another pair.
        if !value.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(EINVAL);
        }
        let mut draft = self.draft.lock();
        let service = self.place.service();
        let started = self.started(&draft, &service).is_some();
        let may_be_empty = key.name == RANK.name || key.name == RATE.name && !started;
        if value.is_empty() && may_be_empty {
            (key.copy)(&mut draft.pairs, &RulePairs::default());
            return Ok(());
        }
        let (prefix, name, key_name) = (draft.prefix(), self.name, key.name);
        let text = CString::try_from_fmt(format_args!("{prefix}change {name} {key_name}={value}"))?;
        let text = text.to_str().map_err(|_| EINVAL)?;
        let RuleAction::Change(pairs) = RuleCommand::parse(text).map_err(refused(&service))?.action
        else {
            return Err(EINVAL);
        };
        if started {
            let done = command(&*service, text);
            done.map_err(|refused| refused.report(service.name()))?;
        }
        (key.copy)(&mut draft.pairs, &pairs);
        Ok(())
    }

    /// Applies `change` to the draft.
    ///
    /// # Errors
    ///
    /// - `EBUSY`: the rule is started.
    fn edit(&self, change: impl FnOnce(&mut RuleDraft)) -> Result {
        let mut draft = self.draft.lock();
        if self.started(&draft, &self.place.service()).is_some() {
            return Err(EBUSY);
        }
        change(&mut draft);
        Ok(())
    }
}

/// Attribute `match`.
#[vtable]
impl AttributeOperations<0> for RuleDirectory {
    type Data = RuleDirectory;

    fn show(this: &RuleDirectory, page: &mut [u8; PAGE_SIZE]) -> Result<usize> {
        let draft = this.draft.lock();
        let list = this.started(&draft, &this.place.service());
        match list.as_ref().and_then(|list| list.get(&this.name)) {
            Some(rule) => line(page, format_args!("{}", *rule.conditions)),
            None => line(
                page,
                format_args!("{}", draft.conditions.to_str().unwrap_or("")),
            ),
        }
    }

    fn store(this: &RuleDirectory, page: &[u8]) -> Result {
        let text = text_of(page)?;
        if text.len() > MATCH_MAX {
            return Err(EINVAL);
        }
        if !text.is_empty() {
            // The fields of the type are checked when the rule is started.
            let command = CString::try_from_fmt(format_args!("start {} {text}", this.name))?;
            let service = this.place.service();
            let command = RuleCommand::parse(command.to_str().map_err(|_| EINVAL)?);
            let command = command.map_err(refused(&service))?;
            // Only conditions may follow the name.
            match command.action {
                RuleAction::Start(_, pairs) if pairs == RulePairs::default() => {}
                _ => return Err(EINVAL),
            }
        }
        let conditions = CString::try_from_fmt(format_args!("{text}"))?;
        this.edit(|draft| draft.conditions = conditions)
    }
}

/// Attribute `head`.
#[vtable]
impl AttributeOperations<1> for RuleDirectory {
    type Data = RuleDirectory;

    fn show(this: &RuleDirectory, page: &mut [u8; PAGE_SIZE]) -> Result<usize> {
        let name = match this.draft.lock().heads {
            Heads::All => "all",
            Heads::Regular => "reg",
            Heads::High => "hp",
        };
        line(page, format_args!("{name}"))
    }

    fn store(this: &RuleDirectory, page: &[u8]) -> Result {
        let heads = match text_of(page)? {
            "all" => Heads::All,
            "reg" => Heads::Regular,
            "hp" => Heads::High,
            _ => return Err(EINVAL),
        };
        this.edit(|draft| draft.heads = heads)
    }
}

/// Attribute `enabled`.
#[vtable]
impl AttributeOperations<8> for RuleDirectory {
    type Data = RuleDirectory;

    fn show(this: &RuleDirectory, page: &mut [u8; PAGE_SIZE]) -> Result<usize> {
        let draft = this.draft.lock();
        let started = this.started(&draft, &this.place.service()).is_some();
        line(page, format_args!("{}", u8::from(started)))
    }

    fn store(this: &RuleDirectory, page: &[u8]) -> Result {
        let wanted = match text_of(page)? {
            "0" => false,
            "1" => true,
            _ => return Err(EINVAL),
        };
        let draft = this.draft.lock();
        let service = this.place.service();
        if !wanted {
            this.stop(&draft, &service)
        } else if this.started(&draft, &service).is_some() {
            Ok(())
        } else {
            this.start(&draft, &service)
        }
    }
}
