// SPDX-License-Identifier: GPL-2.0-only

//! Texts for user space: generated as a whole, bounded, charged to the reader.

use core::{fmt, ptr};

use kernel::{alloc::flags::__GFP_NOWARN, ffi::c_char, prelude::*};

/// Largest text, bytes.
pub(crate) const TEXT_MAX: usize = 64 << 20;

/// A text that grows up to [`TEXT_MAX`] bytes.
pub(crate) struct Text {
    bytes: KVVec<u8>,
    /// Error for which the text stopped growing.
    failure: Option<Error>,
}

impl Text {
    /// Returns the text that `show` writes.
    ///
    /// # Errors
    ///
    /// - `EFBIG`: the text is larger than 64 MiB.
    /// - `ENOMEM`: no memory for the text.
    /// - The errno of `show`.
    pub(crate) fn of(show: impl FnOnce(&mut dyn fmt::Write) -> Result) -> Result<KVVec<u8>> {
        let mut text = Text {
            bytes: KVVec::new(),
            failure: None,
        };
        let result = show(&mut text);
        match text.failure {
            // `show` saw only `fmt::Error`.
            Some(failure) => Err(failure),
            None => result.map(|()| text.bytes),
        }
    }

    fn push(&mut self, bytes: &[u8]) -> Result {
        if bytes.len() > TEXT_MAX.saturating_sub(self.bytes.len()) {
            return Err(EFBIG);
        }
        // Charged to the memory cgroup of the reader.
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

/// A text buffer of the kernel: always NUL-terminated, truncated at its end.
pub(super) struct Reply {
    buf: *mut c_char,
    len: usize,
    used: usize,
    cut: bool,
}

impl Reply {
    /// Creates an empty text in `buf`.
    ///
    /// # Safety
    ///
    /// `buf` is valid for writes of `len` bytes while the value lives.
    pub(super) unsafe fn new(buf: *mut c_char, len: usize) -> Self {
        if len > 0 {
            // SAFETY: By the safety requirements of this function.
            unsafe { *buf = 0 };
        }
        Self {
            buf,
            len,
            used: 0,
            cut: false,
        }
    }

    /// Returns the number of bytes written, without the terminator.
    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// Returns true if a written text did not fit and was truncated.
    pub(super) fn is_cut(&self) -> bool {
        self.cut
    }
}

impl fmt::Write for Reply {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.len.saturating_sub(self.used).saturating_sub(1);
        let fits = text.len().min(room);
        if self.len > 0 {
            // SAFETY: `used + fits` is below `len`, so the text and its terminator fit.
            unsafe {
                let end = self.buf.add(self.used);
                ptr::copy_nonoverlapping(text.as_ptr().cast(), end, fits);
                *end.add(fits) = 0;
            }
        }
        self.used = self.used.saturating_add(fits);
        if fits < text.len() {
            self.cut = true;
            Err(fmt::Error)
        } else {
            Ok(())
        }
    }
}
