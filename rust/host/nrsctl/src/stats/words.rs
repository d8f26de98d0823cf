// SPDX-License-Identifier: GPL-2.0-only

//! Description of a snapshot in plain words, for a screen of 80 columns.
//!
//! ```text
//! NAME: slots, clients, queued requests
//!   regular   policy in words, and its name in nrs_policies
//!   urgent    the same for the high-priority head
//!   limited   rules that throttled requests; groups of qbm
//!   waiting   entities with the most queued requests, and their queueing times
//!   warning   problem
//!             recommended action
//! ```

use super::{Client, Entity, Group, Head, Policy, Rule, Snapshot, Target, BOTH, HIGH};
use crate::top::numbers::printable;

/// Columns of a line.
const WIDTH: usize = 80;

/// Columns of the indentation.
const INDENT: usize = 12;

/// Maximum number of listed rules, groups or entities.
const MOST: usize = 3;

/// Maximum length of a name, characters.
const NAME_MAX: usize = 40;

/// Returns the description of a service.
pub fn describe(snapshot: &Snapshot) -> String {
    let mut screen = Screen::default();
    screen.text.push_str(&headline(snapshot));
    screen.text.push('\n');
    if snapshot.counter("limit") < snapshot.counter("slots") {
        let (slots, limit) = (snapshot.counter("slots"), snapshot.counter("limit"));
        screen.put(
            "slots",
            &format!("{slots} configured, limited to {limit} by the queue depth of the targets"),
        );
    }
    let searched: Vec<_> = snapshot
        .targets
        .iter()
        .filter(|target| target.counter("knee") > 0)
        .collect();
    screen.list("auto", &searched, |target| knee(target));
    let mut first: Option<String> = None;
    for head in &snapshot.heads {
        let said = policy_text(snapshot, head);
        let label = if head.name == HIGH {
            "urgent"
        } else {
            "regular"
        };
        match &first {
            Some(before) if *before == said => screen.put(label, "the same"),
            _ => screen.put(label, &said),
        }
        first = Some(said);
    }
    limited(snapshot, &mut screen);
    waiting(snapshot, &mut screen);
    for (wrong, advice) in warnings(snapshot) {
        screen.put("warning", &wrong);
        screen.put("", advice);
    }
    screen.text
}

/// Text of labelled lines.
#[derive(Default)]
struct Screen {
    text: String,
}

impl Screen {
    /// Appends `said` after the label, wrapped to the width.
    fn put(&mut self, label: &str, said: &str) {
        let mut line = format!("  {label:<width$}", width = INDENT - 2);
        let mut empty = true;
        for word in said.split(' ') {
            if !empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
                self.text.push_str(line.trim_end());
                self.text.push('\n');
                line = " ".repeat(INDENT);
                empty = true;
            }
            if !empty {
                line.push(' ');
            }
            line.push_str(word);
            empty = false;
        }
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    /// Appends a line for each of the first elements of `all`, and the number of further elements.
    fn list<T>(&mut self, label: &str, all: &[T], say: impl Fn(&T) -> String) {
        let mut label = label;
        for one in all.iter().take(MOST) {
            self.put(label, &say(one));
            label = "";
        }
        if let Some(more @ 1..) = all.len().checked_sub(MOST) {
            self.put("", &format!("and {more} more"));
        }
    }
}

fn headline(snapshot: &Snapshot) -> String {
    let wait = match super::queued(&snapshot.heads) {
        0 => "no queued requests".into(),
        n => count(n, "queued request"),
    };
    format!(
        "{}: {} of {} slots in use, {}, {wait}",
        safe(&snapshot.service),
        snapshot.counter("active"),
        snapshot.counter("limit"),
        count(snapshot.clients.len() as u64, "client"),
    )
}

/// Returns the result of the search of `slots=auto` for a device.
fn knee(target: &Target) -> String {
    let name = safe(&target.name);
    let slots = count(target.counter("knee"), "slot");
    let (requests, bytes) = (target.counter("knee_rate"), target.counter("knee_bytes"));
    if target.counter("searching") > 0 {
        format!("{name}: {slots}, search in progress")
    } else if requests == 0 {
        format!("{name}: {slots}, not searched: too few queued requests")
    } else {
        let bytes = rate(bytes);
        format!("{name}: saturated with {slots}: {requests} requests/s, {bytes}")
    }
}

