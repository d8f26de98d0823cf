// SPDX-License-Identifier: GPL-2.0-only

//! Check that the running kernel has the private structures that the module was compiled for.
//!
//! C counterpart: `layout.c`, which has the table of compared values. The kernel's values are read
//! from the type information (BTF) in `/sys/kernel/btf/vmlinux`, because the kernel exports no
//! function that returns the name of a member.

use core::{ffi::CStr, slice};

use kernel::{bindings, error::from_err_ptr, ffi::c_char, fmt, prelude::*, types::ScopeGuard};

use crate::sys::raw;

use btf::{Difference, LayoutRow};

mod btf;

/// Largest accepted type information, bytes: several times that of a kernel with all options built
/// in.
const BTF_MAX: usize = 64 << 20;

/// Reason why the check failed.
pub(crate) enum LayoutMismatch {
    /// The kernel has no type information.
    Missing,
    /// The type information cannot be read.
    Unreadable(Error),
    /// The kernel's structures differ.
    Differs(Difference<'static>),
}

impl fmt::Display for LayoutMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => write!(f, "the kernel has no BTF"),
            Self::Unreadable(error) => write!(f, "BTF cannot be read: {error:?}"),
            Self::Differs(difference) => write!(f, "{difference}"),
        }
    }
}

/// Checks that the running kernel has the compiled layout of structures. A kernel built without
/// type information passes if the module was built against the build tree of this kernel.
///
/// # Errors
///
/// The first difference, or the reason why the kernel's type information cannot be read.
pub(crate) fn check() -> Result<(), LayoutMismatch> {
    // SAFETY: Always safe to call.
    if unsafe { raw::nrs_layout_is_given() } {
        return Ok(());
    }
    let bytes = read().map_err(|error| match error {
        ENOENT => LayoutMismatch::Missing,
        error => LayoutMismatch::Unreadable(error),
    })?;
    btf::compare(&bytes, rows()).map_err(LayoutMismatch::Differs)
}

/// Returns the table of `layout.c`.
fn rows() -> impl Iterator<Item = LayoutRow<'static>> {
    let mut len = 0;
    // SAFETY: `len` is valid for writes.
    let rows = unsafe { raw::nrs_layout_rows(&raw mut len) };
    // SAFETY: The function returns a constant array and stores the length of the array.
    let rows = unsafe { slice::from_raw_parts(rows, len) };
    let text = |name: *const c_char| {
        // SAFETY: Names are string literals of C.
        let text = unsafe { CStr::from_char_ptr(name) };
        text.to_str().unwrap_or("?")
    };
    rows.iter().map(move |row| LayoutRow {
        structure: text(row.structure),
        member: (!row.member.is_null()).then(|| text(row.member)),
        bytes: row.bytes,
        prototype: (!row.prototype.is_null()).then(|| text(row.prototype)),
    })
}

/// Reads the kernel's type information. `kernel_read_file` is not used: it passes the purpose to
/// the security modules, and IPE warns of purposes that it does not know.
fn read() -> Result<KVVec<u8>> {
    // SAFETY: The path ends in NUL. A process that loads a module may open files.
    let file = unsafe {
        bindings::filp_open(
            c"/sys/kernel/btf/vmlinux".as_char_ptr(),
            bindings::O_RDONLY as c_int,
            0,
        )
    };
    let file = ScopeGuard::new_with_data(from_err_ptr(file)?, |file| {
        // SAFETY: Releases the reference from opening the file.
        unsafe { bindings::fput(file) };
    });
    // SAFETY: The file is open.
    let end = unsafe { bindings::vfs_llseek(*file, 0, bindings::SEEK_END as c_int) };
    let size = usize::try_from(end).map_err(|_| Error::from_errno(end as c_int))?;
    if size > BTF_MAX {
        return Err(EFBIG);
    }
    let mut bytes = KVVec::from_elem(0, size, GFP_KERNEL)?;
    let (mut len, mut position) = (0, 0);
    while let Some(rest @ [_, ..]) = bytes.get_mut(len..) {
        // SAFETY: The file is open, `rest` and `position` are valid for writes.
        let read = unsafe {
            bindings::kernel_read(
                *file,
                rest.as_mut_ptr().cast(),
                rest.len(),
                &raw mut position,
            )
        };
        match usize::try_from(read) {
            Ok(0) => break,
            Ok(read) => len += read,
            Err(_) => return Err(Error::from_errno(read as c_int)),
        }
    }
    bytes.truncate(len);
    Ok(bytes)
}

#[kernel::prelude::kunit_tests(nrs_layout)]
mod tests {
    use super::*;

    /// Checks the debug kernel, which has no type information and is the module's build tree.
    #[test]
    fn a_kernel_built_without_btf_is_as_it_was_built() {
        assert!(check().is_ok());
        assert!(matches!(read(), Err(ENOENT)));
        assert!(rows().count() > 20);
    }
}
