// SPDX-License-Identifier: GPL-2.0-only

//! Texts without structure: `NAME: NUMBER` lines, and the judgement of a service's health.

use std::collections::BTreeMap;

use super::lines::{lines, Result};

/// The numbers of `text` by name: `at_stats`, `nrs_concurrency`.
///
/// # Errors
///
/// A line that is not as expected.
pub fn numbers(text: &str) -> Result<BTreeMap<String, u64>> {
    let pair = |line: Result<super::lines::Line<'_>>| {
        let line = line?;
        Ok((line.key.into(), line.number()?))
    };
    lines(text).map(pair).collect()
}

/// Why a service is not healthy, if it is not, and what `text`, of `health`, says of its progress.
pub fn health(text: &str) -> (Option<String>, String) {
    let (word, reason) = text.trim().split_once('\n').unwrap_or((text.trim(), ""));
    let unhealthy = (word != "healthy").then(|| reason.to_string());
    (unhealthy, reason.into())
}
