// SPDX-License-Identifier: GPL-2.0-only

//! Checks of deadlines, early replies and recovery.
//!
//! The services of these checks have an estimate of one second and steps of one second, so that the
//! checks are short.

use super::*;
use nrs_client::{Busy, Early, Event, Nid, Reconnect};

/// Tolerated delay on a busy machine.
const SLACK: Duration = Duration::from_millis(700);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Creates a client of `service` with `slots` slots and at most `max` seconds per request.
fn quick(service: &str, slots: u32, max: u32) -> Outcome<Client> {
    let client = client(service, slots)?;
    // Ordered so that each intermediate combination is valid.
    let terms = [
        ("at_early_margin", 1),
        ("at_min", 1),
        ("at_extra", 2),
        ("at_max", max),
        ("at_initial", 1),
        ("at_factor", 100),
        ("at_increment", 0),
    ];
    for (file, value) in terms {
        set(service, file, &value.to_string())?;
    }
    Ok(client)
}

fn waiting(cookie: u64, timeout: Duration) -> Request {
    requests([cookie])[0].timeout(timeout)
}

/// Returns the next event; waits for it.
fn event(client: &Client) -> Outcome<Event> {
    let end = Instant::now() + SOON;
    while Instant::now() < end {
        if client.wait(false, Some(ms(100)))?.readable {
            if let Some(event) = events(client, 1)?.pop() {
                return Ok(event);
            }
        }
    }
    bail!("no event within 20 s")
}

/// Returns the next `max` events; none if there is none now.
fn events(client: &Client, max: usize) -> io::Result<Vec<Event>> {
    match client.events(max) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(Vec::new()),
        events => events,
    }
}

fn early_reply(client: &Client) -> Outcome<Early> {
    match event(client)? {
        Event::Early(early) => Ok(early),
        other => bail!("found {other:?}, expected an early reply"),
    }
}

fn to_serve(client: &Client) -> Outcome<Released> {
    match event(client)? {
        Event::Released(released) => Ok(released),
        other => bail!("{other:?}, a request was expected"),
    }
}

/// Returns the number of early replies read, refused and late, and of expired requests.
fn counts(client: &Client) -> Outcome<[u64; 4]> {
    let stats = client.stats()?;
    Ok([
        stats.early_sent,
        stats.early_refused,
        stats.early_late,
        stats.expired,
    ])
}

/// Fails unless `seen` is `wanted`, or slightly later.
fn soon_after(what: &str, seen: Duration, wanted: Duration) -> CheckResult {
    let soon = seen + ms(20) >= wanted && seen <= wanted + SLACK;
    ensure!(soon, "{what}: found {seen:?}, expected {wanted:?}");
    Ok(())
}

/// Checks the times of early replies: immediately, then a margin before the deadline, never beyond
/// the limit.
pub fn early() -> CheckResult {
    let client = quick("early", 1, 6)?;
    set("early", "at_initial", "2")?;
    let begun = Instant::now();
    // The first request occupies the slot; the second one is queued.
    submit(&client, requests([1]))?;
    let plain = to_serve(&client)?;
    let shown = (plain.is_expired(), plain.left(), plain.estimate().is_zero());
    same("without a timeout", shown, (false, None, false))?;
    submit(&client, [waiting(2, ms(1500))])?;
    let first = early_reply(&client)?;
    soon_after("at once", begun.elapsed(), Duration::ZERO)?;
    let reply = (first.cookie, first.header.flags);
    same("request and flags", reply, (2, wire::EARLY_AT_ONCE))?;
    soon_after("its timeout", first.timeout(), ms(2000))?;
    // Margin and extension are one second each; the limit is six seconds.
    let mut told = first.timeout();
    for n in 1..=4 {
        let next = early_reply(&client)?;
        let (left, all) = (told.saturating_sub(begun.elapsed()), next.timeout());
        println!("early reply {n}: {left:?} left, {all:?} in all");
        soon_after("when", begun.elapsed(), told - ms(1000))?;
        same("reply flags", next.header.flags, 0)?;
        let wanted = (told + ms(1000)).min(ms(6000));
        soon_after("granted timeout", next.timeout(), wanted)?;
        same("within the limit", next.timeout() <= ms(6000), true)?;
        told = next.timeout();
    }
    same("the limit", told, ms(6000))?;
    let end = Instant::now() + SOON;
    while counts(&client)?[3] == 0 && Instant::now() < end {
        quiet("nothing more", &client, ms(50))?;
    }
    soon_after("the deadline", begun.elapsed(), ms(6000))?;
    same("counted", counts(&client)?, [5, 1, 0, 1])?;
    complete(&client, 1)?;
    let late = to_serve(&client)?;
    let expired = (late.cookie, late.is_expired(), late.left());
    same("expired", expired, (2, true, None))?;
    complete(&client, 2)?;
    // A request that is served in time does not expire.
    submit(&client, [waiting(3, ms(8000)).elapsed(ms(1000))])?;
    let plain = to_serve(&client)?;
    same("in time", plain.is_expired(), false)?;
    let left = plain.left().context("no time left")?;
    same("time left", left <= ms(7000) && left > ms(6000), true)?;
    complete(&client, 3)?;
    submit(&client, [waiting(4, ms(1000)).elapsed(ms(1000))])?;
    same("arrived too late", to_serve(&client)?.is_expired(), true)?;
    same("counted, too", counts(&client)?[3], 2)
}

