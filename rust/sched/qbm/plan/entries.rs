// SPDX-License-Identifier: GPL-2.0-only

//! Groups and clients of a plan, and checks of their consistency.

use super::{
    amount::Amount,
    byte, invalid, refused,
    settings::{EntitlementSpec, GroupSettings, ABOVE},
    By, Plan, TEXT_MAX,
};
use crate::sched::{
    error::{Code, Error},
    glob,
    key::{Field, Key},
    mem::{GrowingList, NoMemory},
    nid::Nid,
    qbm::terms::{BandwidthClass, Entitlement, CLASSES},
    rules::ConditionValue,
    sort,
};
use core::{cmp::Ordering, fmt};

/// Maximum number of groups of a plan.
pub const GROUPS_MAX: usize = 64;

/// Maximum number of client lines of a plan.
pub const CLIENTS_MAX: usize = 4096;

/// Maximum length of a group's name, bytes.
pub const GROUP_NAME_MAX: usize = 63;

/// Maximum length of a client's name, bytes.
pub const CLIENT_NAME_MAX: usize = 255;

/// Maximum number of address ranges of a plan: the number that a
/// [`crate::sched::nid::pattern::Span`] can distinguish.
const RANGES_MAX: usize = u16::MAX as usize;

/// Group: one capacity that clients share.
///
/// # Invariants
///
/// The first `len` bytes of the name are letters, digits or some of `_.:@-`; the first byte is not
/// a dot.
#[derive(Clone, Copy, Debug)]
pub struct PlanGroup {
    name: [u8; GROUP_NAME_MAX],
    len: u8,
    /// Line number of the group.
    line: u32,
    /// Settings of the group.
    settings: GroupSettings,
}

impl PlanGroup {
    /// Creates the group `name` of line `line`.
    ///
    /// # Errors
    ///
    /// - `ENAMETOOLONG`: the name has more than [`GROUP_NAME_MAX`] bytes.
    /// - `EINVAL`: the name is empty or contains invalid bytes.
    pub(super) fn new(name: &str, settings: GroupSettings, line: u32) -> Result<Self, Error> {
        let takes = |byte: u8| byte.is_ascii_alphanumeric() || b"_.:@-".contains(&byte);
        if name.is_empty() || !name.bytes().all(takes) || name.starts_with('.') {
            let reason = "invalid group name: only letters, digits and _ . : @ -, no dot in front";
            return Err(invalid(line, reason));
        }
        let reason = "group name is too long (limit: 63 characters)";
        let too_long = refused(line, Code::NameTooLong, reason);
        let mut group = Self {
            name: [0; GROUP_NAME_MAX],
            len: u8::try_from(name.len()).map_err(|_| too_long)?,
            line,
            settings,
        };
        let bytes = group.name.get_mut(..name.len()).ok_or(too_long)?;
        bytes.copy_from_slice(name.as_bytes());
        // INVARIANT: all bytes were checked.
        Ok(group)
    }

    /// Returns the name of the group.
    pub fn name(&self) -> &str {
        let name = self.name.get(..usize::from(self.len)).unwrap_or_default();
        core::str::from_utf8(name).unwrap_or_default()
    }

    /// Returns the settings of the group.
    pub fn settings(&self) -> &GroupSettings {
        &self.settings
    }

    /// Returns the capacity that the clients share, bytes/s.
    pub fn capacity(&self) -> u64 {
        self.settings.capacity.unwrap_or_default()
    }

    /// Returns the reserve of each class, bytes/s.
    pub fn reserves(&self) -> [u64; CLASSES] {
        let of = |kept: Option<Amount>| kept.map_or(0, |kept| kept.of(self.capacity()));
        self.settings.reserves.map(of)
    }

    /// Returns the number of the target; `None` for all targets without a group of their own.
    pub fn target(&self) -> Option<u32> {
        self.settings.target.map(|target| target.number())
    }

    /// Returns true if only clients with a line are regulated, and these are movers.
    pub fn is_mover(&self) -> bool {
        self.settings.mover.is_some_and(|mover| mover)
    }

    /// Returns the terms of clients without a line; `defaults` applies to all groups.
    pub(super) fn terms(&self, defaults: &EntitlementSpec) -> Entitlement {
        self.settings.promise.terms(self.capacity(), defaults)
    }
}

