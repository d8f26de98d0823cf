// SPDX-License-Identifier: GPL-2.0-only

//! A stripe group: its allocator, and what its clients do together.

use super::{
    client::{count, Client, Counters, Traffic},
    movers::Movers,
    seat_of,
};
use crate::sched::{
    class::{ClassTable, DEFAULT},
    mem::{List, NoMemory},
    qbm::{
        allocator::{Allocator, ClientId, Setup},
        gate::Gates,
        plan::{Group as Settings, Who},
        terms::{Terms, Tuning},
    },
};

/// The clients of all groups. Slots are seats ([`seat_of`]); the default class stands for those that find
/// none.
pub type Clients = ClassTable<Who, Client>;

/// Those of a group that found no seat, who share one: they are one client to the allocator.
#[derive(Clone, Copy, Debug, Default)]
pub struct Crowd {
    /// Its name at the allocator; `None`: there is nobody.
    pub id: Option<ClientId>,
    /// Rank of its class.
    pub rank: u8,
    /// What it has, bytes/s.
    pub rate: u64,
    /// When a class of it was busy last, monotonic ns.
    pub busy: u64,
    /// When a class was busy last that would only be measured if there was a seat, monotonic ns.
    pub open: u64,
}

/// Clients that come between two walks before those that follow have to wait for the end of the walk.
const AT_ONCE: u32 = 16;

/// A group.
pub struct Group {
    /// Stands for it in the keys of clients; never another group's while one is there.
    pub number: u32,
    /// Its place in the plan.
    pub place: u32,
    /// Who has how much.
    pub allocator: Allocator,
    /// The slots of clients by their names at the allocator.
    slots: List<u32>,
    /// Those without a seat.
    pub crowd: Crowd,
    /// Clients that are registered, those that are only measured too.
    pub clients: u32,
    /// What movers are left, if it is a group of movers.
    pub movers: Option<Movers>,
    /// Whether somebody came or left since gates were set last.
    pub stale: bool,
    /// How many came since then.
    fresh: u32,
    /// What was counted since the last reset.
    pub counters: Counters,
    /// What went through gates of clients that are gone, since the last reset.
    pub gone: Traffic,
}

impl Group {
    /// A group without clients.
    pub fn new(number: u32, place: u32, settings: &Settings, tuning: &Tuning) -> Self {
        Self {
            number,
            place,
            allocator: Allocator::new(setup_of(settings, tuning, settings.capacity())),
            slots: List::new(),
            crowd: Crowd::default(),
            clients: 0,
            movers: Movers::of(settings, tuning),
            stale: false,
            fresh: 0,
            counters: Counters::default(),
            gone: Traffic::default(),
        }
    }

    /// Goes on as `settings` say, which are at `place` in their plan.
    pub fn configure(&mut self, place: u32, settings: &Settings, tuning: &Tuning) {
        self.place = place;
        self.movers = match (&self.movers, Movers::of(settings, tuning)) {
            (Some(old), Some(new)) => Some(new.after(old)),
            (_, new) => new,
        };
        let capacity = match &self.movers {
            Some(movers) => movers.left(),
            None => settings.capacity(),
        };
        self.allocator
            .set_setup(setup_of(settings, tuning, capacity));
    }

    /// What the client called `id` has, bytes/s; one that came in a crowd has the floor for now.
    pub fn allocation(&self, id: ClientId) -> u64 {
        self.allocator
            .allocation(id)
            .max(self.allocator.setup().floor)
    }

    /// The client called `id` leaves; what it had is others' when gates are set.
    pub fn withdraw(&mut self, id: ClientId) {
        self.allocator.withdraw(id);
        self.stale = true;
    }

    /// The crowd leaves.
    pub fn disperse(&mut self) {
        if let Some(id) = self.crowd.id.take() {
            self.withdraw(id);
            self.crowd.rate = 0;
        }
    }

    /// Registers the client in `slot` with the allocator; sleeps.
    ///
    /// # Errors
    ///
    /// - [`NoMemory`]: the allocator had none; nothing changed.
    pub fn enrol(&mut self, slot: u32, terms: Terms) -> Result<ClientId, NoMemory> {
        // Room first, so that nothing has to be undone: names are as few as clients.
        while self.slots.as_slice().len() <= self.allocator.len() as usize {
            self.slots.push(DEFAULT)?;
        }
        // A few have all they can get from the start, a crowd when it is complete: then it is shared once.
        let id = if self.fresh < AT_ONCE {
            self.allocator.register(terms)?
        } else {
            self.allocator.enter(terms)?
        };
        while self.slots.as_slice().len() <= id as usize {
            if self.slots.push(DEFAULT).is_err() {
                self.allocator.leave(id);
                return Err(NoMemory);
            }
        }
        if let Some(place) = self.slots.as_mut_slice().get_mut(id as usize) {
            *place = slot;
        }
        self.fresh = self.fresh.saturating_add(1);
        self.stale = true;
        Ok(id)
    }

    /// Sets the gates of those whose allocation changed since the last time, `by` what the client of that
    /// name asked for; nobody: by what an administrator did. Whether a gate changed.
    pub fn apply(
        &mut self,
        clients: &mut Clients,
        gates: &Gates,
        by: Option<ClientId>,
        now: u64,
    ) -> bool {
        if core::mem::take(&mut self.stale) {
            self.fresh = 0;
            self.allocator.settle();
        }
        let mut changed = false;
        let (slots, counters, crowd) = (&self.slots, &mut self.counters, &mut self.crowd);
        self.allocator.drain_changed(|id, rate| {
            let slot = slots.as_slice().get(id as usize).copied();
            let Some(slot) = slot.filter(|slot| *slot != DEFAULT) else {
                if crowd.id == Some(id) {
                    changed |= crowd.rate != rate;
                    crowd.rate = rate;
                }
                return;
            };
            let (Some(client), Some(gate)) = (clients.at_mut(slot), gates.get(seat_of(slot)))
            else {
                return;
            };
            if client.id != Some(id) {
                return;
            }
            let lost = client.rate.saturating_sub(rate);
            if by.is_some_and(|by| by != id) && lost > 0 {
                for counters in [&mut *counters, &mut client.counters] {
                    count(&mut counters.losses);
                    counters.taken = counters.taken.saturating_add(lost);
                }
            }
            changed |= client.set(gate, rate, now);
        });
        changed
    }
}

/// What the allocator is to know of a group of which `capacity` is to be allocated, bytes/s.
pub fn setup_of(settings: &Settings, tuning: &Tuning, capacity: u64) -> Setup {
    let mut left = capacity;
    let reserves = settings.reserves().map(|reserve| {
        // What others use in a group of movers may be more than was reserved beside.
        let reserve = reserve.min(left);
        left = left.saturating_sub(reserve);
        reserve
    });
    Setup {
        capacity,
        reserves,
        floor: tuning.floor,
        grant: tuning.grant,
    }
}
