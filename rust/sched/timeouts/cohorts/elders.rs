// SPDX-License-Identifier: GPL-2.0-only

//! What is too old for any ring.

use super::{batch::Batch, ring::Older};
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Bits for the number of requests.
const COUNT_BITS: u32 = 30;
const COUNT_MAX: u32 = (1 << COUNT_BITS) - 1;
const EXTENDED: u64 = 1 << COUNT_BITS;
const EXPIRED: u64 = EXTENDED << 1;
const DEADLINE_SHIFT: u32 = 32;

/// Requests that are too old for any ring: one number, and the earliest of their deadlines, so that they are
/// looked at in time even if others keep coming.
///
/// # Invariants
///
/// `word`, from the highest bit on: the deadline, ms modulo 2^32, whether it passed, whether it was extended,
/// the number. `times`: in the upper half when the first of them was sent, in the lower half when the last
/// one was; two that come at once may leave the times of one.
pub(super) struct Elders {
    word: AtomicU64,
    times: AtomicU64,
}

/// The number of requests in `word`.
const fn count(word: u64) -> u32 {
    word as u32 & COUNT_MAX
}

/// When the requests of `times` were sent.
const fn times(times: u64) -> (u32, u32) {
    ((times >> 32) as u32, times as u32)
}

/// Whether `a` is before `b`, both modulo 2^32.
const fn before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// A word of `count` requests with a deadline.
fn word(sent: u32, left: Option<u32>, extended: bool, count: u32) -> u64 {
    let deadline = sent.wrapping_add(left.unwrap_or(0));
    let extended = if extended { EXTENDED } else { 0 };
    let expired = if left.is_none() { EXPIRED } else { 0 };
    let count = count.min(COUNT_MAX);
    (u64::from(deadline) << DEADLINE_SHIFT) | expired | extended | u64::from(count)
}

impl Elders {
    /// None.
    pub(super) const fn new() -> Self {
        Self {
            word: AtomicU64::new(0),
            times: AtomicU64::new(0),
        }
    }

    /// Replaces the word by what `change` makes of it; none: not.
    fn update(&self, mut change: impl FnMut(u64) -> Option<u64>) {
        let mut seen = self.word.load(SeqCst);
        while let Some(new) = change(seen) {
            match self.word.compare_exchange_weak(seen, new, SeqCst, SeqCst) {
                Ok(_) => return,
                Err(other) => seen = other,
            }
        }
    }

    /// What there is; none if nothing.
    fn batch(&self) -> Option<Batch> {
        let word = self.word.load(SeqCst);
        let (first, last) = times(self.times.load(SeqCst));
        let deadline = (word >> DEADLINE_SHIFT) as u32;
        (count(word) != 0).then(|| Batch {
            sent: first,
            span: last.wrapping_sub(first).saturating_add(1),
            left: (word & EXPIRED == 0).then(|| deadline.wrapping_sub(first)),
            extended: word & EXTENDED != 0,
            count: count(word),
        })
    }
}

impl Older for Elders {
    fn add(&self, batch: &Batch) {
        let (sent, last) = (
            batch.sent,
            batch.sent.wrapping_add(batch.span.saturating_sub(1)),
        );
        let seen = self.times.load(SeqCst);
        let (sent, last) = match times(seen) {
            _ if count(self.word.load(SeqCst)) == 0 => (sent, last),
            (first, old) => (
                if before(sent, first) { sent } else { first },
                if before(old, last) { last } else { old },
            ),
        };
        let both = (u64::from(sent) << 32) | u64::from(last);
        // If others came, theirs are as good.
        let _ = self.times.compare_exchange(seen, both, SeqCst, SeqCst);
        let fresh = word(batch.sent, batch.left, batch.extended, batch.count);
        self.update(|seen| {
            if count(seen) == 0 {
                return Some(fresh);
            }
            let sum = count(seen).saturating_add(batch.count).min(COUNT_MAX);
            let (here, there) = (
                (seen >> DEADLINE_SHIFT) as u32,
                (fresh >> DEADLINE_SHIFT) as u32,
            );
            let earlier = seen & EXPIRED != 0 || before(there, here);
            let base = if fresh & EXPIRED == 0 && earlier {
                fresh
            } else {
                seen
            };
            Some((base & !u64::from(COUNT_MAX)) | u64::from(sum))
        });
    }

    fn remove(&self, _: u32, number: u32) {
        self.update(|seen| {
            let rest = count(seen).saturating_sub(number);
            Some((seen & !u64::from(COUNT_MAX)) | u64::from(rest))
        });
    }

    fn look<F: FnMut(Batch)>(&self, f: &mut F) {
        if let Some(batch) = self.batch() {
            f(batch);
        }
    }

    fn visit<F: FnMut(Batch) -> Option<Option<u32>>>(&self, f: &mut F) {
        let Some(batch) = self.batch() else {
            return;
        };
        if let Some(left) = f(batch) {
            // Those that came meanwhile are looked at with the others.
            self.update(|seen| match count(seen) {
                0 => None,
                count => Some(word(batch.sent, left, true, count)),
            });
        }
    }
}
