// SPDX-License-Identifier: GPL-2.0-only

//! Values for parameters: numbers, words and heads come from the schema, rules and plans from this
//! file.
//!
//! *Gentle* values keep a load running, if slowly; other values may stop it. `delay` is gentle with
//! the times in [`GENTLE_DELAY`], because its defaults are minutes.

use nrs_sched::{
    parameters::{self, Parameter},
    policy::Kind,
};

use crate::random::Random;

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

/// Parameter values that make `delay` gentle.
pub const GENTLE_DELAY: &[(&str, &str)] = &[
    ("nrs_delay_min", "0"),
    ("nrs_delay_max", "1"),
    ("nrs_delay_pct", "5"),
];

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

const FIELDS: &[&str] = &[
    "uid",
    "gid",
    "jobid",
    "opcode",
    "nid",
    "projid",
    "uid+gid",
    "jobid+uid",
    "uid+opcode",
];
const CLASSES: &[&str] = &["first_come", "fair_share", "low_share", "mover"];

/// Returns a value that the parameter `file` accepts.
pub fn value(file: &str, gentle: bool, random: &mut Random) -> String {
    match file {
        "nrs_policies" => policy(random),
        "nrs_fairshare_mode" => mode(random),
        "nrs_fairshare_weights" => weights(random),
        "nrs_tbf_rule" => rule(gentle, random),
        "nrs_qbm_config" => plan(gentle, random),
        "config" => config(random),
        "high_priority_sources" => random
            .pick(&["none", "realtime", "meta prio", "realtime meta prio"])
            .to_owned(),
        _ => match parameters::named(file).filter(|parameter| parameter.value.is_some()) {
            Some(parameter) => stored(parameter, gentle, random),
            None => random.pick(&["1", "x", "reset all"]).to_owned(),
        },
    }
}

/// Returns the text of a whole service, with any policy.
fn config(random: &mut Random) -> String {
    let line = |(name, value): &(&str, &str)| format!("{name} {value}\n");
    let delay: String = GENTLE_DELAY.iter().map(line).collect();
    let (slots, policy) = (random.within(1, 64), policy(random));
    let weights = weights(random);
    format!("{delay}slots {slots}\nnrs_policies {policy}\nnrs_fairshare_weights {weights}\n")
}

