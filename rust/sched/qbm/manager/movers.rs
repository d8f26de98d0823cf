// SPDX-License-Identifier: GPL-2.0-only

//! The mover strategy: movers are left what others do not use.
//!
//! # Vocabulary
//!
//! - *Others*: the clients of the group that are only measured.
//! - *Outside*: what they use: the larger of that since the last tick and that in the fast period, so it
//!   rises at once and falls within a fast period.
//! - *Room*: what movers leave beside it, so that others can become faster and be seen to.
//!
//! ```text
//!   capacity
//!   ├──────────────┬────────┬──────────────────────┤
//!       outside       room           movers
//! ```
//!
//! The room is the headroom of the configuration as long as some of the capacity is unused. When all is
//! used, others may be held back by movers, and nobody knows by how much; then the room doubles with each
//! tick, and halves again when it turns out that others do not use it. So movers make way for any load in
//! a logarithmic number of ticks, and others that use a steady part of the capacity cost them the headroom.

use super::rate::percent;
use crate::sched::qbm::plan::{Group as Settings, Tuning};

/// What movers are left.
#[derive(Clone, Copy, Debug)]
pub struct Movers {
    capacity: u64,
    headroom: u64,
    room: u64,
    outside: u64,
    /// What the allocator was told last, bytes/s.
    told: u64,
}

/// What a group used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// By others in the fast period, bytes/s.
    pub fast: u64,
    /// By others since the last tick, bytes/s.
    pub last: u64,
    /// By movers since the last tick, bytes/s.
    pub movers: u64,
}

impl Movers {
    /// Those of a group, if it has the strategy; nobody else uses it yet.
    pub fn of(settings: &Settings, tuning: &Tuning) -> Option<Self> {
        let capacity = settings.capacity();
        let headroom = percent(capacity, tuning.headroom);
        settings.is_mover().then_some(Self {
            capacity,
            headroom,
            room: headroom,
            outside: 0,
            told: capacity,
        })
    }

    /// The same with what `old` knows of the load.
    pub fn after(self, old: &Self) -> Self {
        let mut new = Self {
            room: old.room.min(self.capacity).max(self.headroom),
            outside: old.outside,
            ..self
        };
        new.told = new.now_left();
        new
    }

    /// What others use, bytes/s.
    pub const fn outside(&self) -> u64 {
        self.outside
    }

    /// What movers have together, bytes/s.
    pub const fn left(&self) -> u64 {
        self.told
    }

    fn now_left(&self) -> u64 {
        let left = self.capacity.saturating_sub(self.outside);
        left.saturating_sub(self.room)
    }

    /// Sees what was used; says what movers have from now on if that changed by a part in 512 of the
    /// capacity or more.
    pub fn see(&mut self, load: &Load) -> Option<u64> {
        self.outside = load.fast.max(load.last);
        let used = load.last.saturating_add(load.movers);
        let full = used >= self.capacity.saturating_sub(self.headroom / 2);
        self.room = if full && load.last > 0 {
            let more = self.room.max(self.capacity / 128).saturating_mul(2);
            more.min(self.capacity).max(self.headroom)
        } else {
            (self.room / 2).max(self.headroom)
        };
        let left = self.now_left();
        if left.abs_diff(self.told) <= self.capacity / 512 {
            return None;
        }
        self.told = left;
        Some(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1_000_000;

    fn movers() -> Movers {
        Movers {
            capacity: 100 * MB,
            headroom: 2 * MB,
            room: 2 * MB,
            outside: 0,
            told: 100 * MB,
        }
    }

    fn load(fast: u64, last: u64, movers: u64) -> Load {
        Load {
            fast: fast * MB,
            last: last * MB,
            movers: movers * MB,
        }
    }

    #[test]
    fn rises_at_once_and_falls_with_the_fast_period() {
        let mut movers = movers();
        assert_eq!(movers.see(&load(0, 0, 98)), Some(98 * MB));
        assert_eq!(movers.see(&load(8, 40, 50)), Some(58 * MB));
        assert_eq!(movers.see(&load(40, 40, 58)), None);
        assert_eq!(movers.outside(), 40 * MB);
        assert_eq!(movers.see(&load(32, 0, 58)), Some(66 * MB));
        assert_eq!(movers.see(&load(0, 0, 66)), Some(98 * MB));
    }

    /// Where all is used, nobody knows how much more others would: movers make way faster and faster.
    #[test]
    fn room_doubles_while_all_is_used() {
        let mut movers = movers();
        let mut left = 60;
        let mut ticks = 0;
        while left > 1 {
            // Others take whatever movers leave.
            let told = movers.see(&load(0, 100 - left, left));
            left = told.map_or(left, |told| told / MB);
            ticks += 1;
            assert!(ticks < 8, "{left}");
        }
        // They go; all is movers' again a moment later.
        for _ in 0..7 {
            movers.see(&load(0, 0, 1));
        }
        assert_eq!(movers.left(), 98 * MB);
    }

    #[test]
    fn small_changes_are_none() {
        let mut movers = movers();
        movers.see(&load(30, 30, 60));
        let before = movers.left();
        for noise in [0, 100_000, 190_000, 50_000] {
            let load = Load {
                fast: 30 * MB + noise,
                ..load(0, 30, 60)
            };
            assert_eq!(movers.see(&load), None);
        }
        assert_eq!(movers.left(), before);
    }

    #[test]
    fn ends() {
        let mut movers = movers();
        let most = Load {
            fast: u64::MAX,
            last: u64::MAX,
            movers: u64::MAX,
        };
        assert_eq!(movers.see(&most), Some(0));
        for _ in 0..100 {
            movers.see(&most);
        }
        assert_eq!(movers.left(), 0);
    }
}
