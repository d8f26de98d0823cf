// SPDX-License-Identifier: GPL-2.0-only

//! Functions and callbacks for other kernel modules: `include/nrs.h`.
//!
//! # Vocabulary
//!
//! - *Owner*: the calling module ([`CallerModule`]), pinned while its callbacks may run.
//! - *Server*: submits requests to a service and is informed of each dispatch ([`ServerOps`]).
//! - *Framework*: drives the policies of a service ([`FrameworkOps`]).
//! - *Item*: memory that a framework provides with each of its requests ([`FrameworkItem`]).
//!
//! ```text
//!   idle ── enqueue ──▶ queued: the node is a Held ── get ──▶ started ── finish ──▶ idle
//!                         └───────────── dequeue ──────────────────────────────────▶ idle
//! ```
//!
//! The crate's root names the implementing types; `capi.c` exports the functions.

use core::{
    fmt, mem,
    ptr::{self, NonNull},
    slice,
};

use kernel::{
    bindings,
    ffi::{c_char, c_int, c_void},
    prelude::*,
    str::CString,
};

use super::{
    misc::{bug, WithoutIo},
    node::{Held, Node, NodeAccount, Ops},
    raw,
    text::Reply,
};
use crate::{
    sched::{
        attr::Priority,
        item::{ByteRange, Cost},
        policy::Decision,
    },
    KernelFramework, KernelServer,
};

type Policy = <KernelFramework as FrameworkOps>::Policy;
type State = <KernelFramework as FrameworkOps>::State;

/// Words of a `struct nrs_item`.
const ITEM_WORDS: usize = raw::NRS_ITEM_WORDS as usize;

/// The calling module.
pub(crate) struct CallerModule(*mut bindings::module);

// SAFETY: Any task may change the reference count of a module.
unsafe impl Send for CallerModule {}
// SAFETY: As above.
unsafe impl Sync for CallerModule {}

impl CallerModule {
    /// Keeps the module loaded until [`Self::put`].
    ///
    /// # Errors
    ///
    /// `ENODEV`: the module is being removed.
    pub(crate) fn get(&self) -> Result {
        // SAFETY: The calling module is loaded because its code runs; null stands for the kernel
        // itself.
        match unsafe { bindings::try_module_get(self.0) } {
            true => Ok(()),
            false => Err(ENODEV),
        }
    }

    /// Releases the reference taken by [`Self::get`].
    pub(crate) fn put(&self) {
        // SAFETY: The reference taken by `get` keeps the module loaded.
        unsafe { bindings::module_put(self.0) }
    }
}

/// Callbacks of another module.
///
/// # Invariants
///
/// `ops` is valid, and any task may call its functions, until the object that they were passed for
/// is closed.
pub(crate) struct Subscription<O> {
    ops: NonNull<O>,
    context: *mut c_void,
}

// SAFETY: By the type invariant.
unsafe impl<O> Send for Subscription<O> {}
// SAFETY: By the type invariant.
unsafe impl<O> Sync for Subscription<O> {}

impl<O> Subscription<O> {
    fn ops(&self) -> &O {
        // SAFETY: By the type invariant.
        unsafe { self.ops.as_ref() }
    }
}

/// Callbacks of a server.
pub(crate) type Callbacks = Subscription<raw::nrs_server_ops>;

/// Callbacks of a framework.
pub(crate) type Waker = Subscription<raw::nrs_framework_ops>;

impl Callbacks {
    /// Passes `record`, which is complete, to the server's callback. May sleep.
    pub(crate) fn notify(&self, kind: u16, record: &[u8]) {
        let (ops, context, record) = (self.ops(), self.context, record.as_ptr());
        // SAFETY: By the type invariant the callbacks may be called; a complete record of this kind
        // is valid during the call.
        unsafe {
            match u32::from(kind) {
                raw::NRS_TYPE_RELEASED => ops.dispatch.map(|f| f(context, record.cast())),
                raw::NRS_TYPE_EARLY => ops.early.map(|f| f(context, record.cast())),
                raw::NRS_TYPE_RECOVERED => ops.recovered.map(|f| f(context, record.cast())),
                _ => None,
            }
        };
    }
}

