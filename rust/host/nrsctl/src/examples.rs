// SPDX-License-Identifier: GPL-2.0-only

//! Examples of all commands, for `--help` and the manual pages.

use clap::{Command, CommandFactory as _};

use crate::cli::Cli;

/// Example command lines without the program name; a test parses each of them.
#[rustfmt::skip]
pub const EXAMPLES: &[&str] = &[
    "get_param ost_io.slots",
    "get_param -n 'ost.OSS.*.nrs_policies'",
    "set_param ost_io.slots=16 ost_io.nrs_policies='tbf uid'",
    "set_param '*.slots=auto'",
    "list_param",
    "list_param -F 'ost_io.nrs_tbf_*'",
    "service list",
    "service show ost_io --json",
    "service add backup --cpts 2",
    "service remove backup",
    "service set backup slots=4 nrs_policies='fairshare uid_fair'",
    "device list",
    "device show files",
    "device add files /dev/sdb ost_io --save",
    "device above md0 --save",
    "device add alice /dev/sdc san --nid 10.0.0.7@tcp --jobid alice",
    "device remove files --save",
    "device schedule sda san --save",
    "device unschedule sda mq-deadline",
    "rule list ost_io --head reg",
    "rule show ost_io batch",
    "rule test ost_io uid=alice,opcode=ost_read",
    "rule start ost_io batch 'uid={alice 1003}&gid={staff}' --rate 5MB/s",
    "rule start ost_io users 'uid={1002}' --rate 100MB/s --minrate 10MB/s --borrow",
    "rule change ost_io batch --rate 12MB/s --rank default",
    "rule stop ost_io batch",
    "weight list ost_io",
    "weight set ost_io uid:alice=2 gid:staff=3 'jobid:backup*=1'",
    "weight follow ost_io --once",
    "weight unset ost_io uid:alice",
    "weight unset ost_io --all",
    "limit list ost_io",
    "limit set ost_io uid:alice --max 100iops,40MB/s --burst 10s",
    "limit set ost_io 'cgroup:/machine.slice/*' --class idle",
    "limit set ost_io 'uid:bob&opcode:ost_write' --max 10MB/s",
    "limit test ost_io uid=bob,opcode=ost_write",
    "limit unset ost_io uid:alice",
    "owner list ost_io",
    "owner set ost_io /system.slice/nginx.service=33:33 '/machine.slice/*=1000:1000'",
    "owner unset ost_io /system.slice/nginx.service",
    "owner unset ost_io --all",
    "policy list ost_io",
    "policy set ost_io fairshare uid_fair",
    "policy set ost_io tbf uid+jobid --head reg",
    "status",
    "status ost_io --watch=5",
    "monitor",
    "monitor ost_io --json --count 10",
    "measure /dev/sdb",
    "measure --time 60 --name all /dev/sdb",
    "reset ost_io",
    "reset '*' tbf timeouts",
    "top",
    "top ost_io --batch 1 --sort queued --numeric",
    "record --interval 5 --for 3600 --out day.jsonl",
    "plot day.jsonl --out day.svg",
    "check /etc/nrs",
    "apply --dry-run",
    "apply --service ost_io --verbose /etc/nrs/nrs.toml",
    "save /etc/nrs/nrs.toml",
    "agent status",
    "agent status --json",
    "exporter --listen 127.0.0.1:9719",
    "exporter --textfile /var/lib/prometheus/nrs.prom --every 15",
];

/// Returns the examples of the command `path`, its words separated by a blank, and of its
/// subcommands.
pub fn of(path: &str) -> impl Iterator<Item = &'static str> + '_ {
    let own = move |line: &&&str| {
        let rest = line.strip_prefix(path);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
    };
    EXAMPLES.iter().filter(own).copied()
}

/// Returns the clap command with the examples in its help.
pub fn command() -> Command {
    add(Cli::command(), "")
}

fn add(command: Command, path: &str) -> Command {
    let lines: Vec<&str> = of(path).collect();
    let mut command = match path.is_empty() || lines.is_empty() {
        true => command,
        false => command.after_help(format!("Examples:\n  nrsctl {}", lines.join("\n  nrsctl "))),
    };
    let names: Vec<String> = command
        .get_subcommands()
        .map(|one| one.get_name().into())
        .collect();
    for name in names {
        let path = format!("{path} {name}");
        command = command.mut_subcommand(name, |below| add(below, path.trim_start()));
    }
    command
}
