// SPDX-License-Identifier: GPL-2.0-only

//! What users set of `delay`: bounds and a percentage for each head.

use crate::sched::{
    error::{Error, Result},
    policy::params::{
        heads::{values, PerHead},
        number, BufferMax,
    },
};

number! {
    /// Shortest delay, seconds.
    Min, 0..=65_535 = 5, "delay_min is not a number from 0 to 65535"
}

number! {
    /// Longest delay, seconds.
    Max, 0..=65_535 = 300, "delay_max is not a number from 0 to 65535"
}

number! {
    /// Requests in a hundred that are delayed.
    Pct, 0..=100 = 100, "delay_pct is not a number from 0 to 100"
}

values! {
    Min: 5,
    Max: 5,
    Pct: 3,
}

/// Name of the shortest delay in the text form, and its longest text, bytes.
pub const MIN: (&str, usize) = ("delay_min", 38);
/// The same for the longest delay.
pub const MAX: (&str, usize) = ("delay_max", 38);
/// The same for the percentage.
pub const PCT: (&str, usize) = ("delay_pct", 34);

/// What users can set.
///
/// # Invariants
///
/// On each head `min` is at most `max`; whoever sets the fields otherwise gets delays of `min` exactly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tunables {
    /// Shortest delay of a request that is delayed.
    pub min: PerHead<Min>,
    /// Longest delay of a request that is delayed.
    pub max: PerHead<Max>,
    /// How many are delayed.
    pub pct: PerHead<Pct>,
    /// Delayed requests that are ordered by the end of their delay.
    pub buffer_max: BufferMax,
}

impl Tunables {
    /// Takes the shortest delay from `text`, in the form of [`crate::sched::policy::params::heads`].
    ///
    /// # Errors
    ///
    /// - `EINVAL`: malformed, out of range, or above the longest delay of a head; nothing is taken then.
    pub fn set_min(&mut self, text: &str) -> Result {
        self.take(Self {
            min: self.min.with(MIN.0, MIN.1, text)?,
            ..*self
        })
    }

    /// Takes the longest delay from `text`.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: malformed, out of range, or below the shortest delay of a head; nothing is taken then.
    pub fn set_max(&mut self, text: &str) -> Result {
        self.take(Self {
            max: self.max.with(MAX.0, MAX.1, text)?,
            ..*self
        })
    }

    /// Takes the percentage from `text`.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: malformed or out of range; nothing is taken then.
    pub fn set_pct(&mut self, text: &str) -> Result {
        self.pct = self.pct.with(PCT.0, PCT.1, text)?;
        Ok(())
    }

    /// Takes `new`, if its bounds are in order.
    fn take(&mut self, new: Self) -> Result {
        let ordered = |min: Min, max: Max| min.get() <= max.get();
        if !ordered(new.min.regular, new.max.regular) || !ordered(new.min.high, new.max.high) {
            return Err(Error::invalid("delay_min would be above delay_max"));
        }
        *self = new;
        Ok(())
    }
}
