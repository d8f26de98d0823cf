// SPDX-License-Identifier: GPL-2.0-only

//! The disk that a client is for user space, to send events about it.

use core::{
    ffi::CStr,
    ptr::{self, NonNull},
};

use kernel::{bindings, prelude::*};

use super::raw;

/// A disk.
///
/// # Invariants
///
/// The pointer is valid, and the reference to what it points to is this one's own.
pub(crate) struct Disk(NonNull<bindings::device>);

// SAFETY: References to devices may be counted, and events sent, in any task.
unsafe impl Send for Disk {}
// SAFETY: As above.
unsafe impl Sync for Disk {}

impl Disk {
    /// The disk of the device whose table `ti` belongs to; `None`: it has none.
    ///
    /// # Safety
    ///
    /// `ti` is a target under construction.
    pub(super) unsafe fn of_target(ti: *mut raw::dm_target) -> Option<Self> {
        // SAFETY: By the caller's promise there are a table and its device, which has its disk from its start
        // on; the C function counts a reference.
        let device = unsafe { raw::nrs_md_disk(raw::dm_table_get_md((*ti).table)) };
        // INVARIANT: Counted for this one.
        NonNull::new(device).map(Self)
    }

    /// Returns the disk of a queue; `None`: the queue has none.
    ///
    /// # Safety
    ///
    /// `q` is a queue whose disk, if there is one, does not go meanwhile.
    #[cfg(feature = "elevator")]
    pub(super) unsafe fn of_queue(q: *mut bindings::request_queue) -> Option<Self> {
        // SAFETY: The caller promises it; the C function counts a reference.
        let device = unsafe { raw::nrs_queue_disk(q) };
        // INVARIANT: Counted for this one.
        NonNull::new(device).map(Self)
    }

    /// Tells all who listen that the disk has changed, and three `NAME=value` of how. While it `hangs`, the rules of
    /// device-mapper for udev are told not to read it for that, by the name of before and of after lvm2 2.03.22. May sleep.
    pub(crate) fn tell(&self, [first, second, third]: [&CStr; 3], hangs: bool) {
        let unread = |name: &'static CStr| match hangs {
            true => name.as_char_ptr().cast_mut(),
            false => ptr::null_mut(),
        };
        let mut words = [
            first.as_char_ptr().cast_mut(),
            second.as_char_ptr().cast_mut(),
            third.as_char_ptr().cast_mut(),
            unread(c"DM_NOSCAN=1"),
            unread(c".DM_NOSCAN=1"),
            ptr::null_mut(),
        ];
        // SAFETY: The device is there by the type invariant. The words are C strings that outlive the call, end
        // with a null pointer, and are only read.
        unsafe { raw::nrs_disk_changed(self.0.as_ptr(), words.as_mut_ptr()) };
    }
}

#[cfg(feature = "elevator")]
impl Clone for Disk {
    fn clone(&self) -> Self {
        // SAFETY: The device is there by the type invariant.
        unsafe { bindings::get_device(self.0.as_ptr()) };
        // INVARIANT: Counted for the new one.
        Self(self.0)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // SAFETY: The reference is this one's own by the type invariant, and not used any more.
        unsafe { bindings::put_device(self.0.as_ptr()) };
    }
}
