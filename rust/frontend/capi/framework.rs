// SPDX-License-Identifier: GPL-2.0-only

//! A framework of another kernel module, which drives the policies of a service.

use core::fmt;

use kernel::{prelude::*, sync::Arc};

use crate::{
    engine::{
        driven::{Driver, Engine, Queued, Running},
        parameters,
        target::Runner,
    },
    frontend::chardev::{decode::Decoded, wire},
    sched::{attr::Priority, item::Spot, policy::Get},
    sys::{
        capi::{self, Owner, Room, Waker},
        misc::{self, bug},
        node::Account,
    },
};

/// State of a request of a framework.
#[derive(Default)]
pub(crate) enum State {
    /// The framework owns the request.
    #[default]
    Idle,
    /// The request is queued in a policy.
    Queued(Queued),
    /// The policy has dispatched the request.
    Started(Running),
}

/// Runner that notifies a framework of requests that may be eligible.
struct Alarm(Waker);

impl Runner for Alarm {
    fn run(&self) {
        self.0.wake();
    }
}

/// A framework of another kernel module.
pub(crate) struct Framework {
    engine: Arc<Engine>,
    owner: Arc<Owner>,
}

/// A policy that a framework started. Its module stays loaded as long as the driver, which may call
/// it.
pub(crate) struct Policy {
    driver: Driver,
    _pin: Pin,
}

/// Reference that keeps a module loaded.
struct Pin(Arc<Owner>);

impl Drop for Pin {
    fn drop(&mut self) {
        self.0.put();
    }
}

impl capi::Framework for Framework {
    type Policy = Policy;
    type State = State;

    /// Opens an engine for a framework.
    ///
    /// # Errors
    ///
    /// Any error of [`Engine::open`].
    fn open(name: &CStr, cpts: u32, waker: Waker, owner: Owner) -> Result<Self> {
        let waker = Arc::new(Alarm(waker), GFP_KERNEL)?;
        Ok(Self {
            engine: Engine::open(name, cpts, waker)?,
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
    /// Any error of [`Engine::start`]. `ENODEV`: the module is being removed.
    fn start(&self, name: &str, argument: &str, priority: Priority, cpt: u32) -> Result<Policy> {
        let cpt = u16::try_from(cpt).map_err(|_| ENOENT)?;
        self.owner.get()?;
        let pin = Pin(self.owner.clone());
        let driver = self.engine.start(name, argument, priority, cpt);
        let driver = driver.map_err(|refused| refused.report(self.engine.service().name()))?;
        Ok(Policy { driver, _pin: pin })
    }

    /// Queues a request.
    ///
    /// # Errors
    ///
    /// `EINVAL`: `request` is malformed. `EAGAIN`: the policy does not accept the request.
    fn enqueue(policy: &Policy, mut room: Room<State>, request: &[u8]) -> Result {
        let record = wire::Request::decode(request).map_err(|_| EINVAL)?;
        let Decoded { attrs, cost } = Decoded::of(&record).ok_or(EINVAL)?;
        if record.header.kind != wire::TYPE_REQUEST {
            return Err(EINVAL);
        }
        let spot = Spot::new(attrs.object, attrs.offset, attrs.length);
        let account = Account::new(attrs.priority, misc::cpu());
        let held = room.begin(cost, spot, account);
        match policy.driver.enqueue(held, &attrs) {
            Ok(queued) => {
                room.replace(State::Queued(queued));
                Ok(())
            }
            Err(held) => {
                bug!(Room::<State>::of(held).is_none());
                Err(EAGAIN)
            }
        }
    }

    fn get(policy: &Policy, force: bool) -> Get<Room<State>> {
        let found = policy.driver.get(force, |held| {
            let state = core::mem::take(Room::<State>::state_of(held)?);
            match state {
                State::Queued(queued) => Some(queued),
                _ => None,
            }
        });
        let (held, running) = match found {
            Get::Item(found) => found,
            Get::Throttled { until } => return Get::Throttled { until },
            Get::Empty => return Get::Empty,
        };
        match Room::of(held) {
            Some(mut room) => {
                room.replace(State::Started(running));
                Get::Item(room)
            }
            None => Get::Empty,
        }
    }

    fn peek(policy: &Policy, force: bool) -> Get<()> {
        policy.driver.peek(force)
    }

    /// Removes a queued request.
    ///
    /// # Errors
    ///
    /// `ENOENT`: the request is not queued in this policy.
    fn dequeue(policy: &Policy, mut room: Room<State>) -> Result {
        let queued = match room.replace(State::Idle) {
            State::Queued(queued) => queued,
            other => {
                room.replace(other);
                return Err(ENOENT);
            }
        };
        match policy.driver.dequeue(queued) {
            Ok(held) => {
                bug!(Room::<State>::of(held).is_none());
                Ok(())
            }
            Err(queued) => {
                room.replace(State::Queued(queued));
                Err(ENOENT)
            }
        }
    }

    fn finish(policy: &Policy, mut room: Room<State>) {
        match room.replace(State::Idle) {
            State::Started(running) => policy.driver.finish(&running),
            _ => bug!(),
        }
    }
}