impl Waker {
    /// Wakes the framework because a request may be eligible. Any context, without locks.
    pub(crate) fn wake(&self) {
        if let Some(wake) = self.ops().wake {
            // SAFETY: By the type invariant.
            unsafe { wake(self.context) }
        }
    }
}

/// A server of another module.
pub(crate) trait ServerOps: Send + Sync + Sized + 'static {
    /// Size of the largest record, bytes.
    const RECORD_MAX: usize;

    /// Opens a server as `attach` describes. May sleep.
    fn open(attach: &[u8], callbacks: Callbacks, owner: CallerModule) -> Result<Self>;

    /// Processes `record`. With `wait`, a request may sleep until there is room.
    fn write(&self, record: &[u8], wait: bool) -> Result;

    /// Returns the statistics of the server as `struct nrs_stats`.
    fn stats(&self) -> [u8; mem::size_of::<raw::nrs_stats>()];

    /// Dispatches all queued requests and waits until all have completed and no completion call
    /// runs. May sleep.
    fn close(&self);
}

/// A framework of another module.
pub(crate) trait FrameworkOps: Send + Sync + Sized + 'static {
    /// A policy started by the framework.
    type Policy: Send + Sync + 'static;
    /// State kept beside the node of a request; `default` is the state of an idle item.
    type State: Default + 'static;

    /// Opens a framework with `cpts` partitions of the service `name`. May sleep.
    fn open(name: &CStr, cpts: u32, waker: Waker, owner: CallerModule) -> Result<Self>;

    /// Sets a parameter. May sleep.
    fn set(&self, name: &str, value: &str) -> Result;

    /// Writes the value of a parameter. May sleep.
    fn show(&self, name: &str, out: &mut dyn fmt::Write) -> Result;

    /// Starts a policy. May sleep.
    fn start(
        &self,
        name: &str,
        argument: &str,
        priority: Priority,
        cpt: u32,
    ) -> Result<Self::Policy>;

    /// Queues the request that the record `request` describes.
    fn enqueue(policy: &Self::Policy, room: ItemMemory<Self::State>, request: &[u8]) -> Result;

    /// Removes and returns the next eligible request.
    fn get(policy: &Self::Policy, force: bool) -> Decision<ItemMemory<Self::State>>;

    /// Returns the result that `get` would have, without removing a request.
    fn peek(policy: &Self::Policy, force: bool) -> Decision<()>;

    /// Removes a queued request.
    fn dequeue(policy: &Self::Policy, room: ItemMemory<Self::State>) -> Result;

    /// Counts the end of a request.
    fn finish(policy: &Self::Policy, room: ItemMemory<Self::State>);
}

/// Rust view of `struct nrs_item`.
#[repr(C)]
struct FrameworkItem<S> {
    node: Node,
    state: S,
}

/// The memory of an item.
///
/// # Invariants
///
/// The pointer is valid, and only this `ItemMemory` uses the state. While the item is queued, a
/// [`Held`] owns the node.
pub(crate) struct ItemMemory<S>(NonNull<FrameworkItem<S>>);

