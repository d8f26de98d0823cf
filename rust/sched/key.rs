// SPDX-License-Identifier: GPL-2.0-only

//! Keys of classes: the value of one attribute of a request.

use crate::sched::{
    attr::{Attrs, CgroupPath, Id, IoPriority, Opcode},
    jobid::JobId,
    nid::{Address, Nid},
    rng::avalanche,
    rules::Subject,
};
use core::fmt::{self, Write};

/// Attribute by which requests are divided into classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Field {
    /// Job identifier.
    Jobid,
    /// User id.
    Uid,
    /// Group id.
    Gid,
    /// Project id.
    Projid,
    /// Network identifier of the client.
    Nid,
    /// Operation.
    Opcode,
    /// Node map id.
    Nodemap,
    /// Cgroup.
    Cgroup,
    /// I/O priority.
    IoPriority,
}

impl Field {
    /// All fields, in display order.
    pub const ALL: [Self; 9] = [
        Self::Nid,
        Self::Jobid,
        Self::Uid,
        Self::Gid,
        Self::Projid,
        Self::Nodemap,
        Self::Cgroup,
        Self::Opcode,
        Self::IoPriority,
    ];

    /// Returns the name of the field.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Jobid => "jobid",
            Self::Uid => "uid",
            Self::Gid => "gid",
            Self::Projid => "projid",
            Self::Nid => "nid",
            Self::Opcode => "opcode",
            Self::Nodemap => "nodemap",
            Self::Cgroup => "cgroup",
            Self::IoPriority => "ioprio",
        }
    }

    /// Parses the name of a field.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|field| field.name() == name)
    }
}

/// Value of one field, or the default class.
///
/// Displayed as `jobid:dd.0`, `uid:absent` or `default`, escaped for a double-quoted YAML string.
///
/// # Examples
///
/// ```
/// use nrs_sched::{attr::{Attrs, Id}, jobid::JobId, key::{Field, Key}, nid::Nid};
///
/// let attrs = Attrs {
///     uid: Id::new(0),
///     gid: Id::new(u32::MAX),
///     nid: Nid::parse("10.0.0.1@tcp0").ok(),
///     jobid: JobId::new(b"my \"job\""),
///     ..Attrs::UNKNOWN
/// };
/// let shown = |field| Key::of(field, &attrs).to_string();
/// // 0 is a user id, the largest number is none; network tcp0 is tcp.
/// assert_eq!(shown(Field::Uid), "uid:0");
/// assert_eq!(shown(Field::Gid), "gid:absent");
/// assert_eq!(shown(Field::Nid), "nid:10.0.0.1@tcp");
/// assert_eq!(shown(Field::Jobid), r#"jobid:my \"job\""#);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// Class of requests for which no class of their own could be created.
    Default,
    /// Class of requests without a value of the field.
    Absent(Field),
    /// Job.
    Jobid(JobId),
    /// User.
    Uid(u32),
    /// Group.
    Gid(u32),
    /// Project.
    Projid(u32),
    /// Client.
    Nid(Nid),
    /// Operation.
    Opcode(Opcode),
    /// Node map.
    Nodemap(u32),
    /// Cgroup.
    Cgroup(CgroupPath),
    /// I/O priority.
    IoPriority(IoPriority),
}

impl Key {
    /// Returns the value of `field` in `attrs`. The cgroup stands for an absent identity of a task
    /// if no task is known.
    pub fn of(field: Field, attrs: &Attrs) -> Self {
        let key = match field {
            Field::Jobid if attrs.jobid.is_empty() => None,
            Field::Jobid => Some(Self::Jobid(attrs.jobid)),
            Field::Uid => attrs.uid.get().map(Self::Uid),
            Field::Gid => attrs.gid.get().map(Self::Gid),
            Field::Projid => attrs.projid.get().map(Self::Projid),
            Field::Nid => attrs.nid.map(Self::Nid),
            Field::Opcode if attrs.opcode == Opcode::NONE => None,
            Field::Opcode => Some(Self::Opcode(attrs.opcode)),
            Field::Nodemap => attrs.nodemap.get().map(Self::Nodemap),
            Field::Cgroup => attrs.cgroup.get().map(Self::Cgroup),
            Field::IoPriority if attrs.io_priority == IoPriority::NONE => None,
            Field::IoPriority => Some(Self::IoPriority(attrs.io_priority)),
        };
        let stand_in = || match field {
            Field::Uid | Field::Gid | Field::Jobid => attrs.owner.get().map(Self::Cgroup),
            _ => None,
        };
        key.or_else(stand_in).unwrap_or(Self::Absent(field))
    }

