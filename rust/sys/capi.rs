// SPDX-License-Identifier: GPL-2.0-only

//! What other kernel modules call, and are told: `include/nrs.h`.
//!
//! # Vocabulary
//!
//! - *Owner*: the module that calls ([`Owner`]); it stays loaded while it has to.
//! - *Server*: brings requests to a service, and is told which to serve ([`Server`]).
//! - *Framework*: drives the policies of a service ([`Framework`]).
//! - *Item*: what a framework has room for beside each of its requests ([`Item`]).
//!
//! ```text
//!   idle ── enqueue ──▶ queued: the node is a Held ── get ──▶ started ── finish ──▶ idle
//!                         └───────────── dequeue ──────────────────────────────────▶ idle
//! ```
//!
//! The crate's root says which types these are; `capi.c` exports the functions.

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
    node::{Account, Held, Node, Ops},
    raw,
    text::Reply,
};
use crate::{
    sched::{
        attr::Priority,
        item::{Cost, Spot},
        policy::Get,
    },
    KernelFramework, KernelServer,
};

type Policy = <KernelFramework as Framework>::Policy;
type State = <KernelFramework as Framework>::State;

/// Words of a `struct nrs_item`.
const ITEM_WORDS: usize = raw::NRS_ITEM_WORDS as usize;

/// Bytes of a record, at most.
const RECORD_MAX: usize = 512;

/// A module that calls.
pub(crate) struct Owner(*mut bindings::module);

// SAFETY: The reference count of a module may be changed by any task.
unsafe impl Send for Owner {}
// SAFETY: As above.
unsafe impl Sync for Owner {}

impl Owner {
    /// Keeps the module loaded until [`Self::put`].
    ///
    /// # Errors
    ///
    /// `ENODEV`: it is being removed.
    pub(crate) fn get(&self) -> Result {
        // SAFETY: The module runs, or it could not call; null stands for the kernel itself.
        match unsafe { bindings::try_module_get(self.0) } {
            true => Ok(()),
            false => Err(ENODEV),
        }
    }

    /// Ends a [`Self::get`].
    pub(crate) fn put(&self) {
        // SAFETY: By `get` the module is there.
        unsafe { bindings::module_put(self.0) }
    }
}

/// What another module asked to be told.
///
/// # Invariants
///
/// `ops` is valid, and what it points to may be called by any task, until what it was made for is closed.
pub(crate) struct Told<O> {
    ops: NonNull<O>,
    context: *mut c_void,
}

// SAFETY: By the type invariant.
unsafe impl<O> Send for Told<O> {}
// SAFETY: By the type invariant.
unsafe impl<O> Sync for Told<O> {}

impl<O> Told<O> {
    fn ops(&self) -> &O {
        // SAFETY: By the type invariant.
        unsafe { self.ops.as_ref() }
    }
}

/// What a server is told.
pub(crate) type Callbacks = Told<raw::nrs_server_ops>;

/// What a framework is told.
pub(crate) type Waker = Told<raw::nrs_framework_ops>;

impl Callbacks {
    /// Tells the server of `record`, which is whole. May sleep.
    pub(crate) fn tell(&self, kind: u16, record: &[u8]) {
        let (ops, context, record) = (self.ops(), self.context, record.as_ptr());
        // SAFETY: By the type invariant they may be called; a whole record of the kind is there during the call.
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
    /// Tells the framework that something may be served. Any context, without locks.
    pub(crate) fn wake(&self) {
        if let Some(wake) = self.ops().wake {
            // SAFETY: By the type invariant.
            unsafe { wake(self.context) }
        }
    }
}

/// A server of another module.
pub(crate) trait Server: Send + Sync + Sized + 'static {
    /// Opens one as `attach` says. May sleep.
    fn open(attach: &[u8], callbacks: Callbacks, owner: Owner) -> Result<Self>;

    /// Takes `record`. A request may wait for room, if it is to `wait`.
    fn write(&self, record: &[u8], wait: bool) -> Result;

    /// What it has done, as `struct nrs_stats`.
    fn stats(&self) -> [u8; mem::size_of::<raw::nrs_stats>()];

    /// Dispatches what is queued, and waits until each request is completed and no call of a completion is left. May sleep.
    fn close(&self);
}