/// Checks a server that reports for how long it is busy.
pub fn busy() -> CheckResult {
    let options = Options::new("busy").nonblocking(true).lease(ms(1500));
    let client = client_with(options, "busy", 4)?;
    drop(quick("busy", 4, 600)?);
    let all = [(1, 3000), (2, 8000), (3, 8000)];
    submit(&client, all.map(|(n, time)| waiting(n, ms(time))))?;
    let begun = Instant::now();
    for _ in 0..3 {
        to_serve(&client)?;
    }
    client.busy(&[(1, ms(5000)), (2, ms(5000))])?;
    let told = early_reply(&client)?;
    let reply = (told.cookie, told.header.flags);
    same("request and flags", reply, (1, wire::EARLY_BUSY))?;
    soon_after("its timeout", told.timeout(), ms(5000))?;
    // The client of the second request waits longer anyway; the lease of the third one expires
    // soon.
    thread::sleep(ms(3000));
    same("leases", client.stats()?.reclaimed, 1)?;
    quiet("no other", &client, Duration::ZERO)?;
    // The lease continues after the busy time; the deadline is at the end of the busy time.
    let next = early_reply(&client)?;
    soon_after("the next one", begun.elapsed(), ms(4000))?;
    same("by itself", (next.cookie, next.header.flags), (1, 0))?;
    same("not late", counts(&client)?, [2, 1, 0, 0])?;
    for cookie in 1..=3 {
        complete(&client, cookie)?;
    }
    let stats = client.stats()?;
    same("late", (stats.reclaimed, stats.late), (1, 1))?;
    fails("completed", client.busy(&[(1, ms(1))]), libc::ENOENT)
}

/// Checks that all early replies are in time with busy slots and the maximum number of queued
/// requests.
pub fn crowd() -> CheckResult {
    const ALL: usize = 65536;
    // The default margin, because reading all replies takes a while on a slow machine.
    let client = client("crowd", 1)?;
    for (file, value) in [("at_initial", "5"), ("at_extra", "10")] {
        set("crowd", file, value)?;
    }
    submit(&client, requests([ALL as u64]))?;
    to_serve(&client)?;
    // Reading starts after all requests are submitted.
    let timeout = ms(20_000);
    let mut deadlines = Vec::with_capacity(ALL);
    for first in (0..ALL as u64 - 1).step_by(256) {
        let batch = first..(first + 256).min(ALL as u64 - 1);
        let now = Instant::now();
        deadlines.extend(batch.clone().map(|_| (now, now + timeout)));
        let batch: Vec<Request> = batch.map(|n| waiting(n, timeout)).collect();
        submit(&client, &batch)?;
    }
    let wanted = 2 * deadlines.len();
    let (mut seen, mut least) = (0, timeout);
    let end = Instant::now() + Duration::from_secs(60);
    while seen < wanted {
        ensure!(Instant::now() <= end, "{seen} early replies of {wanted}");
        client.wait(false, Some(ms(100)))?;
        let events = events(&client, 256)?;
        let now = Instant::now();
        for event in events {
            let Event::Early(early) = event else {
                bail!("{event:?}");
            };
            let (sent, deadline) = &mut deadlines[early.cookie as usize];
            least = least.min(deadline.saturating_duration_since(now));
            *deadline = *sent + early.timeout();
            seen += 1;
        }
    }
    let counts = counts(&client)?;
    let count = deadlines.len();
    println!("{seen} early replies for {count} requests; the latest {least:?} before its deadline");
    same("none is late", counts[1..].to_vec(), vec![0; 3])?;
    same("none was near", least > ms(0), true)
}

