// SPDX-License-Identifier: GPL-2.0-only

//! `nrsctl plot`

use std::io::Write;
use std::path::PathBuf;

use globset::GlobMatcher;
use nrs_report::chart::Diagram;

use crate::commands::record;
use crate::failure::{failure, Result};
use crate::kernel::Kernel;
use crate::names;
use crate::recording::{Recording, Series, SeriesKind};
use crate::replace::replace;
use crate::top::numbers;

/// Arguments of `nrsctl plot`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Recording made by `nrsctl record`.
    pub file: PathBuf,
    /// Value plotted for each entity.
    #[arg(long, value_enum, default_value = "share")]
    pub what: SeriesKind,
    /// Pattern of entity names, with *, ? and [].
    #[arg(long, value_name = "GLOB", default_value = "*", value_parser = glob)]
    pub entity: GlobMatcher,
    /// Number of entities shown, by mean; shares, rates and queues of other entities are summed up.
    #[arg(
        long,
        value_name = "N",
        default_value = "10",
        value_parser = clap::value_parser!(u64).range(1..=100),
    )]
    pub top: u64,
    /// Name of the service, if the recording has several.
    #[arg(long, value_name = "NAME")]
    pub service: Option<String>,
    /// Output file (default standard output).
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

fn glob(text: &str) -> std::result::Result<GlobMatcher, String> {
    names::glob(text).map_err(|error| error.kind().to_string())
}

/// Runs `nrsctl plot`.
///
/// # Errors
///
/// - `NotFound`: the file or the service does not exist, or no matching entity has
///   the value to be plotted.
/// - `Refused`: the file is not a recording.
/// - `Usage`: the recording has several services and `--service` is missing.
/// - `Other`: reading or writing failed.
pub fn run(args: &Args, _kernel: &dyn Kernel, out: &mut dyn Write) -> Result {
    let recording = record::open(&args.file)?;
    let picture = draw(args, &recording)?;
    match &args.out {
        Some(path) => replace(path, picture.as_bytes()),
        None => Ok(out.write_all(picture.as_bytes())?),
    }
}

/// Returns the chart as SVG.
fn draw(args: &Args, recording: &Recording) -> Result<String> {
    let file = args.file.display();
    let services = recording.services();
    let all = services.join(" ");
    let service = match (&args.service, services.as_slice()) {
        (Some(name), _) if services.contains(name) => name,
        (Some(name), _) => {
            return Err(failure!(NotFound: "{file}: no service '{name}'"; "services: {all}"));
        }
        (None, [name]) => name,
        (None, []) => {
            return Err(failure!(NotFound: "{file}: no snapshots"));
        }
        (None, _) => {
            return Err(failure!(Usage: "{file} has {} services", services.len();
                "set --service to one of: {all}"));
        }
    };
    let series = Series::new(recording.of(service), args.what, |name| {
        args.entity.is_match(name)
    });
    let adds_up = matches!(
        args.what,
        SeriesKind::Share | SeriesKind::Rate | SeriesKind::Queue
    );
    let most = usize::try_from(args.top).unwrap_or(usize::MAX);
    let top = series.top(most, adds_up);
    if top.is_empty() {
        let what = args.what.title();
        return Err(failure!(NotFound:
            "{file}: no data: no entity '{}' has a {what}", args.entity.glob())
        .hint(args.what.where_from()));
    }
    let scale = match args.what {
        SeriesKind::Rate if series.bytes => 1e-6,
        SeriesKind::Share => 100.0,
        _ => 1.0,
    };
    let what = args.what.title();
    let title = format!("{service}: {what} of each entity");
    let label = args.what.unit(series.bytes);
    let mut chart = Diagram::lines(&title, "time in s", label);
    if args.what == SeriesKind::Share {
        // The axis ends above 100 %, because the names of policies need room.
        chart = chart.y_range(0.0, 110.0);
    }
    for (at, policy) in &series.policies {
        chart = chart.rule_at_x(*at, policy);
    }
    for (name, points) in top {
        let points = points
            .into_iter()
            .map(|(at, value)| (at, value * scale))
            .collect();
        chart = chart.series(&numbers::printable(&name), points);
    }
    Ok(chart.to_svg()?)
}

