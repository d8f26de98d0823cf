// SPDX-License-Identifier: MIT OR Apache-2.0

//! Records of `/dev/nrs`, and binary data of `/dev/nrs-control`; the module and its clients share
//! this file.
//!
//! C counterpart: `include/uapi/nrs.h`. All numbers are little-endian; there is no padding.
//!
//! # Terms
//!
//! - *Record*: unit of reads and writes: a header ([`Header`]) and the rest of a structure of that
//!   type.
//! - *Argument*: parameter of an ioctl: a size and the rest of a structure.
//!
//! # Extension
//!
//! Records and arguments contain their size. A new field is appended to its structure, and 0 in the
//! field has the meaning of its absence. `decode` then accepts the structure without the field,
//! too. Bytes behind the known fields must be 0, so that no field is ignored by mistake. The C
//! header has the rules for both sides.

#![cfg_attr(
    MODULE,
    allow(dead_code, unreachable_pub, reason = "clients need the other half")
)]

#[path = "wire/made.rs"]
mod made;

/// Version of the interface.
pub const VERSION: u32 = 1;

/// Type of the ioctls.
pub const IOC: u32 = 0xbc;

/// `_IO(IOC, 1)`: argument [`Attach`].
pub const IOC_ATTACH: u32 = (IOC << 8) | 1;

/// `_IO(IOC, 2)`: argument [`Stats`].
pub const IOC_STATS: u32 = (IOC << 8) | 2;

/// Maximum number of records of one call.
pub const BATCH: usize = 256;

/// Maximum size of a record or argument, bytes.
pub const SIZE_MAX: usize = 512;

/// Maximum charge of a request, bytes.
pub const CHARGE_MAX: u64 = 1 << 40;

/// Maximum lease, ms.
pub const LEASE_MAX: u32 = 3_600_000;

/// Type of [`Request`].
pub const TYPE_REQUEST: u16 = 1;
/// Type of [`Completion`].
pub const TYPE_COMPLETION: u16 = 2;
/// Type of [`Released`].
pub const TYPE_RELEASED: u16 = 3;
/// Type of [`Promotion`].
pub const TYPE_PROMOTE: u16 = 4;
/// Type of [`Early`].
pub const TYPE_EARLY: u16 = 5;
/// Type of [`Recovered`].
pub const TYPE_RECOVERED: u16 = 6;
/// Type of [`Busy`].
pub const TYPE_BUSY: u16 = 7;
/// Type of [`Reconnect`].
pub const TYPE_RECONNECT: u16 = 8;

/// [`Attach::flags`]: every request is queued, even if the queue is empty.
pub const ATTACH_QUEUE_ALL: u32 = 1;
/// All flags of [`Attach::flags`].
pub const ATTACH_FLAGS: u32 = ATTACH_QUEUE_ALL;

/// [`Request::flags`]: uses the high-priority head.
pub const REQUEST_HIGH: u32 = 1;
/// [`Request::flags`]: is charged for `charge` bytes instead of `length`.
pub const REQUEST_CHARGE: u32 = 2;
/// All flags of [`Request::flags`].
pub const REQUEST_FLAGS: u32 = REQUEST_HIGH | REQUEST_CHARGE;

/// [`Released::flags`]: the request was dispatched without queueing.
pub const RELEASED_PASSED: u32 = 1;
/// [`Released::flags`]: the request was dispatched without a slot, because the service was drained.
pub const RELEASED_FORCED: u32 = 2;
/// [`Released::flags`]: the deadline has passed, so the client has given up.
pub const RELEASED_EXPIRED: u32 = 4;

/// [`Early::flags`]: the client's timeout is less than the estimate.
pub const EARLY_AT_ONCE: u32 = 1;
/// [`Early::flags`]: the server reported that it is busy.
pub const EARLY_BUSY: u32 = 2;

/// [`Account::flags`]: the class has requests itself, and no classes below.
pub const ACCOUNT_LEAF: u32 = 1;
/// [`Account::flags`]: the class has requests, queued or in service.
pub const ACCOUNT_ACTIVE: u32 = 2;
/// [`Account::flags`]: the class has queued requests.
pub const ACCOUNT_WAITING: u32 = 4;
/// [`Account::flags`]: the last record of a class that was removed.
pub const ACCOUNT_GONE: u32 = 8;

/// A factor of one.
pub const FACTOR_ONE: u32 = 1 << 31;

/// Maximum number of factors of one command.
pub const FACTORS_MAX: usize = 16_384;

/// Maximum lease of factors, ms.
pub const FACTORS_LEASE_MAX: u32 = 60_000;

