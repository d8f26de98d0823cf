// SPDX-License-Identifier: GPL-2.0-only

//! A ring of cohorts, which hands what is too old for it to what is behind it.

use super::batch::{Batch, Word};
use crate::sched::mem::{Block, NoMemory};
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Cohorts of a ring, a power of two.
const PLACES: usize = 1 << PLACE_BITS;
const PLACE_BITS: u32 = 8;

/// Generations that a request may come late for its place: another processor is ahead.
const LATE: u32 = 8;

/// Where requests go that are too old.
///
/// A request is in one place at least: it is added behind before it is taken away in front. Who looks for it
/// from front to back finds it.
pub(super) trait Older {
    /// Takes requests.
    fn add(&self, batch: &Batch);

    /// Removes `count` requests that were sent at `sent`, ms modulo 2^32.
    fn remove(&self, sent: u32, count: u32);

    /// Shows what is there, front to back.
    fn look<F: FnMut(Batch)>(&self, f: &mut F);

    /// Shows what is there, back to front, and sets the time left to what `f` answers.
    fn visit<F: FnMut(Batch) -> Option<Option<u32>>>(&self, f: &mut F);
}

/// Cohorts of 2^`SHIFT` ms each.
///
/// # Invariants
///
/// There are [`PLACES`] words. Place `i` holds requests that were sent in the milliseconds
/// `(generation * PLACES + i) << SHIFT` and following, all modulo 2^32.
pub(super) struct Ring<const SHIFT: u32, O> {
    words: Block<AtomicU64, PLACES>,
    older: O,
}

/// Of a request that was sent at some time.
struct Place<'a> {
    word: &'a AtomicU64,
    generation: u16,
    /// How long before it its cohort started, ms.
    offset: u32,
}

impl<const SHIFT: u32, O> Ring<SHIFT, O> {
    /// Time that a cohort takes, ms.
    const SPAN: u32 = 1 << SHIFT;

    /// The bits of the time from its start.
    const WITHIN: u32 = Self::SPAN.wrapping_sub(1);

    /// The bits of a generation.
    const GENERATIONS: u32 = u32::MAX >> (SHIFT + PLACE_BITS);

    /// Empty cohorts, and `older` behind them; sleeps.
    ///
    /// # Errors
    ///
    /// - [`NoMemory`]: the allocator had none.
    pub(super) fn new(older: O) -> Result<Self, NoMemory> {
        let mut words = Block::new()?;
        while !words.is_full() {
            words.push(AtomicU64::new(0)).map_err(|_| NoMemory)?;
        }
        // INVARIANT: all words, without requests.
        Ok(Self { words, older })
    }