/// Line of a client or a pattern of clients, with the entitlement.
///
/// # Invariants
///
/// `group` is the index of a group of the same plan.
#[derive(Clone, Copy, Debug)]
pub struct PlanClient {
    /// Offset of the name in the names of the plan.
    at: u32,
    len: u16,
    /// Line number.
    pub(super) line: u32,
    /// Index of the group; `None` for all groups.
    pub(super) group: Option<u32>,
    /// Entitlement as written.
    pub(super) promise: EntitlementSpec,
    /// Parsed name; a pattern if clients are devices.
    item: ConditionValue,
}

impl PlanClient {
    /// Returns the name of the client, which is stored in `names`.
    pub(super) fn name<'a>(&self, names: &'a [u8]) -> &'a [u8] {
        let from = self.at as usize;
        let to = from.saturating_add(usize::from(self.len));
        names.get(from..to).unwrap_or_default()
    }

    /// Returns true if the line applies to `group`.
    pub(super) fn is_in(&self, group: u32) -> bool {
        self.group.is_none_or(|own| own == group)
    }
}

impl Plan {
    /// Adds a group.
    ///
    /// # Errors
    ///
    /// - `ENOSPC`: there are already [`GROUPS_MAX`] groups.
    /// - `EEXIST`: there is already a group with this name.
    pub(super) fn add_group(&mut self, group: PlanGroup) -> Result<(), Error> {
        let refused = |code, reason| Err(refused(group.line, code, reason));
        if self.groups().len() >= GROUPS_MAX {
            return refused(Code::NoSpace, "too many groups (limit: 64)");
        }
        if self.group_named(group.name()).is_some() {
            return refused(Code::Exists, "a group of this name exists");
        }
        Ok(self.groups.push(group)?)
    }

    /// Finds the index of the group `name`.
    pub(super) fn group_named(&self, name: &str) -> Option<u32> {
        let mut groups = (0..).zip(self.groups());
        let found = groups.find(|(_, group)| group.name() == name);
        found.map(|(index, _)| index)
    }

    /// Adds the client `name` of `group`; the name is at offset `place` of the line.
    ///
    /// # Errors
    ///
    /// - `ENOSPC`: there are already [`CLIENTS_MAX`] lines, or too many address ranges.
    /// - `ENAMETOOLONG`: the name has more than [`CLIENT_NAME_MAX`] bytes.
    /// - `EINVAL`: the name does not fit the attribute `by`.
    pub(super) fn add_client(
        &mut self,
        (place, name): (usize, &str),
        group: Option<u32>,
        promise: EntitlementSpec,
        line: u32,
    ) -> Result<(), Error> {
        let refused = |code, reason| Err(refused(line, code, reason));
        if self.clients.as_slice().len() >= CLIENTS_MAX {
            return refused(Code::NoSpace, "too many client lines (limit: 4096)");
        }
        if name.len() > CLIENT_NAME_MAX {
            let reason = "client name is too long (limit: 255 characters)";
            return refused(Code::NameTooLong, reason);
        }
        let item = self.item(place, name, line)?;
        let at = self.names.as_slice().len() as u32;
        for byte in name.bytes() {
            self.names.push(byte)?;
        }
        Ok(self.clients.push(PlanClient {
            at,
            len: name.len() as u16,
            line,
            group,
            promise,
            item,
        })?)
    }

    /// Parses the client name `name` at offset `at` of line `line`.
    fn item(&mut self, at: usize, name: &str, line: u32) -> Result<ConditionValue, Error> {
        let (field, wrong) = match self.by {
            By::Nid => (
                Field::Nid,
                "client is not a NID or a range of NIDs, such as 10.0.0.[1-9]@tcp",
            ),
            By::Jobid => (
                Field::Jobid,
                "client is not a job identifier of up to 31 characters",
            ),
            By::Uid => (
                Field::Uid,
                "client is not a uid, a number from 0 to 4294967295",
            ),
            By::Device => return Ok(ConditionValue::NamePattern),
        };
        let ranges = &mut self.ranges;
        let mut full = false;
        let parsed = ConditionValue::parse(field, at, name, &mut |range| {
            let place = ranges.as_slice().len();
            full |= place >= RANGES_MAX;
            ranges.push(range)?;
            Ok(place)
        });
        if full {
            let reason = "too many address ranges in all lines (limit: 65535)";
            return Err(refused(line, Code::NoSpace, reason));
        }
        parsed.map_err(|error| match error.code {
            Code::NoMemory => NoMemory.into(),
            _ => {
                let at = usize::from(error.column).saturating_sub(1);
                invalid(line, wrong).at(byte(line, at))
            }
        })
    }

