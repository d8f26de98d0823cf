// SPDX-License-Identifier: GPL-2.0-only

//! `Documentation/reference.md`: every parameter, file and command, written from the tables that the code itself uses.
//!
//! A test says when the page in the tree is another one.

use std::fmt::Write as _;

use clap::{Arg, Command, CommandFactory as _};
use nrs_report::table::Table;
use nrs_sched::parameters;

use crate::cli::Cli;
use crate::failure::Kind;
use crate::refusal;

/// The parameters of the module: name, mode, what it takes, default, what it is.
const MODULE: &str = "
default_slots | rw | 1 to 65535 | 64 | Slots of services made from then on.
user_requests_max | rw | 64 to 1048576 | 65536 | Requests that one open file of /dev/nrs may have.
classes_max | rw | 64 to 1048576 | 16384 | \
Entities of fairshare and classes of tbf on each head of a partition, for services made from then on.";

/// The attributes of a service in configfs.
const SERVICE: &str = "
cpts | rw | 1 to the number of CPUs, at most 64 | one per NUMA node | Partitions of the service.
slots | rw | 1 to 65535 | module parameter default_slots | As the parameter slots.
state | r | idle, or in use N | | How many clients it has.";

/// The attributes of `rules/NAME` in the directory of a service in configfs.
const RULE: &str = "
match | rw | conditions, up to 3839 bytes | | Whom the rule is for.
head | rw | reg, hp or all | all | The heads that it is for.
rate | rw | a rate; nothing: nrs_tbf_rate | | What each class gets at most.
minrate | rw | a rate, or 0 | 0 | What comes before what others get beyond theirs.
rank | rw | a rule; nothing: in front | | The rule to stand before.
realtime | rw | 0 or another number | 0 | Whether lost time is made up for.
borrow | rw | 0 or 1 | 0 | Whether what others leave unused may be used.
also | rw | up to three rules joined by + | | Rules whose buckets are taken from, too.
enabled | rw | 0 or 1 | 0 | 1 starts the rule, 0 stops it.";

/// `text` in the type of code, if there is any.
fn code(text: &str) -> String {
    match text.is_empty() {
        true => String::new(),
        false => format!("`{text}`"),
    }
}

/// Returns the table of `lines`.
fn table(lines: &str) -> String {
    let mut table = Table::new(&["name", "mode", "takes", "default", "meaning"]);
    for line in lines.trim().lines() {
        let mut cells: Vec<String> = line
            .split('|')
            .map(|cell| cell.trim().to_string())
            .collect();
        for n in [0, 3] {
            cells[n] = code(&cells[n]);
        }
        table.row(&cells);
    }
    table.markdown()
}

/// The table of the parameters of a service.
fn parameters() -> String {
    let mut table = Table::new(&[
        "name",
        "mode",
        "takes",
        "default",
        "errors beside EINVAL",
        "meaning",
    ]);
    // Parameters of policies that only tests have are on no page.
    for one in parameters::all().filter(|one| !one.page.is_empty()) {
        let about = format!(
            "{} [{}]({})",
            one.help(),
            one.page.trim_end_matches(".md"),
            one.page
        );
        table.row(&[
            code(one.name()),
            one.access.name().to_owned(),
            refusal::takes(one),
            code(&refusal::default(one)),
            one.errors.to_owned(),
            about,
        ]);
    }
    table.markdown()
}

/// How an argument is written.
fn written(argument: &Arg) -> String {
    let values = argument.get_value_names().unwrap_or_default();
    let values: Vec<&str> = values.iter().map(|value| value.as_str()).collect();
    let takes = argument.get_action().takes_values();
    let short = argument.get_short().map(|short| format!("-{short}"));
    let long = argument.get_long().map(|long| format!("--{long}"));
    match [short, long].into_iter().flatten().collect::<Vec<_>>() {
        names if names.is_empty() => values.join(" "),
        names if takes && argument.is_require_equals_set() => {
            format!("{}[={}]", names.join(", "), values.join(" "))
        }
        names if takes => format!("{} {}", names.join(", "), values.join(" ")),
        names => names.join(", "),
    }
}

