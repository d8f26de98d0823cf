// SPDX-License-Identifier: GPL-2.0-only

//! `nrsctl generate`

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory as _, Subcommand};

use crate::cli::Cli;
use crate::examples;
use crate::failure::{FailureKind, Result};
use crate::kernel::Kernel;
use crate::reference;

/// Kinds of files to generate.
#[derive(Subcommand, Debug)]
pub enum Generated {
    /// Manual pages, one per verb.
    Man {
        /// Output directory.
        directory: PathBuf,
    },
    /// Completions for bash, zsh and fish.
    Completions {
        /// Output directory.
        directory: PathBuf,
    },
    /// Reference of parameters and exit statuses.
    Reference {
        /// Output file.
        file: PathBuf,
    },
}

/// Shell completions, which call `nrsctl complete`; without a candidate they complete file names.
const COMPLETIONS: [(&str, &str); 3] = [
    (
        "nrsctl.bash",
        r#"# SPDX-License-Identifier: GPL-2.0-only
_nrsctl() {
	local words=() word last part joins=
	# bash splits words without quotes at = and :.
	for word in "${COMP_WORDS[@]:1:COMP_CWORD}"; do
		[[ $word != [=:]* || ! ${words+x} ]] || joins=1
		if [[ $joins ]]; then words[-1]+=$word; else words+=("$word"); fi
		[[ $word == [=:]* ]] || joins=
	done
	mapfile -t COMPREPLY < <(nrsctl complete -- "${words[@]}" 2>/dev/null)
	[[ ${COMPREPLY-} != *[=/] ]] || compopt -o nospace 2>/dev/null
	last=${words[-1]}
	[[ ${COMPREPLY+x} && $last != [\'\"]* ]] || return 0
	mapfile -t COMPREPLY < <(printf '%q\n' "${COMPREPLY[@]}")
	part=${last%"${last##*[=:]}"}
	COMPREPLY=("${COMPREPLY[@]#"$part"}")
}
complete -o default -F _nrsctl nrsctl
"#,
    ),
    (
        "_nrsctl",
        r#"#compdef nrsctl
# SPDX-License-Identifier: GPL-2.0-only
local -a found
found=("${(@f)$(nrsctl complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
if [[ -z ${found[1]-} ]]; then _files
elif [[ ${found[1]} == *[=/] ]]; then compadd -S '' -a found
else compadd -a found
fi
"#,
    ),
    (
        "nrsctl.fish",
        r#"# SPDX-License-Identifier: GPL-2.0-only
complete -c nrsctl -a '(nrsctl complete -- (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'
"#,
    ),
];

/// Runs `nrsctl generate`.
///
/// # Errors
///
/// Errors of writing.
pub fn run(what: &Generated, _kernel: &dyn Kernel, _out: &mut dyn Write) -> Result {
    match what {
        Generated::Man { directory } => {
            fs::create_dir_all(directory)?;
            // Hidden commands have no page.
            pages(Cli::command().disable_help_subcommand(true), directory)
        }
        Generated::Completions { directory } => {
            fs::create_dir_all(directory)?;
            for (name, text) in COMPLETIONS {
                fs::write(directory.join(name), text)?;
            }
            Ok(())
        }
        Generated::Reference { file } => Ok(fs::write(file, reference::page())?),
    }
}

/// Writes the page of `command` and the pages of its subcommands.
fn pages(mut command: Command, directory: &Path) -> Result {
    command.build();
    page(&command, directory)
}

/// Writes the page of a command that is built, and the pages of its subcommands.
fn page(command: &Command, directory: &Path) -> Result {
    let name = command
        .get_display_name()
        .unwrap_or(command.get_name())
        .to_owned();
    let man = clap_mangen::Man::new(command.clone()).title(name.to_uppercase());
    let mut text = Vec::new();
    man.render(&mut text)?;
    let path = name.replace('-', " ");
    let mut examples = path
        .strip_prefix("nrsctl ")
        .into_iter()
        .flat_map(examples::of)
        .peekable();
    if examples.peek().is_some() {
        writeln!(text, ".SH EXAMPLES\n.nf")?;
        for line in examples {
            writeln!(text, "nrsctl {}", line.replace('-', "\\-"))?;
        }
        writeln!(text, ".fi")?;
    }
    statuses(&mut text)?;
    fs::write(directory.join(format!("{name}.1")), text)?;
    for below in command
        .get_subcommands()
        .filter(|below| !below.is_hide_set())
    {
        page(below, directory)?;
    }
    Ok(())
}

/// Writes the meanings of the exit statuses.
fn statuses(out: &mut dyn Write) -> Result {
    writeln!(out, ".SH \"EXIT STATUS\"\n.TP\n0\nsuccess")?;
    for kind in FailureKind::all() {
        writeln!(out, ".TP\n{}\n{}", kind.exit_status(), kind.meaning())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mock::Mock;

    #[test]
    fn pages_and_completions() {
        let directory = tempfile::tempdir().unwrap();
        let generate = |what| run(&what, &Mock::with(&[]), &mut Vec::new());
        let place = directory.path().to_path_buf();
        generate(Generated::Man {
            directory: place.clone(),
        })
        .unwrap();
        generate(Generated::Completions {
            directory: place.clone(),
        })
        .unwrap();
        for (name, part) in [
            (
                "nrsctl-rule-start.1",
                ".TP\n5\nroot privileges are required",
            ),
            ("nrsctl-apply.1", ".SH SYNOPSIS"),
            ("nrsctl-apply.1", ".nf\nnrsctl apply \\-\\-dry\\-run\n"),
            ("nrsctl-rule.1", "nrsctl rule stop ost_io batch\n"),
            ("nrsctl.bash", "nrsctl complete -- "),
            ("_nrsctl", "nrsctl complete -- "),
            ("nrsctl.fish", "nrsctl complete -- "),
        ] {
            let text = fs::read_to_string(place.join(name)).unwrap();
            assert!(text.contains(part), "{name}");
        }
        assert!(!place.join("nrsctl-generate.1").exists());
        let file = "/nowhere/at/all".into();
        assert_eq!(
            generate(Generated::Reference { file }).unwrap_err().kind,
            FailureKind::Other
        );
    }
}
