// SPDX-License-Identifier: GPL-2.0-only

//! Commands of `nrs_policies`: the words, the policy, and the argument as parsed by the policy.

use nrs_sched::{
    policy::{Config, Kind, Tunables},
    text::{Heads, PolicyCommand, ARGUMENT_MAX, COMMAND_MAX, NAME_MAX},
};

/// Returns the text of `command`.
fn text(command: &PolicyCommand<'_>) -> String {
    let heads = match command.heads {
        // If an argument starts with a word that names heads, the heads were named before it.
        Heads::All => "",
        Heads::Regular => " reg",
        Heads::High => " hp",
    };
    let argument = command.argument.map(|argument| format!(" {argument}"));
    format!("{}{heads}{}", command.policy, argument.unwrap_or_default())
}

/// Checks the text as a command.
pub fn run(all: &str) {
    let command = match PolicyCommand::parse(all) {
        Ok(command) => command,
        Err(error) => {
            crate::check_reason(&error);
            return;
        }
    };
    assert!(all.len() <= COMMAND_MAX && all.contains(command.policy));
    assert!((1..=NAME_MAX).contains(&command.policy.len()));
    if let Some(argument) = command.argument {
        assert!((1..=ARGUMENT_MAX).contains(&argument.len()) && all.contains(argument));
        assert_eq!(argument, argument.trim_matches([' ', '\t']));
    }
    let shown = text(&command);
    assert_eq!(PolicyCommand::parse(&shown), Ok(command), "{shown:?}");
    let kind = Kind::ALL.iter().find(|kind| kind.name() == command.policy);
    assert_eq!(Kind::from_name(command.policy).ok(), kind.copied());
    // Every policy must handle every argument.
    for &kind in Kind::ALL {
        let tunables = Tunables::default();
        match Config::parse(kind, command.argument, &tunables) {
            Ok(config) => {
                assert_eq!(config.kind(), kind);
                let shown = config.argument().map(|argument| argument.to_string());
                let again = Config::parse(kind, shown.as_deref(), &tunables);
                assert_eq!(again, Ok(config), "{shown:?}");
                assert_eq!(shown.is_some(), command.argument.is_some());
            }
            Err(error) => {
                crate::check_reason(&error);
            }
        }
    }
}
