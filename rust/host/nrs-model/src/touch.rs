// SPDX-License-Identifier: GPL-2.0-only

//! List of the operations on words and locks.

use std::cell::RefCell;

/// An operation on a word or a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch {
    /// Number of the cache line.
    pub line: usize,
    /// True if the operation may have changed the word.
    pub write: bool,
}

thread_local! {
    static TOUCHES: RefCell<Option<Vec<Touch>>> = const { RefCell::new(None) };
}

/// Returns the operations of `f` on words and locks, in order.
pub fn watch(f: impl FnOnce()) -> Vec<Touch> {
    TOUCHES.set(Some(Vec::new()));
    f();
    TOUCHES.take().unwrap_or_default()
}

/// Records an operation on `word`.
pub(crate) fn touch<T>(word: &T, write: bool) {
    let line = std::ptr::from_ref(word).addr() / 64;
    TOUCHES.with_borrow_mut(|touches| {
        if let Some(touches) = touches {
            touches.push(Touch { line, write });
        }
    });
}