    /// Builds the lookup tables of lines.
    fn index(&mut self) -> Result<(), NoMemory> {
        for (line, client) in (0u32..).zip(self.clients.as_slice()) {
            let key = match client.item {
                ConditionValue::Nid(nid) => Key::Nid(nid),
                ConditionValue::Job(job) => Key::Jobid(job),
                ConditionValue::Number(uid) => Key::Uid(uid),
                ConditionValue::Cgroup(path) => Key::Cgroup(path),
                ConditionValue::NamePattern | ConditionValue::NidPattern(_) => {
                    self.patterns.push(line)?;
                    continue;
                }
            };
            self.exact.push((key, client.group, line))?;
        }
        sort::sort_by(self.exact.as_mut_slice(), Ord::cmp);
        Ok(())
    }

    /// Finds the first line for `group` with the name `key`.
    pub(super) fn exact(&self, group: u32, key: &Key) -> Option<u32> {
        let exact = self.exact.as_slice();
        let find = |group: Option<u32>| {
            let found = exact.binary_search_by(|(name, of, _)| (name, of).cmp(&(key, &group)));
            Some(exact.get(found.ok()?)?.2)
        };
        let (all, own) = (find(None), find(Some(group)));
        all.into_iter().chain(own).min()
    }

    /// Finds the first line for `group` with a pattern that `holds` accepts.
    fn first(&self, group: u32, holds: impl Fn(&ConditionValue, &[u8]) -> bool) -> Option<u32> {
        let names = self.names.as_slice();
        let client = |line: u32| self.clients.as_slice().get(line as usize);
        let mut lines = self.patterns.as_slice().iter().copied();
        lines.find(|line| {
            let client = client(*line).filter(|client| client.is_in(group));
            client.is_some_and(|client| holds(&client.item, client.name(names)))
        })
    }

    /// Finds the first pattern for `group` that matches the job or device `name`.
    pub(super) fn first_named(&self, group: u32, name: &[u8]) -> Option<u32> {
        self.first(group, |item, pattern| {
            *item == ConditionValue::NamePattern && glob::matches(pattern, name)
        })
    }

    /// Finds the first pattern for `group` that matches `nid`.
    pub(super) fn first_nid(&self, group: u32, nid: &Nid) -> Option<u32> {
        self.first(group, |item, _| match item {
            ConditionValue::NidPattern(pattern) => pattern.has(nid, self.ranges.as_slice()),
            _ => false,
        })
    }

    /// Finds the first line for the same clients of the same group as an earlier line; returns its
    /// line number.
    fn repeated(&self) -> Result<Option<u32>, NoMemory> {
        let clients = self.clients.as_slice();
        let mut order = GrowingList::with_capacity(clients.len())?;
        for line in (0u32..).zip(clients) {
            order.push(line)?;
        }
        let names = self.names.as_slice();
        let compare = |one: &PlanClient, other: &PlanClient| {
            let same = match (&one.item, &other.item) {
                (ConditionValue::Nid(one), ConditionValue::Nid(other)) => one.cmp(other),
                (ConditionValue::Number(one), ConditionValue::Number(other)) => one.cmp(other),
                (ConditionValue::Nid(_), _) => Ordering::Less,
                (_, ConditionValue::Nid(_)) => Ordering::Greater,
                _ => one.name(names).cmp(other.name(names)),
            };
            same.then(one.group.cmp(&other.group))
        };
        sort::sort_by(order.as_mut_slice(), |one, other| {
            compare(one.1, other.1).then(one.0.cmp(&other.0))
        });
        let order = order.as_slice();
        let pairs = order.iter().zip(order.iter().skip(1));
        let twice = pairs.filter(|(one, other)| compare(one.1, other.1).is_eq());
        Ok(twice.map(|(_, other)| other.1.line).min())
    }

