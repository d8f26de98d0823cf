// SPDX-License-Identifier: GPL-2.0-only

//! The current scheduler of a queue, and the requested change of its settings
//! ([`super::settings`]).

use kernel::{prelude::*, sync::Arc};

use super::{instance::SchedulerInstance, Scheduler};

/// Progress of a change of settings.
pub(super) enum SchedulerChange<S> {
    /// No change is requested.
    Idle,
    /// A store has requested these settings.
    Asked(S),
    /// The work item makes the change.
    Making,
}

/// Progress of an instance. The block layer frees instances that it has not started, too.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum InstanceState {
    Created,
    Started,
    Freed,
}

/// Current scheduler and requested change.
pub(super) struct SchedulerControl<T: Scheduler> {
    pub(super) current: Arc<T>,
    pub(super) change: SchedulerChange<T::Settings>,
    /// Result of the last change.
    pub(super) outcome: Result,
    pub(super) state: InstanceState,
    /// Instance that is to replace this one when the number of hardware queues changes.
    pub(super) successor: Option<Arc<SchedulerInstance<T>>>,
    /// True if changes are refused: the instance has ended, or another instance has replaced it.
    pub(super) closed: bool,
}

impl<T: Scheduler> SchedulerControl<T> {
    pub(super) fn new(current: Arc<T>) -> Self {
        Self {
            current,
            change: SchedulerChange::Idle,
            outcome: Ok(()),
            state: InstanceState::Created,
            successor: None,
            closed: false,
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        matches!(self.change, SchedulerChange::Idle)
    }

    /// Withdraws a change that has not begun; returns true if there was one.
    pub(super) fn withdraw(&mut self) -> bool {
        let waits = matches!(self.change, SchedulerChange::Asked(_));
        if waits {
            self.change = SchedulerChange::Idle;
        }
        waits
    }
}
