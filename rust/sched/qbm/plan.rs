// SPDX-License-Identifier: GPL-2.0-only

//! Plans: what an administrator wants of the bandwidth of a service.
//!
//! # Vocabulary
//!
//! - *Party*: who a client is: a network identifier, a job, a user or a device ([`Party`]).
//! - *Promise*: class, minimum and maximum as they are written; each may be left out ([`Promise`]).
//! - *Settings*: what is said of a group ([`Settings`]).
//! - *Line*: a client or a pattern of clients with its promise, for one group or for all ([`Client`]). The
//!   first line that is for a party in a group decides.
//!
//! A plan is checked when it is parsed ([`Plan::parse`]), and never changes.
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
//! Words are separated by blanks (spaces and tabs). A `#` at the start of a word begins a comment that
//! reaches to the end of the line, over every `;`. Lines are counted at line ends; in text of a single line,
//! such as a message to a device, at `;`.
//!
//! | `by` | a client's name |
//! |---|---|
//! | `nid` | a network identifier or a range of them ([`crate::sched::nid::range`]) |
//! | `jobid` | a job identifier or a pattern of them ([`crate::sched::glob`]) |
//! | `uid` | a number as in rules; 4294967295 stands for requests without a user |
//! | `device` | the name of a device of the service, or a pattern as for jobs |

mod amount;
mod parse;
mod parts;
mod settings;
mod tune;
mod write;

pub use crate::sched::policy::control::{Scene, TEXT_MAX};
use crate::sched::{
    attr::Attrs,
    error::{Code, Error, Place},
    key::{Field, Hashed, Hasher, Key},
    mem::List,
    nid::range::Range,
    policy::params::choice,
    qbm::terms::Terms,
};
use parts::Client;
use settings::Promise;

pub use parts::{Group, GROUPS_MAX};
pub use tune::Tuning;

choice! {
    /// What tells clients apart.
    By, "by":
    /// The network identifier.
    #[default]
    Nid = "nid",
    /// The job.
    Jobid = "jobid",
    /// The user.
    Uid = "uid",
    /// The device that requests come through.
    Device = "device",
}

/// Who a client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Party {
    /// A network identifier, a job or a user; requests without one are a party of their own.
    Key(Key),
    /// A device, by its number in the service; 0: unknown.
    Device(u32),
}

/// Who asks for something, and of which target: the key of a class of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Who {
    /// Who asks.
    pub party: Party,
    /// The target: of a device `major << 20 | minor`, else what the program calls it.
    pub target: u32,
}

impl Who {
    /// Whoever no class could be made for.
    pub const NOBODY: Self = Self {
        party: Party::Key(Key::Default),
        target: u32::MAX,
    };

    /// Who asks in a request with `attrs`.
    pub fn of(by: By, attrs: &Attrs) -> Self {
        let party = match by {
            By::Nid => Party::Key(Key::of(Field::Nid, attrs)),
            By::Jobid => Party::Key(Key::of(Field::Jobid, attrs)),
            By::Uid => Party::Key(Key::of(Field::Uid, attrs)),
            By::Device => Party::Device(attrs.client),
        };
        Self {
            party,
            target: attrs.target,
        }
    }
}

/// The party, then the target.
impl Hashed for Who {
    fn mix(&self, hasher: &Hasher) -> u64 {
        /// A word that no key starts with.
        const DEVICE: u64 = 10;
        let state = match &self.party {
            Party::Key(key) => key.mix(hasher),
            Party::Device(device) => hasher.mix(hasher.word(DEVICE), u64::from(*device)),
        };
        hasher.mix(state, u64::from(self.target))
    }
}

/// An error with `code` in line `line`.
const fn refused(line: u32, code: Code, reason: &'static str) -> Error {
    Error::new(code, reason).at(Place::Line(line))
}

/// `EINVAL` in line `line`.
const fn invalid(line: u32, reason: &'static str) -> Error {
    refused(line, Code::Invalid, reason)
}

