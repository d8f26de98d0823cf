// SPDX-License-Identifier: GPL-2.0-only

//! Checks of accepted and refused input: arguments, records, partial calls, limits.

use super::*;

/// Returns a field of 32 bytes with a name.
pub fn field(text: &str) -> [u8; 32] {
    let mut field = [0; 32];
    let len = text.len().min(31);
    field[..len].copy_from_slice(&text.as_bytes()[..len]);
    field
}

/// Returns a valid argument for attaching to `service`.
pub fn argument(service: &str) -> wire::Attach {
    wire::Attach {
        size: wire::Attach::SIZE as u32,
        version: wire::VERSION,
        service: field(service),
        ..wire::WireField::ZERO
    }
}

/// Checks the arguments that attaching accepts, returns and refuses.
pub fn attach() -> CheckResult {
    /// Description, expected error, and change to a valid argument.
    type Case = (&'static str, Option<i32>, fn(&mut wire::Attach));
    const WRONG: Option<i32> = Some(libc::EINVAL);
    let cases: [Case; 9] = [
        ("as it should be", None, |_| ()),
        ("an unknown flag", WRONG, |a| a.flags = 2),
        ("longest lease", None, |a| a.lease_ms = wire::LEASE_MAX),
        ("too long a lease", WRONG, |a| {
            a.lease_ms = wire::LEASE_MAX + 1
        }),
        ("no service", WRONG, |a| a.service = [0; 32]),
        ("a name without end", WRONG, |a| a.service = [b'a'; 32]),
        ("a name of 31 letters", None, |a| a.service[..31].fill(b'a')),
        ("a dot first", WRONG, |a| a.service[0] = b'.'),
        ("a client's name with a quote", WRONG, |a| {
            a.client[0] = b'"'
        }),
    ];
    for (what, error, change) in cases {
        let mut attach = argument("attach");
        change(&mut attach);
        let file = device()?;
        let result = ioctl(&file, wire::IOC_ATTACH, &mut attach.encode());
        match error {
            Some(error) => fails(what, result, error)?,
            None => result.context(what)?,
        }
    }
    let file = device()?;
    let mut bytes = argument("attach").encode();
    ioctl(&file, wire::IOC_ATTACH, &mut bytes)?;
    let answer = wire::Attach::decode(&bytes)
        .ok()
        .context("the answer cannot be read")?;
    same("version", answer.version, wire::VERSION)?;
    same("requests", answer.requests_max, 65536)?;
    let again = ioctl(&file, wire::IOC_ATTACH, &mut bytes);
    fails("twice", again, libc::EALREADY)?;
    let unknown = ioctl(&file, wire::IOC_ATTACH + 9, &mut bytes);
    fails("unknown ioctl", unknown, libc::ENOTTY)
}

/// Checks that calls on an unattached file fail.
pub fn unattached() -> CheckResult {
    let mut file = device()?;
    let mut bytes = [0; 256];
    fails("read", file.read(&mut bytes), libc::ENOTCONN)?;
    fails("write", file.write(&bytes), libc::ENOTCONN)?;
    let mut stats = [0; wire::Stats::SIZE];
    stats[0] = wire::Stats::SIZE as u8;
    let result = ioctl(&file, wire::IOC_STATS, &mut stats);
    fails("stats", result, libc::ENOTCONN)
}

/// Checks that requests are released, and that completions are counted.
pub fn roundtrip() -> CheckResult {
    let client = client("roundtrip", 65)?;
    fails("nothing to read", client.released(1), libc::EAGAIN)?;
    submit(&client, requests(1..=3))?;
    let all = released(&client, 3)?;
    same("order", cookies(&all), vec![1, 2, 3])?;
    same("flags", all[0].header.flags, wire::RELEASED_PASSED)?;
    let both = [Completion::new(1, 5, 0), Completion::new(3, 0, 100)];
    same("completions", client.complete(&both)?, 2)?;
    let stats = client.stats()?;
    same("requests", (stats.requests, stats.passed), (3, 3))?;
    same("now", (stats.queued, stats.ready, stats.running), (0, 0, 1))?;
    let ended = (stats.completed, stats.failed, stats.bytes);
    same("ended", ended, (2, 1, 100))
}

/// Checks that malformed or misplaced records are refused and counted, and change nothing.
pub fn refused() -> CheckResult {
    let client = client("refused", 65)?;
    let good = Request::new(1);
    submit(&client, [good])?;
    fails("cookie in use", client.submit(&[good]), libc::EEXIST)?;
    fails("not released", complete(&client, 2), libc::ENOENT)?;
    fails("not read", complete(&client, 1), libc::ENOENT)?;
    released(&client, 1)?;
    complete(&client, 1)?;
    fails("completed twice", complete(&client, 1), libc::ENOENT)?;
    let bad = |change: &dyn Fn(&mut wire::Request)| {
        let mut request = wire::Request::new(9);
        change(&mut request);
        fails("malformed", client.write(&request.encode()), libc::EINVAL)
    };
    bad(&|r| r.header.kind = 0)?;
    bad(&|r| r.header.kind = wire::TYPE_RELEASED)?;
    bad(&|r| r.header.size = 0)?;
    bad(&|r| r.header.size = wire::Request::SIZE as u16 + 1)?;
    bad(&|r| r.header.size = u16::MAX)?;
    bad(&|r| r.header.flags = 1 << 31)?;
    bad(&|r| r.length = wire::CHARGE_MAX + 1)?;
    bad(&|r| r.predecessor[7] = 1)?;
    bad(&|r| r.jobid = [b'j'; 32])?;
    bad(&|r| r.net = 99)?;
    let mut completion = Completion::new(9, 0, 0);
    completion.reserved = 1;
    fails("reserved", client.complete(&[completion]), libc::EINVAL)?;
    let stats = client.stats()?;
    let counted = (stats.refused, stats.duplicates, stats.unknown);
    same("counted", counted, (11, 1, 3))?;
    same("taken", (stats.requests, stats.completed), (1, 1))
}

/// Checks structures that are longer or shorter than in the module, and other versions.
pub fn sizes() -> CheckResult {
    let open = |bytes: &mut [u8]| -> Outcome<(File, io::Result<()>)> {
        let file = device()?;
        let result = ioctl(&file, wire::IOC_ATTACH, bytes);
        Ok((file, result))
    };
    // A program that knows more fields, all of which are 0.
    let mut longer = argument("sizes");
    longer.size += 16;
    let mut bytes = longer.encode().to_vec();
    bytes.extend([0; 16]);
    let (mut file, result) = open(&mut bytes)?;
    result?;
    let mut request = wire::Request::new(1);
    request.header.size += 8;
    let mut record = request.encode().to_vec();
    record.extend([0; 8]);
    same("longer record", file.write(&record)?, record.len())?;
    record[8] = 2;
    record[wire::Request::SIZE + 7] = 1;
    fails("with something unknown", file.write(&record), libc::EINVAL)?;
    same("read", file.read(&mut [0; 64])?, wire::Released::SIZE)?;
    let mut stats = vec![0xff; wire::Stats::SIZE + 8];
    let size = stats.len() as u32;
    stats[..4].copy_from_slice(&size.to_le_bytes());
    ioctl(&file, wire::IOC_STATS, &mut stats)?;
    same("size of statistics", stats[0], wire::Stats::SIZE as u8)?;
    let rest = stats[wire::Stats::SIZE..].to_vec();
    same("nothing behind", rest, vec![0xff; 8])?;
    // A field that is unknown to the module.
    *bytes.last_mut().context("empty")? = 1;
    fails("unknown argument", open(&mut bytes)?.1, libc::E2BIG)?;
    let mut huge = argument("sizes");
    huge.size = 4096;
    let mut bytes = huge.encode().to_vec();
    bytes.resize(4096, 0);
    fails("huge argument", open(&mut bytes)?.1, libc::E2BIG)?;
    // A size below the minimum.
    let size = wire::Stats::SIZE as u32 - 1;
    stats[..4].copy_from_slice(&size.to_le_bytes());
    let result = ioctl(&file, wire::IOC_STATS, &mut stats);
    fails("short statistics", result, libc::EINVAL)?;
    let mut short = argument("sizes");
    short.size -= 4;
    fails("short argument", open(&mut short.encode())?.1, libc::EINVAL)?;
    for version in [0, wire::VERSION + 1, u32::MAX] {
        let mut other = argument("sizes");
        other.version = version;
        let result = open(&mut other.encode())?.1;
        fails("another version", result, libc::EPROTONOSUPPORT)?;
    }
    Ok(())
}

/// Checks calls of which only some records are accepted.
pub fn parts() -> CheckResult {
    const LEN: usize = wire::Request::SIZE;
    let client = client("parts", 1024)?;
    let good = |cookie| Request::new(cookie).encode().to_vec();
    let mut bad = wire::Request::new(3);
    bad.predecessor[0] = 1;
    let bytes = [good(1), good(2), bad.encode().to_vec(), good(4)].concat();
    same("up to the bad one", client.write(&bytes)?, 2 * LEN)?;
    same("not counted yet", client.stats()?.refused, 0)?;
    let bad = client.write(&bytes[2 * LEN..]);
    fails("the bad one", bad, libc::EINVAL)?;
    same("counted", client.stats()?.refused, 1)?;
    same("the rest", client.write(&bytes[3 * LEN..])?, LEN)?;
    released(&client, 3)?;
    // A completion and a request in one call, and a truncated record.
    let mut both = Completion::new(1, 0, 0).encode().to_vec();
    both.extend(good(1));
    both.extend(&good(9)[..100]);
    let taken = client.write(&both)?;
    same("both", taken, wire::Completion::SIZE + LEN)?;
    // More records than a call accepts.
    let many: Vec<u8> = (1000..1300).flat_map(good).collect();
    same("a full call", client.write(&many)?, 256 * LEN)?;
    same("none", client.write(&[])?, 0)?;
    let all = client.released(1000)?;
    same("a full read", all.len(), 256)?;
    let mut file = device()?;
    ioctl(&file, wire::IOC_ATTACH, &mut argument("parts").encode())?;
    same("another client", file.write(&good(1))?, LEN)?;
    fails("too small a buffer", file.read(&mut [0; 39]), libc::EINVAL)?;
    same("one and a half", file.read(&mut [0; 60])?, 40)
}

/// Checks the maximum number of requests of a client, and that a waiting writer is woken by a
/// completion.
pub fn limit() -> CheckResult {
    let options = Options::new("limit").nonblocking(true).requests_max(8);
    let client = Arc::new(client_with(options, "limit", 65)?);
    same("limit", client.requests_max(), 8)?;
    same("taken", client.submit(&requests(0..20))?, 8)?;
    fails("full", client.submit(&requests(8..9)), libc::EAGAIN)?;
    same("no room", has_room(&client, Duration::ZERO)?, false)?;
    let first = released(&client, 8)?[0].cookie;
    let other = client.clone();
    let waiter = thread::spawn(move || has_room(&other, SOON));
    thread::sleep(Duration::from_millis(50));
    complete(&client, first)?;
    same("room", join(waiter)??, true)?;
    same("taken again", client.submit(&requests(8..9))?, 1)?;
    // Waiting writers proceed one after the other.
    let client = Arc::new(client_with(
        Options::new("limit").requests_max(2),
        "limit",
        65,
    )?);
    submit(&client, requests(0..2))?;
    let writers: Vec<_> = (0..4)
        .map(|n| {
            let client = client.clone();
            thread::spawn(move || client.submit(&requests(10 + n..11 + n)))
        })
        .collect();
    for _ in 0..6 {
        for released in released(&client, 1)? {
            thread::sleep(Duration::from_millis(10));
            complete(&client, released.cookie)?;
        }
    }
    for writer in writers {
        same("a writer", join(writer)??, 1)?;
    }
    Ok(())
}