/// A framework of another module.
pub(crate) trait Framework: Send + Sync + Sized + 'static {
    /// A policy that it started.
    type Policy: Send + Sync + 'static;
    /// What is kept of a request beside its node; `default` is that of an idle one.
    type State: Default + 'static;

    /// Opens one with `cpts` partitions of the service `name`. May sleep.
    fn open(name: &CStr, cpts: u32, waker: Waker, owner: Owner) -> Result<Self>;

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

    /// Queues the request that `request` tells of.
    fn enqueue(policy: &Self::Policy, room: Room<Self::State>, request: &[u8]) -> Result;

    /// Takes out what is served next.
    fn get(policy: &Self::Policy, force: bool) -> Get<Room<Self::State>>;

    /// Returns what `get` would answer.
    fn peek(policy: &Self::Policy, force: bool) -> Get<()>;

    /// Takes a request back.
    fn dequeue(policy: &Self::Policy, room: Room<Self::State>) -> Result;

    /// Counts the end of a request.
    fn finish(policy: &Self::Policy, room: Room<Self::State>);
}

/// `struct nrs_item`.
#[repr(C)]
struct Item<S> {
    node: Node,
    state: S,
}

/// The memory of an item.
///
/// # Invariants
///
/// The pointer is valid, and nobody else uses the state. While the item is queued, the node belongs to a [`Held`].
pub(crate) struct Room<S>(NonNull<Item<S>>);

impl<S: Default + 'static> Room<S> {
    const OPS: &'static Ops = &Ops {
        hold: |_| {},
        // The framework takes its requests out itself.
        submit: |_| bug!(),
        count_end: |_| bug!(),
        end: |_| bug!(),
    };

    /// Begins the life of an item, of which nothing is known.
    pub(crate) fn begin(&mut self, cost: Cost, spot: Spot, account: Account) -> Held {
        const { assert!(mem::size_of::<Item<S>>() <= ITEM_WORDS * mem::size_of::<u64>()) };
        const { assert!(mem::align_of::<Item<S>>() <= mem::align_of::<u64>()) };
        let item = Item {
            node: Node::new(Self::OPS, cost, spot, account),
            state: S::default(),
        };
        // SAFETY: By the type invariant, and there is room; what is there is idle, and has nothing to be dropped.
        unsafe { self.0.as_ptr().write(item) };
        // SAFETY: Written above; by the type invariant nobody else uses it, and the framework leaves it where it is until it
        // is idle again.
        unsafe { Held::from_raw(self.0.cast()) }
    }

    /// The state of the item that `held` is the node of; `None`, and a loud one, if it is another front-end's.
    pub(crate) fn state_of(held: &mut Held) -> Option<&mut S> {
        if !held.has_ops(Self::OPS) {
            bug!();
            return None;
        }
        // SAFETY: Only `begin` of this very type makes nodes with these ops, each the first field of an item, and the owner of
        // the node is borrowed.
        Some(unsafe { &mut (*held.as_ptr().cast::<Item<S>>().as_ptr()).state })
    }

    /// The item that `held` is the node of.
    pub(crate) fn of(held: Held) -> Option<Self> {
        if !held.has_ops(Self::OPS) {
            bug!();
            return None;
        }
        // INVARIANT: As in `state_of`; the node is not a `Held` any more.
        held.into_raw().map(|node| Self(node.cast()))
    }

    /// Sets the state; returns that before.
    pub(crate) fn replace(&mut self, state: S) -> S {
        // SAFETY: By the type invariant; the node, which may belong to another one, is not touched.
        let own = unsafe { &raw mut (*self.0.as_ptr()).state };
        // SAFETY: As above.
        unsafe { ptr::replace(own, state) }
    }
}

/// A text of a caller; `None` stands for none.
///
/// # Safety
///
/// `text` is null or ends in a NUL, and stays as long as the result is used.
unsafe fn text<'a>(text: *const c_char) -> Result<Option<&'a str>> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: The caller promises it.
    let text = unsafe { CStr::from_char_ptr(text) };
    text.to_str().map(Some).map_err(|_| EINVAL)
}

/// A record of a caller.
///
/// # Safety
///
/// `header` points to a record of the size that it says, which stays as long as the result is used.
unsafe fn record<'a>(header: *const raw::nrs_header) -> Result<&'a [u8]> {
    // SAFETY: The caller promises it.
    let size = usize::from(u16::from_le(unsafe { (*header).size }));
    if !(mem::size_of::<raw::nrs_header>()..=RECORD_MAX).contains(&size) {
        return Err(EINVAL);
    }
    // SAFETY: The caller promises it.
    Ok(unsafe { slice::from_raw_parts(header.cast(), size) })
}