/// The byte of offset `at` in line `line`.
fn byte(line: u32, at: usize) -> Place {
    let at = u16::try_from(at).unwrap_or(u16::MAX);
    Place::Word(line, at.saturating_add(1))
}

/// What an administrator wants.
///
/// # Invariants
///
/// It was checked ([`Plan::check`]): every group has a capacity, minimums, maximums and reserves fit into it, names
/// and targets occur once.
pub struct Plan {
    by: By,
    tuning: Tuning,
    defaults: Promise,
    /// The line of `defaults`.
    defaults_line: u32,
    groups: List<Group>,
    clients: List<Client>,
    /// The names of clients, one after the other.
    names: List<u8>,
    ranges: List<Range>,
    /// Lines of one name each: name, group and number of the line, sorted.
    exact: List<(Key, Option<u32>, u32)>,
    /// The other lines, in their order.
    patterns: List<u32>,
}

impl Plan {
    /// The plan of nothing: no request is regulated.
    pub fn none() -> Self {
        Self {
            by: By::Nid,
            tuning: Tuning::default(),
            defaults: Promise::NONE,
            defaults_line: 0,
            groups: List::new(),
            clients: List::new(),
            names: List::new(),
            ranges: List::new(),
            exact: List::new(),
            patterns: List::new(),
        }
    }

    /// What tells clients apart.
    pub const fn by(&self) -> By {
        self.by
    }

    /// The numbers of the method.
    pub const fn tuning(&self) -> &Tuning {
        &self.tuning
    }

    /// The groups.
    pub fn groups(&self) -> &[Group] {
        self.groups.as_slice()
    }

    /// The group of the target of this number; none: its requests are not regulated.
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

    /// The line for `party` in `group`: the first one that is for both. O(log lines + patterns).
    pub fn line_for(&self, group: u32, party: &Party, scene: &dyn Scene) -> Option<u32> {
        match party {
            Party::Key(key) => self.line_of(group, key),
            Party::Device(device) => {
                let mut found = None;
                scene.device_name(*device, &mut |name| found = self.first_named(group, name));
                found
            }
        }
    }

    /// The same for a client that is no device.
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
            _ => (None, None),
        };
        exact.into_iter().chain(pattern).min()
    }

    /// Whether a line is for `who`. Only the administrator makes devices: they count as listed.
    pub fn lists(&self, who: &Who) -> bool {
        match &who.party {
            Party::Key(key) => {
                let group = self.group_of(who.target);
                group.is_some_and(|group| self.line_of(group, key).is_some())
            }
            Party::Device(_) => true,
        }
    }

    /// How many clients can have a line, each in each group that it is for; patterns are for any number.
    pub fn listed_max(&self) -> u32 {
        if !self.patterns.as_slice().is_empty() {
            return u32::MAX;
        }
        let groups = self.groups().len() as u32;
        let lines = self.exact.as_slice().iter();
        let places = lines.map(|(_, group, _)| group.map_or(groups, |_| 1));
        places.fold(0, u32::saturating_add)
    }

    /// What `party` is promised in `group`; none: it is not regulated there.
    pub fn terms(&self, group: u32, party: &Party, scene: &dyn Scene) -> Option<Terms> {
        let settings = self.groups().get(group as usize)?;
        match self.line_for(group, party, scene) {
            Some(line) => {
                let client = self.clients.as_slice().get(line as usize)?;
                Some(client.promise.terms(settings.capacity(), &Promise::NONE))
            }
            None if settings.is_mover() => None,
            None => self.default_terms(group),
        }
    }

    /// What a client that no line is for is promised in `group`; none if there is no such group. Those of a
    /// group of movers are what such a client would have if it were regulated.
    pub fn default_terms(&self, group: u32) -> Option<Terms> {
        let group = self.groups().get(group as usize)?;
        Some(group.terms(&self.defaults))
    }
}

#[cfg(test)]
mod tests;
