// SPDX-License-Identifier: GPL-2.0-only

//! `nrsctl complete`: candidates for the next word of a command line, for shell completion.

use std::io::Write;

use clap::{Arg, Command, CommandFactory as _};
use nrs_sched::{parameters, policy};

use crate::cli::Cli;
use crate::failure::Result;
use crate::items::OWNERS;
use crate::kernel::Kernel;
use crate::stats::rules;

/// Arguments of `nrsctl complete`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Words after `nrsctl`; the last word is completed.
    #[arg(allow_hyphen_values = true, trailing_var_arg = true)]
    pub words: Vec<String>,
}

/// Prints the completions of the last word, one per line; none if the module cannot be read.
///
/// # Errors
///
/// Errors of writing.
pub fn run(args: &Args, kernel: &dyn Kernel, out: &mut dyn Write) -> Result {
    let Some((last, before)) = args.words.split_last() else {
        return Ok(());
    };
    // A shell passes the quote before an unfinished word.
    let last = last.strip_prefix(['\'', '"']).unwrap_or(last);
    let mut words = candidates(kernel, before, last);
    words.retain(|word| word.starts_with(last));
    words.sort();
    words.dedup();
    for word in words {
        writeln!(out, "{word}")?;
    }
    Ok(())
}

/// Returns the candidates for the word after `before`: options if `last` starts with `-`, else
/// commands and values.
fn candidates(kernel: &dyn Kernel, before: &[String], last: &str) -> Vec<String> {
    let mut root = Cli::command();
    root.build();
    let (mut command, mut path) = (&root, Vec::new());
    let (mut given, mut option) = (Vec::new(), None);
    for word in before.iter().map(String::as_str) {
        if option.take().is_some() {
        } else if word.starts_with('-') {
            let known = command.get_arguments().find(|arg| is_called(arg, word));
            option =
                known.filter(|arg| arg.get_action().takes_values() && !arg.is_require_equals_set());
        } else if let Some(below) = command.find_subcommand(word) {
            path.push(command.get_name());
            command = below;
        } else {
            given.push(word);
        }
    }
    if let Some(option) = option {
        return values(kernel, &path, (command, option), &given, last);
    }
    if last.starts_with('-') {
        let shown = command.get_arguments().filter(|arg| !arg.is_hide_set());
        return shown
            .filter_map(|arg| Some(format!("--{}", arg.get_long()?)))
            .collect();
    }
    let shown = command
        .get_subcommands()
        .filter(|below| !below.is_hide_set());
    let names = shown.flat_map(|below| below.get_visible_aliases().chain([below.get_name()]));
    let mut words: Vec<String> = names.map(str::to_owned).collect();
    let position = match command.get_positionals().count() {
        0 => return words,
        count => given.len().min(count - 1),
    };
    if let Some(arg) = command.get_positionals().nth(position) {
        words.extend(values(kernel, &path, (command, arg), &given, last));
    }
    words
}

/// Returns true if `word` is the option `arg` without a value.
fn is_called(arg: &Arg, word: &str) -> bool {
    let long = word.strip_prefix("--");
    let short = word.strip_prefix('-').filter(|name| name.len() == 1);
    long.is_some_and(|name| arg.get_long() == Some(name))
        || short.is_some_and(|name| arg.get_short().is_some_and(|own| name.starts_with(own)))
}

/// Returns the possible values of `arg` of `command` after the words `given`; `last` is the
/// beginning of the value.
fn values(
    kernel: &dyn Kernel,
    path: &[&str],
    (command, arg): (&Command, &Arg),
    given: &[&str],
    last: &str,
) -> Vec<String> {
    let possible = arg.get_possible_values();
    if !possible.is_empty() {
        let shown = possible.iter().filter(|value| !value.is_hide_set());
        return shown.map(|value| value.get_name().to_owned()).collect();
    }
    let services = || kernel.services().unwrap_or_default();
    let group = path.last().copied().unwrap_or_default();
    match (command.get_name(), arg.get_id().as_str()) {
        (verb @ ("get_param" | "set_param" | "list_param"), _) => {
            let end = if verb == "set_param" { "=" } else { "" };
            let all = || parameters::all().filter(|one| end.is_empty() || one.access.writes());
            let names =
                |service: String| all().map(move |one| format!("{service}.{}{end}", one.name()));
            services().into_iter().flat_map(names).collect()
        }
        (_, "service" | "services") => services(),
        (_, "policy") => {
            let shown = policy::Kind::ALL.iter().filter(|kind| !kind.is_for_tests());
            shown.map(|kind| kind.name().to_owned()).collect()
        }
        ("start", "conditions") => cgroups(kernel, "cgroup={", last, "}"),
        ("set", "weights") => cgroups(kernel, "cgroup:", last, "="),
        ("set", "owners") => cgroups(kernel, "", last, "="),
        ("unset", "paths") => {
            let owners = given
                .first()
                .map(|service| kernel.get(service, OWNERS.parameter));
            let owners = owners.and_then(Result::ok).unwrap_or_default();
            let paths = owners.lines().filter_map(|line| OWNERS.split(line));
            paths.map(|(path, _)| path.to_owned()).collect()
        }
        (verb, "name") if verb != "add" && verb != "start" => match group {
            "service" => services(),
            "rule" => {
                let rules = given.first().map(|service| rules::list(kernel, service));
                let rules = rules.and_then(Result::ok).unwrap_or_default();
                rules.into_iter().map(|rule| rule.name).collect()
            }
            _ => {
                let devices = kernel.devices().unwrap_or_default();
                devices.into_iter().map(|device| device.name).collect()
            }
        },
        _ => Vec::new(),
    }
}

