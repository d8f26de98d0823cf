// SPDX-License-Identifier: GPL-2.0-only

//! The plot in Documentation is what the recording beside this file gives; tests/vm/nrsctl-top.sh made the recording.

use std::path::Path;

use clap::Parser as _;
use nrsctl::cli::Cli;
use nrsctl::mock::Mock;

#[test]
fn the_plot() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let recording = here.join("tests/recording.jsonl").display().to_string();
    let cli = Cli::parse_from(["nrsctl", "plot", &recording]);
    let mut drawn = Vec::new();
    cli.command.run(&Mock::with(&[]), &mut drawn).unwrap();
    let kept = std::fs::read(here.join("../../../Documentation/plot.svg")).unwrap();
    assert!(
        kept == drawn,
        "plot.svg is another; see Documentation/top.md, Pictures"
    );
}
