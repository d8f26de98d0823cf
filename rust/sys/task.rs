// SPDX-License-Identifier: GPL-2.0-only

//! Identity of the running task, which submits a request.
//!
//! # Tasks that exit
//!
//! Requests also come from `do_exit` (kernel/exit.c): `exit_task_work` drops the last references to
//! files, and closing them writes their dirty pages back. By then the task has lost some of its
//! state:
//!
//! | step of `do_exit` | state lost in this step | user of that state |
//! |---|---|---|
//! | `exit_signals`, `exit_mm` | pending signals, the address space | none |
//! | `exit_files`, `exit_fs` | open files, root and working directory | none |
//! | `exit_nsproxy_namespaces` | `nsproxy`, UTS namespace | `hostname`: uses the initial one |
//! | **`exit_task_work`** | | requests |
//! | `cgroup_task_exit` | list entry in its cgroup; the pointer to the cgroup stays | none |
//! | `exit_notify` | once reaped: `signal`, `sighand`, pid links; the number `tgid` stays | none |
//! | the task is freed | credentials, `comm`, flags, the cgroup | [`Submitter`] |

use core::{
    marker::PhantomData,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    ptr,
};

use kernel::{bindings, prelude::*};

use super::{atomic::Hint, bio::BioView, misc, raw};
use crate::sched::attr::cgroup::{names_of, CgroupNames, ReadPath};

/// The running task, and the cgroup for which a request is made. Each attribute is read when it is
/// needed. While a worker submits a deferred bio, the submitter is that of the bio.
///
/// # Invariants
///
/// `task` is the running task, and `self` is not sent to another one. `bio` is null or valid for
/// `'a`. `record` is null or valid during the submission in which `self` was created.
pub(crate) struct Submitter<'a> {
    task: *const bindings::task_struct,
    flags: u32,
    /// Submitter of a deferred bio; null: the task.
    record: *const SubmitterRecord,
    /// Bio that may determine the cgroup; null: the cgroup of the task.
    bio: *mut bindings::bio,
    _bio: PhantomData<BioView<'a>>,
}

/// Maximum number of times that the path of a task's cgroup is read, if the task moves meanwhile.
const MOVES_MAX: u32 = 8;

/// Attributes that distinguish submitters.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct SubmitterId {
    /// Executable name, padded with NUL.
    pub(crate) comm: [u8; 16],
    /// User and group from [`Submitter::owner`]; without them, the cgroup owns the request.
    pub(crate) owner: Option<(u32, u32)>,
    /// Address from [`Submitter::nfs_client`].
    pub(crate) client: Option<IpAddr>,
    /// Thread group id; 0 if not requested.
    pub(crate) pid: u32,
    /// Cgroup from [`Submitter::cgroup`]; `None` also if not requested and not the owner.
    pub(crate) cgroup: Option<u64>,
}

/// Attributes that only some settings need.
#[cfg(feature = "elevator")]
#[derive(Clone, Copy)]
pub(crate) struct RecordedParts {
    /// Names for job identifiers.
    pub(crate) names: bool,
    /// The path of the cgroup.
    pub(crate) path: bool,
}

/// Copy of a submitter's attributes, for bios that are submitted later.
pub(crate) struct SubmitterRecord {
    whose: SubmitterId,
    /// User and group from [`Submitter::task_owner`].
    task: Option<(u32, u32)>,
    /// Path of the cgroup from [`Submitter::cgroup`]; large, and rarely needed.
    path: Option<KBox<ReadPath>>,
    /// Cgroup from [`Submitter::charged_cgroup`].
    charged: Option<u64>,
    names: Option<KBox<RecordedNames>>,
    /// Address of the counter in which a request of the submitter is already counted; 0: none.
    counter: Hint,
    /// Index of the submitter in that counter.
    index: Hint,
}

/// Names of a submitter, which only some job identifiers need.
#[derive(Clone, Copy, PartialEq)]
struct RecordedNames {
    cgroup: Option<([u8; 64], usize)>,
    host: [u8; 65],
}

/// Returns the running task.
pub(crate) fn submitter() -> Submitter<'static> {
    // INVARIANT: The raw pointers make `Submitter` neither `Send` nor `Sync`. A worker keeps the
    // record until the submission has returned.
    // SAFETY: `current` is valid while this task runs.
    unsafe {
        let task = bindings::get_current();
        let flags = (*task).flags;
        Submitter {
            task,
            flags,
            record: if flags & bindings::PF_WQ_WORKER != 0 {
                recorded()
            } else {
                ptr::null()
            },
            bio: ptr::null_mut(),
            _bio: PhantomData,
        }
    }
}

/// Returns the submitter of the bio that the running worker submits; null if the bio is its own.
#[cold]
fn recorded() -> *const SubmitterRecord {
    #[cfg(feature = "elevator")]
    return super::elevator::recorded();
    #[cfg(not(feature = "elevator"))]
    ptr::null()
}

