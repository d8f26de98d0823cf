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
    statistics::Stats,
};
use core::fmt::{self, Write};

/// Writes the identity of a client, as in a double-quoted string.
fn write_party(
    out: &mut impl Write,
    party: &ClientKey,
    scene: &dyn OverseerContext,
) -> fmt::Result {
    match party {
        ClientKey::Key(key) => write!(out, "{key}"),
        ClientKey::Device(device) => {
            out.write_str("device:")?;
            let mut done = None;
            scene.device_name(*device, &mut |name| done = Some(escape(name, out)));
            match done {
                Some(done) => done,
                None => write!(out, "{device}"),
            }
        }
    }
}

/// Rate for display, bytes/s, or `unregulated`.
struct ShownRate(u64);

impl fmt::Display for ShownRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            UNREGULATED => f.write_str("\"unregulated\""),
            rate => write!(f, "{rate}"),
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

    /// Writes `clients:` and calls `each` to write the details of each client of the group at index
    /// `place`.
    fn write_clients<W: Write>(
        &self,
        out: &mut W,
        place: u32,
        scene: &dyn OverseerContext,
        mut each: impl FnMut(&mut W, u32, &ManagedClient) -> fmt::Result,
    ) -> fmt::Result {
        let mut empty = true;
        for (at, client) in self.registered(place) {
            if is_shared(at) {
                continue;
            }
            if core::mem::take(&mut empty) {
                out.write_str("  clients:\n")?;
            }
            out.write_str("  - client: \"")?;
            write_party(out, &client.owner.who.party, scene)?;
            out.write_str("\"\n")?;
            each(out, at, client)?;
        }
        if empty {
            out.write_str("  clients: []\n")?;
        }
        Ok(())
    }

    /// Writes `nrs_qbm_status`: the capacity of each group and the allocations of the clients,
    /// bytes/s.
    ///
    /// # Errors
    ///
    /// Any error of `out`.
    pub fn write_status(
        &self,
        out: &mut impl Write,
        scene: &dyn OverseerContext,
        now: u64,
    ) -> fmt::Result {
        if self.plan.groups().is_empty() {
            return out.write_str("[]\n");
        }
        for (place, settings, group) in self.groups() {
            write_group(out, settings, group)?;
            let shared = self.registered(place).find(|(at, _)| is_shared(*at));
            if let Some((_, client)) = shared.filter(|(_, client)| client.id.is_some()) {
                writeln!(out, "  without_gate: {}", client.rate)?;
            }
            self.write_clients(out, place, scene, |out, at, client| {
                let recent = &client.recent;
                match client.terms {
                    Some(terms) => {
                        writeln!(out, "    class: \"{}\"", terms.class.name())?;
                        writeln!(out, "    min: {}", terms.min)?;
                        writeln!(out, "    max: {}", terms.max)?;
                    }
                    None => out.write_str("    class: \"unregulated\"\n")?,
                }
                writeln!(out, "    allocated: {}", ShownRate(client.rate))?;
                if let Some(id) = client.id {
                    let allocator = &group.allocator;
                    writeln!(out, "    given: {}", allocator.given(id))?;
                    writeln!(out, "    wants: {}", allocator.wants(id))?;
                    writeln!(out, "    unmet: {}", allocator.is_unmet(id))?;
                }
                let gate = self.gates.get(at);
                let total = gate.map_or(ClientTotals::default(), |gate| {
                    ClientTotals::of(&gate.usage())
                });
                writeln!(out, "    used_fast: {}", recent.fast.rate)?;
                let slow = recent.slow.rate(total.bytes, now);
                writeln!(out, "    used_slow: {slow}")?;
                writeln!(out, "    sleeps: {}", total.sleeps)
            })?;
        }
        Ok(())
    }

    /// Writes `nrs_qbm_stats`: the counters since the last [`BandwidthManager::reset_stats`] for
    /// each group and each registered client. Counters of groups include clients that left.
    ///
    /// # Errors
    ///
    /// Any error of `out`.
    pub fn write_stats(&self, out: &mut impl Write, scene: &dyn OverseerContext) -> fmt::Result {
        if self.plan.groups().is_empty() {
            return out.write_str("[]\n");
        }
        for (place, settings, group) in self.groups() {
            out.write_str("- group: \"")?;
            escape(settings.name().as_bytes(), out)?;
            out.write_str("\"\n")?;
            let mut sum = group.counters;
            for (at, client) in self.members(place) {
                sum.merge(&self.traffic(at, client));
            }
            sum.write_lines(out, "  ", &[])?;
            self.write_clients(out, place, scene, |out, at, client| {
                let mut counts = client.counters;
                counts.merge(&self.traffic(at, client));
                counts.write_lines(out, "    ", &OF_GROUPS)
            })?;
        }
        Ok(())
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
fn write_group(out: &mut impl Write, settings: &Settings, group: &ManagedGroup) -> fmt::Result {
    let allocator = &group.allocator;
    let strategy = if settings.is_mover() {
        "mover"
    } else {
        "classes"
    };
    out.write_str("- group: \"")?;
    escape(settings.name().as_bytes(), out)?;
    writeln!(out, "\"\n  strategy: \"{strategy}\"")?;
    writeln!(out, "  capacity: {}", settings.capacity())?;
    writeln!(out, "  free: {}", allocator.free())?;
    writeln!(out, "  oversubscribed: {}", allocator.oversubscribed())?;
    out.write_str("  reserves: {")?;
    let mut comma = "";
    for class in BandwidthClass::ALL {
        let left = allocator.reserve_left(class);
        write!(out, "{comma} \"{}\": {left}", class.name())?;
        comma = ",";
    }
    out.write_str(" }\n")?;
    if let Some(movers) = &group.movers {
        writeln!(out, "  used_by_others: {}", movers.outside())?;
        writeln!(out, "  left_to_movers: {}", movers.left())?;
    }
    writeln!(out, "  registered: {}", group.clients)
}
