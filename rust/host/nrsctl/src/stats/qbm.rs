// SPDX-License-Identifier: GPL-2.0-only

//! Parser of `nrs_qbm_status` and `nrs_qbm_stats`: groups with their clients.

use std::collections::HashMap;

use super::lines::{lines, KeyLine, LineValue, LinesResult};
use super::{Bandwidth, Entity, Group, BOTH};

/// Indentation of the fields of a group.
const GROUP: usize = 2;

/// Indentation of the fields of a client.
const CLIENT: usize = 4;

/// Returns the groups and the clients of `text`, the contents of `nrs_qbm_status`.
///
/// # Errors
///
/// An invalid line.
pub fn read_status(text: &str) -> LinesResult<(Vec<Group>, Vec<Entity>)> {
    let mut groups: Vec<Group> = Vec::new();
    let mut clients: Vec<Entity> = Vec::new();
    for line in lines(text) {
        let line = line?;
        match (line.depth, line.item, line.key) {
            (GROUP, true, "group") => groups.push(Group {
                name: line.text()?,
                ..Group::default()
            }),
            (CLIENT, true, "client") => clients.push(Entity {
                head: BOTH.into(),
                within: groups.last().map(|group| group.name.clone()),
                unit: "bytes".into(),
                bandwidth: Some(Bandwidth::default()),
                ..Entity::new("qbm", line.text()?)
            }),
            (GROUP, false, _) => match groups.last_mut() {
                Some(group) => group_field(group, &line)?,
                None => return Err(line.unexpected("- group: NAME")),
            },
            (CLIENT, false, _) => match clients.last_mut() {
                Some(client) => client_field(client, &line)?,
                None => return Err(line.unexpected("- client: NAME")),
            },
            _ => return Err(line.unexpected("a group or a client")),
        }
    }
    Ok((groups, clients))
}

fn group_field(group: &mut Group, line: &KeyLine<'_>) -> LinesResult {
    match line.key {
        "clients" => {}
        "strategy" => group.strategy = line.text()?,
        "reserves" => line.numbers(|class, number| {
            group
                .counters
                .insert(format!("reserve_{class}").into(), number);
        })?,
        _ => {
            if let Some(number) = line.counter()? {
                group.counters.insert(line.key.to_string().into(), number);
            }
        }
    }
    Ok(())
}

fn client_field(client: &mut Entity, line: &KeyLine<'_>) -> LinesResult {
    let given = client.bandwidth.get_or_insert_default();
    match line.key {
        "class" => given.class = line.text()?,
        "min" => given.min = line.number()?,
        "max" => given.max = line.number()?,
        "allocated" => {
            given.allocated = match line.value {
                LineValue::Quoted(_) => None,
                _ => Some(line.number()?),
            };
            client.limit = given.allocated.map(|rate| rate.to_string());
        }
        "unmet" => given.unmet = line.switch()?,
        "used_fast" => given.used_fast = line.number()?,
        "used_slow" => given.used_slow = line.number()?,
        _ => {}
    }
    Ok(())
}

/// Adds the counters of `text`, the contents of `nrs_qbm_stats`, to the groups and the clients.
/// Groups and clients that were added or removed in the meantime are skipped.
///
/// # Errors
///
/// An invalid line.
pub fn read_stats(text: &str, groups: &mut [Group], clients: &mut [Entity]) -> LinesResult {
    let mut places = HashMap::with_capacity(clients.len());
    for (place, client) in clients.iter().enumerate() {
        places.insert(
            (
                client.within.clone().unwrap_or_default(),
                client.name.clone(),
            ),
            place,
        );
    }
    let mut group: Option<String> = None;
    let mut client = None;
    for line in lines(text) {
        let line = line?;
        match (line.depth, line.item, &group) {
            (GROUP, true, _) if line.key == "group" => group = Some(line.text()?),
            (CLIENT, true, Some(group)) if line.key == "client" => {
                client = places.get(&(group.clone(), line.text()?)).copied();
            }
            (GROUP, false, Some(name)) => {
                let known = groups.iter_mut().find(|group| group.name == *name);
                match known {
                    Some(group) if line.key != "clients" => {
                        if let Some(number) = line.counter()? {
                            group.counters.insert(line.key.to_string().into(), number);
                        }
                    }
                    _ => {}
                }
            }
            (CLIENT, false, Some(_)) => {
                if let Some(client) = client.and_then(|place: usize| clients.get_mut(place)) {
                    counter(client, &line)?;
                }
            }
            _ => return Err(line.unexpected("a group or a client")),
        }
    }
    Ok(())
}

fn counter(client: &mut Entity, line: &KeyLine<'_>) -> LinesResult {
    match line.key {
        "requests" => client.set("dispatched", line.number()?),
        "read_bytes" | "written_bytes" => {
            client.set(
                "cost",
                client.counter("cost").saturating_add(line.number()?),
            );
        }
        "sleeps" => client.set("limit_hits", line.number()?),
        _ => {}
    }
    Ok(())
}