    /// Returns the field of the value; `None` for the default class.
    pub const fn field(&self) -> Option<Field> {
        match self {
            Self::Default => None,
            Self::Absent(field) => Some(*field),
            Self::Jobid(_) => Some(Field::Jobid),
            Self::Uid(_) => Some(Field::Uid),
            Self::Gid(_) => Some(Field::Gid),
            Self::Projid(_) => Some(Field::Projid),
            Self::Nid(_) => Some(Field::Nid),
            Self::Opcode(_) => Some(Field::Opcode),
            Self::Nodemap(_) => Some(Field::Nodemap),
            Self::Cgroup(_) => Some(Field::Cgroup),
            Self::IoPriority(_) => Some(Field::IoPriority),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.field().map_or("default", Field::name))?;
        match self {
            Self::Default => Ok(()),
            Self::Absent(_) => f.write_str(":absent"),
            Self::Jobid(job) => {
                f.write_char(':')?;
                escape(job.as_bytes(), f)
            }
            Self::Uid(id) | Self::Gid(id) | Self::Projid(id) | Self::Nodemap(id) => {
                write!(f, ":{id}")
            }
            Self::Cgroup(path) => {
                f.write_char(':')?;
                path.write_escaped(f)
            }
            Self::Nid(nid) => write!(f, ":{nid}"),
            Self::Opcode(opcode) => write!(f, ":{opcode}"),
            Self::IoPriority(priority) => write!(f, ":{priority}"),
        }
    }
}

/// Writes `bytes` as part of a double-quoted string of YAML or of a list of weights; bytes that are
/// not printable ASCII become `\xNN`.
pub fn escape(bytes: &[u8], out: &mut (impl Write + ?Sized)) -> fmt::Result {
    for &byte in bytes {
        match byte {
            b'"' | b'\\' => {
                out.write_char('\\')?;
                out.write_char(char::from(byte))?;
            }
            b' '..=b'~' => out.write_char(char::from(byte))?,
            _ => write!(out, "\\x{byte:02x}")?,
        }
    }
    Ok(())
}

/// Returns `bytes` as little-endian words, the last one padded with zeros.
pub fn words_of(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes.chunks(8).map(|part| {
        let mut word = [0; 8];
        for (to, from) in word.iter_mut().zip(part) {
            *to = *from;
        }
        u64::from_le_bytes(word)
    })
}

/// Hash function of keys with a secret seed, so that users cannot choose names that collide.
///
/// Each word is multiplied by a secret odd number, and both halves of the product are combined.
/// Thus the seed determines how differences between keys spread.
#[derive(Clone, Copy)]
pub struct Hasher {
    start: u64,
    factor: u64,
}

impl Hasher {
    /// Creates the hash function of `seed`.
    pub const fn new(seed: u64) -> Self {
        Self {
            start: avalanche(seed ^ 0x6e72_735f_6b65_7931),
            factor: avalanche(seed.wrapping_add(0x6e72_735f_6b65_7932)) | 1,
        }
    }

    /// Mixes `word` into `state`.
    #[inline]
    pub fn mix(&self, state: u64, word: u64) -> u64 {
        let wide = u128::from(state ^ word).wrapping_mul(u128::from(self.factor));
        (wide as u64) ^ ((wide >> 64) as u64)
    }

    /// Mixes the length and the contents of `bytes` into `state`.
    pub fn mix_bytes(&self, state: u64, bytes: &[u8]) -> u64 {
        let state = self.mix(state, bytes.len() as u64);
        words_of(bytes).fold(state, |state, word| self.mix(state, word))
    }

    /// Returns the upper 32 bits of the hash of `key`.
    pub fn hash(&self, key: &impl Hashed) -> u32 {
        (self.wide(key) >> 32) as u32
    }

    /// Returns the hash of `key`.
    pub fn wide(&self, key: &impl Hashed) -> u64 {
        self.mix(key.mix(self), self.start)
    }

    /// Returns the hash of the path that ends in `key` and whose parent path has the hash `before`.
    /// 0 is the hash of the empty path only.
    pub fn path(&self, before: u64, key: &impl Hashed) -> u64 {
        self.mix(key.mix(self), self.start ^ before).max(1)
    }

    /// Returns the state after `word` alone.
    pub fn word(&self, word: u64) -> u64 {
        self.mix(self.start, word)
    }

