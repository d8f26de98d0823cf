// SPDX-License-Identifier: GPL-2.0-only

//! The device-mapper target `nrs`: block I/O of one client.
//!
//! # Terms
//!
//! - *Device*: one line of a dm table; a client of its service.
//! - *Running*: the service dispatches or queues requests.
//! - *Draining*: requests bypass the queue whatever the service's state, so that a suspend can
//!   finish.
//!
//! ```text
//!              presuspend: queued requests are dispatched
//!   Running ───────────────────────────────────────────────▶ Draining
//!      ▲                                                         │
//!      └─────────────── resume, or the suspend was undone ───────┘
//! ```
//!
//! A suspend without flush works the same way: queued requests are dispatched, so none has to be
//! pushed back. Several devices may share a service, and a backing device.
//!
//! A lost device ([`crate::engine::client::deadlines`]) waits for its backing device. If its table
//! says so, requests that are not in flight end with a timeout instead, so that the caller can use
//! another path.

use core::fmt;

use kernel::prelude::*;

use super::block::BlockClient;
use crate::{
    engine::{parameters, refusal::RefusedError, registry, target::LowerDevice},
    sched::{attr::Opcode, item::Cost, partition::admit::AdmissionOutcome, report::Report},
    sys::{
        atomic::AtomicWord,
        dm::{Args, Bio, DmTarget, MapOutcome, TableRefusal, TargetContext, TargetPlan},
        misc,
        node::{Held, NodeAccount},
        series::ELOOP,
        task,
    },
};

mod args;
mod refused_flushes;

use refused_flushes::RefusedFlushes;

/// Maximum size of a request, so that a slot stands for a bounded amount of work.
const MAX_BYTES: u32 = 1 << 20;

/// A client of a service, made by one line of a dm table.
pub(crate) struct DmDevice {
    config: args::TableLine,
    member: BlockClient,
    draining: AtomicWord,
    refused_flushes: RefusedFlushes,
}

impl DmTarget for DmDevice {
    const NAME: &'static CStr = c"nrs";
    const VERSION: [u32; 3] = [1, 0, 0];
    type Config = args::TableLine;

    fn parse(args: &Args<'_>) -> Result<TargetPlan<args::TableLine>, TableRefusal> {
        args::parse(args)
    }

    fn create(config: args::TableLine, lower: TargetContext<'_>) -> Result<Self, TableRefusal> {
        let device = LowerDevice {
            name: lower.name,
            number: lower.number,
            whole: lower.whole,
            depth: lower.depth,
            runner: None,
        };
        let attachment = registry::attach(&config.service, lower.label, lower.mapped, device)
            .map_err(|error| TableRefusal {
                error,
                reason: match error {
                    ELOOP => c"DEVICE: is a client of the same service, or below one",
                    ENOSPC => c"SERVICE: too many services, or clients or targets of the service",
                    EBUSY => c"SERVICE: serves programs or kernel modules",
                    ENOMEM => c"Out of memory",
                    _ => c"SERVICE: cannot be created",
                },
            })?;
        if let Some(deadlines) = attachment.client().deadlines() {
            deadlines.open(lower.disk, config.fails);
        }
        Ok(Self {
            config,
            member: BlockClient::new(attachment),
            draining: AtomicWord::new(0),
            refused_flushes: RefusedFlushes::new(),
        })
    }

