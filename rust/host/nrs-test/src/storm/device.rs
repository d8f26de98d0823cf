// SPDX-License-Identifier: GPL-2.0-only

//! Records, ioctls and reads of `/dev/nrs`, by threads that share open files and close them
//! concurrently.

use std::{
    fs::{File, OpenOptions},
    io::{self, IoSlice, Read, Write},
    os::unix::fs::OpenOptionsExt,
    sync::{Arc, Mutex},
    thread,
};

use nrs_client::{ioctl, wire, Options, DEVICE};

use super::{allowed, tally::Tally, StormRun};
use crate::{random::Random, Outcome};

/// Number of threads, and number of open files that they share.
const THREADS: u64 = 4;
const FILES: usize = 6;

/// Number of different cookies, small enough that some are in use already.
const COOKIES: u64 = 400;

type Shared = Mutex<Vec<Arc<File>>>;

/// Opens the device for nonblocking calls.
fn open() -> io::Result<Arc<File>> {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    options.custom_flags(libc::O_NONBLOCK);
    options.open(DEVICE).map(Arc::new)
}

/// Returns a field of 32 bytes with a name.
fn field(text: &str) -> [u8; 32] {
    let mut field = [0; 32];
    for (to, from) in field.iter_mut().zip(text.bytes().take(31)) {
        *to = from;
    }
    field
}

/// Attaches the file to the service, possibly with a malformed argument; returns the result of the
/// ioctl.
fn attach(file: &File, service: &str, random: &mut Random) -> io::Result<()> {
    let mut bytes = wire::Attach {
        size: wire::Attach::SIZE as u32,
        version: if random.one_in(8) {
            random.below(4) as u32
        } else {
            wire::VERSION
        },
        flags: random.below(2) as u32,
        lease_ms: if random.one_in(2) { 200 } else { 0 },
        requests_max: random.below(500) as u32,
        reserved: 0,
        service: field(service),
        client: field(&format!("c{}", random.below(9))),
    }
    .encode()
    .to_vec();
    if random.one_in(4) {
        let size = random.odd_number() as u32;
        match random.below(3) {
            0 => {
                let at = random.index(bytes.len());
                bytes[at] ^= 1 << random.below(8);
            }
            1 => bytes[..4].copy_from_slice(&size.to_le_bytes()),
            _ => {
                // Longer than the known structure.
                let len = wire::Attach::SIZE + random.below(500) as usize;
                bytes.resize(len, random.below(2) as u8);
                bytes[..4].copy_from_slice(&(len as u32).to_le_bytes());
            }
        }
        bytes.resize(bytes.len().max(wire::SIZE_MAX), 0);
    }
    ioctl(file, wire::IOC_ATTACH, &mut bytes)
}

/// Returns a valid request.
fn request(random: &mut Random) -> Vec<u8> {
    let mut request = wire::Request::new(random.within(1, COOKIES));
    request.uid = random.within(1000, 1005) as u32;
    request.opcode = random.pick(&[&3, &4, &36, &0]).to_owned();
    request.object = random.below(5);
    request.offset = random.odd_number() >> 1;
    request.length = random.below(1 << 20);
    request.jobid = field(&format!("job.{}", random.below(9)));
    request.stream = random.below(4);
    request.target = random.below(3) as u32;
    request.job_size = random.below(20) as u32;
    request.header.flags = random.below(2) as u32;
    if random.one_in(4) {
        request.timeout_ms = random.within(1, 3000) as u32;
        request.elapsed_ms = random.below(1000) as u32;
    }
    for named in 0..random.index(3) {
        request.predecessor[named] = random.below(COOKIES);
    }
    request.encode().to_vec()
}

/// Returns a valid record of a random type.
fn record(random: &mut Random) -> Vec<u8> {
    let cookie = random.within(1, COOKIES);
    match random.below(8) {
        0 => wire::Completion::new(cookie, random.below(3) as u32, random.odd_number())
            .encode()
            .to_vec(),
        1 => wire::Promotion::new(cookie).encode().to_vec(),
        2 => wire::Busy::new(cookie, random.within(1, 5000) as u32)
            .encode()
            .to_vec(),
        3 => wire::Reconnect::new(0).encode().to_vec(),
        _ => request(random),
    }
}

/// Modifies records, usually to invalid ones: fields, lengths, declared sizes, counts.
fn wrong(bytes: &mut Vec<u8>, random: &mut Random) {
    match random.below(5) {
        0 => {
            let at = random.index(bytes.len());
            bytes[at] ^= 1 << random.below(8);
        }
        1 => bytes.truncate(random.index(bytes.len())),
        2 => bytes[2..4].copy_from_slice(&(random.odd_number() as u16).to_le_bytes()),
        3 => {
            let at = random.below(bytes.len() as u64 / 8 - 1) as usize * 8;
            bytes[at..at + 8].copy_from_slice(&random.odd_number().to_le_bytes());
        }
        _ => random.mutate(bytes),
    }
}

