// SPDX-License-Identifier: GPL-2.0-only

//! Tests of reading valid and invalid files.

use super::*;

fn faults(text: &str) -> Vec<String> {
    let (_, faults) = read_for_mock([("f", text)]);
    faults.iter().map(Fault::to_string).collect()
}

#[test]
fn everything_at_once() {
    let section = parse_one(
        "[service.ost_io]\ncpts = 2\nslots = 16\npolicy = \"tbf uid\"\n\
         high_priority.policy = \"fairshare uid_fair\"\n\
         high_priority.ratio = 5\nparameters = { nrs_fairshare_delta_ms = 50, at_min = 7, \
         nrs_crrn_quantum = { hp = 4 }, nrs_pop = 'overlap', \
         nrs_delay_pct = 'hp_delay_pct: 0  reg_delay_pct: 50' }\n\
         weights = { 'uid:1000' = 2, 'jobid:\"a b\"' = '3' }\ntimeouts.at_max = 500\n\
         [[service.ost_io.rule]]\nname = 'a'\nmatch = ' {1} '\nrate = '10MB/s'\nminrate = 0\n\
         also = ['b']\n\
         [[service.ost_io.rule]]\nname = 'b'\nmatch = 'uid={2}'\nborrow = true\nrealtime = 1\n\
         [[service.ost_io.rule]]\nname = 'default'\nrate = 77\n",
    )
    .unwrap();
    let state = section.state;
    assert_eq!(section.place.to_string(), "f:1:10");
    assert_eq!(state.cpts, Some(2));
    let want = r#"
slots 16
nrs_crrn_quantum reg_quantum:8 hp_quantum:4
nrs_delay_pct reg_delay_pct:50 hp_delay_pct:0
nrs_fairshare_delta_ms 50
nrs_pop overlap
high_priority_ratio 5
at_min 7
at_max 500
nrs_policies tbf reg uid
nrs_policies fairshare hp uid_fair
nrs_tbf_rule reg change default rate=77
nrs_tbf_rule reg start b uid={2} rate=10000 realtime=1 borrow=1
nrs_tbf_rule reg start a uid={1} rate=10MB/s
nrs_tbf_rule reg change a also=b
nrs_fairshare_weights jobid:"a b":3,uid:1000:2
"#;
    assert_eq!(state.text(), want.trim_start());
}

#[test]
fn rules_of_each_head() {
    let rule = |name: &str, head: &str| {
        format!("[[service.s.rule]]\nname = '{name}'\nmatch = 'uid={{1}}'\nhead = '{head}'\n")
    };
    let text = "[service.s]\npolicy = 'tbf uid'\nhigh_priority.policy = 'tbf uid+gid'\n";
    let text = [text, &rule("a", "reg"), &rule("a", "hp"), &rule("b", "all")].concat();
    let state = parse_one(&text).unwrap().state;
    let names = state.rules().map(|rules| {
        let names = rules.unwrap().rules().map(|rule| rule.name.to_string());
        names.collect::<Vec<_>>().join(" ")
    });
    assert_eq!(names, ["a b default", "a b default"]);
}

#[test]
fn a_service_is_defined_once() {
    let (wanted, faults) = read_for_mock([
        (
            "a.toml",
            "[service.s]\nslots = 1\n[module]\ndefault_slots = 7\n[disk.sda]\nservice = 's'\n\
             [device.a]\ndevice = '/dev/sdb'\nservice = 's'\n",
        ),
        (
            "b.toml",
            "[module]\ndefault_slots = 7\n\n[service.s]\nslots = 2\n[disk.sda]\nservice = 's'\n\
             [device.a]\ndevice = '/dev/sdc'\nservice = 's'\n",
        ),
    ]);
    let faults: Vec<String> = faults.iter().map(Fault::to_string).collect();
    assert_eq!(
        faults,
        [
            "b.toml:2:1: module.default_slots: already set in a.toml:4:1",
            "b.toml:4:10: service.s: already defined in a.toml:1:10",
            "b.toml:6:7: disk.sda: already defined in a.toml:5:7",
            "b.toml:8:9: device.a: already defined in a.toml:7:9",
        ]
    );
    assert_eq!(wanted.services["s"].state.text(), "slots 1\n");
    assert_eq!(wanted.module["default_slots"], "7");
    assert_eq!(wanted.devices["a"].1.target, "/dev/sdb");
}

/// Files, each in one line in which ` ; ` ends a line, with the beginning of the only fault.
const REFUSED: &str = r#"
x = 1
    1:1: the file.x: unknown key
servce.a = {}
    1:1: the file.servce: unknown key; did you mean `service`?
