// SPDX-License-Identifier: GPL-2.0-only

//! Sources of snapshots.

use std::collections::BTreeMap;
use std::path::Path;

use nrs_agent::{socket, status::ServiceStatus};

use crate::accounts::Accounts;
use crate::failure::{failure, Result};
use crate::kernel::Kernel;
use crate::recording::Recording;
use crate::stats::{self, Snapshot};

/// A provider of snapshots of services.
pub trait Source {
    /// Returns the names of the services, sorted.
    ///
    /// # Errors
    ///
    /// The failure of the module.
    fn services(&mut self) -> Result<Vec<String>>;

    /// Returns the next snapshot of a service; `None` if there are no more snapshots.
    ///
    /// # Errors
    ///
    /// `NotFound` if the service does not exist; the failure of the module.
    fn snapshot(&mut self, service: &str) -> Result<Option<Snapshot>>;

    /// Returns the agent's status of a service; `None` if no agent runs or it does not manage the
    /// service.
    fn agent(&mut self, _service: &str) -> Option<ServiceStatus> {
        None
    }

    /// Returns true if snapshots are taken in real time, so that time must pass between them.
    fn is_live(&self) -> bool;
}

/// The module as a source.
pub struct LiveSource<'a>(pub &'a dyn Kernel);

impl Source for LiveSource<'_> {
    fn services(&mut self) -> Result<Vec<String>> {
        self.0.services()
    }

    fn snapshot(&mut self, service: &str) -> Result<Option<Snapshot>> {
        stats::read(self.0, service).map(Some)
    }

    fn agent(&mut self, service: &str) -> Option<ServiceStatus> {
        // An error of the agent does not affect the display of snapshots.
        let status = self.0.agent(Path::new(socket::PATH)).ok()??;
        let mut services = status.services.into_iter();
        services.find(|one| one.service == service)
    }

    fn is_live(&self) -> bool {
        true
    }
}

/// A source that replaces the numbers of users and groups by names.
pub struct NamedSource<'a> {
    /// Underlying source.
    pub source: &'a mut dyn Source,
    /// Users and groups.
    pub accounts: &'a Accounts,
}

impl Source for NamedSource<'_> {
    fn services(&mut self) -> Result<Vec<String>> {
        self.source.services()
    }

    fn snapshot(&mut self, service: &str) -> Result<Option<Snapshot>> {
        let mut snapshot = self.source.snapshot(service)?;
        if let Some(snapshot) = &mut snapshot {
            self.accounts.name(snapshot.entities.iter_mut());
        }
        Ok(snapshot)
    }

    fn agent(&mut self, service: &str) -> Option<ServiceStatus> {
        self.source.agent(service)
    }

    fn is_live(&self) -> bool {
        self.source.is_live()
    }
}

/// Replay of a recording from its beginning.
pub struct Replay {
    services: BTreeMap<String, std::vec::IntoIter<Snapshot>>,
}

impl Replay {
    /// Creates the replay of a recording.
    pub fn new(recording: Recording) -> Self {
        let mut services: BTreeMap<String, Vec<Snapshot>> = BTreeMap::new();
        for snapshot in recording.snapshots {
            let of = services.entry(snapshot.service.clone()).or_default();
            of.push(snapshot);
        }
        let services = services
            .into_iter()
            .map(|(name, all)| (name, all.into_iter()));
        Self {
            services: services.collect(),
        }
    }
}

impl Source for Replay {
    fn services(&mut self) -> Result<Vec<String>> {
        Ok(self.services.keys().cloned().collect())
    }

    fn snapshot(&mut self, service: &str) -> Result<Option<Snapshot>> {
        let all = self
            .services
            .get_mut(service)
            .ok_or_else(|| failure!(NotFound: "no service '{service}' in the recording"))?;
        Ok(all.next())
    }

    fn is_live(&self) -> bool {
        false
    }
}
