// SPDX-License-Identifier: GPL-2.0-only

//! `nrsctl weight follow`: weights of cgroups as the kernel's `io.weight`.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::thread::sleep;
use std::time::Duration;

use nrs_sched::glob;
use nrs_sched::items::write_name;

use crate::commands::record;
use crate::failure::Result;
use crate::items::WEIGHTS;
use crate::kernel::Kernel;

/// Default of the kernel's `io.weight`.
const DEFAULT_WEIGHT: u32 = 100;

/// Name of the weight of cgroups that are not listed.
const UNLISTED: &str = "cgroup:*";

/// Name of the weight of requests without a cgroup.
const ABSENT: &str = "cgroup:\"\"";

/// Arguments of `nrsctl weight follow`.
#[derive(clap::Args, Debug)]
pub struct FollowArgs {
    /// Name of the service.
    service: String,
    /// Exits after the first update.
    #[arg(long)]
    once: bool,
    /// Interval of updates in seconds.
    #[arg(long, value_name = "S", default_value = "2", value_parser = record::interval)]
    interval: Duration,
}

/// Keeps the weights of cgroups of a service as in `io.weight`. A refused change, as when another
/// command changes weights at the same time, is tried again after the interval.
///
/// # Errors
///
/// - [`FailureKind::NotFound`](crate::failure::FailureKind): the service does not exist.
/// - With `--once`, the failures of [`Kernel::get`] and [`Kernel::set`].
pub fn run(args: &FollowArgs, kernel: &dyn Kernel) -> Result {
    let mut is_offered = true;
    loop {
        let (wanted, found) = wanted(kernel);
        if is_offered && !found {
            let _ = writeln!(
                io::stderr(),
                "nrsctl: warning: no cgroup has io.weight or io.bfq.weight: all weights are equal"
            );
        }
        is_offered = found;
        match update(kernel, &args.service, &wanted) {
            done if args.once => return done,
            Ok(()) => {}
            Err(failure) if !kernel.services()?.contains(&args.service) => return Err(failure),
            Err(failure) => writeln!(io::stderr(), "nrsctl: warning: {}", failure.message)?,
        }
        sleep(args.interval);
    }
}

/// Returns the wanted weights of cgroups, by name, and whether any cgroup has a file with a weight.
/// Of the cgroups below one that is no slice, none is read: they may be delegated, and who has them
/// would choose weights beside those of others. A path that the module refuses is left out.
fn wanted(kernel: &dyn Kernel) -> (BTreeMap<String, u32>, bool) {
    let mut wanted = BTreeMap::from([(UNLISTED.into(), DEFAULT_WEIGHT)]);
    let mut is_offered = false;
    let mut paths = vec![String::new()];
    while let Some(above) = paths.pop() {
        for name in kernel.cgroups(&format!("{above}/")) {
            let path = format!("{above}/{name}");
            let weight = kernel.cgroup_weight(&path);
            is_offered |= weight.is_some();
            if let Some(weight) = weight.filter(|weight| *weight != DEFAULT_WEIGHT) {
                let mut name = String::from("cgroup:");
                let is_written = write_name(&mut name, path.as_bytes()).is_ok();
                let item = format!("{name}{}{weight}", WEIGHTS.separator);
                let is_taken = is_written && (WEIGHTS.count)(&item).is_ok();
                if is_taken && !glob::is_pattern(path.as_bytes()) {
                    wanted.insert(name, weight);
                }
            }
            if name.ends_with(".slice") {
                paths.push(path);
            }
        }
    }
    (wanted, is_offered)
}

/// Makes the weights of single cgroups of a service those in `wanted`, all at once; other weights
/// are left unchanged.
fn update(kernel: &dyn Kernel, service: &str, wanted: &BTreeMap<String, u32>) -> Result {
    let text = kernel.get(service, WEIGHTS.parameter)?;
    let is_single = |name: &str| {
        let path = name.strip_prefix("cgroup:").unwrap_or_default();
        name == UNLISTED || path.contains('/') && !glob::is_pattern(path.as_bytes())
    };
    let running: BTreeMap<&str, &str> = text
        .lines()
        .filter_map(|line| WEIGHTS.split(line))
        .filter(|(name, _)| is_single(name))
        .collect();
    let gone = running.keys().filter(|name| !wanted.contains_key(**name));
    let gone = gone.map(|name| format!("-{name}"));
    let changed = wanted.iter().filter_map(|(name, weight)| {
        let weight = weight.to_string();
        let is_same = running.get(name.as_str()) == Some(&weight.as_str());
        (!is_same).then(|| format!("{name}{}{weight}", WEIGHTS.separator))
    });
    let has_absent = text.lines().any(|line| line.starts_with(ABSENT));
    let absent = format!("{ABSENT}{}{DEFAULT_WEIGHT}", WEIGHTS.separator);
    let absent = (!has_absent).then_some(absent);
    let items: Vec<String> = gone.chain(changed).chain(absent).collect();
    match items.is_empty() {
        true => Ok(()),
        false => WEIGHTS.set(kernel, service, items.into_iter().map(Ok)),
    }
}

#[cfg(test)]
mod tests {
    use crate::cli::output_of;
    use crate::kernel::Kernel as _;
    use crate::mock::Mock;

    #[test]
    fn weights_follow_the_cgroups() {
        let kernel = Mock::of(&["a"]);
        let others = "uid:1:5 cgroup:/machine.slice/*:7 cgroup:\"\":3";
        kernel.set("a", "nrs_fairshare_weights", others).unwrap();
        let followed = |weights: &[(&str, u32)]| {
            let weights = weights
                .iter()
                .map(|(path, weight)| ((*path).into(), *weight));
            *kernel.cgroup_weights.borrow_mut() = weights.collect();
            output_of(&kernel, "weight follow a --once").unwrap();
            let text = kernel.get("a", "nrs_fairshare_weights").unwrap();
            let mut items: Vec<&str> = text.lines().collect();
            items.sort_unstable();
            items.join(" ")
        };
        let others = "cgroup:/machine.slice/*:7";
        let rest = "cgroup:\"\":3";
        assert_eq!(
            followed(&[("/system.slice/web.service", 400), ("/user.slice", 100)]),
            format!("{rest} cgroup:*:100 {others} cgroup:/system.slice/web.service:400 uid:1:5")
        );
        let weights = [("/system.slice/q'uoted.service", 10), ("/user.slice", 50)];
        assert_eq!(
            followed(&weights),
            format!(
                "{rest} cgroup:*:100 {others} cgroup:/system.slice/q'uoted.service:10 \
                 cgroup:/user.slice:50 uid:1:5"
            )
        );
        let before = kernel.log().len();
        followed(&weights);
        assert_eq!(kernel.log().len(), before, "nothing to write");
        let text = format!("{rest} cgroup:*:100 {others} uid:1:5");
        assert_eq!(followed(&[]), text);
    }
}
