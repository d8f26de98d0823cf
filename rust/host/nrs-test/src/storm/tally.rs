// SPDX-License-Identifier: GPL-2.0-only

//! Counts of calls by kind and outcome.

use std::{
    collections::BTreeMap,
    fmt::{self, Display, Formatter},
    fs, io,
    path::PathBuf,
    time::{Duration, Instant},
};

use super::allowed;

/// Maximum number of stored findings; more are only counted.
const KEPT: usize = 50;

/// Counts by kind and errno.
pub struct Tally {
    counts: BTreeMap<(String, i32), u64>,
    findings: Vec<String>,
    found: u64,
    file: Option<PathBuf>,
    put: Instant,
}

impl Tally {
    /// Creates an empty tally; counts are written to `file`.
    pub fn new(file: Option<PathBuf>) -> Self {
        Self {
            counts: BTreeMap::new(),
            findings: Vec::new(),
            found: 0,
            file,
            put: Instant::now(),
        }
    }

    /// Counts an answer; an errno that is not in `allowed` is a finding, described by `what`.
    pub fn answer<T>(
        &mut self,
        kind: &str,
        result: &io::Result<T>,
        allowed: &[i32],
        what: impl Display,
    ) {
        let errno = match result {
            Ok(_) => 0,
            // The call did not reach the kernel.
            Err(error) => error.raw_os_error().unwrap_or(-1),
        };
        self.count(kind, errno);
        if errno != 0 && !allowed.contains(&errno) {
            self.finding(format!("{kind}: {}: {}", allowed::name(errno), what));
        }
    }

    /// Counts a call of `kind` that ended with `errno`; 0 is success.
    pub fn count(&mut self, kind: &str, errno: i32) {
        *self.counts.entry((kind.to_owned(), errno)).or_default() += 1;
        if self.put.elapsed() > Duration::from_millis(500) {
            self.put();
        }
    }

    /// Records a finding.
    pub fn finding(&mut self, mut text: String) {
        self.found += 1;
        if self.findings.len() < KEPT {
            text = text.replace(['\n', '\r'], "\\n");
            self.findings.push(text.chars().take(600).collect());
        }
    }

    /// Returns the number of findings.
    pub const fn findings(&self) -> u64 {
        self.found
    }

    /// Adds the counts of another tally.
    pub fn merge(&mut self, other: Self) {
        for (key, count) in other.counts {
            *self.counts.entry(key).or_default() += count;
        }
        let room = KEPT.saturating_sub(self.findings.len());
        self.findings.extend(other.findings.into_iter().take(room));
        self.found += other.found;
    }

    /// Writes the counts to the file. A failure for lack of memory is ignored, since the next call
    /// repeats the write.
    pub fn put(&mut self) {
        self.put = Instant::now();
        if let Some(file) = &self.file {
            let new = file.with_extension("new");
            if fs::write(&new, self.to_string()).is_ok() {
                let _ = fs::rename(&new, file);
            }
        }
    }
}

impl Display for Tally {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for ((kind, errno), count) in &self.counts {
            writeln!(f, "{count} {} {kind}", allowed::name(*errno))?;
        }
        for finding in &self.findings {
            writeln!(f, "finding {finding}")?;
        }
        if self.found > self.findings.len() as u64 {
            writeln!(f, "finding {} in all", self.found)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_allowed_is_found() {
        let mut tally = Tally::new(None);
        let refused = |errno| Err::<(), _>(io::Error::from_raw_os_error(errno));
        tally.answer("write x", &Ok(()), &[], "");
        tally.answer("write x", &refused(22), &[22], "");
        assert_eq!(tally.findings(), 0);
        tally.answer("write x", &refused(5), &[22], "text\n");
        let mut all = Tally::new(None);
        all.count("write x", 0);
        all.merge(tally);
        assert_eq!(
            all.to_string(),
            "2 ok write x\n1 EIO write x\n1 EINVAL write x\nfinding write x: EIO: text\\n\n"
        );
    }
}
