// SPDX-License-Identifier: GPL-2.0-only

//! Directories and text files in debugfs.
//!
//! C headers: `include/linux/debugfs.h`, `include/linux/fs.h`. The kernel crate's debugfs files name no
//! owner, so the module could go while one is open; these name it, and `rmmod` is refused until the last
//! one is closed.
//!
//! # Vocabulary
//!
//! - *Directory*: [`Dir`]; it is removed with everything below when dropped.
//! - *Tree*: a directory whose files all show the same object ([`Tree`]).
//! - *File*: one line of a static table: a name, how to show, how to store ([`File`]).
//! - *Pieces*: a text that is written bit by bit and counts when the file is closed ([`pieces`]).
//! - *Snapshot*: the text that one open file serves; made at its first read and again at every read of
//!   offset 0, so a reader that goes on from there sees one moment.
//!
//! # Context
//!
//! Everything here sleeps. Dropping a [`Tree`] waits for calls of `show` and `store` that run: neither
//! may take a lock that is held by whoever drops it.
//!
//! Nothing here fails because of debugfs: where it is switched off or locked down there are no files.

use core::{fmt, marker::PhantomData, pin::Pin};

use kernel::{
    bindings, new_mutex,
    prelude::*,
    sync::{Arc, Mutex},
    types::ForeignOwnable,
    uaccess::{UserPtr, UserSlice},
};

mod pieces;

use self::pieces::Pieces;
use super::{misc::size, raw, series::THIS_MODULE, text::Text};

/// A line of a table of files.
///
/// What [`File::reads`] and [`File::writes`] return decides on the mode: 0444, 0644 or 0200.
pub(crate) trait File: Sync + 'static {
    /// What the files of one directory show.
    type Data: Send + Sync + 'static;

    /// The file's name.
    fn name(&self) -> &'static CStr;

    /// Whether it can be read.
    fn reads(&self) -> bool;

    /// Whether it can be written.
    fn writes(&self) -> bool;

    /// Bytes that one text may have.
    fn most(&self) -> usize;

    /// Whether a text may be written in pieces. Each time the lines so far are checked; the text is stored when the
    /// file is closed, whatever comes of it. Otherwise each write is a text and stored at once.
    fn takes_pieces(&self) -> bool;

    /// Writes the text of the file.
    fn show(&self, data: &Self::Data, out: &mut dyn fmt::Write) -> Result;

    /// Obeys what was written, without the newline at its end.
    fn store(&self, data: &Self::Data, text: &str) -> Result;

    /// Checks the first lines of a text.
    fn check(&self, data: &Self::Data, text: &str) -> Result;
}

/// A directory of its own.
///
/// # Invariants
///
/// `dentry` is an error pointer or what `debugfs_create_dir` returned, and nobody has removed it: its
/// parent outlives it.
pub(crate) struct Dir {
    dentry: *mut bindings::dentry,
    _parent: Option<Arc<Dir>>,
}

// SAFETY: debugfs locks its entries itself; a dentry belongs to no thread.
unsafe impl Send for Dir {}

// SAFETY: As above; what takes `&Dir` only passes the pointer to functions that lock.
unsafe impl Sync for Dir {}

impl Dir {
    /// Makes the directory `name` in `parent`, or at the top.
    pub(crate) fn new(name: &CStr, parent: Option<Arc<Dir>>) -> Self {
        let at = parent
            .as_ref()
            .map_or(core::ptr::null_mut(), |dir| dir.dentry);
        // SAFETY: `name` is a C string; `at` is null, an error pointer (which comes back) or, by the
        // invariant, a live directory.
        let dentry = unsafe { bindings::debugfs_create_dir(name.as_char_ptr(), at) };
        // INVARIANT: `dentry` was just made; `_parent` keeps the parent.
        Self {
            dentry,
            _parent: parent,
        }
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        // SAFETY: By the invariant this is an error pointer, which is ignored, or ours to remove.
        unsafe { bindings::debugfs_remove(self.dentry) };
    }
}

/// A directory with the files of a table, all about one object.
///
/// # Invariants
///
/// The private data of the files' inodes is a pointer to what `data` holds, their auxiliary pointer one to
/// a line of a static table. `dir` comes first, so no file is left when `data` is dropped.
pub(crate) struct Tree<F: File> {
    _dir: Dir,
    data: Arc<F::Data>,
    _file: PhantomData<&'static F>,
}