impl<'a> Submitter<'a> {
    /// Returns the submitter of a request whose first bio is `bio`. The bio determines the cgroup
    /// to charge, even when a kernel thread writes back data of a task of that cgroup.
    #[cfg(feature = "elevator")]
    pub(crate) fn of_bio(self, bio: BioView<'a>) -> Self {
        // INVARIANT: The view is valid for `'a`.
        Self {
            bio: bio.as_ptr(),
            ..self
        }
    }

    /// Returns a copy of the attributes, with these parts; `None` without memory. An anonymous
    /// submitter has a path in any case.
    #[cfg(feature = "elevator")]
    pub(crate) fn record(&self, parts: RecordedParts) -> Option<SubmitterRecord> {
        let names = if parts.names {
            let (mut cgroup, mut host) = ([0; 64], [0; 65]);
            let len = self.cgroup_name(&mut cgroup).map(<[u8]>::len);
            self.hostname(&mut host);
            let names = RecordedNames {
                cgroup: len.map(|len| (cgroup, len)),
                host,
            };
            Some(KBox::new(names, GFP_NOWAIT | __GFP_NOWARN).ok()?)
        } else {
            None
        };
        let whose = self.whose(true, true);
        let has_path = whose.cgroup.is_some() && (parts.path || whose.owner.is_none());
        let path = if has_path {
            let path = ReadPath::new(|level, buf| self.part(level, buf));
            Some(KBox::new(path, GFP_NOWAIT | __GFP_NOWARN).ok()?)
        } else {
            None
        };
        Some(SubmitterRecord {
            whose,
            task: self.task_owner(),
            path,
            charged: self.charged_cgroup(),
            names,
            counter: Hint::new(0),
            index: Hint::new(0),
        })
    }

    /// Returns the record of the submitter of a deferred bio.
    fn recorded(&self) -> Option<&SubmitterRecord> {
        // SAFETY: By the type invariant.
        unsafe { self.record.as_ref() }
    }

    /// Returns true if a request of the submitter is already counted in `counter`.
    #[cfg(feature = "elevator")]
    pub(crate) fn is_counted(&self, counter: usize) -> bool {
        self.recorded()
            .is_some_and(|record| record.is_counted(counter))
    }

    /// Returns the index of the submitter in `counter` if a request of the submitter is already
    /// counted there. Only the next request of the submitter is that request.
    #[cfg(feature = "elevator")]
    pub(crate) fn take_counted(&self, counter: usize) -> Option<u32> {
        self.recorded()?.take_counted(counter)
    }

    fn is_kthread(&self) -> bool {
        self.flags & bindings::PF_KTHREAD != 0
    }

    /// Returns true if the submitter does not identify the user of the request: a kernel thread
    /// with its own credentials, or a task that writes data of a cgroup which it is not in, as
    /// `sync` does.
    pub(crate) fn is_anonymous(&self) -> bool {
        match self.recorded() {
            Some(record) => record.whose.owner.is_none(),
            None => self.works_for_no_user() || self.is_foreign_write(),
        }
    }

    /// Returns true if the running task writes data that is charged to a cgroup which the task is
    /// not in. A task reads for itself.
    fn is_foreign_write(&self) -> bool {
        if self.bio.is_null() || self.is_kthread() {
            return false;
        }
        // SAFETY: By the type invariant.
        unsafe { !BioView::new(self.bio).is_read() && raw::nrs_bio_is_foreign(self.bio) }
    }

    /// Returns true if the running task is a kernel thread with its own credentials.
    fn works_for_no_user(&self) -> bool {
        // SAFETY: By the type invariant this task runs; only this task replaces its credentials.
        self.is_kthread() && unsafe { (*self.task).cred == (*self.task).real_cred }
    }

    /// Returns true if the task reclaims memory: its requests must not be delayed.
    pub(crate) fn reclaims(&self) -> bool {
        self.flags & bindings::PF_MEMALLOC != 0
    }

    /// Returns the file-system ids of the user and the group for which the submitter works, in the
    /// initial namespace; `None` if the submitter is anonymous.
    ///
    /// A task has its own credentials and may temporarily override them. If a task of root or a
    /// kernel thread overrides its credentials, the new ones identify the user for whom a server
    /// works. If a task of another user does, they identify the task that mounted an overlay.
    ///
    /// A user namespace that a user created may map many ids, of which the user chooses. All
    /// requests from such a namespace belong to [`creator`].
    pub(crate) fn owner(&self) -> Option<(u32, u32)> {
        if self.is_anonymous() {
            return None;
        }
        self.task_owner()
    }

