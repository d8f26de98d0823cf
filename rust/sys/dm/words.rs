// SPDX-License-Identifier: GPL-2.0-only

//! Text that device-mapper passes and takes: words of tables and messages, and replies.

use core::{ffi::CStr, fmt, ptr};

use kernel::{
    ffi::{c_char, c_uint},
    prelude::*,
};

/// Words of a table line or a message.
pub(crate) struct Args<'a> {
    words: &'a [*mut c_char],
}

impl<'a> Args<'a> {
    /// # Safety
    ///
    /// `argv` points to `argc` C strings that stay valid and unchanged for `'a`.
    pub(super) unsafe fn new(argc: c_uint, argv: *mut *mut c_char) -> Self {
        let words = if argc == 0 || argv.is_null() {
            &[]
        } else {
            // SAFETY: The caller promises it; `argc` fits `usize`.
            unsafe { core::slice::from_raw_parts(argv, argc as usize) }
        };
        Self { words }
    }

    /// Number of words.
    pub(crate) fn len(&self) -> usize {
        self.words.len()
    }

    /// Word `index`, if it is there and is UTF-8.
    pub(crate) fn get(&self, index: usize) -> Option<&'a str> {
        let word = *self.words.get(index)?;
        // SAFETY: By the promise given to `new`.
        unsafe { CStr::from_char_ptr(word) }.to_str().ok()
    }
}

/// A text buffer of device-mapper's: always terminated, cut where it ends.
pub(super) struct Reply {
    buf: *mut c_char,
    len: usize,
    used: usize,
    cut: bool,
}

impl Reply {
    /// # Safety
    ///
    /// `buf` is valid for writes of `len` bytes while the value lives.
    pub(super) unsafe fn new(buf: *mut c_char, len: c_uint) -> Self {
        if len > 0 {
            // SAFETY: The caller promises it.
            unsafe { *buf = 0 };
        }
        Self {
            buf,
            len: len as usize,
            used: 0,
            cut: false,
        }
    }

    /// Whether nothing was written.
    pub(super) fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Whether the buffer is full, and what was written did not fit.
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
