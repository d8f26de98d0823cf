// SPDX-License-Identifier: GPL-2.0-only

//! Policies for a framework that has heads of its own.
//!
//! # Terms
//!
//! - *Framework*: queues the requests of a server by policies, as Lustre's ptlrpc does. A framework
//!   keeps its own heads, starts and stops policies, and calls one of them at a time.
//! - *Framework service*: a service whose policies a framework drives ([`FrameworkService`]), with
//!   parameters and statistics as any other service.
//! - *Policy driver*: one policy of one head of one partition, as the framework uses it
//!   ([`PolicyDriver`]).
//!
//! ```text
//!   start ──▶ PolicyDriver ── enqueue ──▶ queued ── get ──▶ started ── finish ──▶ ended
//!     │                                     └── dequeue: moved to another head of the framework
//!     └ starts the policy on all partitions of the service; the last driver of a head stops it
//! ```
//!
//! The service dispatches nothing by itself: only the framework takes out driven requests
//! ([`crate::sched::head::drive`]).
//!
//! # Context
//!
//! Requests: any context. The framework calls a driver from one task at a time, under a lock of the
//! framework. All other functions may sleep.

use kernel::{prelude::*, sync::Arc};

use super::{
    partition::{KernelHead, Partition},
    refusal,
    registry::{self, Attachment},
    service::Service,
    target::PullNotifier,
};
use crate::{
    sched::{
        attr::{Attrs, Priority},
        head::HeadTicket,
        item::{Cost, Item as _},
        partition::slot_pool::CPTS_MAX,
        policy::{Config, Decision, Kind, PartView},
        text::PolicyCommand,
    },
    sys::{
        misc::{self, bug},
        mutex::NoIoMutex,
        node::{Held, NodeHandle},
        timer::WithTimer,
    },
};

/// Drivers of a policy on the heads of a priority.
struct Started {
    kind: Kind,
    priority: Priority,
    /// Bit mask of the partitions that have a driver.
    drivers: u64,
}

const _: () = assert!(CPTS_MAX <= u64::BITS);

/// A service whose policies a framework drives.
#[pin_data]
pub(crate) struct FrameworkService {
    attachment: Attachment,
    #[pin]
    started: NoIoMutex<KVec<Started>>,
}

impl FrameworkService {
    /// Creates the service `name` with `cpts` partitions, driven by a framework. `waker` is called
    /// when a throttled request may be eligible.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: `name` is not a valid name, or the number of partitions is out of range.
    /// - `EBUSY`: the service has clients.
    /// - `ENOSPC`: too many services.
    /// - `ENOMEM`.
    pub(crate) fn open(name: &CStr, cpts: u32, waker: Arc<dyn PullNotifier>) -> Result<Arc<Self>> {
        let attachment = registry::attach_framework(name, cpts, waker)?;
        Arc::pin_init(
            pin_init!(Self {
                attachment,
                started <- NoIoMutex::new(kernel::new_mutex!(KVec::new(), "nrs_started")),
            }),
            GFP_KERNEL,
        )
    }

    /// Returns the service.
    pub(crate) fn service(&self) -> &Service {
        self.attachment.service()
    }

    /// Starts the policy `name` with `argument` on the head of `priority` of the partition `cpt`.
    /// The service starts the policy on the heads of all its partitions at once. The framework must
    /// request the same policy for each partition.
    ///
    /// # Errors
    ///
    /// - `ENOENT`: no policy of that name, or no such partition.
    /// - `EINVAL`: an argument that the policy rejects.
    /// - `EBUSY`: the head has a driver of this policy.
    /// - `EAGAIN`: earlier policies are still stopping.
    /// - `ENOMEM`.
    pub(crate) fn start(
        self: &Arc<Self>,
        name: &str,
        argument: &str,
        priority: Priority,
        cpt: u16,
    ) -> refusal::Result<PolicyDriver> {
        let kind = Kind::from_name(name)?;
        let partitions = self.service().partitions_of(self.attachment.target());
        let partition = partitions.and_then(|partitions| partitions.get(usize::from(cpt)));
        let partition = partition.ok_or(ENOENT)?.clone();
        let driver = 1u64 << cpt;
        let mut started = self.started.lock();
        started.reserve(1, GFP_KERNEL)?;
        let same = |one: &Started| one.kind == kind && one.priority == priority;
        let has_driver = |one: &Started| same(one) && one.drivers & driver != 0;
        if started.iter().any(has_driver) {
            return Err(EBUSY.into());
        }
        self.select(name, argument, priority)?;
        match started.iter_mut().find(|one| same(one)) {
            Some(one) => one.drivers |= driver,
            None => started.push(
                Started {
                    kind,
                    priority,
                    drivers: driver,
                },
                GFP_KERNEL,
            )?,
        }
        Ok(PolicyDriver {
            engine: self.clone(),
            partition,
            kind,
            priority,
        })
    }

    /// Starts the policy `name` with `argument` on the heads of `priority` of the service.
    fn select(&self, name: &str, argument: &str, priority: Priority) -> refusal::Result {
        let command = PolicyCommand::new(name, priority.into(), argument)?;
        self.service().start_policy(&command, true)
    }

