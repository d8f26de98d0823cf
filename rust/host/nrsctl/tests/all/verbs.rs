// SPDX-License-Identifier: GPL-2.0-only

//! Tests of the commands as typed by users. `verbs.txt` holds command lines with their output
//! (without empty lines), failures and writes.
//!
//! Each command has its own module with the services `ost_io` and `san`, or after lines `<--` with
//! the service `a`, which has these settings and behaves like a service of the module.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Command;

use clap::{CommandFactory as _, Parser as _};
use nrsctl::cli::Cli;
use nrsctl::examples;
use nrsctl::failure::{FailureKind, Result};
use nrsctl::kernel::{Device, Kernel as _};
use nrsctl::mock::Mock;

use crate::{pages, texts};

const SAN: &str = r#"{
    "clients": {
        "service": { "slots": 64, "limit": 32, "active": 1 },
        "clients": [
            { "client": "files",
              "counters": { "passed": 7, "queued": 1, "held": 0, "failed": 0, "state": "live" } },
            { "client": "server.12", "counters": { "passed": 0, "queued": 3 } }
        ]
    },
    "health": { "healthy": true, "progress": "" },
    "nrs_policies": [
        { "name": "regular", "policies": [{ "name": "tbf", "argument": "uid", "state": "started",
                                            "queued": 12, "active": 3 }] },
        { "name": "high", "policies": [{ "name": "fifo", "state": "started", "fallback": true,
                                         "queued": 0, "active": 0 }] }
    ],
    "nrs_tbf_stats": { "rules": [{ "rule": "greedy", "head": "reg", "classes": 1 }] }
}"#;
const RULES: &str = "nrs_policies tbf uid\n\
    nrs_tbf_rule reg start both uid={5} rate=5 minrate=2\n\
    nrs_tbf_rule reg start greedy uid={1002 2001} rate=10MB/s\n\
    nrs_tbf_rule hp start both uid={5} rate=5\n";

fn mock() -> Mock {
    let ost_io = [
        ("slots", "16\n"),
        ("nrs_crrn_quantum", "reg_quantum:8    \nhp_quantum:8    \n"),
        ("nrs_tbf_rule_error", ""),
        ("snapshot", r#"{"clients":{"service":{"slots":16}}}"#),
    ];
    let san = [
        ("slots", "8\n"),
        ("config", RULES),
        (
            "nrs_fairshare_weights",
            "uid:2001:2\ngid:7:3\njobid:\"a b\":4\n",
        ),
        ("nrs_fairshare_limits", "uid:2001:max=20+burst=10s\n"),
        ("nrs_owners", "/a=b.service=2001:3001\n\"/c d*\"=7:0\n"),
        ("snapshot", SAN),
    ];
    let mock = Mock::with(&[("ost_io", &ost_io), ("san", &san)]);
    *mock.agent.borrow_mut() = Some(texts::agent());
    mock.add_device(&Device {
        name: "files".into(),
        service: "san".into(),
        target: "8:16".into(),
        sectors: 1000,
        options: [("jobid_name".to_owned(), "%e.%u".to_owned())].into(),
        ..Device::default()
    })
    .unwrap();
    mock
}

/// Splits a line into words; blanks between single quotes do not separate words.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::from("nrsctl"), String::new()];
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            c => words.last_mut().unwrap().push(c),
        }
    }
    words
}

/// Returns the output of a command and the kind of its failure.
pub fn output(line: &str, kernel: &Mock) -> (String, Option<FailureKind>) {
    let mut out = Vec::new();
    let done = Cli::parse_from(words(line)).command.run(kernel, &mut out);
    let text = String::from_utf8(out).unwrap();
    (text, done.err().map(|failure| failure.kind))
}

/// Returns the output, the failure and the writes of a command. Unless `given` is empty, the
/// command has a module with the service `a`, which has these settings.
fn transcript(line: &str, given: &[&str]) -> String {
    let mut out = Vec::new();
    let mock = match given {
        [] => mock(),
        _ => Mock::of(&["a"]),
    };
    for setting in given {
        let (name, value) = setting.split_once('=').unwrap();
        mock.set("a", name, value).unwrap();
    }
    let (services, devices) = (mock.services(), mock.devices());
    let done: Result = match Cli::try_parse_from(words(line)) {
        Ok(cli) => cli.command.run(&mock, &mut out),
        Err(error) => return format!("usage: {}\n", error.kind()),
    };
    let mut text = String::new();
    let lines = String::from_utf8(out).unwrap();
    let lines = lines.lines().map(str::trim_end);
    let shown = lines.filter(|line| !line.is_empty());
    text.extend(shown.map(|line| format!("{line}\n")));
    if let Err(failure) = done {
        text += &format!("status {}: {failure}\n", failure.kind.exit_status());
    }
    for (service, parameter, value) in &mock.log()[given.len()..] {
        text += &format!("--> {service}.{parameter}={value}\n");
    }
    if mock.services() != services {
        text += &format!("--> services: {}\n", mock.services().unwrap().join(" "));
    }
    if mock.devices() != devices {
        text += &format!("--> {:?}\n", mock.devices().unwrap());
    }
    text
}

