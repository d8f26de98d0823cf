// SPDX-License-Identifier: GPL-2.0-only

//! Contents of `nrs_qbm_status` and `nrs_qbm_stats`: a YAML sequence of groups, each with a
//! sequence of clients. Names are double-quoted, with `"`, `\` and characters other than printable
//! ASCII escaped.

use super::{
    client::{GroupCounts, ManagedClient, OF_GROUPS},
    group::ManagedGroup,
    usage::ClientTotals,
    BandwidthManager,
};
use crate::sched::{
    key::escape,
    qbm::{
        gate::is_shared,
        plan::{ClientKey, OverseerContext, PlanGroup as Settings},
        terms::{BandwidthClass, UNREGULATED},
    },
    report::Report,
    statistics::Stats,
};
use core::fmt;

/// Identity of a client, as in a double-quoted string.
struct ClientName<'a>(&'a ClientKey, &'a dyn OverseerContext);

impl fmt::Display for ClientName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(party, scene) = self;
        match party {
            ClientKey::Key(key) => write!(f, "{key}"),
            ClientKey::Device(device) => {
                f.write_str("device:")?;
                let mut done = None;
                scene.device_name(*device, &mut |name| done = Some(escape(name, f)));
                match done {
                    Some(done) => done,
                    None => write!(f, "{device}"),
                }
            }
        }
    }
}

impl BandwidthManager {
    /// Iterates over the groups: index, settings of the plan and state.
    fn groups(&self) -> impl Iterator<Item = (u32, &Settings, &ManagedGroup)> {
        let groups = self.plan.groups().iter().zip(self.groups.as_slice());
        (0u32..)
            .zip(groups)
            .map(|(place, (settings, group))| (place, settings, group))
    }

    /// Iterates over the clients of the group at index `group`, including clients that left, and
    /// the indexes of their gates.
    fn members(&self, group: u32) -> impl Iterator<Item = (u32, &ManagedClient)> {
        let clients = (0..self.gates.len()).filter_map(|place| {
            let client = self.clients.get(place as usize)?.as_ref()?;
            Some((place, &**client))
        });
        clients.filter(move |(_, client)| client.group == group)
    }

    /// Iterates over the registered clients of the group at index `group`, and the indexes of their
    /// gates.
    fn registered(&self, group: u32) -> impl Iterator<Item = (u32, &ManagedClient)> {
        self.members(group).filter(|(_, client)| client.here)
    }

    /// Writes `clients`, and by `each` the details of each client of the group at index `place`.
    fn report_clients(
        &self,
        report: &mut Report<'_>,
        place: u32,
        scene: &dyn OverseerContext,
        mut each: impl FnMut(&mut Report<'_>, u32, &ManagedClient) -> fmt::Result,
    ) -> fmt::Result {
        report.entries("clients", |list| {
            for (at, client) in self.registered(place) {
                if is_shared(at) {
                    continue;
                }
                list.entry(|entry| {
                    entry.text("client", ClientName(&client.owner.who.party, scene))?;
                    each(entry, at, client)
                })?;
            }
            Ok(())
        })
    }

    /// Writes `nrs_qbm_status`: the capacity of each group and the allocations of the clients,
    /// bytes/s.
    ///
    /// # Errors
    ///
    /// Any error of `report`.
    pub fn report_status(
        &self,
        report: &mut Report<'_>,
        scene: &dyn OverseerContext,
        now: u64,
    ) -> fmt::Result {
        let group_status =
            |entry: &mut Report<'_>, place, settings: &Settings, group: &ManagedGroup| {
                report_group(entry, settings, group)?;
                let shared = self.registered(place).find(|(at, _)| is_shared(*at));
                if let Some((_, client)) = shared.filter(|(_, client)| client.id.is_some()) {
                    entry.field("without_gate", client.rate)?;
                }
                self.report_clients(entry, place, scene, |entry, at, client| {
                    self.report_client(entry, group, at, client, now)
                })
            };
        report.list(|list| {
            self.groups().try_for_each(|(place, settings, group)| {
                list.entry(|entry| group_status(entry, place, settings, group))
            })
        })
    }

