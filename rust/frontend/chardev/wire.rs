// SPDX-License-Identifier: MIT OR Apache-2.0

//! What passes through `/dev/nrs`, and in bytes through `/dev/nrs-control`; the same file serves the module and its clients.
//!
//! C counterpart: `include/uapi/nrs.h`. All numbers are little-endian; there is no padding.
//!
//! # Vocabulary
//!
//! - *Record*: what is read and written: a header ([`Header`]) and the rest of a structure of that type.
//! - *Argument*: what an ioctl takes: a size and the rest of a structure.
//!
//! # Extension
//!
//! Records and arguments state their size. A new field is appended to its structure, and 0 in the
//! field means what its absence meant before; `decode` then takes the structure without the field,
//! too. Bytes behind the known fields have to be 0, so no field is ignored by mistake. The header
//! has the rules for both sides.

#![cfg_attr(
    MODULE,
    allow(dead_code, unreachable_pub, reason = "clients need the other half")
)]

#[path = "wire/made.rs"]
mod made;

/// The version of the interface.
pub const VERSION: u32 = 1;

/// Type of the ioctls.
pub const IOC: u32 = 0xbc;

/// `_IO(IOC, 1)`: argument [`Attach`].
pub const IOC_ATTACH: u32 = (IOC << 8) | 1;

/// `_IO(IOC, 2)`: argument [`Stats`].
pub const IOC_STATS: u32 = (IOC << 8) | 2;

/// Records that one call takes or gives, at most.
pub const BATCH: usize = 256;

/// Bytes of a record or argument, at most.
pub const SIZE_MAX: usize = 512;

/// Bytes that a request may be charged for, at most.
pub const CHARGE_MAX: u64 = 1 << 40;

/// Longest lease, ms.
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

/// [`Attach::flags`]: every request queues, even when nobody waits.
pub const ATTACH_QUEUE_ALL: u32 = 1;
/// All of them.
pub const ATTACH_FLAGS: u32 = ATTACH_QUEUE_ALL;

/// [`Request::flags`]: goes through the high-priority head.
pub const REQUEST_HIGH: u32 = 1;
/// [`Request::flags`]: is charged for `charge` bytes instead of `length`.
pub const REQUEST_CHARGE: u32 = 2;
/// All of them.
pub const REQUEST_FLAGS: u32 = REQUEST_HIGH | REQUEST_CHARGE;

/// [`Released::flags`]: nobody waited, so it did not queue.
pub const RELEASED_PASSED: u32 = 1;
/// [`Released::flags`]: was sent out without a slot, because the service was drained.
pub const RELEASED_FORCED: u32 = 2;
/// [`Released::flags`]: its deadline passed, so its client has given up.
pub const RELEASED_EXPIRED: u32 = 4;

/// [`Early::flags`]: the client waits for less than the estimate.
pub const EARLY_AT_ONCE: u32 = 1;
/// [`Early::flags`]: the server said itself that it is busy.
pub const EARLY_BUSY: u32 = 2;

/// [`Account::flags`]: the class has requests itself, and none below.
pub const ACCOUNT_LEAF: u32 = 1;
/// [`Account::flags`]: the class has requests, queued or in service.
pub const ACCOUNT_ACTIVE: u32 = 2;
/// [`Account::flags`]: the class has queued requests.
pub const ACCOUNT_WAITING: u32 = 4;
/// [`Account::flags`]: the last record of a class that is removed.
pub const ACCOUNT_GONE: u32 = 8;

/// A factor of one.
pub const FACTOR_ONE: u32 = 1 << 31;

/// Factors that one command sets, at most.
pub const FACTORS_MAX: usize = 16_384;

/// Longest lease of factors, ms.
pub const FACTORS_LEASE_MAX: u32 = 60_000;

/// An identity that is not known.
pub const ID_ABSENT: u32 = u32::MAX;

/// [`Request::net`]: the client's network identifier is not known.
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

/// A field: so many bytes, the least significant first.
pub trait Field: Sized {
    /// The value 0 of all its parts.
    const ZERO: Self;

    /// Takes a value from the front of `bytes`.
    fn take(bytes: &mut &[u8]) -> Option<Self>;