/// The command `command`, and those below it.
fn command(out: &mut String, command: &Command, level: usize) {
    let name = command
        .get_display_name()
        .unwrap_or(command.get_name())
        .replace('-', " ");
    let about = command
        .get_about()
        .map(ToString::to_string)
        .unwrap_or_default();
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").trim();
    let _ = writeln!(
        out,
        "\n{} `{name}`\n\n{about}\n\n```\n{usage}\n```",
        "#".repeat(level)
    );
    let mut table = Table::new(&["argument", "meaning", "default"]);
    let skip = |argument: &&Arg| {
        !matches!(argument.get_id().as_str(), "help" | "version") && !argument.is_hide_set()
    };
    for argument in command.get_arguments().filter(skip) {
        let values = argument.get_possible_values();
        let values: Vec<&str> = values.iter().map(|value| value.get_name()).collect();
        let help = argument
            .get_help()
            .map(ToString::to_string)
            .unwrap_or_default();
        let help = match argument.get_action().takes_values() && !values.is_empty() {
            true => format!("{help} ({})", values.join(", ")),
            false => help,
        };
        let defaults = argument.get_default_values().iter();
        let defaults: Vec<String> = defaults
            .map(|value| value.to_string_lossy().into_owned())
            .collect();
        let default = match argument.get_action().takes_values() {
            true => defaults.join(" "),
            false => String::new(),
        };
        table.row(&[code(&written(argument)), help, code(&default)]);
    }
    if !table.is_empty() {
        let _ = write!(out, "\n{}", table.markdown());
    }
    for below in command
        .get_subcommands()
        .filter(|below| !below.is_hide_set() && below.get_name() != "help")
    {
        self::command(out, below, level + 1);
    }
}

/// The page.
pub fn page() -> String {
    let mut out = String::from(
        "<!-- SPDX-License-Identifier: GPL-2.0-only -->\n\
         # Reference\n\n\
         Written by `nrsctl generate reference` from the tables that the module and the tool use themselves; change those, not this.\n\n\
         ## Parameters of a service\n\n\
         By `nrsctl get_param SERVICE.NAME` and `set_param`, as files in `/sys/kernel/debug/nrs/SERVICE/`, and by\n\
         `dmsetup message DEVICE 0 service NAME`. Mode `r` is read, `w` written, `rw` both. What is refused changes nothing.\n\n",
    );
    out += &parameters();
    out += "\n## Module parameters\n\nIn `/sys/module/nrs/parameters/`, or as options of `modprobe nrs`.\n\n";
    out += &table(MODULE);
    out += "\n## Services in configfs\n\nIn `/sys/kernel/config/nrs/SERVICE/`.\n\n";
    out += &table(SERVICE);
    out += "\n### Rules\n\nIn `rules/NAME/` there; see [Rules in configfs](user-guide.md#rules-in-configfs).\n\n";
    out += &table(RULE);
    // Keys of configuration files and names of metrics have their place here, each from a table of its module.
    out += "\n## Exit statuses of `nrsctl`\n\n";
    let mut statuses = Table::new(&["status", "meaning"]);
    statuses.row(&["0", "everything was done"]);
    for kind in Kind::ALL {
        statuses.row(&[kind.exit_status().to_string().as_str(), kind.meaning()]);
    }
    out += &statuses.markdown();
    out += "\n## Commands\n";
    let mut tool = Cli::command().disable_help_subcommand(true);
    tool.build();
    for below in tool.get_subcommands().filter(|below| !below.is_hide_set()) {
        command(&mut out, below, 3);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_parameters_are_there() {
        let pages = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../Documentation/");
        for parameter in parameters::all().filter(|one| !one.page.is_empty()) {
            let page = std::path::Path::new(pages).join(parameter.page);
            assert!(page.is_file(), "{}", parameter.page);
        }
    }
}