impl SeriesKind {
    /// Returns the name of the value.
    fn title(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    /// Returns the label of the axis.
    const fn unit(self, bytes: bool) -> &'static str {
        match self {
            SeriesKind::Share => "share of service, %",
            SeriesKind::Rate if bytes => "MB/s",
            SeriesKind::Rate => "requests/s",
            SeriesKind::Wait => "99th percentile of queueing times, ms",
            SeriesKind::Queue => "requests queued",
            SeriesKind::Limit => "throttled, times/s",
        }
    }

    /// Returns a hint which policies provide the value.
    const fn where_from(self) -> &'static str {
        match self {
            SeriesKind::Share | SeriesKind::Rate => {
                "two snapshots of a policy with entities are required"
            }
            SeriesKind::Queue => "a policy with entities is required",
            SeriesKind::Wait => "only fairshare measures queueing times",
            SeriesKind::Limit => "only tbf and qbm have limits",
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::recording::Header;
    use crate::stats::Snapshot;
    use crate::top::samples;

    #[derive(clap::Parser)]
    struct PlotTest {
        #[command(flatten)]
        args: Args,
    }

    fn drawn(snapshots: Vec<Snapshot>, words: &str) -> Result<String> {
        let recording = Recording {
            header: Header::default(),
            snapshots,
            cut: None,
        };
        let line = PlotTest::parse_from(format!("plot file.jsonl{words}").split(' '));
        draw(&line.args, &recording)
    }

    fn both() -> Vec<Snapshot> {
        let mut all: Vec<Snapshot> = (0..3).map(samples::fairshare).collect();
        all.extend((3..6).map(samples::tbf));
        all
    }

    /// Returns the number of series: polylines 2 pixels wide.
    fn lines(svg: &str) -> usize {
        let polylines = svg.split("<polyline").skip(1);
        let is_series = |tag: &&str| {
            tag.split('>')
                .next()
                .unwrap()
                .contains("stroke-width=\"2\"")
        };
        polylines.filter(is_series).count()
    }

    #[test]
    fn a_line_each() {
        for (words, count, unit) in [
            (" --what share", 5, "share of service, %"),
            (" --what rate", 4, "MB/s"),
            (" --what wait", 3, "99th percentile of queueing times, ms"),
            (" --what queue", 5, "requests queued"),
            (" --what limit", 2, "throttled, times/s"),
            (" --entity uid:1002* --top 1", 2, "2 others"),
        ] {
            let svg = drawn(both(), words).unwrap();
            assert_eq!(lines(&svg), count, "{words}");
            for part in [
                unit,
                "time in s",
                "tbf uid",
                "fairshare uid_then_jobid_fair",
            ] {
                assert!(svg.contains(part), "{words}: {part}");
            }
        }
        let mut all = both();
        all[5].entities[0].name = "<script>\x1b\0&".into();
        assert!(drawn(all, "")
            .unwrap()
            .contains("&lt;script&gt;\\u{1b}\\u{0}&amp;"));
    }

    #[test]
    fn failures() {
        let mut two = both();
        two[0].service = "b".into();
        let none = failure!(NotFound: "file.jsonl: no service 'x'"; "services: ost_io");
        let no_data = failure!(NotFound: "file.jsonl: no data: no entity 'gid:*' has a share";
            "two snapshots of a policy with entities are required");
        let several = failure!(Usage: "file.jsonl has 2 services";
            "set --service to one of: b ost_io");
        for (snapshots, words, want) in [
            (vec![], "", failure!(NotFound: "file.jsonl: no snapshots")),
            (both(), " --service x", none),
            (both(), " --entity gid:*", no_data),
            (two, "", several),
        ] {
            assert_eq!(drawn(snapshots, words), Err(want));
        }
        assert!(PlotTest::try_parse_from(["plot", "f", "--entity", "["]).is_err());
    }
}
