// SPDX-License-Identifier: GPL-2.0-only

//! The parameters of a service: what there is, what each takes, and what can be said of a value without the
//! service.
//!
//! The kernel part takes names and access from here, tools take the rest: what is documented is what is there.
//!
//! # Vocabulary
//!
//! - *Parameter*: something of a service that is read, set or done by name ([`Parameter`]).
//! - *Check*: the parser that the module reads values with, so far as it needs no service. What a check refuses is
//!   refused by every service; what it takes may still be refused by one.

use core::ffi::CStr;

use crate::sched::{
    error::{Code, Error, Result},
    health::Factor,
    order::{Level, PopWindow},
    policy::{
        crrn, delay,
        fairshare::{
            params as fair,
            weights::{self, Weights},
        },
        params::{
            heads::{PerHead, Value},
            BufferMax,
        },
        qbm::params as qbm,
        robin::params as robin,
        tbf::params as tbf,
        Config, Kind, Tunables,
    },
    qbm::plan::{Plan, PlanError},
    rules::{Action, Book, Command as RuleCommand, Fields, Rate, RuleError, Unit},
    sources::Sources,
    text::{self, Command},
    timeouts::terms::{
        AtCountPolicyDelay, AtDeviations, AtEarlyMargin, AtEstimator, AtExtra, AtFactor, AtHistory,
        AtIncrement, AtInitial, AtMax, AtMin, ObdTimeout,
    },
};

/// What can be done with a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It is read.
    Read,
    /// It does something when it is written, and is not read.
    Write,
    /// It is read and written.
    Both,
}

impl Access {
    /// Whether it can be read.
    pub const fn reads(self) -> bool {
        matches!(self, Self::Read | Self::Both)
    }

    /// Whether it can be written.
    pub const fn writes(self) -> bool {
        matches!(self, Self::Write | Self::Both)
    }

    /// `r`, `w` or `rw`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "r",
            Self::Write => "w",
            Self::Both => "rw",
        }
    }
}

/// What a check is: says whether any service could take a value.
pub type Check = fn(&str) -> Result;

/// A parameter.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Its name.
    pub name: &'static CStr,
    /// What can be done with it.
    pub access: Access,
    /// Unit, range or syntax of what it takes; of one that is only read, what it shows.
    pub takes: &'static str,
    /// What it is to begin with; empty where there is no such thing.
    pub default: &'static str,
    /// What it can fail with beside `EINVAL`, separated by commas.
    pub errors: &'static str,
    /// What it is, one sentence.
    pub about: &'static str,
    /// The page of the documentation that says more.
    pub page: &'static str,
    /// What can be said of a value without the service; none: every value is as good as another, or none is.
    pub check: Option<Check>,
}

impl Parameter {
    /// Its name as text.
    pub fn name(&self) -> &'static str {
        // All of them are ASCII.
        self.name.to_str().unwrap_or_default()
    }

    /// Whether it is called `name`.
    pub const fn is(&self, name: &[u8]) -> bool {
        same(self.name.to_bytes(), name)
    }
}

/// The parameter called `name`.
pub const fn named(name: &str) -> Option<&'static Parameter> {
    find(name.as_bytes())
}

/// The same for a name in bytes.
pub const fn find(name: &[u8]) -> Option<&'static Parameter> {
    let mut rest: &'static [Parameter] = &PARAMETERS;
    while let [parameter, others @ ..] = rest {
        if parameter.is(name) {
            return Some(parameter);
        }
        rest = others;
    }
    None
}

/// Whether `a` and `b` are the same bytes.
const fn same(mut a: &[u8], mut b: &[u8]) -> bool {
    while let ([first, others @ ..], [other, rest @ ..]) = (a, b) {
        if *first != *other {
            return false;
        }
        (a, b) = (others, rest);
    }
    a.is_empty() && b.is_empty()
}

/// What a parameter of a policy can fail with when an instance with the new value cannot be started.
const RESTARTS: &str = "EAGAIN, ENOMEM";

/// One line of the table.
macro_rules! parameter {
    ($name:literal, $access:ident, $takes:expr, $default:expr, $errors:expr, $page:literal, $check:expr, $about:literal) => {
        Parameter {
            name: $name,
            access: Access::$access,
            takes: $takes,
            default: $default,
            errors: $errors,
            about: $about,
            page: $page,
            check: $check,
        }
    };
}