/// Returns a number or a word, for both heads or for one.
fn stored(parameter: &Parameter, gentle: bool, random: &mut Random) -> String {
    let value = match range(parameter) {
        Some((low, high)) => {
            let own = GENTLE
                .iter()
                .find(|(name, ..)| gentle && *name == parameter.name());
            let (low, high) = own.map_or((low, high), |(_, low, high)| (*low, *high));
            random.within(low, high).to_string()
        }
        // `one, two or three`
        None => {
            let words: Vec<&str> = parameter
                .takes
                .split(", ")
                .flat_map(|part| part.split(" or "))
                .collect();
            random.pick(&words).to_owned()
        }
    };
    // The names of heads are those of the displayed default: `reg_quantum:8`.
    let mut shown = String::new();
    let head = parameter
        .write_default(&mut shown)
        .ok()
        .and_then(|()| shown.split_once(':'));
    match head.map(|(head, _)| head.trim_start_matches("reg_")) {
        Some(name) if parameter.heads => match random.below(4) {
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
    let head = random.pick(&["", "", "", " reg", " hp"]);
    let name = Kind::ALL[random.index(Kind::ALL.len())].name();
    let argument = match name {
        "tbf" if !random.one_in(4) => format!(" {}", random.pick(FIELDS)),
        "fairshare" if !random.one_in(4) => format!(" {}", mode(random)),
        _ => String::new(),
    };
    format!("{name}{head}{argument}")
}

fn mode(random: &mut Random) -> String {
    let mut levels = vec![
        "gid", "uid", "jobid", "projid", "nid", "nodemap", "cgroup", "size",
    ];
    let mut chosen = Vec::new();
    for _ in 0..random.within(1, 3) {
        let level = levels.remove(random.index(levels.len()));
        chosen.push(level);
        // Both name jobs.
        if matches!(level, "jobid" | "size") {
            levels.retain(|other| !matches!(*other, "jobid" | "size"));
        }
    }
    format!("{}_fair", chosen.join("_then_"))
}

fn weights(random: &mut Random) -> String {
    if random.one_in(12) {
        return "clear".into();
    }
    let items: Vec<String> = (0..random.within(1, 4))
        .map(|_| {
            let (field, value) = match random.below(4) {
                0 => ("uid", random.within(1000, 1005).to_string()),
                1 => ("gid", random.below(6).to_string()),
                2 => ("jobid", format!("fio.{}", random.within(1000, 1005))),
                _ => ("jobid", "job.*".to_owned()),
            };
            match random.one_in(4) {
                true => format!("-{field}:{value}"),
                false => format!("{field}:{value}:{}", random.within(1, 10_000)),
            }
        })
        .collect();
    items.join(",")
}

/// Returns one of twelve rule names, so that calls conflict.
fn rule_name(random: &mut Random) -> String {
    format!("r{}", random.below(12))
}

fn rule(gentle: bool, random: &mut Random) -> String {
    let head = random.pick(&["", "", "reg ", "hp "]);
    let (name, other) = (rule_name(random), rule_name(random));
    let rate = rate(gentle, random);
    match random.below(8) {
        0 | 1 => format!("{head}stop {name}"),
        2 => format!("{head}change {name} rate={rate}"),
        3 if random.one_in(3) => format!("{head}change {name} rank=default"),
        3 => format!("{head}change {name} rank={other}"),
        4 => format!("change default rate={rate}"),
        _ => {
            let more = match random.below(6) {
                0 => " realtime=1",
                1 => " borrow=1",
                2 => &format!(" minrate={rate}"),
                3 => &format!(" also={other}"),
                4 => &format!(" rank={other}"),
                _ => "",
            };
            format!(
                "{head}start {name} {} rate={rate}{more}",
                conditions(random)
            )
        }
    }
}

fn rate(gentle: bool, random: &mut Random) -> String {
    let (bytes, requests) = if gentle { (8, 200) } else { (1, 1) };
    match random.below(4) {
        0 => format!("{}MiB/s", random.within(bytes, 100)),
        1 => format!("{}MB/s", random.within(bytes, 100)),
        2 => format!("{}iops", random.within(requests, 20_000)),
        _ => random.within(requests, 20_000).to_string(),
    }
}

fn conditions(random: &mut Random) -> String {
    let one = |random: &mut Random| match random.below(6) {
        0 => format!("uid={{{}}}", random.within(1000, 1005)),
        1 => format!("uid={{{} {}}}", random.below(3), random.within(1000, 1005)),
        2 => format!("gid={{{}}}", random.below(6)),
        3 => random
            .pick(&[
                "jobid={fio.*}",
                "jobid={git.* tar.0 sqlite3.0}",
                "jobid={*.0}",
            ])
            .into(),
        4 => random
            .pick(&["opcode={ost_write}", "opcode={ost_read ost_write}"])
            .into(),
        _ => "nid={10.0.[0-9,12].*@tcp}".to_owned(),
    };
    let mut text = one(random);
    for _ in 0..random.below(3) {
        text += random.pick(&["&", ","]);
        text += &one(random);
    }
    text
}

fn plan(gentle: bool, random: &mut Random) -> String {
    if random.one_in(6) {
        return "by uid\n".into();
    }
    let capacity = random.within(if gentle { 100 } else { 1 }, 1000);
    let mover = random.one_in(4);
    let by = random.pick(&["uid", "uid", "uid", "jobid", "device"]);
    let mut text = format!("by {by}\n");
    if random.one_in(3) {
        let period = random.within(1, 100);
        text += &format!("tune period={period}ms fast=500ms slow=2s headroom=5%\n");
    }
    text += &format!("group all capacity={capacity}MB/s");
    if mover {
        text += " strategy=mover";
    }
    text += &format!("\ndefault class={} min=1MB/s\n", random.pick(CLASSES));
    for user in 0..random.below(6) {
        let name = match by {
            "uid" => (1000 + user).to_string(),
            "jobid" => format!("fio.{}*", 1000 + user),
            _ => format!("d{user}*"),
        };
        let class = if mover { "mover" } else { random.pick(CLASSES) };
        let least = random.within(1, capacity);
        text += &format!("client {name} class={class} min={least}MB/s\n");
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
        let mut random = Random::new(3);
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
