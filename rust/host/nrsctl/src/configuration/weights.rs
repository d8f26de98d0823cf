// SPDX-License-Identifier: GPL-2.0-only

//! Weights of `fairshare`.

use nrs_sched::policy::fairshare::weights::Weights;

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
