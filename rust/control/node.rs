// SPDX-License-Identifier: GPL-2.0-only

//! `/dev/nrs-control`: access to the parameters of all services, with the reason of each refusal.
//! Agents ([`crate::sched::agent`]) also read the accounts of a service and set the factors of
//! weights.
//!
//! # Terms
//!
//! - *Command*: the whole text of one write ([`NodeCommand`]).
//! - *Answer*: the result of the last command of an open file; a read from offset 0 returns it.
//! - *Bound*: an open file that is the agent of a service ([`Binding`]).
//!
//! ```text
//!   write ──▶ executed ──▶ answer: result, or empty ──────────────▶ read
//!                │ refused
//!                └───────▶ answer: reason in one line, or empty ──▶ read
//! ```
//!
//! [`crate::engine::parameters`] defines the content and the accepted values of parameters; debugfs
//! and device-mapper messages reach the same parameters. The node serves systems where debugfs is
//! locked down or a service has no device, and users who need the reason of a refusal.
//!
//! # Locking
//!
//! Each open file has a mutex, held while a command is executed and while the answer is copied. So
//! one task at a time uses the file. This mutex precedes all other locks ([`super`]). While a
//! parameter is read or set, a reference keeps the service and the registry is not locked. So a
//! service that is removed meanwhile may be read or changed once more.

use kernel::{
    alloc::{flags::__GFP_NOWARN, Flags},
    new_mutex,
    prelude::*,
    sync::{Arc, Mutex},
    uaccess::{UserSliceReader, UserSliceWriter},
};

use crate::{
    engine::{
        parameters,
        refusal::{self, RefusedError},
        registry,
        service::{
            agent::{AccountsHeader, Binding},
            Service,
        },
    },
    frontend::chardev::wire,
    sched::{
        agent::{self, reading::Changes, FactorPairs, Report},
        control::{NodeCommand, WORDS_MAX},
        policy::control::CONFIG_MAX,
    },
    sys::{
        chardev::{Offset, OpenFile},
        task,
        text::{self, Text},
    },
};

/// Maximum bytes of a command; a parameter may have a lower limit for its value.
const COMMAND_MAX: usize = CONFIG_MAX + WORDS_MAX;

// The UAPI has the same limits, and all factors fit into a command.
const _: () = assert!(wire::FACTOR_ONE == agent::ONE);
const _: () = assert!(wire::FACTORS_MAX == agent::FACTORS_MAX);
const _: () = assert!(wire::FACTORS_LEASE_MAX == agent::LEASE_MAX_MS);
const _: () = assert!(wire::FACTORS_MAX * wire::Factor::SIZE <= CONFIG_MAX);

/// Returns the allocation flags of commands and answers.
fn flags() -> Flags {
    GFP_KERNEL_ACCOUNT | __GFP_NOWARN
}

/// State of an open file.
struct ControlFile {
    /// Answer to the last command.
    answer: KVVec<u8>,
    /// Service whose agent the file is.
    binding: Option<Binding>,
}

/// Open file of the node.
#[pin_data]
pub(crate) struct ControlNode {
    #[pin]
    open: Mutex<ControlFile>,
}