/// Returns the candidates for a word that begins with `last` and has the path of a cgroup between
/// `before` and `after`. Names that need quotes are left out.
fn cgroups(kernel: &dyn Kernel, before: &str, last: &str, after: &str) -> Vec<String> {
    let at = match before {
        "" => Some(0),
        _ => last.rfind(before).map(|at| at + before.len()),
    };
    let Some(at) = at else {
        return vec![format!("{before}/")];
    };
    let (text, path) = last.split_at(at);
    let above = path.rsplit_once('/').map_or("", |(above, _)| above);
    let plain = |c: char| c.is_ascii_graphic() && !"\"'{},".contains(c);
    let names = kernel.cgroups(&format!("{above}/")).into_iter();
    let found = names
        .filter(|name| name.chars().all(plain))
        .flat_map(|name| {
            let path = format!("{above}/{name}");
            let below = !kernel.cgroups(&path).is_empty();
            let deeper = below.then(|| format!("{text}{path}/"));
            [Some(format!("{text}{path}{after}")), deeper]
                .into_iter()
                .flatten()
        });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mock::Mock;

    #[test]
    fn words_that_may_follow() {
        let kernel = Mock::of(&["ost_io", "san"]);
        kernel.set("san", "nrs_policies", "tbf uid").unwrap();
        kernel
            .set("san", "nrs_tbf_rule", "start greedy uid={5}")
            .unwrap();
        let device = crate::kernel::Device {
            name: "files".into(),
            ..Default::default()
        };
        kernel.add_device(&device).unwrap();
        kernel.set("san", "nrs_owners", "/b=1:2 /a/x*=3:4").unwrap();
        for (line, want) in [
            ("se", "service set_param"),
            ("gen", ""),
            ("device a", "above add"),
            ("service s", "set show"),
            ("service show o", "ost_io"),
            ("service add o", ""),
            ("rule stop s", "san"),
            ("rule stop san g", "greedy"),
            ("rule stop ost_io ", ""),
            ("rule stop san --head r", "reg"),
            ("rule stop --head reg s", "san"),
            ("rule start san --bo", "--borrow"),
            ("rule list --nu", "--numeric"),
            ("policy set san fai", "fairshare"),
            ("apply --service o", "ost_io"),
            ("status ost_io s", "san"),
            ("get_param san.slo", "san.slots"),
            ("set_param san.slots=8 san.slo", "san.slots="),
            ("set_param san.heal", ""),
            ("client show f", "files"),
            ("no such verb", ""),
            ("rule start san web c", "cgroup={/"),
            (
                "rule start san web cgroup={/",
                "cgroup={/system.slice/ cgroup={/system.slice} cgroup={/user.slice}",
            ),
            (
                "rule start san web 'uid={5}&cgroup={/system.slice/w",
                "uid={5}&cgroup={/system.slice/web.service}",
            ),
            ("rule start san web cgroup={/system.slice/q", ""),
            ("rule start san web cgroup={/none/", ""),
            ("weight set san cgroup:/u", "cgroup:/user.slice="),
            ("owner set san /sys", "/system.slice/ /system.slice="),
            ("owner unset san ", "/a/x* /b"),
        ] {
            let words = line.split(' ').map(str::to_owned).collect();
            let mut out = Vec::new();
            run(&Args { words }, &kernel, &mut out).unwrap();
            let found = String::from_utf8(out).unwrap();
            assert_eq!(found.lines().collect::<Vec<_>>().join(" "), want, "{line}");
        }
    }
}
