// SPDX-License-Identifier: GPL-2.0-only

//! The pictures in Documentation are what the recording beside this file gives; tests/vm/nrsctl-top.sh made the recording.

use std::path::{Path, PathBuf};

use clap::Parser as _;
use nrsctl::cli::Cli;
use nrsctl::mock::Mock;

/// The file `name` of the documentation is what `words` write; `OUT` in them is where.
fn is_as_drawn(name: &str, words: &[&str]) {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let kept = here.join("../../../Documentation").join(name);
    let drawn: PathBuf = std::env::temp_dir().join(format!("nrsctl-{}-{name}", std::process::id()));
    let recording = here.join("tests/recording.jsonl");
    let words = words.iter().map(|word| match *word {
        "OUT" => drawn.display().to_string(),
        "RECORDING" => recording.display().to_string(),
        word => word.to_string(),
    });
    let cli = Cli::parse_from(std::iter::once("nrsctl".to_string()).chain(words));
    cli.command.run(&Mock::with(&[]), &mut Vec::new()).unwrap();
    let (kept, now) = (std::fs::read(kept), std::fs::read(&drawn));
    std::fs::remove_file(&drawn).unwrap();
    assert!(
        kept.unwrap() == now.unwrap(),
        "{name} is another; see Documentation/top.md, Pictures"
    );
}

#[test]
fn the_picture_of_top() {
    is_as_drawn(
        "top.svg",
        &[
            "top",
            "--from",
            "RECORDING",
            "--at",
            "8",
            "--size",
            "80x10",
            "--svg",
            "OUT",
        ],
    );
}

#[test]
fn the_plot() {
    is_as_drawn("plot.svg", &["plot", "RECORDING", "--out", "OUT"]);
}
