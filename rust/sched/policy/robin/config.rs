// SPDX-License-Identifier: GPL-2.0-only

//! Configuration of a part, and updates of a running part.

use crate::sched::{
    attr::Priority,
    policy::{NoArgument, Simple, Tuning},
};

/// Limits of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Largest number of classes, without the default class.
    pub classes: u32,
    /// Largest number of sorted requests, beside one for each class.
    pub requests: u32,
}

/// Parameters of a round-robin policy.
pub trait Tuned: Tuning + Copy + PartialEq {
    /// Setting of the store.
    type Setting: Copy + PartialEq;

    /// Returns the quantum on the head of `priority`, requests.
    fn quantum(&self, priority: Priority) -> u32;

    /// Returns the setting of the store on the head of `priority`.
    fn setting(&self, priority: Priority) -> Self::Setting;

    /// Returns the limits, which apply only to new parts.
    fn bounds(&self) -> Bounds;

    /// Returns the update of a running part on the head of `priority`.
    fn update(&self, priority: Priority) -> Update<Self::Setting> {
        Update {
            quantum: self.quantum(priority),
            setting: self.setting(priority),
        }
    }
}

/// Update of a running part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Update<S> {
    /// Quantum of later batches, requests.
    pub quantum: u32,
    /// Setting of the store for later requests.
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
