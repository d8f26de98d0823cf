// SPDX-License-Identifier: GPL-2.0-only

//! Parser of `nrs_fairshare_stats`, a sequence of entities.

use super::lines::{lines, KeyLine, LinesResult};
use super::{Entity, HIGH, REGULAR};

/// Returns the entities of `text`.
///
/// # Errors
///
/// An invalid line.
pub fn read(text: &str) -> LinesResult<Vec<Entity>> {
    let mut entities: Vec<Entity> = Vec::new();
    for line in lines(text) {
        let line = line?;
        if line.item && line.key == "entity" {
            entities.push(Entity {
                head: REGULAR.into(),
                unit: "pages".into(),
                ..Entity::new("fairshare", line.text()?)
            });
            continue;
        }
        match entities.last_mut() {
            Some(entity) => field(entity, &line)?,
            None => return Err(line.unexpected("- entity: NAME")),
        }
    }
    Ok(entities)
}

/// Reads one field of an entity.
fn field(entity: &mut Entity, line: &KeyLine<'_>) -> LinesResult {
    match line.key {
        "active" => entity.busy = line.switch()?,
        "cost_pages" => entity.set("cost", line.number()?),
        "fairness_debt" => entity.debt_pages = Some(line.fraction()?),
        "queue_depth" => entity.queued = line.number()?,
        "queue" => match &*line.text()? {
            "regular" => {}
            "high_priority" => entity.head = HIGH.into(),
            _ => return Err(line.unexpected("regular or high_priority")),
        },
        "weight" => entity.weight = Some(line.fraction()?),
        "factor" => entity.factor = Some(line.fraction()?),
        "share_wanted" => entity.share_wanted = Some(line.fraction()?),
        "share_1s" => entity.share_1s = Some(line.fraction()?),
        "share_60s" => entity.share_60s = Some(line.fraction()?),
        "borrowed" => entity.share_borrowed = Some(line.fraction()?),
        "wait_us" => line.numbers(|key, number| {
            entity.wait_us.insert(key.to_string().into(), number);
        })?,
        _ => entity.count(line)?,
    }
    Ok(())
}
