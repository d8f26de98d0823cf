// SPDX-License-Identifier: GPL-2.0-only

//! The parts of a service as policies and agents see them.

use crate::{
    arena::Request,
    attr::Priority,
    policy::{
        control::{Parts, RunningPart},
        AnyPart,
    },
};
use std::cell::{Cell, RefCell, RefMut};

/// Parts with their heads.
#[derive(Default)]
pub struct RunningParts {
    parts: Vec<(Priority, RefCell<AnyPart<Request>>)>,
    time: Cell<u64>,
}

/// One part of a [`RunningParts`].
struct BorrowedPart<'a> {
    priority: Priority,
    part: &'a RefCell<AnyPart<Request>>,
}

impl RunningPart for BorrowedPart<'_> {
    type Item = Request;

    fn cpt(&self) -> u16 {
        0
    }

    fn priority(&self) -> Priority {
        self.priority
    }

    fn with<R>(&self, f: impl FnOnce(&mut AnyPart<Request>) -> Option<R>) -> Option<R> {
        f(&mut self.part.borrow_mut())
    }
}

impl Parts for RunningParts {
    type Item = Request;

    fn now(&self) -> u64 {
        self.time.get()
    }

    fn running(&self) -> impl Iterator<Item = impl RunningPart<Item = Request>> {
        self.parts.iter().map(|(priority, part)| BorrowedPart {
            priority: *priority,
            part,
        })
    }
}

impl RunningParts {
    /// Adds a part on the head of `priority`.
    pub fn add(&mut self, priority: Priority, part: AnyPart<Request>) {
        self.parts.push((priority, RefCell::new(part)));
    }

    /// Sets the time, ns.
    pub fn set_time(&self, now: u64) {
        self.time.set(now);
    }

    /// Returns the part at `index`, in the order in which parts were added.
    pub fn part(&self, index: usize) -> RefMut<'_, AnyPart<Request>> {
        self.parts[index].1.borrow_mut()
    }
}
