// SPDX-License-Identifier: GPL-2.0-only

//! `/dev/nrs`: scheduling of requests of servers in user space.
//!
//! # Terms
//!
//! - *File*: an open file, which may be a client of one service ([`Attached`]).
//! - *Session*: the requests of an attached file ([`session`]).
//! - *Record*: unit of reads and writes ([`wire`]).
//!
//! ```text
//!   open ──▶ ioctl ATTACH ──▶ write requests ──▶ policy ──▶ read released ──▶ write completions
//!        ──▶ close
//! ```
//!
//! A process that may open the device can attribute a request to any user. The permissions of the
//! node restrict that to trusted processes.
//!
//! # Partial calls
//!
//! A call accepts records in order until one is refused. Accepted records stay accepted, and the
//! call returns their bytes. A refused record has no effect; the call that starts with this record
//! returns the error.

use kernel::{
    fs,
    prelude::*,
    seq_file::SeqFile,
    seq_print,
    str::CString,
    sync::{poll::PollTable, Arc, SetOnce},
    uaccess::{UserPtr, UserSlice, UserSliceReader, UserSliceWriter},
};

use crate::{
    engine::{
        registry::{self, Attachment},
        service::is_name,
    },
    sched::units::NSEC_PER_MSEC,
    sys::{
        chardev::{Offset, OpenFile, BROKEN},
        params,
        series::{EALREADY, ENOTCONN, EPROTONOSUPPORT},
        task,
    },
};

pub(crate) mod decode;
pub(crate) mod session;
#[cfg(CONFIG_KUNIT = "y")]
mod tests;
pub(crate) mod wire;

use session::{Session, SessionReader, SessionTerms, CHUNK};

/// A file, or a server of a kernel module, that is a client of a service.
///
/// Fields are dropped in order after the session is closed: the session, then the client.
pub(crate) struct Attached {
    session: Arc<Session>,
    _attachment: Attachment,
}

impl Attached {
    /// Creates a client of the service that `asked` names; also returns the answer to `asked`.
    /// `reader` reads the session, unless the client is a file.
    ///
    /// # Errors
    ///
    /// - `EPROTONOSUPPORT`: a version other than [`wire::VERSION`].
    /// - `EINVAL`: an invalid flag, lease or name, or a reserved field that is not 0.
    /// - Any error of [`registry::attach_user`].
    pub(crate) fn new(
        asked: &wire::Attach,
        reader: Option<Arc<dyn SessionReader>>,
    ) -> Result<(Self, wire::Attach)> {
        if asked.version != wire::VERSION {
            return Err(EPROTONOSUPPORT);
        }
        let fits = asked.flags & !wire::ATTACH_FLAGS == 0
            && asked.lease_ms <= wire::LEASE_MAX
            && asked.reserved == 0;
        if !fits {
            return Err(EINVAL);
        }
        let service = name(&asked.service)?.ok_or(EINVAL)?;
        let client = match name(&asked.client)? {
            Some(client) => client,
            None => {
                CString::try_from_fmt(kernel::prelude::fmt!("pid:{}", task::submitter().pid()))?
            }
        };
        let limit = match (asked.requests_max, params::user_requests_max()) {
            (0, max) => max,
            (asked, max) => asked.min(max),
        };
        let terms = SessionTerms {
            may_pass: asked.flags & wire::ATTACH_QUEUE_ALL == 0,
            lease_ns: u64::from(asked.lease_ms).saturating_mul(NSEC_PER_MSEC),
            limit,
        };
        let attachment = registry::attach_user(&service, client)?;
        let session = Session::open(&attachment, terms, reader)?;
        let attached = Self {
            session,
            _attachment: attachment,
        };
        let answer = wire::Attach {
            requests_max: limit,
            ..*asked
        };
        Ok((attached, answer))
    }

    /// Returns the session.
    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.session.close();
    }
}

/// Returns the name in `field`; `None`: the field is empty.
fn name(field: &[u8; 32]) -> Result<Option<CString>> {
    let text = wire::text(field).ok_or(EINVAL)?;
    let text = core::str::from_utf8(text).map_err(|_| EINVAL)?;
    if text.is_empty() {
        return Ok(None);
    }
    if !is_name(text) {
        return Err(EINVAL);
    }
    CString::try_from_fmt(kernel::prelude::fmt!("{text}")).map(Some)
}

/// An open file.
pub(crate) struct NrsFile {
    attached: SetOnce<Attached>,
}

impl NrsFile {
    /// Returns the session.
    ///
    /// # Errors
    ///
    /// `ENOTCONN`: the file is not attached.
    fn session(&self) -> Result<&Arc<Session>> {
        Ok(&self.attached.as_ref().ok_or(ENOTCONN)?.session)
    }

    /// Executes the ioctl that attaches the file to a service.
    fn attach(&self, arg: UserPtr) -> Result {
        if self.attached.as_ref().is_some() {
            return Err(EALREADY);
        }
        let mut bytes = [0; wire::SIZE_MAX];
        let asked = argument(arg, &mut bytes, wire::Attach::SIZE)?;
        let asked = wire::Attach::decode(asked).map_err(unreadable)?;
        let (attached, answer) = Attached::new(&asked, None)?;
        // The answer is copied out first: if this fails, the file is not attached.
        UserSlice::new(arg, wire::Attach::SIZE)
            .writer()
            .write_slice(&answer.encode())?;
        if self.attached.populate(attached) {
            Ok(())
        } else {
            Err(EALREADY)
        }
    }