/// Returns the description of the policies of a head.
fn policy_text(snapshot: &Snapshot, head: &Head) -> String {
    let Some(policy) = head.serving() else {
        return "no policy".into();
    };
    let mut said = match &policy.argument {
        Some(argument) => format!("{} {}", policy.name, safe(argument)),
        None => policy.name.clone(),
    };
    said = format!("{} ({said})", meaning(snapshot, policy));
    for old in head
        .policies
        .iter()
        .filter(|policy| policy.state == "stopping")
    {
        let left = count(old.queued + old.active, "request");
        said += &format!("; {} is stopping, {left} left", old.name);
    }
    said
}

fn meaning(snapshot: &Snapshot, policy: &Policy) -> String {
    let argument = policy.argument.as_deref();
    match policy.name.as_str() {
        "fifo" => "in order of arrival".into(),
        "fairshare" => shares(argument.unwrap_or_default(), snapshot.weighted),
        "tbf" => limits(argument.unwrap_or_default()),
        "qbm" => "clients have guaranteed bandwidth".into(),
        "crrn" => "round robin of clients".into(),
        "orr" => "round robin of files, each in order of offsets".into(),
        "trr" => "round robin of targets, each in order of offsets".into(),
        "delay" => "random delays, for tests".into(),
        other => format!("policy {other}"),
    }
}

/// Levels of fairshare and fields of tbf, with the words for their values.
const FIELDS: [(&str, &str); 10] = [
    ("uid", "user"),
    ("gid", "group"),
    ("jobid", "job"),
    ("nid", "client"),
    ("opcode", "operation"),
    ("projid", "project"),
    ("nodemap", "node map"),
    ("cgroup", "cgroup"),
    ("ioprio", "priority level"),
    ("size", "jobs by their size"),
];

fn field(name: &str) -> Option<&'static str> {
    let mut fields = FIELDS.iter();
    fields
        .find(|(field, _)| *field == name)
        .map(|(_, word)| *word)
}

/// Returns the description of a mode of fairshare.
fn shares(mode: &str, weighted: bool) -> String {
    let levels = mode.strip_suffix("_fair").unwrap_or(mode).split("_then_");
    let levels =
        levels.map(|level| field(level).map_or("entities".into(), |word| format!("{word}s")));
    let how = if weighted { "by weight" } else { "equally" };
    match &levels.collect::<Vec<String>>()[..] {
        [first, within @ ..] if !within.is_empty() => {
            let within = within.join(" within them, ");
            format!("{first} share {how}, {within} within them")
        }
        levels => format!("{} share {how}", levels.concat()),
    }
}

/// Returns the description of the fields of tbf.
fn limits(fields: &str) -> String {
    let fields: Vec<&str> = fields.split('+').filter_map(field).collect();
    match fields.split_last() {
        None => "each kind of request is limited by rules".into(),
        Some((last, [])) => format!("each {last} is limited by rules"),
        Some((last, others)) => {
            format!("each {} and {last} is limited by rules", others.join(", "))
        }
    }
}

