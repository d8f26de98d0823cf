// SPDX-License-Identifier: GPL-2.0-only

//! Parser of fio reports.

use std::error::Error;
use std::fs;
use std::path::Path;

use serde_json::Value;

/// Returns the only job of fio's report `path`.
///
/// # Errors
///
/// The report cannot be read, the job failed, or there is not exactly one job.
pub fn job(path: &Path) -> Result<Value, Box<dyn Error>> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut report: Value = serde_json::from_str(&text)?;
    match report["jobs"]
        .as_array_mut()
        .map(std::mem::take)
        .as_deref_mut()
    {
        Some([job]) if job["error"] == 0 => Ok(job.take()),
        Some([job]) => {
            Err(format!("{}: fio failed with error {}", path.display(), job["error"]).into())
        }
        _ => Err(format!("{}: expected one job", path.display()).into()),
    }
}
