// SPDX-License-Identifier: GPL-2.0-only

//! A character device whose open files support read, write, poll and ioctl.
//!
//! C headers: `include/linux/miscdevice.h`, `include/linux/fs.h`, `include/linux/poll.h`. The misc
//! devices of the kernel crate have no `poll`. The devices here have it and set the owner, so
//! `rmmod` fails while a file is open.
//!
//! # Vocabulary
//!
//! - *Device*: the node in `/dev`; it exists while its [`DeviceRegistration`] does. Until the
//!   module is [`misc::loaded`], `open` returns `ENODEV`.
//! - *File*: one open file description ([`OpenFile`]); several tasks may use it concurrently.
//!
//! ```text
//!   open ──▶ OpenFile::open ──▶ read │ write │ ioctl │ poll, concurrently ──▶ dropped; may sleep
//! ```

use core::{marker::PhantomData, ptr};

use kernel::{
    bindings,
    error::to_result,
    fs,
    prelude::*,
    seq_file::SeqFile,
    sync::poll::PollTable,
    types::{ForeignOwnable, Opaque},
    uaccess::{UserPtr, UserSlice, UserSliceReader, UserSliceWriter},
};

use super::{
    misc::{self, size},
    series::THIS_MODULE,
};

pub(crate) mod boxed;

/// Read position in a file.
pub(crate) type Offset = fs::file::Offset;

/// Poll mask: data can be read.
pub(crate) const READABLE: u32 = bindings::POLLIN | bindings::POLLRDNORM;

/// Poll mask: there is room to write.
pub(crate) const WRITABLE: u32 = bindings::POLLOUT | bindings::POLLWRNORM;

/// Poll mask: the file is in an error state.
pub(crate) const BROKEN: u32 = bindings::POLLERR;

/// An open file of a device.
pub(crate) trait OpenFile: Send + Sync + Sized + 'static {
    /// Name of the device node.
    const NAME: &'static CStr;
    /// Initial permissions of the device node; user space may change them.
    const MODE: u16;
    /// True if reads continue at the file position or at the offset of the call, and a write resets
    /// the position. Otherwise files have no position, and the offset of a read is always 0.
    const SEEKABLE: bool = false;

    /// Opens a file.
    ///
    /// # Errors
    ///
    /// The errno for `open`.
    fn open() -> Result<Pin<KBox<Self>>>;

    /// Copies data from `offset` to `out` and advances `offset`; sleeps until there is data unless
    /// `nonblocking`.
    ///
    /// # Errors
    ///
    /// The errno for `read`.
    fn read(&self, out: UserSliceWriter, offset: &mut Offset, nonblocking: bool) -> Result<usize>;

    /// Reads data from `from`; sleeps until there is room unless `nonblocking`. Returns the number
    /// of bytes taken.
    ///
    /// # Errors
    ///
    /// The errno for `write`.
    fn write(&self, from: UserSliceReader, nonblocking: bool) -> Result<usize>;

    /// Registers `table` for changes and returns the current poll mask: [`READABLE`], [`WRITABLE`],
    /// [`BROKEN`]. By default a file is always ready.
    fn poll(&self, _file: &fs::File, _table: PollTable<'_>) -> u32 {
        READABLE | WRITABLE
    }

    /// Executes ioctl `cmd` with the address `arg`.
    ///
    /// # Errors
    ///
    /// The errno for `ioctl`.
    fn ioctl(&self, _cmd: u32, _arg: UserPtr) -> Result {
        Err(ENOTTY)
    }

    /// Writes the file's lines of `/proc/PID/fdinfo`.
    fn show(&self, _out: &SeqFile) {}
}

/// File operations of [`OpenFile`]s.
struct FileOperations<F: OpenFile>(PhantomData<F>);

