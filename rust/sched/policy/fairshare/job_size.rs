// SPDX-License-Identifier: GPL-2.0-only

//! Counted sizes of jobs: the number of recent clients of a job, 1 to [`SIZE_MAX`].
//!
//! - *Window*: time for which a client counts. Two *halves* of a window are kept, the current and
//!   the previous one; an *epoch* is the number of a half.
//! - *Place* of the table ([`crate::sched::tagged_table`]): a tag, an epoch, and a bitmap for each
//!   of two halves ([`BlockHeader`], [`Bitmaps`]). A bitmap has a bit for each of 4096 hashes. A
//!   *tag* is the hash of the job of the place, which selects two blocks, or 0.
//!
//! ```text
//!           claimed (CAS of the tag)      nothing seen in this half or the one before
//!  stale ──────────────────────────► live ─────────────────────────────────────────► stale
//!                                    │  ▲
//!        first request of a half:    ▼  │
//!        CAS of the epoch ────► clearing│────► the winner cleared all older halves
//! ```
//!
//! The estimate covers the current and the previous half. So a client counts for at least half a
//! window after its last request, and for less than a whole window. The size of a job is
//! underestimated if its clients submit requests less often than every half window.
//!
//! Sizes are estimated by linear counting (Whang, Vander-Zanden and Taylor, "A linear-time
//! probabilistic counting algorithm", 1990). If X of m = 4096 bits are set, `n = m ln(m / (m - X))`
//! clients were seen. The tests print the errors, and the part of jobs that find both blocks full;
//! `Documentation/fairshare.md` has the figures. A job without a place has size 1
//! ([`JobSizes::see`]).
//!
//! # Races
//!
//! - No call blocks. The winner of a change of epoch clears 512 bytes or 1 KiB. Meanwhile other
//!   sightings in that place are dropped, and estimates are of the remaining half. Clients are seen
//!   again at their next requests.
//! - Between the check of a place's tag and the setting of a bit, another job can claim the place,
//!   or a half can become current again. Then one client counts for the other job, or for longer,
//!   until the end of the window.
//! - Two concurrent claims for one job can get two places. From then on the first place is found,
//!   and the other place becomes stale.

use crate::sched::{
    atomic::{AtomicWord, Hint, RelaxedWord},
    mem::{Bulk, NoMemory},
    tagged_table::TaggedTable,
};

/// Default number of jobs of a table.
pub const SIZES_MAX: usize = 1024;

/// Largest size.
pub const SIZE_MAX: u32 = 4096;

/// Number of bits of a bitmap; a power of two.
const BITS: u32 = 4096;

/// Number of words of a bitmap.
const WORDS: usize = (BITS / u64::BITS) as usize;

/// Job and epoch of a place.
struct BlockHeader {
    tag: AtomicWord,
    /// Value of an [`EpochStamp`].
    stamp: Hint,
}

/// Epoch of a place's current half, and the halves that are being cleared.
///
/// # Invariants
///
/// The word is four times the epoch, plus [`EpochStamp::ONE`], [`EpochStamp::BOTH`] or 0.
#[derive(Clone, Copy, PartialEq, Eq)]
struct EpochStamp(u64);

impl EpochStamp {
    /// Clearing of the current half.
    const ONE: u64 = 1;
    /// Clearing of both halves.
    const BOTH: u64 = 2;

    const fn new(epoch: u64) -> Self {
        Self(epoch << 2)
    }

    const fn epoch(self) -> u64 {
        self.0 >> 2
    }

    const fn clearing(self) -> u64 {
        self.0 & 3
    }

    /// Returns true if nothing in the place counts at `epoch` and the place is not being cleared.
    /// The stamp is old, or from a time with a shorter window.
    const fn is_stale(self, epoch: u64) -> bool {
        let old = self.epoch().saturating_add(2) <= epoch;
        self.clearing() == 0 && (old || self.epoch() > epoch.saturating_add(1))
    }
}

/// Bitmap with concurrent writers.
struct Bitmap {
    words: [RelaxedWord; WORDS],
}

impl Bitmap {
    const fn new() -> Self {
        Self {
            words: [const { RelaxedWord::new(0) }; WORDS],
        }
    }

    /// Sets bit `bit`, modulo [`BITS`]; does not write if the bit is set.
    #[inline]
    fn set(&self, bit: u32) {
        let word = self.words.get((bit % BITS / u64::BITS) as usize);
        let mask = 1u64.wrapping_shl(bit);
        if let Some(word) = word.filter(|word| word.get() & mask == 0) {
            word.set_bits(mask);
        }
    }

