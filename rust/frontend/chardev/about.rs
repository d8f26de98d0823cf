// SPDX-License-Identifier: GPL-2.0-only

//! What a server says of a request, checked.

use kernel::prelude::*;

use super::wire;
use crate::sched::{
    attr::{Attrs, Id, Opcode, Priority},
    item::Cost,
    jobid::JobId,
    nid::{Address, Net, Nid},
};

/// A request that is what it should be.
pub(crate) struct About {
    /// Its attributes.
    pub(crate) attrs: Attrs,
    /// What it is charged for.
    pub(crate) cost: Cost,
}

impl About {
    /// Checks `record`.
    ///
    /// # Errors
    ///
    /// `EINVAL`: an unknown flag, a range beyond 2^64, a charge above [`wire::CHARGE_MAX`] or without its
    /// flag, a network identifier or a job that is none, or something reserved that is not 0.
    pub(crate) fn of(record: &wire::Request) -> Result<Self> {
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
            return Err(EINVAL);
        }
        let opcode = Opcode::new(record.opcode);
        let high = flags & wire::REQUEST_HIGH != 0;
        Ok(Self {
            attrs: Attrs {
                nid: nid_of(
                    record.net,
                    record.address_len,
                    record.net_number,
                    &record.address,
                )?,
                jobid: JobId::new(wire::text(&record.jobid).ok_or(EINVAL)?),
                uid: Id::new(record.uid),
                gid: Id::new(record.gid),
                projid: Id::new(record.projid),
                nodemap: Id::new(record.nodemap),
                opcode,
                client: 0,
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
            },
            cost: Cost::new(opcode.direction(), charge),
        })
    }
}

/// The network identifier in the fields of a record, if there is one.
///
/// # Errors
///
/// `EINVAL`: it is none.
pub(crate) fn nid_of(
    net: u8,
    address_len: u8,
    number: u16,
    address: &[u8; 16],
) -> Result<Option<Nid>> {
    let (front, rest) = address.split_at_checked(address_len.into()).ok_or(EINVAL)?;
    if rest.iter().any(|byte| *byte != 0) {
        return Err(EINVAL);
    }
    let net = match net {
        wire::NET_NONE if address_len == 0 && number == 0 => return Ok(None),
        wire::NET_TCP => Net::Tcp,
        wire::NET_O2IB => Net::O2ib,
        wire::NET_LO => Net::Lo,
        wire::NET_GNI => Net::Gni,
        wire::NET_GIP => Net::Gip,
        wire::NET_PTLF => Net::Ptlf,
        wire::NET_KFI => Net::Kfi,
        _ => return Err(EINVAL),
    };
    let address = if let Ok(ip) = <[u8; 16]>::try_from(front) {
        Address::V6(ip)
    } else {
        let short = <[u8; 4]>::try_from(front).map_err(|_| EINVAL)?;
        if net.is_ip() {
            Address::V4(short)
        } else {
            Address::Number(u32::from_be_bytes(short))
        }
    };
    Nid::new(net, number, address).map(Some).map_err(|_| EINVAL)
}
