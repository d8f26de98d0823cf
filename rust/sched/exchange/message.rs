// SPDX-License-Identifier: GPL-2.0-only

//! The format of what servers tell each other.
//!
//! # Vocabulary
//!
//! - *Message*: what a server says once per delta: a number, and a record per entity.
//! - *Datagram*: a piece of a message that travels by itself: a header and some of the records, in the order of
//!   their ids. Each can be used without the others.
//! - *Record*: service to one entity since the sender's epoch began, and where it is present ([`Record`]).
//! - *Presence*: how much of the sender's capacity is where the entity has requests, in parts of 65,535:
//!   all or nothing for a server, anything for a relay.
//!
//! # Format
//!
//! All numbers are little endian.
//!
//! | Offset | Bytes | Header |
//! |---|---|---|
//! | 0 | 4 | `4e 52 53 58`, "NRSX" |
//! | 4 | 1 | version, 1 |
//! | 5 | 1 | zero |
//! | 6 | 2 | records that follow |
//! | 8 | 8 | realm: who understands each other |
//! | 16 | 8 | server, not 0 |
//! | 24 | 8 | epoch: larger each time that the server starts |
//! | 32 | 4 | number of the message, wrapping |
//! | 36 | 2 | place of this datagram among those of the message |
//! | 38 | 2 | how many those are, 1 to 256 |
//! | 40 | 8 | the sender's clock, us |
//! | 48 | 8 | capacity of the sender, units of cost per second |
//!
//! | Offset | Bytes | Record |
//! |---|---|---|
//! | 0 | 8 | id: path of the entity, hashed; neither 0 nor 2^64 - 1 |
//! | 8 | 6 | counter of service, units of cost, wrapping |
//! | 14 | 2 | presence |

/// Bytes of a header.
pub const HEADER: usize = 56;

/// Bytes of a record.
pub const RECORD: usize = 16;

/// Datagrams of a message, at most.
pub const DATAGRAMS_MAX: u32 = 256;

/// Presence everywhere.
pub const PRESENT: u16 = u16::MAX;

/// Bits of a counter.
pub const COUNTER_BITS: u32 = 48;

/// First bytes.
const MAGIC: u32 = u32::from_le_bytes(*b"NRSX");

/// The version that is written and understood.
const VERSION: u8 = 1;

/// Why a datagram is refused; nothing of it is stored then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is no message, or its size is not what it says.
    Malformed,
    /// It is of another version.
    Version,
    /// It is of another realm.
    Foreign,
    /// The receiver sent it.
    Own,
    /// It was heard before.
    Duplicate,
    /// Something newer of its sender was heard before.
    Old,
    /// There are as many servers as may be, or as many records.
    Crowded,
    /// There was no memory.
    NoMemory,
}

/// What a datagram says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Who understands each other.
    pub realm: u64,
    /// The sender.
    pub server: u64,
    /// Its incarnation.
    pub epoch: u64,
    /// Number of the message.
    pub seq: u32,
    /// Place among the datagrams of the message.
    pub part: u16,
    /// How many those are.
    pub parts: u16,
    /// The sender's clock, us.
    pub time_us: u64,
    /// The sender's capacity, units of cost per second.
    pub capacity: u64,
}

/// What a datagram says of one entity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Its path, hashed.
    pub id: u64,
    /// Service since the epoch began, units of cost, modulo 2^48.
    pub counter: u64,
    /// How much of the capacity is where it has requests.
    pub presence: u16,
}

/// Takes `N` bytes from the front of `bytes`.
fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*first)
}

/// The records of a datagram that was found to be well formed.
#[derive(Clone, Copy, Debug)]
pub struct Records<'a> {
    bytes: &'a [u8],
}

impl Iterator for Records<'_> {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        let id = u64::from_le_bytes(take(&mut self.bytes)?);
        let word = u64::from_le_bytes(take(&mut self.bytes)?);
        Some(Record {
            id,
            counter: word & const { (1 << COUNTER_BITS) - 1 },
            presence: (word >> COUNTER_BITS) as u16,
        })
    }
}

