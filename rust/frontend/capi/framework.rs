// SPDX-License-Identifier: GPL-2.0-only

//! A framework of another kernel module, which drives the policies of a service.

use core::fmt;

use kernel::{prelude::*, sync::Arc};

use crate::{
    engine::{
        framework::{DrivenRequest, FrameworkService, PolicyDriver, StartedRequest},
        parameters,
        target::PullNotifier,
    },
    frontend::chardev::{decode::Decoded, wire},
    sched::{attr::Priority, item::ByteRange, policy::Decision},
    sys::{
        capi::{self, CallerModule, ItemMemory, Waker},
        misc::{self, bug},
        node::NodeAccount,
    },
};

/// State of a request of a framework.
#[derive(Default)]
pub(crate) enum ItemState {
    /// The framework owns the request.
    #[default]
    Idle,
    /// The request is queued in a policy.
    Queued(DrivenRequest),
    /// The policy has dispatched the request.
    Started(StartedRequest),
}

/// Waker that notifies a framework of requests that may be eligible.
struct FrameworkWaker(Waker);

impl PullNotifier for FrameworkWaker {
    fn run(&self) {
        self.0.wake();
    }
}

/// A framework of another kernel module.
pub(crate) struct Framework {
    engine: Arc<FrameworkService>,
    owner: Arc<CallerModule>,
}

/// A policy that a framework started. Its module stays loaded as long as the driver, which may call
/// it.
pub(crate) struct FrameworkPolicy {
    driver: PolicyDriver,
    _pin: Pin,
}

/// Reference that keeps a module loaded.
struct Pin(Arc<CallerModule>);

impl Drop for Pin {
    fn drop(&mut self) {
        self.0.put();
    }
}

impl capi::FrameworkOps for Framework {
    type Policy = FrameworkPolicy;
    type State = ItemState;

    /// Opens a service for a framework.
    ///
    /// # Errors
    ///
    /// Any error of [`FrameworkService::open`].
    fn open(name: &CStr, cpts: u32, waker: Waker, owner: CallerModule) -> Result<Self> {
        let waker = Arc::new(FrameworkWaker(waker), GFP_KERNEL)?;
        Ok(Self {
            engine: FrameworkService::open(name, cpts, waker)?,
            owner: Arc::new(owner, GFP_KERNEL)?,
        })
    }

    fn set(&self, name: &str, value: &str) -> Result {
        let service = self.engine.service();
        let set = parameters::set(service, name, value);
        set.map_err(|refused| refused.report(service.name()))
    }

    fn show(&self, name: &str, out: &mut dyn fmt::Write) -> Result {
        parameters::show(self.engine.service(), name, out)
    }

    /// Starts a policy and keeps the module loaded.
    ///
    /// # Errors
    ///
    /// Any error of [`FrameworkService::start`]. `ENODEV`: the module is being removed.
    fn start(
        &self,
        name: &str,
        argument: &str,
        priority: Priority,
        cpt: u32,
    ) -> Result<FrameworkPolicy> {
        let cpt = u16::try_from(cpt).map_err(|_| ENOENT)?;
        self.owner.get()?;
        let pin = Pin(self.owner.clone());
        let driver = self.engine.start(name, argument, priority, cpt);
        let driver = driver.map_err(|refused| refused.report(self.engine.service().name()))?;
        Ok(FrameworkPolicy { driver, _pin: pin })
    }

    /// Queues a request.
    ///
    /// # Errors
    ///
    /// `EINVAL`: `request` is malformed. `EAGAIN`: the policy does not accept the request.
    fn enqueue(
        policy: &FrameworkPolicy,
        mut room: ItemMemory<ItemState>,
        request: &[u8],
    ) -> Result {
        let record = wire::Request::decode(request).map_err(|_| EINVAL)?;
        let Decoded { attrs, cost } = Decoded::of(&record).ok_or(EINVAL)?;
        if record.header.kind != wire::TYPE_REQUEST {
            return Err(EINVAL);
        }
        let range = ByteRange::new(attrs.object, attrs.offset, attrs.length);
        let account = NodeAccount::new(attrs.priority, misc::cpu());
        let held = room.begin(cost, range, account);
        match policy.driver.enqueue(held, &attrs) {
            Ok(queued) => {
                room.replace(ItemState::Queued(queued));
                Ok(())
            }
            Err(held) => {
                bug!(ItemMemory::<ItemState>::of(held).is_none());
                Err(EAGAIN)
            }
        }
    }

    fn get(policy: &FrameworkPolicy, force: bool) -> Decision<ItemMemory<ItemState>> {
        let found = policy.driver.get(force, |held| {
            let state = core::mem::take(ItemMemory::<ItemState>::state_from_held(held)?);
            match state {
                ItemState::Queued(queued) => Some(queued),
                _ => None,
            }
        });
        let (held, running) = match found {
            Decision::Item(found) => found,
            Decision::Throttled { until } => return Decision::Throttled { until },
            Decision::Empty => return Decision::Empty,
        };
        match ItemMemory::of(held) {
            Some(mut room) => {
                room.replace(ItemState::Started(running));
                Decision::Item(room)
            }
            None => Decision::Empty,
        }
    }

    fn peek(policy: &FrameworkPolicy, force: bool) -> Decision<()> {
        policy.driver.peek(force)
    }

    /// Removes a queued request.
    ///
    /// # Errors
    ///
    /// `ENOENT`: the request is not queued in this policy.
    fn dequeue(policy: &FrameworkPolicy, mut room: ItemMemory<ItemState>) -> Result {
        let queued = match room.replace(ItemState::Idle) {
            ItemState::Queued(queued) => queued,
            other => {
                room.replace(other);
                return Err(ENOENT);
            }
        };
        match policy.driver.dequeue(queued) {
            Ok(held) => {
                bug!(ItemMemory::<ItemState>::of(held).is_none());
                Ok(())
            }
            Err(queued) => {
                room.replace(ItemState::Queued(queued));
                Err(ENOENT)
            }
        }
    }

    fn finish(policy: &FrameworkPolicy, mut room: ItemMemory<ItemState>) {
        match room.replace(ItemState::Idle) {
            ItemState::Started(running) => policy.driver.finish(&running),
            _ => bug!(),
        }
    }
}
