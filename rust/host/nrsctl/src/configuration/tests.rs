// SPDX-License-Identifier: GPL-2.0-only

//! Files against a module: the running state becomes the wanted state, stays so, and failures leave
//! it unchanged.

mod devices;
mod failures;
mod random;

use std::sync::atomic::Ordering;

use clap::Parser as _;

use super::carry_out;
use super::files;
use super::read::{parse_one, read_for_mock};
use crate::cli::{output_of, Cli, Command};
use crate::commands::apply;
use crate::failure::{failure, Failure, FailureKind, Result};
use crate::kernel::Kernel;
use crate::mock::{Mock, LINK};

/// File that is removed when dropped.
struct TemporaryFile(tempfile::TempPath);

impl TemporaryFile {
    fn new(text: &str) -> Self {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Self(file.into_temp_path())
    }
}

/// Returns the arguments of `apply` with these options and `file`; without `--wait`, nothing is
/// retried.
fn args(options: &str, file: &TemporaryFile) -> apply::Args {
    let wait = match options.contains("--wait") {
        true => "",
        false => "--wait 0",
    };
    let line = format!("nrsctl apply {options} {wait} {}", file.0.display());
    match Cli::parse_from(line.split_ascii_whitespace()).command {
        Command::Apply(args) => args,
        _ => unreachable!(),
    }
}

fn ran(module: &Mock, options: &str, file: &TemporaryFile) -> (String, Result) {
    let mut out = Vec::new();
    let done = apply::until(&args(options, file), module, &mut out, &module.told);
    (String::from_utf8(out).unwrap(), done)
}

fn apply(module: &Mock, text: &str) -> (String, Result) {
    ran(module, "", &TemporaryFile::new(text))
}

/// Applies a text and returns the output.
fn applied(module: &Mock, text: &str) -> String {
    passes(module, "", &TemporaryFile::new(text))
}

/// Applies a file with options and returns the output.
fn passes(module: &Mock, options: &str, file: &TemporaryFile) -> String {
    let (out, done) = ran(module, options, file);
    done.unwrap();
    out
}

/// Returns the failure of applying a text.
fn refused(module: &Mock, text: &str) -> Failure {
    apply(module, text).1.unwrap_err()
}

fn reports(failure: &Failure, kind: FailureKind, end: &str) {
    assert_eq!(failure.kind, kind, "{failure}");
    ends(&failure.message, end);
}

fn has(text: &str, part: &str) {
    assert!(text.contains(part), "{text}");
}

fn ends(text: &str, end: &str) {
    assert!(text.ends_with(end), "{text}");
}

fn differs(module: &Mock, text: &str) -> Option<String> {
    let writes = module.log().len();
    let (out, done) = ran(module, "--dry-run", &TemporaryFile::new(text));
    assert_eq!(module.log().len(), writes);
    match done {
        Ok(()) => {
            assert_eq!(out, "nothing to change\n");
            None
        }
        Err(failure) => {
            assert_eq!(failure.kind, FailureKind::Differs, "{failure}");
            Some(out)
        }
    }
}

fn saved(module: &Mock) -> String {
    output_of(module, "save").unwrap()
}

const ALL: &str = "\
[module]
default_slots = 32

