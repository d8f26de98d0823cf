// SPDX-License-Identifier: GPL-2.0-only

//! `nrsctl record`

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::{failure, Failure, FailureKind, Result};
use crate::kernel::Kernel;
use crate::names::no_service;
use crate::recording::{self, Header, Recording, Writer};
use crate::replace::create;
use crate::top::source::{LiveSource, Source};

/// Arguments of `nrsctl record`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Names of services (default: all that exist at each snapshot).
    pub services: Vec<String>,
    /// Interval between snapshots, in seconds.
    #[arg(long, value_name = "S", default_value = "1", value_parser = interval)]
    pub interval: Duration,
    /// Duration of the recording, in seconds.
    #[arg(long = "for", value_name = "S", value_parser = seconds)]
    pub time: Option<Duration>,
    /// Number of snapshots of each service.
    #[arg(
        long,
        value_name = "N",
        conflicts_with = "time",
        value_parser = clap::value_parser!(u32).range(1..),
    )]
    pub count: Option<u32>,
    /// Output file (default standard output).
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Maximum size of the output in bytes; K, M and G are KiB, MiB and GiB.
    #[arg(long, value_name = "N", default_value = "256M", value_parser = size)]
    pub max_bytes: u64,
}

/// Parses the interval between snapshots, 0.1 to 3600 s.
///
/// # Errors
///
/// A description of the expected value.
pub fn interval(text: &str) -> std::result::Result<Duration, String> {
    duration(text, 0.1, 3600.0)
}

/// Parses the duration of a recording.
fn seconds(text: &str) -> std::result::Result<Duration, String> {
    duration(text, 0.0, 1e9)
}

/// Parses seconds from `low` to `high`.
fn duration(text: &str, low: f64, high: f64) -> std::result::Result<Duration, String> {
    let found = text.parse().ok().filter(|s| (low..=high).contains(s));
    let found = found.map(Duration::from_secs_f64);
    found.ok_or_else(|| format!("expected seconds, {low} to {high}"))
}

/// Parses a number of bytes.
fn size(text: &str) -> std::result::Result<u64, String> {
    let (digits, scale) = match text.strip_suffix(['K', 'M', 'G']) {
        Some(digits) if text.ends_with('K') => (digits, 1 << 10),
        Some(digits) if text.ends_with('M') => (digits, 1 << 20),
        Some(digits) => (digits, 1 << 30),
        None => (text, 1),
    };
    let number: Option<u64> = digits.parse().ok();
    number
        .and_then(|number| number.checked_mul(scale))
        .ok_or_else(|| "expected bytes, optionally with K, M or G".into())
}

/// Reads a recording, and reports a truncated last line on standard error.
///
/// # Errors
///
/// - Errors of [`recording::read`].
/// - [`FailureKind::NotFound`], [`FailureKind::Permission`]: the file cannot be read.
pub fn open(path: &Path) -> Result<Recording> {
    let text = fs::read(path).map_err(|error| Failure::of_file(path, &error))?;
    let name = path.display().to_string();
    let recording = recording::read(&text, &name)?;
    if let Some(line) = recording.cut {
        let _ = writeln!(
            io::stderr(),
            "nrsctl: {name}: line {line} is truncated and ignored: the recording was interrupted"
        );
    }
    Ok(recording)
}

/// Reason for the end of a recording.
#[derive(Debug, PartialEq)]
enum End {
    /// All snapshots were taken.
    Done,
    /// A signal was received.
    Told,
    /// Another line would exceed `--max-bytes`.
    Full,
}

/// Runs `nrsctl record`. After a failure, the output consists of complete lines.
///
/// # Errors
///
/// - [`FailureKind::NotFound`]: a service does not exist at the start.
/// - [`FailureKind::NotLoaded`] and other errors of the module.
/// - [`FailureKind::Other`]: writing failed, or `--max-bytes` is reached.
/// - [`FailureKind::Closed`]: the reader closed the output.
pub fn run(args: &Args, kernel: &dyn Kernel, out: &mut dyn Write) -> Result {
    // No file is created if there is nothing to record.
    let there = kernel.services()?;
    if let Some(name) = args.services.iter().find(|name| !there.contains(name)) {
        return Err(no_service(name, &there));
    }
    let told = signals()?;
    match &args.out {
        Some(path) => {
            let mut file = create(path)?;
            let name = path.display().to_string();
            let lines = record(args, &mut LiveSource(kernel), &mut file, &name, &told)?;
            writeln!(out, "{lines} snapshots in {name}")?;
        }
        None => {
            record(args, &mut LiveSource(kernel), out, "standard output", &told)?;
        }
    }
    Ok(())
}

