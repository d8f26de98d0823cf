// SPDX-License-Identifier: GPL-2.0-only

//! Records, ioctls and reads of `/dev/nrs`, from threads that share open files and close them under each other.

use std::{
    error::Error,
    fs::{File, OpenOptions},
    io::{self, IoSlice, Read, Write},
    os::unix::fs::OpenOptionsExt,
    sync::{Arc, Mutex},
    thread,
};

use nrs_client::{ioctl, wire, Options, DEVICE};

use crate::{allowed, chance::Chance, tally::Tally, Until};

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
fn attach(file: &File, service: &str, chance: &mut Chance) -> io::Result<()> {
    let mut bytes = wire::Attach {
        size: wire::Attach::SIZE as u32,
        version: if chance.one_in(8) {
            chance.below(4) as u32
        } else {
            wire::VERSION
        },
        flags: chance.below(2) as u32,
        lease_ms: if chance.one_in(2) { 200 } else { 0 },
        requests_max: chance.below(500) as u32,
        reserved: 0,
        service: field(service),
        client: field(&format!("c{}", chance.below(9))),
    }
    .encode()
    .to_vec();
    if chance.one_in(4) {
        let size = chance.odd_number() as u32;
        match chance.below(3) {
            0 => {
                let at = chance.below(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << chance.below(8);
            }
            1 => bytes[..4].copy_from_slice(&size.to_le_bytes()),
            _ => {
                // Longer than is known.
                let len = wire::Attach::SIZE + chance.below(500) as usize;
                bytes.resize(len, chance.below(2) as u8);
                bytes[..4].copy_from_slice(&(len as u32).to_le_bytes());
            }
        }
        bytes.resize(bytes.len().max(wire::SIZE_MAX), 0);
    }
    ioctl(file, wire::IOC_ATTACH, &mut bytes)
}

/// A request that is well formed.
fn request(chance: &mut Chance) -> Vec<u8> {
    let mut request = wire::Request::new(chance.within(1, COOKIES));
    request.uid = chance.within(1000, 1005) as u32;
    request.opcode = chance.pick(&[&3, &4, &36, &0]).to_owned();
    request.object = chance.below(5);
    request.offset = chance.odd_number() >> 1;
    request.length = chance.below(1 << 20);
    request.jobid = field(&format!("job.{}", chance.below(9)));
    request.stream = chance.below(4);
    request.target = chance.below(3) as u32;
    request.job_size = chance.below(20) as u32;
    request.header.flags = chance.below(2) as u32;
    if chance.one_in(4) {
        request.timeout_ms = chance.within(1, 3000) as u32;
        request.elapsed_ms = chance.below(1000) as u32;
    }
    for name in request
        .predecessor
        .iter_mut()
        .take(chance.below(3) as usize)
    {
        *name = chance.below(COOKIES);
    }
    request.encode().to_vec()
}

/// Any record.
fn record(chance: &mut Chance) -> Vec<u8> {
    let cookie = chance.within(1, COOKIES);
    match chance.below(8) {
        0 => wire::Completion::new(cookie, chance.below(3) as u32, chance.odd_number())
            .encode()
            .to_vec(),
        1 => wire::Promotion::new(cookie).encode().to_vec(),
        2 => wire::Busy::new(cookie, chance.within(1, 5000) as u32)
            .encode()
            .to_vec(),
        3 => {
            let mut bytes = vec![0; wire::Reconnect::SIZE];
            bytes[..2].copy_from_slice(&wire::TYPE_RECONNECT.to_le_bytes());
            bytes[2..4].copy_from_slice(&(wire::Reconnect::SIZE as u16).to_le_bytes());
            bytes
        }
        _ => request(chance),
    }
}

/// Makes records wrong: fields, lengths, sizes that are stated, counts.
fn wrong(bytes: &mut Vec<u8>, chance: &mut Chance) {
    match chance.below(5) {
        0 => {
            let at = chance.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << chance.below(8);
        }
        1 => bytes.truncate(chance.below(bytes.len() as u64) as usize),
        2 => bytes[2..4].copy_from_slice(&(chance.odd_number() as u16).to_le_bytes()),
        3 => {
            let at = chance.below(bytes.len() as u64 / 8 - 1) as usize * 8;
            bytes[at..at + 8].copy_from_slice(&chance.odd_number().to_le_bytes());
        }
        _ => chance.mutated(bytes),
    }
}

/// Reads, checks the form of what was read, and completes most of it.
fn serve(file: &File, chance: &mut Chance, tally: &mut Tally) {
    let len = if chance.one_in(2) {
        4096
    } else {
        chance.below(300)
    };
    let mut bytes = vec![0; len as usize];
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
        if record.first() == Some(&(wire::TYPE_RELEASED as u8)) && !chance.one_in(8) {
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
fn call(files: &Shared, service: &str, chance: &mut Chance, tally: &mut Tally) {
    let at = chance.below(FILES as u64) as usize;
    let file = {
        let files = files.lock().unwrap_or_else(|broken| broken.into_inner());
        files.get(at).cloned()
    };
    let Some(file) = file else { return };
    match chance.below(20) {
        0 => {
            // The last one that has it closes it, whatever others are about to do.
            let result = open();
            tally.answer("device open", &result, &[libc::ENOMEM], String::new);
            let Ok(new) = result else { return };
            let result = attach(&new, service, chance);
            tally.answer("device attach", &result, allowed::IOCTL, String::new);
            let mut files = files.lock().unwrap_or_else(|broken| broken.into_inner());
            let old = files.get_mut(at).map(|place| std::mem::replace(place, new));
            drop(files);
            drop(old);
            tally.count("device close", 0);
        }
        1 => {
            let result = attach(&file, service, chance);
            tally.answer("device attach", &result, allowed::IOCTL, String::new);
        }
        2 | 3 => {
            let mut bytes = vec![0; wire::SIZE_MAX];
            let size = match chance.below(3) {
                0 => wire::Stats::SIZE as u32,
                1 => chance.below(400) as u32,
                _ => chance.odd_number() as u32,
            };
            bytes[..4].copy_from_slice(&size.to_le_bytes());
            let known = chance.one_in(2);
            let command = if known {
                wire::IOC_STATS
            } else {
                // With a direction and a size, or of a number that is none; not one that would be a valid attach.
                (wire::IOC << 8) | (chance.odd_number() as u32 & 0xffff_00ff) | 4
            };
            let result = ioctl(&file, command, &mut bytes);
            tally.answer("device ioctl", &result, allowed::IOCTL, || {
                format!("{command:#x}, size {size}")
            });
        }
        4..=8 => serve(&file, chance, tally),
        9 => {
            // In parts, some of them in the middle of a record.
            let bytes: Vec<u8> = (0..3).flat_map(|_| record(chance)).collect();
            let (front, back) = bytes.split_at(chance.below(bytes.len() as u64) as usize);
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
                let (read, written) = nrs_client::nowhere(&client);
                let bad = [libc::EFAULT, libc::EAGAIN, libc::EINVAL, libc::ENOMEM];
                tally.answer("device read to nowhere", &read, &bad, String::new);
                tally.answer("device write from nowhere", &written, &bad, String::new);
            }
        }
        _ => {
            let many = if chance.one_in(10) {
                400
            } else {
                chance.within(1, 12)
            };
            let mut bytes: Vec<u8> = (0..many).flat_map(|_| record(chance)).collect();
            let kind = if chance.one_in(3) {
                wrong(&mut bytes, chance);
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
pub fn run(
    service: &str,
    until: &Until,
    chance: &mut Chance,
    tally: &mut Tally,
) -> Result<(), Box<dyn Error>> {
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
        let mut chance = Chance::new(chance.next());
        // A thread that finds no memory is one less.
        let thread = thread::Builder::new().spawn(move || {
            let mut tally = Tally::new(None);
            while until.more() {
                call(&files, &service, &mut chance, &mut tally);
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