/// Verifies that every command has an example, and that the tool accepts all examples.
#[test]
fn examples() {
    fn verbs(command: &clap::Command, path: &str) {
        let mut below = command
            .get_subcommands()
            .filter(|one| !one.is_hide_set())
            .peekable();
        if below.peek().is_none() {
            assert!(examples::of(path).next().is_some(), "{path} has no example");
        }
        below.for_each(|one| verbs(one, format!("{path} {}", one.get_name()).trim_start()));
    }
    verbs(&Cli::command(), "");
    for line in examples::EXAMPLES {
        let taken = Cli::try_parse_from(words(line));
        assert!(taken.is_ok(), "{}", taken.unwrap_err());
    }
    let mut command = examples::command();
    let stop = command
        .find_subcommand_mut("rule")
        .unwrap()
        .find_subcommand_mut("stop");
    let help = stop.unwrap().render_help().to_string();
    assert!(
        help.ends_with("Examples:\n  nrsctl rule stop ost_io batch\n"),
        "{help}"
    );
}

#[test]
fn transcripts() {
    let kept = include_str!("verbs.txt");
    let (mut text, mut given) = (String::new(), Vec::new());
    for line in kept.lines() {
        if let Some(command) = line.strip_prefix("$ nrsctl ") {
            text += &format!("{line}\n{}", transcript(command, &given));
        } else if line.is_empty() || line.starts_with(['#', '<']) {
            text += &format!("{line}\n");
            match line.strip_prefix("<-- a.") {
                Some(setting) => given.push(setting),
                None => given.clear(),
            }
        }
    }
    pages::compare("rust/host/nrsctl/tests/all/verbs.txt", &text);
}

/// Verifies that the page has the agent's metrics of the requested services; without an agent, the
/// page has none and `agent status` fails.
#[test]
fn the_agent() {
    let mock = mock();
    for (service, count) in [("", 2), (" --service ost_io", 1)] {
        let (page, _) = output(&format!("exporter --once{service}"), &mock);
        assert_eq!(page.matches("nrs_agent_bound{").count(), count, "{service}");
    }
    *mock.agent.borrow_mut() = None;
    let cli = Cli::parse_from(words("agent status --socket /nowhere"));
    let failure = cli.command.run(&mock, &mut Vec::new()).unwrap_err();
    assert_eq!(failure.kind, FailureKind::NotFound);
    assert_eq!(failure.message, "no agent is running at /nowhere");
    let (page, _) = output("exporter --once", &mock);
    assert!(!page.contains("nrs_agent"), "{page}");
}

/// Verifies that `set_param` continues when its output is closed, and that `get_param` ends.
#[test]
fn output_is_closed() {
    for (line, status, writes) in [
        ("set_param san.slots=8 san.slots=0 ost_io.slots=8", 4, 2),
        ("get_param -R san ost_io", 141, 0),
        ("get_param -R sam.slots san", 3, 0),
    ] {
        let mock = mock();
        let cli = Cli::parse_from(words(line));
        let (mut writer, reader) = UnixStream::pair().unwrap();
        drop(reader);
        let failure = cli.command.run(&mock, &mut writer).unwrap_err();
        assert_eq!(failure.kind.exit_status(), status, "{line}");
        assert_eq!(mock.log().len(), writes, "{line}");
    }
}

/// Verifies that the completion of bash offers the program's words.
#[test]
fn bash_completes() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().to_str().unwrap();
    output(&format!("generate completions {place}"), &mock());
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_nrsctl"));
    let path = format!(
        "{}:{}",
        program.parent().unwrap().display(),
        std::env::var("PATH").unwrap()
    );
    let script = format!(
        ". {place}/nrsctl.bash; COMP_WORDS=(nrsctl rule start a --re); COMP_CWORD=4; _nrsctl; \
         echo ${{COMPREPLY[@]}}"
    );
    let bash = Command::new("bash")
        .env("PATH", path)
        .args(["-c", &script])
        .output();
    assert_eq!(
        String::from_utf8_lossy(&bash.unwrap().stdout),
        "--realtime\n"
    );
}

/// Verifies the program's exit statuses without the module: for wrong usage and for a closed pipe.
#[test]
fn exit_statuses_of_the_program() {
    let recording = pages::path("rust/host/nrsctl/tests/recording.jsonl");
    let recording = recording.to_str().unwrap();
    for (line, status, told) in [
        (&["apply", "--wait", "x"][..], 2, true),
        (&["plot", recording, "--service", "none"], 3, true),
        (&["plot", recording], 141, false),
    ] {
        let (writer, reader) = UnixStream::pair().unwrap();
        drop(reader);
        let mut program = Command::new(env!("CARGO_BIN_EXE_nrsctl"));
        let program = program.args(line).stdout(OwnedFd::from(writer));
        let ended = program.output().unwrap();
        assert_eq!(ended.status.code(), Some(status), "{line:?}");
        assert_eq!(!ended.stderr.is_empty(), told, "{line:?}");
    }
}
