// SPDX-License-Identifier: GPL-2.0-only

//! The grammar: values that the control files take.
//!
//! *Gentle* values let a load go on, slowly at worst; the others may stop it. `delay` is gentle once its times are
//! ([`GENTLE_DELAY`]): its defaults are minutes.

use crate::chance::Chance;

/// The control files that are written.
pub const WRITTEN: &[&str] = &[
    "nrs_policies",
    "nrs_fairshare_mode",
    "nrs_fairshare_weights",
    "nrs_fairshare_delta_ms",
    "nrs_fairshare_opp_threshold",
    "nrs_fairshare_cost_model",
    "nrs_fairshare_select",
    "nrs_fairshare_locality",
    "nrs_fairshare_cross_cpt",
    "nrs_fairshare_size_source",
    "nrs_fairshare_size_window_s",
    "nrs_fairshare_size_max",
    "nrs_fairshare_stats_reset",
    "nrs_crrn_quantum",
    "nrs_orr_quantum",
    "nrs_trr_quantum",
    "nrs_orr_offset_type",
    "nrs_trr_offset_type",
    "nrs_orr_supported",
    "nrs_trr_supported",
    "nrs_delay_min",
    "nrs_delay_max",
    "nrs_delay_pct",
    "nrs_tbf_rule",
    "nrs_tbf_rate",
    "nrs_tbf_depth",
    "nrs_tbf_cost_model",
    "nrs_tbf_global_rate",
    "nrs_tbf_rules_max",
    "nrs_tbf_cache_size",
    "nrs_tbf_stats_reset",
    "nrs_qbm_config",
    "nrs_qbm_stats_reset",
    "nrs_qbm_clients_max",
    "high_priority_ratio",
    "high_priority_sources",
    "nrs_pop",
    "nrs_pop_window",
    "buffer_max",
    "at_min",
    "at_max",
    "at_history",
    "at_extra",
    "at_early_margin",
    "at_factor",
    "at_increment",
    "at_initial",
    "at_estimator",
    "at_deviations",
    "at_count_policy_delay",
    "at_unhealthy_factor",
    "at_stats_reset",
    "obd_timeout",
    "slots",
    "stall_ms",
];

/// Drawn again and again by storms of changes, as they change most.
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

/// What makes `delay` gentle.
pub const GENTLE_DELAY: &[(&str, &str)] = &[
    ("nrs_delay_min", "0"),
    ("nrs_delay_max", "1"),
    ("nrs_delay_pct", "5"),
];

const LEVELS: &[&str] = &["gid", "uid", "jobid", "projid", "nid", "nodemap", "size"];
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

/// A value that `file` takes.
pub fn value(file: &str, gentle: bool, chance: &mut Chance) -> String {
    match file {
        "nrs_policies" => policy(chance),
        "nrs_fairshare_mode" => mode(chance),
        "nrs_fairshare_weights" => weights(chance),
        "nrs_tbf_rule" => rule(gentle, chance),
        "nrs_qbm_config" => plan(gentle, chance),
        "nrs_fairshare_cost_model" => chance.pick(&["pages", "rpcs", "time"]).to_owned(),
        "nrs_fairshare_select" => chance.pick(&["deadline", "paper"]).to_owned(),
        "nrs_fairshare_size_source" => chance.pick(&["nids", "suffix"]).to_owned(),
        "nrs_tbf_cost_model" => chance.pick(&["rpcs", "pages"]).to_owned(),
        "nrs_pop" => chance
            .pick(&["none", "overlap", "stream", "graph"])
            .to_owned(),
        "high_priority_sources" => chance
            .pick(&["none", "realtime", "meta prio", "realtime meta prio"])
            .to_owned(),
        "at_estimator" => chance.pick(&["worst", "average"]).to_owned(),
        "nrs_orr_offset_type" | "nrs_trr_offset_type" => {
            heads(file, chance.pick(&["physical", "logical"]), chance)
        }
        "nrs_orr_supported" | "nrs_trr_supported" => {
            let value = chance.pick(&["reads", "writes", "reads_and_writes"]);
            heads(file, value, chance)
        }
        "nrs_crrn_quantum" | "nrs_orr_quantum" | "nrs_trr_quantum" | "nrs_delay_min"
        | "nrs_delay_max" | "nrs_delay_pct" => {
            let (low, high) = range(file, gentle);
            let value = chance.within(low, high).to_string();
            heads(file, &value, chance)
        }
        _ if file.ends_with("_reset") => chance.pick(&["1", "x", "reset all"]).to_owned(),
        _ => {
            let (low, high) = range(file, gentle);
            chance.within(low, high).to_string()
        }
    }
}

