// SPDX-License-Identifier: GPL-2.0-only

//! What a target is given, as operations with operands.

/// Bytes as operands; where there are none left they are zeros.
pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

impl<'a> Bytes<'a> {
    /// The next one, if there is one.
    pub(crate) fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// The next one.
    pub(crate) fn byte(&mut self) -> u8 {
        self.next().unwrap_or(0)
    }

    /// The next `count`, or what is left.
    pub(crate) fn run(&mut self, count: usize) -> &'a [u8] {
        let (first, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        first
    }

    /// A number, small ones and very large ones.
    pub(crate) fn number(&mut self) -> u64 {
        let byte = self.byte();
        u64::from(byte | 1) << (byte % 60)
    }

    /// One of `all`.
    pub(crate) fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::from(self.byte()) % all.len()]
    }
}