    /// Mixes a network identifier into `state`.
    fn mix_nid(&self, state: u64, nid: &Nid) -> u64 {
        let net = ((nid.net() as u64) << 16) | u64::from(nid.number());
        match nid.address() {
            Address::V4(ip) => self.mix_bytes(self.mix(state, net), &ip),
            Address::V6(ip) => self.mix_bytes(self.mix(state, net), &ip),
            Address::Number(node) => self.mix(self.mix(state, net), u64::from(node)),
        }
    }
}

/// Values that a [`Hasher`] accepts; different values must mix different words.
pub trait Hashed {
    /// Returns the state of `hasher` after all words of the value.
    fn mix(&self, hasher: &Hasher) -> u64;
}

impl Hashed for Key {
    fn mix(&self, hasher: &Hasher) -> u64 {
        let word = |kind, word| hasher.mix(hasher.word(kind), word);
        match self {
            Self::Default => hasher.word(0),
            Self::Absent(field) => word(1, *field as u64),
            Self::Jobid(job) => hasher.mix_bytes(hasher.word(2), job.as_bytes()),
            Self::Uid(id) => word(3, u64::from(*id)),
            Self::Gid(id) => word(4, u64::from(*id)),
            Self::Projid(id) => word(5, u64::from(*id)),
            Self::Nid(nid) => hasher.mix_nid(hasher.word(6), nid),
            Self::Opcode(opcode) => word(7, u64::from(opcode.number())),
            Self::Nodemap(id) => word(8, u64::from(*id)),
            Self::Cgroup(path) => word(10, path.number()),
            Self::IoPriority(priority) => word(11, u64::from(priority.number())),
        }
    }
}

impl Hashed for u64 {
    fn mix(&self, hasher: &Hasher) -> u64 {
        hasher.word(*self)
    }
}

impl Hashed for [u64; 2] {
    fn mix(&self, hasher: &Hasher) -> u64 {
        let [first, second] = *self;
        hasher.mix(hasher.word(first), second)
    }
}

