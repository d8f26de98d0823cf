// SPDX-License-Identifier: GPL-2.0-only

//! `nrsctl generate`

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory as _, Subcommand};
use clap_complete::Shell;

use crate::cli::Cli;
use crate::failure::{Kind, Result};
use crate::kernel::Kernel;
use crate::reference;

/// Its arguments.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// What to write.
    #[command(subcommand)]
    pub what: What,
}

/// What can be written.
#[derive(Subcommand, Debug)]
pub enum What {
    /// Manual pages, one per verb.
    Man {
        /// The directory for them.
        directory: PathBuf,
    },
    /// Completions for bash, zsh and fish.
    Completions {
        /// The directory for them.
        directory: PathBuf,
    },
    /// The reference of all parameters and commands.
    Reference {
        /// The file for it.
        file: PathBuf,
    },
}

/// Carries it out.
///
/// # Errors
///
/// What writing returns.
pub fn run(args: &Args, _kernel: &dyn Kernel, _out: &mut dyn Write) -> Result {
    match &args.what {
        What::Man { directory } => {
            fs::create_dir_all(directory)?;
            // What is hidden has no page.
            pages(Cli::command().disable_help_subcommand(true), directory)
        }
        What::Completions { directory } => {
            fs::create_dir_all(directory)?;
            for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
                clap_complete::generate_to(shell, &mut Cli::command(), "nrsctl", directory)?;
            }
            Ok(())
        }
        What::Reference { file } => Ok(fs::write(file, reference::page())?),
    }
}

/// Writes the page of `command`, and those of its verbs.
fn pages(mut command: Command, directory: &Path) -> Result {
    command.build();
    page(&command, directory)
}

/// Writes the page of a command that is built.
fn page(command: &Command, directory: &Path) -> Result {
    let name = command
        .get_display_name()
        .unwrap_or(command.get_name())
        .to_owned();
    let man = clap_mangen::Man::new(command.clone()).title(name.to_uppercase());
    let mut text = Vec::new();
    man.render(&mut text)?;
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

/// Writes what exit statuses mean.
fn statuses(out: &mut dyn Write) -> Result {
    writeln!(out, ".SH \"EXIT STATUS\"\n.TP\n0\neverything was done")?;
    for kind in Kind::ALL {
        writeln!(out, ".TP\n{}\n{}", kind.exit_status(), kind.meaning())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mock::Mock;

    /// A directory of this test's own.
    fn directory(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("nrsctl-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        path
    }

    fn generate(what: What) -> Result {
        run(&Args { what }, &Mock::with(&[]), &mut Vec::new())
    }

    #[test]
    fn a_page_per_verb() {
        let directory = directory("man");
        generate(What::Man {
            directory: directory.clone(),
        })
        .unwrap();
        for name in [
            "nrsctl",
            "nrsctl-get_param",
            "nrsctl-rule",
            "nrsctl-rule-start",
            "nrsctl-apply",
        ] {
            let text = fs::read_to_string(directory.join(format!("{name}.1"))).unwrap();
            assert!(text.contains(".SH \"EXIT STATUS\""), "{name}");
            assert!(text.contains(".TP\n5\nthe rights do not suffice"), "{name}");
            assert!(text.contains(".SH SYNOPSIS"), "{name}");
        }
        assert!(!directory.join("nrsctl-generate.1").exists());
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn completions_of_three_shells() {
        let directory = directory("completions");
        generate(What::Completions {
            directory: directory.clone(),
        })
        .unwrap();
        for name in ["nrsctl.bash", "_nrsctl", "nrsctl.fish"] {
            let text = fs::read_to_string(directory.join(name)).unwrap();
            assert!(text.contains("set_param"), "{name}");
        }
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn what_cannot_be_written() {
        let failure = generate(What::Reference {
            file: "/nowhere/at/all".into(),
        })
        .unwrap_err();
        assert_eq!(failure.kind, Kind::Other);
    }
}