/// `value` in a box of its own, or the errno, as C wants it.
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

/// `nrs_server_open`.
///
/// # Safety
///
/// As the header says: `attach` and `ops` are valid, `ops` and `context` until the server is closed; `owner` calls.
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
        // SAFETY: The caller promises it.
        if unsafe { ops.as_ref() }.dispatch.is_none() {
            return Err(EINVAL);
        }
        if attach.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: The caller promises it.
        let size = u32::from_le(unsafe { (*attach).size }) as usize;
        if size != mem::size_of::<raw::nrs_attach>() {
            return Err(EINVAL);
        }
        // SAFETY: As above.
        let attach = unsafe { slice::from_raw_parts(attach.cast(), size) };
        // INVARIANT: The caller promises it.
        KernelServer::open(attach, Told { ops, context }, Owner(owner))
    })())
}

/// Refuses a module that was built for another version.
fn check_version(version: u32) -> Result {
    match version {
        raw::NRS_KERNEL_VERSION => Ok(()),
        _ => Err(super::series::EPROTONOSUPPORT),
    }
}

/// `nrs_server_write`.
///
/// # Safety
///
/// `server` is from `server_open` of the same type; `header` is that of a record.
#[no_mangle]
unsafe extern "C" fn nrs_server_write(
    server: *mut raw::nrs_server,
    header: *const raw::nrs_header,
    wait: bool,
) -> c_int {
    // SAFETY: The caller promises it.
    let (server, record) = unsafe { (&*server.cast::<KernelServer>(), record(header)) };
    errno(record.and_then(|record| server.write(record, wait)))
}

/// `nrs_server_stats`.
///
/// # Safety
///
/// `server` is from `server_open` of the same type; `stats` may be written.
#[no_mangle]
unsafe extern "C" fn nrs_server_stats(server: *mut raw::nrs_server, stats: *mut raw::nrs_stats) {
    // SAFETY: The caller promises it.
    let bytes = unsafe { &*server.cast::<KernelServer>() }.stats();
    // SAFETY: The caller promises it; the structure has no padding, and takes any bytes.
    unsafe { ptr::write(stats.cast(), bytes) };
}

/// `nrs_server_close`.
///
/// # Safety
///
/// `server` is from `server_open` of the same type and not used any more, but for requests that end.
#[no_mangle]
unsafe extern "C" fn nrs_server_close(server: *mut raw::nrs_server) {
    // SAFETY: The caller promises it.
    unsafe { (*server.cast::<KernelServer>()).close() };
    // SAFETY: From `answer`; closed, so nobody uses it.
    drop(unsafe { KBox::from_raw(server.cast::<KernelServer>()) });
}

/// `nrs_framework_open`.
///
/// # Safety
///
/// As the header says: `service` is a text, `ops` and `context` are valid until the framework is closed; `owner` calls.
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
        // SAFETY: The caller promises it.
        let service = unsafe { text(service) }?.ok_or(EINVAL)?;
        let service = CString::try_from_fmt(fmt!("{service}"))?;
        let ops = NonNull::new(ops.cast_mut()).ok_or(EINVAL)?;
        // SAFETY: As above.
        if unsafe { ops.as_ref() }.wake.is_none() {
            return Err(EINVAL);
        }
        // INVARIANT: The caller promises it.
        KernelFramework::open(&service, cpts, Told { ops, context }, Owner(owner))
    })())
}

/// `nrs_framework_close`.
///
/// # Safety
///
/// `framework` is from `framework_open` of the same type and not used any more.
#[no_mangle]
unsafe extern "C" fn nrs_framework_close(framework: *mut raw::nrs_framework) {
    // SAFETY: From `answer`; the caller promises the rest.
    drop(unsafe { KBox::from_raw(framework.cast::<KernelFramework>()) });
}

