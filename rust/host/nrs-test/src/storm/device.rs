// SPDX-License-Identifier: GPL-2.0-only

//! Records, ioctls and reads of `/dev/nrs`, by threads that share open files and close them
//! concurrently.

use std::{
    fs::File,
    io::{self, IoSlice, Read, Write},
    os::unix::fs::OpenOptionsExt,
    sync::{Arc, Mutex},
    thread,
};

use nrs_client::{ioctl, wire, Options, DEVICE};

use super::{allowed, tally::Tally, StormRun};
use crate::{
    check::{argument, field, locked},
    random::{Draw, Random},
    Outcome,
};
use anyhow::bail;

/// Number of threads, and number of open files that they share.
const THREADS: u64 = 4;
const FILES: usize = 6;

/// Number of different cookies, small enough that some are in use already.
const COOKIES: u64 = 400;

type Shared = Mutex<Vec<Arc<File>>>;

/// Opens the device for nonblocking calls.
fn open() -> io::Result<Arc<File>> {
    let mut options = File::options();
    options
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK);
    Ok(Arc::new(options.open(DEVICE)?))
}

/// Flips a random bit.
fn flip(bytes: &mut [u8], random: &mut Random) {
    let at = random.usize(..bytes.len());
    bytes[at] ^= 1 << random.u8(..8);
}

/// Attaches the file to the service, possibly with a malformed argument; returns the result of the
/// ioctl.
fn attach(file: &File, service: &str, random: &mut Random) -> io::Result<()> {
    let mut attach = argument(service);
    if random.one_in(8) {
        attach.version = random.u32(..4);
    }
    attach.flags = random.u32(..2);
    attach.lease_ms = if random.bool() { 200 } else { 0 };
    attach.requests_max = random.u32(..500);
    attach.client = field(&format!("c{}", random.u8(..9)));
    let mut bytes = attach.encode().to_vec();
    if random.one_in(4) {
        let size = random.odd_number() as u32;
        match random.u8(..3) {
            0 => flip(&mut bytes, random),
            1 => bytes[..4].copy_from_slice(&size.to_le_bytes()),
            _ => {
                // Longer than the known structure.
                let len = wire::Attach::SIZE + random.usize(..500);
                bytes.resize(len, random.u8(..2));
                bytes[..4].copy_from_slice(&(len as u32).to_le_bytes());
            }
        }
        bytes.resize(bytes.len().max(wire::SIZE_MAX), 0);
    }
    ioctl(file, wire::IOC_ATTACH, &mut bytes)
}

/// Returns a valid request.
fn request(random: &mut Random) -> Vec<u8> {
    let mut request = wire::Request::new(random.u64(1..=COOKIES));
    request.uid = random.u32(1000..=1005);
    request.opcode = [3, 4, 36, 0][random.usize(..4)];
    request.object = random.u64(..5);
    request.offset = random.odd_number() >> 1;
    request.length = random.u64(..1 << 20);
    request.jobid = field(&format!("job.{}", random.u64(..9)));
    request.stream = random.u64(..4);
    request.target = random.u32(..3);
    request.job_size = random.u32(..20);
    request.header.flags = random.u32(..2);
    if random.one_in(4) {
        request.timeout_ms = random.u32(1..=3000);
        request.elapsed_ms = random.u32(..1000);
    }
    for named in 0..random.usize(..3) {
        request.predecessor[named] = random.u64(..COOKIES);
    }
    request.encode().to_vec()
}

/// Returns a valid record of a random type.
fn record(random: &mut Random) -> Vec<u8> {
    let cookie = random.u64(1..=COOKIES);
    match random.u64(..8) {
        0 => {
            let completion = wire::Completion::new(cookie, random.u32(..3), random.odd_number());
            completion.encode().into()
        }
        1 => wire::Promotion::new(cookie).encode().into(),
        2 => wire::Busy::new(cookie, random.u32(1..=5000))
            .encode()
            .into(),
        3 => wire::Reconnect::new(0).encode().into(),
        _ => request(random),
    }
}

/// Modifies records, usually to invalid ones: fields, lengths, declared sizes, counts.
fn wrong(bytes: &mut Vec<u8>, random: &mut Random) {
    match random.u64(..5) {
        0 => flip(bytes, random),
        1 => bytes.truncate(random.usize(..bytes.len())),
        2 => bytes[2..4].copy_from_slice(&(random.odd_number() as u16).to_le_bytes()),
        3 => {
            let at = random.usize(..bytes.len() / 8 - 1) * 8;
            bytes[at..at + 8].copy_from_slice(&random.odd_number().to_le_bytes());
        }
        _ => random.mutate(bytes),
    }
}

