// SPDX-License-Identifier: GPL-2.0-only

//! Loading and parsing of scenarios.

use std::path::Path;

use super::{check, fault, Faults, Scenario};

impl Scenario {
    /// Loads a scenario file with keys overridden by `set`.
    ///
    /// `set` has pairs of a key path and a value. A path is, for example, `job.a.procs` or
    /// `server.0.policy`: a list entry is selected by name or index. A value is a TOML value; a
    /// word that is not TOML is taken as a string.
    ///
    /// # Errors
    ///
    /// All faults found, each with its place: the file cannot be read or the scenario is invalid.
    pub fn load(path: &Path, set: &[(String, String)]) -> Result<Self, Faults> {
        let (file, text) = fault::load(path)?;
        Self::parse(&file, &text, set)
    }

    /// Parses the scenario in `text`; `file` is used in messages only.
    ///
    /// # Errors
    ///
    /// See [`Scenario::load`].
    pub fn parse(file: &str, text: &str, set: &[(String, String)]) -> Result<Self, Faults> {
        let scenario = Self::read(file, text)?;
        if set.is_empty() {
            return Ok(scenario);
        }
        let text = fault::overridden(text, set)
            .map_err(|(key, reason)| Faults::of("--set", &key, reason))?;
        Self::read(&format!("{file} with --set"), &text)
    }

    fn read(file: &str, text: &str) -> Result<Self, Faults> {
        let scenario: Self = fault::read(file, text)?;
        let found = check::check(&scenario);
        if found.is_empty() {
            return Ok(scenario);
        }
        Err(Faults::located(file, text, found))
    }
}