    /// Puts the value to the front of `bytes`; returns the rest.
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
        $(impl Field for $number {
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

impl<T: Field + Copy, const N: usize> Field for [T; N] {
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

/// Why bytes are not what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// Shorter than the structure.
    Short,
    /// Longer than is known here, and the rest is not 0.
    Unknown,
}

/// Defines structures: name, bytes, fields in their order.
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

            // Nothing between the fields: the sum of their sizes is the whole.
            const _: () = assert!(size_of::<$name>() == $name::SIZE);
            const _: () = assert!(0 $(+ size_of::<$type>())+ == $name::SIZE);
            const _: () = assert!($name::SIZE <= SIZE_MAX);

            impl $name {
                /// Bytes.
                pub const SIZE: usize = $bytes;

                /// Name, offset and bytes of each field.
                pub const FIELDS: &'static [(&'static str, usize, usize)] = &[
                    $((
                        stringify!($field),
                        core::mem::offset_of!($name, $field),
                        size_of::<$type>(),
                    ),)+
                ];

                /// Reads the whole of `bytes`.
                ///
                /// # Errors
                ///
                /// See [`Malformed`].
                pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
                    let mut rest = bytes;
                    let known = Self::take(&mut rest).ok_or(Malformed::Short)?;
                    if rest.iter().any(|byte| *byte != 0) {
                        return Err(Malformed::Unknown);
                    }
                    Ok(known)
                }