impl<S: Default + 'static> ItemMemory<S> {
    const OPS: &'static Ops = &Ops {
        prepare_queued: |_| {},
        // The framework takes its requests out itself.
        submit: |_| bug!(),
        count_end: |_| bug!(),
        end: |_| bug!(),
    };

    /// Initialises an idle item; its old contents are ignored.
    pub(crate) fn begin(&mut self, cost: Cost, range: ByteRange, account: NodeAccount) -> Held {
        const { assert!(mem::size_of::<FrameworkItem<S>>() <= ITEM_WORDS * mem::size_of::<u64>()) };
        const { assert!(mem::align_of::<FrameworkItem<S>>() <= mem::align_of::<u64>()) };
        let item = FrameworkItem {
            node: Node::new(Self::OPS, cost, range, account),
            state: S::default(),
        };
        // SAFETY: By the type invariant, and the assertions show that it fits; the item is idle, so
        // there is nothing to drop.
        unsafe { self.0.as_ptr().write(item) };
        // SAFETY: Written above; by the type invariant only the result uses the node, and the
        // framework does not move the item until it is idle again.
        unsafe { Held::from_raw(self.0.cast()) }
    }

    /// Returns the state of the item with the node `held`; warns and returns `None` if another
    /// front-end made the node.
    pub(crate) fn state_from_held(held: &mut Held) -> Option<&mut S> {
        if !held.has_ops(Self::OPS) {
            bug!();
            return None;
        }
        // SAFETY: Only `begin` of this type makes nodes with these ops, each the first field of an
        // item, and the owner of the node is borrowed.
        Some(unsafe { &mut (*held.as_ptr().cast::<FrameworkItem<S>>().as_ptr()).state })
    }

    /// Returns the item with the node `held`; warns and returns `None` if another front-end made
    /// the node.
    pub(crate) fn of(held: Held) -> Option<Self> {
        if !held.has_ops(Self::OPS) {
            bug!();
            return None;
        }
        // INVARIANT: As in `state_from_held`; the node is no longer a `Held`.
        held.into_raw().map(|node| Self(node.cast()))
    }

    /// Replaces the state; returns the old one.
    pub(crate) fn replace(&mut self, state: S) -> S {
        // SAFETY: By the type invariant; the node, which a `Held` may own, is not accessed.
        let own = unsafe { &raw mut (*self.0.as_ptr()).state };
        // SAFETY: As above.
        unsafe { ptr::replace(own, state) }
    }
}

/// Returns the text at `text`, or `None` if the pointer is null.
///
/// # Safety
///
/// `text` is null or points to a NUL-terminated string that stays valid while the result is used.
unsafe fn text<'a>(text: *const c_char) -> Result<Option<&'a str>> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: By the safety requirements of this function.
    let text = unsafe { CStr::from_char_ptr(text) };
    text.to_str().map(Some).map_err(|_| EINVAL)
}

/// Returns the bytes of the record at `header`.
///
/// # Safety
///
/// `header` points to a record of the size in its header that stays valid while the result is used.
unsafe fn record<'a>(header: *const raw::nrs_header) -> Result<&'a [u8]> {
    // SAFETY: By the safety requirements of this function.
    let size = usize::from(u16::from_le(unsafe { (*header).size }));
    if !(mem::size_of::<raw::nrs_header>()..=KernelServer::RECORD_MAX).contains(&size) {
        return Err(EINVAL);
    }
    // SAFETY: By the safety requirements of this function.
    Ok(unsafe { slice::from_raw_parts(header.cast(), size) })
}

/// Returns `value` in a new box, or the errno as an error pointer.
fn answer<T, R>(value: Result<T>) -> *mut R {
    let boxed = value.and_then(|value| Ok(KBox::new(value, GFP_KERNEL)?));
    match boxed {
        Ok(boxed) => KBox::into_raw(boxed).cast(),
        Err(error) => error.to_ptr(),
    }
}

fn errno(result: Result) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error) => error.to_errno(),
    }
}

