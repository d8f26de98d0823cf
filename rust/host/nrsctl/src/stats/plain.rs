// SPDX-License-Identifier: GPL-2.0-only

//! Parsers of unstructured texts: `NAME: NUMBER` lines, and the health of a service.

use super::lines::{lines, LinesResult};
use super::Counters;

/// Returns the numbers of `text` by name: `at_stats`, `nrs_concurrency`.
///
/// # Errors
///
/// An invalid line.
pub fn numbers(text: &str) -> LinesResult<Counters> {
    let mut numbers = Counters::new();
    for line in lines(text) {
        let line = line?;
        if let Some(number) = line.counter()? {
            numbers.insert(line.key.to_string().into(), number);
        }
    }
    Ok(numbers)
}

/// Parses `text` of `health`: the reason if the service is not healthy, and the details of its
/// progress.
pub fn health(text: &str) -> (Option<String>, String) {
    let (word, reason) = text.trim().split_once('\n').unwrap_or((text.trim(), ""));
    let unhealthy = (word != "healthy").then(|| reason.to_string());
    (unhealthy, reason.into())
}