    /// Executes the ioctl that returns the counters of the session.
    fn stats(&self, arg: UserPtr) -> Result {
        let stats = self.session()?.stats();
        let mut bytes = [0; wire::SIZE_MAX];
        argument(arg, &mut bytes, wire::Stats::SIZE)?;
        UserSlice::new(arg, wire::Stats::SIZE)
            .writer()
            .write_slice(&stats.encode())
    }

    /// Reads the next record of `from` and passes it to the session.
    fn read_record(
        session: &Arc<Session>,
        from: &mut UserSliceReader,
        nonblocking: bool,
    ) -> Result {
        let mut bytes = [0; wire::SIZE_MAX];
        let header = bytes.get_mut(..wire::Header::SIZE).ok_or(EINVAL)?;
        if from.len() < header.len() {
            return Err(EINVAL);
        }
        from.read_slice(header)?;
        let header = wire::Header::decode(header).map_err(|_| EINVAL)?;
        let record = bytes.get_mut(..header.size.into()).ok_or(EINVAL)?;
        let rest = record
            .get_mut(wire::Header::SIZE..)
            .filter(|rest| rest.len() <= from.len())
            .ok_or(EINVAL)?;
        from.read_slice(rest)?;
        session.write(header.kind, record, nonblocking)
    }
}

/// Returns the errno for a malformed argument.
fn unreadable(why: wire::WireError) -> Error {
    match why {
        wire::WireError::Short => EINVAL,
        wire::WireError::Unknown => E2BIG,
    }
}

/// Reads an argument that starts with its size, at least `least` bytes long, into `bytes`.
///
/// # Errors
///
/// `EINVAL`: the argument is shorter. `E2BIG`: it is longer than `bytes`. `EFAULT`.
fn argument(arg: UserPtr, bytes: &mut [u8; wire::SIZE_MAX], least: usize) -> Result<&[u8]> {
    let mut word = [0; 4];
    UserSlice::new(arg, word.len())
        .reader()
        .read_slice(&mut word)?;
    let size = usize::try_from(u32::from_le_bytes(word)).map_err(|_| E2BIG)?;
    if size < least {
        return Err(EINVAL);
    }
    let bytes = bytes.get_mut(..size).ok_or(E2BIG)?;
    UserSlice::new(arg, size).reader().read_slice(bytes)?;
    Ok(bytes)
}

impl OpenFile for NrsFile {
    const NAME: &'static CStr = c"nrs";
    const MODE: u16 = 0o660;

    fn open() -> Result<Pin<KBox<Self>>> {
        let handle = Self {
            attached: SetOnce::new(),
        };
        Ok(KBox::pin(handle, GFP_KERNEL_ACCOUNT)?)
    }

    fn read(
        &self,
        mut out: UserSliceWriter,
        _offset: &mut Offset,
        nonblocking: bool,
    ) -> Result<usize> {
        let session = self.session()?;
        let places = out.len() / wire::Released::SIZE;
        if places == 0 {
            return Err(EINVAL);
        }
        let mut left = u32::try_from(places.min(wire::BATCH)).unwrap_or(CHUNK);
        let mut copied = 0usize;
        while left > 0 {
            let mut taken = match session.take(left, nonblocking || copied > 0) {
                Ok(taken) => taken,
                Err(_) if copied > 0 => break,
                Err(error) => return Err(error),
            };
            while let Some(item) = taken.next() {
                let mut room = [0; wire::Released::SIZE];
                let record = item.encode(&mut room);
                if let Err(error) = out.write_slice(record) {
                    session.put_back(item, taken);
                    return if copied > 0 { Ok(copied) } else { Err(error) };
                }
                copied = copied.saturating_add(record.len());
                left = left.saturating_sub(1);
            }
        }
        Ok(copied)
    }

    fn write(&self, mut from: UserSliceReader, nonblocking: bool) -> Result<usize> {
        let session = self.session()?;
        let whole = from.len();
        let mut taken = 0;
        for _ in 0..wire::BATCH {
            if from.is_empty() {
                break;
            }
            // The call returns the accepted records rather than wait for the next one.
            match Self::read_record(session, &mut from, nonblocking || taken > 0) {
                Ok(()) => taken = whole.saturating_sub(from.len()),
                Err(_) if taken > 0 => break,
                Err(error) => {
                    session.count_refused(error);
                    return Err(error);
                }
            }
        }
        Ok(taken)
    }

    fn poll(&self, file: &fs::File, table: PollTable<'_>) -> u32 {
        match self.session() {
            Ok(session) => session.poll(file, table),
            Err(_) => BROKEN,
        }
    }

    fn ioctl(&self, cmd: u32, arg: UserPtr) -> Result {
        match cmd {
            wire::IOC_ATTACH => self.attach(arg),
            wire::IOC_STATS => self.stats(arg),
            _ => Err(ENOTTY),
        }
    }

    fn show(&self, out: &SeqFile) {
        let Ok(session) = self.session() else {
            return;
        };
        let stats = session.stats();
        seq_print!(
            out,
            "nrs_service:\t{}\nnrs_requests:\t{}\nnrs_queued:\t{}\nnrs_ready:\t{}\n\
             nrs_running:\t{}\n",
            session.service_name(),
            stats.requests,
            stats.queued,
            stats.ready,
            stats.running,
        );
        seq_print!(
            out,
            "nrs_completed:\t{}\nnrs_refused:\t{}\nnrs_unknown:\t{}\nnrs_reclaimed:\t{}\n\
             nrs_blocked:\t{}\n",
            stats.completed,
            stats.refused.saturating_add(stats.duplicates),
            stats.unknown,
            stats.reclaimed,
            stats.blocked,
        );
    }
}
