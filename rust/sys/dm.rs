// SPDX-License-Identifier: GPL-2.0-only

//! Safe wrappers of device-mapper targets.
//!
//! # Vocabulary
//!
//! - *Target*: one line of a dm table; it implements [`DmTarget`].
//! - *Lower device*: the block device below the target, [`TargetContext`].
//! - *Bio*: one request from above, [`Bio`], owned by `map` until `map` returns a [`MapOutcome`].
//! - *Per-bio area*: memory that device-mapper allocates with each bio; it contains the [`Node`].
//!
//! ```text
//!            Bio::bypass           ──▶ MapOutcome::Remapped   (not accounted: empty flushes)
//!   map ──▶  Bio::into_held ──▶ Held ──▶ MapOutcome::passed   (dispatched immediately)
//!            (or Bio::time_out)    └──▶ MapOutcome::Submitted (queued) ──▶ Held::submit
//!                                                                               │
//!   DmTarget::ended ◀── end_io ◀────────── lower device ◀───────────────────────┘
//!                         └──▶ DmTarget::defer ──▶ Held::count_end, Held::end (if it defers)
//! ```
//!
//! Device-mapper calls `BUG()` for an unknown result of `map`, so results are of type
//! [`MapOutcome`], and a [`MapOutcome::passed`] requires the [`Held`]. `end_io` is called for all
//! bios except killed ones, so the first word of the per-bio area shows whether the bio is
//! accounted.
//!
//! C header: [`include/linux/device-mapper.h`](srctree/include/linux/device-mapper.h)

use core::{
    ffi::CStr,
    fmt,
    marker::PhantomData,
    mem::{self, ManuallyDrop},
    ptr::{self, NonNull},
};

use kernel::{
    bindings,
    error::to_result,
    ffi::{c_char, c_int, c_uint, c_ulong, c_void},
    prelude::*,
    str::CString,
    types::Opaque,
};

use super::{
    disk::Disk,
    node::{Held, Node, NodeAccount, Ops},
    raw,
    text::Reply,
};
use crate::sched::item::Cost;

mod args;
mod bio;

pub(crate) use args::Args;
pub(crate) use bio::{Bio, MapOutcome};

use bio::PerBio;

/// Reason for refusing a table or a message: one line, and the errno.
pub(crate) struct TableRefusal {
    /// Errno to return.
    pub(crate) error: Error,
    /// Line that names the argument.
    pub(crate) reason: &'static CStr,
}

impl TableRefusal {
    /// Creates a refusal with `EINVAL` and `reason`.
    pub(crate) fn invalid(reason: &'static CStr) -> Self {
        Self {
            error: EINVAL,
            reason,
        }
    }
}

/// Parameters of a target that device-mapper needs.
pub(crate) struct TargetPlan<C> {
    /// Path or `major:minor` of the lower device.
    pub(crate) device: CString,
    /// First sector on the lower device.
    pub(crate) offset: u64,
    /// True if flushes without data bypass the target, and a flush with data is not split into two
    /// bios.
    pub(crate) flushes_pass: bool,
    /// Configuration of the target.
    pub(crate) config: C,
}

/// Devices of a target, passed to [`DmTarget::create`].
pub(crate) struct TargetContext<'a> {
    /// `major:minor` of the lower device.
    pub(crate) name: &'a CStr,
    /// `major:minor` of the mapped device that the table is for.
    pub(crate) mapped: &'a CStr,
    /// Name of the mapped device when the table is loaded.
    pub(crate) label: &'a CStr,
    /// Disk of the mapped device.
    pub(crate) disk: Disk,
    /// Device number of the lower device.
    pub(crate) number: u32,
    /// Device number of its disk, if the lower device is a partition; else the same.
    pub(crate) whole: u32,
    /// Requests that the lower device's queue keeps in flight; 0 if unknown.
    pub(crate) depth: u32,
}

