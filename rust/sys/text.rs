// SPDX-License-Identifier: GPL-2.0-only

//! Texts that somebody reads: made whole, bounded, charged to who asked.

use core::fmt;

use kernel::{alloc::flags::__GFP_NOWARN, prelude::*};

/// Bytes that one text may have.
const TEXT_MAX: usize = 64 << 20;

/// A text that grows up to [`TEXT_MAX`] bytes.
pub(crate) struct Text {
    bytes: KVVec<u8>,
    /// Why it stopped growing.
    failure: Option<Error>,
}

impl Text {
    /// What `show` writes.
    ///
    /// # Errors
    ///
    /// - `EFBIG`: it has more than 64 MiB.
    /// - `ENOMEM`: no memory for it.
    /// - What `show` returns.
    pub(crate) fn of(show: impl FnOnce(&mut dyn fmt::Write) -> Result) -> Result<KVVec<u8>> {
        let mut text = Text {
            bytes: KVVec::new(),
            failure: None,
        };
        let result = show(&mut text);
        match text.failure {
            // `show` only saw that its text was not taken.
            Some(failure) => Err(failure),
            None => result.map(|()| text.bytes),
        }
    }

    fn push(&mut self, bytes: &[u8]) -> Result {
        if bytes.len() > TEXT_MAX.saturating_sub(self.bytes.len()) {
            return Err(EFBIG);
        }
        // The text is charged to whoever reads it.
        self.bytes
            .extend_from_slice(bytes, GFP_KERNEL_ACCOUNT | __GFP_NOWARN)?;
        Ok(())
    }
}

impl fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes()).map_err(|failure| {
            self.failure = Some(failure);
            fmt::Error
        })
    }
}
