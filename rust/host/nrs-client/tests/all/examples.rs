// SPDX-License-Identifier: MIT OR Apache-2.0

//! The example servers.

use std::{
    env, fs,
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

/// Returns a command that runs the example `name`.
fn example(name: &str) -> Command {
    let tests = env::current_exe().expect("this program");
    let target = tests.ancestors().nth(2).expect("a directory");
    Command::new(target.join("examples").join(name))
}

/// Compares the servers on the page with their sources, without the license lines.
#[test]
fn the_page_shows_the_servers() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let read = |path: &str| fs::read_to_string(top.join(path)).expect("a file of the checkout");
    let page = read("Documentation/first-server.md");
    for (language, path) in [
        ("rust", "rust/host/nrs-client/examples/server.rs"),
        ("c", "examples/server.c"),
    ] {
        let source = read(path);
        let (_license, code) = source.split_once('\n').expect("lines");
        let block = format!("```{language}\n{}```\n", code.trim_start());
        assert!(page.contains(&block), "{path} differs from the page");
    }
}

/// Verifies that all lines are served, with and without nrs.
#[test]
fn the_fallback_serves_each_line() {
    let mut child = example("fallback")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the example was built");
    let mut stdin = child.stdin.take().expect("a pipe");
    let mut lines: Vec<String> = (0..100)
        .map(|n| format!("{} line {n}", 1000 + n % 3))
        .collect();
    stdin
        .write_all((lines.join("\n") + "\n").as_bytes())
        .expect("it reads");
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success());
    let printed = String::from_utf8(output.stdout).expect("UTF-8");
    let (who, printed) = printed.split_once('\n').expect("lines");
    let device = Path::new(nrs_client::DEVICE).exists();
    assert_eq!(who, if device { "nrs" } else { "fifo" });
    let mut printed: Vec<String> = printed.lines().map(str::to_owned).collect();
    lines.sort();
    printed.sort();
    assert_eq!(printed, lines);
}

/// Verifies that clients without a server notice that within their timeout.
#[test]
fn timeouts_without_a_server() {
    let mut clients = example("timeouts");
    let output = clients
        .args(["clients", "2", "1"])
        .output()
        .expect("the example was built");
    assert!(output.status.success());
    let printed = String::from_utf8(output.stdout).expect("UTF-8");
    let numbers: Vec<u64> = printed
        .split(' ')
        .filter_map(|word| word.parse().ok())
        .collect();
    let [noticed, timeout] = numbers[..] else {
        panic!("{printed}");
    };
    assert!(
        printed.starts_with("lost: ") && noticed >= timeout,
        "{printed}"
    );
    assert_eq!(timeout, 2250);
}