/// A device-mapper target.
pub(crate) trait DmTarget: Send + Sync + Sized + 'static {
    /// Name of the target in tables.
    const NAME: &'static CStr;
    /// Version: major, minor, patch level.
    const VERSION: [u32; 3];
    /// Configuration that a table line sets beyond the lower device.
    type Config;

    /// Parses the words of a table line.
    fn parse(args: &Args<'_>) -> Result<TargetPlan<Self::Config>, TableRefusal>;

    /// Creates the target; dropping it must remove all that it registers.
    fn create(config: Self::Config, lower: TargetContext<'_>) -> Result<Self, TableRefusal>;

    /// Decides how to process `bio`. Task context; may sleep, except for a bio with
    /// [`BioView::is_nowait`](super::bio::BioView::is_nowait).
    fn map(&self, bio: Bio<'_, Self>) -> MapOutcome;

    /// Returns true if a held request is to be dispatched now; otherwise it ends with `ETIMEDOUT`.
    fn submitting(&self, account: &mut NodeAccount) -> bool;

    /// Returns true if [`DmTarget::defer`] takes an accounted request that has ended. Any context,
    /// even hard interrupts.
    fn defers(&self, account: &NodeAccount) -> bool;

    /// Defers the end of an accounted request to a task, which counts the end and then ends the
    /// request. Any context.
    fn defer(&self, held: Held);

    /// Counts the end of an accounted request; `error` is the negative errno, or 0; `ENODEV`: the
    /// lower device is offline or was removed. Any context, even hard interrupts.
    fn ended(&self, account: &mut NodeAccount, cost: Cost, error: i32);

    /// Prepares for a suspend of the device: all held requests must be dispatched.
    fn presuspend(&self);

    /// Resumes the device after a suspend or an aborted suspend.
    fn resume(&self);

    /// Writes the output of `dmsetup status`.
    fn status(&self, out: &mut dyn fmt::Write) -> fmt::Result;

    /// Writes the output of `dmsetup table` after device and offset.
    fn table(&self, out: &mut dyn fmt::Write) -> fmt::Result;

    /// Executes `dmsetup message`.
    fn message(&self, args: &Args<'_>, out: &mut dyn fmt::Write) -> Result;
}

/// A target of a loaded table.
struct TargetInstance<T: DmTarget> {
    lower: *mut raw::dm_dev,
    offset: u64,
    target: ManuallyDrop<T>,
}

impl<T: DmTarget> TargetInstance<T> {
    const OPS: &'static Ops = &Ops {
        prepare_queued: Self::prepare_queued,
        submit: Self::submit,
        count_end: Self::count_end,
        end: Self::end,
    };

    /// Returns the instance behind `ti`.
    ///
    /// # Safety
    ///
    /// `ctr` of this type has succeeded for the target `ti`, and `dtr` has not run.
    unsafe fn of<'a>(ti: *mut raw::dm_target) -> &'a Self {
        // SAFETY: `ctr` stored a pointer from `KBox::into_raw`, which `dtr` takes back.
        unsafe { &*(*ti).private.cast::<Self>() }
    }

    /// Clears `REQ_NOWAIT` and `REQ_POLLED`: a held bio may be delayed, and its submitter need not
    /// poll for it.
    ///
    /// # Safety
    ///
    /// As required by [`Ops::prepare_queued`].
    unsafe fn prepare_queued(node: NonNull<Node>) {
        const NOWAIT: u32 = 1 << bindings::req_flag_bits___REQ_NOWAIT;
        const POLLED: u32 = 1 << bindings::req_flag_bits___REQ_POLLED;
        // SAFETY: The node is in a per-bio area, and the module owns the bio while it is held.
        unsafe {
            let bio = PerBio::bio(PerBio::around(node));
            (*bio).bi_opf &= !(NOWAIT | POLLED);
        }
    }

    /// Dispatches a held bio.
    ///
    /// # Safety
    ///
    /// As required by [`Ops::submit`].
    unsafe fn submit(node: NonNull<Node>) {
        // SAFETY: The node is in a per-bio area that is valid until the bio ends, and the target
        // exists until all its bios have ended. There is no other owner of the bio, so it may be
        // dispatched or ended here.
        unsafe {
            let area = PerBio::around(node);
            let (bio, ti) = (PerBio::bio(area), (*area).target);
            let account = (*area).node.account_mut();
            if Self::of(ti).target.submitting(account) {
                raw::dm_submit_bio_remap(bio, ptr::null_mut());
            } else {
                raw::nrs_bio_end(bio, ETIMEDOUT.to_errno());
            }
        }
    }

    /// Counts the end of a bio.
    ///
    /// # Safety
    ///
    /// As required by [`Ops::count_end`].
    unsafe fn count_end(node: NonNull<Node>) {
        // SAFETY: The node is in a per-bio area that is valid until the bio ends, and the bio has
        // no other owner.
        unsafe {
            let area = PerBio::around(node);
            Self::account(area, PerBio::bio(area));
        }
    }

    /// Ends a bio whose end was deferred, by a second call of its `bi_end_io`.
    ///
    /// # Safety
    ///
    /// As required by [`Ops::end`].
    unsafe fn end(node: NonNull<Node>) {
        // SAFETY: As in `count_end`. Only `bi_end_io` is called: `bio_endio` did the rest when the
        // bio completed.
        unsafe {
            let bio = PerBio::bio(PerBio::around(node));
            if let Some(end) = (*bio).bi_end_io {
                end(bio);
            }
        }
    }

    /// Counts the end of `bio`, whose area is `area`.
    ///
    /// # Safety
    ///
    /// The bio is accounted and has ended; no other code uses it.
    #[inline]
    unsafe fn account(area: *mut PerBio, bio: *mut bindings::bio) {
        // SAFETY: By the safety requirements of this function; the target exists until all its bios
        // have ended.
        unsafe {
            let instance = Self::of(mem::replace(&mut (*area).target, ptr::null_mut()));
            let error = match (*bio).bi_status {
                0 => 0,
                _ if instance.is_lower_gone() => ENODEV.to_errno(),
                status => bindings::blk_status_to_errno(status),
            };
            let node = &mut (*area).node;
            let cost = node.cost();
            instance.target.ended(node.account_mut(), cost, error);
        }
    }

    /// Returns true if the disk of the lower device was removed: the block layer then sets its
    /// capacity to 0.
    fn is_lower_gone(&self) -> bool {
        // SAFETY: The lower device is open while the instance exists, which keeps its disk.
        unsafe { (*(*(*(*self.lower).bdev).bd_disk).part0).bd_nr_sectors == 0 }
    }

    /// Creates a target.
    ///
    /// # Safety
    ///
    /// Called by device-mapper only, as documented for `ctr`.
    unsafe extern "C" fn ctr(
        ti: *mut raw::dm_target,
        argc: c_uint,
        argv: *mut *mut c_char,
    ) -> c_int {
        // SAFETY: Device-mapper passes a valid target and `argc` words.
        match unsafe { Self::construct(ti, &Args::new(argc, argv)) } {
            Ok(()) => 0,
            Err(refusal) => {
                // SAFETY: `ti` is valid; device-mapper only prints the text.
                unsafe { (*ti).error = refusal.reason.as_char_ptr().cast_mut() };
                refusal.error.to_errno()
            }
        }
    }

    /// Parses the table line and creates the instance.
    ///
    /// # Safety
    ///
    /// `ti` is a target under construction.
    unsafe fn construct(ti: *mut raw::dm_target, args: &Args<'_>) -> Result<(), TableRefusal> {
        let plan = T::parse(args)?;
        let no_memory = |_| TableRefusal {
            error: ENOMEM,
            reason: c"Out of memory",
        };
        // Allocated first, so that a failure needs no cleanup.
        let instance = KBox::<Self>::new_uninit(GFP_KERNEL).map_err(no_memory)?;

        let mut lower = ptr::null_mut();
        // SAFETY: `ti` is valid, the path is a C string, `lower` is valid for writes.
        to_result(unsafe {
            raw::dm_get_device(
                ti,
                plan.device.as_char_ptr(),
                raw::dm_table_get_mode((*ti).table),
                &mut lower,
            )
        })
        .map_err(|error| TableRefusal {
            error,
            reason: c"DEVICE: cannot be opened",
        })?;

        let made = || -> Result<T, TableRefusal> {
            // SAFETY: `lower` was opened above and `ti` belongs to a table.
            let (bdev, name, mapped) = unsafe {
                (
                    (*lower).bdev,
                    CStr::from_char_ptr((&raw const (*lower).name).cast()),
                    CStr::from_char_ptr(raw::dm_table_device_name((*ti).table)),
                )
            };
            // SAFETY: `bdev` is open.
            if unsafe { raw::nrs_bdev_is_zoned(bdev) } {
                return Err(TableRefusal::invalid(
                    c"DEVICE: zoned devices are not supported",
                ));
            }
            let mut label = [0u8; raw::DM_NAME_LEN as usize];
            // SAFETY: `ti` belongs to a table and the table to a device; the name fits with its
            // NUL.
            to_result(unsafe {
                raw::dm_copy_name_and_uuid(
                    raw::dm_table_get_md((*ti).table),
                    label.as_mut_ptr().cast(),
                    ptr::null_mut(),
                )
            })
            .map_err(|error| TableRefusal {
                error,
                reason: c"The device has no name",
            })?;
            // SAFETY: `ti` is under construction.
            let disk = unsafe { Disk::of_target(ti) }.ok_or(TableRefusal {
                error: ENODEV,
                reason: c"The device has no disk",
            })?;
            T::create(
                plan.config,
                TargetContext {
                    disk,
                    name,
                    mapped,
                    label: CStr::from_bytes_until_nul(&label).unwrap_or(mapped),
                    // SAFETY: `bdev` is open.
                    number: unsafe { (*bdev).bd_dev },
                    // SAFETY: `bdev` is open.
                    whole: unsafe { raw::nrs_bdev_disk(bdev) },
                    // SAFETY: `bdev` is open.
                    depth: unsafe { raw::nrs_bdev_depth(bdev) },
                },
            )
        };
        let target = match made() {
            Ok(target) => target,
            Err(refusal) => {
                // SAFETY: Opened above and not stored.
                unsafe { raw::dm_put_device(ti, lower) };
                return Err(refusal);
            }
        };

        let instance = instance.write(Self {
            lower,
            offset: plan.offset,
            target: ManuallyDrop::new(target),
        });
        // SAFETY: `ti` is under construction, so no other code uses it.
        unsafe {
            (*ti).private = KBox::into_raw(instance).cast();
            (*ti).per_io_data_size = size_of::<PerBio>() as c_uint;
            (*ti).num_flush_bios = 1;
            (*ti).num_discard_bios = 1;
            (*ti).num_secure_erase_bios = 1;
            (*ti).num_write_zeroes_bios = 1;
            raw::dm_target::set_limit_swap_bios_raw(ti, true);
            raw::dm_target::set_flush_bypasses_map_raw(ti, plan.flushes_pass);
            // `dm_submit_bio_remap` alone accounts a bio that the target submits later.
            raw::dm_target::set_accounts_remapped_io_raw(ti, true);
        }
        Ok(())
    }

    /// Releases a target and its lower device.
    ///
    /// # Safety
    ///
    /// Called by device-mapper only, as documented for `dtr`.
    unsafe extern "C" fn dtr(ti: *mut raw::dm_target) {
        // SAFETY: Stored by `construct`; device-mapper calls this once, after all bios have ended.
        let mut instance = unsafe { KBox::from_raw((*ti).private.cast::<Self>()) };
        // SAFETY: Dropped only here; the target is dropped before its lower device is closed.
        unsafe { ManuallyDrop::drop(&mut instance.target) };
        // SAFETY: Opened by `construct` for this target.
        unsafe { raw::dm_put_device(ti, instance.lower) };
    }

    /// Decides how to process a bio.
    ///
    /// # Safety
    ///
    /// Called by device-mapper only, as documented for `map`.
    unsafe extern "C" fn map(ti: *mut raw::dm_target, bio: *mut bindings::bio) -> c_int {
        // SAFETY: Device-mapper maps bios only between `ctr` and `dtr`.
        let instance = unsafe { Self::of(ti) };
        // INVARIANT: Device-mapper passes ownership of the clone.
        instance.target.map(Bio { bio, ti, instance }).0 as c_int
    }

    /// Counts the end of a bio, or defers it.
    ///
    /// # Safety
    ///
    /// Called by device-mapper only, as documented for `end_io`.
    unsafe extern "C" fn end_io(
        ti: *mut raw::dm_target,
        bio: *mut bindings::bio,
        _error: *mut bindings::blk_status_t,
    ) -> c_int {
        // SAFETY: The bio went through `map`, which wrote `target`. It has ended, so the area is
        // not shared any more, and this function is the only owner of `node`.
        unsafe {
            let area = PerBio::of(bio);
            if !(*area).target.is_null() {
                let target = &Self::of(ti).target;
                if target.defers((*area).node.account()) {
                    target.defer(Held::from_raw(NonNull::new_unchecked(
                        &raw mut (*area).node,
                    )));
                    return raw::DM_ENDIO_INCOMPLETE as c_int;
                }
                Self::account(area, bio);
            }
        }
        raw::DM_ENDIO_DONE as c_int
    }

    /// Dispatches the held requests of a target before a suspend.
    ///
    /// # Safety
    ///
    /// Called by device-mapper only, as documented for `presuspend`.
    unsafe extern "C" fn presuspend(ti: *mut raw::dm_target) {
        // SAFETY: Called between `ctr` and `dtr`.
        unsafe { Self::of(ti) }.target.presuspend();
    }

    /// Resumes a target after a suspend or an aborted suspend.
    ///
    /// # Safety
    ///
    /// Called by device-mapper only, as documented for `resume` and `presuspend_undo`.
    unsafe extern "C" fn resume(ti: *mut raw::dm_target) {
        // SAFETY: Called between `ctr` and `dtr`.
        unsafe { Self::of(ti) }.target.resume();
    }

    /// Writes the status or the table line of a target.
    ///
    /// # Safety
    ///
    /// Called by device-mapper only, as documented for `status`.
    unsafe extern "C" fn status(
        ti: *mut raw::dm_target,
        kind: raw::status_type_t,
        _flags: c_uint,
        result: *mut c_char,
        maxlen: c_uint,
    ) {
        // SAFETY: Called between `ctr` and `dtr`.
        let instance = unsafe { Self::of(ti) };
        // SAFETY: Device-mapper passes a buffer of `maxlen` bytes.
        let mut out = unsafe { Reply::new(result, maxlen as usize) };
        // Text that does not fit is truncated: device-mapper retries with a larger buffer.
        let _ = match kind {
            raw::status_type_t_STATUSTYPE_INFO => instance.target.status(&mut out),
            raw::status_type_t_STATUSTYPE_TABLE => instance.table(&mut out),
            _ => Ok(()),
        };
    }

    fn table(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        // SAFETY: The lower device is open while the instance exists.
        let name = unsafe { CStr::from_char_ptr((&raw const (*self.lower).name).cast()) };
        write!(
            out,
            "{} {} ",
            name.to_str().map_err(|_| fmt::Error)?,
            self.offset
        )?;
        self.target.table(out)
    }

    /// Executes a message.
    ///
    /// # Safety
    ///
    /// Called by device-mapper only, as documented for `message`.
    unsafe extern "C" fn message(
        ti: *mut raw::dm_target,
        argc: c_uint,
        argv: *mut *mut c_char,
        result: *mut c_char,
        maxlen: c_uint,
    ) -> c_int {
        // SAFETY: Called between `ctr` and `dtr`, with `argc` words and a buffer of `maxlen` bytes.
        let (instance, args, mut out) = unsafe {
            (
                Self::of(ti),
                Args::new(argc, argv),
                Reply::new(result, maxlen as usize),
            )
        };
        match instance.target.message(&args, &mut out) {
            // 1 means that there is a reply. If the reply fills the buffer, device-mapper reports
            // it as truncated, so that user space retries with a larger buffer.
            Ok(()) => c_int::from(out.used() != 0),
            Err(_) if out.is_cut() => 1,
            Err(error) => error.to_errno(),
        }
    }

    /// Passes an ioctl of the mapped device to the lower device. Any result above 0 requires
    /// `CAP_SYS_RAWIO`: commands such as those of `SG_IO` are not scheduled.
    ///
    /// # Safety
    ///
    /// Called by device-mapper only, as documented for `prepare_ioctl`.
    unsafe extern "C" fn prepare_ioctl(
        ti: *mut raw::dm_target,
        bdev: *mut *mut bindings::block_device,
        _cmd: c_uint,
        _arg: c_ulong,
        _forward: *mut bool,
    ) -> c_int {
        // SAFETY: Called between `ctr` and `dtr`; `bdev` is valid for writes, and the lower device
        // is open while the instance exists.
        unsafe { *bdev = (*Self::of(ti).lower).bdev };
        1
    }

    /// Passes the lower device to `callout`, so that its limits apply to the mapped device.
    ///
    /// # Safety
    ///
    /// Called by device-mapper only, as documented for `iterate_devices`.
    unsafe extern "C" fn iterate_devices(
        ti: *mut raw::dm_target,
        callout: raw::iterate_devices_callout_fn,
        data: *mut c_void,
    ) -> c_int {
        // SAFETY: Called between `ctr` and `dtr`.
        let instance = unsafe { Self::of(ti) };
        let Some(callout) = callout else {
            return 0;
        };
        // SAFETY: The callout gets this target, its open device and its range.
        unsafe { callout(ti, instance.lower, instance.offset, (*ti).len, data) }
    }
}

/// A registered target type; dropping the registration unregisters it.
///
/// # Invariants
///
/// `kind` is linked into device-mapper's list and is not moved.
pub(crate) struct TargetRegistration<T: DmTarget> {
    kind: Pin<KBox<Opaque<raw::target_type>>>,
    _target: PhantomData<T>,
}

// SAFETY: After registration the structure is only read, except by device-mapper under its own
// lock.
unsafe impl<T: DmTarget> Send for TargetRegistration<T> {}
// SAFETY: As above.
unsafe impl<T: DmTarget> Sync for TargetRegistration<T> {}

impl<T: DmTarget> TargetRegistration<T> {
    /// Registers the target type.
    ///
    /// # Errors
    ///
    /// - `EBUSY`: a target of this name is registered.
    /// - `EINVAL`: C and Rust use different layouts for targets or events.
    pub(crate) fn new(module: &'static ThisModule) -> Result<Self> {
        // SAFETY: Always safe to call.
        let same = unsafe {
            raw::nrs_sizes_are(
                size_of::<raw::dm_target>(),
                size_of::<raw::target_type>(),
                size_of::<raw::nrs_event_enqueue>(),
            )
        };
        if !same {
            pr_err!("structure layouts of C and Rust differ\n");
            return Err(EINVAL);
        }
        let kind = raw::target_type {
            // A held bio keeps its integrity data and its encryption context, which belong to the
            // bio that was cloned.
            features: u64::from(
                raw::DM_TARGET_ATOMIC_WRITES
                    | raw::DM_TARGET_NOWAIT
                    | raw::DM_TARGET_PASSES_CRYPTO
                    | raw::DM_TARGET_PASSES_INTEGRITY,
            ),
            name: T::NAME.as_char_ptr(),
            module: module.as_ptr(),
            version: T::VERSION,
            ctr: Some(TargetInstance::<T>::ctr),
            dtr: Some(TargetInstance::<T>::dtr),
            map: Some(TargetInstance::<T>::map),
            end_io: Some(TargetInstance::<T>::end_io),
            presuspend: Some(TargetInstance::<T>::presuspend),
            presuspend_undo: Some(TargetInstance::<T>::resume),
            resume: Some(TargetInstance::<T>::resume),
            status: Some(TargetInstance::<T>::status),
            message: Some(TargetInstance::<T>::message),
            prepare_ioctl: Some(TargetInstance::<T>::prepare_ioctl),
            iterate_devices: Some(TargetInstance::<T>::iterate_devices),
            // SAFETY: All other callbacks may be absent, and registration sets the list link.
            ..unsafe { core::mem::zeroed() }
        };
        let kind = KBox::pin(Opaque::new(kind), GFP_KERNEL)?;
        // INVARIANT: Pinned, and unregistered before it is freed.
        // SAFETY: The structure is complete and is not moved until it is unregistered.
        to_result(unsafe { raw::dm_register_target(kind.get()) })?;
        Ok(Self {
            kind,
            _target: PhantomData,
        })
    }
}

impl<T: DmTarget> Drop for TargetRegistration<T> {
    fn drop(&mut self) {
        // SAFETY: Registered by `new`; no table uses the type, because tables pin the module.
        unsafe { raw::dm_unregister_target(self.kind.get()) };
    }
}
