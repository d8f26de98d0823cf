// SPDX-License-Identifier: GPL-2.0-only

//! Texts without structure: `NAME: NUMBER` lines, and the judgement of a service's health.

use super::lines::{lines, Result};
use super::Counters;

/// The numbers of `text` by name: `at_stats`, `nrs_concurrency`.
///
/// # Errors
///
/// A line that is not as expected.
pub fn numbers(text: &str) -> Result<Counters> {
    let mut numbers = Counters::new();
    for line in lines(text) {
        let line = line?;
        if let Some(number) = line.counter()? {
            numbers.insert(line.key.to_string().into(), number);
        }
    }
    Ok(numbers)
}

/// Why a service is not healthy, if it is not, and what `text`, of `health`, says of its progress.
pub fn health(text: &str) -> (Option<String>, String) {
    let (word, reason) = text.trim().split_once('\n').unwrap_or((text.trim(), ""));
    let unhealthy = (word != "healthy").then(|| reason.to_string());
    (unhealthy, reason.into())
}
