// SPDX-License-Identifier: GPL-2.0-only

//! Parser of `clients`: slots, counters of each client, state of each target device.

use nrs_sched::statistics::{ServiceCounts, Stats};

use super::lines::{lines, LinesResult};
use super::{Client, Snapshot, Target};

/// Reads `text` into `snapshot`.
///
/// # Errors
///
/// An invalid line.
pub fn read(text: &str, snapshot: &mut Snapshot) -> LinesResult {
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
                (None, None) => {
                    let want = "a line '- client: NAME' or '- target: NAME' before";
                    return Err(line.unexpected(want));
                }
            },
            _ => {}
        }
    }
    Ok(())
}