impl<F: OpenFile> FileOperations<F> {
    const OPS: bindings::file_operations = bindings::file_operations {
        owner: THIS_MODULE.as_ptr(),
        open: Some(Self::open),
        release: Some(Self::release),
        read: Some(Self::read),
        write: Some(Self::write),
        poll: Some(Self::poll),
        unlocked_ioctl: Some(Self::ioctl),
        #[cfg(CONFIG_COMPAT)]
        compat_ioctl: bindings::compat_ptr_ioctl,
        llseek: Some(if F::SEEKABLE {
            bindings::no_seek_end_llseek
        } else {
            bindings::noop_llseek
        }),
        show_fdinfo: Some(Self::show_fdinfo),
        ..pin_init::zeroed()
    };

    /// Returns the [`OpenFile`] of `file`.
    ///
    /// # Safety
    ///
    /// [`Self::open`] opened `file`, which stays open for `'a`.
    unsafe fn of<'a>(file: *mut bindings::file) -> &'a F {
        // SAFETY: `open` stored a box there; only `release` takes it back.
        unsafe { <Pin<KBox<F>>>::borrow((*file).private_data) }.get_ref()
    }

    /// Returns true if calls must not wait (`O_NONBLOCK`).
    ///
    /// # Safety
    ///
    /// `file` is a live file.
    unsafe fn nonblocking(file: *mut bindings::file) -> bool {
        // SAFETY: The file is live; the flags are one word that other tasks may change at any time.
        unsafe { ptr::read_volatile(&raw const (*file).f_flags) & bindings::O_NONBLOCK != 0 }
    }

    /// Opens a file.
    ///
    /// # Safety
    ///
    /// Called by the file system only, with a file that is being opened.
    unsafe extern "C" fn open(inode: *mut bindings::inode, file: *mut bindings::file) -> c_int {
        if !misc::is_loaded() {
            return ENODEV.to_errno();
        }
        if !F::SEEKABLE {
            // SAFETY: Both are valid while the file is being opened. Reads and writes have no
            // common position, so they do not wait for each other.
            let status = unsafe { bindings::stream_open(inode, file) };
            if status != 0 {
                return status;
            }
        }
        match F::open() {
            Ok(this) => {
                // SAFETY: The file is being opened, so no other task accesses it.
                unsafe { (*file).private_data = this.into_foreign() };
                0
            }
            Err(error) => error.to_errno(),
        }
    }

    /// Closes a file.
    ///
    /// # Safety
    ///
    /// Called by the file system only, once, for a file that [`Self::open`] opened.
    unsafe extern "C" fn release(_inode: *mut bindings::inode, file: *mut bindings::file) -> c_int {
        // SAFETY: `open` stored the box; no task uses a file that is being released.
        drop(unsafe { <Pin<KBox<F>>>::from_foreign((*file).private_data) });
        0
    }

    /// Reads from a file.
    ///
    /// # Safety
    ///
    /// Called by the file system only, with a file that [`Self::open`] opened and a `pos` that is
    /// null or valid.
    unsafe extern "C" fn read(
        file: *mut bindings::file,
        buf: *mut c_char,
        len: usize,
        pos: *mut bindings::loff_t,
    ) -> isize {
        // SAFETY: The file is open while it is read.
        let (this, nonblocking) = unsafe { (Self::of(file), Self::nonblocking(file)) };
        let out = UserSlice::new(UserPtr::from_ptr(buf.cast()), len).writer();
        let mut start = 0;
        // SAFETY: `pos` is null or the caller's own.
        let offset = unsafe { pos.as_mut() }.unwrap_or(&mut start);
        size(this.read(out, offset, nonblocking))
    }

