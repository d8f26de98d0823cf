// SPDX-License-Identifier: GPL-2.0-only

//! Interface for an agent in user space, which reads the service of classes and sets factors of
//! weights for a limited time.
//!
//! The agents of several servers agree on factors among themselves; the module takes no part in
//! that. `Documentation/control.md` describes the commands, `Documentation/global-fairness.md` the
//! use of factors.
//!
//! An [`Account`] is the weight and the service of one class in one part. A [`Report`] adds the
//! level and the factor of the class. A [reading](reading::Reading) holds the reports of all parts
//! at one time, one for each class. A factor is a number above 0 and at most 1, in Q31, by which
//! the weight of a class is multiplied. Factors are in force for a [`Lease`]. An [`instance`]
//! identifies one start of the policy; ids of classes are valid within one instance.
//!
//! ```text
//!   parts ──reports──▶ reading ──changes──▶ agent ──pairs──▶ Keep ──update──▶ parts
//!                                                                  × lease
//! ```
//!
//! A policy whose classes have weights implements hooks of its parts
//! ([`super::policy::Part::reports`], [`super::policy::Part::name_of`],
//! [`super::policy::Part::terms`]) and of its shared state
//! ([`super::policy::control::Keep::starts`] and the methods after it).

use crate::sched::{
    atomic::AtomicWord,
    error::{Code, Error, Result},
    key::Hasher,
    mem::GrowingList,
    units::NSEC_PER_MSEC,
};
use core::fmt::{self, Write};

pub mod reading;

/// Factor of one, Q31.
pub const ONE: u32 = 1 << 31;

/// Maximum number of factors that one command sets.
pub const FACTORS_MAX: usize = 16_384;

/// Error for a command with more than [`FACTORS_MAX`] factors.
const TOO_MANY: Error = Error::new(Code::TooLong, "too many factors (limit: 16384)");

/// Maximum lease, ms.
pub const LEASE_MAX_MS: u32 = 60_000;

/// Number of steps in which factors return to one.
pub const STEPS: u32 = 10;

/// Minimum time between two steps, ns.
const STEP_MIN: u64 = 100 * NSEC_PER_MSEC;

/// Weight and service of one class in one part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    /// Hash of the path of the class; neither 0 nor 2^64 - 1.
    pub id: u64,
    /// Hash of the path of the parent class; 0 for the root.
    pub parent: u64,
    /// Weight among siblings without any factor; 0 counts as 1.
    pub weight: u32,
    /// True if the class is a leaf. For an inner class, the fields below cover the descendants that
    /// have no class of their own; no other account contains these descendants.
    pub leaf: bool,
    /// Service since the part created the class, units of cost, wrapping.
    pub service: u64,
    /// True if requests of the class are queued or in service.
    pub active: bool,
    /// True if the class is backlogged: requests of the class are queued.
    pub waiting: bool,
}

/// Report to the agent about one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Weight and service.
    pub account: Account,
    /// Level of the class, 0: outermost.
    pub level: u8,
    /// Factor in force, Q31.
    pub factor: u32,
}

impl Report {
    /// Adds the account and the factor that another part reports for the same class.
    fn add(&mut self, other: &Self) {
        let (sum, more) = (&mut self.account, &other.account);
        sum.service = sum.service.wrapping_add(more.service);
        sum.weight = sum.weight.max(more.weight);
        sum.active |= more.active;
        sum.waiting |= more.waiting;
        self.factor = self.factor.max(other.factor);
    }

    /// Returns the last report of a class that was removed.
    const fn ended(self) -> Self {
        let account = Account {
            active: false,
            waiting: false,
            ..self.account
        };
        Self { account, ..self }
    }
}

/// Returns the instance of a service with the secret `seed` whose policy was started `starts`
/// times; never 0.
pub fn instance(seed: u64, starts: u64) -> u64 {
    Hasher::new(seed).word(starts).max(1)
}

/// Returns the 64-bit FNV-1a hash of the formatted `text`; equal on all servers, never 0.
pub fn digest(text: fmt::Arguments<'_>) -> u64 {
    struct AccountSum(u64);

    impl Write for AccountSum {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            for byte in text.bytes() {
                self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
            }
            Ok(())
        }
    }

    let mut sum = AccountSum(0xcbf2_9ce4_8422_2325);
    // `AccountSum` returns no errors.
    let _ = sum.write_fmt(text);
    sum.0.max(1)
}

/// Ids of classes and their factors, as set by an agent.
///
/// # Invariants
///
/// The ids ascend. Every factor is from 1 to [`ONE`]. There are at most [`FACTORS_MAX`] factors.
pub struct FactorPairs {
    list: GrowingList<(u64, u32)>,
}