    #[inline]
    fn map(&self, mut bio: Bio<'_, Self>) -> MapOutcome {
        let is_piece = bio.split(MAX_BYTES);
        let client = self.member.client();
        let deadlines = client.deadlines();
        let is_failing = || deadlines.is_some_and(|deadlines| deadlines.is_failing());
        let view = bio.view();
        let is_flush = view.bytes() == 0;
        if is_failing() {
            if is_flush {
                self.refused_flushes.refuse();
            }
            client.load().count_refused();
            return bio.time_out();
        }
        // A flush, unless flushes bypass the target: callers wait for flushes, so there is no order
        // to keep, and there is no data to charge.
        if is_flush {
            client.load().count_operation(misc::cpu(), Opcode::OST_SYNC);
            return bio.bypass();
        }
        let flushes = match view.is_write() {
            true => self.refused_flushes.owed(),
            false => 0,
        };
        let who = task::submitter();
        let traits = self.member.traits(view, &who, bio.offset(), view.bytes());
        let go_on = || self.draining.get() != 0 || is_failing();
        let waited = traits.can_wait() && client.load().hold_back(go_on);
        // The device may have been lost meanwhile.
        if waited && is_failing() {
            client.load().count_refused();
            client.load().wake_next();
            return bio.time_out();
        }
        if flushes != 0 {
            bio.flush_first();
        }
        let target = self.member.target().index();
        let account = NodeAccount {
            flushes,
            ..traits.account()
        };
        let cost = traits.cost(is_piece);
        let held = bio.into_held(cost, target, traits.wants_file, account);
        let naming = &self.config.naming;
        let draining = || self.draining.get() != 0;
        let went = self.member.arrive(held, &traits, naming, &who, &draining);
        if waited {
            client.load().wake_next();
        }
        match went {
            AdmissionOutcome::Passed(mut held) => {
                if let Some(deadlines) = deadlines {
                    deadlines.enter(held.account_mut());
                }
                MapOutcome::passed(held)
            }
            // Requests that may overflow are never refused.
            AdmissionOutcome::Queued | AdmissionOutcome::Blocked | AdmissionOutcome::Refused(_) => {
                MapOutcome::submitted()
            }
        }
    }

    fn submitting(&self, account: &mut NodeAccount) -> bool {
        self.member.submitting(account)
    }

    #[inline]
    fn defers(&self, account: &NodeAccount) -> bool {
        self.member.target().defers(account.placement.admission)
    }

    fn defer(&self, held: Held) {
        self.member.target().defer(held);
    }

    #[inline]
    fn ended(&self, account: &mut NodeAccount, cost: Cost, error: i32) {
        if account.flushes != 0 && error == 0 {
            self.refused_flushes.repay(account.flushes);
        }
        self.member.ended(account, cost, error);
    }

    fn presuspend(&self) {
        self.draining.set(1);
        self.member.client().load().wake_all();
        self.member.drain();
    }

    fn resume(&self) {
        self.draining.set(0);
    }

    fn status(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        let concurrency = self.member.service().concurrency();
        let client = self.member.client();
        client.report(concurrency, &mut Report::line(out))
    }

    fn table(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        args::write(&self.config, out)
    }

    /// Handles the messages `drain`, `timeouts` and `service NAME [VALUE…]` with the names of the
    /// debugfs files.
    fn message(&self, args: &Args<'_>, out: &mut dyn fmt::Write) -> Result {
        // Memory must not wait for I/O: the device may be suspended, or about to be.
        misc::without_io(|| self.answer(args, out))
    }
}

impl DmDevice {
    /// Handles a message.
    fn answer(&self, args: &Args<'_>, out: &mut dyn fmt::Write) -> Result {
        match (args.get(0), args.get(1)) {
            (Some("drain"), None) if args.len() == 1 => {
                self.member.service().drain();
                Ok(())
            }
            (Some("timeouts"), None) if args.len() == 1 => match self.member.client().deadlines() {
                Some(deadlines) => deadlines.write_timeouts(out).map_err(|_| ENOSPC),
                None => Ok(()),
            },
            (Some("service"), Some(name)) => {
                let service = self.member.service();
                if args.len() == 2 {
                    return parameters::show(service, name, out);
                }
                let mut value = KVec::new();
                for index in 2..args.len() {
                    let word = args.get(index).ok_or(EINVAL)?;
                    if index > 2 {
                        value.push(b' ', GFP_KERNEL)?;
                    }
                    value.extend_from_slice(word.as_bytes(), GFP_KERNEL)?;
                }
                let value = core::str::from_utf8(&value).map_err(|_| EINVAL)?;
                if name == parameters::CONFIG {
                    let reason = "config has lines, and a message has none";
                    return Err(RefusedError::because(EINVAL, reason).report(service.name()));
                }
                let set = parameters::set(service, name, value);
                set.map_err(|refused| refused.report(service.name()))
            }
            _ => Err(EINVAL),
        }
    }
}