/// An unknown identity.
pub const ID_ABSENT: u32 = u32::MAX;

/// [`Request::net`]: the client's network identifier is unknown.
pub const NET_NONE: u8 = 0;
/// Network `tcp`.
pub const NET_TCP: u8 = 2;
/// Network `o2ib`.
pub const NET_O2IB: u8 = 5;
/// Network `lo`.
pub const NET_LO: u8 = 9;
/// Network `gni`.
pub const NET_GNI: u8 = 13;
/// Network `gip`.
pub const NET_GIP: u8 = 14;
/// Network `ptlf`.
pub const NET_PTLF: u8 = 15;
/// Network `kfi`.
pub const NET_KFI: u8 = 16;

/// A field with a fixed number of bytes, the least significant first.
pub trait WireField: Sized {
    /// The value with all parts 0.
    const ZERO: Self;

    /// Reads a value from the front of `bytes`, and removes it there.
    fn take(bytes: &mut &[u8]) -> Option<Self>;

    /// Writes the value to the front of `bytes`; returns the rest.
    fn put<'a>(&self, bytes: &'a mut [u8]) -> Option<&'a mut [u8]>;
}

/// Splits the first `N` bytes off.
fn front<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (head, rest) = bytes.split_at_checked(N)?;
    *bytes = rest;
    head.try_into().ok()
}

/// Writes `value` to the front of `bytes`; returns the rest.
fn append<'a>(bytes: &'a mut [u8], value: &[u8]) -> Option<&'a mut [u8]> {
    let (head, rest) = bytes.split_at_mut_checked(value.len())?;
    head.copy_from_slice(value);
    Some(rest)
}

macro_rules! numbers {
    ($($number:ty),+) => {
        $(impl WireField for $number {
            const ZERO: Self = 0;

            fn take(bytes: &mut &[u8]) -> Option<Self> {
                front(bytes).map(Self::from_le_bytes)
            }

            fn put<'a>(&self, bytes: &'a mut [u8]) -> Option<&'a mut [u8]> {
                append(bytes, &self.to_le_bytes())
            }
        })+
    };
}

numbers!(u8, u16, u32, u64);

impl<T: WireField + Copy, const N: usize> WireField for [T; N] {
    const ZERO: Self = [T::ZERO; N];

    fn take(bytes: &mut &[u8]) -> Option<Self> {
        let mut all = Self::ZERO;
        for one in &mut all {
            *one = T::take(bytes)?;
        }
        Some(all)
    }

    fn put<'a>(&self, bytes: &'a mut [u8]) -> Option<&'a mut [u8]> {
        self.iter().try_fold(bytes, |rest, one| one.put(rest))
    }
}

/// Reason why bytes could not be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireError {
    /// Shorter than the structure.
    Short,
    /// Longer than the known structure, and the rest is not 0.
    Unknown,
}

/// Defines structures by name, size in bytes, and fields in order.
macro_rules! structures {
    ($($(#[$doc:meta])* $name:ident, $bytes:literal {
        $($(#[$field_doc:meta])* $field:ident: $type:ty,)+
    })+) => {
        $(
            $(#[$doc])*
            #[repr(C)]
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            pub struct $name {
                $($(#[$field_doc])* pub $field: $type,)+
            }

            // No padding: the sum of the sizes of the fields is the size of the structure.
            const _: () = assert!(size_of::<$name>() == $name::SIZE);
            const _: () = assert!(0 $(+ size_of::<$type>())+ == $name::SIZE);
            const _: () = assert!($name::SIZE <= SIZE_MAX);

            impl $name {
                /// Size in bytes.
                pub const SIZE: usize = $bytes;

                /// Name, offset and size of each field.
                pub const FIELDS: &'static [(&'static str, usize, usize)] = &[
                    $((
                        stringify!($field),
                        core::mem::offset_of!($name, $field),
                        size_of::<$type>(),
                    ),)+
                ];

                /// Decodes all of `bytes`.
                ///
                /// # Errors
                ///
                /// See [`WireError`].
                pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
                    let mut rest = bytes;
                    let known = Self::take(&mut rest).ok_or(WireError::Short)?;
                    if rest.iter().any(|byte| *byte != 0) {
                        return Err(WireError::Unknown);
                    }
                    Ok(known)
                }

                /// Returns the bytes of the structure.
                pub fn encode(&self) -> [u8; Self::SIZE] {
                    let mut bytes = [0; Self::SIZE];
                    // There is room for all fields.
                    let _ = self.put(&mut bytes);
                    bytes
                }
            }

            impl WireField for $name {
                const ZERO: Self = Self { $($field: <$type>::ZERO,)+ };

                fn take(bytes: &mut &[u8]) -> Option<Self> {
                    Some(Self { $($field: <$type>::take(bytes)?,)+ })
                }

                fn put<'a>(&self, bytes: &'a mut [u8]) -> Option<&'a mut [u8]> {
                    $(let bytes = self.$field.put(bytes)?;)+
                    Some(bytes)
                }
            }
        )+
    };
}

