// SPDX-License-Identifier: GPL-2.0-only

use super::*;

const HEAD: Header = Header {
    realm: 0x1122_3344_5566_7788,
    server: 7,
    epoch: 9,
    seq: 0x0102_0304,
    part: 1,
    parts: 3,
    time_us: 0x0a0b_0c0d_0e0f,
    capacity: 25_000,
    bye: false,
};

const RECORDS: [Record; 2] = [
    Record {
        id: 0x0807_0605_0403_0201,
        // 26 bits, shifted by 5.
        rate: 0x03a5_c7e8 << 5,
        weight: 10_000 * 4096,
        active: true,
    },
    Record {
        id: u64::MAX - 1,
        rate: 0,
        weight: 1,
        active: false,
    },
];

/// Encoding of `HEAD` and `RECORDS`, which other versions must understand.
const GOLDEN: &[u8] = &[
    0x4e, 0x52, 0x53, 0x58, 3, 0, 2, 0, // NRSX, version, farewell, records
    0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, // realm
    7, 0, 0, 0, 0, 0, 0, 0, // server
    9, 0, 0, 0, 0, 0, 0, 0, // epoch
    4, 3, 2, 1, 1, 0, 3, 0, // message number, index, number of datagrams
    0x0f, 0x0e, 0x0d, 0x0c, 0x0b, 0x0a, 0, 0, // time
    0xa8, 0x61, 0, 0, 0, 0, 0, 0, // capacity
    1, 2, 3, 4, 5, 6, 7, 8, // id
    0xe8, 0xc7, 0xa5, 0x17, // rate
    0x00, 0xe2, 0x3c, 1, // weight, active
    0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, // id
    0, 0, 0, 0, 1, 0, 0, 0, // rate, weight, active
];

fn golden() -> Vec<u8> {
    GOLDEN.to_vec()
}

#[test]
fn the_format_is_this_one() {
    let out = write(&HEAD, &RECORDS);
    assert_eq!(out, GOLDEN);
    assert_eq!(out.len(), HEADER + 2 * RECORD);
    let (header, records) = parse(GOLDEN).unwrap();
    assert_eq!(header, HEAD);
    assert_eq!(records, RECORDS);
}

#[test]
fn every_other_length_is_refused() {
    for length in 0..GOLDEN.len() {
        assert_eq!(parse(&GOLDEN[..length]).unwrap_err(), Refusal::Malformed);
    }
    let mut longer = golden();
    longer.push(0);
    assert_eq!(parse(&longer).unwrap_err(), Refusal::Malformed);
}

#[test]
fn what_is_wrong_is_refused() {
    let wrong = |at: usize, byte: u8| {
        let mut bytes = golden();
        bytes[at] = byte;
        parse(&bytes).unwrap_err()
    };
    for (what, at, byte, refusal) in [
        ("magic", 0, 0, Refusal::Malformed),
        ("version", 4, 1, Refusal::Version),
        ("farewell", 5, 2, Refusal::Malformed),
        ("count", 6, 3, Refusal::Malformed),
        ("server 0", 16, 0, Refusal::Malformed),
        ("place", 36, 3, Refusal::Malformed),
        ("parts", 39, 2, Refusal::Malformed),
        ("active", HEADER + RECORD - 1, 2, Refusal::Malformed),
        ("order", HEADER + RECORD + 7, 0, Refusal::Malformed),
        (
            "id of the default class",
            HEADER + RECORD,
            0xff,
            Refusal::Malformed,
        ),
    ] {
        if what == "order" {
            let mut bytes = golden();
            bytes.copy_within(HEADER..HEADER + 8, HEADER + RECORD);
            assert_eq!(parse(&bytes).unwrap_err(), refusal, "{what}");
        } else {
            assert_eq!(wrong(at, byte), refusal, "{what}");
        }
    }
}

#[test]
fn short_numbers_keep_their_first_bits() {
    for (value, bits, expected) in [
        (0, 26, 0),
        ((1 << 26) - 1, 26, (1 << 26) - 1),
        ((1 << 26) + 1, 26, 1 << 26),
        (u64::MAX, 26, u64::MAX << 38),
        (10_000 * 4096, 19, 10_000 * 4096),
        (524_287 * 4096, 19, 524_287 * 4096),
    ] {
        assert_eq!(
            decode_short(shorten(value, bits), bits),
            expected,
            "{value}"
        );
    }
    assert_eq!(round(u32::MAX), 0xffff_e000);
}
