// SPDX-License-Identifier: GPL-2.0-only

//! `nrsctl rule`

use std::io::Write;

use clap::Subcommand;
use nrs_sched::attr::{Attrs, CgroupPath, Id, IoPriority, Opcode};
use nrs_sched::key::Field;
use nrs_sched::rules::{ConditionValue, Subject};

use super::policy::{HeadArg, Listing};
use crate::configuration::running;
use crate::failure::{failure, Failure, Result};
use crate::kernel::{self, Kernel};
use crate::names::{near, or_meant};
use crate::show::{self, OutputForm};
use crate::stats::rules::{self, ListedRule};
use crate::stats::{self, HIGH, REGULAR};

/// Limits of a rule; a limit that is not given has its default, or is not changed.
#[derive(clap::Args, Debug, Default)]
pub struct LimitArgs {
    /// Maximum rate of each class: 200, 5000iops, 10MB/s, 20MiB/s.
    #[arg(long)]
    pub rate: Option<String>,
    /// Guaranteed minimum rate (0: none).
    #[arg(long)]
    pub minrate: Option<String>,
    /// Credit that an idle class saves: 10s, 600 (requests), 64MiB (0: nrs_tbf_depth).
    #[arg(long)]
    pub burst: Option<String>,
    /// Rule to insert this rule before (default: the first).
    #[arg(long, value_name = "RULE")]
    pub rank: Option<String>,
    /// Use of the rate that other rules leave unused: 0 or 1.
    #[arg(
        long,
        value_name = "0|1",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1",
    )]
    pub borrow: Option<String>,
    /// Further rules to charge, joined by '+' (empty: none).
    #[arg(long, value_name = "RULES")]
    pub also: Option<String>,
    /// Catching up after delays of up to 1 s: 0 or 1.
    #[arg(
        long,
        value_name = "0|1",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1",
    )]
    pub realtime: Option<String>,
}

impl LimitArgs {
    /// Returns the limits in the form of commands, a blank before each.
    fn words(&self) -> String {
        let pairs = [
            ("rate", &self.rate),
            ("minrate", &self.minrate),
            ("burst", &self.burst),
            ("rank", &self.rank),
            ("realtime", &self.realtime),
            ("borrow", &self.borrow),
            ("also", &self.also),
        ];
        let given = pairs
            .iter()
            .filter_map(|(name, value)| Some((name, value.as_ref()?)));
        given.fold(String::new(), |text, (name, value)| {
            text + " " + name + "=" + value
        })
    }
}

/// Actions of `nrsctl rule`.
#[derive(Subcommand, Debug)]
pub enum RuleAction {
    /// Lists the rules of a service in order.
    List {
        /// Service and head.
        #[command(flatten)]
        listing: Listing,
        /// Shows users and groups by number.
        #[arg(long, short)]
        numeric: bool,
    },
    /// Shows one rule.
    Show {
        #[command(flatten)]
        rule: RuleName,
        #[command(flatten)]
        form: OutputForm,
    },
    /// Shows the rule that limits a given request.
    Test {
        #[command(flatten)]
        tested: TestedRequest,
        #[command(flatten)]
        form: OutputForm,
    },
    /// Starts a rule, before all other rules unless --rank is given.
    Start {
        /// Name of the service.
        service: String,
        /// Name of the rule: 1 to 15 letters, digits and '_'.
        name: String,
        /// Match expression: 'uid={1000 1001}', 'jobid={dd.*}&nid={10.0.0.*@tcp}'.
        #[arg(value_name = "MATCH")]
        conditions: String,
        /// Limits of the rule.
        #[command(flatten)]
        limits: LimitArgs,
        /// Applies to one head only.
        #[arg(long, value_enum, default_value_t)]
        head: HeadArg,
    },
    /// Changes limits of a rule.
    Change {
        #[command(flatten)]
        rule: RuleName,
        /// New limits of the rule.
        #[command(flatten)]
        limits: LimitArgs,
        /// Applies to one head only.
        #[arg(long, value_enum, default_value_t)]
        head: HeadArg,
    },
    /// Stops a rule.
    Stop {
        #[command(flatten)]
        rule: RuleName,
        /// Applies to one head only.
        #[arg(long, value_enum, default_value_t)]
        head: HeadArg,
    },
}

/// A rule of a service.
#[derive(clap::Args, Debug)]
pub struct RuleName {
    /// Name of the service.
    service: String,
    /// Name of the rule.
    name: String,
}

