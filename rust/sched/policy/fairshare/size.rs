// SPDX-License-Identifier: GPL-2.0-only

//! Counted sizes of jobs: the number of clients that a job was seen from lately, 1 to [`SIZE_MAX`].
//!
//! - *Window*: how long a client counts. Two *halves* of it are kept, the current and the previous one; an
//!   *epoch* is the number of a half.
//! - *Place*: a tag, an epoch, and for each of two halves a bitmap with a bit for each of 4096 hashes
//!   ([`Head`], [`Maps`]). A *tag* is the hash of the job that has the place, or 0.
//! - *Block*: 8 places side by side; a job can be in the two blocks that its hash names.
//!
//! ```text
//!           claimed (CAS of the tag)      nothing seen in this half or the one before
//!  stale ──────────────────────────► live ─────────────────────────────────────────► stale
//!                                    │  ▲
//!        first request of a half:    ▼  │
//!        CAS of the epoch ────► clearing│────► the winner cleared what is older than the previous half
//! ```
//!
//! The estimate is of the clients seen in the current half and the previous one. So a client counts for at
//! least half a window after its last request and for less than a whole one. A job whose clients ask less
//! often than every half window is taken for smaller than it is.
//!
//! Linear counting (Whang, Vander-Zanden and Taylor, "A linear-time probabilistic counting algorithm",
//! 1990): of m = 4096 bits X are set, so n = m ln(m / (m - X)) clients were seen. The tests print the errors,
//! and the part of jobs that find both blocks full; Documentation/fairshare.md has the figures. A job without a
//! place counts as size 1 ([`Sizes::see`]).
//!
//! # Races
//!
//! - No call waits. While the winner of a change of epoch clears (512 bytes or 1 KiB), other sightings in
//!   that place are dropped and estimates are of the half that stays; the clients are seen again with their
//!   next requests.
//! - A place can change hands between a look at its tag and the setting of a bit, and a half can become
//!   current again. One client then counts for a stranger, or for longer, until the window is over.
//! - Two claims for one job at a time can get two places. The first place is found from then on, the other
//!   one becomes stale.

use crate::sched::mem::{Bulk, NoMemory};
use core::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};

/// Jobs of a table where nothing else is said.
pub const SIZES_MAX: usize = 1024;

/// Largest size.
pub const SIZE_MAX: u32 = 4096;

/// Bits of a bitmap; a power of two.
const BITS: u32 = 4096;

/// Words of a bitmap.
const WORDS: usize = (BITS / u64::BITS) as usize;

/// Places of a block.
const BLOCK: usize = 8;

/// Whose place it is, and of when.
struct Head {
    tag: AtomicU64,
    /// A [`Stamp`].
    stamp: AtomicU64,
}

/// The epoch of a place's current half, and whether somebody clears it.
///
/// # Invariants
///
/// The word is four times the epoch, and [`Stamp::ONE`], [`Stamp::BOTH`] or neither.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp(u64);

impl Stamp {
    /// The current half is being cleared.
    const ONE: u64 = 1;
    /// Both halves are being cleared.
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

    /// Whether nothing that counts at `epoch` was seen, and nobody is at it: it is of long ago, or of a time when the
    /// window was shorter.
    const fn is_stale(self, epoch: u64) -> bool {
        let old = self.epoch().saturating_add(2) <= epoch;
        self.clearing() == 0 && (old || self.epoch() > epoch.saturating_add(1))
    }
}

/// A bitmap that many set bits in.
struct Map {
    words: [AtomicU64; WORDS],
}

impl Map {
    const fn new() -> Self {
        Self {
            words: [const { AtomicU64::new(0) }; WORDS],
        }
    }

    /// Sets bit `bit`, modulo [`BITS`]; does not write if it is set.
    #[inline]
    fn set(&self, bit: u32) {
        let word = self.words.get((bit % BITS / u64::BITS) as usize);
        let mask = 1u64.wrapping_shl(bit);
        if let Some(word) = word.filter(|word| word.load(Relaxed) & mask == 0) {
            word.fetch_or(mask, Relaxed);
        }
    }

    fn clear(&self) {
        for word in &self.words {
            word.store(0, Relaxed);
        }
    }