/// Implements `nrs_server_open()`.
///
/// # Safety
///
/// As the header requires: `attach` and `ops` are valid, `ops` and `context` until the server is
/// closed; `owner` is the caller.
#[no_mangle]
unsafe extern "C" fn __nrs_server_open(
    version: u32,
    owner: *mut bindings::module,
    attach: *const raw::nrs_attach,
    ops: *const raw::nrs_server_ops,
    context: *mut c_void,
) -> *mut raw::nrs_server {
    answer((|| {
        check_version(version)?;
        let ops = NonNull::new(ops.cast_mut()).ok_or(EINVAL)?;
        // SAFETY: By the safety requirements of this function.
        if unsafe { ops.as_ref() }.dispatch.is_none() {
            return Err(EINVAL);
        }
        if attach.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: By the safety requirements of this function.
        let size = u32::from_le(unsafe { (*attach).size }) as usize;
        if size != mem::size_of::<raw::nrs_attach>() {
            return Err(EINVAL);
        }
        // SAFETY: As above.
        let attach = unsafe { slice::from_raw_parts(attach.cast(), size) };
        // INVARIANT: By the safety requirements of this function.
        KernelServer::open(attach, Subscription { ops, context }, CallerModule(owner))
    })())
}

/// Returns `EPROTONOSUPPORT` for a module built against another version of the interface.
fn check_version(version: u32) -> Result {
    match version {
        raw::NRS_KERNEL_VERSION => Ok(()),
        _ => Err(super::series::EPROTONOSUPPORT),
    }
}

/// Implements `nrs_server_write()`.
///
/// # Safety
///
/// `server` is from `__nrs_server_open` of the same type; `header` is the header of a record.
#[no_mangle]
unsafe extern "C" fn nrs_server_write(
    server: *mut raw::nrs_server,
    header: *const raw::nrs_header,
    wait: bool,
) -> c_int {
    // SAFETY: By the safety requirements of this function.
    let (server, record) = unsafe { (&*server.cast::<KernelServer>(), record(header)) };
    errno(record.and_then(|record| server.write(record, wait)))
}

/// Implements `nrs_server_stats()`.
///
/// # Safety
///
/// `server` is from `__nrs_server_open` of the same type; `stats` is valid for writes.
#[no_mangle]
unsafe extern "C" fn nrs_server_stats(server: *mut raw::nrs_server, stats: *mut raw::nrs_stats) {
    // SAFETY: By the safety requirements of this function.
    let bytes = unsafe { &*server.cast::<KernelServer>() }.stats();
    // SAFETY: By the safety requirements of this function; the structure has no padding, and all
    // bit patterns are valid.
    unsafe { ptr::write(stats.cast(), bytes) };
}

/// Implements `nrs_server_close()`.
///
/// # Safety
///
/// `server` is from `__nrs_server_open` of the same type. After the call only ends of requests use
/// the server.
#[no_mangle]
unsafe extern "C" fn nrs_server_close(server: *mut raw::nrs_server) {
    // SAFETY: By the safety requirements of this function.
    unsafe { (*server.cast::<KernelServer>()).close() };
    // SAFETY: From `answer`; closed, so there is no other user.
    drop(unsafe { KBox::from_raw(server.cast::<KernelServer>()) });
}

/// Implements `nrs_framework_open()`.
///
/// # Safety
///
/// As the header requires: `service` is a text, `ops` and `context` are valid until the framework
/// is closed; `owner` is the caller.
#[no_mangle]
unsafe extern "C" fn __nrs_framework_open(
    version: u32,
    owner: *mut bindings::module,
    service: *const c_char,
    cpts: u32,
    ops: *const raw::nrs_framework_ops,
    context: *mut c_void,
) -> *mut raw::nrs_framework {
    answer((|| {
        check_version(version)?;
        // SAFETY: By the safety requirements of this function.
        let service = unsafe { text(service) }?.ok_or(EINVAL)?;
        let service = CString::try_from_fmt(fmt!("{service}"))?;
        let ops = NonNull::new(ops.cast_mut()).ok_or(EINVAL)?;
        // SAFETY: As above.
        if unsafe { ops.as_ref() }.wake.is_none() {
            return Err(EINVAL);
        }
        // INVARIANT: By the safety requirements of this function.
        KernelFramework::open(
            &service,
            cpts,
            Subscription { ops, context },
            CallerModule(owner),
        )
    })())
}