impl<F: File> Tree<F> {
    /// Makes the directory `name` in `parent` with the files of `table`, which show `data`.
    pub(crate) fn new(
        name: &CStr,
        parent: Arc<Dir>,
        table: impl Iterator<Item = &'static F>,
        data: Arc<F::Data>,
    ) -> Self {
        let dir = Dir::new(name, Some(parent));
        for file in table {
            let mode = match (file.reads(), file.writes()) {
                (true, false) => 0o444,
                (true, true) => 0o644,
                (false, _) => 0o200,
            };
            // SAFETY: `name` is a C string and `dir.dentry` a directory or an error pointer (which comes
            // back). INVARIANT: `&*data` stays valid until after `dir` is gone, `file` is static, and
            // `OPS` takes both for what they are. The result is not kept: `dir` removes it.
            unsafe {
                bindings::debugfs_create_file_full(
                    file.name().as_char_ptr(),
                    mode,
                    dir.dentry,
                    core::ptr::from_ref::<F::Data>(&data).cast_mut().cast(),
                    core::ptr::from_ref(file).cast(),
                    &Self::OPS,
                )
            };
        }
        Self {
            _dir: dir,
            data,
            _file: PhantomData,
        }
    }

    /// What the files show.
    pub(crate) fn data(&self) -> &Arc<F::Data> {
        &self.data
    }

    const OPS: bindings::file_operations = bindings::file_operations {
        owner: THIS_MODULE.as_ptr(),
        open: Some(Self::open),
        release: Some(Self::release),
        read: Some(Self::read),
        write: Some(Self::write),
        llseek: Some(bindings::default_llseek),
        ..pin_init::zeroed()
    };

    /// The line and the object of an open file.
    ///
    /// # Safety
    ///
    /// `file` is a live file that was made by [`Tree::new`] of this very type, and debugfs keeps it from
    /// being removed for `'a`.
    unsafe fn parts<'a>(file: *mut bindings::file) -> (&'a F, &'a F::Data) {
        // SAFETY: By the invariant of `Tree` and the requirement above these are pointers to a line of a
        // static table and to an object that lives while the file is not removed.
        unsafe {
            (
                &*bindings::debugfs_get_aux(file).cast::<F>(),
                &*(*(*file).f_inode).i_private.cast::<F::Data>(),
            )
        }
    }

    /// Opens a file, of which nothing was read or written.
    ///
    /// # Safety
    ///
    /// Called by debugfs only, with a file that is being opened.
    unsafe extern "C" fn open(_inode: *mut bindings::inode, file: *mut bindings::file) -> c_int {
        match KBox::pin_init(Opened::new(), GFP_KERNEL_ACCOUNT) {
            Ok(opened) => {
                // SAFETY: The file is being opened, so nobody else looks at it.
                unsafe { (*file).private_data = opened.into_foreign() };
                0
            }
            Err(error) => error.to_errno(),
        }
    }

    /// Closes a file, which may have been removed long ago.
    ///
    /// # Safety
    ///
    /// Called by the file system only, once, for a file that [`Tree::open`] opened.
    unsafe extern "C" fn release(_inode: *mut bindings::inode, file: *mut bindings::file) -> c_int {
        // SAFETY: `open` put it there; nobody uses a file that is being released.
        let opened = unsafe { <Pin<KBox<Opened>>>::from_foreign((*file).private_data) };
        // SAFETY: `file` is one of debugfs's own.
        if unsafe { raw::nrs_debugfs_get(file) } == 0 {
            // SAFETY: debugfs holds off removal from `get` to `put`.
            let (line, data) = unsafe { Self::parts(file) };
            opened.pieces.close(|text| {
                // There is nobody left to be told.
                let _ = text.and_then(|text| line.store(data, text));
            });
            // SAFETY: Got above, and `data` is not used any more.
            unsafe { raw::nrs_debugfs_put(file) };
        }
        0
    }

    /// Reads from a file's snapshot.
    ///
    /// # Safety
    ///
    /// Called by debugfs only, with a file that [`Tree::open`] opened and a valid `pos`.
    unsafe extern "C" fn read(
        file: *mut bindings::file,
        buf: *mut c_char,
        len: usize,
        pos: *mut bindings::loff_t,
    ) -> isize {
        // SAFETY: debugfs holds off removal while a call runs.
        let (line, data) = unsafe { Self::parts(file) };
        // SAFETY: `open` put it there and `release` has not run.
        let opened = unsafe { <Pin<KBox<Opened>>>::borrow((*file).private_data) };
        // SAFETY: `pos` is the caller's own.
        let pos = unsafe { &mut *pos };
        if !line.reads() {
            return size(Err(EINVAL));
        }
        size(
            opened
                .snapshot
                .read(|out| line.show(data, out), buf.cast(), len, pos),
        )
    }

    /// Takes one write as one command, or as a piece of a text.
    ///
    /// # Safety
    ///
    /// Called by debugfs only, with a file that [`Tree::open`] opened and a valid `pos`.
    unsafe extern "C" fn write(
        file: *mut bindings::file,
        buf: *const c_char,
        len: usize,
        pos: *mut bindings::loff_t,
    ) -> isize {
        // SAFETY: debugfs holds off removal while a call runs.
        let (line, data) = unsafe { Self::parts(file) };
        // SAFETY: `pos` is the caller's own.
        let pos = unsafe { &mut *pos };
        if !line.writes() {
            return size(Err(EINVAL));
        }
        let (buf, most) = (buf.cast_mut().cast(), line.most());
        if !line.takes_pieces() {
            return size(command(buf, len, most, pos, |text| line.store(data, text)));
        }
        // SAFETY: `open` put it there and `release` has not run.
        let opened = unsafe { <Pin<KBox<Opened>>>::borrow((*file).private_data) };
        let check = |text: &str| line.check(data, text);
        size(opened.pieces.add(buf, len, most, pos, check))
    }
}

