// SPDX-License-Identifier: GPL-2.0-only

//! Modes: fields of a request that identify its entity, from the outermost to the innermost level.
//!
//! ```text
//! mode  = level *( "_then_" level ) "_fair"        ; each level at most once
//! level = "gid" | "uid" | "jobid" | "projid" | "nid" | "nodemap" | "cgroup"
//!       | "opcode" | "ioprio" | "size"
//! ```
//!
//! Level `size` divides by jobs with weights in proportion to their sizes, so a mode has at most
//! one of `jobid` and `size`.

use crate::sched::{
    error::{Error, Result},
    key::Field,
    policy::params::line,
};
use core::fmt;

/// Largest number of levels of a mode: each field once.
pub const DEPTH_MAX: usize = 9;

/// Field by which a level of the tree divides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Groups.
    Gid,
    /// Users.
    Uid,
    /// Jobs.
    Jobid,
    /// Projects.
    Projid,
    /// Clients.
    Nid,
    /// Node maps.
    Nodemap,
    /// Cgroups.
    Cgroup,
    /// Operations.
    Opcode,
    /// I/O priorities.
    IoPriority,
    /// Jobs, with weights in proportion to their sizes.
    Size,
}

impl Level {
    /// All levels.
    pub const ALL: [Self; 10] = [
        Self::Gid,
        Self::Uid,
        Self::Jobid,
        Self::Projid,
        Self::Nid,
        Self::Nodemap,
        Self::Cgroup,
        Self::Opcode,
        Self::IoPriority,
        Self::Size,
    ];

    /// Returns the name of the level.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Size => "size",
            other => other.field().name(),
        }
    }

    /// Returns the field whose values are the entities of the level.
    pub const fn field(self) -> Field {
        match self {
            Self::Gid => Field::Gid,
            Self::Uid => Field::Uid,
            Self::Jobid | Self::Size => Field::Jobid,
            Self::Projid => Field::Projid,
            Self::Nid => Field::Nid,
            Self::Nodemap => Field::Nodemap,
            Self::Cgroup => Field::Cgroup,
            Self::Opcode => Field::Opcode,
            Self::IoPriority => Field::IoPriority,
        }
    }

    /// Returns the level called `name`.
    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.name() == name)
    }

    /// Returns `EINVAL` for a second level of the same field.
    const fn repeated(self) -> Error {
        Error::invalid(match self {
            Self::Gid => "mode has level gid twice",
            Self::Uid => "mode has level uid twice",
            Self::Projid => "mode has level projid twice",
            Self::Nid => "mode has level nid twice",
            Self::Nodemap => "mode has level nodemap twice",
            Self::Cgroup => "mode has level cgroup twice",
            Self::Opcode => "mode has level opcode twice",
            Self::IoPriority => "mode has level ioprio twice",
            Self::Jobid | Self::Size => "mode has jobs twice (use one of jobid and size)",
        })
    }
}

/// Levels of a tree, outermost first.
///
/// # Invariants
///
/// `depth` is from 1 to [`DEPTH_MAX`]. The first `depth` levels have different fields, all other
/// levels are [`Level::Jobid`], so that equal modes are equal values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    levels: [Level; DEPTH_MAX],
    depth: u8,
}

impl Mode {
    /// Creates the mode with only the level `level`.
    pub const fn single(level: Level) -> Self {
        let rest = Level::Jobid;
        // INVARIANT: a single level repeats no field.
        Self {
            levels: [level, rest, rest, rest, rest, rest, rest, rest, rest],
            depth: 1,
        }
    }

    /// Parses `LEVEL[_then_LEVEL...]_fair`, or the short form `LEVEL+LEVEL...`; a trailing newline
    /// is ignored.
    ///
    /// # Errors
    ///
    /// `EINVAL`: neither `_fair` at the end nor a `+`, an empty or unknown level, or two levels of
    /// one field.
    pub fn parse(text: &str) -> Result<Self> {
        let text = line(text);
        let (names, joint) = match text.strip_suffix("_fair") {
            Some(names) => (names, "_then_"),
            None if text.contains('+') => (text, "+"),
            None => {
                return Err(Error::invalid(
                    "mode does not end in _fair (example: uid_then_jobid_fair)",
                ));
            }
        };
        let mut levels = [Level::Jobid; DEPTH_MAX];
        let mut depth = 0u8;
        for name in names.split(joint) {
            let level = Level::from_name(name).ok_or(Error::invalid(if name.is_empty() {
                "mode has an empty level"
            } else {
                "unknown level in mode \
                 (levels: gid uid jobid projid nid nodemap cgroup opcode ioprio size)"
            }))?;
            let mut before = levels.iter().take(usize::from(depth));
            if before.any(|other| other.field() == level.field()) {
                return Err(level.repeated());
            }
            // There is room, because no field is repeated.
            let free = levels.get_mut(usize::from(depth));
            *free.ok_or(level.repeated())? = level;
            depth = depth.saturating_add(1);
        }
        // INVARIANT: split() yields at least one name, and all fields were compared.
        Ok(Self { levels, depth })
    }