/// Executes the command `bytes` of a file with `binding`; returns the answer.
///
/// # Errors
///
/// - `EINVAL`: not a command, or not UTF-8; the file is not bound.
/// - `ENODEV`: no such service. `ENOENT`: no such parameter. `EACCES`: the parameter cannot be
///   read, or not written.
/// - `E2BIG`: the value is longer than the parameter takes, or there are too many factors or ids.
/// - `EBUSY`: another file is bound to the service. `ESTALE`: factors for another instance.
/// - `EFBIG`, `ENOMEM`: as for [`Text::of`].
/// - The errors of the parameter.
fn execute(bytes: &[u8], binding: &mut Option<Binding>) -> refusal::Result<KVVec<u8>> {
    Ok(match NodeCommand::parse(bytes)? {
        NodeCommand::Services => {
            let services = registry::services()?;
            Text::of(|out| {
                services
                    .iter()
                    .try_for_each(|service| writeln!(out, "{}", service.name()))
                    .map_err(|_| ENOSPC)
            })?
        }
        NodeCommand::Get { service, name } => {
            let service = named(service)?;
            Text::of(|out| parameters::show(&service, name, out))?
        }
        NodeCommand::Set {
            service,
            name,
            value,
        } => {
            parameters::set(&*named(service)?, name, value)?;
            KVVec::new()
        }
        NodeCommand::Bind { service } => {
            let service = named(service)?;
            match binding {
                Some(own) if Arc::ptr_eq(own.service(), &service) => own.restart(),
                _ => *binding = Some(Binding::new(service)?),
            }
            KVVec::new()
        }
        NodeCommand::Accounts { all } => bound(binding)?.accounts(all, accounts)?,
        NodeCommand::Names { ids } => {
            let service = bound(binding)?.service();
            Text::of(|out| service.write_names(ids.iter(), out))?
        }
        NodeCommand::Factors {
            instance,
            lease_ms,
            pairs,
        } => {
            let service = bound(binding)?.service();
            service.set_factors(instance, lease_ms, decoded(pairs)?)?;
            KVVec::new()
        }
    })
}

/// Returns the service called `name`.
///
/// # Errors
///
/// - `ENODEV`: no such service.
fn named(name: &str) -> refusal::Result<Arc<Service>> {
    let service = registry::named(name);
    service.map_err(|error| RefusedError::from(error).or_because(Some("no such service")))
}

/// Returns the binding of an open file.
///
/// # Errors
///
/// - `EINVAL`: the file is not bound.
/// - `ENODEV`: the service is removed; the file is no longer bound.
fn bound(binding: &mut Option<Binding>) -> refusal::Result<&mut Binding> {
    let is_gone = |binding: &Binding| !registry::has(binding.service());
    if binding.as_ref().is_some_and(is_gone) {
        *binding = None;
        return Err(RefusedError::because(ENODEV, "service was removed"));
    }
    binding.as_mut().ok_or(RefusedError::because(
        EINVAL,
        "file is not bound to a service (send \"bind SERVICE\" first)",
    ))
}

/// Creates the answer from `head` and `changes`.
///
/// # Errors
///
/// - `EFBIG`: the answer is too long.
/// - `ENOMEM`.
fn accounts(head: &AccountsHeader, changes: Changes<'_>) -> Result<KVVec<u8>> {
    let count = changes.clone().count();
    let bytes = count
        .saturating_mul(wire::Account::SIZE)
        .saturating_add(wire::Accounts::SIZE);
    if bytes > text::TEXT_MAX {
        return Err(EFBIG);
    }
    let mut answer = KVVec::with_capacity(bytes, flags())?;
    let head = wire::Accounts {
        record_size: wire::Account::SIZE as u32,
        count: count as u32,
        instance: head.instance,
        time_ns: head.time_ns,
        terms: head.terms,
    };
    answer.extend_from_slice(&head.encode(), flags())?;
    for (report, gone) in changes {
        answer.extend_from_slice(&record(&report, gone).encode(), flags())?;
    }
    Ok(answer)
}

/// Creates the record of `report`; `gone` is true if the class is removed.
fn record(report: &Report, gone: bool) -> wire::Account {
    let Report {
        account,
        level,
        factor,
    } = report;
    let flag = |is, flag| if is { flag } else { 0 };
    wire::Account {
        id: account.id,
        parent: account.parent,
        service: account.service,
        weight: account.weight,
        flags: flag(account.leaf, wire::ACCOUNT_LEAF)
            | flag(account.active, wire::ACCOUNT_ACTIVE)
            | flag(account.waiting, wire::ACCOUNT_WAITING)
            | flag(gone, wire::ACCOUNT_GONE),
        factor: *factor,
        level: (*level).into(),
    }
}

