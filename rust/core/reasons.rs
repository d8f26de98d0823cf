// SPDX-License-Identifier: GPL-2.0-only

//! Why something was refused, for whoever asked for it.
//!
//! An errno is all that a refusal returns. A task that can tell its caller more listens while it has something
//! done ([`listen`]); what is refused meanwhile, by that task, is kept for it. Where nobody listens the reason
//! goes to the kernel log, at a limited rate.
//!
//! The mutex of the listeners is taken with any other mutex held, and no other in it. No request ever comes
//! here.

use core::fmt;

use kernel::{
    new_mutex,
    prelude::*,
    sync::{Arc, Mutex},
};

use crate::{
    sched::{qbm::plan::PlanError, rules::RuleError},
    sys::{
        global::{Global, Installed},
        misc, task,
    },
};

/// Why something was refused: one line.
#[derive(Clone, Copy)]
pub(crate) enum Reason {
    /// What the refusal says.
    Plain(&'static str),
    /// A rule was refused.
    Rule(RuleError),
    /// A plan was refused.
    Plan(PlanError),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(reason) => f.write_str(reason),
            Self::Rule(error) => write!(f, "{error}"),
            Self::Plan(error) => write!(f, "{error}"),
        }
    }
}

/// A task that listens, and what was refused last.
struct Listener {
    task: usize,
    reason: Option<Reason>,
}

/// The tasks that listen.
#[pin_data]
pub(crate) struct Listeners {
    #[pin]
    tasks: Mutex<KVec<Listener>>,
}

static LISTENERS: Global<Listeners> = Global::new();

/// Lets tasks listen; they no longer can once the result is dropped.
///
/// # Errors
///
/// `ENOMEM`.
pub(crate) fn init() -> Result<Installed<Listeners>> {
    LISTENERS.install(Arc::pin_init(
        pin_init!(Listeners {
            tasks <- new_mutex!(KVec::new(), "nrs_reasons"),
        }),
        GFP_KERNEL,
    )?)
}

/// Runs `f`; also returns why it was refused, if it was and said so. A task listens once at a time.
///
/// # Errors
///
/// `ENODEV`: the module is going; `ENOMEM`. Nothing was done then.
pub(crate) fn listen<R>(f: impl FnOnce() -> R) -> Result<(R, Option<Reason>)> {
    let listeners = LISTENERS.get().ok_or(ENODEV)?;
    let task = task::current();
    listeners
        .tasks
        .lock()
        .push(Listener { task, reason: None }, GFP_KERNEL)?;
    let result = f();
    let mut tasks = listeners.tasks.lock();
    let index = tasks.iter().position(|listener| listener.task == task);
    let gone = index.and_then(|index| tasks.remove(index).ok());
    Ok((result, gone.and_then(|listener| listener.reason)))
}

/// Says why something is refused to whoever listens in this task; else to the kernel log. `of` is the service
/// that refuses, where that is known. May sleep.
pub(crate) fn tell(reason: Reason, of: Option<&str>) {
    if let Some(listeners) = LISTENERS.get() {
        let task = task::current();
        let mut tasks = listeners.tasks.lock();
        if let Some(listener) = tasks.iter_mut().find(|listener| listener.task == task) {
            listener.reason = Some(reason);
            return;
        }
    }
    if !misc::may_print() {
        return;
    }
    let name = of.unwrap_or("");
    match reason {
        Reason::Plain(reason) => pr_info!("refused: {}\n", reason),
        Reason::Rule(error) => pr_info!(
            "service {}: rule refused, column {}: expected {}\n",
            name,
            error.column,
            error.expected,
        ),
        Reason::Plan(error) => pr_info!(
            "service {}: qbm configuration refused, {}\n",
            name,
            format_args!("{error}"),
        ),
    }
}
