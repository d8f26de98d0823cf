// SPDX-License-Identifier: GPL-2.0-only

//! The agent of a service ([`crate::sched::service::agent`]), with its lock and its tracepoint.

use kernel::{
    new_mutex,
    prelude::*,
    str::CString,
    sync::{Arc, Mutex},
};

use crate::{
    sched::service::agent::{AgentCounters, AgentState, FactorState},
    sys::{misc, trace},
};

/// The agent of one service.
#[pin_data]
pub(crate) struct Agent {
    /// The name of the service.
    label: CString,
    #[pin]
    state: Mutex<AgentState>,
}

impl Agent {
    /// Creates the state of the service `label` without an agent.
    pub(crate) fn new(label: CString) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                label,
                state <- new_mutex!(AgentState::default(), "nrs_agent"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Binds an open file; returns true if no file was bound before.
    pub(crate) fn bind(&self) -> bool {
        self.state.lock().bind()
    }

    /// Runs `f` on the state, and emits the tracepoint for the step that `f` returns.
    pub(crate) fn with(&self, f: impl FnOnce(&mut AgentState) -> Option<FactorState>) {
        // Under the lock, so that steps are traced in their order.
        let mut state = self.state.lock();
        if let Some(state) = f(&mut state).filter(|_| trace::Factors::is_on()) {
            let event = trace::Factors {
                service: trace::text(Some(&self.label.to_str().unwrap_or(""))),
                instance: state.instance,
                factors: state.count as u64,
                lease_ms: state.lease_ms.into(),
                step: state.step,
            };
            event.emit();
        }
    }

    /// Updates the state of the lease.
    pub(crate) fn poll(&self) {
        self.with(|state| state.poll(misc::now()));
    }

    /// Returns the counters as of now.
    pub(crate) fn counters(&self) -> AgentCounters {
        self.poll();
        self.state.lock().counters()
    }
}
