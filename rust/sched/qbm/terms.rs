// SPDX-License-Identifier: GPL-2.0-only

//! What clients are promised.

/// Number of classes.
pub const CLASSES: usize = 4;

/// A rate that holds nobody back, bytes/s.
pub const UNREGULATED: u64 = u64::MAX;

/// The rank of clients without a gate of their own: after all classes.
pub const LAST: u8 = CLASSES as u8;

/// How a client's bandwidth is allocated; the first class is the highest, and takes from those below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// All of what it asks for or nothing of it; who has it keeps it.
    FirstCome,
    /// Its minimum, or a share of what the class has in proportion to it.
    FairShare,
    /// The same after the class above.
    LowShare,
    /// Whatever nobody else wants, in proportion to the minimums.
    Mover,
}

impl Class {
    /// All classes, highest first.
    pub const ALL: [Self; CLASSES] = [
        Self::FirstCome,
        Self::FairShare,
        Self::LowShare,
        Self::Mover,
    ];

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::FirstCome => "first_come",
            Self::FairShare => "fair_share",
            Self::LowShare => "low_share",
            Self::Mover => "mover",
        }
    }

    /// The class called `name`; `fc`, `fs` and `ls` are short for the first three.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "fc" => Some(Self::FirstCome),
            "fs" => Some(Self::FairShare),
            "ls" => Some(Self::LowShare),
            _ => Self::ALL.into_iter().find(|class| class.name() == name),
        }
    }

    /// Its place among the classes; 0 is the highest.
    pub const fn rank(self) -> u8 {
        self as u8
    }

    /// The same, for arrays with a place for each class.
    pub const fn index(self) -> usize {
        self.rank() as usize
    }
}

/// What a client is promised.
///
/// # Invariants
///
/// `min` is at most `max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// How it is allocated.
    pub class: Class,
    /// What it is to have when it asks for it, bytes/s.
    pub min: u64,
    /// What it never has more than, bytes/s.
    pub max: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_by_name_and_rank() {
        for (index, class) in Class::ALL.into_iter().enumerate() {
            assert_eq!(Class::parse(class.name()), Some(class));
            assert_eq!(class.index(), index);
            assert_eq!(usize::from(class.rank()), index);
        }
        assert!(Class::FirstCome < Class::FairShare && Class::LowShare < Class::Mover);
        for (short, class) in [
            ("fc", Class::FirstCome),
            ("fs", Class::FairShare),
            ("ls", Class::LowShare),
        ] {
            assert_eq!(Class::parse(short), Some(class));
        }
        for wrong in ["", "FC", "fair", "first come", "mover "] {
            assert_eq!(Class::parse(wrong), None, "{wrong}");
        }
    }
}