impl Records<'_> {
    /// How many are left.
    pub const fn len(&self) -> usize {
        self.bytes.len() / RECORD
    }
}

/// The header and the records of `bytes`, all of which were looked at.
///
/// # Errors
///
/// - [`Refusal::Malformed`]: no header, another length than the header says, no place among the datagrams, or
///   records that are not in the order of their ids.
/// - [`Refusal::Version`]: another version.
pub fn parse(bytes: &[u8]) -> Result<(Header, Records<'_>), Refusal> {
    let (header, count, bytes) = split(bytes).ok_or(Refusal::Malformed)??;
    let records = Records { bytes };
    let fits = bytes.len() == count.saturating_mul(RECORD)
        && header.server != 0
        && header.part < header.parts
        && u32::from(header.parts) <= DATAGRAMS_MAX;
    if !fits {
        return Err(Refusal::Malformed);
    }
    let mut before = 0;
    for record in records {
        if record.id <= before || record.id == u64::MAX {
            return Err(Refusal::Malformed);
        }
        before = record.id;
    }
    Ok((header, records))
}

/// A header, how many records follow, and their bytes.
type Split<'a> = Result<(Header, usize, &'a [u8]), Refusal>;

/// Both of them; none if it is too short or not of this kind.
fn split(mut bytes: &[u8]) -> Option<Split<'_>> {
    let from = &mut bytes;
    if u32::from_le_bytes(take(from)?) != MAGIC {
        return None;
    }
    let [version, zero] = take(from)?;
    if version != VERSION {
        return Some(Err(Refusal::Version));
    }
    let count = usize::from(u16::from_le_bytes(take(from)?));
    let header = Header {
        realm: u64::from_le_bytes(take(from)?),
        server: u64::from_le_bytes(take(from)?),
        epoch: u64::from_le_bytes(take(from)?),
        seq: u32::from_le_bytes(take(from)?),
        part: u16::from_le_bytes(take(from)?),
        parts: u16::from_le_bytes(take(from)?),
        time_us: u64::from_le_bytes(take(from)?),
        capacity: u64::from_le_bytes(take(from)?),
    };
    (zero == 0).then_some(Ok((header, count, bytes)))
}

/// Bytes that are written from the front on.
struct Writer<'a> {
    rest: &'a mut [u8],
}

impl Writer<'_> {
    /// Writes `bytes`; none if there is no room.
    fn put(&mut self, bytes: &[u8]) -> Option<()> {
        let (to, rest) = core::mem::take(&mut self.rest).split_at_mut_checked(bytes.len())?;
        to.copy_from_slice(bytes);
        self.rest = rest;
        Some(())
    }
}

/// Writes a datagram of `header` and `records`, which are in the order of their ids, into `out`; its length, or
/// none if it does not fit.
pub fn write(
    header: &Header,
    records: impl ExactSizeIterator<Item = Record>,
    out: &mut [u8],
) -> Option<usize> {
    let count = u16::try_from(records.len()).ok()?;
    let length = HEADER.checked_add(usize::from(count).checked_mul(RECORD)?)?;
    let mut to = Writer {
        rest: out.get_mut(..length)?,
    };
    to.put(&MAGIC.to_le_bytes())?;
    to.put(&[VERSION, 0])?;
    to.put(&count.to_le_bytes())?;
    for word in [header.realm, header.server, header.epoch] {
        to.put(&word.to_le_bytes())?;
    }
    to.put(&header.seq.to_le_bytes())?;
    to.put(&header.part.to_le_bytes())?;
    to.put(&header.parts.to_le_bytes())?;
    to.put(&header.time_us.to_le_bytes())?;
    to.put(&header.capacity.to_le_bytes())?;
    for record in records {
        let counter = record.counter & const { (1 << COUNTER_BITS) - 1 };
        let word = counter | (u64::from(record.presence) << COUNTER_BITS);
        to.put(&record.id.to_le_bytes())?;
        to.put(&word.to_le_bytes())?;
    }
    Some(length)
}

#[cfg(test)]
mod tests;
