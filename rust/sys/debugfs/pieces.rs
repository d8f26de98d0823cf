// SPDX-License-Identifier: GPL-2.0-only

//! Text that comes in pieces and counts when the file is closed.
//!
//! Programs write a text of several lines as they like: a shell writes every line by itself, others whatever
//! their buffer holds.
//!
//! ```text
//!             right so far                       closed: carried out, once
//!   written ◀──────────────┐ ──────────────────────────────────────────────▶ gone
//!      │                   │
//!      └───── a piece ─────┤ wrong, or too long
//!                          └──────────────────────▶ spoilt: all that follows is refused, nothing is carried out
//! ```

use kernel::{
    bindings, new_mutex,
    prelude::*,
    sync::Mutex,
    uaccess::{UserPtr, UserSlice},
};

/// Bytes of a text that is checked as a whole whenever a piece comes.
const FEW: usize = 16 << 10;

/// What was written to one open file.
struct Written {
    bytes: KVVec<u8>,
    /// How many of them there were when they were checked last.
    checked: usize,
    /// Why it counts for nothing.
    spoilt: Option<Error>,
}

impl Written {
    /// Appends the `len` bytes at `buf` of the caller's memory.
    ///
    /// # Errors
    ///
    /// `E2BIG`: more than `most` in all. `EFAULT`, `ENOMEM`.
    fn append(&mut self, buf: *mut c_void, len: usize, most: usize) -> Result {
        if len > most.saturating_sub(self.bytes.len()) {
            return Err(E2BIG);
        }
        let piece = UserSlice::new(UserPtr::from_ptr(buf), len);
        piece.read_all(&mut self.bytes, GFP_KERNEL_ACCOUNT)
    }

    /// All lines that have come to their end, if it is time to check them: each time while there are few, and
    /// then once in a while, since it takes as long as there are lines.
    ///
    /// # Errors
    ///
    /// `EINVAL`: not UTF-8.
    fn lines(&mut self) -> Result<Option<&str>> {
        let (len, new) = (
            self.bytes.len(),
            self.bytes.len().saturating_sub(self.checked),
        );
        if len > FEW && new < len / 16 {
            return Ok(None);
        }
        self.checked = len;
        let end = self.bytes.iter().rposition(|byte| *byte == b'\n');
        let lines = end.and_then(|end| self.bytes.get(..end));
        lines.map(text_of).transpose()
    }
}

fn text_of(bytes: &[u8]) -> Result<&str> {
    core::str::from_utf8(bytes).map_err(|_| EINVAL)
}

/// What was written to one open file, by whoever shares it.
#[pin_data]
pub(super) struct Pieces {
    #[pin]
    written: Mutex<Written>,
}

impl Pieces {
    /// Nothing.
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            written <- new_mutex!(Written {
                bytes: KVVec::new(),
                checked: 0,
                spoilt: None,
            }, "nrs_pieces"),
        })
    }

    /// Appends the `len` bytes at `buf` of the caller's memory, has `check` look at all lines so far now and
    /// then, and moves `pos` on.
    ///
    /// # Errors
    ///
    /// - `E2BIG`: more than `most` bytes in all.
    /// - `EINVAL`: not where the last piece ended, or not UTF-8.
    /// - `EFAULT`: `buf` cannot be read.
    /// - What `check` returns.
    /// - What an earlier piece was refused with.
    pub(super) fn add(
        &self,
        buf: *mut c_void,
        len: usize,
        most: usize,
        pos: &mut bindings::loff_t,
        check: impl FnOnce(&str) -> Result,
    ) -> Result<usize> {
        let mut written = self.written.lock();
        if let Some(error) = written.spoilt {
            return Err(error);
        }
        let added = if usize::try_from(*pos) == Ok(written.bytes.len()) {
            written.append(buf, len, most)
        } else {
            Err(EINVAL)
        };
        let fine = added.and_then(|()| written.lines()?.map_or(Ok(()), check));
        if let Err(error) = fine {
            *written = Written {
                bytes: KVVec::new(),
                checked: 0,
                spoilt: Some(error),
            };
            return Err(error);
        }
        *pos = bindings::loff_t::try_from(written.bytes.len()).map_err(|_| E2BIG)?;
        Ok(len)
    }

    /// Hands what was written to `obey`, if there is anything and nothing of it was refused.
    pub(super) fn close(&self, obey: impl FnOnce(Result<&str>)) {
        let written = self.written.lock();
        if written.spoilt.is_none() && !written.bytes.is_empty() {
            let text = text_of(&written.bytes);
            obey(text.map(|text| text.strip_suffix('\n').unwrap_or(text)));
        }
    }
}
