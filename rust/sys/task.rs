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
//! | `exit_nsproxy_namespaces` | `nsproxy`, UTS namespace | [`hostname`]: uses the initial one |
//! | **`exit_task_work`** | | requests |
//! | `cgroup_task_exit` | list entry in its cgroup; the pointer to the cgroup stays | none |
//! | `exit_notify` | once reaped: `signal`, `sighand`, pid links; the number `tgid` stays | none |
//! | the task is freed | credentials, `comm`, flags, the cgroup | [`Submitter`] |

use core::{marker::PhantomData, ptr};

use kernel::bindings;

use super::{bio::BioView, raw};

/// The running task, and the cgroup for which a request is made. Each attribute is read when it is
/// needed.
///
/// # Invariants
///
/// `task` is the running task, and `self` is not sent to another one. `bio` is null or valid for
/// `'a`.
pub(crate) struct Submitter<'a> {
    task: *const bindings::task_struct,
    flags: u32,
    /// Bio that determines the cgroup; null: the cgroup of the task.
    bio: *mut bindings::bio,
    _bio: PhantomData<BioView<'a>>,
}

/// Attributes that distinguish submitters.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct SubmitterId {
    /// Executable name, padded with NUL.
    pub(crate) comm: [u8; 16],
    /// User and group from [`Submitter::owner`].
    pub(crate) owner: Option<(u32, u32)>,
    /// Thread group id; 0 if not requested.
    pub(crate) pid: u32,
    /// Cgroup from [`Submitter::cgroup`]; `None` also if not requested.
    pub(crate) cgroup: Option<u64>,
}

/// Returns the running task.
pub(crate) fn submitter() -> Submitter<'static> {
    // INVARIANT: The raw pointer makes `Submitter` neither `Send` nor `Sync`.
    // SAFETY: `current` is valid while this task runs.
    unsafe {
        let task = bindings::get_current();
        Submitter {
            task,
            flags: (*task).flags,
            bio: ptr::null_mut(),
            _bio: PhantomData,
        }
    }
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

    fn is_kthread(&self) -> bool {
        self.flags & bindings::PF_KTHREAD != 0
    }

    /// Returns true for a kernel thread with its own credentials, which do not identify the user
    /// for whom it works.
    pub(crate) fn is_anonymous(&self) -> bool {
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
    pub(crate) fn owner(&self) -> Option<(u32, u32)> {
        if self.is_anonymous() {
            return None;
        }
        // SAFETY: By the type invariant this task runs; its credentials may be read without a lock
        // because only the task itself replaces them.
        let [own, taken] = unsafe {
            [(*self.task).real_cred, (*self.task).cred]
                .map(|cred| ((*cred).fsuid.val, (*cred).fsgid.val))
        };
        Some(if own.0 == 0 { taken } else { own })
    }

    /// Returns the thread group id.
    pub(crate) fn pid(&self) -> u32 {
        // SAFETY: By the type invariant this task runs.
        unsafe { (*self.task).tgid.unsigned_abs() }
    }

    /// Returns the executable name, padded with NUL.
    fn comm(&self) -> [u8; 16] {
        // SAFETY: By the type invariant this task runs; the name is always NUL-terminated within
        // its array, and a torn read only yields a mixed name.
        unsafe { (*self.task).comm }
    }

    /// Returns the attributes of the submitter, with the process if `pid` and the cgroup if
    /// `cgroup`.
    #[inline(always)]
    pub(crate) fn whose(&self, pid: bool, cgroup: bool) -> SubmitterId {
        SubmitterId {
            comm: self.comm(),
            owner: self.owner(),
            pid: if pid { self.pid() } else { 0 },
            cgroup: if cgroup { self.cgroup() } else { None },
        }
    }

    /// Returns the id of the cgroup on the unified hierarchy: that of the bio, if the bio is
    /// charged to one below the root, else that of the task. `None` for a kernel thread; 0 without
    /// cgroups.
    pub(crate) fn cgroup(&self) -> Option<u64> {
        if !self.bio.is_null() {
            // SAFETY: By the type invariant.
            let id = unsafe { raw::nrs_bio_cgroup(self.bio) };
            if id != 0 {
                return Some(id);
            }
        }
        if self.is_kthread() {
            return None;
        }
        // SAFETY: Always safe to call from task context.
        Some(unsafe { raw::nrs_current_cgroup() })
    }

    /// Returns the last component of the path of the cgroup of [`Self::cgroup`], at most 63 bytes;
    /// `None` for the root.
    pub(crate) fn cgroup_name<'b>(&self, buf: &'b mut [u8; 64]) -> Option<&'b [u8]> {
        let (text, size) = (buf.as_mut_ptr().cast(), buf.len());
        let mut len = -(bindings::ENODATA as i32);
        if !self.bio.is_null() {
            // SAFETY: By the type invariant, and `buf` is valid for its length.
            len = unsafe { raw::nrs_bio_cgroup_name(self.bio, text, size) };
        }
        if len == -(bindings::ENODATA as i32) && !self.is_kthread() {
            // SAFETY: `buf` is valid for its length.
            len = unsafe { raw::nrs_current_cgroup_name(text, size) };
        }
        match usize::try_from(len) {
            Ok(len) => buf.get(..len).filter(|name| !name.is_empty()),
            // The name did not fit and is truncated.
            Err(_) if len == -(bindings::E2BIG as i32) => buf.get(..buf.len() - 1),
            Err(_) => None,
        }
    }
}

/// Returns true if the running task has `CAP_SYS_ADMIN` in the initial namespace.
pub(crate) fn is_admin() -> bool {
    // SAFETY: Always safe to call from task context.
    unsafe { bindings::capable(bindings::CAP_SYS_ADMIN as i32) }
}

/// Returns true if the running task can be throttled before it submits a request. Such a task works
/// for a user, is in no transaction of a file system, reclaims no memory, and has no other bios to
/// submit first.
#[cold]
pub(crate) fn can_be_throttled() -> bool {
    // SAFETY: Always safe to call from task context.
    !submitter().is_anonymous() && unsafe { raw::nrs_can_hold_back() }
}

/// Returns the host name of the running task's UTS namespace, or of the initial one if the task has
/// left its namespaces. An exiting task drops the last references to its files later
/// (`exit_task_work` in `do_exit`), and writing back the dirty pages of such a file submits
/// requests.
pub(crate) fn hostname(buf: &mut [u8; 65]) -> &[u8] {
    // SAFETY: `buf` is valid for its length.
    let len = unsafe { raw::nrs_hostname(buf.as_mut_ptr().cast(), buf.len()) };
    let len = usize::try_from(len).unwrap_or(64);
    buf.get(..len).unwrap_or(&[])
}