[service.a]
cpts = 1
slots = 16
policy = \"tbf uid\"
high_priority = { policy = \"fairshare uid_fair\", ratio = 3, sources = \"meta realtime\" }
parameters = { nrs_fairshare_delta_ms = 50, nrs_orr_quantum = { reg = 4 } }
timeouts = { at_max = 4, at_min = 3, at_extra = 2, at_early_margin = 1 }
owners = { \"/b*\" = \"3:4\", '\"/a.slice/b c\"' = \"0:0\", \"/a*\" = \"1:2\" }
weights = { \"jobid:b*\" = 3, \"jobid:a*\" = 2, \"uid:7\" = 10000 }
qbm = { by = \"uid\", group = [{ name = \"all\", capacity = \"1GB/s\" }], client = [{ name = 7, \
class = \"fc\", min = \"1MB/s\" }] }

[[service.a.rule]]
name = \"x\"
match = \"{1 2}\"
rate = \"10MB/s\"
minrate = \"1MB/s\"
also = [\"y\"]

[[service.a.rule]]
name = \"y\"
match = \"uid={3}\"
realtime = true
borrow = true

[[service.a.rule]]
name = \"default\"
rate = 500
";

#[test]
fn what_is_saved_is_what_runs() {
    let module = Mock::of(&["other"]);
    let out = applied(&module, ALL);
    has(&out, "--- module, running\n+++ module, wanted\n");
    ends(&out, "a: created\n");
    let text = saved(&module);
    assert_eq!(differs(&module, &text), None);
    let file = TemporaryFile::new(&text);
    let name = file.0.display();
    let out = output_of(&module, &format!("check {name}")).unwrap();
    assert_eq!(out, format!("{name}: ok\n"));
    let fresh = Mock::of(&["other"]);
    applied(&fresh, &text);
    assert_eq!(fresh.shown(), module.shown());
    // The text has only the differences from the defaults.
    has(&text, "[module]\ndefault_slots = 32\n");
    has(
        &text,
        "[service.other]\nslots = \"auto\"\npolicy = \"fifo\"\n",
    );
    assert!(!text.contains("at_history"), "{text}");
    output_of(&module, &format!("save --service other {name}")).unwrap();
    let text = std::fs::read_to_string(&file.0).unwrap();
    assert_eq!(
        text,
        "# Written by nrsctl save.\n\n[service.other]\nslots = \"auto\"\npolicy = \"fifo\"\n"
    );
    let failure = output_of(&module, "save --service none").unwrap_err();
    assert_eq!(failure.kind, FailureKind::NotFound);
}

/// Applies names of users and groups; the module and the saved text have numbers.
#[test]
fn users_and_groups_by_name() {
    let text = |user, group, client| {
        format!(
            "[service.a]\npolicy = 'tbf uid+gid'\nweights = {{ 'uid:{user}' = 2 }}\n\
             [[service.a.rule]]\nname = 'x'\nmatch = 'uid={{ {user} 7 }}&gid={{{group}}}'\n\
             [service.a.qbm]\nby = 'uid'\n\
             client = [{{ name = {client}, class = 'fc', min = '1MB/s' }}]\n\
             group = [{{ name = 'g', capacity = '1GB/s' }}]\n"
        )
    };
    let module = Mock::of(&[]);
    applied(&module, &text("alice", "staff", "'bob'"));
    assert_eq!(differs(&module, &text("2001", "3001", "2002")), None);
    assert!(saved(&module).contains("match = \"uid={ 2001 7 }&gid={3001}\""));
    let (_, faults) = read_for_mock([("f", &*text("alicia", "bob", "'staff'"))]);
    let faults: Vec<String> = faults.iter().map(|fault| fault.to_string()).collect();
    let want = [
        "f:3:13: service.a.weights.\"uid:alicia\": unknown user 'alicia'",
        "f:6:9: service.a.rule[0].match: unknown user 'alicia'",
        "f:7:12: service.a.qbm: unknown user 'staff'",
    ];
    assert_eq!(faults, want);
}

#[test]
fn what_is_applied_as_json() {
    let module = Mock::of(&["a", "b"]);
    let file = TemporaryFile::new("[service.a]\nslots = 5\n[service.b]\nslots = 6\n");
    let shown = |options: &str| {
        let line = format!("apply --json {options} {}", file.0.display());
        let cli = Cli::parse_from(format!("nrsctl {line}").split_ascii_whitespace());
        let mut out = Vec::new();
        let done = cli.command.run(&module, &mut out);
        let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
        (value, done.err().map(|failure| failure.kind))
    };
    for (options, kind, differences, done) in [
        ("--dry-run", Some(FailureKind::Differs), 2, &[][..]),
        ("", None, 2, &["a: changed", "b: changed"]),
        ("", None, 0, &[]),
    ] {
        let (value, found) = shown(options);
        assert_eq!(found, kind);
        let diffs = value["differences"].as_array().unwrap();
        assert_eq!(diffs.len(), differences, "{value}");
        for (diff, name) in diffs.iter().zip(["a", "b"]) {
            let diff = diff.as_str().unwrap();
            has(diff, &format!("--- {name}, running\n"));
            assert_eq!(diff.matches("--- ").count(), 1);
        }
        assert_eq!(value["done"], serde_json::json!(done));
    }
}

/// Retries a step while earlier policies stop.
#[test]
fn what_is_busy_is_tried_again() {
    let module = Mock::of(&["a"]);
    let file = TemporaryFile::new("[service.a]\nslots = 5\n");
    module.refuse(0, 2, FailureKind::Busy);
    passes(&module, "--wait 60", &file);
    assert_eq!(module.get("a", "slots").unwrap(), "5\n");
    module.refuse(0, 1, FailureKind::Busy);
    let failure = refused(&module, "[service.a]\n");
    assert_eq!(failure.kind, FailureKind::Busy);
}

#[test]
fn partitions_are_those_of_services_made_in_configfs() {
    let module = Mock::of(&[]);
    applied(&module, "[service.b]\ncpts = 1\n");
    assert_eq!(module.cpts("b"), Ok(1));
    // Partitions that no section sets are left unchanged.
    assert_eq!(differs(&module, "[service.b]\n"), None);
    module.add_client("b");
    let failure = refused(&module, "[service.b]\ncpts = 3\nslots = 5\n");
    let why = "b: `cpts = 3` was refused: it has clients; the service was not changed";
    assert_eq!(failure.message, why);
}

#[test]
fn services_that_no_file_mentions() {
    let module = Mock::of(&["by_client"]);
    let services = "[service.a]\n[service.b]\nslots = 3\n[service.c]\n";
    applied(&module, services);
    module.add_client("c");
    let text = "[service.a]\n";
    assert_eq!(differs(&module, text), None);
    let file = TemporaryFile::new(text);
    let (out, done) = ran(&module, "--prune --dry-run", &file);
    assert_eq!(done.unwrap_err().kind, FailureKind::Differs);
    assert_eq!(
        out,
        "--- b, running\n+++ b, wanted\n@@ -1,4 +0,0 @@\n-[service.b]\n-cpts = 2\n-slots = 3\n\
         -policy = \"fifo\"\n"
    );
    passes(&module, "--prune", &file);
    assert_eq!(module.services().unwrap(), ["a", "by_client", "c"]);
    let (out, done) = ran(&module, "--prune", &file);
    assert_eq!((out.as_str(), done), ("nothing to change\n", Ok(())));
}

/// Verifies that a disk is saved by a path that names it after a reboot, and that a section with
/// that path describes it.
#[test]
fn disks_by_paths_that_last() {
    let module = Mock::of(&[]);
    module.linked.set(true);
    output_of(&module, "device schedule sdb").unwrap();
    output_of(&module, "device schedule sda").unwrap();
    let text = saved(&module);
    let (sda, sdb) = ("[disk.sda]", format!("[disk.\"{LINK}\"]"));
    assert!(text.contains(sda) && text.contains(&sdb), "{text}");
    assert_eq!(differs(&module, &text), None);
    let fresh = Mock::of(&[]);
    fresh.linked.set(true);
    applied(&fresh, &text);
    assert_eq!(fresh.disks(), module.disks());
    let directory = tempfile::tempdir().unwrap();
    let save = format!("--save={}", directory.path().display());
    output_of(&module, &format!("device schedule sdb {save}")).unwrap();
    let text = std::fs::read_to_string(directory.path().join("devices.toml")).unwrap();
    has(&text, &sdb);
}

/// Schedules a disk according to its section; disks without a section are left unchanged.
#[test]
fn disks_of_the_files() {
    let module = Mock::of(&[]);
    let text = "[disk.sda]\nservice = 'san'\njobid_name = '%j'\n[disk.'/dev/sdb']\nservice = 'b'\n\
                [service.san]\npolicy = 'fairshare'\n";
    let shown = differs(&module, text).unwrap();
    let sda = "--- sda, running\n+++ sda, wanted\n@@ -0,0 +1,3 @@\n+[disk.sda]\n\
               +service = \"san\"\n+jobid_name = \"%j\"\n";
    has(&shown, sda);
    let out = applied(&module, text);
    ends(
        &out,
        "san: created\nsdb: scheduled by b\nsda: scheduled by san\n",
    );
    assert_eq!(differs(&module, text), None);
    let text = saved(&module);
    ends(
        &text,
        "\n[disk.sda]\nservice = \"san\"\njobid_name = \"%j\"\n\n[disk.sdb]\nservice = \"b\"\n",
    );
    let fresh = Mock::of(&[]);
    applied(&fresh, &text);
    assert_eq!(fresh.disks(), module.disks());
    // Missing keys have their defaults; a disk without a section is left unchanged.
    applied(&module, "[disk.sda]\nservice = 'san'\n");
    let disks = module.disks().unwrap();
    assert_eq!(
        (disks.len(), &*disks[0].options["jobid_name"]),
        (2, "%e.%u")
    );
    let one = output_of(&module, "save --service b").unwrap();
    assert!(one.contains("[disk.sdb]") && !one.contains("sda"), "{one}");
    // Only the disks of one service are scheduled.
    let file = TemporaryFile::new("[disk.sda]\nservice = 'x'\n[disk.sdb]\nservice = 'y'\n");
    let out = passes(&module, "--service y", &file);
    ends(&out, "sdb: scheduled by y\n");
    assert!(!out.contains("sda"), "{out}");
    // The disk appears late, as at boot.
    let module = Mock::of(&[]);
    let file = TemporaryFile::new("[disk.sda]\nservice = 'x'\n");
    module.late.set(2);
    let (out, done) = ran(&module, "--dry-run --wait 60", &file);
    assert_eq!(
        (out.as_str(), done.unwrap_err().kind),
        ("", FailureKind::NotFound)
    );
    passes(&module, "--wait 60", &file);
    // One disk is missing, and one is defined twice: the other disks are scheduled.
    let text =
        "[disk.sdx]\nservice = 'x'\n[disk.sda]\nservice = 'x'\n[disk.'/dev/sda']\nservice = 'z'\n";
    let failure = refused(&module, text);
    has(&failure.message, "no disk 'sdx'");
    has(&failure.message, "sda is already defined in ");
    assert_eq!(module.disks().unwrap()[0].service, "z");
}

#[test]
fn one_service_of_many() {
    let module = Mock::of(&["a", "b"]);
    let file = TemporaryFile::new(
        "[module]\ndefault_slots = 7\n[service.a]\nslots = 5\n[service.b]\nslots = 5\n",
    );
    let out = passes(&module, "--service a --verbose", &file);
    assert_eq!(
        out,
        "--- a, running\n+++ a, wanted\n@@ -1,2 +1,3 @@\n [service.a]\n\
         +slots = 5\n policy = \"fifo\"\na: slots 5\na: changed\n"
    );
    assert_eq!(module.get("b", "slots").unwrap(), "auto\n");
    assert_eq!(module.module_parameter("default_slots").unwrap(), "auto\n");
    let (_, done) = ran(&module, "--service c", &file);
    assert_eq!(done.unwrap_err().kind, FailureKind::NotFound);
}

#[test]
fn slots_of_new_services() {
    let module = Mock::of(&[]);
    for (text, want) in [("9", "9"), ("\"auto\"", "auto")] {
        let text = format!("[module]\ndefault_slots = {text}\n[service.{want}]\n");
        applied(&module, &text);
        let want = format!("{want}\n");
        assert_eq!(module.module_parameter("default_slots"), Ok(want.clone()));
        assert_eq!(module.get(want.trim(), "slots"), Ok(want));
    }
}

#[test]
fn a_wrong_file_changes_nothing() {
    let module = Mock::of(&["a"]);
    let file =
        TemporaryFile::new("[service.a]\nslots = 5\n[service.b]\nslots = 0\npolcy = 'fifo'\n");
    let shown = module.shown();
    let (out, done) = ran(&module, "", &file);
    let name = file.0.display();
    assert_eq!(out, "");
    let failure = done.unwrap_err();
    assert_eq!(
        failure,
        failure!(Refused:
            "invalid configuration\n{name}:4:9: service.b.slots: not a number from 1 to \
                 65535, or auto; valid values: requests, 1 to 65535, or auto\n\
                 {name}:5:1: service.b.polcy: unknown key; did you mean `policy`?";
            "nothing was changed")
    );
    assert_eq!(module.shown(), shown);
    let checked = |form| {
        let mut out = Vec::new();
        let check = Cli::parse_from(["nrsctl", "check", form, &name.to_string()]);
        let wrong = failure!(Refused: "the configuration has 2 errors");
        assert_eq!(check.command.run(&module, &mut out), Err(wrong));
        out
    };
    assert_eq!(String::from_utf8(checked("--")).unwrap().lines().count(), 2);
    let out = checked("--json");
    let faults: serde_json::Value = serde_json::from_slice(&out).unwrap();
    assert_eq!(faults[1]["line"], 5);
    assert_eq!(faults[1]["key"], "service.b.polcy");
}

/// Verifies that the examples of the documentation are valid and can be applied.
#[test]
fn examples() {
    let directory = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../Documentation/examples"
    );
    let mut count = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if files::is_agent(&path) {
            let text = std::fs::read_to_string(&path).unwrap();
            nrs_agent::config::parse("f", &text, "oss1").unwrap();
        } else if path.extension().is_some_and(|end| end == "toml") {
            let text = std::fs::read_to_string(&path).unwrap();
            let (wanted, faults) = read_for_mock([(path.to_str().unwrap(), text.as_str())]);
            assert!(faults.is_empty(), "{}", faults[0]);
            assert!(!wanted.services.is_empty());
            let module = Mock::of(&[]);
            applied(&module, &text);
            assert_eq!(differs(&module, &text), None);
            assert_eq!(differs(&module, &saved(&module)), None);
            count += 1;
        }
    }
    assert_eq!(count, 4);
}

/// Verifies that the file for the agent is checked, and that it defines no services.
#[test]
fn the_file_for_the_agent() {
    let room = tempfile::tempdir().unwrap();
    let path = |name: &str| room.path().join(name);
    let module = Mock::of(&["a"]);
    let run = |verb: &[&str], path: &std::path::Path| {
        let words = [&["nrsctl"], verb, &[path.to_str().unwrap()]].concat();
        let cli = Cli::parse_from(words);
        let mut out = Vec::new();
        let done = cli.command.run(&module, &mut out);
        let text = String::from_utf8(out)
            .unwrap()
            .replace(room.path().to_str().unwrap(), "");
        (text, done.err().map(|failure| failure.kind))
    };
    let small = "realm = \"r\"\nsecret = \"/none\"\ntransport = \"tcp\"\n[service.a]\n";
    std::fs::write(path("agent.toml"), small).unwrap();
    // An agent file alone does not make nrs.service fail.
    let (check, apply) = (["check"], ["apply", "--dry-run", "--prune"]);
    let nothing = (String::from("nothing to change\n"), None);
    assert_eq!(run(&apply, room.path()), nothing);
    let fine = (String::from("/agent.toml: ok\n"), None);
    assert_eq!(run(&check, room.path()), fine);
    std::fs::write(path("nrs.toml"), "[service.a]\nslots = 3\n").unwrap();
    assert_eq!(
        run(&check, room.path()).0,
        "/nrs.toml: ok\n/agent.toml: ok\n"
    );
    std::fs::write(path("agent.toml"), small.replace("tcp", "udp")).unwrap();
    let wrong = "/agent.toml:3:13: transport: expected tls or tcp\n";
    for (at, want) in [
        ("", format!("/nrs.toml: ok\n{wrong}")),
        ("agent.toml", wrong.into()),
    ] {
        assert_eq!(
            run(&check, &path(at)),
            (want, Some(FailureKind::Refused)),
            "{at}"
        );
    }
    assert_eq!(run(&apply, room.path()).1, Some(FailureKind::Differs));
}

/// Compares the output shown in the page with the actual output.
#[test]
fn the_page_shows_what_is_printed() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../Documentation/configuration.md"
    );
    let page = std::fs::read_to_string(path).unwrap();
    // Returns the text between the first fences after `after`.
    let block = |after: &str| {
        let start = page.find(after).unwrap();
        let start = start + page[start..].find("```").unwrap();
        let start = start + page[start..].find('\n').unwrap() + 1;
        &page[start..start + page[start..].find("```").unwrap()]
    };
    let (_, faults) = read_for_mock([("/etc/nrs/nrs.toml", block("For this file:"))]);
    let lines: Vec<String> = faults.iter().map(|fault| fault.to_string()).collect();
    let lines = lines.join("\n") + "\n";
    let file = block("## A file").replace("cpts = 1\n", "");
    let module = Mock::of(&[]);
    applied(&module, &file.replace("\"50MB/s", "\"20MB/s"));
    for (name, value) in [
        ("stall_ms", "5000"),
        ("nrs_fairshare_weights", "uid:1001:3"),
    ] {
        module.set("ost_io", name, value).unwrap();
    }
    let out = applied(&module, &file);
    let mut new = page.clone();
    for (after, printed) in [
        ("it printed, with exit status 4:", lines),
        ("and the difference is printed:", out),
    ] {
        new = new.replace(
            &format!("```\n{}```", block(after)),
            &format!("```\n{printed}```"),
        );
    }
    if std::env::var_os("NRSCTL_WRITE_PAGES").is_some() {
        std::fs::write(path, new).unwrap();
        return;
    }
    assert_eq!(page, new);
}