/// Hands the `len` bytes at `buf` of the caller's memory to `obey` and moves `pos` behind them.
///
/// # Errors
///
/// - `E2BIG`: more than `most` bytes.
/// - `EINVAL`: not at offset 0, or not UTF-8.
/// - `EFAULT`: `buf` cannot be read.
/// - What `obey` returns.
fn command(
    buf: *mut c_void,
    len: usize,
    most: usize,
    pos: &mut bindings::loff_t,
    obey: impl FnOnce(&str) -> Result,
) -> Result<usize> {
    if *pos != 0 {
        return Err(EINVAL);
    }
    if len > most {
        return Err(E2BIG);
    }
    let mut bytes = KVVec::new();
    UserSlice::new(UserPtr::from_ptr(buf), len).read_all(&mut bytes, GFP_KERNEL)?;
    let text = core::str::from_utf8(&bytes).map_err(|_| EINVAL)?;
    obey(text.strip_suffix('\n').unwrap_or(text))?;
    *pos = bindings::loff_t::try_from(len).map_err(|_| E2BIG)?;
    Ok(len)
}

/// What one open file has served and taken.
#[pin_data]
struct Opened {
    #[pin]
    snapshot: Snapshot,
    #[pin]
    pieces: Pieces,
}

impl Opened {
    /// Nothing.
    fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            snapshot <- Snapshot::new(),
            pieces <- Pieces::new(),
        })
    }
}

/// The text that one open file serves.
#[pin_data]
struct Snapshot {
    #[pin]
    text: Mutex<Option<KVVec<u8>>>,
}

impl Snapshot {
    /// Without text.
    fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            text <- new_mutex!(None, "nrs_snapshot"),
        })
    }

    /// Copies up to `len` bytes from `pos` on to `buf` in the caller's memory and moves `pos` on.
    ///
    /// # Errors
    ///
    /// - `EFBIG`: the text has more than 64 MiB.
    /// - `ENOMEM`: no memory for the text.
    /// - `EFAULT`: `buf` cannot be written.
    /// - `EINVAL`: `pos` is negative.
    /// - What `show` returns.
    fn read(
        &self,
        show: impl FnOnce(&mut dyn fmt::Write) -> Result,
        buf: *mut c_void,
        len: usize,
        pos: &mut bindings::loff_t,
    ) -> Result<usize> {
        let mut text = self.text.lock();
        let current = match text.take() {
            Some(current) if *pos != 0 => current,
            _ => Text::of(show)?,
        };
        let copied = UserSlice::new(UserPtr::from_ptr(buf), len)
            .writer()
            .write_slice_file(&current, pos);
        *text = Some(current);
        copied
    }
}