/// `nrs_framework_set`.
///
/// # Safety
///
/// `framework` is from `framework_open` of the same type; the others are texts.
#[no_mangle]
unsafe extern "C" fn nrs_framework_set(
    framework: *mut raw::nrs_framework,
    name: *const c_char,
    value: *const c_char,
) -> c_int {
    // SAFETY: The caller promises it.
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

/// `nrs_framework_show`.
///
/// # Safety
///
/// `framework` is from `framework_open` of the same type; `name` is a text; `buf` may be written for `size` bytes.
#[no_mangle]
unsafe extern "C" fn nrs_framework_show(
    framework: *mut raw::nrs_framework,
    name: *const c_char,
    buf: *mut c_char,
    size: usize,
) -> isize {
    // SAFETY: The caller promises it.
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

/// `nrs_policy_start`.
///
/// # Safety
///
/// `framework` is from `framework_open` of the same type; the others are texts, `argument` perhaps null.
#[no_mangle]
unsafe extern "C" fn nrs_policy_start(
    framework: *mut raw::nrs_framework,
    name: *const c_char,
    argument: *const c_char,
    head: raw::nrs_head,
    cpt: u32,
) -> *mut raw::nrs_policy {
    // SAFETY: The caller promises it.
    let (framework, name, argument) = unsafe {
        (
            &*framework.cast::<KernelFramework>(),
            text(name),
            text(argument),
        )
    };
    // Requests wait while a framework starts a policy.
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

/// `nrs_policy_stop`.
///
/// # Safety
///
/// `policy` is from `policy_start` of the same type and not used any more.
#[no_mangle]
unsafe extern "C" fn nrs_policy_stop(policy: *mut raw::nrs_policy) {
    // SAFETY: From `answer`; the caller promises the rest.
    drop(unsafe { KBox::from_raw(policy.cast::<Policy>()) });
}

/// `policy` and `item` of a caller.
///
/// # Safety
///
/// `policy` is from `policy_start` of the same type; `item` is valid, and only this task uses it.
unsafe fn both<'a>(
    policy: *mut raw::nrs_policy,
    item: *mut raw::nrs_item,
) -> Option<(&'a Policy, Room<State>)> {
    let Some(item) = NonNull::new(item) else {
        bug!();
        return None;
    };
    // INVARIANT: The caller promises it.
    // SAFETY: As above.
    Some((unsafe { &*policy.cast() }, Room(item.cast())))
}

/// `nrs_enqueue`.
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
    // SAFETY: The caller promises it.
    let Some((policy, room)) = (unsafe { both(policy, item) }) else {
        return EINVAL.to_errno();
    };
    // SAFETY: The caller promises it.
    let request = unsafe { record(request.cast()) };
    errno(request.and_then(|request| KernelFramework::enqueue(policy, room, request)))
}

/// What is found, as C wants it: the item, and until when there is none.
///
/// # Safety
///
/// `until` may be written.
unsafe fn found<R>(found: Get<R>, until: *mut u64) -> Option<R> {
    let (item, at) = match found {
        Get::Item(item) => (Some(item), 0),
        Get::Empty => (None, 0),
        // 0 stands for nothing.
        Get::Throttled { until } => (None, until.max(1)),
    };
    // SAFETY: The caller promises it.
    unsafe { *until = at };
    item
}

/// `nrs_get`.
///
/// # Safety
///
/// `policy` is from `policy_start` of the same type; `until` may be written.
#[no_mangle]
unsafe extern "C" fn nrs_get(
    policy: *mut raw::nrs_policy,
    force: bool,
    until: *mut u64,
) -> *mut raw::nrs_item {
    // SAFETY: The caller promises it.
    let item = unsafe { found(KernelFramework::get(&*policy.cast(), force), until) };
    item.map_or(ptr::null_mut(), |room| room.0.as_ptr().cast())
}

/// `nrs_peek`.
///
/// # Safety
///
/// As [`get`].
#[no_mangle]
unsafe extern "C" fn nrs_peek(policy: *mut raw::nrs_policy, force: bool, until: *mut u64) -> bool {
    // SAFETY: The caller promises it.
    unsafe { found(KernelFramework::peek(&*policy.cast(), force), until) }.is_some()
}

/// `nrs_dequeue`.
///
/// # Safety
///
/// As [`both`]; `item` was queued.
#[no_mangle]
unsafe extern "C" fn nrs_dequeue(policy: *mut raw::nrs_policy, item: *mut raw::nrs_item) -> c_int {
    // SAFETY: The caller promises it.
    match unsafe { both(policy, item) } {
        Some((policy, room)) => errno(KernelFramework::dequeue(policy, room)),
        None => EINVAL.to_errno(),
    }
}

/// `nrs_finish`.
///
/// # Safety
///
/// As [`both`]; `item` is started.
#[no_mangle]
unsafe extern "C" fn nrs_finish(policy: *mut raw::nrs_policy, item: *mut raw::nrs_item) {
    // SAFETY: The caller promises it.
    if let Some((policy, room)) = unsafe { both(policy, item) } {
        KernelFramework::finish(policy, room);
    }
}

/// The functions have the types that the header says.
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
