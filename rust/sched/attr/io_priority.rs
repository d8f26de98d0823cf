// SPDX-License-Identifier: GPL-2.0-only

//! I/O priorities of requests, as `ionice` and `ioprio_set(2)` set them.

use core::fmt;

/// I/O priority: a class, and a level within it.
///
/// Displayed as `rt-0` to `rt-7`, `be-0` to `be-7` and `idle`, where level 0 is the highest; `none`
/// if absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IoPriority(u8);

/// Class of an I/O priority, with the numbers of Linux (`include/uapi/linux/ioprio.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoClass {
    /// `IOPRIO_CLASS_RT`: real-time.
    Realtime = 1,
    /// `IOPRIO_CLASS_BE`: best effort.
    BestEffort = 2,
    /// `IOPRIO_CLASS_IDLE`: idle.
    Idle = 3,
}

impl IoPriority {
    /// No priority; Linux treats it as `be-4`.
    pub const NONE: Self = Self(0);

    /// Returns the priority of `level`, modulo 8, of `class`; class idle has no levels.
    pub const fn new(class: IoClass, level: u8) -> Self {
        let level = match class {
            IoClass::Idle => 0,
            IoClass::Realtime | IoClass::BestEffort => level & 7,
        };
        Self(((class as u8) << 3) | level)
    }

    /// Returns the priority in a `bi_ioprio`: class in bits 13 to 15, level in bits 0 to 2. Other
    /// classes than those of [`IoClass`] count as no priority.
    pub const fn from_kernel(ioprio: u16) -> Self {
        let class = match ioprio >> 13 {
            1 => IoClass::Realtime,
            2 => IoClass::BestEffort,
            3 => IoClass::Idle,
            _ => return Self::NONE,
        };
        Self::new(class, ioprio as u8)
    }

    /// Returns the number, below 32.
    pub const fn number(self) -> u8 {
        self.0
    }

    /// Returns the class; `None` if absent.
    pub const fn class(self) -> Option<IoClass> {
        match self.0 >> 3 {
            1 => Some(IoClass::Realtime),
            2 => Some(IoClass::BestEffort),
            3 => Some(IoClass::Idle),
            _ => None,
        }
    }

    /// Returns the level, 0 to 7; 4 if absent.
    pub const fn level(self) -> u8 {
        match self.class() {
            None => 4,
            Some(_) => self.0 & 7,
        }
    }

    /// Parses the form that is displayed, except `none`.
    pub fn parse(text: &str) -> Option<Self> {
        let (class, level) = match text.split_once('-') {
            None if text == "idle" => (IoClass::Idle, "0"),
            Some(("rt", level)) => (IoClass::Realtime, level),
            Some(("be", level)) => (IoClass::BestEffort, level),
            _ => return None,
        };
        match level.as_bytes() {
            &[digit @ b'0'..=b'7'] => Some(Self::new(class, digit)),
            _ => None,
        }
    }
}

impl fmt::Display for IoPriority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.class() {
            None => f.write_str("none"),
            Some(IoClass::Idle) => f.write_str("idle"),
            Some(IoClass::BestEffort) => write!(f, "be-{}", self.level()),
            Some(IoClass::Realtime) => write!(f, "rt-{}", self.level()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_of_the_kernel() {
        for (ioprio, shown) in [
            (0, "none"),
            (1 << 13, "rt-0"),
            ((1 << 13) | 7, "rt-7"),
            ((2 << 13) | 4, "be-4"),
            // Bits 3 to 12 are a hint.
            ((2 << 13) | (5 << 3) | 6, "be-6"),
            (3 << 13, "idle"),
            ((3 << 13) | 7, "idle"),
            (7 << 13, "none"),
        ] {
            let priority = IoPriority::from_kernel(ioprio);
            assert_eq!(priority.to_string(), shown);
            assert!(priority.number() < 32);
            let parsed = IoPriority::parse(shown);
            assert_eq!(parsed, (shown != "none").then_some(priority));
        }
        for text in ["", "be", "be-", "be-8", "be-44", "be-04", "idle-0", "RT-1"] {
            assert_eq!(IoPriority::parse(text), None, "{text}");
        }
    }
}