/// Implements `nrs_framework_close()`.
///
/// # Safety
///
/// `framework` is from `__nrs_framework_open` of the same type and not used after the call.
#[no_mangle]
unsafe extern "C" fn nrs_framework_close(framework: *mut raw::nrs_framework) {
    // SAFETY: From `answer`; the rest holds by the safety requirements of this function.
    drop(unsafe { KBox::from_raw(framework.cast::<KernelFramework>()) });
}

/// Implements `nrs_framework_set()`.
///
/// # Safety
///
/// `framework` is from `__nrs_framework_open` of the same type; `name` and `value` are texts.
#[no_mangle]
unsafe extern "C" fn nrs_framework_set(
    framework: *mut raw::nrs_framework,
    name: *const c_char,
    value: *const c_char,
) -> c_int {
    // SAFETY: By the safety requirements of this function.
    let (framework, name, value) = unsafe {
        (
            &*framework.cast::<KernelFramework>(),
            text(name),
            text(value),
        )
    };
    errno((|| {
        framework.set(name?.ok_or(EINVAL)?, value?.ok_or(EINVAL)?)
    })())
}

/// Implements `nrs_framework_show()`.
///
/// # Safety
///
/// `framework` is from `__nrs_framework_open` of the same type; `name` is a text; `buf` is valid
/// for writes of `size` bytes.
#[no_mangle]
unsafe extern "C" fn nrs_framework_show(
    framework: *mut raw::nrs_framework,
    name: *const c_char,
    buf: *mut c_char,
    size: usize,
) -> isize {
    // SAFETY: By the safety requirements of this function.
    let (framework, name, mut out) = unsafe {
        (
            &*framework.cast::<KernelFramework>(),
            text(name),
            Reply::new(buf, size),
        )
    };
    let shown = (|| framework.show(name?.ok_or(EINVAL)?, &mut out))();
    super::misc::size(match shown {
        _ if out.is_cut() => Err(ENOSPC),
        Ok(()) => Ok(out.used()),
        Err(error) => Err(error),
    })
}

/// Implements `nrs_policy_start()`.
///
/// # Safety
///
/// `framework` is from `__nrs_framework_open` of the same type; `name` is a text, `argument` a text
/// or null.
#[no_mangle]
unsafe extern "C" fn nrs_policy_start(
    framework: *mut raw::nrs_framework,
    name: *const c_char,
    argument: *const c_char,
    head: raw::nrs_head,
    cpt: u32,
) -> *mut raw::nrs_policy {
    // SAFETY: By the safety requirements of this function.
    let (framework, name, argument) = unsafe {
        (
            &*framework.cast::<KernelFramework>(),
            text(name),
            text(argument),
        )
    };
    // Requests of the framework are stalled while a policy starts, so allocations must not wait for
    // I/O.
    let _scope = WithoutIo::begin();
    answer((|| {
        let priority = match head {
            raw::nrs_head_NRS_HEAD_REGULAR => Priority::Regular,
            raw::nrs_head_NRS_HEAD_HIGH => Priority::High,
            _ => return Err(EINVAL),
        };
        framework.start(name?.ok_or(EINVAL)?, argument?.unwrap_or(""), priority, cpt)
    })())
}

/// Implements `nrs_policy_stop()`.
///
/// # Safety
///
/// `policy` is from `nrs_policy_start` of the same type and not used after the call.
#[no_mangle]
unsafe extern "C" fn nrs_policy_stop(policy: *mut raw::nrs_policy) {
    // SAFETY: From `answer`; the rest holds by the safety requirements of this function.
    drop(unsafe { KBox::from_raw(policy.cast::<Policy>()) });
}

/// Returns the Rust views of `policy` and `item`.
///
/// # Safety
///
/// `policy` is from `nrs_policy_start` of the same type; `item` is valid, and only this task uses
/// it.
unsafe fn both<'a>(
    policy: *mut raw::nrs_policy,
    item: *mut raw::nrs_item,
) -> Option<(&'a Policy, ItemMemory<State>)> {
    let Some(item) = NonNull::new(item) else {
        bug!();
        return None;
    };
    // INVARIANT: By the safety requirements of this function.
    // SAFETY: As above.
    Some((unsafe { &*policy.cast() }, ItemMemory(item.cast())))
}