                /// Its bytes.
                pub fn encode(&self) -> [u8; Self::SIZE] {
                    let mut bytes = [0; Self::SIZE];
                    // There is room for all fields.
                    let _ = self.put(&mut bytes);
                    bytes
                }
            }

            impl Field for $name {
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
    /// How each record starts.
    Header, 8 {
        /// What it is: one of `TYPE_*`.
        kind: u16,
        /// Bytes of the whole record.
        size: u16,
        /// Depends on the type.
        flags: u32,
    }

    /// A request that wants to be served; written.
    Request, 208 {
        /// Type, size, `REQUEST_*`.
        header: Header,
        /// Names the request; no other one that has not been completed may have it.
        cookie: u64,
        /// What the range is in, for example an inode.
        object: u64,
        /// First byte of the range.
        offset: u64,
        /// Bytes of the range.
        length: u64,
        /// Bytes that it costs, with `REQUEST_CHARGE`; else 0.
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
        /// Bytes of the address: 16 for IPv6, else 4; 0 without a network.
        address_len: u8,
        /// Number of the network.
        net_number: u16,
        /// The client's address, most significant byte first; then 0.
        address: [u8; 16],
        /// Job; ends with NUL, after which there is nothing but 0.
        jobid: [u8; 32],
        /// Related requests have the same one; 0: none.
        stream: u64,
        /// Cookies of what has to be completed before; 0: none.
        predecessor: [u64; 8],
        /// Nodes of the job; 0: unknown.
        job_size: u32,
        /// Which of the server's targets it is for.
        target: u32,
        /// How long its client waits, from its arrival on, ms; 0: it does not say.
        timeout_ms: u32,
        /// How long ago it arrived, ms.
        elapsed_ms: u32,
    }

    /// A request has been served, or given up; written.
    Completion, 32 {
        /// Type, size, 0.
        header: Header,
        /// The request.
        cookie: u64,
        /// 0, or the errno that it failed with.
        status: u32,
        /// Must be 0.
        reserved: u32,
        /// Bytes that were transferred.
        bytes: u64,
    }

    /// A request, and what has to be completed before it, is to be served with high priority; written.
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
        /// How long the policy withheld it, ns.
        wait_ns: u64,
        /// Requests that its client may have in the service now.
        credits: u32,
        /// Clients with requests in the service now.
        fan_out: u32,
        /// The worst service time now, for replies, ms.
        estimate_ms: u32,
        /// Time until its deadline, ms; 0: it has none, or it passed.
        left_ms: u32,
    }

    /// A request takes longer, so its client is to wait for longer; read.
    Early, 24 {
        /// Type, size, `EARLY_*`.
        header: Header,
        /// The request.
        cookie: u64,
        /// How long its client is to wait in all, from its arrival on, ms.
        timeout_ms: u32,
        /// The worst service time now, ms.
        estimate_ms: u32,
    }

    /// All clients that are to come back are back, or will not come; read.
    Recovered, 16 {
        /// Type, size, 0.
        header: Header,
        /// Reports of clients that came back.
        clients: u32,
        /// Largest of their timeouts, ms.
        largest_ms: u32,
    }

    /// A request that was read takes so much longer, from now; written.
    Busy, 24 {
        /// Type, size, 0.
        header: Header,
        /// The request.
        cookie: u64,
        /// How long, ms; 1 to `LEASE_MAX`.
        extra_ms: u32,
        /// Must be 0.
        reserved: u32,
    }

    /// A client has come back after a restart of the server; written.
    Reconnect, 32 {
        /// Type, size, 0.
        header: Header,
        /// Its network identifier, as in [`Request`].
        net: u8,
        /// See [`Request`].
        address_len: u8,
        /// See [`Request`].
        net_number: u16,
        /// See [`Request`].
        address: [u8; 16],
        /// How long it waits for a request, ms; 0: it does not say.
        timeout_ms: u32,
    }

    /// Makes an open file a client of a service.
    Attach, 88 {
        /// Bytes of this structure.
        size: u32,
        /// `VERSION`.
        version: u32,
        /// `ATTACH_*`.
        flags: u32,
        /// How long a released request may keep its slot, ms; 0: for ever.
        lease_ms: u32,
        /// In: requests that the file may have, 0 for as many as the module allows. Out: how many it may.
        requests_max: u32,
        /// Must be 0.
        reserved: u32,
        /// Name of the service; ends with NUL, after which there is nothing but 0.
        service: [u8; 32],
        /// Name of the client among the others of the service, likewise; empty: the process's number.
        client: [u8; 32],
    }

    /// What an open file has done.
    Stats, 208 {
        /// Bytes of this structure.
        size: u32,
        /// 0.
        reserved: u32,
        /// Requests that were taken.
        requests: u64,
        /// Of these, those that did not queue because nobody waited.
        passed: u64,
        /// Requests that a policy withholds now.
        queued: u64,
        /// Requests that are released and not read yet.
        ready: u64,
        /// Requests that were read and are not completed.
        running: u64,
        /// Requests that were completed.
        completed: u64,
        /// Of these, those with an error.
        failed: u64,
        /// Bytes transferred by those.
        bytes: u64,
        /// Records that were refused because they are malformed (`EINVAL`).
        refused: u64,
        /// Requests that were refused because of their cookie (`EEXIST`).
        duplicates: u64,
        /// Completions of what is not running (`ENOENT`).
        unknown: u64,
        /// Slots that were taken away because the lease was over.
        reclaimed: u64,
        /// Completions that came after that.
        late: u64,
        /// Requests that were sent out without a slot.
        forced: u64,
        /// Requests that were moved to high priority.
        promoted: u64,
        /// Requests that had to wait for others that come before them.
        blocked: u64,
        /// Requests beyond what their clients were told that they may have.
        over: u64,
        /// Requests for which the service had no room at first.
        room_waits: u64,
        /// Clients with requests, of this file.
        peers: u32,
        /// Clients with requests, of the service.
        fan_out: u32,
        /// Requests that each of them may have in the service.
        credits: u32,
        /// The same for one whose request was moved to high priority.
        credits_high: u32,
        /// Early replies that were read.
        early_sent: u64,
        /// Early replies that would not have helped, so that there was none.
        early_refused: u64,
        /// Early replies that were not read before the deadline.
        early_late: u64,
        /// Requests whose deadline passed.
        expired: u64,
        /// Reports of clients that came back.
        reconnected: u64,
    }

    /// How the answer to `accounts` starts; records follow ([`Account`]).
    Accounts, 32 {
        /// Bytes of one record.
        record_size: u32,
        /// Records.
        count: u32,
        /// Names what ids are of; changes with the mode, the cost model and each start of the policy; never 0.
        instance: u64,
        /// When the accounts were read, monotonic ns.
        time_ns: u64,
        /// Hash of the mode and the cost model, per service if the mode has cgroup; 0 without accounts.
        terms: u64,
    }

    /// What was done for one class.
    Account, 40 {
        /// The class.
        id: u64,
        /// The class above; 0: none.
        parent: u64,
        /// Service so far, units of cost; of a class that has others below: what no other record has.
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

    /// A factor, behind the first line of `factors`.
    Factor, 16 {
        /// The class.
        id: u64,
        /// By what its weight is multiplied, in units of 2^-31: 1 to `FACTOR_ONE`.
        factor: u32,
        /// Must be 0.
        reserved: u32,
    }
}

/// The text in front of the first NUL.
///
/// `None`: there is no NUL, or something other than NUL behind it.
pub fn text(field: &[u8; 32]) -> Option<&[u8]> {
    let len = field.iter().position(|byte| *byte == 0)?;
    let (text, rest) = field.split_at_checked(len)?;
    rest.iter().all(|byte| *byte == 0).then_some(text)
}