/// The check of a type with `parse`, of a value between blanks.
macro_rules! parsed {
    ($type:ty) => {
        Some(|text| <$type>::parse(text.trim()).map(|_| ()))
    };
}

/// The check of a value for each head: the type of a value, and the text form.
macro_rules! heads {
    ($type:ty, $form:expr) => {
        Some(|text| for_heads::<$type>($form, text))
    };
}

/// Takes a value for each head.
fn for_heads<T: Value + Default>((name, longest): robin::Form, text: &str) -> Result {
    PerHead::<T>::default()
        .with(name, longest, text)
        .map(|_| ())
}

/// Takes what `nrs_policies` takes.
fn policy(text: &str) -> Result {
    let command = Command::parse(text.trim())?;
    let kind = Kind::from_name(command.policy)?;
    Config::parse(kind, command.argument, &Tunables::default()).map(|_| ())
}

/// Takes items of weights; what is removed need not be there.
fn items(text: &str) -> Result {
    match Weights::new().apply(text) {
        Err(error) if error.code == Code::NoEntry => Ok(()),
        done => done.map(|_| ()),
    }
}

/// Takes a mode of fairshare, with or without weights.
fn mode(text: &str) -> Result {
    let (_, list) = weights::split(text)?;
    list.map_or(Ok(()), items)
}

