// SPDX-License-Identifier: GPL-2.0-only

//! `/dev/nrs-control`: the parameters of all services in one place, with the reason of a refusal.
//!
//! # Vocabulary
//!
//! - *Command*: what one write says, whole ([`Command`]).
//! - *Answer*: what the last command of an open file came to; reading from offset 0 gives it.
//!
//! ```text
//!   write ──▶ carried out ──▶ answer: what was asked for, or nothing ──▶ read
//!                 │ refused
//!                 └─────────▶ answer: why, one line, or nothing ───────▶ read
//! ```
//!
//! What a parameter shows and takes is decided by [`crate::engine::parameters`]; debugfs and device-mapper messages
//! reach the same ones. This is for where debugfs is locked down or the service has no device, and for who
//! wants to know why.
//!
//! # Locking
//!
//! An open file has a mutex, held while its command is carried out and while its answer is copied, so it is
//! used by one task at a time. It comes before all other locks ([`super`]). The service is kept by a
//! reference, and the registry is not locked, while a parameter is shown or set: a service that goes meanwhile is changed
//! or shown once more, and then gone.

use kernel::{
    alloc::flags::__GFP_NOWARN,
    new_mutex,
    prelude::*,
    sync::{Arc, Mutex},
    uaccess::{UserSliceReader, UserSliceWriter},
};

use crate::{
    engine::{
        parameters,
        refused::{self, Refused},
        registry,
        service::Service,
    },
    sched::{
        control::{Command, WORDS_MAX},
        policy::control::TEXT_MAX,
    },
    sys::{
        chardev::{File, Offset},
        task,
        text::Text,
    },
};

/// Bytes that one command may have, at most; a parameter may have a lower limit for its value.
const COMMAND_MAX: usize = TEXT_MAX + WORDS_MAX;

/// An open file.
#[pin_data]
pub(crate) struct Node {
    /// The answer to the last command.
    #[pin]
    answer: Mutex<KVVec<u8>>,
}

/// Carries out the command `text`; returns its answer.
///
/// # Errors
///
/// - `EINVAL`: no command, or not UTF-8.
/// - `ENODEV`: no such service. `ENOENT`: no such parameter. `EACCES`: it cannot be read, or written.
/// - `E2BIG`: a value that is longer than the parameter takes.
/// - `EFBIG`, `ENOMEM`: as for [`Text::of`].
/// - What the parameter says.
fn obey(text: &[u8]) -> refused::Result<KVVec<u8>> {
    let text = core::str::from_utf8(text).map_err(|_| Refused::because(EINVAL, "not UTF-8"))?;
    Ok(match Command::parse(text)? {
        Command::Services => {
            let services = registry::services()?;
            Text::of(|out| {
                services
                    .iter()
                    .try_for_each(|service| writeln!(out, "{}", service.name()))
                    .map_err(|_| ENOSPC)
            })?
        }
        Command::Get { service, name } => {
            let service = named(service)?;
            Text::of(|out| parameters::show(&service, name, out))?
        }
        Command::Set {
            service,
            name,
            value,
        } => {
            parameters::set(&*named(service)?, name, value)?;
            KVVec::new()
        }
    })
}

/// The service called `name`.
///
/// # Errors
///
/// `ENODEV`: there is none.
fn named(name: &str) -> refused::Result<Arc<Service>> {
    let service = registry::named(name);
    service.map_err(|error| Refused::from(error).or_because(Some("no such service")))
}

/// What is to be said of `error` where nobody gave a reason.
fn plain(error: Error) -> Option<&'static str> {
    Some(match error {
        ENOENT => "no such parameter",
        EACCES => "the parameter cannot be accessed in this way",
        E2BIG => "the value is longer than the parameter takes",
        EFBIG => "the answer is longer than 64 MiB",
        ENOMEM => "out of memory",
        _ => return None,
    })
}

/// The line that says why something is `refused`; nothing without a reason, or without memory.
fn line(refused: Refused) -> KVVec<u8> {
    let refused = refused.or_because(plain(refused.errno()));
    if !refused.has_reason() {
        return KVVec::new();
    }
    Text::of(|out| writeln!(out, "{refused}").map_err(|_| ENOSPC)).unwrap_or(KVVec::new())
}

impl File for Node {
    const NAME: &'static CStr = c"nrs-control";
    const MODE: u16 = 0o600;
    const SEEKABLE: bool = true;

    /// # Errors
    ///
    /// `EPERM`: the task has not the capability `CAP_SYS_ADMIN`. `ENOMEM`.
    fn open() -> Result<Pin<KBox<Self>>> {
        if !task::is_admin() {
            return Err(EPERM);
        }
        KBox::pin_init(
            pin_init!(Self {
                answer <- new_mutex!(KVVec::new(), "nrs_control"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// # Errors
    ///
    /// `EFAULT`. `EINVAL`: a negative offset.
    fn read(
        &self,
        mut out: UserSliceWriter,
        offset: &mut Offset,
        _nonblocking: bool,
    ) -> Result<usize> {
        out.write_slice_file(&self.answer.lock(), offset)
    }

    /// # Errors
    ///
    /// `E2BIG`: longer than [`COMMAND_MAX`]. `EFAULT`, `ENOMEM`. As for [`obey`].
    fn write(&self, from: UserSliceReader, _nonblocking: bool) -> Result<usize> {
        let len = from.len();
        let mut answer = self.answer.lock();
        if len > COMMAND_MAX {
            let reason = "a command has at most 256 KiB and a line";
            *answer = line(Refused::because(E2BIG, reason));
            return Err(E2BIG);
        }
        // What was there is freed first, so there is never more than one.
        *answer = KVVec::new();
        let mut text = KVVec::new();
        from.read_all(&mut text, GFP_KERNEL_ACCOUNT | __GFP_NOWARN)
            .inspect_err(|error| *answer = line((*error).into()))?;
        match obey(&text) {
            Ok(text) => *answer = text,
            Err(refused) => {
                *answer = line(refused);
                return Err(refused.errno());
            }
        }
        Ok(len)
    }
}