/// A request of a service whose treatment is to be shown.
#[derive(clap::Args, Debug)]
pub struct TestedRequest {
    /// Name of the service.
    pub service: String,
    /// Attributes of the request: uid=1002,opcode=ost_read (default: absent).
    #[arg(value_name = "FIELD=VALUE,...")]
    request: String,
}

/// Runs `nrsctl rule`.
///
/// # Errors
///
/// - `NotFound`: the service or rule does not exist, or tbf is not started.
/// - `Refused`: the command is wrong; the column refers to the command in
///   `nrs_tbf_rule`.
/// - `Busy`: another rule names the rule to be stopped in `also=`.
pub fn run(action: &RuleAction, kernel: &dyn Kernel, out: &mut dyn Write) -> Result {
    let command = |service: &str, head: HeadArg, text: String| {
        let text = format!("{}{text}", head.word());
        let done = kernel::set(kernel, service, "nrs_tbf_rule", &text);
        done.map_err(|failure| with_fields(kernel, service, failure))
    };
    // The module accepts the stop of a rule that does not exist, and refuses a change on a head
    // without the rule.
    let on_heads = |RuleName { service, name }: &RuleName, head: HeadArg, text: String| {
        let rules = rules::list(kernel, service)?;
        let on = heads(&rules, name, head).ok_or_else(|| missing(service, name, &rules))?;
        command(service, on, text)
    };
    match action {
        RuleAction::List { listing, numeric } => {
            let mut rules = rules::list(kernel, &listing.service)?;
            rules.retain(|rule| listing.head.has(&rule.head));
            let (numeric, json) = (*numeric, listing.json);
            list(kernel, rules, OutputForm { numeric, json }, out)
        }
        RuleAction::Show { rule, form } => {
            let mut rules = rules::list(kernel, &rule.service)?;
            let none = missing(&rule.service, &rule.name, &rules);
            rules.retain(|one| one.name == rule.name);
            match rules.is_empty() {
                true => Err(none),
                false => list(kernel, rules, *form, out),
            }
        }
        RuleAction::Test { tested, form } => {
            let attrs = tested.attributes(kernel)?;
            let found = matching(kernel, &tested.service, &attrs)?;
            list(kernel, found, *form, out)
        }
        RuleAction::Start {
            service,
            name,
            conditions,
            limits,
            head,
        } => command(
            service,
            *head,
            format!("start {name} {conditions}{}", limits.words()),
        ),
        RuleAction::Change { rule, limits, head } => {
            let (name, words) = (&rule.name, limits.words());
            if words.is_empty() {
                return Err(failure!(Usage: "{name}: nothing to change";
                    "set --rate, --minrate, --burst, --rank, --borrow, --also or --realtime"));
            }
            on_heads(rule, *head, format!("change {name}{words}"))
        }
        RuleAction::Stop { rule, head } => on_heads(rule, *head, format!("stop {}", rule.name)),
    }
}

/// Returns `failure`; if a rule uses a field that tbf does not have, with the available fields as
/// hint.
fn with_fields(kernel: &dyn Kernel, service: &str, failure: Failure) -> Failure {
    if !failure
        .message
        .contains("field is not part of the policy's type")
    {
        return failure;
    }
    let heads = stats::heads(kernel, service).unwrap_or_default();
    let tbf = heads.iter().filter_map(|head| head.serving());
    let mut fields = tbf
        .filter(|policy| policy.name == "tbf")
        .filter_map(|policy| policy.argument.as_deref());
    match fields.next() {
        Some(fields) => failure.hint(format!(
            "{service} runs tbf {fields}; for more fields: \
             nrsctl policy set {service} tbf {fields}+FIELD"
        )),
        None => failure,
    }
}

/// Returns the heads among `head` that have a rule `name`; `None` if no head has.
fn heads(rules: &[ListedRule], name: &str, head: HeadArg) -> Option<HeadArg> {
    let on = |side: HeadArg, shown: &str| {
        head.has(shown)
            && rules
                .iter()
                .any(|rule| rule.name == name && side.has(&rule.head))
    };
    match (on(HeadArg::Reg, "regular"), on(HeadArg::Hp, "high")) {
        (true, true) => Some(head),
        (true, false) => Some(HeadArg::Reg),
        (false, true) => Some(HeadArg::Hp),
        (false, false) => None,
    }
}