    /// Bits set in this one or `other`.
    fn union(&self, other: &Self) -> u32 {
        let pairs = self.words.iter().zip(&other.words);
        pairs.fold(0u32, |sum, (one, other)| {
            let both = one.load(Relaxed) | other.load(Relaxed);
            sum.wrapping_add(both.count_ones())
        })
    }
}

/// The bitmaps of a place: of even epochs and of odd ones.
struct Maps {
    even: Map,
    odd: Map,
}

impl Maps {
    const fn new() -> Self {
        Self {
            even: Map::new(),
            odd: Map::new(),
        }
    }

    /// That of `epoch`.
    const fn of(&self, epoch: u64) -> &Map {
        if epoch % 2 == 0 {
            &self.even
        } else {
            &self.odd
        }
    }
}

/// Sizes of jobs, by what was seen of them.
///
/// # Context
///
/// All methods but [`Sizes::new`] may be called under a lock, and by many at once.
///
/// # Invariants
///
/// There are as many heads as maps: a power of two, one more than `mask` says, and at least one block.
pub struct Sizes {
    heads: Bulk<Head>,
    maps: Bulk<Maps>,
    mask: usize,
    /// Half a window, ns.
    half: AtomicU64,
}

impl Sizes {
    /// A table with places for `jobs` jobs, rounded up to a power of two, and a window of `window` ns; sleeps.
    pub fn new(jobs: usize, window: u64) -> Result<Self, NoMemory> {
        let count = jobs.max(BLOCK);
        let count = count.checked_next_power_of_two().ok_or(NoMemory)?;
        let heads = Bulk::filled(count, || Head {
            tag: AtomicU64::new(0),
            stamp: AtomicU64::new(Stamp::new(0).0),
        })?;
        let maps = Bulk::filled(count, Maps::new)?;
        // INVARIANT: `count` of both were pushed.
        Ok(Self {
            heads,
            maps,
            mask: count.wrapping_sub(1),
            half: AtomicU64::new(window / 2),
        })
    }

    /// Makes the window `window` ns; if it was another, counting starts again.
    pub fn set_window(&self, window: u64) {
        self.half.store(window / 2, Relaxed);
    }

    /// A request of `job` came from client `nid` at instant `now`, ns; both are keyed hashes of 64 bits
    /// ([`crate::sched::key::Hasher::wide`]). Reads a few words if the client was seen in this half. Returns whether the
    /// job has a place.
    pub fn see(&self, job: u64, nid: u64, now: u64) -> bool {
        let tag = job.max(1);
        let epoch = self.epoch(now);
        let place = self.find(tag).or_else(|| self.claim(tag, epoch));
        let Some((head, maps)) = place.and_then(|place| self.place(place)) else {
            return false;
        };
        let mut stamp = Stamp(head.stamp.load(Acquire));
        if stamp.epoch() < epoch || stamp.is_stale(epoch) {
            stamp = turn(head, maps, stamp, epoch);
        }
        if stamp.clearing() == 0 {
            // A call that is a little late counts in the half that is current.
            maps.of(stamp.epoch()).set((nid >> 52) as u32);
        }
        true
    }

    /// The size of `job` at instant `now`, ns: 1 to [`SIZE_MAX`], 1 if nothing is known. Reads 1 KiB: for
    /// setting weights, not for every request.
    pub fn estimate(&self, job: u64, now: u64) -> u32 {
        let place = self.find(job.max(1));
        let Some((head, maps)) = place.and_then(|place| self.place(place)) else {
            return 1;
        };
        let epoch = self.epoch(now);
        let stamp = Stamp(head.stamp.load(Acquire));
        let (current, previous) = (stamp.epoch(), stamp.epoch().wrapping_sub(1));
        // A call may be a little late; what is further ahead was seen with a shorter window.
        let age = match current.saturating_sub(epoch) {
            0 | 1 => epoch.saturating_sub(current),
            _ => u64::MAX,
        };
        let set = match (age, stamp.clearing()) {
            (0, 0) => maps.of(current).union(maps.of(previous)),
            (0, Stamp::ONE) => maps.of(previous).union(maps.of(previous)),
            (1, 0) => maps.of(current).union(maps.of(current)),
            _ => 0,
        };
        clients(set)
    }

    /// Number of the half in which `now` is. The first one is 2, so that a new place is stale.
    fn epoch(&self, now: u64) -> u64 {
        // A stamp holds 62 bits of it.
        let half = self.half.load(Relaxed).max(1);
        let halves = now.checked_div(half).unwrap_or(0);
        halves.saturating_add(2).min(u64::MAX >> 2)
    }

