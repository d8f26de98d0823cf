// SPDX-License-Identifier: GPL-2.0-only

//! Mover strategy: movers get the bandwidth that other clients of the group do not use.
//!
//! - *Others* are the clients of the group that are only measured.
//! - *Outside* is the usage of others: the maximum of the usage since the last tick and the usage
//!   in the fast period. It rises at once and falls within a fast period.
//! - *Room* is bandwidth that movers leave free, so that an increase of the usage of others can be
//!   measured.
//!
//! ```text
//!   capacity
//!   ├──────────────┬────────┬──────────────────────┤
//!       outside       room           movers
//! ```
//!
//! While some of the capacity is unused, the room is the headroom of the configuration. When all is
//! used, movers may slow down others by an unknown amount. The room then doubles with each tick,
//! and halves again when others leave it unused. Movers thus yield to any load within a logarithmic
//! number of ticks, and a constant load of others costs them only the headroom.

use super::rate::percent;
use crate::sched::qbm::plan::{BandwidthParameters, PlanGroup as Settings};

/// State of the mover strategy.
#[derive(Clone, Copy, Debug)]
pub struct MoverStrategy {
    capacity: u64,
    headroom: u64,
    room: u64,
    outside: u64,
    /// Capacity last set at the allocator, bytes/s.
    reported: u64,
}

/// Usage of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupLoad {
    /// Usage by others in the fast period, bytes/s.
    pub fast: u64,
    /// Usage by others since the last tick, bytes/s.
    pub last: u64,
    /// Usage by movers since the last tick, bytes/s.
    pub movers: u64,
}

impl MoverStrategy {
    /// Creates the state for a group with the mover strategy, without usage by others; else `None`.
    pub fn of(settings: &Settings, tuning: &BandwidthParameters) -> Option<Self> {
        let capacity = settings.capacity();
        let headroom = percent(capacity, tuning.headroom);
        settings.is_mover().then_some(Self {
            capacity,
            headroom,
            room: headroom,
            outside: 0,
            reported: capacity,
        })
    }

    /// Takes over the measured state of `old`.
    pub fn after(self, old: &Self) -> Self {
        let mut new = Self {
            room: old.room.min(self.capacity).max(self.headroom),
            outside: old.outside,
            ..self
        };
        new.reported = new.now_left();
        new
    }

    /// Returns the usage of others, bytes/s.
    pub const fn outside(&self) -> u64 {
        self.outside
    }

    /// Returns the bandwidth of all movers together, bytes/s.
    pub const fn left(&self) -> u64 {
        self.reported
    }

    fn now_left(&self) -> u64 {
        let left = self.capacity.saturating_sub(self.outside);
        left.saturating_sub(self.room)
    }

    /// Updates the state from `load`. Returns the new bandwidth of movers, bytes/s, if it changed
    /// by more than 1/512 of the capacity.
    pub fn see(&mut self, load: &GroupLoad) -> Option<u64> {
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
        if left.abs_diff(self.reported) <= self.capacity / 512 {
            return None;
        }
        self.reported = left;
        Some(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1_000_000;

    fn movers() -> MoverStrategy {
        MoverStrategy {
            capacity: 100 * MB,
            headroom: 2 * MB,
            room: 2 * MB,
            outside: 0,
            reported: 100 * MB,
        }
    }

    fn load(fast: u64, last: u64, movers: u64) -> GroupLoad {
        GroupLoad {
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

    /// Verifies that the room doubles while all is used, because the additional demand of others is
    /// unknown.
    #[test]
    fn room_doubles_while_all_is_used() {
        let mut movers = movers();
        let mut left = 60;
        let mut ticks = 0;
        while left > 1 {
            // All other clients together use all that movers leave.
            let reported = movers.see(&load(0, 100 - left, left));
            left = reported.map_or(left, |reported| reported / MB);
            ticks += 1;
            assert!(ticks < 8, "{left}");
        }
        // Movers get the bandwidth back within a few ticks after the other clients stop.
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
            let load = GroupLoad {
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
        let most = GroupLoad {
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