/// All fields in a fixed order; lengths and kinds are included, so that no two subjects mix the
/// same words.
impl Hashed for Subject {
    fn mix(&self, hasher: &Hasher) -> u64 {
        let raw = |id: Id| u64::from(id.get().unwrap_or(u32::MAX));
        let pair = |a: u64, b: u64| (a << 32) | b;
        let mut state = hasher.word(9);
        state = hasher.mix(state, pair(raw(self.uid), raw(self.gid)));
        state = hasher.mix(state, pair(raw(self.projid), raw(self.nodemap)));
        let priority = u64::from(self.io_priority.number()) << 33;
        let kinds =
            priority | (u64::from(self.opcode.number()) << 1) | u64::from(self.nid.is_some());
        state = hasher.mix(hasher.mix(state, self.cgroup.number()), kinds);
        if let Some(nid) = &self.nid {
            state = hasher.mix_nid(state, nid);
        }
        if self.jobid.is_empty() {
            return state;
        }
        hasher.mix_bytes(state, self.jobid.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attrs() -> Attrs {
        Attrs {
            opcode: Opcode::NONE,
            length: 4096,
            ..Attrs::UNKNOWN
        }
    }

    /// Verifies that the cgroup stands for the identities of a task that is not known, and for no
    /// other field.
    #[test]
    fn a_cgroup_stands_for_an_unknown_task() {
        let mut attrs = attrs();
        let path = CgroupPath::from_number;
        attrs.cgroup = path(7);
        assert_eq!(Key::of(Field::Uid, &attrs), Key::Absent(Field::Uid));
        attrs.owner = path(6);
        for field in Field::ALL {
            let wanted = match field {
                Field::Uid | Field::Gid | Field::Jobid => Key::Cgroup(path(6)),
                Field::Cgroup => Key::Cgroup(path(7)),
                _ => Key::Absent(field),
            };
            assert_eq!(Key::of(field, &attrs), wanted);
        }
        attrs.uid = Id::new(1000);
        assert_eq!(Key::of(Field::Uid, &attrs), Key::Uid(1000));
    }

    #[test]
    fn absent_is_not_zero() {
        let hasher = Hasher::new(3);
        for field in Field::ALL {
            let absent = Key::of(field, &attrs());
            assert_eq!(absent, Key::Absent(field));
            assert_eq!(absent.to_string(), format!("{}:absent", field.name()));
            let mut zero = attrs();
            zero.uid = Id::new(0);
            zero.gid = Id::new(0);
            zero.projid = Id::new(0);
            zero.nodemap = Id::new(0);
            zero.cgroup = CgroupPath::from_number(1);
            zero.opcode = Opcode::OST_REPLY;
            zero.io_priority = IoPriority::from_kernel(1 << 13);
            zero.jobid = JobId::new(b"0");
            zero.nid = Nid::parse("0@lo").ok();
            let zero = Key::of(field, &zero);
            assert_ne!(zero, absent);
            assert_ne!(hasher.hash(&zero), hasher.hash(&absent));
            assert_eq!(zero.field(), Some(field));
        }
    }

    #[test]
    fn shown() {
        for (key, text) in [
            (Key::Default, "default"),
            (Key::Uid(1000), "uid:1000"),
            (Key::Gid(0), "gid:0"),
            (Key::Projid(7), "projid:7"),
            (Key::Nodemap(3), "nodemap:3"),
            (Key::Opcode(Opcode::OST_READ), "opcode:ost_read"),
            (Key::Opcode(Opcode::new(5000)), "opcode:5000"),
            (
                Key::IoPriority(IoPriority::from_kernel(2 << 13)),
                "ioprio:be-0",
            ),
            (
                Key::Nid(Nid::parse("10.0.0.1@tcp").unwrap()),
                "nid:10.0.0.1@tcp",
            ),
            (Key::Jobid(JobId::new(b"dd.0")), "jobid:dd.0"),
            (
                Key::Jobid(JobId::new(b"a\"\\\n\xff b")),
                r#"jobid:a\"\\\x0a\xff b"#,
            ),
        ] {
            assert_eq!(key.to_string(), text);
        }
    }

    /// Checks that names that differ in few bits, and words that only swap places, spread like
    /// random numbers.
    #[test]
    fn spreads() {
        let jobs = |i: u32| {
            let mut name = [b'a'; 31];
            for bit in 0..16 {
                if (i >> bit) & 1 == 1 {
                    name[bit * 2 % 31] ^= 1 << (bit % 3);
                }
            }
            Key::Jobid(JobId::new(&name))
        };
        for seed in 0..8 {
            let hasher = Hasher::new(seed);
            for make in [
                &Key::Uid as &dyn Fn(u32) -> Key,
                &|i| Key::Uid(i << 16),
                &jobs,
            ] {
                let mut bins = vec![0u32; 1 << 12];
                for i in 0..1 << 14 {
                    bins[hasher.hash(&make(i)) as usize & 0xfff] += 1;
                }
                // The mean is four; a random function stays below 20 with probability 0.9999.
                assert!(bins.iter().all(|&n| n < 24), "seed {seed}");
                assert!(
                    bins.iter().filter(|&&n| n == 0).count() < 200,
                    "seed {seed}"
                );
            }
        }
    }

    #[test]
    fn subjects_differ_by_each_field() {
        let hasher = Hasher::new(7);
        let nid = |text| Nid::parse(text).ok();
        let none = Subject::NONE;
        let mut subjects = vec![none];
        for number in [0, 1, 4, u32::MAX - 1] {
            let id = Id::new(number);
            subjects.extend([
                Subject { uid: id, ..none },
                Subject { gid: id, ..none },
                Subject { projid: id, ..none },
                Subject {
                    nodemap: id,
                    ..none
                },
                Subject {
                    opcode: Opcode::new(number),
                    ..none
                },
                Subject {
                    io_priority: IoPriority::from_kernel((number % 7 + 1) as u16 | (1 << 13)),
                    ..none
                },
            ]);
        }
        for text in [
            "0@lo",
            "4@gni",
            "4@gni1",
            "0.0.0.4@tcp",
            "::4@tcp",
            "0.0.0.4@o2ib",
        ] {
            let nid = nid(text);
            subjects.push(Subject { nid, ..none });
            for job in ["4", "a", "ab", "a longer name than one word"] {
                let jobid = JobId::new(job.as_bytes());
                subjects.push(Subject { nid, jobid, ..none });
            }
        }
        let mut hashes: Vec<u64> = subjects
            .iter()
            .map(|subject| hasher.wide(subject))
            .collect();
        hashes.sort();
        hashes.dedup();
        assert_eq!(hashes.len(), subjects.len());
        assert_eq!(
            u64::from(hasher.hash(&none)),
            hasher.wide(&none) >> 32,
            "the upper half"
        );
    }

    #[test]
    fn seeds_differ() {
        let (a, b) = (Hasher::new(1), Hasher::new(2));
        let same = (0..1000).filter(|&i| {
            let key = Key::Uid(i);
            a.hash(&key) & 0xff == b.hash(&key) & 0xff
        });
        assert!(same.count() < 20);
    }
}
