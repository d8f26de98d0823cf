// SPDX-License-Identifier: GPL-2.0-only

//! Transfers data with protection information (T10, type 1): each block of 512 bytes has a tuple
//! with the CRC of its data and its number. The device and all devices between it and the disk
//! must pass the tuples on unchanged. The disk checks the tuples of writes, and returns them with
//! reads.

use std::{fs::File, path::PathBuf, process::ExitCode};

use anyhow::Context as _;

use crate::{
    direct::{self, Buffer},
    Outcome,
};

mod ring;

use ring::{transfer, Transfer};

const BLOCK: usize = 512;

/// Size of a tuple: CRC of the data, application tag, number of the block, all big-endian.
const TUPLE: usize = 8;

/// Number of requests in flight.
const COUNT: u64 = 32;

/// Distance between the starts of two requests, blocks.
const DISTANCE: u64 = 2048;

/// Transfers data with protection information through a block device; tuples with errors must be
/// refused.
#[derive(clap::Args)]
#[command(after_help = crate::STATUS)]
pub struct Args {
    /// Device of at least 33 MiB.
    device: PathBuf,
}

/// Runs the test.
pub fn run(args: &Args) -> Outcome {
    let file = direct::open(&args.device)?;
    let mut failed = false;
    let mut expect = |what: &str, good: bool| {
        println!("{what}: {}", if good { "as expected" } else { "WRONG" });
        failed |= !good;
    };
    for result in transfer(&file, &mut requests(true))? {
        result.context("write")?;
    }
    let mut read = requests(false);
    for result in transfer(&file, &mut read)? {
        result.context("read")?;
    }
    // The kernel changes the block numbers of written tuples to those of the disk, in place.
    let mut valid = requests(true);
    let mut pairs = valid.iter_mut().zip(&mut read);
    let same = pairs.all(|(a, b)| *a.data() == *b.data() && *a.tuples() == *b.tuples());
    expect("data and tuples of reads", same);
    // The first byte is of the CRC, the last of the number of the block.
    for (what, byte) in [("CRC", 0), ("block number", TUPLE - 1)] {
        let refused = refused(&file, byte)?;
        let text = format!("writes with a wrong {what}, refused: {refused}");
        expect(&text, refused == COUNT);
    }
    Ok(ExitCode::from(u8::from(failed)))
}

/// Writes requests, each with an error in the byte `byte` of its last tuple; returns the number of
/// refused ones.
fn refused(file: &File, byte: usize) -> Outcome<u64> {
    let mut wrong = requests(true);
    for request in &mut wrong {
        let tuples = request.tuples();
        let last = tuples.len() - TUPLE;
        tuples[last + byte] ^= 1;
    }
    let results = transfer(file, &mut wrong)?;
    let errors = results.into_iter().filter_map(Result::err);
    let refused = errors.filter(|error| error.raw_os_error() == Some(libc::EILSEQ));
    Ok(refused.count() as u64)
}

/// Returns writes with valid data and tuples, or the reads of the same blocks. Each second request
/// crosses a multiple of 1 MiB.
fn requests(writes: bool) -> Vec<Transfer> {
    let request = |number: u64| {
        let start = (number + 1) * DISTANCE - if number % 2 == 0 { 5 } else { 0 };
        let blocks = 8 << (number % 5);
        let mut request = Transfer {
            writes,
            start,
            data: Buffer::new(blocks * BLOCK),
            tuples: Buffer::new(blocks * TUPLE),
            blocks,
        };
        if writes {
            for idx in 0..blocks {
                let block = start + idx as u64;
                let data = &mut request.data()[idx * BLOCK..][..BLOCK];
                data.fill(block as u8);
                data[..8].copy_from_slice(&block.to_be_bytes());
                let crc = crc(data);
                let tuple = &mut request.tuples()[idx * TUPLE..][..TUPLE];
                tuple[..2].copy_from_slice(&crc.to_be_bytes());
                tuple[4..].copy_from_slice(&(block as u32).to_be_bytes());
            }
        }
        request
    };
    (0..COUNT).map(request).collect()
}

/// Returns the CRC of T10 protection information.
fn crc(data: &[u8]) -> u16 {
    data.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc: u16, _| {
            (crc << 1) ^ if crc >> 15 == 1 { 0x8bb7 } else { 0 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crc_is_that_of_t10() {
        assert_eq!(crc(b"123456789"), 0xd0db);
    }
}
