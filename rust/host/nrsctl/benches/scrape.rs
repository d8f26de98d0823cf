// SPDX-License-Identifier: GPL-2.0-only

//! Measures the cost of a scrape: reads the statistics of 10,000 entities, as written by the
//! module's own writers, and renders a page.
//!
//! Times are CPU time of this thread from the kernel's accounting, so that other load of the host
//! hardly matters. With `--check` the bench fails if the exporter with its default settings takes
//! [`LIMIT`] or longer.

#[path = "../tests/all/texts/mod.rs"]
mod texts;

use std::env;
use std::fs;
use std::hint::black_box;
use std::process::ExitCode;

use nrsctl::exporter::family::Gathered;
use nrsctl::exporter::others::Memory;
use nrsctl::exporter::page::render;
use nrsctl::stats;

const ENTITIES: u32 = 10_000;

/// Number of measurements of each step.
const ROUNDS: usize = 15;

/// Maximum CPU time of a scrape, ms.
const LIMIT: f64 = 100.0;

/// Returns the CPU time used by this thread, ms.
fn spent() -> f64 {
    let text =
        fs::read_to_string("/proc/thread-self/schedstat").expect("the kernel accounts for threads");
    let ns = text.split(' ').next().and_then(|ns| ns.parse::<f64>().ok());
    ns.expect("a number") / 1e6
}

/// Returns the median CPU time of a call of `f`, ms.
fn median(mut f: impl FnMut()) -> f64 {
    f();
    let mut times: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = spent();
            f();
            spent() - start
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[ROUNDS / 2]
}

fn main() -> ExitCode {
    let check = env::args().any(|argument| argument == "--check");
    let mut slow = false;
    println!("{ENTITIES} entities, median of {ROUNDS}, processor's time, ms\n");
    println!("policy     text, MB  shown  read  page  both  page, MB");
    for policy in ["fairshare", "tbf", "qbm"] {
        let texts = texts::service(policy, ENTITIES);
        let bytes = texts.len();
        let module = texts::module(&texts);
        let read = || stats::read(&module, "svc").expect("a snapshot");
        for top in [100, ENTITIES as usize] {
            let gathered = Gathered {
                snapshots: vec![read()],
                ..Gathered::default()
            };
            assert_eq!(gathered.snapshots[0].entities.len(), ENTITIES as usize);
            let mut memory = Memory::new();
            let mut page = || render(&gathered, top, Some(&mut memory));
            let length = page().len();
            let reading = median(|| drop(black_box(read())));
            let making = median(|| drop(black_box(page())));
            let both = reading + making;
            slow |= top < ENTITIES as usize && both >= LIMIT;
            println!(
                "{policy:<9} {:9.1} {top:6} {reading:5.1} {making:5.1} {both:5.1} {:9.2}",
                bytes as f64 / 1e6,
                length as f64 / 1e6
            );
        }
    }
    match check && slow {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    }
}
