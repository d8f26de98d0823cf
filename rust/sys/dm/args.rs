// SPDX-License-Identifier: GPL-2.0-only

//! Words of tables and messages.

use core::ffi::CStr;

use kernel::{
    ffi::{c_char, c_uint},
    prelude::*,
};

/// Words of a table line or a message.
pub(crate) struct Args<'a> {
    words: &'a [*mut c_char],
}

impl<'a> Args<'a> {
    /// Creates the list of words.
    ///
    /// # Safety
    ///
    /// `argv` points to `argc` C strings that stay valid and unchanged for `'a`.
    pub(super) unsafe fn new(argc: c_uint, argv: *mut *mut c_char) -> Self {
        let words = if argc == 0 || argv.is_null() {
            &[]
        } else {
            // SAFETY: By the safety requirements of this function; `argc` fits `usize`.
            unsafe { core::slice::from_raw_parts(argv, argc as usize) }
        };
        Self { words }
    }

    /// Returns the number of words.
    pub(crate) fn len(&self) -> usize {
        self.words.len()
    }

    /// Returns word `index` if it exists and is valid UTF-8.
    pub(crate) fn get(&self, index: usize) -> Option<&'a str> {
        let word = *self.words.get(index)?;
        // SAFETY: By the safety requirements of `new`.
        unsafe { CStr::from_char_ptr(word) }.to_str().ok()
    }
}