/// Checks that requests delayed by the rate limit of a policy neither expire nor count as slow.
pub fn rate() -> CheckResult {
    let (slowest, health, expired) = rated("rate", 1, 50)?;
    println!("50 requests at 1/s: estimate {slowest:?}, {health}, {expired} expired");
    same("expired", expired, 0)?;
    same("healthy", health.as_str(), "healthy")?;
    same("the estimate stays low", slowest <= ms(5000), true)?;
    // Except with `at_count_policy_delay`.
    let (slowest, _, _) = rated("rate-counted", 10, 50)?;
    println!("the same at 10/s with at_count_policy_delay 1: estimate {slowest:?}");
    same("the estimate follows", slowest >= ms(4000), true)
}

/// Returns the largest estimate, the worst health, and the number of expired requests while `count`
/// requests are served at `rate` per second.
fn rated(service: &str, rate: u32, count: u64) -> Outcome<(Duration, String, u64)> {
    let client = quick(service, 65, 600)?;
    set(service, "nrs_policies", "tbf")?;
    let rule = format!("change default rate={rate}");
    set(service, "nrs_tbf_rule", &rule)?;
    if rate > 1 {
        set(service, "at_count_policy_delay", "1")?;
    }
    let all: Vec<Request> = (0..count).map(|n| waiting(n, ms(4000)).uid(7)).collect();
    submit(&client, &all)?;
    let (mut slowest, mut health, mut served) = (Duration::ZERO, "healthy".to_string(), 0);
    let end = Instant::now() + Duration::from_secs(count / u64::from(rate)) + SOON;
    while served < count {
        ensure!(Instant::now() <= end, "{served} of {count} were served");
        if let Event::Released(released) = event(&client)? {
            slowest = slowest.max(released.estimate());
            complete(&client, released.cookie)?;
            served += 1;
            let now = get(service, "health")?;
            let now = now.lines().next().unwrap_or("");
            if now != "healthy" {
                health = now.to_string();
            }
        }
    }
    Ok((slowest, health, counts(&client)?[3]))
}

/// Checks the recovery time, which follows the largest timeout of the reconnecting clients.
pub fn recovery() -> CheckResult {
    let client = quick("recovery", 1, 600)?;
    let nid = |n: u8| format!("10.0.0.{n}@tcp").parse::<Nid>();
    let begun = Instant::now();
    let back = |n, timeout| -> CheckResult {
        let report = Reconnect::of(&nid(n)?, timeout);
        same("a report", client.reconnect(&[report])?, 1)
    };
    back(1, ms(2000))?;
    back(2, ms(4000))?;
    // During recovery early replies grant a part of the recovery time, and the estimate is
    // unchanged.
    submit(&client, requests([1]))?;
    to_serve(&client)?;
    submit(&client, [waiting(2, ms(1100))])?;
    let replied = early_reply(&client)?;
    same("the estimate", replied.estimate(), ms(1000))?;
    let granted = replied.timeout() > ms(1100) && replied.timeout() <= ms(2200);
    same("granted timeout", granted, true)?;
    thread::sleep(ms(1000).saturating_sub(begun.elapsed()));
    back(3, ms(500))?;
    client.reconnect(&[Reconnect::new(0); 256])?;
    let ended = loop {
        match event(&client)? {
            Event::Recovered(recovered) => break recovered,
            Event::Early(_) => {}
            other => bail!("{other:?}"),
        }
    };
    let recovered = (ended.clients, ended.largest());
    same("recovered clients", recovered, (259, ms(4000)))?;
    println!("recovered after {:?}", begun.elapsed());
    let late = begun.elapsed().saturating_sub(ms(5000));
    same("when", begun.elapsed() >= ms(3980) && late <= SLACK, true)?;
    same("counted", client.stats()?.reconnected, 259)?;
    // The next reconnect starts a new recovery.
    back(1, ms(100))?;
    loop {
        if let Event::Recovered(recovered) = event(&client)? {
            return same("again", recovered.clients, 1);
        }
    }
}

