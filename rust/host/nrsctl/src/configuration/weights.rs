// SPDX-License-Identifier: GPL-2.0-only

//! Weights of `fairshare`: the writes that lead from one table to another.

use nrs_sched::policy::fairshare::weights::Weights;

/// Maximum length of one write, bytes.
const WRITE_MAX: usize = 4000;

/// Returns the lines that the module shows after the writes `items`, one item each.
///
/// # Errors
///
/// The reason for the refusal.
pub fn normal<'a>(items: impl IntoIterator<Item = &'a str>) -> Result<String, &'static str> {
    let mut weights = Weights::new();
    for item in items {
        weights = weights.apply(item).map_err(|error| error.reason)?;
    }
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = weights.write(&mut out);
    Ok(out)
}

/// Splits an item `FIELD:VALUE:WEIGHT` into name and weight.
pub fn parts(item: &str) -> (&str, &str) {
    item.rsplit_once(':').unwrap_or((item, ""))
}

/// Returns true if an item is a pattern of jobs; the first matching pattern counts.
fn is_pattern(name: &str) -> bool {
    name.starts_with("jobid:") && name.contains(['*', '?'])
}

/// Returns the writes, in order, that lead from `from` to `to`, both as the module shows them.
pub fn commands(from: &str, to: &str) -> Vec<String> {
    let old: Vec<(&str, &str)> = from.lines().map(parts).collect();
    let new: Vec<(&str, &str)> = to.lines().map(parts).collect();
    let has = |list: &[(&str, &str)], name: &str| list.iter().any(|(other, _)| *other == name);
    let patterns = |list: &[(&'_ str, &'_ str)], other: &[(&str, &str)]| {
        let names = list.iter().map(|(name, _)| name.to_string());
        let both = names.filter(|name| is_pattern(name) && has(other, name));
        both.collect::<Vec<_>>()
    };
    // A new pattern is added after all others, so kept patterns must be the first of the new
    // patterns.
    let (stay, wanted) = (patterns(&old, &new), patterns(&new, &old));
    let all_new: Vec<&str> = new
        .iter()
        .map(|(name, _)| *name)
        .filter(|name| is_pattern(name))
        .collect();
    let in_turn = stay == wanted && all_new.iter().zip(&stay).all(|(a, b)| a == b);
    let goes = |name: &str| !has(&new, name) || (is_pattern(name) && !in_turn);
    let removed = old.iter().map(|(name, _)| *name).filter(|name| goes(name));
    let mut items: Vec<String> = removed.map(|name| format!("-{name}")).collect();
    for (name, weight) in &new {
        let there = old.contains(&(*name, *weight)) && !goes(name);
        if !there {
            items.push(format!("{name}:{weight}"));
        }
    }
    let mut writes: Vec<String> = Vec::new();
    for item in items {
        match writes.last_mut() {
            Some(last) if last.len() + 1 + item.len() <= WRITE_MAX => {
                last.push(' ');
                last.push_str(&item);
            }
            _ => writes.push(item),
        }
    }
    writes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(items: &str) -> String {
        normal(items.split(' ').filter(|item| !item.is_empty())).unwrap()
    }

    fn change(from: &str, to: &str) -> Vec<String> {
        let commands = commands(from, to);
        let mut weights = Weights::new().apply(from).unwrap();
        for command in &commands {
            assert!(command.len() <= WRITE_MAX);
            weights = weights.apply(command).unwrap();
        }
        let mut out = String::new();
        weights.write(&mut out).unwrap();
        assert_eq!(out, to, "{commands:?}");
        commands
    }

    #[test]
    fn only_what_differs_is_written() {
        for (from, to, want) in [
            ("uid:5:2", "uid:5:2", ""),
            ("uid:5:2", "uid:5:3 gid:1:9", "uid:5:3 gid:1:9"),
            ("uid:5:2 gid:1:9", "gid:1:9", "-uid:5"),
            (
                "jobid:a*:2",
                "jobid:a*:3 jobid:b*:2",
                "jobid:a*:3 jobid:b*:2",
            ),
            (
                "jobid:a*:2",
                "jobid:b*:2 jobid:a*:2",
                "-jobid:a* jobid:b*:2 jobid:a*:2",
            ),
        ] {
            assert_eq!(change(&lines(from), &lines(to)).join(""), want);
        }
        let many: Vec<String> = (0..2000).map(|uid| format!("uid:{uid}:2")).collect();
        let many = lines(&many.join(" "));
        assert!(change("", &many).len() > 4 && change(&many, "").len() > 4);
    }

    proptest::proptest! {
        #[test]
        fn any_table_of_any_other(
            from in proptest::collection::vec((0..6usize, 1..4u32), 0..8),
            to in proptest::collection::vec((0..6usize, 1..4u32), 0..8),
        ) {
            const NAMES: [&str; 6] =
                ["uid:1", "gid:2", "jobid:a*", "jobid:\"b *\"", "jobid:?", "nid:1.2.3.4@tcp"];
            let text = |items: &[(usize, u32)]| {
                let items = items.iter().map(|(n, w)| format!("{}:{w}", NAMES[*n]));
                let items: Vec<String> = items.collect();
                normal(items.iter().map(String::as_str)).unwrap()
            };
            change(&text(&from), &text(&to));
        }
    }
}
