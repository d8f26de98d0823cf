// SPDX-License-Identifier: GPL-2.0-only

//! Values for parameters: numbers, words and heads come from the schema, other texts from a
//! grammar.
//!
//! *Gentle* values keep a load running, if slowly; other values may stop it. `delay` is gentle with
//! the times in [`GENTLE_DELAY`], because its defaults are minutes.

use nrs_sched::{
    parameters::{self, Parameter},
    policy::{
        fairshare::mode::{Level, Mode},
        Kind,
    },
};

use crate::random::{Draw, Random};

/// Returns the names of all writable parameters.
pub fn written() -> Vec<&'static str> {
    let all = parameters::all().filter(|parameter| parameter.access.writes());
    all.map(Parameter::name).collect()
}

/// Parameters that storms of changes write most frequently.
pub const BUSY: &[&str] = &[
    "nrs_policies",
    "nrs_policies",
    "nrs_tbf_rule",
    "nrs_tbf_rule",
    "nrs_qbm_config",
    "nrs_fairshare_weights",
    "nrs_fairshare_mode",
    "slots",
    "nrs_pop",
];

/// Lines of `config` with the values that make `delay` gentle.
pub const GENTLE_DELAY: &str = "nrs_delay_min 0\nnrs_delay_max 1\nnrs_delay_pct 5\n";

/// Limits of gentle numbers where the schema's limits are wider. `delay` delays one of ten requests
/// by a second.
const GENTLE: [(&str, u64, u64); 12] = [
    ("nrs_crrn_quantum", 1, 300),
    ("nrs_orr_quantum", 1, 300),
    ("nrs_trr_quantum", 1, 300),
    ("nrs_delay_min", 0, 0),
    ("nrs_delay_max", 1, 1),
    ("nrs_delay_pct", 0, 10),
    ("nrs_tbf_rate", 500, 1_000_000),
    ("nrs_tbf_depth", 1, 100),
    ("high_priority_ratio", 0, 100),
    ("buffer_max", 256, 65_536),
    ("slots", 1, 64),
    ("stall_ms", 100, 2000),
];

