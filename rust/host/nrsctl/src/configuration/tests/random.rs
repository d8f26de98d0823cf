// SPDX-License-Identifier: GPL-2.0-only

//! Changes between random configurations.

use proptest::prelude::*;

use super::*;

/// Returns a strategy for a selection of lines of a section.
fn some_lines() -> impl Strategy<Value = Vec<&'static str>> {
    let lines = vec![
        "slots = 5",
        "high_priority.ratio = 3",
        "high_priority.sources = 'meta prio'",
        "parameters.stall_ms = 0",
        "parameters.nrs_tbf_rate = 77",
        "parameters.nrs_tbf_rules_max = 6",
        "parameters.nrs_tbf_depth = 9",
        "parameters.nrs_fairshare_mode = 'uid_then_jobid_fair'",
        "parameters.nrs_fairshare_select = 'paper'",
        "parameters.nrs_trr_supported = { hp = 'writes' }",
        "parameters.nrs_delay_min = 400",
        "parameters.nrs_delay_max = 500",
        "parameters.nrs_pop = 'graph'",
        "timeouts.at_early_margin = 1",
        "timeouts.at_min = 2",
        "timeouts.at_extra = 3",
        "timeouts.at_max = 700",
        "weights.'uid:5' = 2",
        "weights.'jobid:b*' = 3",
        "weights.'jobid:\"a b?\"' = 4",
        "weights.'nid:10.0.0.7@tcp' = 5",
        "weights.'uid:5&jobid:\"a&gid:1\"' = 6",
        "limits.'uid:*&opcode:ost_write' = 'max=20%+100iops'",
        "limits.'ioprio:idle' = 'class=normal'",
        "owners.'/a/*' = '1:2'",
        "owners.'\"/b \\\\c\"' = '3:4'",
        "qbm.by = 'uid'",
        "qbm.tune.low = '0%'",
        "qbm.default = { class = 'low_share', min = '1%' }",
        "qbm.group = [{ name = 'g', capacity = '1GB/s', reserve_mover = '3%' }]",
        "qbm.client = [{ name = '7', class = 'fc', min = '1MB/s', max = '2MB/s' }]",
    ];
    proptest::sample::subsequence(lines.clone(), 0..=lines.len())
}

const POLICIES: [&str; 8] = [
    "fifo",
    "tbf uid",
    "tbf uid+gid",
    "tbf",
    "fairshare",
    "fairshare uid_fair",
    "qbm",
    "crrn",
];

/// Returns a strategy for a valid section.
fn some_section() -> impl Strategy<Value = String> {
    let rule = (0..5usize, 1..4u32, 0..24usize, 0..3usize);
    let rules = proptest::collection::vec(rule, 0..6);
    (some_lines(), 0..8usize, 0..8usize, rules)
        .prop_map(|(lines, regular, high, rules)| {
            let mut text = String::from("[service.a]\n");
            for line in lines {
                text += line;
                text.push('\n');
            }
            text += &format!(
                "policy = '{}'\nhigh_priority.policy = '{}'\n",
                POLICIES[regular], POLICIES[high]
            );
            for (name, uid, bits, head) in rules {
                let name = ["a", "b", "c", "d", "default"][name];
                text += &format!("[[service.a.rule]]\nname = '{name}'\n");
                if name != "default" {
                    text += &format!("match = 'uid={{{uid}}}'\n");
                }
                text += &format!("head = '{}'\n", ["all", "reg", "hp"][head]);
                if bits % 2 == 0 {
                    text += &format!("rate = '{}MB/s'\nminrate = '1MB'\n", uid + 1);
                }
                if bits % 3 == 0 {
                    text += "borrow = true\n";
                }
                if bits % 4 == 0 {
                    text += "also = ['a', 'b']\n";
                }
            }
            text
        })
        .prop_filter("a section that is right", |text| parse_one(text).is_ok())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60,
        max_global_rejects: 100_000,
        failure_persistence: None, ..ProptestConfig::default() })]

    /// Applies any configuration over any other: a second run changes nothing, the saved text
    /// equals the running state, and a refused write leaves the previous state.
    #[test]
    fn round_trip(from in some_section(), to in some_section(), taken in 0..2usize) {
        let module = Mock::of(&["a"]);
        applied(&module, &from);
        prop_assert_eq!(differs(&module, &from), None);
        let before = module.shown();
        module.refuse(taken, 1, FailureKind::Refused);
        if apply(&module, &to).1.is_err() {
            prop_assert_eq!(module.shown(), before);
            applied(&module, &to);
        }
        module.refused.set(None);
        prop_assert_eq!(differs(&module, &to), None);
        let text = saved(&module);
        prop_assert_eq!(differs(&module, &text), None);
        let fresh = Mock::of(&["a"]);
        applied(&fresh, &text);
        prop_assert_eq!(fresh.shown(), module.shown());
    }
}