service = 1
    1:11: service: is a number, not a table
service.a = 1.5
    1:13: service.a: is a floating-point number, not a table
[service.".a"]
    1:10: service..a: invalid service name
[service.""]
    1:10: service.: invalid service name
module.default_slots = 0
    1:24: module.default_slots: 0 is out of range (1 to 65535)
module.direct_run = '1'
    1:21: module.direct_run: is a string, not a number
module.default_slots = '9'
    1:24: module.default_slots: is a string, not a number
module.classes = 9
    1:8: module.classes: unknown key
disk = 1
    1:8: disk: is a number, not a table
[disk.sda]
    1:7: disk.sda: missing key `service`
[disk.sda] ; service = '.s'
    2:11: disk.sda.service: 1 to 31 letters
[disk.sda] ; service = 's' ; jobid = '%z'
    3:1: disk.sda.jobid: unknown key
[disk.sda] ; service = 's' ; jobid_name = '%z'
    3:14: disk.sda.jobid_name: jobid format has a code other than
[disk.sda] ; service = 's' ; jobid_name = '%e %u'
    3:14: disk.sda.jobid_name: expected printable bytes without blanks
[disk.sda] ; service = 's' ; stream = 'x'
    3:10: disk.sda.stream: expected hint, cgroup or none
device = 'sda'
    1:10: device: is a string, not a table
[[device]]
    1:3: device: is a list, not a table
[device.a] ; service = 's'
    1:9: device.a: missing key `device`
[device.a] ; device = '/dev/sdb'
    1:9: device.a: missing key `service`
[device.a] ; device = 'sdb' ; service = 's'
    2:10: device.a.device: expected a path that starts with /
[device.a] ; device = '/dev/sdb' ; service = 's t'
    3:11: device.a.service: 1 to 31 letters
[device."a b"] ; device = '/dev/sdb' ; service = 's'
    1:9: device.a b: expected 1 to 127 letters
[device."../a"] ; device = '/dev/sdb' ; service = 's'
    1:9: device.../a: expected 1 to 127 letters
[device.--force] ; device = '/dev/sdb' ; service = 's'
    1:9: device.--force: expected 1 to 127 letters
[device.""] ; device = '/dev/sdb' ; service = 's'
    1:9: device.: expected 1 to 127 letters
