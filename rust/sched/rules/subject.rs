// SPDX-License-Identifier: GPL-2.0-only

//! Subjects: the fields of a request that a policy uses, and sets of fields.

use crate::sched::{
    attr::{Attrs, CgroupPath, Id, IoPriority, Opcode},
    error::{Error, Result},
    jobid::JobId,
    key::{Field, Key},
    nid::Nid,
};
use core::fmt::{self, Write};

/// Set of [`Field`]s: the type of a policy that classifies by them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fields(u16);

impl Fields {
    /// No field.
    pub const NONE: Self = Self(0);

    /// All fields.
    pub const ALL: Self = Self(0x1ff);

    /// Generic type: Lustre's fields.
    pub const GENERIC: Self = Self(0x7f);

    const fn bit(field: Field) -> u16 {
        match field {
            Field::Nid => 1,
            Field::Jobid => 2,
            Field::Uid => 4,
            Field::Gid => 8,
            Field::Projid => 16,
            Field::Nodemap => 32,
            Field::Opcode => 64,
            Field::Cgroup => 128,
            Field::IoPriority => 256,
        }
    }

    /// Returns the set of `field` alone.
    pub const fn only(field: Field) -> Self {
        Self(Self::bit(field))
    }

    /// Returns the set with `field`.
    #[must_use]
    pub const fn with(self, field: Field) -> Self {
        Self(self.0 | Self::bit(field))
    }

    /// Returns true if `field` is in the set.
    pub const fn has(self, field: Field) -> bool {
        self.0 & Self::bit(field) != 0
    }

    /// Returns the fields in display order.
    pub fn iter(self) -> impl Iterator<Item = Field> {
        Field::ALL.into_iter().filter(move |&field| self.has(field))
    }

    /// Returns the only field of a set with one field.
    pub fn single(self) -> Option<Field> {
        let mut fields = self.iter();
        fields.next().filter(|_| fields.next().is_none())
    }

    /// Parses `FIELD[+FIELD…]` in any order, with or without repetitions. `generic` is
    /// [`Fields::GENERIC`].
    ///
    /// # Errors
    ///
    /// `EINVAL`: an unknown or empty field name.
    pub fn parse(text: &str) -> Result<Self> {
        if text == "generic" {
            return Ok(Self::GENERIC);
        }
        text.split('+').try_fold(Self::NONE, |fields, name| {
            let field = Field::parse(name).ok_or(Error::invalid(
                "expected fields joined by '+': \
                 nid, jobid, uid, gid, projid, nodemap, cgroup, opcode, ioprio",
            ))?;
            Ok(fields.with(field))
        })
    }
}

/// Form `FIELD[+FIELD…]`, in display order.
impl fmt::Display for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, field) in self.iter().enumerate() {
            if i > 0 {
                f.write_char('+')?;
            }
            f.write_str(field.name())?;
        }
        Ok(())
    }
}

/// Fields of a request that a policy uses; all other fields are absent.
///
/// Conditions are matched against subjects, and a subject is the key of a class of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Subject {
    /// Network identifier of the client.
    pub nid: Option<Nid>,
    /// Job identifier; empty if absent.
    pub jobid: JobId,
    /// Operation, or [`Opcode::NONE`].
    pub opcode: Opcode,
    /// I/O priority, or [`IoPriority::NONE`].
    pub io_priority: IoPriority,
    /// User id.
    pub uid: Id,
    /// Group id.
    pub gid: Id,
    /// Project id.
    pub projid: Id,
    /// Node map id.
    pub nodemap: Id,
    /// Cgroup.
    pub cgroup: CgroupPath,
}

impl Subject {
    /// Subject without any field.
    pub const NONE: Self = Self {
        nid: None,
        jobid: JobId::ABSENT,
        opcode: Opcode::NONE,
        io_priority: IoPriority::NONE,
        uid: Id::ABSENT,
        gid: Id::ABSENT,
        projid: Id::ABSENT,
        nodemap: Id::ABSENT,
        cgroup: CgroupPath::ABSENT,
    };