/// Checks that malformed records are refused and change nothing, and that a server that never reads
/// has no more events than requests.
pub fn hostile() -> CheckResult {
    let client = quick("hostile", 1, 600)?;
    submit(&client, [waiting(1, ms(60_000)), waiting(2, ms(60_000))])?;
    to_serve(&client)?;
    let busy = |change: fn(&mut Busy)| {
        let mut record = Busy::new(1, 1000);
        change(&mut record);
        record.encode().to_vec()
    };
    let back = |change: fn(&mut Reconnect)| {
        let mut record = Reconnect::new(1000);
        change(&mut record);
        record.encode().to_vec()
    };
    for (what, bytes) in [
        ("busy for no time", busy(|r| r.extra_ms = 0)),
        ("busy for ever", busy(|r| r.extra_ms = u32::MAX)),
        ("a flag", busy(|r| r.header.flags = 1)),
        ("longer than it is", busy(|r| r.header.size = 512)),
        ("half an address", back(|r| (r.net, r.address_len) = (2, 3))),
        ("another flag", back(|r| r.header.flags = 1 << 31)),
        (
            "a record type for reads only",
            Early::new(1, 1, 1, 0).encode().to_vec(),
        ),
    ] {
        fails(what, client.write(&bytes), libc::EINVAL)?;
    }
    fails("unknown", client.busy(&[(9, ms(1))]), libc::ENOENT)?;
    fails("not read", client.busy(&[(2, ms(1))]), libc::ENOENT)?;
    let stats = client.stats()?;
    same("counted", (stats.refused, stats.unknown), (7, 2))?;
    same("nothing began", (stats.reconnected, stats.requests), (0, 2))?;
    complete(&client, 1)?;
    same("nothing is lost", to_serve(&client)?.cookie, 2)?;
    complete(&client, 2)?;
    // All values of the time fields are accepted.
    let (max, mut random) = (u64::from(u32::MAX), Random::with_seed(7));
    for cookie in 0..2000 {
        let timeout = ms([0, 1, random.u64(..5000), max, random.u64(..max)][cookie as usize % 5]);
        let elapsed =
            ms([0, 0, random.u64(..3000), max, random.u64(..max), 1][cookie as usize % 6]);
        submit(&client, [waiting(cookie, timeout).elapsed(elapsed)])?;
    }
    // Only statistics are read for a while. The number of early replies is bounded by the number of
    // requests.
    client.reconnect(&[Reconnect::new(u32::MAX); 256])?;
    thread::sleep(ms(2500));
    for n in 0..200_000 {
        let cookie = n % 2000;
        let known = client.busy(&[(cookie, ms(1 + random.u64(..3_600_000)))]);
        same("not read", known.is_err(), true)?;
    }
    let stats = client.stats()?;
    same("all are there", stats.queued + stats.ready, 2000)?;
    let (mut served, mut told) = (0, 0);
    while served < 2000 {
        match event(&client)? {
            Event::Released(released) => {
                // A repeated busy report causes one early reply.
                for _ in 0..3 {
                    client.busy(&[(released.cookie, ms(3000))])?;
                }
                complete(&client, released.cookie)?;
                served += 1;
            }
            Event::Early(_) => told += 1,
            Event::Recovered(_) => {}
        }
    }
    let stats = client.stats()?;
    println!(
        "{told} early replies, {} late, {} expired",
        stats.early_late, stats.expired
    );
    same("early replies", stats.early_sent, told)?;
    same("bounded", told <= 2 * 2000 && stats.expired <= 2000, true)
}

/// Returns the memory in slab caches of the kernel, KiB.
fn slab() -> Outcome<u64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("Slab:"));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.context("no Slab in /proc/meminfo")
}

/// Checks that memory for events does not grow if a server never reads them.
pub fn silent() -> CheckResult {
    const ALL: u64 = 20_000;
    let client = quick("silent", 1, 600)?;
    set("silent", "at_initial", "2")?;
    let all: Vec<Request> = (0..ALL).map(|n| waiting(n, ms(1500))).collect();
    submit(&client, &all)?;
    let first = slab()?;
    client.reconnect(&[Reconnect::new(1); 256])?;
    thread::sleep(ms(4000));
    let last = slab()?;
    println!("slab {first} KiB, then {last} KiB");
    // All early replies were queued at once, none was read in time.
    same("late", counts(&client)?, [0, 0, ALL, ALL])?;
    same("memory", last <= first + 2048, true)?;
    let mut served = 0;
    while served < ALL {
        for event in events(&client, 256)? {
            match event {
                Event::Released(released) => {
                    same("expired", released.is_expired(), true)?;
                    complete(&client, released.cookie)?;
                    served += 1;
                }
                Event::Recovered(_) => {}
                Event::Early(early) => bail!("{early:?}"),
            }
        }
    }
    Ok(())
}