/// Implements `nrs_enqueue()`.
///
/// # Safety
///
/// As [`both`]; `item` is idle, and `request` is a record.
#[no_mangle]
unsafe extern "C" fn nrs_enqueue(
    policy: *mut raw::nrs_policy,
    item: *mut raw::nrs_item,
    request: *const raw::nrs_request,
) -> c_int {
    // SAFETY: By the safety requirements of this function.
    let Some((policy, room)) = (unsafe { both(policy, item) }) else {
        return EINVAL.to_errno();
    };
    // SAFETY: By the safety requirements of this function.
    let request = unsafe { record(request.cast()) };
    errno(request.and_then(|request| KernelFramework::enqueue(policy, room, request)))
}

/// Returns the item found, if any, and writes the time until which all requests are throttled to
/// `until`.
///
/// # Safety
///
/// `until` is valid for writes.
unsafe fn found<R>(found: Decision<R>, until: *mut u64) -> Option<R> {
    let (item, at) = match found {
        Decision::Item(item) => (Some(item), 0),
        Decision::Empty => (None, 0),
        // 0 means that the policy is empty.
        Decision::Throttled { until } => (None, until.max(1)),
    };
    // SAFETY: By the safety requirements of this function.
    unsafe { *until = at };
    item
}

/// Implements `nrs_get()`.
///
/// # Safety
///
/// `policy` is from `nrs_policy_start` of the same type; `until` is valid for writes.
#[no_mangle]
unsafe extern "C" fn nrs_get(
    policy: *mut raw::nrs_policy,
    force: bool,
    until: *mut u64,
) -> *mut raw::nrs_item {
    // SAFETY: By the safety requirements of this function.
    let item = unsafe { found(KernelFramework::get(&*policy.cast(), force), until) };
    item.map_or(ptr::null_mut(), |room| room.0.as_ptr().cast())
}

/// Implements `nrs_peek()`.
///
/// # Safety
///
/// As [`nrs_get`].
#[no_mangle]
unsafe extern "C" fn nrs_peek(policy: *mut raw::nrs_policy, force: bool, until: *mut u64) -> bool {
    // SAFETY: By the safety requirements of this function.
    unsafe { found(KernelFramework::peek(&*policy.cast(), force), until) }.is_some()
}

/// Implements `nrs_dequeue()`.
///
/// # Safety
///
/// As [`both`]; `item` was queued.
#[no_mangle]
unsafe extern "C" fn nrs_dequeue(policy: *mut raw::nrs_policy, item: *mut raw::nrs_item) -> c_int {
    // SAFETY: By the safety requirements of this function.
    match unsafe { both(policy, item) } {
        Some((policy, room)) => errno(KernelFramework::dequeue(policy, room)),
        None => EINVAL.to_errno(),
    }
}

/// Implements `nrs_finish()`.
///
/// # Safety
///
/// As [`both`]; `item` is started.
#[no_mangle]
unsafe extern "C" fn nrs_finish(policy: *mut raw::nrs_policy, item: *mut raw::nrs_item) {
    // SAFETY: By the safety requirements of this function.
    if let Some((policy, room)) = unsafe { both(policy, item) } {
        KernelFramework::finish(policy, room);
    }
}

/// Asserts at build time that the functions have the types declared in the header.
macro_rules! as_in_header {
    ($($name:ident)*) => {
        const _: () = {
            $(let _ = if true { raw::$name } else { $name };)*
        };
    };
}

as_in_header! {
    __nrs_server_open nrs_server_close nrs_server_write nrs_server_stats
    __nrs_framework_open nrs_framework_close nrs_framework_set nrs_framework_show
    nrs_policy_start nrs_policy_stop
    nrs_enqueue nrs_get nrs_peek nrs_dequeue nrs_finish
}
