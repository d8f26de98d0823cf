// SPDX-License-Identifier: GPL-2.0-only

//! Commands of the control node.

use nrs_sched::{agent::LEASE_MAX_MS, control::NodeCommand};

/// Returns true if `text` is one word of printable characters.
fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| (b'!'..=b'~').contains(&byte))
}

/// Returns true if `text` is an id.
fn is_id(text: &str) -> bool {
    (1..=16).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns true if `line` is a valid head of a list of factors.
fn is_grant(line: &str) -> bool {
    let lease = |text: &str| {
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        let ms = text.parse().ok().filter(|_| digits);
        ms.is_some_and(|ms: u32| (1..=LEASE_MAX_MS).contains(&ms))
    };
    line.split_once(' ')
        .is_some_and(|(instance, rest)| is_id(instance) && lease(rest))
}

/// Checks a command.
pub fn run(text: &str) {
    match NodeCommand::parse(text.as_bytes()) {
        Ok(command) => {
            let said = text.strip_suffix('\n').unwrap_or(text);
            let written = match command {
                NodeCommand::Services => "services".to_owned(),
                NodeCommand::Get { service, name } => {
                    assert!(is_word(service) && is_word(name));
                    format!("get {service} {name}")
                }
                NodeCommand::Set {
                    service,
                    name,
                    value,
                } => {
                    assert!(is_word(service) && is_word(name));
                    format!("set {service} {name} {value}")
                }
                NodeCommand::Bind { service } => {
                    assert!(is_word(service));
                    format!("bind {service}")
                }
                NodeCommand::Accounts { all: false } => "accounts".to_owned(),
                NodeCommand::Accounts { all: true } => "accounts all".to_owned(),
                NodeCommand::Names { ids } => {
                    let words: Vec<&str> = said.split(' ').skip(1).collect();
                    let parsed = words.iter().map(|id| u64::from_str_radix(id, 16).unwrap());
                    assert!(parsed.eq(ids.iter()));
                    format!("names {}", words.join(" "))
                }
                NodeCommand::Factors {
                    instance,
                    lease_ms,
                    pairs,
                } => {
                    let (line, rest) = text["factors ".len()..].split_once('\n').unwrap();
                    assert!(is_grant(line) && rest.as_bytes() == pairs);
                    let again = format!("factors {instance:x} {lease_ms}\n{rest}");
                    assert_eq!(NodeCommand::parse(again.as_bytes()), Ok(command));
                    return;
                }
            };
            // The command equals its input, except for an end of line, or a blank before an empty
            // value.
            let end = written.trim_end_matches(' ');
            assert!(said == written || said == end, "{text:?}");
            let again = format!("{written}\n");
            assert_eq!(NodeCommand::parse(again.as_bytes()), Ok(command));
        }
        Err(error) => {
            crate::check_reason(&error);
            let said = text.strip_suffix('\n').unwrap_or(text);
            let (verb, rest) = match said.split_once(' ') {
                Some((verb, rest)) => (verb, Some(rest)),
                None => (said, None),
            };
            let mut words = rest.unwrap_or_default().split(' ');
            let valid = match verb {
                "services" => rest.is_none(),
                "get" => words.all(is_word) && text.split(' ').count() == 3,
                "set" => words.take(2).filter(|word| is_word(word)).count() == 2,
                "bind" => rest.is_some_and(is_word),
                "accounts" => matches!(rest, None | Some("all")),
                "names" => said.len() <= 4096 && words.all(is_id),
                "factors" => text["factors".len()..]
                    .strip_prefix(' ')
                    .and_then(|rest| rest.split_once('\n'))
                    .is_some_and(|(line, _)| is_grant(line)),
                _ => false,
            };
            assert!(!valid, "{text:?}");
        }
    }
}
