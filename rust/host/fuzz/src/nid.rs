// SPDX-License-Identifier: GPL-2.0-only

//! Network identifiers and ranges of them, compared with a naive implementation.

use crate::{check_reason, read_back};
use nrs_sched::{
    error::Code,
    mem::NoMemory,
    nid::{
        pattern::{NidDigest, NumberRange, Parsed, Pattern},
        Address, Net, Nid,
    },
};
use std::net::IpAddr;

/// Maximum number of stored ranges.
const RANGES_MAX: usize = 256;

/// Identifiers that are searched for with every input.
const ALWAYS: &str = "0@lo 10.0.0.1@tcp 10.0.0.255@tcp1 255.255.255.255@o2ib fe80::1@tcp \
                      ::@gip65535 0@gni 4294967295@kfi";

/// Returns true if the pattern `text` contains `nid`. Simple and slow: compares the text number by
/// number. Returns `None` if the text is malformed.
fn has(text: &str, nid: &Nid) -> Option<bool> {
    let (addresses, network) = text.rsplit_once('@')?;
    if Net::parse(network).ok()? != (nid.net(), nid.number()) {
        return Some(false);
    }
    let (first, bits) = addresses.split_once('/').unwrap_or((addresses, ""));
    match (nid.address(), first.parse()) {
        _ if addresses == "*" => Some(true),
        (Address::Number(number), _) => {
            let inner = addresses.strip_prefix('[')?.strip_suffix(']')?;
            in_ranges(inner, number)
        }
        (Address::V4(ip), Ok(IpAddr::V4(first))) => {
            Some(same_bits(&first.octets(), &ip, bits.parse().ok()?))
        }
        (Address::V6(ip), Ok(IpAddr::V6(first))) => {
            Some(same_bits(&first.octets(), &ip, bits.parse().ok()?))
        }
        (Address::V4(ip), Err(_)) => in_parts(addresses, ip),
        _ => Some(false),
    }
}

/// Returns true if the first `bits` bits are equal.
fn same_bits(one: &[u8], other: &[u8], bits: usize) -> bool {
    (0..bits).all(|bit| {
        let of = |bytes: &[u8]| bytes.get(bit / 8).map(|byte| (byte >> (7 - bit % 8)) & 1);
        of(one) == of(other)
    })
}

/// Returns true if `number` is in `LO[-HI[/STRIDE]],...`.
fn in_ranges(text: &str, number: u32) -> Option<bool> {
    let mut found = false;
    for range in text.split(',') {
        let (ends, stride) = range.split_once('/').unwrap_or((range, "1"));
        let (lo, hi) = ends.split_once('-').unwrap_or((ends, ends));
        let (lo, hi): (u32, u32) = (lo.parse().ok()?, hi.parse().ok()?);
        let stride: u32 = stride.parse().ok()?;
        found |= (lo..=hi).contains(&number) && (number - lo) % stride == 0;
    }
    Some(found)
}

/// Returns true if the four parts of `ip` match `text`.
fn in_parts(text: &str, ip: [u8; 4]) -> Option<bool> {
    let parts: Vec<&str> = text.split('.').collect();
    let mut all = (parts.len() == 4).then_some(true)?;
    for (part, number) in parts.into_iter().zip(ip) {
        let inner = part
            .strip_prefix('[')
            .and_then(|part| part.strip_suffix(']'));
        all &= part == "*" || in_ranges(inner.unwrap_or(part), number.into())?;
    }
    Some(all)
}

/// Checks each line as an identifier and as a range of identifiers; identifiers of some lines are
/// searched for in the ranges of others.
pub(crate) fn nid(text: &str) {
    let always = ALWAYS.split(' ').map(|nid| Nid::parse(nid).expect("valid"));
    let mut nids: Vec<Nid> = always.collect();
    let mut patterns = Vec::new();
    for line in text.split('\n').take(64) {
        let mut ranges: Vec<NumberRange> = Vec::new();
        let parsed = Pattern::parse(line, &mut |range| {
            if ranges.len() >= RANGES_MAX {
                return Err(NoMemory);
            }
            ranges.push(range);
            Ok(ranges.len() - 1)
        });
        let nid = read_back(line, Nid::parse, Nid::to_string);
        if let Some(nid) = nid {
            let shown = nid.to_string();
            assert!(shown.len() <= 64 && shown.is_ascii());
            nids.push(nid);
        }
        match parsed {
            Ok(Parsed::One(one)) => assert_eq!(nid, Some(one)),
            Ok(Parsed::Many(pattern)) => {
                assert!(nid.is_none(), "{line:?} is one and many");
                patterns.push((line, pattern, ranges));
            }
            Err(error) if error.code == Code::NoMemory => assert_eq!(ranges.len(), RANGES_MAX),
            Err(error) => {
                let at = usize::from(error.column) - 1;
                assert!(nid.is_none() && at <= line.len(), "{line:?}");
                check_reason(&error.into());
            }
        }
        if let Ok((net, number)) = Net::parse(line) {
            let name = net.name();
            assert!(line.starts_with(name));
            assert!(number == 0 || Net::parse(&format!("{name}{number}")) == Ok((net, number)));
        }
    }
    for (line, pattern, ranges) in &patterns {
        let guard = pattern.guard(ranges);
        for nid in &nids {
            let found = pattern.has(nid, ranges);
            assert_eq!(Some(found), has(line, nid), "{line:?} {nid}");
            assert!(!found || guard.passes(NidDigest::of(nid)), "{line:?} {nid}");
        }
    }
}