/// Decodes the factors in `bytes`.
///
/// # Errors
///
/// - `EINVAL`: the bytes are malformed.
/// - `E2BIG`: there are too many factors.
/// - `ENOMEM`.
fn decoded(bytes: &[u8]) -> refusal::Result<FactorPairs> {
    let pairs = bytes.chunks_exact(wire::Factor::SIZE);
    if !pairs.remainder().is_empty() {
        let reason = "length of the factors is not a multiple of 16 bytes";
        return Err(RefusedError::because(EINVAL, reason));
    }
    let mut decoded = FactorPairs::new(pairs.len())?;
    for pair in pairs {
        match wire::Factor::decode(pair) {
            Ok(pair) if pair.reserved == 0 => decoded.push(pair.id, pair.factor)?,
            _ => return Err(RefusedError::because(EINVAL, "reserved field is not 0")),
        }
    }
    Ok(decoded)
}

/// Returns the reason reported for `error` if the error has none.
fn plain(error: Error) -> Option<&'static str> {
    Some(match error {
        ENOENT => "no such parameter",
        EACCES => "parameter is read-only or write-only",
        E2BIG => "value is too long for the parameter",
        EFBIG => "answer is too long (limit: 64 MiB)",
        ENOMEM => "out of memory",
        _ => return None,
    })
}

/// Creates the line with the reason of `refused`; empty without a reason, or without memory.
fn line(refused: RefusedError) -> KVVec<u8> {
    let refused = refused.or_because(plain(refused.errno()));
    if !refused.has_reason() {
        return KVVec::new();
    }
    Text::of(|out| writeln!(out, "{refused}").map_err(|_| ENOSPC)).unwrap_or(KVVec::new())
}

impl OpenFile for ControlNode {
    const NAME: &'static CStr = c"nrs-control";
    const MODE: u16 = 0o600;
    const SEEKABLE: bool = true;

    /// Opens the node.
    ///
    /// # Errors
    ///
    /// - `EPERM`: the task lacks the capability `CAP_SYS_ADMIN`.
    /// - `ENOMEM`.
    fn open() -> Result<Pin<KBox<Self>>> {
        if !task::is_admin() {
            return Err(EPERM);
        }
        KBox::pin_init(
            pin_init!(Self {
                open <- new_mutex!(ControlFile {
                    answer: KVVec::new(),
                    binding: None,
                }, "nrs_control"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Copies a part of the answer.
    ///
    /// # Errors
    ///
    /// - `EFAULT`.
    /// - `EINVAL`: the offset is negative.
    fn read(
        &self,
        mut out: UserSliceWriter,
        offset: &mut Offset,
        _nonblocking: bool,
    ) -> Result<usize> {
        out.write_slice_file(&self.open.lock().answer, offset)
    }

    /// Executes a command and stores the answer.
    ///
    /// # Errors
    ///
    /// - `E2BIG`: the command is longer than [`COMMAND_MAX`].
    /// - `EFAULT`, `ENOMEM`.
    /// - The errors of [`execute`].
    fn write(&self, from: UserSliceReader, _nonblocking: bool) -> Result<usize> {
        let len = from.len();
        let mut open = self.open.lock();
        let ControlFile { answer, binding } = &mut *open;
        if len > COMMAND_MAX {
            let reason = "command is too long (limit: 16 MiB and a line)";
            *answer = line(RefusedError::because(E2BIG, reason));
            return Err(E2BIG);
        }
        // The old answer is freed first, so there is never more than one.
        *answer = KVVec::new();
        let mut command = KVVec::new();
        from.read_all(&mut command, flags())
            .inspect_err(|error| *answer = line((*error).into()))?;
        match execute(&command, binding) {
            Ok(bytes) => *answer = bytes,
            Err(refused) => {
                *answer = line(refused);
                return Err(refused.errno());
            }
        }
        Ok(len)
    }
}