/// Reads, checks the format of the records, and completes most of the released requests.
fn serve(file: &File, random: &mut Random, tally: &mut Tally) {
    let len = match random.one_in(2) {
        true => 4096,
        false => random.index(300),
    };
    let mut bytes = vec![0; len];
    let mut reader = file;
    let result = reader.read(&mut bytes);
    tally.answer("device read", &result, allowed::RELEASED, || {
        format!("{len} bytes")
    });
    let Ok(len) = result else { return };
    let mut rest = &bytes[..len];
    let mut done = Vec::new();
    while !rest.is_empty() {
        let size = rest
            .get(2..4)
            .map_or(0, |size| usize::from(size[0]) | (usize::from(size[1]) << 8));
        let Some((record, next)) = rest.split_at_checked(size).filter(|_| size >= 16) else {
            tally.finding(format!(
                "device read: a record of {size} bytes, {} are left",
                rest.len()
            ));
            return;
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
        tally.answer("device complete", &result, allowed::RECORDS, || {
            format!("{} bytes", done.len())
        });
    }
}

/// Makes one random call.
fn call(files: &Shared, service: &str, random: &mut Random, tally: &mut Tally) {
    let at = random.index(FILES);
    let files = || files.lock().unwrap_or_else(|broken| broken.into_inner());
    let file = files()[at].clone();
    match random.below(20) {
        0 => {
            // The last reference closes the file, regardless of calls in progress.
            let result = open();
            tally.answer("device open", &result, &[libc::ENOMEM], String::new);
            let Ok(new) = result else { return };
            let result = attach(&new, service, random);
            tally.answer("device attach", &result, allowed::IOCTL, String::new);
            let old = std::mem::replace(&mut files()[at], new);
            drop(old);
            tally.count("device close", 0);
        }
        1 => {
            let result = attach(&file, service, random);
            tally.answer("device attach", &result, allowed::IOCTL, String::new);
        }
        2 | 3 => {
            let mut bytes = vec![0; wire::SIZE_MAX];
            let size = match random.below(3) {
                0 => wire::Stats::SIZE as u32,
                1 => random.below(400) as u32,
                _ => random.odd_number() as u32,
            };
            bytes[..4].copy_from_slice(&size.to_le_bytes());
            let known = random.one_in(2);
            let command = if known {
                wire::IOC_STATS
            } else {
                // A random number, with or without direction and size, that never is a valid
                // attach.
                (wire::IOC << 8) | (random.odd_number() as u32 & 0xffff_00ff) | 4
            };
            let result = ioctl(&file, command, &mut bytes);
            tally.answer("device ioctl", &result, allowed::IOCTL, || {
                format!("{command:#x}, size {size}")
            });
        }
        4..=8 => serve(&file, random, tally),
        9 => {
            // Vectored, with a split possibly in the middle of a record.
            let bytes: Vec<u8> = (0..3).flat_map(|_| record(random)).collect();
            let (front, back) = bytes.split_at(random.index(bytes.len()));
            let mut writer = &*file;
            let result = writer.write_vectored(&[IoSlice::new(front), IoSlice::new(back)]);
            tally.answer(
                "device write in parts",
                &result,
                allowed::RECORDS,
                String::new,
            );
        }
        10 => {
            if let Ok(client) = Options::new(service).nonblocking(true).open() {
                let (read, written) = crate::nowhere::transfer(&client);
                let bad = [libc::EFAULT, libc::EAGAIN, libc::EINVAL, libc::ENOMEM];
                tally.answer("device read to nowhere", &read, &bad, String::new);
                tally.answer("device write from nowhere", &written, &bad, String::new);
            }
        }
        _ => {
            let many = match random.one_in(10) {
                true => 400,
                false => random.within(1, 12),
            };
            let mut bytes: Vec<u8> = (0..many).flat_map(|_| record(random)).collect();
            let kind = if random.one_in(3) {
                wrong(&mut bytes, random);
                "device write of wrong records"
            } else {
                "device write of records"
            };
            let mut writer = &*file;
            let result = writer.write(&bytes);
            tally.answer(kind, &result, allowed::RECORDS, || {
                format!("{} bytes", bytes.len())
            });
            if matches!(result, Ok(taken) if taken > bytes.len()) {
                tally.finding(format!("{kind}: {result:?} of {} bytes", bytes.len()));
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
            Err(error) => return Err(format!("{DEVICE}: {error}").into()),
        }
    }
    let files: Arc<Shared> = Arc::new(Mutex::new(files));
    let mut threads = Vec::new();
    for _ in 0..THREADS {
        let (files, until, service) = (files.clone(), until.clone(), service.to_owned());
        let mut random = Random::new(random.next());
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
