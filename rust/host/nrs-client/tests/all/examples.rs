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

/// Verifies that both ends of adaptive timeouts work together: twelve clients that wait longer than
/// their first timeout get early replies, and the death of the server is noticed.
#[test]
fn both_ends_of_timeouts() {
    let output = example("timeouts").output().expect("the example was built");
    assert!(output.status.success());
    let printed = String::from_utf8(output.stdout).expect("UTF-8");
    let crowd = printed
        .lines()
        .find(|line| line.trim_start().starts_with("12 "))
        .expect("a line for twelve clients");
    let early = crowd.split_whitespace().nth(3).expect("a column");
    assert_ne!(early, "0", "{printed}");
    let last = printed.lines().last().expect("lines");
    assert!(last.starts_with("the server died: noticed"), "{last}");
}