    /// Checks the plan and builds the lookup tables.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: a missing capacity, class or minimum; a capacity, minimum or maximum below the
    ///   floor; a minimum above the maximum. A minimum, a maximum or a sum of reserves above the
    ///   capacity. In a group of movers: terms of clients without a line, reserves, or listed
    ///   clients that are not movers.
    /// - `EEXIST`: two groups with the same target, or two lines for the same client of a group.
    /// - `ENOSPC`: the text as displayed is longer than [`TEXT_MAX`] bytes.
    pub(super) fn check(mut self) -> Result<Plan, Error> {
        for (place, group) in self.groups().iter().enumerate() {
            self.check_group(group)?;
            let mut before = self.groups().iter().take(place);
            if before.any(|other| other.target() == group.target()) {
                let reason = if group.target().is_none() {
                    "a group without target= exists"
                } else {
                    "another group has this target"
                };
                return Err(refused(group.line, Code::Exists, reason));
            }
        }
        if let Some(reason) = self.defaults.contradiction(self.tuning.floor) {
            return Err(invalid(self.defaults_line, reason));
        }
        for client in self.clients.as_slice() {
            self.check_client(client)?;
        }
        if let Some(line) = self.repeated()? {
            let reason = "a line for this client exists";
            return Err(refused(line, Code::Exists, reason));
        }
        if self.write(&mut TextRoom(TEXT_MAX)).is_err() {
            let reason = "plan as displayed is too long (limit: 262144 bytes)";
            return Err(Error::new(Code::NoSpace, reason));
        }
        self.index()?;
        Ok(self)
    }

    /// Checks that the settings of `group` are consistent.
    fn check_group(&self, group: &PlanGroup) -> Result<(), Error> {
        let settings = &group.settings;
        let refused = |reason| Err(invalid(group.line, reason));
        let Some(capacity) = settings.capacity else {
            return refused("capacity is missing");
        };
        if capacity < self.tuning.floor {
            return refused("capacity is below the floor");
        }
        if group.is_mover() {
            if settings.promise != EntitlementSpec::NONE {
                return refused(
                    "strategy=mover regulates listed clients only (no class, min or max here)",
                );
            }
            if settings.reserves.iter().any(Option::is_some) {
                return refused("strategy=mover takes no reserves");
            }
            return Ok(());
        }
        let reserves = group.reserves();
        let sum = reserves
            .iter()
            .fold(0u64, |sum, kept| sum.saturating_add(*kept));
        if sum > capacity {
            return refused("sum of the reserves is above the capacity");
        }
        let (min, max) = settings.promise.limits(capacity, &self.defaults);
        if let Some(reason) = wrong(min, max, capacity, self.tuning.floor) {
            // Report the line that contains the wrong value.
            let own = settings.promise.min.is_some() || settings.promise.max.is_some();
            let line = if own { group.line } else { self.defaults_line };
            return Err(invalid(line, reason));
        }
        Ok(())
    }

    /// Checks that the entitlement of `client` fits into the groups of the line.
    fn check_client(&self, client: &PlanClient) -> Result<(), Error> {
        let refused = |reason| Err(invalid(client.line, reason));
        if client.promise.class.is_none() {
            return refused("class is missing");
        }
        if client.promise.min.is_none() {
            return refused("min is missing");
        }
        if let Some(reason) = client.promise.contradiction(self.tuning.floor) {
            return refused(reason);
        }
        for (index, group) in (0u32..).zip(self.groups()) {
            if !client.is_in(index) {
                continue;
            }
            let capacity = group.capacity();
            let (min, max) = client.promise.limits(capacity, &EntitlementSpec::NONE);
            if let Some(reason) = wrong(min, max, capacity, self.tuning.floor) {
                return refused(reason);
            }
            if group.is_mover() && client.promise.class != Some(BandwidthClass::Mover) {
                return refused("a client of a group with strategy=mover must have class=mover");
            }
        }
        Ok(())
    }
}

/// Number of bytes that may still be written.
pub(super) struct TextRoom(pub(super) usize);

impl fmt::Write for TextRoom {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 = self.0.checked_sub(text.len()).ok_or(fmt::Error)?;
        Ok(())
    }
}

/// Describes the error in a minimum and a maximum for `capacity`, if any.
fn wrong(min: u64, max: u64, capacity: u64, floor: u64) -> Option<&'static str> {
    if max > capacity {
        Some("max is above the capacity of the group")
    } else if min > capacity {
        Some("min is above the capacity of the group")
    } else if min > max {
        Some(ABOVE)
    } else if min < floor {
        Some("min is below the floor")
    } else {
        None
    }
}
