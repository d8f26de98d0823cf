// SPDX-License-Identifier: GPL-2.0-only

//! Parser of `nrs_tbf_rule`: the rules of tbf in their order, in Lustre's layout.

use serde::Serialize;

use super::lines::{unexpected, LinesResult};
use super::{HIGH, REGULAR};

/// A rule of a head.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ListedRule {
    /// Head: `regular` or `high`.
    pub head: String,
    /// Name of the rule.
    pub name: String,
    /// Match expression.
    #[serde(rename = "match")]
    pub conditions: String,
    /// Maximum rate of each class.
    pub rate: String,
    /// Further settings as written in the rule: `minrate=5 borrow=1`; may be empty.
    pub limits: String,
    /// Number of classes of the rule on all partitions.
    pub classes: u64,
}

/// Returns the rules of `text` in their order, each rule of a head once, because all partitions
/// have the same rules.
///
/// # Errors
///
/// An invalid line.
pub fn read(text: &str) -> LinesResult<Vec<ListedRule>> {
    let mut on = None;
    let mut rules: Vec<ListedRule> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        match line.trim_end() {
            "" => {}
            "regular_requests:" => on = Some(REGULAR),
            "high_priority_requests:" => on = Some(HIGH),
            line if line.starts_with("CPT ") && line.ends_with(':') => {}
            line => {
                let head = on.ok_or_else(|| unexpected(number, line, "regular_requests:"))?;
                let rule = parse(line)
                    .ok_or_else(|| unexpected(number, line, "NAME CONDITIONS RATE, ref N"))?;
                let same = |other: &&mut ListedRule| other.head == head && other.name == rule.name;
                match rules.iter_mut().find(same) {
                    Some(other) => other.classes = other.classes.saturating_add(rule.classes),
                    None => rules.push(ListedRule {
                        head: head.into(),
                        ..rule
                    }),
                }
            }
        }
    }
    Ok(rules)
}

/// Parses a line `NAME CONDITIONS RATE[ KEY=VALUE…], ref N`.
fn parse(line: &str) -> Option<ListedRule> {
    let (rule, refs) = line.rsplit_once(", ref ")?;
    let (name, rest) = rule.split_once(' ')?;
    // Conditions end in a brace, except for the rule `default`; values contain no braces.
    let (conditions, limits) = match rest.rfind('}') {
        Some(at) => rest.split_at_checked(at + 1)?,
        None => rest.split_once(' ')?,
    };
    let limits = limits.trim_start();
    let (rate, limits) = limits.split_once(' ').unwrap_or((limits, ""));
    if rate.is_empty() {
        return None;
    }
    Some(ListedRule {
        head: String::new(),
        name: name.into(),
        conditions: conditions.into(),
        rate: rate.into(),
        limits: limits.into(),
        classes: refs.trim().parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_of_all_partitions() {
        let text = "regular_requests:\nCPT 0:\nb uid={1 2} & gid={5} 10MB/s, ref 1\n\
                    default * 10000, ref 2\n\
                    CPT 1:\nb uid={1 2} & gid={5} 10MB/s, ref 3\ndefault * 10000, ref 0\n\
                    high_priority_requests:\n";
        let all = read(text).unwrap();
        assert_eq!(all.len(), 2);
        assert_eq!(
            (&all[0].name[..], &all[0].conditions[..]),
            ("b", "uid={1 2} & gid={5}")
        );
        assert_eq!((&all[0].rate[..], all[0].classes), ("10MB/s", 4));
        assert_eq!((&all[1].conditions[..], all[1].classes), ("*", 2));
        let text = "regular_requests:\nCPT 0:\na uid={1} 5 minrate=2 also=b+c, ref 0\n\
                    default * 7 borrow=1, ref 0\n";
        let all = read(text).unwrap();
        assert_eq!(
            (&all[0].rate[..], &all[0].limits[..]),
            ("5", "minrate=2 also=b+c")
        );
        assert_eq!((&all[1].rate[..], &all[1].limits[..]), ("7", "borrow=1"));
        for (wrong, number) in [
            ("x", 1),
            ("default * 10, ref 0\n", 1),
            ("regular_requests:\na b\n", 2),
            ("regular_requests:\na b c, ref x\n", 2),
            ("regular_requests:\na uid={1} 5\n", 2),
            ("regular_requests:\na uid={1}, ref 1\n", 2),
            ("regular_requests:\n\na 5, ref 1\n", 3),
        ] {
            assert_eq!(read(wrong).unwrap_err().number, number, "{wrong:?}");
        }
    }
}
