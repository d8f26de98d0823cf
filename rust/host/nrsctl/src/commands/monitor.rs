// SPDX-License-Identifier: GPL-2.0-only

//! `nrsctl monitor`

use std::collections::BTreeMap;
use std::io::Write;
use std::thread::sleep;
use std::time::{Duration, SystemTime};

use serde::Serialize;

use crate::commands::record;
use crate::failure::Result;
use crate::kernel::{self, Kernel};
use crate::show::time;
use crate::stats::{self, Policy, Snapshot};
use crate::top::numbers::printable;

/// Arguments of `nrsctl monitor`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Names of services (default: all that exist).
    pub services: Vec<String>,
    /// Polling interval in seconds; shorter states may be missed.
    #[arg(long, value_name = "S", default_value = "1", value_parser = record::interval)]
    pub interval: Duration,
    /// Number of events after which to exit.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Prints one JSON object per line.
    #[arg(long)]
    pub json: bool,
}

/// Observed states of a service, by name: `client files`, `policy regular`, `health`.
type Seen = BTreeMap<String, String>;

/// Change of an observed state.
#[derive(Debug, PartialEq, Serialize)]
struct Event {
    /// Time in UTC, as in RFC 3339.
    time: String,
    service: String,
    /// Name of the state: `service`, `health`, `policy regular`, `policy high`, `slots`,
    /// `client NAME`.
    what: String,
    /// New state; `gone` if it does not exist any more.
    state: String,
}

/// Returns the observed states of the selected services.
fn observe(args: &Args, kernel: &dyn Kernel) -> Result<BTreeMap<String, Seen>> {
    let wanted = |name: &str| args.services.is_empty() || args.services.iter().any(|n| n == name);
    let all = kernel::each(kernel, |name| {
        let read = || {
            let seen = seen(&stats::summary(kernel, name)?, &kernel.get(name, "slots")?);
            Ok((name.to_owned(), seen))
        };
        wanted(name).then(read).transpose()
    })?;
    Ok(all.into_iter().flatten().collect())
}

/// Returns the observed states of a service with the setting `slots`. The number of slots in the
/// statistics is not used, because each step of the search with `auto` changes it.
fn seen(snapshot: &Snapshot, slots: &str) -> Seen {
    let mut seen = Seen::from([("service".into(), "exists".into())]);
    let health = match &snapshot.unhealthy {
        // Numbers in the reason grow with each poll.
        Some(_) => "NOT HEALTHY",
        None => "healthy",
    };
    seen.insert("health".into(), health.into());
    seen.insert("slots".into(), slots.trim_end().into());
    for head in &snapshot.heads {
        let policy = head.serving().map(Policy::full).unwrap_or_default();
        seen.insert(format!("policy {}", head.name), policy);
    }
    for client in &snapshot.clients {
        let state = if client.lost { "lost" } else { "live" };
        seen.insert(format!("client {}", client.name), state.into());
    }
    seen
}

/// Returns the changes between two polls; of a service that appeared or disappeared, only this
/// change.
fn changes(
    before: &BTreeMap<String, Seen>,
    now: &BTreeMap<String, Seen>,
) -> Vec<(String, String, String)> {
    let mut events = Vec::new();
    let mut add = |service: &str, what: &str, state: &str| {
        events.push((service.to_owned(), what.to_owned(), state.to_owned()));
    };
    let gone = before.keys().filter(|name| !now.contains_key(*name));
    gone.for_each(|name| add(name, "service", "gone"));
    for (name, seen) in now {
        let Some(old) = before.get(name) else {
            add(name, "service", "exists");
            continue;
        };
        let gone = old.keys().filter(|what| !seen.contains_key(*what));
        gone.for_each(|what| add(name, what, "gone"));
        for (what, state) in seen
            .iter()
            .filter(|(what, state)| old.get(*what) != Some(state))
        {
            let found = state == "live" && old.get(what).is_some_and(|old| old == "lost");
            add(name, what, if found { "found" } else { state });
        }
    }
    events
}

/// Prints changes as they are observed, until `--count`.
///
/// # Errors
///
/// - [`FailureKind::Closed`](crate::failure::FailureKind): the reader closed the output.
/// - Errors of reading statistics.
pub fn run(args: &Args, kernel: &dyn Kernel, out: &mut dyn Write) -> Result {
    watch(args, kernel, out, || sleep(args.interval))
}