/// Lists the rules and groups that throttle requests.
fn limited(snapshot: &Snapshot, screen: &mut Screen) {
    let rules = snapshot.rules.iter();
    let mut rules: Vec<&Rule> = rules
        .filter(|rule| rule.counter("limit_hits") > 0)
        .collect();
    rules.sort_by_key(|rule| std::cmp::Reverse(rule.counter("throttled_ns")));
    screen.list("limited", &rules, |rule| {
        let urgent = if rule.head == HIGH {
            ", urgent requests"
        } else {
            ""
        };
        let unit = match rule.rate.parse::<u64>() {
            Ok(_) => format!(" {}/s", rule.unit),
            Err(_) => String::new(),
        };
        format!(
            "{} ({}{unit}{urgent}): throttled {}, {} in total, {}, {} queued",
            safe(&rule.name),
            rule.rate,
            times(rule.counter("limit_hits")),
            duration(rule.counter("throttled_ns")),
            count(rule.counter("classes"), "class"),
            rule.counter("queued"),
        )
    });
    screen.list("limited", &snapshot.groups, |group: &Group| {
        let number = |name: &str| group.counter(name);
        let counters = group.counters.iter();
        let reserves = counters.filter(|(name, _)| name.starts_with("reserve_"));
        let left = number("free") + reserves.map(|(_, left)| left).sum::<u64>();
        let inside = |entity: &&Entity| entity.within.as_ref() == Some(&group.name);
        let entities = snapshot.entities.iter().filter(inside);
        let unmet = match entities.filter(|entity| is_unmet(entity)).count() {
            0 => String::new(),
            n => format!(", {n} below the guaranteed minimum"),
        };
        format!(
            "group {}: {} of {} allocated, {}{unmet}",
            safe(&group.name),
            rate(number("capacity").saturating_sub(left)),
            rate(number("capacity")),
            count(number("registered"), "client"),
        )
    });
}

fn is_unmet(entity: &Entity) -> bool {
    entity.bandwidth.as_ref().is_some_and(|given| given.unmet)
}

/// Lists the entities with the most queued requests; clients if no policy has entities.
fn waiting(snapshot: &Snapshot, screen: &mut Screen) {
    let entities = snapshot.entities.iter();
    let mut entities: Vec<&Entity> = entities.filter(|e| e.queued > 0 || is_unmet(e)).collect();
    entities.sort_by(|a, b| b.queued.cmp(&a.queued).then_with(|| a.name.cmp(&b.name)));
    screen.list("waiting", &entities, |entity| wait_text(entity));
    if snapshot.entities.is_empty() {
        let held = |client: &Client| client.counter("held");
        let clients = snapshot.clients.iter();
        let mut clients: Vec<&Client> = clients.filter(|client| held(client) > 0).collect();
        clients.sort_by(|a, b| held(b).cmp(&held(a)).then_with(|| a.name.cmp(&b.name)));
        screen.list("waiting", &clients, |client| {
            format!("client {}: {} queued", safe(&client.name), held(client))
        });
    }
}

fn wait_text(entity: &Entity) -> String {
    let head = if entity.head == HIGH { ", urgent" } else { "" };
    let name = format!("{}{head}", safe(&entity.name));
    let given = entity.bandwidth.as_ref().filter(|_| entity.head == BOTH);
    if let Some((has, min)) = given.and_then(|given| Some((given.allocated?, given.min))) {
        return format!(
            "{name}: allocated {} of {} guaranteed",
            rate(has),
            rate(min)
        );
    }
    let mut said = format!("{name}: {} queued", entity.queued);
    if let (Some(p50), Some(max)) = (entity.wait_us.get("p50"), entity.wait_us.get("max")) {
        let [p50, max] = [p50, max].map(|us| duration(us.saturating_mul(1000)));
        said += &format!(", median {p50}, longest {max}");
    }
    let (hits, time) = (entity.counter("limit_hits"), entity.counter("throttled_ns"));
    if let (Some(rule), Some(each)) = (&entity.within, time.checked_div(hits)) {
        let each = duration(each);
        said += &format!(", throttled for {each} on average by rule {}", safe(rule));
    }
    said
}

/// Outermost entities of requests without an owner.
const OWNERLESS: [&str; 4] = ["uid:absent", "gid:absent", "jobid:absent", "cgroup:absent"];

/// Minimum number of requests for a warning that most of them have no owner.
const OWNERS_MIN: u64 = 1000;

