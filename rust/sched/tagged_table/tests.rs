// SPDX-License-Identifier: GPL-2.0-only

//! Other tasks at each gap of a search, for the tests of the tables.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

thread_local! {
    static OTHERS: RefCell<Option<Rc<dyn Fn()>>> = const { RefCell::new(None) };
}

/// Runs the other tasks of [`interleaved`].
pub(super) fn between() {
    if let Some(others) = OTHERS.with_borrow(Option::clone) {
        others();
    }
}

/// Runs `task`, and `others` at each gap of `task` and of `others`.
pub fn interleaved(others: impl Fn() + 'static, task: impl FnOnce()) {
    OTHERS.set(Some(Rc::new(others)));
    task();
    OTHERS.set(None);
}

/// Runs `other` at gap `moment` of `task`; returns true if there is such a gap.
pub fn at_gap(moment: u32, other: impl Fn() + 'static, task: impl FnOnce()) -> bool {
    let gaps = Rc::new(Cell::new(0));
    let count = gaps.clone();
    let others = move || {
        count.set(count.get() + 1);
        if count.get() == moment {
            other();
        }
    };
    interleaved(others, task);
    gaps.get() >= moment
}