/// Runs as [`run`], with `pause` called between two polls.
fn watch(args: &Args, kernel: &dyn Kernel, out: &mut dyn Write, mut pause: impl FnMut()) -> Result {
    let mut before = observe(args, kernel)?;
    if let Some(name) = args
        .services
        .iter()
        .find(|name| !before.contains_key(*name))
    {
        return Err(crate::names::no_service(name, &kernel.services()?));
    }
    let mut left = args.count.unwrap_or(u64::MAX);
    while left > 0 {
        pause();
        let now = observe(args, kernel)?;
        for (service, what, state) in changes(&before, &now) {
            let Some(less) = left.checked_sub(1) else {
                break;
            };
            left = less;
            let time = time(SystemTime::now());
            match args.json {
                true => {
                    let event = Event {
                        time,
                        service,
                        what,
                        state,
                    };
                    serde_json::to_writer(&mut *out, &event).map_err(std::io::Error::from)?;
                    writeln!(out)?;
                }
                false => {
                    let (what, state) = (printable(&what), printable(&state));
                    writeln!(out, "{time} {service}: {what}: {state}")?;
                }
            }
        }
        out.flush()?;
        before = now;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::output_of;
    use crate::failure::FailureKind;
    use crate::mock::Mock;

    #[test]
    fn changes_are_reported() {
        // A line for each service: its name and its states.
        let observe = |text: &str| -> BTreeMap<String, Seen> {
            let services = text.lines().map(|line| line.split_once(": ").unwrap());
            let seen = |states: &str| -> Seen {
                let pairs = states.split("; ").filter_map(|pair| pair.split_once('='));
                pairs
                    .map(|(what, state)| (what.into(), state.into()))
                    .collect()
            };
            services
                .map(|(name, states)| (name.into(), seen(states)))
                .collect()
        };
        let before = observe("a: client c=lost; client d=live; client e=live; health=healthy\nb: ");
        let now = observe(
            "a: client c=live; client d=lost; client f=live; health=NOT HEALTHY\n\
             c: client x=live",
        );
        let found: Vec<String> = changes(&before, &now)
            .into_iter()
            .map(|(service, what, state)| format!("{service}: {what}: {state}"))
            .collect();
        let want = [
            "b: service: gone",
            "a: client e: gone",
            "a: client c: found",
            "a: client d: lost",
            "a: client f: live",
            "a: health: NOT HEALTHY",
            "c: service: exists",
        ];
        assert_eq!(found, want);
        assert_eq!(changes(&now, &now), []);
    }

    /// Checks that `slots` is the setting, so that steps of the search with `auto` are not changes.
    #[test]
    fn slots_that_are_set() {
        let texts = [
            ("slots", "auto\n"),
            ("snapshot", r#"{"clients":{"service":{"slots":17}}}"#),
        ];
        let kernel = Mock::with(&[("a", &texts)]);
        let args = Args {
            services: Vec::new(),
            interval: Duration::ZERO,
            count: None,
            json: false,
        };
        for slots in ["auto", "8"] {
            kernel.set("a", "slots", slots).unwrap();
            assert_eq!(observe(&args, &kernel).unwrap()["a"]["slots"], slots);
        }
    }

    #[test]
    fn services_are_monitored() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            args: Args,
        }
        let kernel = Mock::of(&["a", "b"]);
        let monitored = |words: &str, change: &dyn Fn(usize)| {
            let args = Line::parse_from(words.split(' ')).args;
            let (mut out, mut looks) = (Vec::new(), 0);
            let pause = || {
                looks += 1;
                change(looks);
            };
            watch(&args, &kernel, &mut out, pause).unwrap();
            String::from_utf8(out).unwrap()
        };
        // Nothing changes before the third poll.
        let text = monitored("monitor a --count 2", &|observe| {
            if observe == 3 {
                kernel.set("a", "nrs_policies", "tbf uid").unwrap();
                kernel.set("b", "nrs_policies", "crrn").unwrap();
            }
        });
        let lines: Vec<&str> = text.lines().map(|line| &line[21..]).collect();
        assert_eq!(
            lines,
            ["a: policy high: tbf uid", "a: policy regular: tbf uid"]
        );
        let text = monitored("monitor --count 1 --json", &|_| {
            kernel.make("c").unwrap_or(())
        });
        let event: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (&event["service"], &event["state"]),
            (&"c".into(), &"exists".into())
        );
        let failure = output_of(&kernel, "monitor missing").unwrap_err();
        assert_eq!(failure.kind, FailureKind::NotFound);
    }
}