    /// Returns the levels, outermost first; 1 to [`DEPTH_MAX`].
    pub fn levels(&self) -> &[Level] {
        self.levels
            .get(..usize::from(self.depth))
            .unwrap_or_default()
    }

    /// Returns the level at depth `at`, 0 for the outermost.
    pub fn level(&self, at: u8) -> Option<Level> {
        self.levels().get(usize::from(at)).copied()
    }

    /// Returns the number of levels, 1 to [`DEPTH_MAX`].
    pub const fn depth(&self) -> usize {
        self.depth as usize
    }

    /// Returns true if the mode uses the sizes of jobs.
    pub fn has_size(&self) -> bool {
        self.levels().contains(&Level::Size)
    }
}

/// Equal shares for jobs.
impl Default for Mode {
    fn default() -> Self {
        Self::single(Level::Jobid)
    }
}

/// Shows the mode in the form that [`Mode::parse`] accepts.
impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, level) in self.levels().iter().enumerate() {
            if index > 0 {
                f.write_str("_then_")?;
            }
            f.write_str(level.name())?;
        }
        f.write_str("_fair")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::error::Code;

    #[test]
    fn chains() {
        use Level::{Gid, Jobid, Nid, Nodemap, Projid, Size, Uid};
        assert_eq!(Mode::default().to_string(), "jobid_fair");
        let singles = Level::ALL.map(|level| (format!("{}_fair", level.name()), vec![level]));
        let chains = [
            ("gid_then_uid_then_jobid_fair", vec![Gid, Uid, Jobid]),
            ("nodemap_then_size_fair\n", vec![Nodemap, Size]),
            (
                "nodemap_then_projid_then_gid_then_uid_then_jobid_then_nid_fair",
                vec![Nodemap, Projid, Gid, Uid, Jobid, Nid],
            ),
        ];
        let chains = chains.map(|(text, levels)| (text.to_string(), levels));
        for (text, levels) in singles.into_iter().chain(chains) {
            let mode = Mode::parse(&text).unwrap();
            assert_eq!((mode.levels(), mode.depth()), (&levels[..], levels.len()));
            assert_eq!(mode.has_size(), levels.contains(&Size));
            assert_eq!(mode.to_string(), text.trim_end());
            assert_eq!(Mode::parse(&mode.to_string()), Ok(mode));
            if levels.len() > 1 {
                let short = text.trim_end_matches("_fair\n").trim_end_matches("_fair");
                assert_eq!(Mode::parse(&short.replace("_then_", "+")), Ok(mode));
            }
        }
    }

    #[test]
    fn refused() {
        for (text, word) in [
            ("", "_fair"),
            ("uid_then_jobid", "_fair"),
            ("uid+", "empty"),
            ("uid+opcodes", "unknown"),
            ("uid+uid", "uid twice"),
            ("uid+jobid_fair", "unknown"),
            ("uid_fair\n\n", "_fair"),
            ("uid_Fair", "_fair"),
            ("_fair", "empty"),
            ("uid_then__fair", "empty"),
            ("_then_uid_fair", "empty"),
            ("UID_fair", "unknown"),
            ("uid_then_fair", "unknown"),
            ("priority_fair", "unknown"),
            ("ioprio_then_opcode_then_ioprio_fair", "ioprio twice"),
            ("gid_then_uid_then_gid_fair", "gid twice"),
            ("projid_then_projid_fair", "projid twice"),
            ("size_then_jobid_fair", "jobs twice"),
            ("jobid_then_uid_then_size_fair", "jobs twice"),
        ] {
            let error = Mode::parse(text).unwrap_err();
            assert_eq!(error.code, Code::Invalid, "{text:?}");
            assert!(error.reason.contains(word), "{text:?}: {}", error.reason);
        }
    }
}
