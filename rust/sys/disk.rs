// SPDX-License-Identifier: GPL-2.0-only

//! Disks of clients as user space sees them, to send uevents about them.

use core::{
    ffi::CStr,
    ptr::{self, NonNull},
};

use kernel::{bindings, prelude::*};

use super::raw;

/// A reference to a disk.
///
/// # Invariants
///
/// The pointer is valid, and this object owns one reference to the device.
pub(crate) struct Disk(NonNull<bindings::device>);

// SAFETY: Any task may count references to devices and send events.
unsafe impl Send for Disk {}
// SAFETY: As above.
unsafe impl Sync for Disk {}

impl Disk {
    /// Returns the disk of the device whose table `ti` belongs to; `None` if the device has none.
    ///
    /// # Safety
    ///
    /// `ti` is a target under construction.
    pub(super) unsafe fn of_target(ti: *mut raw::dm_target) -> Option<Self> {
        // SAFETY: By the safety requirements of this function the table and its device exist; a
        // device has its disk from its creation on. The C function takes a reference.
        let device = unsafe { raw::nrs_md_disk(raw::dm_table_get_md((*ti).table)) };
        // INVARIANT: The C function took a reference.
        NonNull::new(device).map(Self)
    }

    /// Returns the disk of a queue; `None` if the queue has none.
    ///
    /// # Safety
    ///
    /// `q` is a queue whose disk, if any, is not removed during the call.
    #[cfg(feature = "elevator")]
    pub(super) unsafe fn of_queue(q: *mut bindings::request_queue) -> Option<Self> {
        // SAFETY: By the safety requirements of this function; the C function takes a reference.
        let device = unsafe { raw::nrs_queue_disk(q) };
        // INVARIANT: The C function took a reference.
        NonNull::new(device).map(Self)
    }

    /// Sends a change uevent of the disk with three variables `NAME=value`. With `hangs`, the
    /// uevent also tells the udev rules of device-mapper not to read the disk, by the names that
    /// lvm2 uses before and since 2.03.22. May sleep.
    pub(crate) fn send_uevent(&self, [first, second, third]: [&CStr; 3], hangs: bool) {
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
        // SAFETY: The device is valid by the type invariant. The words are C strings that outlive
        // the call, end with a null pointer, and are only read.
        unsafe { raw::nrs_disk_changed(self.0.as_ptr(), words.as_mut_ptr()) };
    }
}

#[cfg(feature = "elevator")]
impl Clone for Disk {
    fn clone(&self) -> Self {
        // SAFETY: The device is valid by the type invariant.
        unsafe { bindings::get_device(self.0.as_ptr()) };
        // INVARIANT: The reference is counted for the new object.
        Self(self.0)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // SAFETY: This object owns the reference by the type invariant, and does not use it after
        // this.
        unsafe { bindings::put_device(self.0.as_ptr()) };
    }
}
