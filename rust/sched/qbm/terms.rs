// SPDX-License-Identifier: GPL-2.0-only

//! Bandwidth guarantees of clients.

/// Number of classes.
pub const CLASSES: usize = 4;

/// Rate that does not throttle, bytes/s.
pub const UNREGULATED: u64 = u64::MAX;

/// Rank of clients without a gate of their own: lower than all classes.
pub const LAST: u8 = CLASSES as u8;

/// Allocation class of a client. The first class is the highest and takes bandwidth from lower
/// classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BandwidthClass {
    /// The full requested amount or nothing; a client keeps an amount once allocated.
    FirstCome,
    /// The minimum, or a share of the class's bandwidth in proportion to the minimum.
    FairShare,
    /// The rule of `FairShare`, after that class.
    LowShare,
    /// Bandwidth that no other class uses, in proportion to the minimums.
    Mover,
}

impl BandwidthClass {
    /// All classes, highest first.
    pub const ALL: [Self; CLASSES] = [
        Self::FirstCome,
        Self::FairShare,
        Self::LowShare,
        Self::Mover,
    ];

    /// Returns the configuration keyword of the class.
    pub const fn name(self) -> &'static str {
        match self {
            Self::FirstCome => "first_come",
            Self::FairShare => "fair_share",
            Self::LowShare => "low_share",
            Self::Mover => "mover",
        }
    }

    /// Parses a class name; `fc`, `fs` and `ls` are short for the first three.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "fc" => Some(Self::FirstCome),
            "fs" => Some(Self::FairShare),
            "ls" => Some(Self::LowShare),
            _ => Self::ALL.into_iter().find(|class| class.name() == name),
        }
    }

    /// Returns the position among the classes; 0 is the highest.
    pub const fn rank(self) -> u8 {
        self as u8
    }

    /// Returns the rank as an index for arrays with one entry per class.
    pub const fn index(self) -> usize {
        self.rank() as usize
    }
}

/// Bandwidth guarantee of a client.
///
/// # Invariants
///
/// `min` is at most `max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entitlement {
    /// Allocation class.
    pub class: BandwidthClass,
    /// Guaranteed minimum: the bandwidth allocated on request, bytes/s.
    pub min: u64,
    /// Upper limit of the bandwidth, bytes/s.
    pub max: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_by_name_and_rank() {
        for (index, class) in BandwidthClass::ALL.into_iter().enumerate() {
            assert_eq!(BandwidthClass::parse(class.name()), Some(class));
            assert_eq!(class.index(), index);
            assert_eq!(usize::from(class.rank()), index);
        }
        assert!(
            BandwidthClass::FirstCome < BandwidthClass::FairShare
                && BandwidthClass::LowShare < BandwidthClass::Mover
        );
        for (short, class) in [
            ("fc", BandwidthClass::FirstCome),
            ("fs", BandwidthClass::FairShare),
            ("ls", BandwidthClass::LowShare),
        ] {
            assert_eq!(BandwidthClass::parse(short), Some(class));
        }
        for wrong in ["", "FC", "fair", "first come", "mover "] {
            assert_eq!(BandwidthClass::parse(wrong), None, "{wrong}");
        }
    }
}
