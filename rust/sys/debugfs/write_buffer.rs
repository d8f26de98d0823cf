// SPDX-License-Identifier: GPL-2.0-only

//! Text that is written in pieces and applied when the file is closed.
//!
//! The size of a write depends on the program: a shell writes each line separately, other programs
//! write full buffers.
//!
//! ```text
//!             accepted so far                    closed: applied once
//!   written ◀──────────────┐ ──────────────────────────────────────────────▶ freed
//!      │                   │
//!      └───── a piece ─────┤ invalid, or too long
//!                          └──────────▶ rejected: later pieces are refused, nothing is applied
//! ```
use kernel::{
    bindings, new_mutex,
    prelude::*,
    sync::Mutex,
    uaccess::{UserPtr, UserSlice},
};

/// Size, bytes, up to which the whole text is checked at every write.
const FEW: usize = 16 << 10;

/// Text written to one open file, and the state of its checks.
struct WriteBuffer {
    bytes: KVVec<u8>,
    /// Length of `bytes` at the last check.
    checked: usize,
    /// Error for which the text was rejected.
    spoilt: Option<Error>,
}

impl WriteBuffer {
    /// Appends the `len` bytes at `buf` in user memory.
    ///
    /// # Errors
    ///
    /// `E2BIG`: more than `most` bytes in total. `EFAULT`, `ENOMEM`.
    fn append(&mut self, buf: *mut c_void, len: usize, most: usize) -> Result {
        if len > most.saturating_sub(self.bytes.len()) {
            return Err(E2BIG);
        }
        let piece = UserSlice::new(UserPtr::from_ptr(buf), len);
        piece.read_all(&mut self.bytes, GFP_KERNEL_ACCOUNT)
    }

    /// Returns all complete lines if a check is due. A short text is checked at every write. A
    /// longer one is checked only after it has grown by 1/16, because each check reads the whole
    /// text.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the text is not UTF-8.
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

/// Text written to one open file; tasks may share the file.
#[pin_data]
pub(super) struct PartialText {
    #[pin]
    written: Mutex<WriteBuffer>,
}

impl PartialText {
    /// Creates an empty text.
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            written <- new_mutex!(WriteBuffer {
                bytes: KVVec::new(),
                checked: 0,
                spoilt: None,
            }, "nrs_pieces"),
        })
    }

    /// Appends the `len` bytes at `buf` in user memory, passes all complete lines to `check` if a
    /// check is due, and advances `pos`.
    ///
    /// # Errors
    ///
    /// - `E2BIG`: more than `most` bytes in total.
    /// - `EINVAL`: `pos` is not the end of the last piece, or the text is not UTF-8.
    /// - `EFAULT`: `buf` cannot be read.
    /// - The errno of `check`.
    /// - The errno of an earlier piece.
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
            *written = WriteBuffer {
                bytes: KVVec::new(),
                checked: 0,
                spoilt: Some(error),
            };
            return Err(error);
        }
        *pos = bindings::loff_t::try_from(written.bytes.len()).map_err(|_| E2BIG)?;
        Ok(len)
    }

    /// Passes the written text to `execute` if it is not empty and no piece was refused.
    pub(super) fn close(&self, execute: impl FnOnce(Result<&str>)) {
        let written = self.written.lock();
        if written.spoilt.is_none() && !written.bytes.is_empty() {
            let text = text_of(&written.bytes);
            execute(text.map(|text| text.strip_suffix('\n').unwrap_or(text)));
        }
    }
}
