// SPDX-License-Identifier: GPL-2.0-only

//! How a part was started, and what it is told when that changes.

use crate::sched::{
    attr::Priority,
    policy::{NoArgument, Simple, Tuning},
};

/// Bounds of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Classes beside the default class.
    pub classes: u32,
    /// Requests that are sorted, beside one for each class.
    pub requests: u32,
}

/// Parameters of a policy that goes round.
pub trait Tuned: Tuning + Copy + PartialEq {
    /// What the store of its requests is told.
    type Setting: Copy + PartialEq;

    /// Requests of a batch on the head of `priority`.
    fn quantum(&self, priority: Priority) -> u32;

    /// What the store is told on the head of `priority`.
    fn setting(&self, priority: Priority) -> Self::Setting;

    /// What only a new part takes over.
    fn bounds(&self) -> Bounds;

    /// What a running part is told on the head of `priority`.
    fn update(&self, priority: Priority) -> Update<Self::Setting> {
        Update {
            quantum: self.quantum(priority),
            setting: self.setting(priority),
        }
    }
}

/// What a running part is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Update<S> {
    /// Requests of batches that begin from now on.
    pub quantum: u32,
    /// For the store, about requests that come from now on.
    pub setting: S,
}

impl<T: Tuned> Simple for T {
    type Update = Update<T::Setting>;

    fn update_to(&self, new: &Self, priority: Priority) -> Option<Self::Update> {
        (self.bounds() == new.bounds()).then(|| new.update(priority))
    }
}

/// Configuration of a part.
pub type Config<T> = NoArgument<T>;