/// Records, and returns the number of snapshots written; failures have the number in their message.
fn record(
    args: &Args,
    source: &mut dyn Source,
    to: &mut dyn Write,
    name: &str,
    told: &Receiver<()>,
) -> Result<u64> {
    let header = Header::now(args.interval.as_secs_f64());
    let begun = Writer::new(to, &header, args.max_bytes);
    let mut writer = begun.map_err(|error| match Failure::from(error) {
        closed if closed.kind == FailureKind::Closed => closed,
        other => other.prefixed(name),
    })?;
    let result = rounds(args, source, &mut writer, told);
    let lines = writer.snapshots();
    match result {
        Ok(End::Full) => Err(failure!(Other:
            "{name}: full after {lines} snapshots (limit: --max-bytes {})", args.max_bytes;
            "increase --interval or --max-bytes")),
        Ok(End::Done | End::Told) => Ok(lines),
        Err(failure) if failure.kind == FailureKind::Closed => Err(failure),
        Err(mut failure) => {
            failure.message += &format!(" ({lines} snapshots are in {name})");
            Err(failure)
        }
    }
}

/// Takes snapshots until the end of the recording.
fn rounds(
    args: &Args,
    source: &mut dyn Source,
    writer: &mut Writer<'_>,
    told: &Receiver<()>,
) -> Result<End> {
    let began = Instant::now();
    let mut rounds: u32 = 0;
    loop {
        let services = match args.services.is_empty() {
            true => source.services()?,
            false => args.services.clone(),
        };
        for service in &services {
            let snapshot = match source.snapshot(service) {
                Ok(Some(snapshot)) => snapshot,
                Ok(None) => return Ok(End::Done),
                // The service was removed after the services were listed.
                Err(failure)
                    if failure.kind == FailureKind::NotFound && args.services.is_empty() =>
                {
                    continue
                }
                Err(failure) => return Err(failure),
            };
            match writer.add(&snapshot) {
                Ok(true) => {}
                Ok(false) => return Ok(End::Full),
                Err(error) => return Err(error.into()),
            }
        }
        rounds = rounds.saturating_add(1);
        if args.count.is_some_and(|count| rounds >= count) {
            return Ok(End::Done);
        }
        // Rounds start at multiples of the interval; the round after an overrun starts immediately.
        let next = args.interval.saturating_mul(rounds);
        if args.time.is_some_and(|time| next > time) {
            return Ok(End::Done);
        }
        match told.recv_timeout(next.saturating_sub(began.elapsed())) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return Ok(End::Told),
        }
    }
}