impl TestedRequest {
    /// Returns the attributes of the request, from `FIELD=VALUE,…`.
    ///
    /// # Errors
    ///
    /// - `Usage`: the form is wrong, or the field does not exist.
    /// - `Refused`: the value is not one of the field.
    /// - `NotFound`: the user or group does not exist.
    pub fn attributes(&self, kernel: &dyn Kernel) -> Result<Attrs> {
        let mut attrs = Attrs {
            opcode: Opcode::NONE,
            ..Attrs::UNKNOWN
        };
        for pair in self.request.split(',') {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let Some(field) = Field::parse(name).filter(|_| pair.contains('=')) else {
                let fields = Field::ALL.map(Field::name).join(" ");
                let failure = failure!(Usage: "'{pair}' is not FIELD=VALUE");
                return Err(failure.hint(format!("fields: {fields}")));
            };
            // Values are parsed in the form of a condition.
            let condition = format!("{name}={{{value}}}");
            let condition = kernel.accounts().numbers("nrs_tbf_rule", &condition)?;
            let value = &condition[name.len() + 2..condition.len() - 1];
            let refused = |expected: &str| failure!(Refused: "{pair}: expected {expected}");
            let item = ConditionValue::parse(field, 0, value, &mut |_| Ok(0));
            match (field, item.map_err(|error| refused(error.reason))?) {
                (Field::Uid, ConditionValue::Number(number)) => attrs.uid = Id::new(number),
                (Field::Gid, ConditionValue::Number(number)) => attrs.gid = Id::new(number),
                (Field::Projid, ConditionValue::Number(number)) => attrs.projid = Id::new(number),
                (Field::Nodemap, ConditionValue::Number(number)) => attrs.nodemap = Id::new(number),
                (_, ConditionValue::Cgroup(path)) => {
                    attrs.cgroup = CgroupPath::intern(value.as_bytes()).unwrap_or(path);
                }
                (Field::Opcode, _) => attrs.opcode = Opcode::parse(value).unwrap_or(Opcode::NONE),
                (Field::IoPriority, _) => {
                    attrs.io_priority = IoPriority::parse(value).unwrap_or(IoPriority::NONE);
                }
                (_, ConditionValue::Job(job)) => attrs.jobid = job,
                (_, ConditionValue::Nid(nid)) => attrs.nid = Some(nid),
                _ => return Err(refused("a value, not a pattern")),
            }
        }
        Ok(attrs)
    }
}

/// Returns the rule of each head that limits a request with `attrs`, using the module's own rule
/// sets.
fn matching(kernel: &dyn Kernel, service: &str, attrs: &Attrs) -> Result<Vec<ListedRule>> {
    let state = running::read(kernel, service)?;
    let listed = rules::list_of(kernel, service, &state)?;
    let mut found = Vec::new();
    for (head, rules) in [REGULAR, HIGH].into_iter().zip(state.rules()) {
        let Some(rules) = rules else {
            continue;
        };
        let set = rules
            .compile(0)
            .map_err(|_| failure!(Other: "{service}: cannot parse the rules: no memory"))?;
        let subject = Subject::of(attrs, rules.fields());
        let rule = set.rule(set.find(&subject));
        let name = rule.map_or(String::new(), |rule| rule.name.to_string());
        let same = |one: &&ListedRule| one.head == head && one.name == name;
        found.extend(listed.iter().find(same).cloned());
    }
    Ok(found)
}

/// Returns the failure that no rule has the name `name`.
fn missing(service: &str, name: &str, rules: &[ListedRule]) -> Failure {
    let failure = failure!(NotFound: "{service}: no rule '{name}'");
    let mut near = near(name, rules.iter().map(|rule| &rule.name[..]));
    near.dedup();
    or_meant(
        failure,
        ":",
        near,
        format!("see: nrsctl rule list {service}"),
    )
}

/// Shows `rules`; a table that is not numeric has names of users and groups.
fn list(
    kernel: &dyn Kernel,
    mut rules: Vec<ListedRule>,
    form: OutputForm,
    out: &mut dyn Write,
) -> Result {
    for rule in rules.iter_mut().filter(|_| !form.numeric && !form.json) {
        let named = kernel.accounts().names("nrs_tbf_rule", &rule.conditions);
        rule.conditions = named.into_owned();
    }
    let head = ["HEAD", "RULE", "MATCH", "RATE", "CLASSES"];
    show::list(out, form.json, &rules, head, |rule| {
        let limits = format!("{} {}", rule.rate, rule.limits);
        [
            rule.head.clone(),
            rule.name.clone(),
            rule.conditions.clone(),
            limits.trim_end().into(),
            rule.classes.to_string(),
        ]
    })
}
