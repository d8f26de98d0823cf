// SPDX-License-Identifier: GPL-2.0-only

//! Where snapshots come from.

use std::collections::BTreeMap;
use std::path::Path;

use nrs_agent::{socket, status::ServiceStatus};

use crate::accounts::Accounts;
use crate::failure::{Failure, Kind, Result};
use crate::kernel::Kernel;
use crate::recording::Recording;
use crate::stats::{self, Snapshot};

/// Something that has services with snapshots.
pub trait Source {
    /// The names of the services, sorted.
    ///
    /// # Errors
    ///
    /// What the module says.
    fn services(&mut self) -> Result<Vec<String>>;

    /// The next snapshot of a service; `None` if there will not be another.
    ///
    /// # Errors
    ///
    /// [`Kind::NotFound`] without such a service; what the module says.
    fn snapshot(&mut self, service: &str) -> Result<Option<Snapshot>>;

    /// What the agent tells of a service, if one runs and takes care of it.
    fn agent(&mut self, _service: &str) -> Option<ServiceStatus> {
        None
    }

    /// Whether time must pass between snapshots.
    fn is_live(&self) -> bool;
}

/// The module.
pub struct Live<'a>(pub &'a dyn Kernel);

impl Source for Live<'_> {
    fn services(&mut self) -> Result<Vec<String>> {
        self.0.services()
    }

    fn snapshot(&mut self, service: &str) -> Result<Option<Snapshot>> {
        stats::read(self.0, service).map(Some)
    }

    fn agent(&mut self, service: &str) -> Option<ServiceStatus> {
        // One that cannot be asked is no reason to show nothing.
        let status = self.0.agent(Path::new(socket::PATH)).ok()??;
        let mut services = status.services.into_iter();
        services.find(|one| one.service == service)
    }

    fn is_live(&self) -> bool {
        true
    }
}

/// Another source with names in place of the numbers of users and groups.
pub struct Named<'a> {
    /// The other source.
    pub source: &'a mut dyn Source,
    /// The users and groups.
    pub accounts: &'a Accounts,
}

impl Source for Named<'_> {
    fn services(&mut self) -> Result<Vec<String>> {
        self.source.services()
    }

    fn snapshot(&mut self, service: &str) -> Result<Option<Snapshot>> {
        let mut snapshot = self.source.snapshot(service)?;
        if let Some(snapshot) = &mut snapshot {
            self.accounts.name(snapshot);
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

/// A recording, from its beginning.
pub struct Replay {
    services: BTreeMap<String, std::vec::IntoIter<Snapshot>>,
}

impl Replay {
    /// That of a recording.
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
        let all = self.services.get_mut(service).ok_or_else(|| {
            Failure::new(
                Kind::NotFound,
                format!("no service '{service}' in the recording"),
            )
        })?;
        Ok(all.next())
    }

    fn is_live(&self) -> bool {
        false
    }
}