    /// Returns the `fields` of `attrs`, with the cgroup in place of absent identities of a task if
    /// no task is known.
    pub fn of(attrs: &Attrs, fields: Fields) -> Self {
        let id = |field, id| {
            if fields.has(field) {
                id
            } else {
                Id::ABSENT
            }
        };
        let stands_in =
            |&field: &Field| fields.has(field) && matches!(Key::of(field, attrs), Key::Cgroup(_));
        let of_task = [Field::Uid, Field::Gid, Field::Jobid];
        let stand_in = attrs.owner.get().filter(|_| of_task.iter().any(stands_in));
        Self {
            nid: attrs.nid.filter(|_| fields.has(Field::Nid)),
            jobid: if fields.has(Field::Jobid) {
                attrs.jobid
            } else {
                JobId::ABSENT
            },
            opcode: if fields.has(Field::Opcode) {
                attrs.opcode
            } else {
                Opcode::NONE
            },
            io_priority: if fields.has(Field::IoPriority) {
                attrs.io_priority
            } else {
                IoPriority::NONE
            },
            uid: id(Field::Uid, attrs.uid),
            gid: id(Field::Gid, attrs.gid),
            projid: id(Field::Projid, attrs.projid),
            nodemap: id(Field::Nodemap, attrs.nodemap),
            cgroup: stand_in.unwrap_or(if fields.has(Field::Cgroup) {
                attrs.cgroup
            } else {
                CgroupPath::ABSENT
            }),
        }
    }

    /// Returns the value of a numeric field, 0xffffffff if absent; returns 0 for other fields.
    pub fn number(&self, field: Field) -> u32 {
        const fn raw(id: Id) -> u32 {
            match id.get() {
                Some(id) => id,
                None => u32::MAX,
            }
        }
        match field {
            Field::Uid => raw(self.uid),
            Field::Gid => raw(self.gid),
            Field::Projid => raw(self.projid),
            Field::Nodemap => raw(self.nodemap),
            Field::Opcode => self.opcode.number(),
            Field::IoPriority if self.io_priority == IoPriority::NONE => u32::MAX,
            Field::IoPriority => self.io_priority.number().into(),
            Field::Nid | Field::Jobid | Field::Cgroup => 0,
        }
    }
}

