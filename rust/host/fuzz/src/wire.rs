// SPDX-License-Identifier: GPL-2.0-only

//! Records and arguments of `/dev/nrs`, of every version and length. The first byte names a structure, the second
//! one a length to cut it to, the rest is what is read.

use nrs_client::{
    wire::{self, Malformed},
    Nid,
};

/// Structures with a field of their size, and the versions that appended to them.
macro_rules! structures {
    ($($name:ident: $($size:literal)+;)+) => {
        /// Names, and bytes in each version.
        const STRUCTURES: &[(&str, &[usize], fn(&[u8], &[usize]))] = &[
            $((stringify!($name), &[$($size),+], |bytes, sizes| {
                assert_eq!(sizes.first(), Some(&wire::$name::FIRST));
                assert_eq!(sizes.last(), Some(&wire::$name::SIZE));
                let decode = wire::$name::decode;
                let decoded = decode(bytes);
                assert_eq!(decoded.map(|_| ()), want(bytes, sizes));
                let Ok(record) = decoded else {
                    return;
                };
                let encoded = record.encode();
                assert_eq!(decode(&encoded), Ok(record));
                // What was there is there again, and nothing else.
                let known = bytes.len().min(encoded.len());
                assert_eq!(encoded[..known], bytes[..known]);
                assert!(encoded[known..].iter().all(|byte| *byte == 0));
                // Zeros behind it mean nothing, anything else does.
                let mut longer = encoded.to_vec();
                longer.extend([0; 9]);
                assert_eq!(decode(&longer), Ok(record));
                longer[encoded.len() + 4] = 1;
                assert_eq!(decode(&longer), Err(Malformed::Unknown));
                // A module of an earlier version takes it exactly if it says nothing that is new, and then hears
                // the same; what that module wrote is read as the rest being 0.
                for &size in sizes {
                    let (old, new) = encoded.split_at(size);
                    let says = new.iter().any(|byte| *byte != 0);
                    let mut filled = old.to_vec();
                    filled.resize(encoded.len(), 0);
                    assert_eq!(decode(old), decode(&filled));
                    assert_eq!(decode(old) == Ok(record), !says);
                    assert_eq!(want(&encoded, &[size]).is_ok(), !says);
                }
                let fields: usize = wire::$name::FIELDS.iter().map(|(_, _, size)| size).sum();
                assert_eq!(fields, encoded.len());
            }),)+
        ];
    };
}

structures! {
    Header: 8;
    Request: 192 200 208;
    Completion: 32;
    Promotion: 16;
    Released: 32 40;
    Early: 24;
    Recovered: 16;
    Busy: 24;
    Reconnect: 32;
    Attach: 88;
    Stats: 120 168 208;
}

/// What is to become of `bytes` where the sizes of a structure were `sizes`, the last one is what is known.
fn want(bytes: &[u8], sizes: &[usize]) -> Result<(), Malformed> {
    let known = sizes.last().copied().unwrap_or_default();
    if bytes.len() < sizes.first().copied().unwrap_or_default() {
        Err(Malformed::Short)
    } else if bytes.iter().skip(known).any(|byte| *byte != 0) {
        Err(Malformed::Unknown)
    } else {
        Ok(())
    }
}

/// What holds for texts in fields.
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
        assert!(nrs_net(nid.net), "{text:?}");
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

/// Whether a network has this number.
fn nrs_net(net: u8) -> bool {
    [
        wire::NET_TCP,
        wire::NET_O2IB,
        wire::NET_LO,
        wire::NET_GNI,
        wire::NET_GIP,
        wire::NET_PTLF,
        wire::NET_KFI,
    ]
    .contains(&net)
}

/// Reads a batch as a program does that reads or writes the file: record by record, each as long as it says.
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
        let (_, sizes, check) = STRUCTURES[of_kind];
        if of_kind != 0 {
            check(record, sizes);
        }
        bytes = rest;
        records += 1;
    }
}

/// Takes the rest as the structure that the first byte names, cut as the second one says, and as a batch.
pub fn run(data: &[u8]) {
    let [which, cut, rest @ ..] = data else {
        return;
    };
    let (_, sizes, check) = STRUCTURES[usize::from(*which) % STRUCTURES.len()];
    check(rest, sizes);
    let cut = rest.get(..usize::from(*cut)).unwrap_or(rest);
    check(cut, sizes);
    text(rest);
    batch(rest);
}
