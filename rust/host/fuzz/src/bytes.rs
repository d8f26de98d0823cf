// SPDX-License-Identifier: GPL-2.0-only

//! Input of a target, as operations with operands.

/// Bytes as operands; after the last byte, zeros follow.
pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

impl Bytes<'_> {
    /// Returns the next byte, if there is one.
    pub(crate) fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// Returns the next byte, or 0 after the last one.
    pub(crate) fn byte(&mut self) -> u8 {
        self.next().unwrap_or(0)
    }

    /// Returns an element of `all`, selected by the next byte.
    pub(crate) fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::from(self.byte()) % all.len()]
    }
}