    /// Ends the driver of the partition `cpt`; the end of the last driver of a head stops its
    /// policy.
    fn stop(&self, kind: Kind, priority: Priority, cpt: u16) {
        let mut started = self.started.lock();
        let same = |one: &Started| one.kind == kind && one.priority == priority;
        let Some(index) = started.iter().position(same) else {
            bug!();
            return;
        };
        if let Some(one) = started.get_mut(index) {
            one.drivers &= !(1 << cpt);
            if one.drivers != 0 {
                return;
            }
        }
        bug!(started.remove(index).is_err());
        if kind != Kind::FALLBACK && self.service().primary_kind(priority) == Some(kind) {
            // If this fails for lack of memory, the policy stays without requests.
            let _ = self.select(Kind::FALLBACK.name(), "", priority);
        }
    }
}

/// One policy of one head of one partition, as a framework drives it.
pub(crate) struct PolicyDriver {
    engine: Arc<FrameworkService>,
    partition: Arc<WithTimer<Partition>>,
    kind: Kind,
    priority: Priority,
}

/// Framework's handle of a queued request.
pub(crate) struct DrivenRequest {
    ticket: HeadTicket,
    place: NodeHandle,
}

/// Framework's handle of a started request.
pub(crate) struct StartedRequest {
    ticket: HeadTicket,
    cost: Cost,
}

impl PolicyDriver {
    /// Runs `f` with the head and the policy's view at this time; `force` makes throttled requests
    /// eligible.
    fn drive<R>(&self, force: bool, f: impl FnOnce(&mut KernelHead, &PartView<'_>) -> R) -> R {
        self.partition.drive(self.priority, |head, now, table| {
            f(head, &PartView { now, force, table })
        })
    }

    /// Returns true if an instance that was started with `config` is an instance of this policy.
    fn is_own(&self, config: &Config) -> bool {
        config.kind() == self.kind
    }

    /// Queues a request with `attrs`.
    ///
    /// # Errors
    ///
    /// Returns the request if the policy declines it or was stopped.
    pub(crate) fn enqueue(&self, mut held: Held, attrs: &Attrs) -> Result<DrivenRequest, Held> {
        let client = self.engine.attachment.client();
        let cpu = held.account().cpu;
        let attrs = Attrs {
            client: client.serial(),
            priority: self.priority,
            stream: 0,
            ..*attrs
        };
        let place = held.register();
        let queued = self.drive(false, |head, view| {
            held.prepare_queued(view.now);
            head.drive_enqueue(held, &attrs, |config| self.is_own(config), view.now)
        });
        match queued {
            Ok((ticket, needs_memory)) => {
                client.load().count_arrived(cpu, attrs.opcode);
                client.load().count_queued(cpu);
                if needs_memory {
                    self.engine.service().feed();
                }
                Ok(DrivenRequest { ticket, place })
            }
            Err(mut held) => {
                held.unregister(place);
                Err(held)
            }
        }
    }

    /// Dispatches the next request; with `force`, also a request that the policy would throttle.
    /// `queued` must return the value that [`Self::enqueue`] returned for the request.
    pub(crate) fn get(
        &self,
        force: bool,
        queued: impl FnOnce(&mut Held) -> Option<DrivenRequest>,
    ) -> Decision<(Held, StartedRequest)> {
        let found = self.drive(force, |head, view| {
            head.drive_get(view, |config| self.is_own(config))
        });
        let (mut held, ticket) = match found {
            Decision::Item(found) => found,
            Decision::Throttled { until } => return Decision::Throttled { until },
            Decision::Empty => return Decision::Empty,
        };
        match queued(&mut held) {
            Some(queued) => held.unregister(queued.place),
            None => bug!(),
        }
        self.engine.attachment.client().load().count_submitted();
        let cost = held.cost();
        Decision::Item((held, StartedRequest { ticket, cost }))
    }

    /// Returns the result that [`Self::get`] would have, and changes nothing.
    pub(crate) fn peek(&self, force: bool) -> Decision<()> {
        self.drive(force, |head, view| {
            head.drive_peek(view, |config| self.is_own(config))
        })
    }

    /// Removes a request that is `queued`.
    ///
    /// # Errors
    ///
    /// Returns `queued` if the request is not queued here.
    pub(crate) fn dequeue(&self, queued: DrivenRequest) -> Result<Held, DrivenRequest> {
        let DrivenRequest { ticket, place } = queued;
        let found = self.drive(false, |head, view| {
            head.drive_dequeue(&ticket, &place, view.now)
        });
        let Some(mut held) = found else {
            return Err(DrivenRequest { ticket, place });
        };
        held.unregister(place);
        self.engine.attachment.client().load().count_submitted();
        Ok(held)
    }

    /// Counts the end of a request that [`Self::get`] returned.
    pub(crate) fn finish(&self, running: &StartedRequest) {
        let StartedRequest { ticket, cost } = running;
        self.drive(false, |head, view| head.stop(ticket, *cost, view.now));
        let load = self.engine.attachment.client().load();
        load.count_ended(misc::cpu(), *cost, false);
    }
}

impl Drop for PolicyDriver {
    fn drop(&mut self) {
        let cpt = self.partition.cpt();
        self.engine.stop(self.kind, self.priority, cpt);
    }
}