    fn clear(&self) {
        for word in &self.words {
            word.set(0);
        }
    }

    /// Returns the number of bits set in this bitmap or `other`.
    fn union(&self, other: &Self) -> u32 {
        let pairs = self.words.iter().zip(&other.words);
        pairs.fold(0u32, |sum, (one, other)| {
            let both = one.get() | other.get();
            sum.wrapping_add(both.count_ones())
        })
    }
}

/// Bitmaps of a place: of even epochs and of odd epochs.
struct Bitmaps {
    even: Bitmap,
    odd: Bitmap,
}

impl Bitmaps {
    const fn new() -> Self {
        Self {
            even: Bitmap::new(),
            odd: Bitmap::new(),
        }
    }

    /// Returns the bitmap of `epoch`.
    const fn of(&self, epoch: u64) -> &Bitmap {
        if epoch % 2 == 0 {
            &self.even
        } else {
            &self.odd
        }
    }
}

/// Table of the counted sizes of jobs.
///
/// # Context
///
/// All methods but [`JobSizes::new`] may be called under a lock, and concurrently.
///
/// # Invariants
///
/// There are as many heads as maps.
pub struct JobSizes {
    heads: TaggedTable<BlockHeader>,
    maps: Bulk<Bitmaps>,
    /// Half a window, ns.
    half: RelaxedWord,
}

impl JobSizes {
    /// Creates a table with places for `jobs` jobs, rounded up to a power of two, and a window of
    /// `window` ns; may sleep.
    pub fn new(jobs: usize, window: u64) -> Result<Self, NoMemory> {
        let heads = TaggedTable::new(jobs, || BlockHeader {
            tag: AtomicWord::new(0),
            stamp: Hint::new(EpochStamp::new(0).0),
        })?;
        let maps = Bulk::filled(heads.len(), Bitmaps::new)?;
        Ok(Self {
            heads,
            maps,
            half: RelaxedWord::new(window / 2),
        })
    }

    /// Sets the window, ns; with another window counting restarts.
    pub fn set_window(&self, window: u64) {
        self.half.set(window / 2);
    }

    /// Notes that a request of `job` came from client `nid` at `now`, ns; both are keyed hashes of
    /// 64 bits ([`crate::sched::key::Hasher::wide`]). Reads a few words if the client was seen in
    /// this half. Returns true if the job has a place.
    pub fn see(&self, job: u64, nid: u64, now: u64) -> bool {
        let tag = job.max(1);
        let epoch = self.epoch(now);
        let place = self.find(tag).or_else(|| self.claim(tag, epoch));
        let Some((head, maps)) = place.and_then(|place| self.at(place)) else {
            return false;
        };
        let mut stamp = EpochStamp(head.stamp.get());
        if stamp.epoch() < epoch || stamp.is_stale(epoch) {
            stamp = turn(head, maps, stamp, epoch);
        }
        if stamp.clearing() == 0 {
            // A call that is a little late counts in the current half.
            maps.of(stamp.epoch()).set((nid >> 52) as u32);
        }
        true
    }

    /// Estimates the size of `job` at `now`, ns, from 1 to [`SIZE_MAX`]; 1 if the job is unknown.
    /// Reads 1 KiB, so the method is meant for setting weights, not for each request.
    pub fn estimate(&self, job: u64, now: u64) -> u32 {
        let place = self.find(job.max(1));
        let Some((head, maps)) = place.and_then(|place| self.at(place)) else {
            return 1;
        };
        let epoch = self.epoch(now);
        let stamp = EpochStamp(head.stamp.get());
        let (current, previous) = (stamp.epoch(), stamp.epoch().wrapping_sub(1));
        // A call may be a little late. An epoch further ahead is from a shorter window.
        let age = match current.saturating_sub(epoch) {
            0 | 1 => epoch.saturating_sub(current),
            _ => u64::MAX,
        };
        let set = match (age, stamp.clearing()) {
            (0, 0) => maps.of(current).union(maps.of(previous)),
            (0, EpochStamp::ONE) => maps.of(previous).union(maps.of(previous)),
            (1, 0) => maps.of(current).union(maps.of(current)),
            _ => 0,
        };
        clients(set)
    }

    /// Returns the number of the half that contains `now`. The first number is 2, so that a new
    /// place is stale.
    fn epoch(&self, now: u64) -> u64 {
        // A stamp holds 62 bits of the number.
        let half = self.half.get().max(1);
        let halves = now.checked_div(half).unwrap_or(0);
        halves.saturating_add(2).min(u64::MAX >> 2)
    }

