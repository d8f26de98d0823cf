// SPDX-License-Identifier: GPL-2.0-only

//! Who is running: identity of the task that submits a request.
//!
//! # Tasks that exit
//!
//! Requests also come from `do_exit` (kernel/exit.c): `exit_task_work` drops the last references to files, and closing
//! those writes back what they have in memory. By then the task has lost some of what it had:
//!
//! | step of `do_exit` | gone from then on | who would use it |
//! |---|---|---|
//! | `exit_signals`, `exit_mm` | pending signals, the address space | nobody |
//! | `exit_files`, `exit_fs` | open files, root and working directory | nobody |
//! | `exit_nsproxy_namespaces` | `nsproxy`, and with it the UTS namespace | [`hostname`], which takes the initial one then |
//! | **`exit_task_work`** | | requests |
//! | `cgroup_task_exit` | a place among the tasks of its cgroup; the pointer to the cgroup stays | nobody |
//! | `exit_notify` | once it is reaped: `signal`, `sighand`, links to its pid; `tgid` is a number and stays | nobody |
//! | the task is freed | credentials, `comm`, flags, the cgroup | [`Submitter`] |

use core::{marker::PhantomData, ptr};

use kernel::bindings;

use super::{bio::View, raw};

/// The running task, and the cgroup on whose behalf a request is made. The identity is read when it is asked for.
///
/// # Invariants
///
/// `task` is the task that runs this; it is not sent to another one. `bio` is null or valid for `'a`.
pub(crate) struct Submitter<'a> {
    task: *const bindings::task_struct,
    flags: u32,
    /// Names the cgroup; null: that of the task.
    bio: *mut bindings::bio,
    _bio: PhantomData<View<'a>>,
}

/// What tells submitters apart.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Whose {
    /// Executable name, padded with NUL.
    pub(crate) comm: [u8; 16],
    /// User and group, as [`Submitter::owner`] returns them.
    pub(crate) owner: Option<(u32, u32)>,
    /// Thread group id; 0: not asked for.
    pub(crate) pid: u32,
    /// Cgroup, as [`Submitter::cgroup`] returns it; `None` also if not asked for.
    pub(crate) cgroup: Option<u64>,
}

/// Returns the running task.
pub(crate) fn submitter() -> Submitter<'static> {
    // INVARIANT: A raw pointer keeps it in this task.
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
    /// Returns the same for a request whose first bio is `bio`. The bio names the cgroup that it is charged to, even when a
    /// kernel thread writes back what a task of that cgroup wrote.
    #[cfg(feature = "elevator")]
    pub(crate) fn of_bio(self, bio: View<'a>) -> Self {
        // INVARIANT: The view is valid for `'a`.
        Self {
            bio: bio.as_ptr(),
            ..self
        }
    }

    fn is_kthread(&self) -> bool {
        self.flags & bindings::PF_KTHREAD != 0
    }

    /// Returns whether the submitter is a kernel thread with its own credentials, which say nothing
    /// of the user that it works for.
    pub(crate) fn is_anonymous(&self) -> bool {
        // SAFETY: By the type invariant this task runs; only this task replaces its credentials.
        self.is_kthread() && unsafe { (*self.task).cred == (*self.task).real_cred }
    }

    /// Whether it is reclaiming memory: what it submits must not wait.
    pub(crate) fn reclaims(&self) -> bool {
        self.flags & bindings::PF_MEMALLOC != 0
    }

    /// Returns the file-system ids of the user and the group that the submitter works for, in the
    /// initial namespace; `None`: the submitter is anonymous.
    ///
    /// A task has credentials of its own, and may take other credentials for a while. Those that a
    /// task of root takes, or a kernel thread, are of the user that a server works for. Those that
    /// the task of another user takes are of the task that mounted an overlay.
    pub(crate) fn owner(&self) -> Option<(u32, u32)> {
        if self.is_anonymous() {
            return None;
        }
        // SAFETY: By the type invariant this task runs; its own credentials may be read without a
        // lock because only the task itself replaces them.
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
        // SAFETY: By the type invariant this task runs; the name is always NUL-terminated within its array and a torn
        // read of it gives a mixed name, nothing worse.
        unsafe { (*self.task).comm }
    }

    /// Returns what tells the submitter from others; the process and the cgroup if they are asked for.
    #[inline(always)]
    pub(crate) fn whose(&self, pid: bool, cgroup: bool) -> Whose {
        Whose {
            comm: self.comm(),
            owner: self.owner(),
            pid: if pid { self.pid() } else { 0 },
            cgroup: if cgroup { self.cgroup() } else { None },
        }
    }

    /// Returns the id of the cgroup on the unified hierarchy: that of the bio, if it is charged to one below the root, or else
    /// that of the task; `None` for a kernel thread, and 0 without cgroups.
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

    /// Returns the name of the cgroup of [`Self::cgroup`], without the cgroups above it; `None` for the root, which has none.
    /// The first 63 bytes of a longer one.
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
            // The name did not fit: what fits serves.
            Err(_) if len == -(bindings::E2BIG as i32) => buf.get(..buf.len() - 1),
            Err(_) => None,
        }
    }
}

/// Whether the running task may administrate the system: `CAP_SYS_ADMIN` in the initial namespace.
pub(crate) fn is_admin() -> bool {
    // SAFETY: Always safe to call from task context.
    unsafe { bindings::capable(bindings::CAP_SYS_ADMIN as i32) }
}

/// Returns whether the running task can be held back before it submits a request: it works for a user, is in no
/// transaction of a file system, reclaims no memory, and has no other requests to submit first.
#[cold]
pub(crate) fn can_be_held_back() -> bool {
    // SAFETY: Always safe to call from task context.
    !submitter().is_anonymous() && unsafe { raw::nrs_can_hold_back() }
}

/// Returns the host name of the running task's UTS namespace, or of the initial one for a task that has left its
/// namespaces: the last references to its files go after them (`exit_task_work` in `do_exit`), and writing back what
/// such a file has in memory submits requests.
pub(crate) fn hostname(buf: &mut [u8; 65]) -> &[u8] {
    // SAFETY: `buf` is valid for its length.
    let len = unsafe { raw::nrs_hostname(buf.as_mut_ptr().cast(), buf.len()) };
    let len = usize::try_from(len).unwrap_or(64);
    buf.get(..len).unwrap_or(&[])
}