impl FactorPairs {
    /// Creates an empty list with capacity for `count` factors; may sleep.
    ///
    /// # Errors
    ///
    /// `E2BIG`: `count` is above [`FACTORS_MAX`]. `ENOMEM`: the allocation failed.
    pub fn new(count: usize) -> Result<Self> {
        if count > FACTORS_MAX {
            return Err(TOO_MANY);
        }
        Ok(Self {
            list: GrowingList::with_capacity(count)?,
        })
    }

    /// Collects the ids and factors of `list`; may sleep.
    ///
    /// # Errors
    ///
    /// The errors of [`Self::push`].
    #[cfg(not(MODULE))]
    pub fn of(list: impl IntoIterator<Item = (u64, u32)>) -> Result<Self> {
        let mut pairs = Self::new(0)?;
        for (id, factor) in list {
            pairs.push(id, factor)?;
        }
        Ok(pairs)
    }

    /// Appends the `factor` of the class `id`.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the id is not above the last one, or the factor is 0 or above [`ONE`]. `E2BIG`:
    /// the list has [`FACTORS_MAX`] factors already. `ENOMEM`: the allocation failed.
    pub fn push(&mut self, id: u64, factor: u32) -> Result {
        let last = self.list.as_slice().last().map_or(0, |(id, _)| *id);
        if id <= last {
            return Err(Error::invalid("ids are not in ascending order from 1"));
        }
        if factor == 0 || factor > ONE {
            return Err(Error::invalid("factor is not from 1 to 2147483648"));
        }
        if self.len() >= FACTORS_MAX {
            return Err(TOO_MANY);
        }
        // INVARIANT: checked above.
        Ok(self.list.push((id, factor))?)
    }

    /// Returns the number of factors.
    pub fn len(&self) -> usize {
        self.list.as_slice().len()
    }

    /// Returns the ids and factors.
    pub fn into_list(self) -> GrowingList<(u64, u32)> {
        self.list
    }
}

/// Time for which factors are in force; afterwards the factors return to one in [`STEPS`] steps.
pub struct Lease {
    /// End, monotonic ns.
    until: AtomicWord,
    /// Time between two steps, ns.
    step: u64,
}

impl Lease {
    /// Creates a lease of `ms` that starts at `now`, ns.
    pub fn new(now: u64, ms: u32) -> Self {
        let length = u64::from(ms).saturating_mul(NSEC_PER_MSEC);
        Self {
            until: AtomicWord::new(now.saturating_add(length)),
            step: length.checked_div(STEPS.into()).unwrap_or(0).max(STEP_MIN),
        }
    }

    /// Ends the lease at `now`, ns, unless the lease has ended before; the first step is due at
    /// once.
    pub fn end(&self, now: u64) {
        self.until.change(|until| (now < until).then_some(now));
    }

    /// Extends the lease until it is replaced or [`Self::resume`] is called. Returns the previous
    /// end; `None` if the lease has ended at `now`, ns, and is not extended.
    pub fn suspend_expiry(&self, now: u64) -> Option<u64> {
        let until = self.until.get();
        (now < until && self.until.replace(until, u64::MAX)).then_some(until)
    }

    /// Sets the end of a lease extended by [`Self::suspend_expiry`] to `until`, ns.
    pub fn resume(&self, until: u64) {
        self.until.set(until);
    }

    /// Ends the lease and makes all steps due.
    pub fn void(&self) {
        self.until.set(0);
    }

    /// Returns the number of steps that are due at `now`, ns: 0 before the end of the lease, at
    /// most [`STEPS`].
    pub fn steps(&self, now: u64) -> u32 {
        let until = self.until.get();
        match now.checked_sub(until) {
            None => 0,
            Some(_) if until == 0 => STEPS,
            Some(since) => {
                let past = since.checked_div(self.step).unwrap_or(0);
                past.saturating_add(1).min(u64::from(STEPS)) as u32
            }
        }
    }
}

/// Returns `factor` after `steps` steps of its return to one. Each step halves the logarithm; the
/// last step sets one.
pub fn faded(factor: u32, steps: u32) -> u32 {
    if steps >= STEPS {
        return ONE;
    }
    // Halving the logarithm is taking the root: sqrt(f / 2^31) = sqrt(f * 2^31) / 2^31.
    (0..steps).fold(factor.min(ONE), |factor, _| {
        (u64::from(factor) << 31).isqrt() as u32
    })
}

/// Returns `weight`, which is below 2^31, times `factor`; at least 1.
pub fn scaled(weight: u32, factor: u32) -> u32 {
    let product = u64::from(weight).wrapping_mul(u64::from(factor));
    ((product >> 31) as u32).max(1)
}

#[cfg(test)]
mod tests;
