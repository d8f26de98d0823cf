// SPDX-License-Identifier: GPL-2.0-only

//! Plans that differ from another one in one thing.

use super::{
    index::{is_pattern, read},
    parts::{check_client_name, Client, Group, Parts},
    settings::{Promise, Settings},
    By, Plan, PlanError,
};
use crate::sched::{error::Code, mem::List};

/// `ENOENT` for a group.
const NO_GROUP: PlanError = PlanError::new(0, Code::NoEntry, "there is no such group");

impl Plan {
    /// The group `name`.
    pub fn group_named(&self, name: &str) -> Option<u32> {
        self.parts.group_named(name)
    }

    /// The line that says `name` for `group`, or for all groups.
    pub fn client_named(&self, group: Option<u32>, name: &str) -> Option<u32> {
        self.index.named(&self.parts, name.as_bytes(), group)
    }

    /// Whether `name` can be the name of a client; sleeps.
    ///
    /// # Errors
    ///
    /// - `ENAMETOOLONG`: it has too many characters.
    /// - `EINVAL`: it is not one of what clients are told apart by.
    /// - `ENOMEM`: the allocator had none.
    pub fn check_client_name(&self, name: &str) -> Result<(), PlanError> {
        check_client_name(name.as_bytes(), 0)?;
        read(self.by(), name, 0, &mut List::new()).map(|_| ())
    }

    /// This plan; sleeps.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`: the allocator had none.
    pub fn unchanged(&self) -> Result<Self, PlanError> {
        self.parts.copy()?.check()
    }

    /// This plan with clients told apart by `by`; sleeps.
    ///
    /// # Errors
    ///
    /// - `EBUSY`: it has lines of clients.
    /// - `ENOMEM`: the allocator had none.
    pub fn with_by(&self, by: By) -> Result<Self, PlanError> {
        if by != self.by() && !self.clients().is_empty() {
            let reason = "clients are listed by what they were told apart by so far";
            return Err(PlanError::new(0, Code::Busy, reason));
        }
        let mut parts = self.parts.copy()?;
        parts.by = by;
        parts.check()
    }

    /// This plan with `settings` for the group `name`, which is made if there is none; sleeps.
    ///
    /// # Errors
    ///
    /// - `ENOSPC`, `EINVAL`, `ENAMETOOLONG`: no such group can be made.
    /// - `EINVAL`, `EEXIST`: it does not fit to the rest of the plan.
    /// - `ENOMEM`: the allocator had none.
    pub fn with_group(&self, name: &str, settings: &Settings) -> Result<Self, PlanError> {
        let mut parts = self.parts.copy()?;
        let place = self.group_named(name).map(|place| place as usize);
        match place.and_then(|place| parts.groups.as_mut_slice().get_mut(place)) {
            Some(group) => group.settings = *settings,
            None => parts.add_group(Group::new(name, *settings, 0)?)?,
        }
        parts.check()
    }

    /// This plan without the group `name` and the lines for its clients; sleeps.
    ///
    /// # Errors
    ///
    /// - `ENOENT`: there is no such group.
    /// - `ENOMEM`: the allocator had none.
    pub fn without_group(&self, name: &str) -> Result<Self, PlanError> {
        let gone = self.group_named(name).ok_or(NO_GROUP)?;
        let mut parts = self.parts.copy()?;
        parts.groups = List::new();
        for (index, group) in (0u32..).zip(self.groups()) {
            if index != gone {
                parts.groups.push(group.without_line())?;
            }
        }
        let moved = |group: u32| {
            if group > gone {
                group.wrapping_sub(1)
            } else {
                group
            }
        };
        let kept = self
            .clients()
            .iter()
            .filter(|client| client.group != Some(gone));
        let moved = kept.map(|client| {
            let mut client = *client;
            client.group = client.group.map(moved);
            client
        });
        rebuild(&mut parts, self, moved)?;
        parts.check()
    }

    /// This plan with `promise` for the client `name` of the group `group`.
    ///
    /// A line that is not there yet is added: in front of all others if it is for one client, behind them if
    /// it is a pattern; sleeps.
    ///
    /// # Errors
    ///
    /// - `ENOENT`: there is no such group.
    /// - `ENOSPC`, `EINVAL`, `ENAMETOOLONG`: there can be no such client.
    /// - `EINVAL`, `EEXIST`: it does not fit to the rest of the plan.
    /// - `ENOMEM`: the allocator had none.
    pub fn with_client(
        &self,
        group: &str,
        name: &str,
        promise: &Promise,
    ) -> Result<Self, PlanError> {
        let group = self.group_named(group).ok_or(NO_GROUP)?;
        let mut parts = self.parts.copy()?;
        let place = self
            .client_named(Some(group), name)
            .map(|place| place as usize);
        if let Some(client) = place.and_then(|place| parts.clients.as_mut_slice().get_mut(place)) {
            client.promise = *promise;
            return parts.check();
        }
        let client = parts.client(name.as_bytes(), Some(group), *promise, 0)?;
        if is_pattern(self.by(), name) {
            parts.clients.push(client)?;
            return parts.check();
        }
        let mut clients = List::with_capacity(parts.clients.as_slice().len().saturating_add(1))?;
        clients.push(client)?;
        for client in parts.clients.as_slice() {
            clients.push(*client)?;
        }
        parts.clients = clients;
        parts.check()
    }

    /// This plan without the line that says `name` for the group `group`; sleeps.
    ///
    /// # Errors
    ///
    /// - `ENOENT`: there is no such line.
    /// - `ENOMEM`: the allocator had none.
    pub fn without_client(&self, group: &str, name: &str) -> Result<Self, PlanError> {
        let group = self.group_named(group).ok_or(NO_GROUP)?;
        let gone = self.client_named(Some(group), name).ok_or(PlanError::new(
            0,
            Code::NoEntry,
            "there is no such client in the group",
        ))?;
        let mut parts = self.parts.copy()?;
        let lines = (0u32..).zip(self.clients());
        let kept = lines
            .filter(|(line, _)| *line != gone)
            .map(|(_, client)| *client);
        rebuild(&mut parts, self, kept)?;
        parts.check()
    }
}

/// Makes `clients` of `plan` all clients of `parts`.
fn rebuild(
    parts: &mut Parts,
    plan: &Plan,
    clients: impl Iterator<Item = Client>,
) -> Result<(), PlanError> {
    parts.clients = List::new();
    parts.names = List::new();
    for client in clients {
        parts.copy_client(&client, plan.parts.names.as_slice())?;
    }
    Ok(())
}