    /// Returns the user and the group for which the task works, as [`Self::owner`] does, also if
    /// the request is not the task's own.
    pub(crate) fn task_owner(&self) -> Option<(u32, u32)> {
        if let Some(record) = self.recorded() {
            return record.task;
        }
        if self.works_for_no_user() {
            return None;
        }
        // SAFETY: By the type invariant this task runs; its credentials may be read without a lock
        // because only the task itself replaces them. They refer to their namespace.
        unsafe {
            let (own, taken) = ((*self.task).real_cred, (*self.task).cred);
            let cred = if (*own).fsuid.val == 0 { taken } else { own };
            let (ids, ns) = (((*cred).fsuid.val, (*cred).fsgid.val), (*cred).user_ns);
            if ns == &raw mut bindings::init_user_ns {
                return Some(ids);
            }
            Some(creator(ns).unwrap_or(ids))
        }
    }

    /// Returns the address of the client for whom a thread of the kernel's NFS server works; an
    /// IPv4 address if an IPv6 address embeds one.
    fn nfs_client(&self) -> Option<IpAddr> {
        if !self.is_kthread() {
            return None;
        }
        let mut bytes = [0; 16];
        // SAFETY: `bytes` has room for each address.
        let len = unsafe { raw::nrs_nfs_client(bytes.as_mut_ptr()) };
        match (len, bytes) {
            (4, [a, b, c, d, ..]) => Some(Ipv4Addr::new(a, b, c, d).into()),
            (16, bytes) => Some(Ipv6Addr::from(bytes).to_canonical()),
            _ => None,
        }
    }

    /// Returns the thread group id.
    pub(crate) fn pid(&self) -> u32 {
        // SAFETY: By the type invariant this task runs.
        unsafe { (*self.task).tgid.unsigned_abs() }
    }

    /// Returns the executable name, padded with NUL: the name of the thread, or for a worker that
    /// the kernel has started in a process, as for io_uring and vhost, that of the process.
    fn comm(&self) -> [u8; 16] {
        let is_worker = self.flags & (bindings::PF_IO_WORKER | bindings::PF_USER_WORKER) != 0;
        // SAFETY: By the type invariant this task runs, so the leader of its thread group is not
        // released; the name is always NUL-terminated within its array, and a torn read only
        // yields a mixed name.
        unsafe {
            let named = if is_worker {
                (*self.task).group_leader
            } else {
                self.task.cast_mut()
            };
            (*named).comm
        }
    }

    /// Returns the attributes of the submitter, with the process if `pid` and the cgroup if
    /// `cgroup`.
    #[inline(always)]
    pub(crate) fn whose(&self, pid: bool, cgroup: bool) -> SubmitterId {
        if let Some(record) = self.recorded() {
            let whose = &record.whose;
            return SubmitterId {
                pid: if pid { whose.pid } else { 0 },
                cgroup: whose.cgroup.filter(|_| cgroup || whose.owner.is_none()),
                ..*whose
            };
        }
        let owner = self.owner();
        SubmitterId {
            comm: self.comm(),
            owner,
            client: self.nfs_client(),
            pid: if pid { self.pid() } else { 0 },
            cgroup: if cgroup || owner.is_none() {
                self.cgroup()
            } else {
                None
            },
        }
    }

    /// Returns the id of the cgroup on the unified hierarchy: that of the task, or that of the bio,
    /// if it is charged to one that the task is not in. `None` for a kernel thread without such a
    /// bio; 0 without cgroups.
    pub(crate) fn cgroup(&self) -> Option<u64> {
        if let Some(record) = self.recorded() {
            return record.whose.cgroup;
        }
        // SAFETY: By the type invariant.
        let id = unsafe { raw::nrs_cgroup(self.bio) };
        (id != 0 || !self.is_kthread()).then_some(id)
    }

    /// Returns the id of the cgroup that the bio is charged to, or else of the task, as
    /// [`Self::cgroup`] does; the task may be in a cgroup below.
    pub(crate) fn charged_cgroup(&self) -> Option<u64> {
        if let Some(record) = self.recorded() {
            return record.charged;
        }
        // SAFETY: By the type invariant.
        let id = unsafe { raw::nrs_charged_cgroup(self.bio) };
        (id != 0 || !self.is_kthread()).then_some(id)
    }

    /// Returns the path and the owner of the cgroup of [`Self::cgroup`]; `None` also if the task
    /// moves all the time.
    pub(crate) fn cgroup_names(&self) -> Option<CgroupNames> {
        (0..MOVES_MAX).find_map(|_| self.names_of(self.cgroup()?))
    }

    /// Returns the path and the owner of the cgroup `id` of [`Self::cgroup`]; `None` if the task
    /// has moved.
    pub(crate) fn names_of(&self, id: u64) -> Option<CgroupNames> {
        if let Some(record) = self.recorded() {
            return record.path.as_deref().map(ReadPath::keep);
        }
        if id == 0 {
            return None;
        }
        let name = |level, buf: &mut [u8]| self.part(level, buf);
        names_of(id, misc::now(), name, || self.cgroup() == Some(id))
    }

