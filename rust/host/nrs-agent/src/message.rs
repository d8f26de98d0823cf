// SPDX-License-Identifier: GPL-2.0-only

//! The format of what servers tell each other.
//!
//! # Vocabulary
//!
//! - *Message*: what a server says once per delta: a number, and a record per entity.
//! - *Datagram*: a piece of a message that travels by itself: a header and some of the records, in the order of
//!   their ids. Each can be used without the others.
//! - *Record*: the service rate and weight of one entity, and whether it is active ([`Record`]).
//! - *Farewell*: the last message of a sender, without records.
//!
//! # Format
//!
//! All numbers are little endian. A *short* number of n bits is `m * 2^s`: m in the lower n bits, s above them.
//!
//! | Offset | Bytes | Header |
//! |---|---|---|
//! | 0 | 4 | `4e 52 53 58`, "NRSX" |
//! | 4 | 1 | version, 3 |
//! | 5 | 1 | 1 for a farewell, else 0 |
//! | 6 | 2 | records that follow |
//! | 8 | 8 | realm: who understands each other |
//! | 16 | 8 | server, not 0 |
//! | 24 | 8 | epoch: larger each time that the server starts |
//! | 32 | 4 | number of the message, wrapping |
//! | 36 | 2 | place of this datagram among those of the message |
//! | 38 | 2 | how many those are, 1 to 256 |
//! | 40 | 8 | time of the rates by the clock that all servers share, us |
//! | 48 | 8 | capacity of the sender, units of cost per second |
//!
//! | Offset | Bytes | Record |
//! |---|---|---|
//! | 0 | 8 | id: path of the entity, hashed; neither 0 nor 2^64 - 1 |
//! | 8 | 4 | service rate, 1/4096 units of cost per second, short of 26 bits |
//! | 12 | 3 | weight, short of 19 bits |
//! | 15 | 1 | 1 if the entity is active, else 0 |

/// Bytes of a header.
pub const HEADER: usize = 56;

/// Bytes of a record.
pub const RECORD: usize = 16;

/// Datagrams of a message, at most.
pub const DATAGRAMS_MAX: u16 = 256;

/// Bits of the first part of a short rate.
const RATE_BITS: u32 = 26;

/// Bits of the first part of a short weight: those of any weight of the module.
const WEIGHT_BITS: u32 = 19;

/// First bytes.
const MAGIC: [u8; 4] = *b"NRSX";

/// The version that is written and understood.
const VERSION: u8 = 3;

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
    /// It names another sender than the one that the transport knows.
    Forged,
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
    /// Time of the rates, us.
    pub time_us: u64,
    /// The sender's capacity, units of cost per second.
    pub capacity: u64,
    /// Whether the sender leaves.
    pub bye: bool,
}

/// What a datagram says of one entity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Its path, hashed.
    pub id: u64,
    /// Service rate, 1/4096 units of cost per second; the lower bits of more than 26 are not sent.
    pub rate: u64,
    /// Weight without factor; see [`round`].
    pub weight: u32,
    /// Whether the entity has requests, or had some in the last delta.
    pub active: bool,
}

/// Returns `value` as a short number of `bits`.
fn shorten(value: u64, bits: u32) -> u32 {
    let shift = (u64::BITS - value.leading_zeros()).saturating_sub(bits);
    (shift << bits) | (value >> shift) as u32
}

/// Returns the value of a short number of `bits`.
fn lengthen(short: u32, bits: u32) -> u64 {
    let value = u64::from(short) & ((1 << bits) - 1);
    // The shift has at most 6 bits.
    value << (short >> bits)
}

/// Returns `weight` as others are told it: 19 bits of it, and zeros.
pub fn round(weight: u32) -> u32 {
    lengthen(shorten(weight.into(), WEIGHT_BITS), WEIGHT_BITS) as u32
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
/// - [`Refusal::Malformed`]: no header, another length than the header says, no place among the datagrams, a flag
///   that is neither 0 nor 1, or records that are not in the order of their ids.
/// - [`Refusal::Version`]: another version.
pub fn parse(mut bytes: &[u8]) -> Result<(Header, Vec<Record>), Refusal> {
    let from = &mut bytes;
    if take::<4>(from)? != MAGIC {
        return Err(Refusal::Malformed);
    }
    let [version, bye] = take(from)?;
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
        bye: bye == 1,
    };
    let fits = bye <= 1
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
        let rate = u32::from_le_bytes(take(from)?);
        let word = u32::from_le_bytes(take(from)?);
        let active = word >> 24;
        if id <= before || id == u64::MAX || active > 1 {
            return Err(Refusal::Malformed);
        }
        before = id;
        records.push(Record {
            id,
            rate: lengthen(rate, RATE_BITS),
            // A weight that is none has too large a shift.
            weight: lengthen(word & 0xff_ffff, WEIGHT_BITS).min(u32::MAX.into()) as u32,
            active: active == 1,
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
    out.extend([VERSION, header.bye.into()]);
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
        let weight = shorten(record.weight.into(), WEIGHT_BITS);
        let word = weight | (u32::from(record.active) << 24);
        out.extend(record.id.to_le_bytes());
        out.extend(shorten(record.rate, RATE_BITS).to_le_bytes());
        out.extend(word.to_le_bytes());
    }
    out
}

#[cfg(test)]
mod tests;
