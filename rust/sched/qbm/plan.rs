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
//! - *Parts*: what a plan is made of ([`parts::Parts`]); a plan is parts that were checked, and never changes.
//!
//! ```text
//!  text ──Plan::parse──► Parts ──check──► Plan ──write──► text
//! ```
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
    mem::NoMemory,
    policy::params::choice,
    qbm::terms::{Terms, Tuning},
    rules::Item,
};
use core::fmt;
use parts::Parts;
use settings::Promise;

pub use parts::{Client, Group, GROUPS_MAX};

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

/// Why a plan was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanError {
    /// The line of the text, the first one is 1; 0 if it is not about a line.
    pub line: u32,
    /// The byte of the line, the first one is 1; 0 if it is about the line as a whole.
    pub column: u16,
    /// What the writer's errno becomes.
    pub code: Code,
    /// What is wrong there, one line.
    pub reason: &'static str,
}

impl PlanError {
    /// An error with `code` in line `line`.
    pub const fn new(line: u32, code: Code, reason: &'static str) -> Self {
        Self {
            line,
            column: 0,
            code,
            reason,
        }
    }

    /// The same at the byte of offset `at`.
    pub(super) fn at(self, at: usize) -> Self {
        Self {
            column: u16::try_from(at).unwrap_or(u16::MAX).saturating_add(1),
            ..self
        }
    }

    /// `EINVAL` in line `line`.
    pub const fn invalid(line: u32, reason: &'static str) -> Self {
        Self::new(line, Code::Invalid, reason)
    }
}

impl From<NoMemory> for PlanError {
    fn from(_: NoMemory) -> Self {
        Self::new(0, Code::NoMemory, "out of memory")
    }
}

/// Shows `line 3: capacity is missing`, without what there is not.
impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Error::from(*self).fmt(f)
    }
}

impl From<PlanError> for Error {
    fn from(error: PlanError) -> Self {
        let place = match (error.line, error.column) {
            (0, _) => Place::Anywhere,
            (line, 0) => Place::Line(line),
            (line, column) => Place::Word(line, column),
        };
        Self::new(error.code, error.reason).at(place)
    }
}

/// What an administrator wants.
///
/// # Invariants
///
/// The parts were checked ([`Parts::check`]): every group has a capacity, minimums, maximums and reserves fit
/// into it, names and targets occur once.
pub struct Plan {
    parts: Parts,
}

impl Plan {
    /// The plan of nothing: no request is regulated; sleeps.
    ///
    /// # Errors
    ///
    /// - [`NoMemory`]: the allocator had none.
    pub fn none() -> Result<Self, NoMemory> {
        // INVARIANT: Nothing is there to be wrong.
        Ok(Self {
            parts: Parts::new(),
        })
    }

    /// What tells clients apart.
    pub fn by(&self) -> By {
        self.parts.by
    }

    /// The numbers of the method.
    pub fn tuning(&self) -> &Tuning {
        &self.parts.tuning
    }

    /// The groups.
    pub fn groups(&self) -> &[Group] {
        self.parts.groups.as_slice()
    }

    /// The lines of clients, in order.
    pub fn clients(&self) -> &[Client] {
        self.parts.clients.as_slice()
    }

    /// The name in line `client`; none if there is no such line.
    pub fn client_name(&self, client: u32) -> &str {
        let name = self.parts.name_of(client);
        core::str::from_utf8(name).unwrap_or_default()
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

    /// The line for `party` in `group`: the first one that is for both.
    pub fn line_for(&self, group: u32, party: &Party, scene: &dyn Scene) -> Option<u32> {
        let parts = &self.parts;
        match party {
            Party::Key(Key::Nid(nid)) => parts.first(group, |item, _| match item {
                Item::Nid(other) => other == nid,
                Item::NidPattern(pattern) => pattern.has(nid, parts.ranges.as_slice()),
                _ => false,
            }),
            Party::Key(Key::Jobid(job)) => parts.first_named(group, job.as_bytes()),
            Party::Key(Key::Absent(Field::Jobid)) => parts.first_named(group, b""),
            Party::Key(Key::Uid(uid)) => parts.first_number(group, *uid),
            Party::Key(Key::Absent(Field::Uid)) => parts.first_number(group, u32::MAX),
            Party::Key(_) => None,
            Party::Device(device) => {
                let mut found = None;
                scene.device_name(*device, &mut |name| found = parts.first_named(group, name));
                found
            }
        }
    }

    /// What `party` is promised in `group`; none: it is not regulated there.
    pub fn terms(&self, group: u32, party: &Party, scene: &dyn Scene) -> Option<Terms> {
        let settings = self.groups().get(group as usize)?;
        match self.line_for(group, party, scene) {
            Some(line) => self.terms_of_line(group, line),
            None if settings.is_mover() => None,
            None => self.default_terms(group),
        }
    }

    /// What a client that no line is for is promised in `group`; none if there is no such group. Those of a
    /// group of movers are what such a client would have if it were regulated.
    pub fn default_terms(&self, group: u32) -> Option<Terms> {
        let group = self.groups().get(group as usize)?;
        Some(group.terms(&self.parts.defaults))
    }

    /// What line `client` promises in `group`.
    fn terms_of_line(&self, group: u32, client: u32) -> Option<Terms> {
        let group = self.groups().get(group as usize)?;
        let client = self.clients().get(client as usize)?;
        Some(client.promise.terms(group.capacity(), &Promise::NONE))
    }
}

#[cfg(test)]
mod tests;