/// Reads, checks the format of the records, and completes most of the released requests.
fn serve(file: &File, random: &mut Random, tally: &mut Tally) {
    let len = if random.bool() {
        4096
    } else {
        random.usize(..300)
    };
    let mut bytes = vec![0; len];
    let mut reader = file;
    let result = reader.read(&mut bytes);
    tally.answer(
        "device read",
        &result,
        allowed::RELEASED,
        format_args!("{len} bytes"),
    );
    let Ok(len) = result else { return };
    let mut rest = &bytes[..len];
    let mut done = Vec::new();
    while !rest.is_empty() {
        let size = rest
            .get(2..4)
            .map_or(0, |size| u16::from_le_bytes([size[0], size[1]]).into());
        let Some((record, next)) = rest.split_at_checked(size).filter(|_| size >= 16) else {
            let left = rest.len();
            let text = format!("a record of {size} bytes, {left} are left");
            return tally.finding(format!("device read: {text}"));
        };
        rest = next;
        if record.first() == Some(&(wire::TYPE_RELEASED as u8)) && !random.one_in(8) {
            match wire::Released::decode(record) {
                Ok(released) => {
                    done.extend(wire::Completion::new(released.cookie, 0, 4096).encode());
                    tally.count("device released", 0);
                }
                Err(error) => tally.finding(format!("device read: {error:?}")),
            }
        }
    }
    if !done.is_empty() {
        let mut writer = file;
        let result = writer.write(&done);
        let text = format!("{} bytes", done.len());
        tally.answer("device complete", &result, allowed::RECORDS, text);
    }
}

/// Makes one random call.
fn call(files: &Shared, service: &str, random: &mut Random, tally: &mut Tally) {
    let at = random.usize(..FILES);
    let files = || locked(files);
    let file = files()[at].clone();
    match random.u64(..20) {
        0 => {
            // The last reference closes the file, regardless of calls in progress.
            let result = open();
            tally.answer("device open", &result, &[libc::ENOMEM], "");
            let Ok(new) = result else { return };
            let result = attach(&new, service, random);
            tally.answer("device attach", &result, allowed::IOCTL, "");
            let old = std::mem::replace(&mut files()[at], new);
            drop(old);
            tally.count("device close", 0);
        }
        1 => {
            let result = attach(&file, service, random);
            tally.answer("device attach", &result, allowed::IOCTL, "");
        }
        2 | 3 => {
            let mut bytes = vec![0; wire::SIZE_MAX];
            let size = match random.u64(..3) {
                0 => wire::Stats::SIZE as u32,
                1 => random.u32(..400),
                _ => random.odd_number() as u32,
            };
            bytes[..4].copy_from_slice(&size.to_le_bytes());
            let command = match random.bool() {
                true => wire::IOC_STATS,
                // A random number, with or without direction and size, that never is a valid
                // attach.
                false => (wire::IOC << 8) | (random.odd_number() as u32 & 0xffff_00ff) | 4,
            };
            let result = ioctl(&file, command, &mut bytes);
            let text = format!("{command:#x}, size {size}");
            tally.answer("device ioctl", &result, allowed::IOCTL, text);
        }
        4..=8 => serve(&file, random, tally),
        9 => {
            // Vectored, with a split possibly in the middle of a record.
            let bytes: Vec<u8> = (0..3).flat_map(|_| record(random)).collect();
            let (front, back) = bytes.split_at(random.usize(..bytes.len()));
            let result = (&*file).write_vectored(&[IoSlice::new(front), IoSlice::new(back)]);
            tally.answer("device write in parts", &result, allowed::RECORDS, "");
        }
        10 => {
            if let Ok(client) = Options::new(service).nonblocking(true).open() {
                let (read, written) = crate::nowhere::transfer(&client);
                let bad = [libc::EFAULT, libc::EAGAIN, libc::EINVAL, libc::ENOMEM];
                tally.answer("device read to nowhere", &read, &bad, "");
                tally.answer("device write from nowhere", &written, &bad, "");
            }
        }
        _ => {
            let many = random.u32(1..=12);
            let many = if random.one_in(10) { 400 } else { many };
            let mut bytes: Vec<u8> = (0..many).flat_map(|_| record(random)).collect();
            let kind = if random.one_in(3) {
                wrong(&mut bytes, random);
                "device write of wrong records"
            } else {
                "device write of records"
            };
            let (result, len) = ((&*file).write(&bytes), bytes.len());
            let text = format!("{len} bytes");
            tally.answer(kind, &result, allowed::RECORDS, text);
            if matches!(result, Ok(taken) if taken > len) {
                tally.finding(format!("{kind}: {result:?} of {len} bytes"));
            }
        }
    }
}

/// Makes random calls on the device until the end.
pub fn run(run: &mut StormRun, service: &str) -> Outcome<()> {
    let StormRun(until, random, tally) = run;
    let mut files = Vec::new();
    while files.len() < FILES {
        match open() {
            Ok(file) => files.push(file),
            Err(error) if error.raw_os_error() == Some(libc::ENOMEM) && until.more() => {}
            Err(error) => bail!("{DEVICE}: {error}"),
        }
    }
    let files: Arc<Shared> = Arc::new(Mutex::new(files));
    let mut threads = Vec::new();
    for _ in 0..THREADS {
        let (files, until, service) = (files.clone(), until.clone(), service.to_owned());
        let mut random = Random::with_seed(random.u64(..));
        // If a thread cannot be created for lack of memory, there is one thread less.
        let thread = thread::Builder::new().spawn(move || {
            let mut tally = Tally::new(None);
            while until.more() {
                call(&files, &service, &mut random, &mut tally);
            }
            tally
        });
        threads.extend(thread);
    }
    for thread in threads {
        match thread.join() {
            Ok(counted) => tally.merge(counted),
            Err(_) => tally.finding("device: a thread has panicked".into()),
        }
    }
    Ok(())
}
