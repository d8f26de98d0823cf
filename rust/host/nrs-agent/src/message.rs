// SPDX-License-Identifier: GPL-2.0-only

//! Format of the messages between servers.
//!
//! # Terms
//!
//! - *Message*: the data that a server sends in one delta: a number, and a record per entity.
//! - *Datagram*: a part of a message: a header and some of the records, ordered by id. Datagrams
//!   can be used independently of each other.
//! - *Record*: service rate and weight of one entity, and a flag for an active entity ([`Record`]).
//! - *Farewell*: the last message of a sender, without records.
//!
//! # Format
//!
//! All numbers are little endian. A *short* number of n bits is `m * 2^s`: m in the lower n bits, s
//! above them.
//!
//! | Offset | Bytes | Header |
//! |---|---|---|
//! | 0 | 4 | `4e 52 53 58`, "NRSX" |
//! | 4 | 1 | version, 3 |
//! | 5 | 1 | 1 for a farewell, else 0 |
//! | 6 | 2 | number of records |
//! | 8 | 8 | realm |
//! | 16 | 8 | server, not 0 |
//! | 24 | 8 | epoch: increases with each start of the server |
//! | 32 | 4 | number of the message, wrapping |
//! | 36 | 2 | index of this datagram in the message |
//! | 38 | 2 | number of datagrams of the message, 1 to 256 |
//! | 40 | 8 | time of the rates by the clock that all servers share, us |
//! | 48 | 8 | capacity of the sender, units of cost per second |
//!
//! | Offset | Bytes | Record |
//! |---|---|---|
//! | 0 | 8 | id: hashed path of the entity; neither 0 nor 2^64 - 1 |
//! | 8 | 4 | service rate, 1/4096 units of cost per second, short of 26 bits |
//! | 12 | 3 | weight, short of 19 bits |
//! | 15 | 1 | 1 if the entity is active, else 0 |

/// Size of a header, bytes.
pub const HEADER: usize = 56;

/// Size of a record, bytes.
pub const RECORD: usize = 16;

/// Maximum number of datagrams of a message.
pub const DATAGRAMS_MAX: u16 = 256;

/// Number of bits of the mantissa of a short rate.
const RATE_BITS: u32 = 26;

/// Number of bits of the mantissa of a short weight; sufficient for any weight of the module.
const WEIGHT_BITS: u32 = 19;

/// Magic number at the start of a datagram.
const MAGIC: [u8; 4] = *b"NRSX";

/// Version of the format that is written and accepted.
const VERSION: u8 = 3;

/// Reason for which a datagram is refused; no part of a refused datagram is stored, except with
/// `Crowded`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The datagram is not a message, or its size does not match its header.
    Malformed,
    /// The datagram has another version.
    Version,
    /// The datagram is from another realm.
    Foreign,
    /// The datagram was sent by the receiver itself.
    Own,
    /// The datagram names a server that is not its sender according to the transport.
    Forged,
    /// The datagram was received before.
    Duplicate,
    /// A newer message of the sender was received before.
    Old,
    /// The maximum number of servers or records is reached.
    Crowded,
}

/// Header of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Number of the realm.
    pub realm: u64,
    /// Number of the sender.
    pub server: u64,
    /// Epoch of the sender.
    pub epoch: u64,
    /// Number of the message.
    pub seq: u32,
    /// Index of the datagram in the message.
    pub part: u16,
    /// Number of datagrams of the message.
    pub parts: u16,
    /// Time of the rates, us.
    pub time_us: u64,
    /// Capacity of the sender, units of cost per second.
    pub capacity: u64,
    /// True if the sender leaves.
    pub bye: bool,
}

/// Record of one entity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Hashed path of the entity.
    pub id: u64,
    /// Service rate, 1/4096 units of cost per second; only the upper 26 bits are sent.
    pub rate: u64,
    /// Weight without factor; see [`round`].
    pub weight: u32,
    /// True if the entity has requests, or had requests in the last delta.
    pub active: bool,
}

/// Returns `value` as a short number of `bits`.
fn shorten(value: u64, bits: u32) -> u32 {
    let shift = (u64::BITS - value.leading_zeros()).saturating_sub(bits);
    (shift << bits) | (value >> shift) as u32
}

/// Returns the value of a short number of `bits`.
fn decode_short(short: u32, bits: u32) -> u64 {
    let value = u64::from(short) & ((1 << bits) - 1);
    // The shift has at most 6 bits.
    value << (short >> bits)
}

/// Returns `weight` as transmitted: its upper 19 bits, followed by zeros.
pub fn round(weight: u32) -> u32 {
    decode_short(shorten(weight.into(), WEIGHT_BITS), WEIGHT_BITS) as u32
}

/// Takes `N` bytes from the front of `bytes`.
fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], Refusal> {
    let (first, rest) = bytes.split_first_chunk().ok_or(Refusal::Malformed)?;
    *bytes = rest;
    Ok(*first)
}

/// Parses the header and the records of `bytes`.
///
/// # Errors
///
/// - [`Refusal::Malformed`]: no header, or a length that differs from the header. An invalid index,
///   server number or flag. Ids of records that are invalid or not in ascending order.
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
            rate: decode_short(rate, RATE_BITS),
            // An invalid weight has too large a shift.
            weight: decode_short(word & 0xff_ffff, WEIGHT_BITS).min(u32::MAX.into()) as u32,
            active: active == 1,
        });
    }
    Ok((header, records))
}

/// Returns the datagram of `header` and `records`, which must be ordered by id.
///
/// # Panics
///
/// Panics with more than 65,535 records.
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
