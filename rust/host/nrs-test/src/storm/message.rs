// SPDX-License-Identifier: GPL-2.0-only

//! Messages to a device, and table lines, sent by `dmsetup`.

use std::{
    ffi::OsStr,
    io,
    os::unix::{ffi::OsStrExt, process::ExitStatusExt},
    process::Command,
};

use super::{allowed, words, StormRun};
use crate::{
    random::{Draw, Random},
    Outcome,
};

/// Errno if `dmsetup` did not report an answer of the kernel, because it refused the arguments
/// itself.
const UNSAID: i32 = -1;

/// Runs `dmsetup` with these arguments.
///
/// # Errors
///
/// Answer of the kernel, if `dmsetup` reports it; `ENOMEM` also if `dmsetup` could not run.
fn dmsetup<'a>(words: impl IntoIterator<Item = &'a [u8]>) -> io::Result<()> {
    let words = words.into_iter().map(OsStr::from_bytes);
    let output = Command::new("dmsetup").args(words).output();
    let output = output.map_err(|error| match error.raw_os_error() {
        // The kernel returns E2BIG if it has no memory for the arguments; there are few of them.
        Some(libc::E2BIG) => io::Error::from_raw_os_error(libc::ENOMEM),
        _ => error,
    })?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    // A lack of memory during the start or dynamic linking of the program kills it.
    let killed = output.status.signal().is_some() || text.contains("annot allocate memory");
    let errno = allowed::of_text(&text).or(killed.then_some(libc::ENOMEM));
    Err(errno.map_or_else(
        || io::Error::other(text.into_owned()),
        io::Error::from_raw_os_error,
    ))
}

/// Sends a message to sector 0 of `device`.
///
/// # Errors
///
/// See [`dmsetup`].
pub fn send(device: &str, words: &[impl AsRef<[u8]>]) -> io::Result<()> {
    let head = ["message", device, "0"].map(str::as_bytes);
    dmsetup(head.into_iter().chain(words.iter().map(AsRef::as_ref)))
}

/// Returns words that can be passed on a command line and are not options.
fn cleaned(mut words: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    for word in &mut words {
        word.retain(|byte| *byte != 0);
        if word.first() == Some(&b'-') {
            word.insert(0, b'x');
        }
    }
    words
}

/// Returns a table line for a device of 1 MiB.
fn table(lower: &str, service: &str, random: &mut Random) -> String {
    const OPTIONS: &str = "nid 10.0.0.7@tcp|jobid job.7|jobid_name %e.%u.%g.%p.%h.%H.%j.%%|\
        size 16|opportunity off|stream cgroup|nid [1-3]@gni";
    let count = random.u8(..4);
    let options: Vec<_> = (0..count)
        .map(|_| words::expand(OPTIONS, false, random))
        .collect();
    let (count, options) = (2 * options.len(), options.join(" "));
    let offset = random.u64(0..=64) * 8;
    format!("0 2048 nrs {lower} {offset} {service} {count} {options}")
}

/// Sends messages to `device` until the end, and creates devices with this name prefix on `lower`.
pub fn run(run: &mut StormRun, device: &str, lower: &str, service: &str) -> Outcome<()> {
    let StormRun(until, random, tally) = run;
    let written = words::written();
    let wrong = format!("{device}-wrong");
    let options = ["--noudevsync", "--noudevrules"].map(str::as_bytes);
    while until.more() {
        if random.one_in(3) {
            let mut line = table(lower, service, random).into_bytes();
            if !random.one_in(4) {
                random.mutate(&mut line);
                line.retain(|byte| *byte != 0);
            }
            let words = ["create", &wrong, "--table"].map(str::as_bytes);
            let result = dmsetup(options.into_iter().chain(words).chain([&line[..]]));
            let allowed = [allowed::TABLE, &[UNSAID]].concat();
            tally.answer("table", &result, &allowed, String::from_utf8_lossy(&line));
            // Also removes devices without a table, or with a wrong one.
            let words = ["remove", "--retry", &wrong].map(str::as_bytes);
            let result = dmsetup(options.into_iter().chain(words));
            let allowed = [libc::ENXIO, libc::ENOMEM, libc::EBUSY];
            tally.answer("remove", &result, &allowed, &wrong);
            continue;
        }
        let file = random.pick(&written);
        let value = words::value(file, false, random).replace('\n', ";");
        let words = match random.u64(..12) {
            0 => vec!["drain"],
            1 => vec!["service", file],
            2 => vec!["timeouts"],
            _ => vec!["service", file, &value],
        };
        let mut words: Vec<Vec<u8>> = words.iter().map(|word| (*word).into()).collect();
        let mutated = random.one_in(2);
        if mutated {
            let at = random.usize(..words.len());
            random.mutate(&mut words[at]);
        }
        let words = cleaned(words);
        let result = send(device, &words);
        let mut all = allowed::write(file, !mutated);
        all.extend([libc::ENODEV, libc::EACCES, libc::EINVAL]);
        if mutated {
            all.extend_from_slice(allowed::MESSAGE);
            all.push(UNSAID);
        }
        let text = words.join(&b' ');
        tally.answer("message", &result, &all, String::from_utf8_lossy(&text));
    }
    Ok(())
}