    /// Copies the name at `level` of the path of that cgroup, 1 below the root; returns its length.
    fn part(&self, level: i32, buf: &mut [u8]) -> Option<usize> {
        usize::try_from(self.name_at(level, buf)).ok()
    }

    /// Copies a name in the path of the cgroup to `buf`, as `nrs_cgroup_name` does.
    fn name_at(&self, level: i32, buf: &mut [u8]) -> i32 {
        let (text, size) = (buf.as_mut_ptr().cast(), buf.len());
        // SAFETY: By the type invariant, and `buf` is valid for its length.
        unsafe { raw::nrs_cgroup_name(self.bio, level, text, size) }
    }

    /// Returns the last component of the path of the cgroup of [`Self::cgroup`], at most 63 bytes;
    /// `None` for the root.
    pub(crate) fn cgroup_name<'b>(&self, buf: &'b mut [u8; 64]) -> Option<&'b [u8]> {
        if let Some(record) = self.recorded() {
            let (name, len) = record.names.as_ref()?.cgroup?;
            *buf = name;
            return buf.get(..len);
        }
        let len = self.name_at(0, buf);
        match usize::try_from(len) {
            Ok(len) => buf.get(..len).filter(|name| !name.is_empty()),
            // The name did not fit and is truncated.
            Err(_) if len == -(bindings::E2BIG as i32) => buf.get(..buf.len() - 1),
            Err(_) => None,
        }
    }

    /// Returns the host name of the submitter's UTS namespace, or of the initial one if the task
    /// has left its namespaces. An exiting task drops the last references to its files later
    /// (`exit_task_work` in `do_exit`), and writing back the dirty pages of such a file submits
    /// requests.
    pub(crate) fn hostname<'b>(&self, buf: &'b mut [u8; 65]) -> &'b [u8] {
        match self.recorded() {
            Some(record) => {
                *buf = record.names.as_ref().map_or([0; 65], |names| names.host);
            }
            None => {
                // SAFETY: `buf` is valid for its length.
                unsafe { raw::nrs_hostname(buf.as_mut_ptr().cast(), buf.len()) };
            }
        }
        buf.split(|byte| *byte == 0).next().unwrap_or(&[])
    }
}

#[cfg(feature = "elevator")]
impl SubmitterRecord {
    /// Records that a request of the submitter is counted in `counter` at `index`.
    pub(crate) fn set_counted(&self, counter: usize, index: u32) {
        self.index.set(index.into());
        self.counter.set(counter as u64);
    }

    /// Returns true if `other` has the same attributes and names.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        self.whose == other.whose
            && self.task == other.task
            && self.path.as_deref() == other.path.as_deref()
            && self.charged == other.charged
            && self.names.as_deref() == other.names.as_deref()
    }

    /// Returns true if a request of the submitter is counted in `counter`.
    fn is_counted(&self, counter: usize) -> bool {
        self.counter.get() == counter as u64
    }

    /// Returns the index of [`Self::set_counted`] the first time, if `counter` is the same.
    pub(crate) fn take_counted(&self, counter: usize) -> Option<u32> {
        self.is_counted(counter).then(|| {
            self.counter.set(0);
            self.index.get() as u32
        })
    }
}

/// Returns true if the running task can be throttled before it submits a request. Such a task works
/// for a user, is in no transaction of a file system, reclaims no memory, and has no other bios to
/// submit first. It is not the worker that submits deferred bios.
#[cold]
pub(crate) fn can_be_throttled() -> bool {
    // SAFETY: Always safe to call from task context.
    !submitter().works_for_no_user() && unsafe { raw::nrs_can_hold_back() }
}

/// Returns the user and the group that created the outermost namespace of `ns` and its ancestors
/// that was not created by root; `None` if root created all.
///
/// # Safety
///
/// `ns` is valid.
#[cold]
unsafe fn creator(mut ns: *const bindings::user_namespace) -> Option<(u32, u32)> {
    let mut found = None;
    // SAFETY: By the safety requirements of this function. A namespace refers to its parent, and
    // these fields do not change. Only the initial namespace has no parent.
    unsafe {
        while !(*ns).parent.is_null() {
            if (*ns).owner.val != 0 {
                found = Some(((*ns).owner.val, (*ns).group.val));
            }
            ns = (*ns).parent;
        }
    }
    found
}

/// Returns true if the running task has `CAP_SYS_ADMIN` in the initial namespace.
pub(crate) fn is_admin() -> bool {
    // SAFETY: Always safe to call from task context.
    unsafe { bindings::capable(bindings::CAP_SYS_ADMIN as i32) }
}
