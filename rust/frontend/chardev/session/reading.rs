// SPDX-License-Identifier: GPL-2.0-only

//! Reads of a session: first urgent records, then requests to be served.
//!
//! # Terms
//!
//! - *Item*: source of one record ([`ReadItem`]).
//!
//! ```text
//!   early replies, the most urgent first ──┐
//!   the end of a recovery ─────────────────┼──▶ take ──▶ copied
//!   requests that are ready, in order ─────┘      ▲         │ the copy failed
//!                                                 └─────────┘
//! ```

use kernel::prelude::*;

use super::{
    early::{EarlyFindings, TakenReply, TOLD},
    table::{RequestRow, TableState},
    Session, SessionRequest, CHUNK, PASSED,
};
use crate::{
    frontend::chardev::wire,
    sys::{
        chardev::boxed::{BoxFifo, BoxedRequest},
        misc::{self, bug},
    },
};

/// Items taken by one read.
pub(crate) struct ReadBatch {
    early: core::iter::Flatten<core::array::IntoIter<Option<TakenReply>, TOLD>>,
    recovered: Option<wire::Recovered>,
    ready: BoxFifo<SessionRequest>,
    /// The estimate at the time of the read, ms.
    estimate: u32,
}

/// One item of a read.
pub(crate) enum ReadItem {
    /// An early reply.
    Early(TakenReply),
    /// The end of a recovery.
    Recovered(wire::Recovered),
    /// A request to be served now.
    Request(BoxedRequest<SessionRequest>, wire::Released),
}

impl ReadBatch {
    /// Returns the next item, if any.
    pub(crate) fn next(&mut self) -> Option<ReadItem> {
        if let Some(reply) = self.early.next() {
            return Some(ReadItem::Early(reply));
        }
        if let Some(recovered) = self.recovered.take() {
            return Some(ReadItem::Recovered(recovered));
        }
        let boxed = self.ready.pop()?;
        let record = self.record(&boxed);
        Some(ReadItem::Request(boxed, record))
    }

    /// Returns the record of a request for the reader.
    fn record(&self, boxed: &BoxedRequest<SessionRequest>) -> wire::Released {
        let account = boxed.account();
        let (wait, mut flags) = match boxed.arrival() {
            0 => (0, wire::RELEASED_PASSED),
            since => (
                misc::now().saturating_sub(since),
                if account.has_slot() {
                    0
                } else {
                    wire::RELEASED_FORCED
                },
            ),
        };
        let SessionRequest {
            session,
            cookie,
            urgent,
            left,
            ..
        } = boxed.value();
        let left = left.get();
        if left == PASSED {
            flags |= wire::RELEASED_EXPIRED;
        }
        let mut record = wire::Released::new(*cookie, wait, flags);
        record.credits = session.concurrency.credits(urgent.get() != 0);
        record.fan_out = session.concurrency.fan_out();
        record.estimate_ms = self.estimate;
        record.left_ms = u32::try_from(left).unwrap_or(0);
        record
    }
}

impl ReadItem {
    /// Returns the type of the record.
    pub(crate) fn kind(&self) -> u16 {
        match self {
            Self::Early(reply) => reply.record.header.kind,
            Self::Recovered(record) => record.header.kind,
            Self::Request(_, record) => record.header.kind,
        }
    }

    /// Returns the bytes of the record, written to `room`.
    pub(crate) fn encode<'a>(&self, room: &'a mut [u8; wire::Released::SIZE]) -> &'a [u8] {
        use wire::WireField;
        let rest = match self {
            Self::Early(reply) => reply.record.put(room),
            Self::Recovered(record) => record.put(room),
            Self::Request(_, record) => record.put(room),
        };
        let rest = rest.map_or(0, |rest| rest.len());
        room.get(..room.len().saturating_sub(rest)).unwrap_or(&[])
    }
}