/// What numbers a file takes; `gentle`, those that do no harm.
fn range(file: &str, gentle: bool) -> (u64, u64) {
    match file {
        "nrs_fairshare_delta_ms" => (10, 1000),
        "nrs_fairshare_opp_threshold" => (0, 256),
        "nrs_fairshare_locality"
        | "nrs_fairshare_cross_cpt"
        | "nrs_tbf_global_rate"
        | "at_count_policy_delay" => (0, 1),
        "nrs_fairshare_size_window_s" => (2, 600),
        "nrs_fairshare_size_max" => (1, 4096),
        "nrs_crrn_quantum" | "nrs_orr_quantum" | "nrs_trr_quantum" => {
            (1, if gentle { 300 } else { 65535 })
        }
        // Of ten requests one waits for a second.
        "nrs_delay_min" => (0, if gentle { 0 } else { 65535 }),
        "nrs_delay_max" => (u64::from(gentle), if gentle { 1 } else { 65535 }),
        "nrs_delay_pct" => (0, if gentle { 10 } else { 100 }),
        "nrs_tbf_rate" => (if gentle { 500 } else { 1 }, 1_000_000),
        "nrs_tbf_depth" => (1, if gentle { 100 } else { 1_000_000 }),
        "nrs_tbf_rules_max" => (1, 65536),
        "nrs_tbf_cache_size" => (1, 1_048_576),
        "nrs_qbm_clients_max" => (16, 16384),
        "high_priority_ratio" => (0, if gentle { 100 } else { u64::from(u32::MAX) }),
        "nrs_pop_window" => (1, 65536),
        "buffer_max" => (256, if gentle { 65536 } else { 1_048_576 }),
        "at_max" => (0, 3600),
        "at_history" => (4, 3600),
        "at_factor" => (100, 1000),
        "at_increment" => (0, 600),
        "at_deviations" => (1, 100),
        "at_unhealthy_factor" => (0, 1000),
        "obd_timeout" => (0, 3600),
        "slots" => (1, if gentle { 64 } else { 65535 }),
        "stall_ms" => (100, if gentle { 2000 } else { 600_000 }),
        // `at_min` and its like.
        _ => (1, 3600),
    }
}

/// A value for both heads, or for one.
fn heads(file: &str, value: &str, chance: &mut Chance) -> String {
    let name = file.trim_start_matches("nrs_");
    let name = ["crrn_", "orr_", "trr_"]
        .iter()
        .find_map(|policy| name.strip_prefix(policy))
        .unwrap_or(name);
    match chance.below(4) {
        0 => format!("reg_{name}:{value}"),
        1 => format!("hp_{name}:{value}"),
        2 => format!("hp_{name}:{value} reg_{name}:{value}"),
        _ => value.to_owned(),
    }
}

fn policy(chance: &mut Chance) -> String {
    let head = chance.pick(&["", "", "", " reg", " hp"]);
    let name = chance.pick(&[
        "fifo",
        "crrn",
        "orr",
        "trr",
        "tbf",
        "tbf",
        "delay",
        "fairshare",
        "fairshare",
        "qbm",
    ]);
    let argument = match name {
        "tbf" if !chance.one_in(4) => format!(" {}", chance.pick(FIELDS)),
        "fairshare" if !chance.one_in(4) => format!(" {}", mode(chance)),
        _ => String::new(),
    };
    format!("{name}{head}{argument}")
}

fn mode(chance: &mut Chance) -> String {
    let mut levels = LEVELS.to_vec();
    let mut chosen = Vec::new();
    for _ in 0..chance.within(1, 3) {
        let level = levels.remove(chance.below(levels.len() as u64) as usize);
        chosen.push(level);
        // Both name jobs.
        match level {
            "jobid" => levels.retain(|other| *other != "size"),
            "size" => levels.retain(|other| *other != "jobid"),
            _ => {}
        }
    }
    format!("{}_fair", chosen.join("_then_"))
}

fn weights(chance: &mut Chance) -> String {
    if chance.one_in(12) {
        return "clear".into();
    }
    let items: Vec<String> = (0..chance.within(1, 4))
        .map(|_| {
            let (field, value) = match chance.below(4) {
                0 => ("uid", chance.within(1000, 1005).to_string()),
                1 => ("gid", chance.within(0, 5).to_string()),
                2 => ("jobid", format!("fio.{}", chance.within(1000, 1005))),
                _ => ("jobid", "job.*".to_owned()),
            };
            if chance.one_in(4) {
                format!("-{field}:{value}")
            } else {
                format!("{field}:{value}:{}", chance.within(1, 10_000))
            }
        })
        .collect();
    items.join(",")
}

