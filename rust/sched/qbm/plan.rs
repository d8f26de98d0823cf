// SPDX-License-Identifier: GPL-2.0-only

//! Plans: the administrator's configuration of a service's bandwidth.
//!
//! - A *client key* identifies a client: a network identifier, a job, a user or a device
//!   ([`ClientKey`]).
//! - An *entitlement* is the class, minimum and maximum as written; each is optional
//!   ([`EntitlementSpec`]).
//! - *Settings* are the parameters of a group ([`settings::GroupSettings`]).
//! - A *line* is a client or a pattern of clients with an entitlement, for one group or for all
//!   ([`PlanClient`]). The first line that matches a client in a group decides.
//!
//! [`Plan::parse`] checks a plan; after that the plan is immutable.
//!
//! # Grammar
//!
//! ```text
//! text      = statement *( ( newline | ";" ) statement )
//! statement = [ by | tune | default | group | client ]
//! by        = "by" ( "nid" | "jobid" | "uid" | "device" )      ; before all clients
//! tune      = "tune" 1*( key "=" ( time | size | percent ) )
//! default   = "default" 1*( "class=" class | "min=" amount | "max=" amount )
//! group     = "group" name "capacity=" size *( setting )
//! setting   = "target=" ( major ":" minor | number ) | "strategy=" ( "classes" | "mover" )
//!           | "class=" class | "min=" amount | "max=" amount | "reserve_" class "=" amount
//! client    = "client" name "class=" class "min=" amount [ "max=" amount ] [ "group=" name ]
//! class     = "first_come" | "fair_share" | "low_share" | "mover" | "fc" | "fs" | "ls"
//! amount    = size | percent                                   ; percent of the group's capacity
//! size      = number [ "K" | "M" | "G" | "T" | "Ki" | "Mi" | "Gi" | "Ti" ] [ "B" ] [ "/s" ]
//! percent   = number "%"
//! time      = number ( "ms" | "s" )
//! ```
//!
//! Words are separated by blanks (spaces and tabs). A `#` at the start of a word begins a comment
//! that extends to the end of the line, across every `;`. Line numbers count line ends; in a text
//! of a single line, such as a message to a device, they count `;`.
//!
//! | `by` | a client's name |
//! |---|---|
//! | `nid` | a network identifier or a range ([`crate::sched::nid::pattern`]) |
//! | `jobid` | a job identifier or a pattern ([`crate::sched::glob`]) |
//! | `uid` | a number as in rules; 4294967295 stands for requests without a user |
//! | `device` | the name of a device of the service, or a pattern as for jobs |

mod amount;
mod entries;
mod parse;
mod settings;
mod tune;
mod write;

pub use crate::sched::policy::control::{OverseerContext, TEXT_MAX};
use crate::sched::{
    attr::Attrs,
    error::{Code, Error, ErrorPosition},
    key::{Field, Hashed, Hasher, Key},
    mem::GrowingList,
    nid::pattern::NumberRange,
    policy::params::choice,
    qbm::terms::Entitlement,
};
use entries::PlanClient;
use settings::EntitlementSpec;

pub use entries::{PlanGroup, GROUPS_MAX};
pub use tune::BandwidthParameters;

choice! {
    /// Attribute by which clients are distinguished.
    By, "by":
    /// Network identifier.
    #[default]
    Nid = "nid",
    /// Job identifier.
    Jobid = "jobid",
    /// User.
    Uid = "uid",
    /// Device that requests come through.
    Device = "device",
}

/// Identity of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClientKey {
    /// A network identifier, a job or a user. All requests without this attribute form one client.
    Key(Key),
    /// A device, by its number in the service; 0 is unknown.
    Device(u32),
}

/// Key of a request class: a client and a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestOwner {
    /// Client.
    pub party: ClientKey,
    /// Target: `major << 20 | minor` for a device, else the program's number for the target.
    pub target: u32,
}

impl RequestOwner {
    /// Key of requests for which no class could be allocated.
    pub const SHARED: Self = Self {
        party: ClientKey::Key(Key::Default),
        target: u32::MAX,
    };

    /// Derives the key of a request with `attrs`.
    pub fn of(by: By, attrs: &Attrs) -> Self {
        let party = match by {
            By::Nid => ClientKey::Key(Key::of(Field::Nid, attrs)),
            By::Jobid => ClientKey::Key(Key::of(Field::Jobid, attrs)),
            By::Uid => ClientKey::Key(Key::of(Field::Uid, attrs)),
            By::Device => ClientKey::Device(attrs.client),
        };
        Self {
            party,
            target: attrs.target,
        }
    }
}

/// Hashes the client key, then the target.
impl Hashed for RequestOwner {
    fn mix(&self, hasher: &Hasher) -> u64 {
        /// Word that no key starts with.
        const DEVICE: u64 = 11;
        let state = match &self.party {
            ClientKey::Key(key) => key.mix(hasher),
            ClientKey::Device(device) => hasher.mix(hasher.word(DEVICE), u64::from(*device)),
        };
        hasher.mix(state, u64::from(self.target))
    }
}

/// Creates an error with `code` for line `line`.
const fn refused(line: u32, code: Code, reason: &'static str) -> Error {
    Error::new(code, reason).at(ErrorPosition::Line(line))
}

/// Creates an `EINVAL` error for line `line`.
const fn invalid(line: u32, reason: &'static str) -> Error {
    refused(line, Code::Invalid, reason)
}