    fn at(&self, index: usize) -> Option<(&BlockHeader, &Bitmaps)> {
        Some((self.heads.get(index as u32)?, self.maps.get(index)?))
    }

    /// Returns the numbers of the blocks of `tag`.
    fn blocks(tag: u64) -> impl Iterator<Item = u64> {
        [tag >> 11, tag >> 35].into_iter()
    }

    /// Returns the index of the place of `tag`.
    fn find(&self, tag: u64) -> Option<usize> {
        Self::blocks(tag).find_map(|number| {
            let (base, block) = self.heads.block(number);
            let found = block.iter().position(|head| head.tag.get() == tag)?;
            Some(base.wrapping_add(found))
        })
    }

    /// Claims a stale place for `tag`; returns its index, or the index of a place that another
    /// caller claimed for `tag`.
    fn claim(&self, tag: u64, epoch: u64) -> Option<usize> {
        for head in Self::blocks(tag).flat_map(|number| self.heads.block(number).1) {
            let there = head.tag.get();
            let stale = EpochStamp(head.stamp.get()).is_stale(epoch);
            if stale && head.tag.replace(there, tag) {
                break;
            }
        }
        // If other callers claimed places for the tag, too, the first place is the place of the tag
        // from now on.
        self.find(tag)
    }
}

/// Sets the epoch of a place with stamp `before` to `epoch`, unless another caller does so; returns
/// the resulting stamp.
fn turn(head: &BlockHeader, maps: &Bitmaps, before: EpochStamp, epoch: u64) -> EpochStamp {
    if before.clearing() != 0 {
        return before;
    }
    let after = EpochStamp::new(epoch);
    let both = before.is_stale(epoch);
    let clearing = after.0
        | if both {
            EpochStamp::BOTH
        } else {
            EpochStamp::ONE
        };
    if let Err(there) = head.stamp.replace(before.0, clearing) {
        return EpochStamp(there);
    }
    maps.of(epoch).clear();
    if both {
        maps.of(epoch.wrapping_sub(1)).clear();
    }
    // No other caller writes the stamp while the stamp says that the place is being cleared.
    head.stamp.set(after.0);
    after
}

/// Returns the number of clients, 1 to [`SIZE_MAX`], if `set` of [`BITS`] bits are set:
/// `m ln(m / (m - X))`, see the start of the file.
fn clients(set: u32) -> u32 {
    /// ln 2, in units of 2^-32.
    const LN_2: u64 = 2_977_044_472;
    /// Number of binary digits of the logarithm after the point.
    const DIGITS: u32 = 24;
    let unset = u64::from(BITS.saturating_sub(set));
    // m / (m - X), in units of 2^-31; 2^43 at most.
    let Some(ratio) = (u64::from(BITS) << 31).checked_div(unset) else {
        return SIZE_MAX;
    };
    let whole = ratio.checked_ilog2().unwrap_or(31).saturating_sub(31);
    // Logarithm to base 2, digit by digit: the square of a number has twice the logarithm of the
    // number.
    let mut rest = ratio.wrapping_shr(whole);
    let mut log = u64::from(whole);
    for _ in 0..DIGITS {
        rest = rest.wrapping_mul(rest) >> 31;
        let digit = rest >> 32;
        rest = rest.wrapping_shr(digit as u32);
        log = (log << 1) | digit;
    }
    // log is below 13 * 2^24, the product below 2^60. Times 2^12 bits, 44 of 56 digits after the
    // point remain.
    let product = log.wrapping_mul(LN_2).wrapping_add(1 << 43);
    let count = product >> (DIGITS.wrapping_add(32).wrapping_sub(BITS.ilog2()));
    (count as u32).clamp(1, SIZE_MAX)
}

/// Parses the size in a name such as `train#64`: the number after the last `#`, from 1, at most
/// [`SIZE_MAX`]. Returns `None` without a name before the `#` or a number from 1 after it.
///
/// An identifier cut at [`crate::sched::jobid::JOBID_MAX`] bytes may have lost digits, which makes
/// the size smaller, never larger.
pub fn suffix(jobid: &[u8]) -> Option<u32> {
    let at = jobid.iter().rposition(|&byte| byte == b'#')?;
    let (name, number) = jobid.split_at_checked(at)?;
    let (_, digits) = number.split_first()?;
    if name.is_empty() || digits.is_empty() {
        return None;
    }
    let mut size = 0u32;
    for &byte in digits {
        let digit = char::from(byte).to_digit(10)?;
        size = size.saturating_mul(10).saturating_add(digit);
    }
    (size > 0).then_some(size.min(SIZE_MAX))
}

#[cfg(test)]
mod tests;
