// SPDX-License-Identifier: GPL-2.0-only

//! Records, ioctls and reads of `/dev/nrs`, from threads that share open files and close them under each other.

use std::{
    fs::{File, OpenOptions},
    io::{self, IoSlice, Read, Write},
    os::unix::fs::OpenOptionsExt,
    sync::{Arc, Mutex},
    thread,
};

use nrs_client::{ioctl, wire, Options, DEVICE};

use super::{allowed, tally::Tally, Run};
use crate::{random::Random, Outcome};

/// Threads, and open files that they share.
const THREADS: u64 = 4;
const FILES: usize = 6;

/// Cookies are drawn from so many, so that some are in use already.
const COOKIES: u64 = 400;

type Shared = Mutex<Vec<Arc<File>>>;

/// Opens the device; calls on it never wait.
fn open() -> io::Result<Arc<File>> {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    options.custom_flags(libc::O_NONBLOCK);
    options.open(DEVICE).map(Arc::new)
}

/// A name in a field of 32 bytes.
fn field(text: &str) -> [u8; 32] {
    let mut field = [0; 32];
    for (to, from) in field.iter_mut().zip(text.bytes().take(31)) {
        *to = from;
    }
    field
}

/// Has the file become a client, or tries to; returns what was said for a counterpart to be checked.
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
                // Longer than is known.
                let len = wire::Attach::SIZE + random.below(500) as usize;
                bytes.resize(len, random.below(2) as u8);
                bytes[..4].copy_from_slice(&(len as u32).to_le_bytes());
            }
        }
        bytes.resize(bytes.len().max(wire::SIZE_MAX), 0);
    }
    ioctl(file, wire::IOC_ATTACH, &mut bytes)
}

/// A request that is well formed.
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

/// Any record.
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

/// Makes records wrong: fields, lengths, sizes that are stated, counts.
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

/// Reads, checks the form of what was read, and completes most of it.
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

/// One call.
fn call(files: &Shared, service: &str, random: &mut Random, tally: &mut Tally) {
    let at = random.index(FILES);
    let files = || files.lock().unwrap_or_else(|broken| broken.into_inner());
    let file = files()[at].clone();
    match random.below(20) {
        0 => {
            // The last one that has it closes it, whatever others are about to do.
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
                // With a direction and a size, or of a number that is none; not one that would be a valid attach.
                (wire::IOC << 8) | (random.odd_number() as u32 & 0xffff_00ff) | 4
            };
            let result = ioctl(&file, command, &mut bytes);
            tally.answer("device ioctl", &result, allowed::IOCTL, || {
                format!("{command:#x}, size {size}")
            });
        }
        4..=8 => serve(&file, random, tally),
        9 => {
            // In parts, some of them in the middle of a record.
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

/// Storms the device until it is time.
pub fn run(run: &mut Run, service: &str) -> Outcome<()> {
    let Run(until, random, tally) = run;
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
        // A thread that finds no memory is one less.
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