/// Returns a channel that receives a message at SIGHUP, SIGINT or SIGTERM, so that each line is
/// completed.
fn signals() -> io::Result<Receiver<()>> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    let (tell, told) = mpsc::channel();
    std::thread::Builder::new().spawn(move || {
        // The receiver is dropped if the recording has ended already.
        if signals.forever().next().is_some() {
            let _ = tell.send(());
        }
    })?;
    Ok(told)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::mock::Mock;
    use crate::stats::Snapshot;
    use crate::top::samples;
    use crate::top::source::Replay;

    #[derive(clap::Parser)]
    struct RecordTest {
        #[command(flatten)]
        args: Args,
    }

    fn args(words: &[&str]) -> Args {
        let line = ["record", "--interval", "0.1"];
        RecordTest::parse_from(line.iter().chain(words)).args
    }

    /// Returns a source of these snapshots.
    fn source(snapshots: Vec<Snapshot>) -> Replay {
        Replay::new(Recording {
            header: Header::default(),
            snapshots,
            cut: None,
        })
    }

    /// Records to `to`, and returns the result.
    fn recorded(words: &[&str], source: &mut dyn Source, to: &mut dyn Write) -> Result<u64> {
        let (tell, told) = mpsc::channel();
        let result = record(&args(words), source, to, "f", &told);
        drop(tell);
        result
    }

    /// Source whose service `a` is removed after this number of snapshots.
    struct Leaving(u32, FailureKind);

    impl Source for Leaving {
        fn services(&mut self) -> Result<Vec<String>> {
            match self.0 {
                0 if self.1 == FailureKind::NotLoaded => Err(Failure::new(self.1, "not loaded")),
                0 => Ok(vec!["b".into()]),
                _ => Ok(vec!["a".into(), "b".into()]),
            }
        }

        fn snapshot(&mut self, service: &str) -> Result<Option<Snapshot>> {
            let Some(left) = self.0.checked_sub(u32::from(service == "a")) else {
                return Err(Failure::new(self.1, "no service 'a'"));
            };
            self.0 = left;
            Ok(Some(Snapshot {
                service: service.into(),
                ..Snapshot::default()
            }))
        }

        fn is_live(&self) -> bool {
            true
        }
    }

    /// Writer that fails with `EPIPE` after this number of bytes.
    struct Gone(usize);

    impl Write for Gone {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self
                .0
                .checked_sub(bytes.len())
                .ok_or(io::ErrorKind::BrokenPipe)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn so_many_rounds() {
        let mut other = samples::tbf(0);
        other.service = "z".into();
        let mut all: Vec<Snapshot> = (0..9).map(samples::tbf).collect();
        all.push(other);
        for (words, lines, services) in [
            (&["--count", "1"][..], 2, "ost_io z"),
            (&["--count", "2", "ost_io"], 2, "ost_io"),
            (&["--for", "0.25", "ost_io"], 3, "ost_io"),
        ] {
            let mut file = Vec::new();
            let found = recorded(words, &mut source(all.clone()), &mut file);
            assert_eq!(found, Ok(lines));
            let recording = recording::read(&file, "f").unwrap();
            assert_eq!(recording.services().join(" "), services);
            assert_eq!(recording.header.interval_s, 0.1);
        }
    }

    #[test]
    fn services_may_go() {
        let mut file = Vec::new();
        // One of all services is removed: the other services are still recorded.
        let mut source = Leaving(1, FailureKind::NotFound);
        let left = recorded(&["--count", "3"], &mut source, &mut file);
        assert_eq!(left, Ok(4));
        // A named service is removed, or the module is unloaded.
        for (words, kind) in [
            (&["a"][..], FailureKind::NotFound),
            (&[], FailureKind::NotLoaded),
            (&["a"], FailureKind::NotLoaded),
        ] {
            file.clear();
            let failure = recorded(words, &mut Leaving(2, kind), &mut file).unwrap_err();
            assert_eq!(failure.kind, kind);
            let lines = recording::read(&file, "f").unwrap().snapshots.len();
            let end = format!("({lines} snapshots are in f)");
            assert!(failure.message.ends_with(&end), "{failure}");
        }
    }

    #[test]
    fn no_more_than_allowed() {
        let all: Vec<Snapshot> = (0..9).map(samples::tbf).collect();
        let mut file = Vec::new();
        let done = recorded(&["--max-bytes", "4K"], &mut source(all.clone()), &mut file);
        let read = recording::read(&file, "f").unwrap();
        let lines = read.snapshots.len();
        assert!((1..9).contains(&lines) && file.len() <= 4096 && file.ends_with(b"\n"));
        assert_eq!((&read.snapshots[..], read.cut), (&all[..lines], None));
        let longest = serde_json::to_vec(&all[lines]).unwrap().len();
        assert!(file.len() + longest >= 4096);
        let want = format!("f: full after {lines} snapshots (limit: --max-bytes 4096)");
        assert_eq!(done.unwrap_err().message, want);
        // A closed reader needs no message; any other failed write is reported.
        for room in [0, 4096] {
            let done = recorded(&[], &mut source(all.clone()), &mut Gone(room));
            assert_eq!(done.unwrap_err().kind, FailureKind::Closed);
        }
        let mut full: &mut [u8] = &mut [0; 100];
        let done = recorded(&[], &mut source(all), &mut full);
        assert_eq!(done.unwrap_err().kind, FailureKind::Other);
    }

    #[test]
    fn a_signal_ends_the_recording() {
        let (tell, told) = mpsc::channel();
        tell.send(()).unwrap();
        let mut line = args(&[]);
        line.interval = Duration::from_secs(3600);
        let mut source = source((0..9).map(samples::tbf).collect());
        let done = record(&line, &mut source, &mut Vec::new(), "f", &told);
        assert_eq!(done, Ok(1));
    }

    #[test]
    fn nothing_is_written_without_the_service() {
        let kernel = Mock::with(&[("ost_io", &[])]);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("none");
        let mut line = args(&["ost"]);
        line.out = Some(path.clone());
        let missing = failure!(NotFound: "service 'ost' does not exist"; "did you mean: ost_io");
        assert_eq!(run(&line, &kernel, &mut Vec::new()), Err(missing));
        assert!(!path.exists());
    }

    #[test]
    fn arguments() {
        assert_eq!(interval("0.5"), Ok(Duration::from_millis(500)));
        for text in ["0", "0.09", "3601", "-1", "nan", "inf", "", "1s"] {
            assert!(interval(text).is_err(), "{text}");
        }
        for text in ["-1", "nan", "inf", "1e10", ""] {
            assert!(seconds(text).is_err(), "{text}");
        }
        for (text, want) in [("7", 7), ("2K", 2048), ("256M", 256 << 20), ("3G", 3 << 30)] {
            assert_eq!(size(text), Ok(want));
        }
        for text in ["", "K", "1T", "-1", "1.5M", "99999999999999G"] {
            assert!(size(text).is_err(), "{text}");
        }
    }
}
