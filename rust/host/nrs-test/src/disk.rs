// SPDX-License-Identifier: GPL-2.0-only

//! Simulates a disk with one arm behind an nbd device. The disk serves requests one after the other
//! in order of arrival. Each takes the time of its seek and transfer. Reads return zeroes, writes
//! are discarded.

#![allow(unsafe_code, reason = "ioctls of nbd")]

use std::{
    fs::File,
    io::{Read as _, Write as _},
    os::{
        fd::{AsRawFd as _, RawFd},
        unix::net::UnixStream,
    },
    path::PathBuf,
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use anyhow::{anyhow, ensure};

use crate::Outcome;

/// Operations of the device file (linux/nbd.h).
const SET_SOCK: u64 = 0xab00;
const SET_BLKSIZE: u64 = 0xab01;
const DO_IT: u64 = 0xab03;
const SET_SIZE_BLOCKS: u64 = 0xab07;

/// Magic numbers of requests and replies.
const REQUEST: u32 = 0x2560_9513;
const REPLY: u32 = 0x6744_6698;

/// Commands.
const READ: u32 = 0;
const WRITE: u32 = 1;

const BLOCK: u64 = 512;

/// Simulates a disk with seek and transfer times behind an nbd device.
#[derive(clap::Args)]
pub struct Args {
    /// nbd device, such as /dev/nbd0.
    device: PathBuf,
    /// Size of the disk, MiB.
    #[arg(long, default_value_t = 1024)]
    size: u64,
    /// Minimum time of a seek, including half a revolution, us; sequential requests need no seek.
    #[arg(long, default_value_t = 8000)]
    seek: u64,
    /// Additional time of a seek across the whole disk, us; shorter seeks in proportion.
    #[arg(long, default_value_t = 12000)]
    stroke: u64,
    /// Transfer rate, MiB/s.
    #[arg(long, default_value_t = 150)]
    rate: u64,
}

/// Sets up the device and serves it until it is disconnected.
pub fn run(args: &Args) -> Outcome {
    ensure!(
        args.size > 0 && args.rate > 0,
        "--size and --rate must be at least 1"
    );
    let device = File::options().read(true).write(true).open(&args.device)?;
    let (kernel, disk) = UnixStream::pair()?;
    let fd = device.as_raw_fd();
    call(fd, SET_BLKSIZE, BLOCK)?;
    call(fd, SET_SIZE_BLOCKS, (args.size << 20) / BLOCK)?;
    call(fd, SET_SOCK, u64::try_from(kernel.as_raw_fd())?)?;
    thread::scope(|scope| {
        let served = scope.spawn(|| serve(args, disk));
        let done = call(fd, DO_IT, 0);
        served.join().map_err(|_| anyhow!("the disk panicked"))??;
        done?;
        Ok(ExitCode::SUCCESS)
    })
}

fn call(fd: RawFd, command: u64, value: u64) -> std::io::Result<()> {
    // SAFETY: these operations take a number, no pointer.
    if unsafe { libc::ioctl(fd, command as _, value) } < 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(())
}

/// Serves one request after the other until the kernel disconnects.
fn serve(args: &Args, mut kernel: UnixStream) -> Outcome<()> {
    let mut head = [0; 28];
    let mut reply = Vec::new();
    let mut arm = 0;
    // Times accumulate from here: a sleep that is too long, by up to 1 ms, shortens the next one.
    let mut free = Instant::now();
    while kernel.read_exact(&mut head).is_ok() {
        let word =
            |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        ensure!(word(0) == REQUEST, "no request");
        let (command, bytes) = (word(4), u64::from(word(24)));
        let offset = (u64::from(word(16)) << 32) | u64::from(word(20));
        let mut time = bytes * 1_000_000 / (args.rate << 20);
        if offset != arm {
            time += args.seek + args.stroke * offset.abs_diff(arm) / (args.size << 20);
        }
        arm = offset + bytes;
        // The zeroes of the last read are reused, because an emulated CPU takes longer to write
        // them than the disk.
        match command {
            READ => reply.resize(16 + bytes as usize, 0),
            WRITE => {
                std::io::copy(&mut (&kernel).take(bytes), &mut std::io::sink())?;
                reply.resize(16, 0);
            }
            // The kernel disconnects.
            _ => break,
        }
        let now = Instant::now();
        free =
            free.max(now - Duration::from_millis(1).min(now - free)) + Duration::from_micros(time);
        thread::sleep(free.saturating_duration_since(now));
        reply[..4].copy_from_slice(&REPLY.to_be_bytes());
        reply[8..16].copy_from_slice(&head[8..16]);
        kernel.write_all(&reply)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the duration of a request for 64 KiB, and the length of the reply.
    fn request(kernel: &mut UnixStream, command: u32, offset: u64) -> (Duration, usize) {
        let mut head = Vec::from(REQUEST.to_be_bytes());
        head.extend(command.to_be_bytes());
        head.extend(*b"a cookie");
        head.extend(offset.to_be_bytes());
        head.extend(65536_u32.to_be_bytes());
        if command == WRITE {
            head.resize(28 + 65536, 1);
        }
        let start = Instant::now();
        kernel.write_all(&head).unwrap();
        let mut reply = vec![0; if command == READ { 16 + 65536 } else { 16 }];
        kernel.read_exact(&mut reply).unwrap();
        assert_eq!(reply[..8], [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0]);
        assert_eq!(&reply[8..16], b"a cookie");
        (start.elapsed(), reply.len())
    }

    #[test]
    fn the_way_takes_time() {
        let args = Args {
            device: PathBuf::new(),
            size: 1024,
            seek: 20_000,
            stroke: 80_000,
            rate: 100,
        };
        let (mut kernel, disk) = UnixStream::pair().unwrap();
        thread::scope(|scope| {
            let served = scope.spawn(|| serve(&args, disk));
            for (command, offset, least, length) in [
                (READ, 0, 0, 16 + 65536),
                (WRITE, 65536, 0, 16),
                (READ, 512 << 20, 59, 16 + 65536),
                (READ, (512 << 20) + 65536, 0, 16 + 65536),
                (READ, 512 << 20, 19, 16 + 65536),
            ] {
                let (took, bytes) = request(&mut kernel, command, offset);
                println!("{command} at {offset}: {took:?}");
                assert!(took >= Duration::from_millis(least));
                assert_eq!(bytes, length);
            }
            drop(kernel);
            served.join().unwrap().unwrap();
        });
    }
}