    /// Writes to a file.
    ///
    /// # Safety
    ///
    /// Called by the file system only, with a file that [`Self::open`] opened and a `pos` that is
    /// null or valid.
    unsafe extern "C" fn write(
        file: *mut bindings::file,
        buf: *const c_char,
        len: usize,
        pos: *mut bindings::loff_t,
    ) -> isize {
        // SAFETY: The file is open while it is written.
        let (this, nonblocking) = unsafe { (Self::of(file), Self::nonblocking(file)) };
        let from = UserSlice::new(UserPtr::from_ptr(buf.cast_mut().cast()), len).reader();
        let result = this.write(from, nonblocking);
        if F::SEEKABLE {
            // The file system copies `pos` to the file position only if the write succeeded.
            // SAFETY: The file is open while it is written; its position is one word that tasks
            // which share the file may change at any time. `pos` is null or the caller's own.
            unsafe {
                ptr::write_volatile(&raw mut (*file).f_pos, 0);
                if let Some(pos) = pos.as_mut() {
                    *pos = 0;
                }
            }
        }
        size(result)
    }

    /// Polls a file.
    ///
    /// # Safety
    ///
    /// Called by the file system only, with a file that [`Self::open`] opened and a table that is
    /// null or valid.
    unsafe extern "C" fn poll(
        file: *mut bindings::file,
        table: *mut bindings::poll_table,
    ) -> bindings::__poll_t {
        // SAFETY: The file is open while it is polled, and this task holds no reference to its
        // position; the table is the caller's.
        let (this, file, table) = unsafe {
            (
                Self::of(file),
                fs::File::from_raw_file(file),
                PollTable::from_raw(table),
            )
        };
        this.poll(file, table)
    }

    /// Executes an ioctl.
    ///
    /// # Safety
    ///
    /// Called by the file system only, with a file that [`Self::open`] opened.
    unsafe extern "C" fn ioctl(file: *mut bindings::file, cmd: c_uint, arg: c_ulong) -> c_long {
        // SAFETY: The file is open during an ioctl.
        let this = unsafe { Self::of(file) };
        match this.ioctl(cmd, UserPtr::from_addr(arg)) {
            Ok(()) => 0,
            Err(error) => error.to_errno() as c_long,
        }
    }

    /// Writes a file's lines of `/proc/PID/fdinfo`.
    ///
    /// # Safety
    ///
    /// Called by the file system only, with a file that [`Self::open`] opened.
    unsafe extern "C" fn show_fdinfo(seq: *mut bindings::seq_file, file: *mut bindings::file) {
        // SAFETY: Both are valid during the call.
        let (this, out) = unsafe { (Self::of(file), SeqFile::from_raw(seq)) };
        this.show(out);
    }
}

/// A registered device; dropping the registration removes the device.
///
/// # Invariants
///
/// `device` is registered and does not move.
pub(crate) struct DeviceRegistration<F: OpenFile> {
    device: Pin<KBox<Opaque<bindings::miscdevice>>>,
    _file: PhantomData<F>,
}

// SAFETY: After registration only the kernel uses the structure, under its own lock.
unsafe impl<F: OpenFile> Send for DeviceRegistration<F> {}
// SAFETY: As above.
unsafe impl<F: OpenFile> Sync for DeviceRegistration<F> {}

impl<F: OpenFile> DeviceRegistration<F> {
    /// Creates the device.
    ///
    /// # Errors
    ///
    /// `EBUSY`: no minor number is free; `ENOMEM`; `EEXIST`: a device of this name exists.
    pub(crate) fn new() -> Result<Self> {
        let device = bindings::miscdevice {
            minor: bindings::MISC_DYNAMIC_MINOR as c_int,
            name: F::NAME.as_char_ptr(),
            fops: &FileOperations::<F>::OPS,
            mode: F::MODE,
            ..pin_init::zeroed()
        };
        let device = KBox::pin(Opaque::new(device), GFP_KERNEL)?;
        // INVARIANT: Pinned, and deregistered before it is freed.
        // SAFETY: The structure is complete and is not moved until it is deregistered.
        to_result(unsafe { bindings::misc_register(device.get()) })?;
        Ok(Self {
            device,
            _file: PhantomData,
        })
    }
}

impl<F: OpenFile> Drop for DeviceRegistration<F> {
    fn drop(&mut self) {
        // SAFETY: Registered by `new`; no file is open, because open files pin the module.
        unsafe { bindings::misc_deregister(self.device.get()) };
    }
}
