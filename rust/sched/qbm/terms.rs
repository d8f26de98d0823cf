// SPDX-License-Identifier: GPL-2.0-only

//! What clients are promised, and the numbers by which promises are kept.

use crate::sched::units::{NSEC_PER_MSEC, NSEC_PER_SEC};

/// Number of classes.
pub const CLASSES: usize = 4;

/// A rate that holds nobody back, bytes/s.
pub const UNREGULATED: u64 = u64::MAX;

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
        match self {
            Self::FirstCome => 0,
            Self::FairShare => 1,
            Self::LowShare => 2,
            Self::Mover => 3,
        }
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

/// The numbers of the method; by default those of StorNext.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// What a bucket holds, in time: allocations are divided into periods of this length, ns.
    pub period: u64,
    /// The time in which a client notices that it has to sleep, ns.
    pub fast: u64,
    /// The time over which it finds that it uses much or little of what it has, ns.
    pub slow: u64,
    /// How long a client stays registered without requests, ns.
    pub idle: u64,
    /// What every client has at least, bytes/s.
    pub floor: u64,
    /// Free bandwidth below which none is given beyond a minimum, bytes/s.
    pub grant: u64,
    /// Periods of a fast time that a client sleeps in before it wants back what it gave up, percent.
    pub sleep: u64,
    /// Use of what it has from which a client asks for more, percent.
    pub high: u64,
    /// Use of what it has below which a client does with less, percent.
    pub low: u64,
    /// How much more it asks for, percent.
    pub raise: u64,
    /// How much it gives up, percent.
    pub lower: u64,
    /// What movers leave beside what others use, percent of the capacity.
    pub headroom: u64,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            period: 40 * NSEC_PER_MSEC,
            fast: NSEC_PER_SEC,
            slow: 30 * NSEC_PER_SEC,
            idle: NSEC_PER_SEC,
            floor: 32 << 10,
            grant: 256 << 10,
            sleep: 50,
            high: 80,
            low: 60,
            raise: 30,
            lower: 10,
            headroom: 2,
        }
    }
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

    /// The numbers that the method was published with.
    #[test]
    fn numbers_by_default() {
        let tuning = Tuning::default();
        assert_eq!((tuning.floor, tuning.grant), (32 * 1024, 256 * 1024));
        assert_eq!((tuning.fast, tuning.slow), (1_000_000_000, 30_000_000_000));
        assert_eq!((tuning.sleep, tuning.high, tuning.low), (50, 80, 60));
        assert_eq!((tuning.raise, tuning.lower), (30, 10));
    }
}