impl TableState {
    /// Takes up to `max` ready requests.
    fn take_ready(&mut self, max: u32) -> BoxFifo<SessionRequest> {
        let mut taken = BoxFifo::new();
        for _ in 0..max {
            let Some(boxed) = self.ready.pop() else {
                break;
            };
            // Marked as read from here on: the reader may complete the request before this call
            // returns.
            let handle = boxed.value().handle;
            let served = self.rows.get_mut(handle).and_then(RequestRow::served_mut);
            bug!(served.is_none());
            if let Some(served) = served {
                served.read = true;
                self.running = self.running.wrapping_add(1);
                let urgent = self.is_urgent(handle.idx());
                boxed.value().urgent.set(urgent.into());
                let left = self.left(handle.idx()).map_or(PASSED, u64::from);
                boxed.value().left.set(left);
            }
            taken.push(boxed);
        }
        taken
    }
}

impl Session {
    /// Takes up to `max` items, at most [`CHUNK`]; waits for one unless `nonblocking`. The result
    /// is empty if more than [`CHUNK`] early replies are late.
    ///
    /// # Errors
    ///
    /// `EAGAIN`: no item, and `nonblocking`. `ERESTARTSYS`: a signal arrived while waiting.
    pub(crate) fn take(&self, max: u32, nonblocking: bool) -> Result<ReadBatch> {
        let timeouts = self.service.timeouts();
        let (estimate, terms) = (timeouts.estimate(), timeouts.terms());
        let max = max.min(CHUNK);
        let mut late = EarlyFindings::default();
        let mut inner = self.inner.lock();
        let readable = loop {
            // The timer may not have expired yet.
            inner.expire_all_late(&mut late);
            if inner.is_readable() {
                break Ok(());
            }
            if nonblocking {
                break Err(EAGAIN);
            }
            let signal = self.readable.wait_interruptible(&mut inner);
            // A task that was woken for an item takes it even after a signal, because no other task
            // was woken.
            if signal && !inner.is_readable() {
                break Err(ERESTARTSYS);
            }
        };
        if let Err(error) = readable {
            drop(inner);
            self.count_checked(&late);
            return Err(error);
        }
        let early = inner.take_replies(max, estimate, &terms);
        let sent = early.iter().flatten().count() as u32;
        let mut left = max.saturating_sub(sent);
        let mut recovered = None;
        if left > 0 {
            recovered = inner.window.take();
            left = left.saturating_sub(recovered.is_some().into());
        }
        let ready = inner.take_ready(left);
        let more = inner.is_readable();
        self.set_timer(&mut inner);
        drop(inner);
        self.count_checked(&late);
        if sent > 0 {
            self.count_sent(sent.into());
        }
        if more {
            self.call_reader();
        }
        Ok(ReadBatch {
            early: early.into_iter().flatten(),
            recovered,
            ready,
            estimate,
        })
    }

    /// Adds `n` early replies to the number that were read; may wrap to subtract.
    fn count_sent(&self, n: u64) {
        self.counters.early_sent.count(n);
        self.service.timeouts().counts().early_sent.count(n);
    }

    /// Puts back `first` and the rest of `taken`, which were not delivered.
    pub(crate) fn put_back(&self, first: ReadItem, mut taken: ReadBatch) {
        let (mut back, mut gone) = (BoxFifo::new(), BoxFifo::new());
        let mut early = 0u64;
        let mut next = Some(first);
        let mut inner = self.inner.lock();
        while let Some(item) = next {
            match item {
                ReadItem::Early(reply) => {
                    inner.put_back_reply(&reply);
                    early = early.wrapping_add(1);
                }
                ReadItem::Recovered(record) => inner.window.put_back(record),
                ReadItem::Request(boxed, _) => {
                    let row = inner.rows.get_mut(boxed.value().handle);
                    let read = row
                        .and_then(RequestRow::served_mut)
                        .map(|served| &mut served.read);
                    if read.is_some_and(core::mem::take) {
                        inner.running = inner.running.wrapping_sub(1);
                        back.push(boxed);
                    } else {
                        // The server has completed the request with a guessed cookie.
                        gone.push(boxed);
                    }
                }
            }
            next = taken.next();
        }
        back.append(&mut inner.ready);
        inner.ready.append(&mut back);
        let some = inner.is_readable();
        self.set_timer(&mut inner);
        drop(inner);
        drop(gone);
        if early > 0 {
            self.count_sent(0u64.wrapping_sub(early));
        }
        if some {
            self.call_reader();
        }
    }
}