    /// Writes the allocation of a client of `group`, whose gate is at index `at`.
    fn report_client(
        &self,
        entry: &mut Report<'_>,
        group: &ManagedGroup,
        at: u32,
        client: &ManagedClient,
        now: u64,
    ) -> fmt::Result {
        let recent = &client.recent;
        match client.terms {
            Some(terms) => {
                entry.text("class", terms.class.name())?;
                entry.field("min", terms.min)?;
                entry.field("max", terms.max)?;
            }
            None => entry.text("class", "unregulated")?,
        }
        match client.rate {
            UNREGULATED => entry.text("allocated", "unregulated")?,
            rate => entry.field("allocated", rate)?,
        }
        if let Some(id) = client.id {
            let allocator = &group.allocator;
            entry.field("given", allocator.given(id))?;
            entry.field("wants", allocator.wants(id))?;
            entry.field("unmet", allocator.is_unmet(id))?;
        }
        let gate = self.gates.get(at);
        let total = gate.map_or(ClientTotals::default(), |gate| {
            ClientTotals::of(&gate.usage())
        });
        entry.field("used_fast", recent.fast.rate)?;
        entry.field("used_slow", recent.slow.rate(total.bytes, now))?;
        entry.field("sleeps", total.sleeps)
    }

    /// Writes `nrs_qbm_stats`: the counters since the last [`BandwidthManager::reset_stats`] for
    /// each group and each registered client. Counters of groups include clients that left.
    ///
    /// # Errors
    ///
    /// Any error of `report`.
    pub fn report_stats(
        &self,
        report: &mut Report<'_>,
        scene: &dyn OverseerContext,
    ) -> fmt::Result {
        let group_stats =
            |entry: &mut Report<'_>, place, settings: &Settings, group: &ManagedGroup| {
                entry.name("group", settings.name().as_bytes())?;
                let mut sum = group.counters;
                for (at, client) in self.members(place) {
                    sum.merge(&self.traffic(at, client));
                }
                entry.stats(&sum, &[])?;
                self.report_clients(entry, place, scene, |entry, at, client| {
                    let mut counts = client.counters;
                    counts.merge(&self.traffic(at, client));
                    entry.stats(&counts, &OF_GROUPS)
                })
            };
        report.list(|list| {
            self.groups().try_for_each(|(place, settings, group)| {
                list.entry(|entry| group_stats(entry, place, settings, group))
            })
        })
    }

    /// Returns the traffic of the client's gate, at `place`, since the last reset.
    fn traffic(&self, place: u32, client: &ManagedClient) -> GroupCounts {
        let gate = self.gates.get(place);
        gate.map_or(GroupCounts::ZERO, |gate| client.traffic(gate))
    }

    /// Resets the counters that `nrs_qbm_stats` shows.
    pub fn reset_stats(&mut self) {
        for place in 0..self.gates.len() {
            let client = self.clients.get_mut(place as usize);
            let client = client.and_then(Option::as_mut);
            if let (Some(client), Some(gate)) = (client, self.gates.get(place)) {
                client.base = gate.usage();
                client.counters = GroupCounts::ZERO;
            }
        }
        for group in self.groups.as_mut_slice() {
            group.counters = GroupCounts::ZERO;
        }
    }
}

/// Writes the settings and the state of a group.
fn report_group(entry: &mut Report<'_>, settings: &Settings, group: &ManagedGroup) -> fmt::Result {
    let allocator = &group.allocator;
    let strategy = if settings.is_mover() {
        "mover"
    } else {
        "classes"
    };
    entry.name("group", settings.name().as_bytes())?;
    entry.text("strategy", strategy)?;
    entry.field("capacity", settings.capacity())?;
    entry.field("free", allocator.free())?;
    entry.field("oversubscribed", allocator.oversubscribed())?;
    entry.inline("reserves", |map| {
        BandwidthClass::ALL
            .into_iter()
            .try_for_each(|class| map.quoted(class.name(), allocator.reserve_left(class)))
    })?;
    if let Some(movers) = &group.movers {
        entry.field("used_by_others", movers.outside())?;
        entry.field("left_to_movers", movers.left())?;
    }
    entry.field("registered", group.clients)
}