    /// The place for what was sent at `sent`.
    #[inline]
    fn place(&self, sent: u32) -> Option<Place<'_>> {
        let number = sent >> SHIFT;
        let word = self.words.as_slice().get(number as usize % PLACES)?;
        Some(Place {
            word,
            generation: (number >> PLACE_BITS) as u16,
            offset: sent & Self::WITHIN,
        })
    }

    /// What `word` of place `index` holds.
    fn batch(index: usize, word: Word) -> Batch {
        let number = (u32::from(word.generation()) << PLACE_BITS) | index as u32;
        Batch {
            sent: number << SHIFT,
            span: Self::SPAN,
            left: word.left(),
            extended: word.is_extended(),
            count: word.count(),
        }
    }

    /// Adds a request that was sent at `sent` and expires `left` ms later, if that is as simple as it mostly is:
    /// its cohort has begun, expires no earlier, and nobody else changes it.
    #[inline]
    pub(super) fn join(&self, sent: u32, left: u32) -> bool {
        let Some(place) = self.place(sent) else {
            return false;
        };
        let seen = place.word.load(SeqCst);
        let word = Word(seen);
        if word.generation() != place.generation {
            return false;
        }
        let left = left.saturating_add(place.offset);
        let Some(joined) = word.one_more(left) else {
            return false;
        };
        let swapped = place.word.compare_exchange(seen, joined.0, SeqCst, SeqCst);
        swapped.is_ok()
    }

    /// Removes a request that was sent at `sent`, if that is as simple as it mostly is.
    #[inline]
    pub(super) fn part(&self, sent: u32) -> bool {
        let Some(place) = self.place(sent) else {
            return false;
        };
        let seen = place.word.load(SeqCst);
        let word = Word(seen);
        if word.generation() != place.generation || word.count() == 0 {
            return false;
        }
        // INVARIANT: there is one, so the other parts stay.
        let rest = seen.wrapping_sub(1);
        let swapped = place.word.compare_exchange(seen, rest, SeqCst, SeqCst);
        swapped.is_ok()
    }

    /// Removes at most `count` requests that were sent at `sent`, and returns how many it did.
    fn take(&self, sent: u32, count: u32) -> u32 {
        let Some(place) = self.place(sent) else {
            return 0;
        };
        let mut seen = place.word.load(SeqCst);
        loop {
            let word = Word(seen);
            if word.generation() != place.generation {
                return 0;
            }
            let taken = count.min(word.count());
            if taken == 0 {
                return 0;
            }
            let rest = word.with_count(word.count().saturating_sub(taken));
            let swapped = place
                .word
                .compare_exchange_weak(seen, rest.0, SeqCst, SeqCst);
            match swapped {
                Ok(_) => return taken,
                Err(other) => seen = other,
            }
        }
    }

    /// Gives the cohort of place `index`, which was `seen`, another deadline, if it is still there; one that
    /// became later meanwhile stays so.
    fn extend(slot: &AtomicU64, seen: Word, left: Option<u32>) {
        let mut now = slot.load(SeqCst);
        loop {
            let word = Word(now);
            if word.generation() != seen.generation() || word.count() == 0 {
                return;
            }
            let count = word.count();
            let changed = Word::new(word.generation(), left, true, count);
            let changed = if word.left() == seen.left() || changed.left() > word.left() {
                changed
            } else {
                word
            };
            let swapped = slot.compare_exchange_weak(now, changed.0, SeqCst, SeqCst);
            match swapped {
                Ok(_) => return,
                Err(other) => now = other,
            }
        }
    }
}

impl<const SHIFT: u32, O: Older> Older for Ring<SHIFT, O> {
    fn add(&self, batch: &Batch) {
        let Some(place) = self.place(batch.sent) else {
            return self.older.add(batch);
        };
        let index = (batch.sent >> SHIFT) as usize % PLACES;
        let left = batch.left.map(|left| left.saturating_add(place.offset));
        let fresh = Word::new(place.generation, left, batch.extended, batch.count);
        loop {
            let seen = Word(place.word.load(SeqCst));
            let ahead = u32::from(seen.generation()).wrapping_sub(place.generation.into());
            let ahead = ahead & Self::GENERATIONS;
            let (new, old) = if seen.count() == 0 {
                (fresh, None)
            } else if ahead == 0 {
                match seen.joined(left, batch.extended, batch.count) {
                    Some(joined) => (joined, None),
                    None => return self.older.add(batch),
                }
            } else if ahead <= LATE {
                return self.older.add(batch);
            } else {
                (fresh, Some(Self::batch(index, seen)))
            };
            if let Some(old) = &old {
                self.older.add(old);
            }
            let swapped = place.word.compare_exchange(seen.0, new.0, SeqCst, SeqCst);
            match (swapped, old) {
                (Ok(_), _) => return,
                (Err(_), Some(old)) => self.older.remove(old.sent, old.count),
                (Err(_), None) => (),
            }
        }
    }

    fn remove(&self, sent: u32, count: u32) {
        let rest = count.saturating_sub(self.take(sent, count));
        if rest != 0 {
            self.older.remove(sent, rest);
        }
    }

    fn look<F: FnMut(Batch)>(&self, f: &mut F) {
        for (index, word) in self.words.iter().enumerate() {
            let word = Word(word.load(SeqCst));
            if word.count() != 0 {
                f(Self::batch(index, word));
            }
        }
        self.older.look(f);
    }

    fn visit<F: FnMut(Batch) -> Option<Option<u32>>>(&self, f: &mut F) {
        self.older.visit(f);
        for (index, slot) in self.words.iter().enumerate() {
            let word = Word(slot.load(SeqCst));
            if word.count() == 0 {
                continue;
            }
            if let Some(left) = f(Self::batch(index, word)) {
                Self::extend(slot, word, left);
            }
        }
    }
}