/// Returns the problems and the recommended actions.
fn warnings(snapshot: &Snapshot) -> Vec<(String, &'static str)> {
    let mut list = Vec::new();
    if let Some(reason) = &snapshot.unhealthy {
        list.push((
            format!("not healthy: {}", printable(reason)),
            "a target may hang: see dmesg, and the targets with requests in flight in 'clients'",
        ));
    }
    let lost = snapshot.clients.iter().filter(|client| client.lost);
    let lost: Vec<String> = lost.map(|client| safe(&client.name)).collect();
    if !lost.is_empty() {
        let more = match lost.len().checked_sub(MOST) {
            Some(more @ 1..) => format!(" and {more} more"),
            _ => String::new(),
        };
        let named = lost[..lost.len().min(MOST)].join(", ");
        list.push((
            format!("lost: {named}{more}: no request completed within the timeout"),
            "check the targets; a client recovers with its next completed request",
        ));
    }
    let (mut all, mut unknown) = (0, 0);
    for entity in &snapshot.entities {
        let dispatched = entity.counter("dispatched");
        all += dispatched;
        let first = entity.name.split('/').next();
        if first.is_some_and(|first| OWNERLESS.contains(&first)) {
            unknown += dispatched;
        }
    }
    if all >= OWNERS_MIN && unknown > all / 2 {
        list.push((
            format!("{unknown} of {all} requests have no known owner"),
            "a layer or a server hides whose they are: see servers.md",
        ));
    }
    let timeouts = |name: &str| super::number(&snapshot.timeouts, name);
    let own = |name: &str| snapshot.counter(name);
    let waits = super::number(&snapshot.concurrency, "overflowed");
    let deadlines = count(timeouts("timeouts"), "deadline");
    for (number, wrong, advice) in [
        (
            timeouts("timeouts"),
            format!(
                "{deadlines} missed, clients were lost {}",
                times(timeouts("lost"))
            ),
            "if the targets are only slow, raise at_min; at_stats_reset resets the counters",
        ),
        (
            own("stalls"),
            format!("stalled for stall_ms {}", times(own("stalls"))),
            "a target used all slots: see dmesg; add slots, or use a service for each target",
        ),
        (
            own("overflow"),
            format!(
                "{} above classes_max share the overflow class",
                count(own("overflow"), "request")
            ),
            "raise the module parameter classes_max and create the service again",
        ),
        (
            own("no_memory"),
            format!("allocation of a class failed {}", times(own("no_memory"))),
            "add or free memory",
        ),
        (
            waits,
            format!("{} queued for a request record", count(waits, "request")),
            "raise buffer_max",
        ),
    ] {
        if number > 0 {
            list.push((wrong, advice));
        }
    }
    list
}

fn times(n: u64) -> String {
    match n {
        1 => "once".into(),
        n => format!("{n} times"),
    }
}

fn count(n: u64, what: &str) -> String {
    match n {
        1 => format!("1 {what}"),
        n if what.ends_with('s') => format!("{n} {what}es"),
        n => format!("{n} {what}s"),
    }
}

/// Returns `name` as printable text, shortened to `NAME_MAX`.
pub fn safe(name: &str) -> String {
    let text = printable(name);
    if text.chars().count() <= NAME_MAX {
        return text;
    }
    let kept: String = text.chars().take(NAME_MAX - 2).collect();
    format!("{kept}..")
}

/// Formats a time with about three digits; the argument is in ns.
pub fn duration(ns: u64) -> String {
    let us = ns / 1000;
    match us {
        0..1_000 => format!("{us} us"),
        1_000..10_000 => format!("{}.{} ms", us / 1000, us % 1000 / 100),
        10_000..1_000_000 => format!("{} ms", us / 1000),
        1_000_000..60_000_000 => format!("{}.{} s", us / 1_000_000, us % 1_000_000 / 100_000),
        60_000_000..3_600_000_000 => format!("{} min", us / 60_000_000),
        _ => format!("{} h", us / 3_600_000_000),
    }
}

/// Formats a rate; the argument is in bytes/s.
pub fn rate(bytes: u64) -> String {
    let scales = [
        ("GB/s", 1_000_000_000),
        ("MB/s", 1_000_000),
        ("kB/s", 1_000),
    ];
    for (name, scale) in scales {
        if bytes >= scale {
            let tenths = bytes / (scale / 10);
            return match tenths % 10 {
                0 => format!("{} {name}", tenths / 10),
                tenth => format!("{}.{tenth} {name}", tenths / 10),
            };
        }
    }
    format!("{bytes} B/s")
}