/// Present fields, as in `uid:1000 opcode:ost_read`, or `absent`. Blanks and non-printable
/// characters of a job identifier are shown as `_`.
impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut gap = "";
        if let Some(nid) = &self.nid {
            write!(f, "nid:{nid}")?;
            gap = " ";
        }
        if !self.jobid.is_empty() {
            write!(f, "{gap}jobid:{}", self.jobid)?;
            gap = " ";
        }
        let ids = [
            (Field::Uid, self.uid),
            (Field::Gid, self.gid),
            (Field::Projid, self.projid),
            (Field::Nodemap, self.nodemap),
        ];
        for (field, id) in ids {
            if let Some(id) = id.get() {
                write!(f, "{gap}{}:{id}", field.name())?;
                gap = " ";
            }
        }
        if let Some(path) = self.cgroup.get() {
            write!(f, "{gap}cgroup:{path}")?;
            gap = " ";
        }
        if self.opcode != Opcode::NONE {
            write!(f, "{gap}opcode:{}", self.opcode)?;
            gap = " ";
        }
        if self.io_priority != IoPriority::NONE {
            write!(f, "{gap}ioprio:{}", self.io_priority)?;
        } else if gap.is_empty() {
            f.write_str("absent")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Verifies that each cgroup is a subject of its own where no task is known.
    #[test]
    fn a_cgroup_stands_for_an_unknown_task() {
        let mut attrs = Attrs {
            cgroup: CgroupPath::intern(b"/7").unwrap(),
            opcode: Opcode::OST_WRITE,
            owner: CgroupPath::intern(b"/7").unwrap(),
            ..Attrs::UNKNOWN
        };
        let shown = |attrs: &Attrs, fields| {
            let fields = Fields::parse(fields).unwrap();
            format!("{}", Subject::of(attrs, fields))
        };
        assert_eq!(shown(&attrs, "uid"), "cgroup:/7");
        assert_eq!(shown(&attrs, "gid+opcode"), "cgroup:/7 opcode:ost_write");
        assert_eq!(shown(&attrs, "projid"), "absent");
        attrs.uid = Id::new(1000);
        assert_eq!(shown(&attrs, "uid"), "uid:1000");
        assert_eq!(shown(&attrs, "uid+jobid"), "uid:1000 cgroup:/7");
        attrs.owner = CgroupPath::ABSENT;
        assert_eq!(shown(&attrs, "uid+jobid"), "uid:1000");
    }

    const ATTRS: Attrs = Attrs {
        opcode: Opcode::OST_WRITE,
        io_priority: IoPriority::from_kernel(2 << 13),
        uid: Id::new(1),
        gid: Id::new(2),
        projid: Id::new(3),
        nodemap: Id::new(4),
        cgroup: CgroupPath::from_number(5),
        ..Attrs::UNKNOWN
    };

    #[test]
    fn fields_of_policies() {
        for (text, shown) in [
            ("nid", Some("nid")),
            ("jobid", Some("jobid")),
            ("uid+gid", Some("uid+gid")),
            ("gid+uid", Some("uid+gid")),
            ("opcode+jobid+nid", Some("nid+jobid+opcode")),
            ("nid+nid+nid", Some("nid")),
            ("nodemap+opcode", Some("nodemap+opcode")),
            ("projid+opcode", Some("projid+opcode")),
            ("opcode+cgroup", Some("cgroup+opcode")),
            ("generic", Some("nid+jobid+uid+gid+projid+nodemap+opcode")),
            ("", None),
            ("+", None),
            ("+nid", None),
            ("nid+", None),
            ("nid++uid", None),
            ("nid uid", None),
            ("NID", None),
            ("generic+uid", None),
            ("abc", None),
        ] {
            let fields = Fields::parse(text).ok();
            assert_eq!(fields.map(|f| f.to_string()).as_deref(), shown, "{text}");
            if let Some(fields) = fields {
                assert_eq!(Fields::parse(&fields.to_string()), Ok(fields));
            }
        }
        assert_eq!(Fields::parse("generic"), Ok(Fields::GENERIC));
        for field in Field::ALL {
            assert_eq!(Fields::only(field).single(), Some(field));
            assert!(Fields::ALL.has(field) && !Fields::NONE.has(field));
        }
        assert_eq!(Fields::ALL.single(), None);
        assert_eq!(Fields::NONE.single(), None);
    }

    #[test]
    fn only_fields_of_the_set_are_copied() {
        let mut attrs = ATTRS;
        attrs.nid = Nid::parse("10.0.0.1@tcp").ok();
        attrs.jobid = JobId::new(b"dd 0");
        assert_eq!(Subject::of(&attrs, Fields::NONE), Subject::NONE);
        assert_eq!(Subject::NONE.to_string(), "absent");
        let all = Subject::of(&attrs, Fields::ALL);
        assert_eq!(
            all.to_string(),
            "nid:10.0.0.1@tcp jobid:dd_0 uid:1 gid:2 projid:3 nodemap:4 cgroup:#0000000000000005 \
             opcode:ost_write ioprio:be-0"
        );
        for field in Field::ALL {
            let one = Subject::of(&attrs, Fields::only(field));
            assert_ne!(one, Subject::NONE);
            let shown = one.to_string();
            assert!(shown.starts_with(field.name()) && !shown.contains(' '));
            let numeric = !matches!(field, Field::Nid | Field::Jobid | Field::Cgroup);
            assert_eq!(one.number(field), all.number(field));
            assert_eq!(numeric, all.number(field) != 0);
            if numeric {
                assert_eq!(Subject::NONE.number(field), u32::MAX);
            }
        }
    }
}