[device.a] ; device = '/dev/sdb' ; service = 's' ; offset = -1
    4:10: device.a.offset: -1 is out of range (0 to
[device.a] ; device = '/dev/sdb' ; service = 's' ; sectors = 0
    4:11: device.a.sectors: 0 is out of range (1 to
[device.a] ; device = '/dev/sdb' ; service = 's' ; sectors = '8'
    4:11: device.a.sectors: is a string, not a number
[device.a] ; device = '/dev/sdb' ; service = 's' ; nid = '10.0.0.7'
    4:7: device.a.nid:
[device.a] ; device = '/dev/sdb' ; service = 's' ; jobid = 'a b'
    4:9: device.a.jobid: expected 1 to 31 printable bytes
[device.a] ; device = '/dev/sdb' ; service = 's' ; jobid = 'x 2 nid 1.2.3.4@tcp'
    4:9: device.a.jobid: expected 1 to 31 printable bytes
[device.a] ; device = '/dev/sdb' ; service = 's' ; size = 4097
    4:8: device.a.size: 4097 is out of range (1 to 4096)
[device.a] ; device = '/dev/sdb' ; service = 's' ; opportunity = true
    4:15: device.a.opportunity: is true or false, not a string
[device.a] ; device = '/dev/sdb' ; service = 's' ; on_timeout = 'never'
    4:14: device.a.on_timeout: expected wait or fail
[device.a] ; device = '/dev/sdb' ; service = 's' ; on-timeout = 'fail'
    4:1: device.a.on-timeout: unknown key; did you mean `on_timeout`?
[service.s] ; slot = 1
    2:1: service.s.slot: unknown key; did you mean `slots`?
[service.s] ; cpts = 64
    2:8: service.s.cpts: 64 is out of range (1 to 63)
[service.s] ; slots = 0
    2:9: service.s.slots: not a number from 1 to 65535, or auto
[service.s] ; slots = -1
    2:9: service.s.slots: not a number
[service.s] ; slots = []
    2:9: service.s.slots: is a list, not a string or a number
[service.s] ; slots = 1 ; parameters.slots = 2
    3:12: service.s.parameters.slots: already set in line 2
[service.s] ; parameters.stal_ms = 1
    2:12: service.s.parameters.stal_ms: unknown key; did you mean `stall_ms`?
[service.s] ; parameters.nrs_policies = 1
    2:12: service.s.parameters.nrs_policies: set the key `policy` instead
[service.s] ; parameters.nrs_fairshare_weights = 1
    2:12: service.s.parameters.nrs_fairshare_weights: set the table
[service.s] ; parameters.nrs_tbf_rule = 1
    2:12: service.s.parameters.nrs_tbf_rule: set tables
[service.s] ; parameters.config = 1
    2:12: service.s.parameters.config: set the keys
[service.s] ; parameters.nrs_qbm_config = 1
    2:12: service.s.parameters.nrs_qbm_config: set the table
[service.s] ; parameters.clients = 1
    2:12: service.s.parameters.clients: the parameter is read-only
[service.s] ; parameters.at_stats_reset = 1
    2:12: service.s.parameters.at_stats_reset: the parameter is write-only
[service.s] ; parameters = 1
    2:14: service.s.parameters: is a number, not a table
[service.s] ; parameters.nrs_crrn_quantum = { x = 1 }
    2:33: service.s.parameters.nrs_crrn_quantum.x: unknown key
[service.s] ; parameters.nrs_crrn_quantum = 0
    2:31: service.s.parameters.nrs_crrn_quantum:
[service.s] ; parameters.nrs_crrn_quantum = 'hp_quanta:4'
    2:31: service.s.parameters.nrs_crrn_quantum: expected a value, reg_NAME:VALUE or hp_NAME:VALUE
[service.s] ; parameters.nrs_fairshare_mode = 'uid'
    2:33: service.s.parameters.nrs_fairshare_mode: mode does not end in _fair
[service.s] ; parameters.at_min = { reg = 1 }
    2:21: service.s.parameters.at_min: is a table, not a string or a number
[service.s] ; parameters.nrs_fairshare_mode = 'uid_fair weight=uid:5:2'
    2:33: service.s.parameters.nrs_fairshare_mode: set weights in the table
[service.s] ; timeouts.at_min = 700
    2:19: service.s.timeouts.at_min: at_min exceeds at_max
[service.s] ; timeouts.at_max = 4
    2:19: service.s.timeouts.at_max: at_min exceeds at_max
[service.s] ; parameters.nrs_delay_max = 4
    2:28: service.s.parameters.nrs_delay_max: nrs_delay_min exceeds nrs_delay_max
[service.s] ; parameters = { nrs_delay_max = 4, nrs_delay_min = 7 }
    2:51: service.s.parameters.nrs_delay_min: nrs_delay_min exceeds nrs_delay_max
[service.s] ; high_priority = 4
    2:17: service.s.high_priority: is a number, not a table
[service.s] ; high_priority.sources = 'all'
    2:25: service.s.high_priority.sources: not a list of realtime, meta
[service.s] ; policy = 5
    2:10: service.s.policy: is a number, not a string
[service.s] ; policy = ''
    2:10: service.s.policy: command is empty (syntax
[service.s] ; policy = 'fifo hp'
    2:10: service.s.policy: names a head
[service.s] ; policy = 'fairshar'
    2:10: service.s.policy: unknown policy `fairshar`; did you mean `fairshare`?
[service.s] ; policy = 'elevator'
    2:10: service.s.policy: unknown policy `elevator`:
[service.s] ; policy = 'fairshare uid'
    2:10: service.s.policy: mode does not end in _fair
[service.s] ; policy = 'fifo x'
    2:10: service.s.policy:
[service.s] ; high_priority.policy = 'tbf size'
    2:24: service.s.high_priority.policy: expected fields joined by '+'
[service.s] ; weights = 5
    2:11: service.s.weights: is a number, not a table
[service.s] ; weights.'uid:x' = 5
    2:9: service.s.weights."uid:x":
[service.s] ; weights.'uid:1' = 0
    2:9: service.s.weights."uid:1":
[service.s] ; weights.'uid:1 uid:2' = 3
    2:9: service.s.weights."uid:1 uid:2":
[service.s] ; weights.'uid:1:3,uid:2' = 3
    2:9: service.s.weights."uid:1:3,uid:2": expected FIELD:VALUE
[service.s] ; owners = { '/a' = '1' }
    2:12: service.s.owners."/a": expected PATH=UID:GID
[service.s] ; parameters.nrs_owners = '/a=1:2'
    2:12: service.s.parameters.nrs_owners: set the table
[service.s] ; weights = { 'nid:1.2.3.4@tcp' = 3, 'nid:1.2.3.4@tcp0' = 4 }
    2:11: service.s.weights: duplicate name
[service.s] ; rule = 5
    2:8: service.s.rule: is a number, not a list of tables: write [[service.s.rule]]
"#;

/// Checks files that begin with `head`. `table` has the rest of each in one line, in which ` ; `
/// ends a line, and in the next line the beginning of the only fault. `marks` stand for texts.
pub fn check_refusals(head: &str, table: &str, marks: &[(&str, &str)]) {
    let lines: Vec<&str> = table.trim_matches('\n').lines().collect();
    for pair in lines.chunks(2) {
        let mut text = pair[0].to_owned();
        for (mark, meaning) in marks {
            text = text.replace(mark, meaning);
        }
        let found = faults(&format!("{head}{}\n", text.replace(" ; ", "\n")));
        let want = format!("f:{}", pair[1].trim_start());
        assert!(found[0].starts_with(&want), "{text}: {found:?}");
        assert_eq!(found.len(), 1, "{text}: {found:?}");
    }
}

#[test]
fn what_is_refused() {
    check_refusals("", REFUSED, &[]);
}

/// Wrong rules; TBF stands for five lines, RULE and FIFO for one.
const REFUSED_RULES: &str = r#"
TBF ; rate = 0
    6:8: service.s.rule[0].rate: expected a rate: 1 to 10000000
TBF ; rate = true ; borrow = 2
    7:10: service.s.rule[0].borrow: is not true or false
TBF ; rate = 5 ; minrate = 6
    7:11: service.s.rule[0].minrate: minrate must have the unit of rate
TBF ; minrate = '6MB/s'
    6:11: service.s.rule[0].minrate: minrate must have the unit
TBF ; rank = 'b'
    6:1: service.s.rule[0].rank: unknown key
TBF ; also = ['b']
    6:8: service.s.rule[0].also: no rule b
TBF ; also = ['a']
    6:8: service.s.rule[0].also: a rule cannot name itself in also=
TBF ; also = 'b+c+d+e'
    6:8: service.s.rule[0].also: too many rules in also= (limit: 3)
TBF ; also = [5]
    6:9: service.s.rule[0].also: is a number, not a string
TBF ; head = 'high'
    6:8: service.s.rule[0].head: is not reg, hp or all
TBF ; RULE
    6:1: service.s.rule[1]: missing key `name`
TBF ; RULE ; name = 'b'
    6:1: service.s.rule[1]: missing key `match`
TBF ; RULE ; name = 'b-c' ; match = ''
    7:8: service.s.rule[1].name: invalid rule name
TBF ; RULE ; name = 'a' ; match = 'uid={2}'
    7:8: service.s.rule[1].name: duplicate rule a on this head
TBF ; RULE ; name = 'b' ; match = 'uid={2 1,2}'
    8:17: service.s.rule[1].match: expected a number, 0 to 4294967295, found `1,2}`
TBF ; RULE ; name = 'b' ; match = '  gid={2}'
    8:12: service.s.rule[1].match: field is not part
TBF ; RULE ; name = 'b' ; match = 'uid={2} rate=5'
    8:9: service.s.rule[1].match: unexpected text after the conditions
TBF ; RULE ; name = 'b' ; match = 7
    8:9: service.s.rule[1].match: is a number, not a string
TBF ; RULE ; name = 'default' ; match = '*'
    8:1: service.s.rule[1].match: not allowed with `default`
TBF ; RULE ; name = 'default' ; rate = 5 ; minrate = 9
    9:11: service.s.rule[1].minrate: minrate must have
TBF ; [service.s.parameters] ; nrs_tbf_rules_max = 1 ; RULE ; name = 'b' ; match = '{1}'
    4:8: service.s.rule[0].name: too many rules (limit: nrs_tbf_rules_max)
[service.s] ; RULE ; name = 'a' ; match = '{1}'
    2:1: service.s.rule[0]: rules require policy = "tbf
[service.s] ; policy = 'tbf uid' ; FIFO ; RULE ; name = 'a' ; match = '{1}' ; head = 'hp'
    7:8: service.s.rule[0].head: this head does not run tbf
[service.s] ; policy = 'tbf uid+gid' ; RULE ; name = 'a' ; match = '{1}'
    5:10: service.s.rule[0].match: 
"#;

#[test]
fn rules_refused() {
    let tbf = "[service.s] ; policy = 'tbf uid' ; RULE ; name = 'a' ; match = 'uid={1}'";
    let fifo = "high_priority.policy = 'fifo'";
    let marks = [("TBF", tbf), ("RULE", "[[service.s.rule]]"), ("FIFO", fifo)];
    check_refusals("", REFUSED_RULES, &marks);
}