/// Templates of texts, by the name of a parameter or of a part; see [`expand`]. Each `$` of a text
/// is the same rate.
const GRAMMAR: &str = "
high_priority_sources: none|realtime|meta prio|realtime meta prio
head: ||| reg| hp
fields: uid|gid|jobid|opcode|nid|projid|uid+gid|jobid+uid|uid+opcode|uid+ioprio
nrs_fairshare_weights: clear|<weights>|<weights>|<weights>|<weights>|<weights>|<weights>
weights: <weight>|<weight>,<weight>|<weight>,<weight>,<weight>|<weight>,<weight>,<weight>,<weight>
weight: <entity>:<1-10000>|<entity>:<1-10000>|<entity>:<1-10000>|-<entity>
entity: <name>|<name>|<name>|<name>&opcode:ost_write|uid:*&<priority>|<priority>|opcode:ost_read
name: uid:<1000-1005>|gid:<0-5>|jobid:fio.<1000-1005>|jobid:job.*
priority: ioprio:be-<0-7>|ioprio:idle
nrs_fairshare_limits: clear|<limits>|<limits>,<limits>|<limits>,<limits>,<limits>
limits: <entity>:<limit>|<entity>:<limit>|uid:*:<limit>|-<entity>|-uid:*
limit: max=$|max=$+class=idle|min=1+max=$+burst=<1-20>s|class=realtime|min=<1-20>
nrs_owners: clear|-<cgroup>|<cgroup>=<1000-1005>:<0-5>|<cgroup>=<1000-1005>:<0-5>
cgroup: /*|/user.slice|/user.slice/*|/test<0-3>|/test<0-3>/x
nrs_tbf_rule: <stop>|<stop>|<change>|<change>|<change>|<start>|<start>|<start>
stop: <one_head>stop <rule>
change: <one_head>change <rule> rate=$|<one_head>change <rule> rank=<rank>|change default rate=$
start: <one_head>start <rule> <conditions> rate=$<setting>
setting: | realtime=1| borrow=1| minrate=$| burst=<1-20>s| also=<rule>| rank=<rule>
one_head: reg |hp ||
rank: default|<rule>|<rule>
rule: r<0-11>
conditions: <condition>|<condition><and><condition>|<condition><and><condition><and><condition>
and: &|,
condition: uid={<uids>}|uid={<uids>}|gid={<0-5>}|jobid={<jobs>}|opcode={<opcodes>}|nid={<nids>}
uids: <1000-1005>|<0-2> <1000-1005>
jobs: fio.*|git.* tar.0 sqlite3.0|*.0
opcodes: ost_write|ost_read ost_write
nids: 10.0.[0-9,12].*@tcp
rate: <1-100>MiB/s|<1-100>MB/s|<1-20000>iops|<1-20000>
gentle_rate: <8-100>MiB/s|<8-100>MB/s|<200-20000>iops|<200-20000>
class: first_come|fair_share|low_share|mover
";

/// Returns one of the alternatives of `template`, which are separated by `|`, with a number for
/// each `<LOW-HIGH>` and a value or part for each `<NAME>`. A repeated alternative is more likely.
pub fn expand(template: &str, gentle: bool, random: &mut Random) -> String {
    let alternatives: Vec<&str> = template.split('|').collect();
    let mut text = String::new();
    for (index, piece) in random.pick(&alternatives).split(['<', '>']).enumerate() {
        let limits = piece.split_once('-').and_then(|(low, high)| {
            let limits: (u64, u64) = (low.parse().ok()?, high.parse().ok()?);
            Some(limits)
        });
        text += &match limits {
            // Every second piece was in brackets.
            _ if index % 2 == 0 => piece.to_owned(),
            Some((low, high)) => random.u64(low..=high).to_string(),
            None => value(piece, gentle, random),
        };
    }
    text
}

/// Returns a value that the parameter `name` accepts, or a part of a text.
pub fn value(name: &str, gentle: bool, random: &mut Random) -> String {
    let mut lines = GRAMMAR.lines();
    if let Some(template) = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")) {
        let rate = if gentle { "gentle_rate" } else { "rate" };
        let text = expand(template, gentle, random);
        return match text.contains('$') && name.starts_with("nrs_") {
            true => text.replace('$', &value(rate, gentle, random)),
            false => text,
        };
    }
    match name {
        "nrs_policies" => policy(random),
        "nrs_fairshare_mode" => mode(random),
        "nrs_qbm_config" => plan(gentle, random),
        "config" => {
            let policy = "slots <1-64>\nnrs_policies <nrs_policies>\n";
            let weights = "nrs_fairshare_weights <nrs_fairshare_weights>\n";
            expand(&format!("{GENTLE_DELAY}{policy}{weights}"), gentle, random)
        }
        _ => match parameters::named(name).filter(|parameter| parameter.value.is_some()) {
            Some(parameter) => stored(parameter, gentle, random),
            None => expand("1|x|reset all", gentle, random),
        },
    }
}

/// Returns a number or a word, for both heads or for one.
fn stored(parameter: &Parameter, gentle: bool, random: &mut Random) -> String {
    let own = GENTLE.iter();
    let own = own.filter(|(name, ..)| gentle && *name == parameter.name());
    let own = own.map(|(_, low, high)| (*low, *high)).next();
    let value = match own.or_else(|| range(parameter)) {
        Some((low, high)) => random.u64(low..=high).to_string(),
        // `one, two or three`
        None => expand(
            &parameter.takes.replace(", ", "|").replace(" or ", "|"),
            gentle,
            random,
        ),
    };
    // The names of heads are those of the displayed default: `reg_quantum:8`.
    let mut shown = String::new();
    let head = parameter.write_default(&mut shown).ok();
    let head = head.and_then(|()| shown.split_once(':'));
    match head.map(|(head, _)| head.trim_start_matches("reg_")) {
        Some(name) if parameter.heads => match random.u8(..4) {
            0 => format!("reg_{name}:{value}"),
            1 => format!("hp_{name}:{value}"),
            2 => format!("hp_{name}:{value} reg_{name}:{value}"),
            _ => value,
        },
        _ => value,
    }
}

/// Returns the limits of a number, which the schema contains as `UNIT, LOW to HIGH…`.
fn range(parameter: &Parameter) -> Option<(u64, u64)> {
    let (low, high) = parameter.takes.split_once(" to ")?;
    let digits = |char: char| !char.is_ascii_digit();
    let low = low.rsplit(digits).next()?.parse().ok()?;
    Some((low, high.split(digits).next()?.parse().ok()?))
}

fn policy(random: &mut Random) -> String {
    let name = Kind::ALL[random.usize(..Kind::ALL.len())].name();
    let argument = match name {
        "tbf" if !random.one_in(4) => " <fields>",
        "fairshare" if !random.one_in(4) => " <nrs_fairshare_mode>",
        _ => "",
    };
    expand(&format!("{name}<head>{argument}"), false, random)
}

fn mode(random: &mut Random) -> String {
    let mut levels = Level::ALL.map(Level::name);
    loop {
        random.shuffle(&mut levels);
        let mode = format!("{}_fair", levels[..random.usize(1..=3)].join("_then_"));
        // Not with both names of jobs.
        if Mode::parse(&mode).is_ok() {
            return mode;
        }
    }
}

fn plan(gentle: bool, random: &mut Random) -> String {
    if random.one_in(6) {
        return "by uid\n".into();
    }
    let capacity = random.u64(if gentle { 100 } else { 1 }..=1000);
    let by = random.pick(&["uid", "uid", "uid", "jobid", "device"]);
    let (strategy, class) = match random.one_in(4) {
        true => (" strategy=mover", "mover"),
        false => ("", "<class>"),
    };
    let tune = "||tune period=<1-100>ms fast=500ms slow=2s headroom=5%\n";
    let mut text = format!("by {by}\n{}", expand(tune, gentle, random));
    let rest = "default class=<class> min=1MB/s\n";
    text += &expand(
        &format!("group all capacity={capacity}MB/s{strategy}\n{rest}"),
        gentle,
        random,
    );
    for user in 0..random.u64(..6) {
        let name = match by {
            "uid" => (1000 + user).to_string(),
            "jobid" => format!("fio.{}*", 1000 + user),
            _ => format!("d{user}*"),
        };
        let client = format!("client {name} class={class} min=<1-{capacity}>MB/s\n");
        text += &expand(&client, gentle, random);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that the parsers of the module accept every value; a service accepts it unless other
    /// values contradict it.
    #[test]
    fn every_parameter_has_values_that_it_takes() {
        let mut random = Random::with_seed(3);
        for file in written() {
            let parameter = parameters::named(file).unwrap();
            for gentle in [false, true] {
                for _ in 0..200 {
                    let value = value(file, gentle, &mut random);
                    assert!(value.len() < 4096, "{file}");
                    let taken = parameter.check.map_or(Ok(()), |check| check(&value));
                    assert_eq!(taken, Ok(()), "{file} {value:?}");
                }
            }
        }
    }

    #[test]
    fn gentle_limits_are_those_of_numbers() {
        for (name, low, high) in GENTLE {
            let (least, most) = range(parameters::named(name).unwrap()).unwrap();
            assert!(least <= low && low <= high && high <= most, "{name}");
        }
    }
}
