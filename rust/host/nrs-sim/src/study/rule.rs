// SPDX-License-Identifier: GPL-2.0-only

//! The rule of shares over servers by itself, on ideal servers that divide their capacity by
//! weights.
//!
//! There are three jobs for every two servers, at least 16 and at most 64. Each job uses a random
//! number of servers of different capacities. A run has 80 deltas, or 199 if jobs come and go. The
//! weights of the jobs are, in turn, 1; 1, 3, 10 and 100; or 1, 10, 100, 1000 and 10,000.
//!
//! A run has settled when no job's error exceeds 5 % from then on. Late errors are errors of the
//! last 10 deltas of each phase. If jobs come and go, an eighth of them changes every 40 deltas,
//! and the slowest change counts. Figures are of the worst seed.

use nrs_agent::Terms;
use nrs_report::table::Table;

use super::fluid::{run as simulate, Layout, Path, Run};
use super::{keep, side_by_side, Failure, Options};

/// Weights of the jobs, in turn.
const WEIGHTS: [&[u32]; 3] = [&[1], &[1, 3, 10, 100], &[1, 10, 100, 1000, 10_000]];

/// Transit time in thousandths of a delta; lost datagrams per thousand; deltas between changes, 0
/// for none.
const WAYS: [(u64, u64, u64); 7] = [
    (500, 0, 0),
    (500, 300, 0),
    (500, 0, 40),
    (1500, 0, 0),
    (3500, 0, 0),
    (3500, 300, 0),
    (3500, 300, 40),
];

/// Row of the table.
#[derive(Clone, Copy)]
struct Case {
    servers: usize,
    weights: &'static [u32],
    path: Path,
}

impl Case {
    fn run(&self, seed: u64) -> Run {
        let jobs = (self.servers * 3 / 2).clamp(16, 64);
        let layout = Layout::random(self.servers, jobs, self.weights, seed);
        let terms = Terms {
            grain: 1,
            ..Terms::default()
        };
        let deltas = if self.path.toggle > 0 { 199 } else { 80 };
        simulate(&layout, terms, self.path, deltas, seed)
    }
}

/// Runs the study.
///
/// # Errors
///
/// A run panicked, or an error of the file system.
pub fn run(options: &Options) -> Result<String, Failure> {
    let sizes: &[usize] = match options.quick {
        true => &[2, 8],
        false => &[2, 8, 32, 128],
    };
    let mut cases = Vec::new();
    for &servers in sizes {
        for weights in WEIGHTS {
            for (delay, loss, toggle) in WAYS {
                let path = Path {
                    delay,
                    loss,
                    toggle,
                    ..Path::UNDISTURBED
                };
                cases.push(Case {
                    servers,
                    weights,
                    path,
                });
            }
        }
    }
    let seeded = |case: &Case| (1..=options.seeds).map(|seed| (*case, seed)).collect();
    let runs: Vec<(Case, u64)> = cases
        .iter()
        .flat_map(|case| -> Vec<_> { seeded(case) })
        .collect();
    let runs = side_by_side(&runs, options, |(case, seed)| case.run(*seed))?;
    let mut table = Table::headed(
        "Servers | Weights up to | Delay, deltas | Loss, % | Changes | Settled after, deltas | \
         Mean error, % | Worst job, %",
    );
    for (case, runs) in cases.iter().zip(runs.chunks(options.seeds as usize)) {
        let settled: Option<Vec<usize>> = runs.iter().map(|run| run.settled(0.05)).collect();
        let settled = settled.and_then(|all| all.into_iter().max());
        let most = |of: &dyn Fn(&Run) -> f64| runs.iter().map(of).fold(0.0, f64::max) * 100.0;
        table.row(&[
            case.servers.to_string(),
            case.weights.iter().max().unwrap_or(&0).to_string(),
            format!("{:.1}", case.path.delay as f64 / 1000.0),
            (case.path.loss / 10).to_string(),
            if case.path.toggle > 0 { "yes" } else { "no" }.to_string(),
            settled.map_or("—".to_string(), |settled| settled.to_string()),
            format!("{:.2}", most(&|run| run.late(10))),
            format!("{:.2}", most(&|run| run.end_max_error(10))),
        ]);
    }
    let markdown = table.markdown();
    keep("rule", &markdown, &table, options)?;
    Ok(markdown)
}