/// Creates the place of the byte at offset `at` in line `line`.
fn byte(line: u32, at: usize) -> ErrorPosition {
    let at = u16::try_from(at).unwrap_or(u16::MAX);
    ErrorPosition::Word(line, at.saturating_add(1))
}

/// Configuration of the bandwidth of a service.
///
/// # Invariants
///
/// [`Plan::check`] has checked the plan: every group has a capacity, minimums, maximums and
/// reserves fit into that capacity, names and targets are unique.
pub struct Plan {
    by: By,
    tuning: BandwidthParameters,
    defaults: EntitlementSpec,
    /// Line number of `defaults`.
    defaults_line: u32,
    groups: GrowingList<PlanGroup>,
    clients: GrowingList<PlanClient>,
    /// Concatenated names of clients.
    names: GrowingList<u8>,
    ranges: GrowingList<NumberRange>,
    /// Lines without a pattern: name, group and index of the line, sorted.
    exact: GrowingList<(Key, Option<u32>, u32)>,
    /// Indexes of the lines with patterns, in their order.
    patterns: GrowingList<u32>,
}

impl Plan {
    /// Creates an empty plan, which regulates no request.
    pub fn none() -> Self {
        Self {
            by: By::Nid,
            tuning: BandwidthParameters::default(),
            defaults: EntitlementSpec::NONE,
            defaults_line: 0,
            groups: GrowingList::new(),
            clients: GrowingList::new(),
            names: GrowingList::new(),
            ranges: GrowingList::new(),
            exact: GrowingList::new(),
            patterns: GrowingList::new(),
        }
    }

    /// Returns the attribute by which clients are distinguished.
    pub const fn by(&self) -> By {
        self.by
    }

    /// Returns the tuning parameters.
    pub const fn tuning(&self) -> &BandwidthParameters {
        &self.tuning
    }

    /// Returns the groups.
    pub fn groups(&self) -> &[PlanGroup] {
        self.groups.as_slice()
    }

    /// Finds the group of a target; `None` if the target's requests are not regulated.
    pub fn group_of(&self, number: u32) -> Option<u32> {
        let mut all = None;
        for (index, group) in (0u32..).zip(self.groups()) {
            match group.target() {
                Some(target) if target == number => return Some(index),
                Some(_) => {}
                None => all = Some(index),
            }
        }
        all
    }

    /// Finds the first line that matches `party` in `group`. O(log lines + patterns).
    pub fn line_for(
        &self,
        group: u32,
        party: &ClientKey,
        scene: &dyn OverseerContext,
    ) -> Option<u32> {
        match party {
            ClientKey::Key(key) => self.line_of(group, key),
            ClientKey::Device(device) => {
                let mut found = None;
                scene.device_name(*device, &mut |name| found = self.first_named(group, name));
                found
            }
        }
    }

    /// Finds the first line that matches a client that is not a device.
    fn line_of(&self, group: u32, key: &Key) -> Option<u32> {
        let (exact, pattern) = match key {
            Key::Nid(nid) => (self.exact(group, key), self.first_nid(group, nid)),
            Key::Jobid(job) => (
                self.exact(group, key),
                self.first_named(group, job.as_bytes()),
            ),
            Key::Absent(Field::Jobid) => (None, self.first_named(group, b"")),
            Key::Uid(_) => (self.exact(group, key), None),
            Key::Absent(Field::Uid) => (self.exact(group, &Key::Uid(u32::MAX)), None),
            // In place of a user or a job, whichever this plan has.
            Key::Cgroup(_) => (
                self.exact(group, &Key::Uid(u32::MAX)),
                self.first_named(group, b""),
            ),
            _ => (None, None),
        };
        exact.into_iter().chain(pattern).min()
    }

    /// Returns true if a line matches `who`. Devices always count as listed, because only the
    /// administrator creates devices.
    pub fn lists(&self, who: &RequestOwner) -> bool {
        match &who.party {
            ClientKey::Key(key) => {
                let group = self.group_of(who.target);
                group.is_some_and(|group| self.line_of(group, key).is_some())
            }
            ClientKey::Device(_) => true,
        }
    }

    /// Returns the maximum number of listed clients, counted once in each group of their line;
    /// `u32::MAX` if there are patterns.
    pub fn listed_max(&self) -> u32 {
        if !self.patterns.as_slice().is_empty() {
            return u32::MAX;
        }
        let groups = self.groups().len() as u32;
        let lines = self.exact.as_slice().iter();
        let places = lines.map(|(_, group, _)| group.map_or(groups, |_| 1));
        places.fold(0, u32::saturating_add)
    }

    /// Returns the terms of `party` in `group`; `None` if the client is not regulated there.
    pub fn terms(
        &self,
        group: u32,
        party: &ClientKey,
        scene: &dyn OverseerContext,
    ) -> Option<Entitlement> {
        let settings = self.groups().get(group as usize)?;
        match self.line_for(group, party, scene) {
            Some(line) => {
                let client = self.clients.as_slice().get(line as usize)?;
                Some(
                    client
                        .promise
                        .terms(settings.capacity(), &EntitlementSpec::NONE),
                )
            }
            None if settings.is_mover() => None,
            None => self.default_terms(group),
        }
    }

    /// Returns the terms of clients without a line in `group`; `None` if there is no such group. In
    /// a group of movers these are the terms that such clients would have if they were regulated.
    pub fn default_terms(&self, group: u32) -> Option<Entitlement> {
        let group = self.groups().get(group as usize)?;
        Some(group.terms(&self.defaults))
    }
}

#[cfg(test)]
mod tests;