/// Names that storms fight for.
fn rule_name(chance: &mut Chance) -> String {
    format!("r{}", chance.below(12))
}

fn rule(gentle: bool, chance: &mut Chance) -> String {
    let head = chance.pick(&["", "", "reg ", "hp "]);
    let name = rule_name(chance);
    match chance.below(8) {
        0 | 1 => format!("{head}stop {name}"),
        2 => format!("{head}change {name} rate={}", rate(gentle, chance)),
        3 => format!(
            "{head}change {name} rank={}",
            if chance.one_in(3) {
                "default".to_owned()
            } else {
                rule_name(chance)
            }
        ),
        4 => format!("change default rate={}", rate(gentle, chance)),
        _ => {
            let mut text = format!("{head}start {name} {}", conditions(chance));
            text += &format!(" rate={}", rate(gentle, chance));
            match chance.below(6) {
                0 => text += " realtime=1",
                1 => text += " borrow=1",
                2 => text += " minrate=1",
                3 => text += &format!(" also={}", rule_name(chance)),
                4 => text += &format!(" rank={}", rule_name(chance)),
                _ => {}
            }
            text
        }
    }
}

fn rate(gentle: bool, chance: &mut Chance) -> String {
    let least = if gentle { 200 } else { 1 };
    match chance.below(4) {
        0 => format!("{}MiB/s", chance.within(if gentle { 8 } else { 1 }, 100)),
        1 => format!("{}MB/s", chance.within(if gentle { 8 } else { 1 }, 100)),
        2 => format!("{}iops", chance.within(least, 20_000)),
        _ => chance.within(least, 20_000).to_string(),
    }
}

fn conditions(chance: &mut Chance) -> String {
    let one = |chance: &mut Chance| match chance.below(6) {
        0 => format!("uid={{{}}}", chance.within(1000, 1005)),
        1 => format!(
            "uid={{{} {}}}",
            chance.within(0, 2),
            chance.within(1000, 1005)
        ),
        2 => format!("gid={{{}}}", chance.within(0, 5)),
        3 => chance
            .pick(&[
                "jobid={fio.*}",
                "jobid={git.* tar.0 sqlite3.0}",
                "jobid={*.0}",
            ])
            .into(),
        4 => chance
            .pick(&["opcode={ost_write}", "opcode={ost_read ost_write}"])
            .into(),
        _ => "nid={10.0.[0-9,12].*@tcp}".to_owned(),
    };
    let mut text = one(chance);
    for _ in 0..chance.below(3) {
        text += chance.pick(&["&", ","]);
        text += &one(chance);
    }
    text
}

fn plan(gentle: bool, chance: &mut Chance) -> String {
    if chance.one_in(6) {
        return "by uid\n".into();
    }
    let capacity = chance.within(if gentle { 100 } else { 1 }, 1000);
    let mover = chance.one_in(4);
    let by = chance.pick(&["uid", "uid", "uid", "jobid", "device"]);
    let mut text = format!("by {by}\n");
    if chance.one_in(3) {
        let period = chance.within(1, 100);
        text += &format!("tune period={period}ms fast=500ms slow=2s headroom=5%\n");
    }
    text += &format!("group all capacity={capacity}MB/s");
    if mover {
        text += " strategy=mover";
    }
    text += &format!("\ndefault class={} min=1MB/s\n", chance.pick(CLASSES));
    for user in 0..chance.below(6) {
        let name = match by {
            "uid" => (1000 + user).to_string(),
            "jobid" => format!("fio.{}*", 1000 + user),
            _ => format!("d{user}*"),
        };
        let class = if mover { "mover" } else { chance.pick(CLASSES) };
        let least = chance.within(1, capacity);
        text += &format!("client {name} class={class} min={least}MB/s\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_has_values() {
        let mut chance = Chance::new(3);
        for file in WRITTEN.iter().chain(BUSY) {
            for gentle in [false, true] {
                for _ in 0..50 {
                    let value = value(file, gentle, &mut chance);
                    assert!(*file == "nrs_qbm_config" || !value.is_empty(), "{file}");
                    assert!(value.len() < 4096, "{file}");
                }
            }
        }
    }

    #[test]
    fn gentle_values_do_not_stop_a_load() {
        let mut chance = Chance::new(4);
        for _ in 0..500 {
            let slots: u64 = value("slots", true, &mut chance).parse().unwrap();
            assert!((1..=64).contains(&slots));
            let percent = value("nrs_delay_pct", true, &mut chance);
            let percent = percent.rsplit(':').next().unwrap();
            assert!(percent.parse::<u64>().unwrap() <= 10);
        }
    }
}