/// Says whether `text` could be a command for rules of a service where `tbf` runs with whatever type, and there are
/// whatever rules; sleeps.
///
/// # Errors
///
/// What [`RuleCommand::parse`] refuses, and of a start what [`Book::apply`] refuses whichever rules there are.
pub fn check_rule(text: &str) -> core::result::Result<(), RuleError> {
    let command = RuleCommand::parse(text)?;
    let Action::Start(mut conditions, _) = command.action else {
        return Ok(());
    };
    conditions.blanks();
    if conditions.peek() != Some(b'{') {
        return start(&command, Fields::ALL);
    }
    // A list without a field is about the only one of the type, which may be any.
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

/// Carries `command` out where there are no rules and the type is `fields`; what it says of other rules counts for
/// nothing.
fn start(command: &RuleCommand<'_>, fields: Fields) -> core::result::Result<(), RuleError> {
    let rate = Rate::new(1, Unit::Plain).ok_or(RuleError::no_memory())?;
    match Book::new(fields, rate, u32::MAX)?.apply(command) {
        Err(error) if error.code != Code::NoEntry => Err(error),
        _ => Ok(()),
    }
}

/// Says whether `text` could be a configuration of `qbm`; sleeps.
///
/// # Errors
///
/// What [`Plan::parse`] refuses.
pub fn check_plan(text: &str) -> core::result::Result<(), PlanError> {
    Plan::parse(text).map(|_| ())
}

/// All parameters, in the order in which they are shown.
pub static PARAMETERS: [Parameter; 67] = [
    parameter!(
        c"nrs_policies",
        Both,
        "POLICY [reg|hp] [ARGUMENT]",
        "fifo",
        "ENOENT, EAGAIN, ENOMEM",
        "user-guide.md",
        Some(policy),
        "Which policy serves each head, and what all of them hold."
    ),
    parameter!(
        c"nrs_crrn_quantum",
        Both,
        "requests, 1 to 65535, for each head",
        "8",
        "ENOMEM",
        "crrn.md",
        heads!(crrn::Quantum, robin::QUANTUM),
        "Requests of one client that crrn serves in a batch."
    ),
    parameter!(
        c"nrs_orr_quantum",
        Both,
        "requests, 1 to 65535, for each head",
        "256",
        "ENOMEM",
        "orr.md",
        heads!(robin::Quantum, robin::QUANTUM),
        "Requests of one file that orr serves in a batch."
    ),
    parameter!(
        c"nrs_orr_offset_type",
        Both,
        "physical or logical, for each head",
        "physical",
        "ENOMEM",
        "orr.md",
        heads!(robin::OffsetType, robin::OFFSET_TYPE),
        "Whether orr sorts by offsets on the device or by those in the file."
    ),
    parameter!(
        c"nrs_orr_supported",
        Both,
        "reads, writes or reads_and_writes, for each head",
        "reads",
        "ENOMEM",
        "orr.md",
        heads!(robin::Supported, robin::SUPPORTED),
        "Which requests orr sorts; the others are served by fifo."
    ),
    parameter!(
        c"nrs_trr_quantum",
        Both,
        "requests, 1 to 65535, for each head",
        "256",
        "ENOMEM",
        "trr.md",
        heads!(robin::Quantum, robin::QUANTUM),
        "Requests of one target that trr serves in a batch."
    ),
    parameter!(
        c"nrs_trr_offset_type",
        Both,
        "physical or logical, for each head",
        "physical",
        "ENOMEM",
        "trr.md",
        heads!(robin::OffsetType, robin::OFFSET_TYPE),
        "Whether trr sorts by offsets on the device or by those in the file."
    ),
    parameter!(
        c"nrs_trr_supported",
        Both,
        "reads, writes or reads_and_writes, for each head",
        "reads",
        "ENOMEM",
        "trr.md",
        heads!(robin::Supported, robin::SUPPORTED),
        "Which requests trr sorts; the others are served by fifo."
    ),
    parameter!(
        c"nrs_delay_min",
        Both,
        "s, 0 to 65535 and at most nrs_delay_max, for each head",
        "5",
        "ENOMEM",
        "delay.md",
        heads!(delay::params::Min, delay::params::MIN),
        "Shortest time for which delay keeps a request."
    ),
    parameter!(
        c"nrs_delay_max",
        Both,
        "s, 0 to 65535 and at least nrs_delay_min, for each head",
        "300",
        "ENOMEM",
        "delay.md",
        heads!(delay::params::Max, delay::params::MAX),
        "Longest time for which delay keeps a request."
    ),
    parameter!(
        c"nrs_delay_pct",
        Both,
        "percent, 0 to 100, for each head",
        "100",
        "ENOMEM",
        "delay.md",
        heads!(delay::params::Pct, delay::params::PCT),
        "How many of a hundred requests delay keeps."
    ),
    parameter!(
        c"nrs_fairshare_mode",
        Both,
        "LEVEL[_then_LEVEL...]_fair [weight=ITEM,...], levels gid uid jobid projid nid nodemap size",
        "jobid_fair",
        "ENOENT, ENOSPC, EAGAIN, ENOMEM",
        "fairshare.md",
        Some(mode),
        "Among whom fairshare shares when nrs_policies names no mode."
    ),
    parameter!(
        c"nrs_fairshare_weights",
        Both,
        "items FIELD:VALUE:WEIGHT with WEIGHT 1 to 10000, -FIELD:VALUE, clear",
        "",
        "ENOENT, ENOSPC, ENOMEM",
        "fairshare.md",
        Some(|text| items(text.trim())),
        "Who counts more than once; all others have weight 1."
    ),
    parameter!(
        c"nrs_fairshare_delta_ms",
        Both,
        "ms, 10 to 1000",
        "100",
        RESTARTS,
        "fairshare.md",
        parsed!(fair::DeltaMs),
        "How often shares, sizes and the parts of partitions are worked out."
    ),
    parameter!(
        c"nrs_fairshare_opp_threshold",
        Both,
        "queued requests, 0 to 256",
        "0",
        RESTARTS,
        "fairshare.md",
        parsed!(fair::OppThreshold),
        "Below how many queued requests the oldest one goes, whosever it is."
    ),
    parameter!(
        c"nrs_fairshare_cost_model",
        Both,
        "pages, rpcs or time",
        "pages",
        RESTARTS,
        "fairshare.md",
        parsed!(fair::CostModel),
        "What a share is a share of."
    ),
    parameter!(
        c"nrs_fairshare_select",
        Both,
        "deadline, deadline_memory, golden, random or paper",
        "deadline",
        RESTARTS,
        "fairshare.md",
        parsed!(fair::Select),
        "How the entity that goes next is chosen."
    ),
    parameter!(
        c"nrs_fairshare_locality",
        Both,
        "0 or 1",
        "0",
        RESTARTS,
        "fairshare.md",
        parsed!(fair::Locality),
        "Whether requests of an entity go in the order of their places on the device."
    ),
    parameter!(
        c"nrs_fairshare_cross_cpt",
        Both,
        "0 or 1",
        "1",
        RESTARTS,
        "fairshare.md",
        parsed!(fair::CrossCpt),
        "Whether shares hold over all partitions together."
    ),
    parameter!(
        c"nrs_fairshare_size_source",
        Both,
        "nids or suffix",
        "nids",
        RESTARTS,
        "fairshare.md",
        parsed!(fair::SizeSource),
        "Where the size of a job comes from that the table does not say."
    ),
    parameter!(
        c"nrs_fairshare_size_window_s",
        Both,
        "s, 2 to 600",
        "10",
        RESTARTS,
        "fairshare.md",
        parsed!(fair::SizeWindowS),
        "How far back the clients of a job are counted for its size."
    ),
    parameter!(
        c"nrs_fairshare_size_max",
        Both,
        "clients, 1 to 4096",
        "4096",
        RESTARTS,
        "fairshare.md",
        parsed!(fair::SizeMax),
        "Largest size of a job that counts."
    ),
    parameter!(
        c"nrs_fairshare_stats",
        Read,
        "YAML, a mapping per entity",
        "",
        "ENOMEM",
        "fairshare.md",
        None,
        "What each entity was to have and had."
    ),
    parameter!(
        c"nrs_fairshare_stats_reset",
        Write,
        "anything",
        "",
        "",
        "fairshare.md",
        None,
        "Sets the counters of nrs_fairshare_stats to zero."
    ),
    parameter!(
        c"nrs_tbf_rule",
        Both,
        "[reg|hp] start|change|stop NAME ...",
        "default only",
        "ENODEV, EEXIST, ENOENT, EPERM, EBUSY, ENAMETOOLONG, ENOSPC, ENOMEM",
        "tbf.md",
        Some(rule),
        "The rules of tbf; what is written is one command."
    ),
    parameter!(
        c"nrs_tbf_rule_error",
        Read,
        "column and what was expected there; else nothing",
        "",
        "",
        "tbf.md",
        None,
        "Why the last command for rules was refused."
    ),
    parameter!(
        c"nrs_tbf_rate",
        Both,
        "per second, 1 to 10000000",
        "10000",
        RESTARTS,
        "tbf.md",
        parsed!(tbf::Rate),
        "Rate of rules that are started without one, and of the rule default when tbf starts."
    ),
    parameter!(
        c"nrs_tbf_depth",
        Both,
        "requests or pages of 4 KiB, 1 to 1000000",
        "3",
        RESTARTS,
        "tbf.md",
        parsed!(tbf::Depth),
        "What a class can save up while it is idle."
    ),
    parameter!(
        c"nrs_tbf_cost_model",
        Both,
        "rpcs or pages",
        "rpcs",
        RESTARTS,
        "tbf.md",
        parsed!(tbf::CostModel),
        "What a rate without a unit counts."
    ),
    parameter!(
        c"nrs_tbf_global_rate",
        Both,
        "0 or 1",
        "1",
        RESTARTS,
        "tbf.md",
        parsed!(tbf::GlobalRate),
        "Whether a rate holds for all partitions together; else each grants it."
    ),
    parameter!(
        c"nrs_tbf_rules_max",
        Both,
        "rules, 1 to 65536",
        "4096",
        RESTARTS,
        "tbf.md",
        parsed!(tbf::RulesMax),
        "How many rules a head can have beside default."
    ),
    parameter!(
        c"nrs_tbf_cache_size",
        Both,
        "classes, 1 to 1048576",
        "8192",
        RESTARTS,
        "tbf.md",
        parsed!(tbf::CacheSize),
        "How many idle classes a partition remembers."
    ),
    parameter!(
        c"nrs_tbf_stats",
        Read,
        "YAML, rules and classes",
        "",
        "ENOMEM",
        "tbf.md",
        None,
        "What rules and classes had, and how long they were kept."
    ),
    parameter!(
        c"nrs_tbf_stats_reset",
        Write,
        "anything",
        "",
        "",
        "tbf.md",
        None,
        "Sets the counters of nrs_tbf_stats to zero."
    ),
    parameter!(
        c"nrs_qbm_config",
        Both,
        "lines by, tune, default, group and client, up to 256 KiB",
        "no group",
        "E2BIG, ENOENT, EEXIST, ENAMETOOLONG, ENOSPC, EAGAIN, ENOMEM",
        "qbm.md",
        Some(plan),
        "The configuration of qbm, as a whole."
    ),
    parameter!(
        c"nrs_qbm_config_error",
        Read,
        "line and reason; else nothing",
        "",
        "",
        "qbm.md",
        None,
        "Why the last configuration of qbm was refused."
    ),
    parameter!(
        c"nrs_qbm_clients_max",
        Both,
        "clients, 16 to 16384",
        "1024",
        RESTARTS,
        "qbm.md",
        parsed!(qbm::ClientsMax),
        "How many clients qbm tells apart."
    ),
    parameter!(
        c"nrs_qbm_status",
        Read,
        "YAML, groups and clients",
        "",
        "ENODEV, ENOMEM",
        "qbm.md",
        None,
        "What groups and clients of qbm have and use."
    ),
    parameter!(
        c"nrs_qbm_stats",
        Read,
        "YAML, groups and clients",
        "",
        "ENODEV, ENOMEM",
        "qbm.md",
        None,
        "What was counted of groups and clients of qbm."
    ),
    parameter!(
        c"nrs_qbm_stats_reset",
        Write,
        "anything",
        "",
        "",
        "qbm.md",
        None,
        "Sets the counters of nrs_qbm_stats to zero."
    ),
    parameter!(
        c"nrs_pop",
        Both,
        "none, overlap, stream or graph",
        "none",
        "",
        "order.md",
        parsed!(Level),
        "Which requests keep their order under every policy."
    ),
    parameter!(
        c"nrs_pop_window",
        Both,
        "requests of a file of /dev/nrs, 1 to 65536",
        "1024",
        "",
        "order.md",
        parsed!(PopWindow),
        "How many completed requests can still be named as predecessors."
    ),
    parameter!(
        c"buffer_max",
        Both,
        "requests, 256 to 1048576",
        "65536",
        "EBUSY, EAGAIN, ENOMEM",
        "user-guide.md",
        parsed!(BufferMax),
        "How many requests are kept in an order of their own."
    ),
    parameter!(
        c"nrs_concurrency",
        Read,
        "a number per line",
        "",
        "",
        "user-guide.md",
        None,
        "Fan-out, credits and waits."
    ),
    parameter!(
        c"health",
        Read,
        "healthy or NOT HEALTHY, and a line with the reason",
        "",
        "",
        "user-guide.md",
        None,
        "Whether the service gets on."
    ),
    parameter!(
        c"at_min",
        Both,
        "s, 1 to 3600 and at most at_max",
        "5",
        "",
        "adaptive-timeouts.md",
        parsed!(AtMin),
        "Least estimate of what a request takes."
    ),
    parameter!(
        c"at_max",
        Both,
        "s, 0 to 3600; 0: timeouts are fixed",
        "600",
        "",
        "adaptive-timeouts.md",
        parsed!(AtMax),
        "Largest estimate, and how long early replies can hold a client."
    ),
    parameter!(
        c"at_history",
        Both,
        "s, 4 to 3600",
        "600",
        "",
        "adaptive-timeouts.md",
        parsed!(AtHistory),
        "How long a service time counts."
    ),
    parameter!(
        c"at_extra",
        Both,
        "s, 1 to 3600 and at most at_max",
        "30",
        "",
        "adaptive-timeouts.md",
        parsed!(AtExtra),
        "What an early reply grants."
    ),
    parameter!(
        c"at_early_margin",
        Both,
        "s, 1 to 3600 and at most at_min",
        "5",
        "",
        "adaptive-timeouts.md",
        parsed!(AtEarlyMargin),
        "How long before a deadline an early reply is sent."
    ),
    parameter!(
        c"at_factor",
        Both,
        "percent, 100 to 1000",
        "125",
        "",
        "adaptive-timeouts.md",
        parsed!(AtFactor),
        "What an estimate is multiplied with for a timeout."
    ),
    parameter!(
        c"at_increment",
        Both,
        "s, 0 to 600",
        "5",
        "",
        "adaptive-timeouts.md",
        parsed!(AtIncrement),
        "What is added to that."
    ),
    parameter!(
        c"at_initial",
        Both,
        "s, 1 to 3600",
        "10",
        "",
        "adaptive-timeouts.md",
        parsed!(AtInitial),
        "Estimate of a service that has served nothing."
    ),
    parameter!(
        c"at_deviations",
        Both,
        "standard deviations, 1 to 100",
        "4",
        "",
        "adaptive-timeouts.md",
        parsed!(AtDeviations),
        "How far above the mean the estimate is if at_estimator is average."
    ),
    parameter!(
        c"at_estimator",
        Both,
        "worst, average or total",
        "worst",
        "",
        "adaptive-timeouts.md",
        parsed!(AtEstimator),
        "How the estimate is made of service times."
    ),
    parameter!(
        c"at_count_policy_delay",
        Both,
        "0 or 1",
        "0",
        "",
        "adaptive-timeouts.md",
        parsed!(AtCountPolicyDelay),
        "Whether time for which a policy keeps requests on purpose counts."
    ),
    parameter!(
        c"obd_timeout",
        Both,
        "s, 0 to 3600; 0: none",
        "100",
        "",
        "adaptive-timeouts.md",
        parsed!(ObdTimeout),
        "The fixed timeout while at_max is 0."
    ),
    parameter!(
        c"timeouts",
        Read,
        "a line per partition",
        "",
        "",
        "adaptive-timeouts.md",
        None,
        "What requests take."
    ),
    parameter!(
        c"client_timeouts",
        Read,
        "lines per block device",
        "",
        "",
        "adaptive-timeouts.md",
        None,
        "How long clients wait."
    ),
    parameter!(
        c"at_stats",
        Read,
        "YAML",
        "",
        "",
        "adaptive-timeouts.md",
        None,
        "Early replies, timeouts, devices given up."
    ),
    parameter!(
        c"at_stats_reset",
        Write,
        "anything",
        "",
        "",
        "adaptive-timeouts.md",
        None,
        "Sets the counters of at_stats to zero."
    ),
    parameter!(
        c"at_unhealthy_factor",
        Both,
        "0 to 1000; 0: never unhealthy",
        "3",
        "",
        "user-guide.md",
        parsed!(Factor),
        "For how many times at_max nothing may be decided before the service is unhealthy."
    ),
    parameter!(
        c"high_priority_sources",
        Both,
        "some of realtime meta prio, or none",
        "realtime",
        "",
        "user-guide.md",
        parsed!(Sources),
        "Which requests of block devices go to the high-priority head."
    ),
    parameter!(
        c"high_priority_ratio",
        Both,
        "requests, 0 to 4294967295",
        "10",
        "",
        "user-guide.md",
        Some(|text| text::parse_ratio(text).map(|_| ())),
        "After how many requests of high priority in a row a regular one goes."
    ),
    parameter!(
        c"stall_ms",
        Both,
        "ms, 100 to 600000, or 0 for never",
        "30000",
        "",
        "user-guide.md",
        Some(|text| text::parse_stall_ms(text).map(|_| ())),
        "After how long without a decision requests that wait in vain are sent down."
    ),
    parameter!(
        c"slots",
        Both,
        "requests, 1 to 65535",
        "module parameter default_slots",
        "",
        "user-guide.md",
        Some(|text| text::parse_slots(text).map(|_| ())),
        "How many requests of the service may be at its targets."
    ),
    parameter!(
        c"clients",
        Read,
        "YAML",
        "",
        "",
        "user-guide.md",
        None,
        "Slots in effect, counters of each client, state of each target."
    ),
];

/// Takes a command for rules.
fn rule(text: &str) -> Result {
    check_rule(text).map_err(|error| Error::new(error.code, error.expected))
}

/// Takes a configuration of `qbm`.
fn plan(text: &str) -> Result {
    check_plan(text).map_err(|error| Error::new(error.code, error.reason))
}

#[cfg(test)]
mod tests;
