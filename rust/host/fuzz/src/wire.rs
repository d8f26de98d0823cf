// SPDX-License-Identifier: GPL-2.0-only

//! Records and arguments of `/dev/nrs`, of every length. The first byte selects a structure, the
//! second one a length to cut it to; the rest is the input.

use crate::{read_back, texts::some};
use nrs_client::{
    wire::{self, WireError},
    Nid,
};

macro_rules! structures {
    ($($name:ident,)+) => {
        /// Functions that check a structure in the given bytes.
        const STRUCTURES: &[fn(&[u8])] = &[
            $(|bytes| {
                let decode = wire::$name::decode;
                let decoded = decode(bytes);
                assert_eq!(decoded.map(|_| ()), want(bytes, wire::$name::SIZE));
                let Ok(record) = decoded else {
                    return;
                };
                let encoded = record.encode();
                // Encoding restores the same bytes, and no others.
                assert_eq!(encoded[..], bytes[..encoded.len()]);
                assert_eq!(decode(&encoded), Ok(record));
                // Trailing zeros are ignored, all other trailing bytes are refused.
                let mut longer = encoded.to_vec();
                longer.extend([0; 9]);
                assert_eq!(decode(&longer), Ok(record));
                longer[encoded.len() + 4] = 1;
                assert_eq!(decode(&longer), Err(WireError::Unknown));
                let fields: usize = wire::$name::FIELDS.iter().map(|(_, _, size)| size).sum();
                assert_eq!(fields, encoded.len());
            },)+
        ];
    };
}

// The header, the records in the order of their types, and arguments.
structures! {
    Header,
    Request,
    Completion,
    Released,
    Promotion,
    Early,
    Recovered,
    Busy,
    Reconnect,
    Attach,
    Stats,
    Accounts,
    Account,
    Factor,
}

/// Returns the expected result for `bytes` as a structure of `size` bytes.
fn want(bytes: &[u8], size: usize) -> Result<(), WireError> {
    match bytes.get(size..) {
        None => Err(WireError::Short),
        Some(rest) if rest.iter().any(|byte| *byte != 0) => Err(WireError::Unknown),
        Some(_) => Ok(()),
    }
}

/// Checks texts in fields.
fn text(bytes: &[u8]) {
    let mut field = [0; 32];
    let len = bytes.len().min(32);
    field[..len].copy_from_slice(&bytes[..len]);
    match wire::text(&field) {
        Some(text) => {
            assert!(text.len() < 32 && !text.contains(&0));
            assert!(field[..text.len()] == *text && field[text.len()..].iter().all(|b| *b == 0));
        }
        None => assert!(field[31] != 0 || field.windows(2).any(|two| two[0] == 0 && two[1] != 0)),
    }
    let Ok(text) = core::str::from_utf8(bytes) else {
        return;
    };
    if let Some(nid) = read_back(text, some(|text| text.parse().ok()), Nid::to_string) {
        let (address, len) = nid.address();
        assert!((len == 4 || len == 16) && address[usize::from(len)..].iter().all(|b| *b == 0));
        assert!(
            !nid.to_string().contains('?'),
            "a network without a name: {text:?}"
        );
    }
    let request = nrs_client::Request::new(7).jobid(text).encode();
    let request = wire::Request::decode(&request).expect("its own length");
    let job = wire::text(&request.jobid).expect("it ends");
    let name = text.split('\0').next().unwrap_or_default().as_bytes();
    assert_eq!(job, &name[..name.len().min(31)]);
}

/// Parses a batch like a program that uses the file: record by record, each with its own size.
fn batch(mut bytes: &[u8]) {
    for _ in 0..wire::BATCH {
        let header = wire::Header::decode(bytes.get(..wire::Header::SIZE).unwrap_or_default());
        let Ok(header) = header else { break };
        let size = usize::from(header.size);
        if !(wire::Header::SIZE..=wire::SIZE_MAX).contains(&size) {
            break;
        }
        let Some((record, rest)) = bytes.split_at_checked(size) else {
            break;
        };
        if (wire::TYPE_REQUEST..=wire::TYPE_RECONNECT).contains(&header.kind) {
            STRUCTURES[usize::from(header.kind)](record);
        }
        bytes = rest;
    }
}

/// Checks the rest as the structure selected by the first byte, cut to the length in the second
/// byte, and as a batch.
pub(crate) fn wire((which, cut, rest): (u8, u8, &[u8])) {
    let check = STRUCTURES[usize::from(which) % STRUCTURES.len()];
    check(rest);
    check(rest.get(..usize::from(cut)).unwrap_or(rest));
    text(rest);
    batch(rest);
}