    fn place(&self, index: usize) -> Option<(&Head, &Maps)> {
        Some((self.heads.get(index)?, self.maps.get(index)?))
    }

    /// First places of the blocks of `tag`.
    const fn blocks(&self, tag: u64) -> [usize; 2] {
        let mask = self.mask & !(BLOCK - 1);
        [(tag >> 8) as usize & mask, (tag >> 32) as usize & mask]
    }

    /// Index of the place of `tag`.
    fn find(&self, tag: u64) -> Option<usize> {
        self.blocks(tag).into_iter().find_map(|base| {
            let mut block = self.heads.run(base, BLOCK).iter();
            let found = block.position(|head| head.tag.load(SeqCst) == tag)?;
            Some(base.wrapping_add(found))
        })
    }

    /// Claims a stale place for `tag`; returns its index, or that of one that somebody else claimed for it.
    fn claim(&self, tag: u64, epoch: u64) -> Option<usize> {
        let blocks = self.blocks(tag).into_iter();
        for head in blocks.flat_map(|base| self.heads.run(base, BLOCK)) {
            let there = head.tag.load(SeqCst);
            let stale = Stamp(head.stamp.load(Acquire)).is_stale(epoch);
            let claim = |there| head.tag.compare_exchange(there, tag, SeqCst, SeqCst);
            if stale && claim(there).is_ok() {
                break;
            }
        }
        // Whoever else claimed one: the first place is that of the tag from now on.
        self.find(tag)
    }
}

/// Makes `epoch` that of a place whose stamp was `before`, unless somebody else does; returns the stamp that
/// is there.
fn turn(head: &Head, maps: &Maps, before: Stamp, epoch: u64) -> Stamp {
    if before.clearing() != 0 {
        return before;
    }
    let after = Stamp::new(epoch);
    let both = before.is_stale(epoch);
    let clearing = after.0 | if both { Stamp::BOTH } else { Stamp::ONE };
    let swapped = head
        .stamp
        .compare_exchange(before.0, clearing, SeqCst, Acquire);
    if let Err(there) = swapped {
        return Stamp(there);
    }
    maps.of(epoch).clear();
    if both {
        maps.of(epoch.wrapping_sub(1)).clear();
    }
    // Nobody else writes the stamp while it says that it is being cleared.
    head.stamp.store(after.0, Release);
    after
}

/// Number of clients, 1 to [`SIZE_MAX`], of which `set` of [`BITS`] bits are set: m ln(m / (m - X)), see the
/// start of the file.
fn clients(set: u32) -> u32 {
    /// ln 2, in units of 2^-32.
    const LN_2: u64 = 2_977_044_472;
    /// Binary digits of the logarithm behind the point.
    const DIGITS: u32 = 24;
    let unset = u64::from(BITS.saturating_sub(set));
    // m / (m - X), in units of 2^-31; 2^43 at most.
    let Some(ratio) = (u64::from(BITS) << 31).checked_div(unset) else {
        return SIZE_MAX;
    };
    let whole = ratio.checked_ilog2().unwrap_or(31).saturating_sub(31);
    // Its logarithm to base 2, digit by digit: the square of a number has twice its logarithm.
    let mut rest = ratio.wrapping_shr(whole);
    let mut log = u64::from(whole);
    for _ in 0..DIGITS {
        rest = rest.wrapping_mul(rest) >> 31;
        let digit = rest >> 32;
        rest = rest.wrapping_shr(digit as u32);
        log = (log << 1) | digit;
    }
    // log is below 13 * 2^24, the product below 2^60; 2^12 bits, so 44 of 56 digits behind the point are left.
    let product = log.wrapping_mul(LN_2).wrapping_add(1 << 43);
    let count = product >> (DIGITS.wrapping_add(32).wrapping_sub(BITS.ilog2()));
    (count as u32).clamp(1, SIZE_MAX)
}

/// The size in a name such as `train#64`: the number after the last `#`, 1 to [`SIZE_MAX`]; larger ones count
/// as [`SIZE_MAX`]. None if there is no name before it, or something other than a number from 1 on after it.
///
/// An identifier that was cut at [`crate::sched::jobid::JOBID_MAX`] bytes may have lost digits; it counts less
/// then, never more.
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