structures! {
    /// Start of each record.
    Header, 8 {
        /// Type of the record: one of `TYPE_*`.
        kind: u16,
        /// Size of the whole record, bytes.
        size: u16,
        /// Flags, by type.
        flags: u32,
    }

    /// A request to be scheduled; written.
    Request, 208 {
        /// Type, size, `REQUEST_*`.
        header: Header,
        /// Identifier of the request; unique among requests that are not completed.
        cookie: u64,
        /// Object of the range, for example an inode.
        object: u64,
        /// First byte of the range.
        offset: u64,
        /// Length of the range, bytes.
        length: u64,
        /// Cost, bytes, with `REQUEST_CHARGE`; else 0.
        charge: u64,
        /// RPC number of the operation.
        opcode: u32,
        /// User, or `ID_ABSENT`.
        uid: u32,
        /// Group, or `ID_ABSENT`.
        gid: u32,
        /// Project, or `ID_ABSENT`.
        projid: u32,
        /// Node map, or `ID_ABSENT`.
        nodemap: u32,
        /// Type of the client's network: one of `NET_*`.
        net: u8,
        /// Length of the address, bytes: 16 for IPv6, else 4; 0 without a network.
        address_len: u8,
        /// Number of the network.
        net_number: u16,
        /// The client's address, most significant byte first; then 0.
        address: [u8; 16],
        /// Job; ends with NUL, followed only by 0.
        jobid: [u8; 32],
        /// Stream number that related requests share; 0: none.
        stream: u64,
        /// Cookies of requests that must be completed first; 0: none.
        predecessor: [u64; 8],
        /// Number of nodes of the job; 0: unknown.
        job_size: u32,
        /// Target of the server that the request is for.
        target: u32,
        /// Timeout of the client, from the arrival of the request on, ms; 0: unknown.
        timeout_ms: u32,
        /// Time since the arrival of the request, ms.
        elapsed_ms: u32,
    }

    /// A request was served, or given up; written.
    Completion, 32 {
        /// Type, size, 0.
        header: Header,
        /// The request.
        cookie: u64,
        /// 0, or the errno of the failed request.
        status: u32,
        /// Must be 0.
        reserved: u32,
        /// Bytes transferred.
        bytes: u64,
    }

    /// A request and its predecessors are to be served with high priority; written.
    Promotion, 16 {
        /// Type, size, 0.
        header: Header,
        /// The request.
        cookie: u64,
    }

    /// A request is to be served now; read.
    Released, 40 {
        /// Type, size, `RELEASED_*`.
        header: Header,
        /// The request.
        cookie: u64,
        /// Time for which the request was queued in the policy, ns.
        wait_ns: u64,
        /// Number of requests that the client may have in the service now.
        credits: u32,
        /// Number of clients with requests in the service now.
        fan_out: u32,
        /// Largest service time now, for replies, ms.
        estimate_ms: u32,
        /// Time until the deadline, ms; 0: there is none, or it has passed.
        left_ms: u32,
    }

    /// A request takes longer, so its client must extend its timeout; read.
    Early, 24 {
        /// Type, size, `EARLY_*`.
        header: Header,
        /// The request.
        cookie: u64,
        /// New timeout of the client, from the arrival of the request on, ms.
        timeout_ms: u32,
        /// Largest service time now, ms.
        estimate_ms: u32,
    }

    /// All clients expected after a restart have reconnected, or will not reconnect; read.
    Recovered, 16 {
        /// Type, size, 0.
        header: Header,
        /// Reports of clients that reconnected.
        clients: u32,
        /// Largest timeout of these clients, ms.
        largest_ms: u32,
    }

    /// A request that was read takes longer than expected; written.
    Busy, 24 {
        /// Type, size, 0.
        header: Header,
        /// The request.
        cookie: u64,
        /// Additional time from now on, ms; 1 to `LEASE_MAX`.
        extra_ms: u32,
        /// Must be 0.
        reserved: u32,
    }

    /// A client has reconnected after a restart of the server; written.
    Reconnect, 32 {
        /// Type, size, 0.
        header: Header,
        /// Network identifier of the client, as in [`Request`].
        net: u8,
        /// See [`Request`].
        address_len: u8,
        /// See [`Request`].
        net_number: u16,
        /// See [`Request`].
        address: [u8; 16],
        /// Timeout of the client for a request, ms; 0: unknown.
        timeout_ms: u32,
    }

    /// Argument that attaches an open file to a service as a client.
    Attach, 88 {
        /// Size of this structure, bytes.
        size: u32,
        /// `VERSION`.
        version: u32,
        /// `ATTACH_*`.
        flags: u32,
        /// Time for which a released request may keep its slot, ms; 0: unlimited.
        lease_ms: u32,
        /// In: maximum number of requests of the file, 0 for the module's limit. Out: the limit in
        /// effect.
        requests_max: u32,
        /// Must be 0.
        reserved: u32,
        /// Name of the service; ends with NUL, followed only by 0.
        service: [u8; 32],
        /// Name of the client in the service, in the same format; empty: the number of the process.
        client: [u8; 32],
    }

    /// Counters of an open file.
    Stats, 208 {
        /// Size of this structure, bytes.
        size: u32,
        /// 0.
        reserved: u32,
        /// Requests that were accepted.
        requests: u64,
        /// Of these, requests that were dispatched without queueing.
        passed: u64,
        /// Requests that are queued in a policy now.
        queued: u64,
        /// Requests that were released and not read yet.
        ready: u64,
        /// Requests that were read and are not completed.
        running: u64,
        /// Requests that were completed.
        completed: u64,
        /// Of these, requests with an error.
        failed: u64,
        /// Bytes transferred by completed requests.
        bytes: u64,
        /// Records that were refused because they were malformed (`EINVAL`).
        refused: u64,
        /// Requests that were refused because of their cookie (`EEXIST`).
        duplicates: u64,
        /// Completions of requests that are not running (`ENOENT`).
        unknown: u64,
        /// Slots that were revoked because the lease had expired.
        reclaimed: u64,
        /// Completions after the lease had expired.
        late: u64,
        /// Requests that were dispatched without a slot.
        forced: u64,
        /// Requests that were moved to high priority.
        promoted: u64,
        /// Requests that had to wait for predecessors.
        blocked: u64,
        /// Requests beyond the credits of their clients.
        over: u64,
        /// Requests for which the service had no room at first.
        room_waits: u64,
        /// Clients of this file with requests.
        peers: u32,
        /// Clients of the service with requests.
        fan_out: u32,
        /// Requests that each of these clients may have in the service.
        credits: u32,
        /// Requests that a client may have if one of its requests was moved to high priority.
        credits_high: u32,
        /// Early replies that were read.
        early_sent: u64,
        /// Early replies that were not sent because they would not have helped.
        early_refused: u64,
        /// Early replies that were not read before the deadline.
        early_late: u64,
        /// Requests whose deadline passed.
        expired: u64,
        /// Reports of clients that reconnected.
        reconnected: u64,
    }

    /// Start of the answer to `accounts`; records follow ([`Account`]).
    Accounts, 32 {
        /// Size of one record, bytes.
        record_size: u32,
        /// Number of records.
        count: u32,
        /// Instance of the ids; changes with the mode, the cost model and each start of the policy;
        /// never 0.
        instance: u64,
        /// Time at which the accounts were read, monotonic ns.
        time_ns: u64,
        /// Hash of the mode and the cost model; per service if the mode has cgroup; 0 without
        /// accounts.
        terms: u64,
    }

    /// Account of one class.
    Account, 40 {
        /// Identifier of the class.
        id: u64,
        /// Identifier of the class above; 0: none.
        parent: u64,
        /// Service so far, units of cost; for a class with classes below: service that is in no
        /// other record.
        service: u64,
        /// Weight among siblings without the factor; 4096 for a weight of one.
        weight: u32,
        /// `ACCOUNT_*`.
        flags: u32,
        /// Factor in force, in units of 2^-31.
        factor: u32,
        /// Level, 0: outermost.
        level: u32,
    }

    /// A factor, after the first line of `factors`.
    Factor, 16 {
        /// Identifier of the class.
        id: u64,
        /// Factor of the weight, in units of 2^-31: 1 to `FACTOR_ONE`.
        factor: u32,
        /// Must be 0.
        reserved: u32,
    }
}

/// Returns the text before the first NUL.
///
/// `None`: there is no NUL, or a byte after it is not 0.
pub fn text(field: &[u8; 32]) -> Option<&[u8]> {
    let len = field.iter().position(|byte| *byte == 0)?;
    let (text, rest) = field.split_at_checked(len)?;
    rest.iter().all(|byte| *byte == 0).then_some(text)
}
