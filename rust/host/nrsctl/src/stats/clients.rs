// SPDX-License-Identifier: GPL-2.0-only

//! The text `clients`: slots, the counters of each client, the state of each device below.

use nrs_sched::statistics::{ServiceCounts, Stats};

use super::lines::{lines, Result};
use super::{Client, Snapshot, Target};

/// Reads `text` into `snapshot`.
///
/// # Errors
///
/// A line that is not as expected.
pub fn read(text: &str, snapshot: &mut Snapshot) -> Result {
    for line in lines(text) {
        let line = line?;
        match (line.depth, line.key) {
            (0, "service") => line.pairs(|key, value| {
                if let Some(row) = ServiceCounts::ROWS.iter().find(|row| row.name == key) {
                    let number = value.parse().ok()?;
                    snapshot.counters.insert(row.name.into(), number);
                }
                Some(())
            })?,
            (2, "client") if line.item => snapshot.clients.push(Client {
                name: line.text()?,
                ..Client::default()
            }),
            (2, "target") if line.item => snapshot.targets.push(Target {
                name: line.text()?,
                ..Target::default()
            }),
            (2, "counters") => match (snapshot.targets.last_mut(), snapshot.clients.last_mut()) {
                (Some(target), _) => line.numbers(|key, number| {
                    target.counters.insert(key.to_string().into(), number);
                })?,
                (None, Some(client)) => {
                    line.pairs(|key, value| {
                        if key == "state" {
                            client.lost = value == "lost";
                        }
                        Some(())
                    })?;
                    line.numbers(|key, number| {
                        client.counters.insert(key.to_string().into(), number);
                    })?;
                }
                (None, None) => return Err(line.unexpected("a client or a target before")),
            },
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_later_module_says_is_passed_over() {
        let text = "service: { slots: 64, mode: x, limit: 32 }\nclients:\n- client: \"a\"\n  \
                    counters: { passed: 1, mode: x, share: 0.5, state: lost }\ntargets:\n\
                    - target: \"8:0\"\n  counters: { depth: 3, mode: x }\n";
        let mut snapshot = Snapshot::default();
        read(text, &mut snapshot).unwrap();
        assert_eq!(
            (snapshot.counter("slots"), snapshot.counter("limit")),
            (64, 32)
        );
        assert_eq!(snapshot.clients[0].counters, [("passed".into(), 1)].into());
        assert!(snapshot.clients[0].lost);
        assert_eq!(snapshot.targets[0].counters, [("depth".into(), 3)].into());
        // A number that does not fit is no word.
        let text = text.replace("passed: 1", "passed: 18446744073709551616");
        read(&text, &mut snapshot).unwrap_err();
    }
}
