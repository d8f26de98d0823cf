// SPDX-License-Identifier: GPL-2.0-only

//! Decodes the attributes and the cost of a request from its record.

use super::wire;
use crate::sched::{
    attr::{Attrs, Id, Opcode, Priority},
    item::Cost,
    jobid::JobId,
    nid::{Address, Net, Nid},
};

/// A valid record.
pub(crate) struct Decoded {
    /// Attributes of the request.
    pub(crate) attrs: Attrs,
    /// Cost of the request.
    pub(crate) cost: Cost,
}

impl Decoded {
    /// Decodes `record`. Returns `None` for an unknown flag, a range beyond 2^64, a charge above
    /// [`wire::CHARGE_MAX`] or without its flag, and an invalid network identifier or job. Unused
    /// bytes must be 0.
    pub(crate) fn of(record: &wire::Request) -> Option<Self> {
        let flags = record.header.flags;
        let charged = flags & wire::REQUEST_CHARGE != 0;
        let charge = if charged {
            record.charge
        } else {
            record.length
        };
        let fits = flags & !wire::REQUEST_FLAGS == 0
            && (charged || record.charge == 0)
            && charge <= wire::CHARGE_MAX
            && record.offset.checked_add(record.length).is_some();
        if !fits {
            return None;
        }
        let opcode = Opcode::new(record.opcode);
        let high = flags & wire::REQUEST_HIGH != 0;
        Some(Self {
            attrs: Attrs {
                nid: nid_of(
                    record.net,
                    record.address_len,
                    record.net_number,
                    &record.address,
                )?,
                jobid: JobId::new(wire::text(&record.jobid)?),
                uid: Id::new(record.uid),
                gid: Id::new(record.gid),
                projid: Id::new(record.projid),
                nodemap: Id::new(record.nodemap),
                opcode,
                target: record.target,
                stream: record.stream,
                object: record.object,
                offset: record.offset,
                length: record.length,
                size: record.job_size,
                priority: if high {
                    Priority::High
                } else {
                    Priority::Regular
                },
                ..Attrs::UNKNOWN
            },
            cost: Cost::new(opcode.direction(), charge),
        })
    }
}

/// Returns the network identifier in the fields of a record, if present. `None`: the fields are
/// invalid.
pub(crate) fn nid_of(
    net: u8,
    address_len: u8,
    number: u16,
    address: &[u8; 16],
) -> Option<Option<Nid>> {
    let (front, rest) = address.split_at_checked(address_len.into())?;
    if rest.iter().any(|byte| *byte != 0) {
        return None;
    }
    let net = match net {
        wire::NET_NONE if address_len == 0 && number == 0 => return Some(None),
        wire::NET_TCP => Net::Tcp,
        wire::NET_O2IB => Net::O2ib,
        wire::NET_LO => Net::Lo,
        wire::NET_GNI => Net::Gni,
        wire::NET_GIP => Net::Gip,
        wire::NET_PTLF => Net::Ptlf,
        wire::NET_KFI => Net::Kfi,
        _ => return None,
    };
    let address = if let Ok(ip) = <[u8; 16]>::try_from(front) {
        Address::V6(ip)
    } else {
        let short = <[u8; 4]>::try_from(front).ok()?;
        if net.is_ip() {
            Address::V4(short)
        } else {
            Address::Number(u32::from_be_bytes(short))
        }
    };
    Nid::new(net, number, address).map(Some).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::item::Direction;

    #[test]
    fn what_is_malformed_is_refused() {
        type Change = fn(&mut wire::Request);
        let cases: [(bool, Change); 25] = [
            (true, |_| ()),
            (true, |r| r.header.flags = wire::REQUEST_HIGH),
            (false, |r| r.header.flags = 4),
            (true, |r| r.length = wire::CHARGE_MAX),
            (false, |r| r.length = wire::CHARGE_MAX + 1),
            (false, |r| r.charge = 1),
            (true, |r| {
                (r.header.flags, r.length, r.charge) = (wire::REQUEST_CHARGE, u64::MAX, 1);
            }),
            (false, |r| {
                (r.header.flags, r.charge) = (wire::REQUEST_CHARGE, u64::MAX);
            }),
            (false, |r| (r.offset, r.length) = (u64::MAX, 1)),
            (true, |r| r.stream = u64::MAX),
            (true, |r| r.target = u32::MAX),
            (true, |r| r.job_size = u32::MAX),
            (true, |r| r.predecessor = [0, 0, 0, 0, 0, 0, 0, 1]),
            (false, |r| r.header.flags = 1 << 31),
            (false, |r| r.jobid = [b'a'; 32]),
            (false, |r| {
                r.jobid = [0; 32];
                let [.., last] = &mut r.jobid;
                *last = b'a';
            }),
            (true, |r| (r.net, r.address_len) = (wire::NET_TCP, 4)),
            (true, |r| (r.net, r.address_len) = (wire::NET_O2IB, 16)),
            (false, |r| (r.net, r.address_len) = (wire::NET_TCP, 5)),
            (false, |r| (r.net, r.address_len) = (wire::NET_TCP, 17)),
            (false, |r| (r.net, r.address_len) = (wire::NET_KFI, 16)),
            (false, |r| (r.net, r.address_len) = (1, 4)),
            (false, |r| r.address_len = 4),
            (false, |r| r.address = [1; 16]),
            (false, |r| {
                (r.net, r.address_len, r.net_number) = (wire::NET_LO, 4, 1);
            }),
        ];
        for (fine, change) in cases {
            let mut request = wire::Request::new(1);
            change(&mut request);
            assert!(Decoded::of(&request).is_some() == fine);
        }
    }

    #[test]
    fn stated_fields_are_decoded() {
        let mut request = wire::Request::new(1);
        request.header.flags = wire::REQUEST_HIGH | wire::REQUEST_CHARGE;
        (request.length, request.charge, request.job_size) = (10, 8192, 12);
        (request.uid, request.gid, request.projid, request.nodemap) = (1, 2, 3, 4);
        (request.opcode, request.net, request.address_len) = (36, wire::NET_KFI, 4);
        (request.stream, request.target) = (5, 6);
        request.address = [0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        for (to, from) in request.jobid.iter_mut().zip(b"dd.0") {
            *to = *from;
        }
        let Decoded { attrs, cost } = Decoded::of(&request).unwrap();
        assert!(attrs.priority == Priority::High && cost.pages == 2 && attrs.length == 10);
        assert!(attrs.size == 12 && cost.direction == Direction::Other);
        assert!((attrs.stream, attrs.target) == (5, 6));
        assert!([attrs.uid, attrs.gid, attrs.projid, attrs.nodemap]
            .map(|id| id.get())
            .into_iter()
            .eq([Some(1), Some(2), Some(3), Some(4)]));
        assert!(attrs.opcode.number() == 36 && attrs.jobid.as_bytes() == b"dd.0");
        let address = attrs.nid.map(|nid| nid.address());
        assert!(address == Some(Address::Number(0x102)));
    }
}
