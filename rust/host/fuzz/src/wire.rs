// SPDX-License-Identifier: GPL-2.0-only

//! Records and arguments of `/dev/nrs`, of every length. The first byte selects a structure, the
//! second one a length to cut it to; the rest is the input.

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

structures! {
    Header,
    Request,
    Completion,
    Promotion,
    Released,
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
    for (to, from) in field.iter_mut().zip(bytes) {
        *to = *from;
    }
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
    if let Ok(nid) = text.parse::<Nid>() {
        let shown = nid.to_string();
        assert_eq!(shown.parse(), Ok(nid), "{text:?} {shown:?}");
        let (address, len) = nid.address();
        assert!((len == 4 || len == 16) && address[usize::from(len)..].iter().all(|b| *b == 0));
        assert!(!shown.contains('?'), "a network without a name: {text:?}");
    }
    let request = nrs_client::Request::new(7).jobid(text).encode();
    let request = wire::Request::decode(&request).expect("its own length");
    let job = wire::text(&request.jobid).expect("it ends");
    let end = text
        .bytes()
        .position(|byte| byte == 0)
        .unwrap_or(text.len());
    assert_eq!(job, &text.as_bytes()[..end.min(31)]);
}

/// Parses a batch like a program that uses the file: record by record, each with its own size.
fn batch(mut bytes: &[u8]) {
    let mut records = 0;
    while let Ok(header) = wire::Header::decode(bytes.get(..wire::Header::SIZE).unwrap_or_default())
    {
        let size = usize::from(header.size);
        if !(wire::Header::SIZE..=wire::SIZE_MAX).contains(&size) || records == wire::BATCH {
            break;
        }
        let Some((record, rest)) = bytes.split_at_checked(size) else {
            break;
        };
        let of_kind = match header.kind {
            wire::TYPE_REQUEST => 1,
            wire::TYPE_COMPLETION => 2,
            wire::TYPE_PROMOTE => 3,
            wire::TYPE_RELEASED => 4,
            wire::TYPE_EARLY => 5,
            wire::TYPE_RECOVERED => 6,
            wire::TYPE_BUSY => 7,
            wire::TYPE_RECONNECT => 8,
            _ => 0,
        };
        if of_kind != 0 {
            STRUCTURES[of_kind](record);
        }
        bytes = rest;
        records += 1;
    }
}

/// Checks the rest as the structure selected by the first byte, cut to the length in the second
/// byte, and as a batch.
pub fn run(data: &[u8]) {
    let [which, cut, rest @ ..] = data else {
        return;
    };
    let check = STRUCTURES[usize::from(*which) % STRUCTURES.len()];
    check(rest);
    check(rest.get(..usize::from(*cut)).unwrap_or(rest));
    text(rest);
    batch(rest);
}
