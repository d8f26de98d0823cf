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
pub const DATAGRAMS_MAX: u16 = 256;

/// Presence everywhere.
pub const PRESENT: u16 = u16::MAX;

/// Bits of a counter.
pub(crate) const COUNTER_BITS: u32 = 48;

/// All bits of a counter.
pub(crate) const COUNTER_MASK: u64 = (1 << COUNTER_BITS) - 1;

/// First bytes.
const MAGIC: [u8; 4] = *b"NRSX";

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
fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], Refusal> {
    let (first, rest) = bytes.split_first_chunk().ok_or(Refusal::Malformed)?;
    *bytes = rest;
    Ok(*first)
}

/// The header and the records of `bytes`.
///
/// # Errors
///
/// - [`Refusal::Malformed`]: no header, another length than the header says, no place among the datagrams, or
///   records that are not in the order of their ids.
/// - [`Refusal::Version`]: another version.
pub fn parse(mut bytes: &[u8]) -> Result<(Header, Vec<Record>), Refusal> {
    let from = &mut bytes;
    if take::<4>(from)? != MAGIC {
        return Err(Refusal::Malformed);
    }
    let [version, zero] = take(from)?;
    if version != VERSION {
        return Err(Refusal::Version);
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
    let fits = zero == 0
        && from.len() == count * RECORD
        && header.server != 0
        && header.part < header.parts
        && header.parts <= DATAGRAMS_MAX;
    if !fits {
        return Err(Refusal::Malformed);
    }
    let mut records = Vec::with_capacity(count);
    let mut before = 0;
    for _ in 0..count {
        let id = u64::from_le_bytes(take(from)?);
        let word = u64::from_le_bytes(take(from)?);
        if id <= before || id == u64::MAX {
            return Err(Refusal::Malformed);
        }
        before = id;
        records.push(Record {
            id,
            counter: word & COUNTER_MASK,
            presence: (word >> COUNTER_BITS) as u16,
        });
    }
    Ok((header, records))
}

/// Returns the datagram of `header` and `records`, which are in the order of their ids.
///
/// # Panics
///
/// There are more than 65,535 records.
pub fn write(header: &Header, records: &[Record]) -> Vec<u8> {
    let count = u16::try_from(records.len()).expect("records of one datagram");
    let mut out = Vec::with_capacity(HEADER + records.len() * RECORD);
    out.extend(MAGIC);
    out.extend([VERSION, 0]);
    out.extend(count.to_le_bytes());
    for word in [header.realm, header.server, header.epoch] {
        out.extend(word.to_le_bytes());
    }
    out.extend(header.seq.to_le_bytes());
    out.extend(header.part.to_le_bytes());
    out.extend(header.parts.to_le_bytes());
    out.extend(header.time_us.to_le_bytes());
    out.extend(header.capacity.to_le_bytes());
    for record in records {
        let word = (record.counter & COUNTER_MASK) | (u64::from(record.presence) << COUNTER_BITS);
        out.extend(record.id.to_le_bytes());
        out.extend(word.to_le_bytes());
    }
    out
}

#[cfg(test)]
mod tests;
