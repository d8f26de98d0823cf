// SPDX-License-Identifier: GPL-2.0-only

//! Checks of the life cycle of requests: order, waiting, leases, closing.

use std::{mem::MaybeUninit, sync::mpsc};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use super::*;

/// Checks that releases follow the order of the policy, and that high priority has a queue and a
/// slot of its own.
pub fn order() -> CheckResult {
    let client = client("order", 1)?;
    // High priority has its own queue, which is served first.
    submit(&client, requests(1..=5))?;
    submit(&client, [Request::new(9).high_priority(true)])?;
    same("first", cookies(&released(&client, 1)?), vec![1])?;
    same("queued", client.stats()?.queued, 5)?;
    complete(&client, 1)?;
    for wanted in [9, 2, 3, 4, 5] {
        let next = released(&client, 1)?;
        same("next", cookies(&next), vec![wanted])?;
        let waited = (next[0].wait_ns > 0, next[0].header.flags);
        same("wait time and flags", waited, (true, 0))?;
        fails("nothing else", client.released(1), libc::EAGAIN)?;
        complete(&client, wanted)?;
    }
    // With `queue_all` no request bypasses the queue.
    let all = Options::new("order")
        .nonblocking(true)
        .queue_all(true)
        .open()?;
    submit(&all, requests(1..=1))?;
    same("queued", released(&all, 1)?[0].header.flags, 0)?;
    same("passed", all.stats()?.passed, 0)
}

/// Checks that reads and polls block until an event, and then wake.
pub fn waiting() -> CheckResult {
    let client = Arc::new(client_with(Options::new("waiting"), "waiting", 65)?);
    let later = || {
        let client = client.clone();
        thread::spawn(move || {
            thread::sleep(Duration::from_millis(100));
            client.submit(&requests(1..2)).map(|_| Instant::now())
        })
    };
    let writer = later();
    same("read", cookies(&client.released(4)?), vec![1])?;
    join(writer)??;
    complete(&client, 1)?;
    quiet("nothing", &client, Duration::from_millis(20))?;
    let writer = later();
    same("polled", client.wait(false, Some(SOON))?.readable, true)?;
    join(writer)??;
    same("both", client.wait(true, Some(SOON))?.writable, true)
}

/// Checks that an exclusive poll for other events does not consume the notification of a blocked
/// writer or reader.
pub fn exclusive() -> CheckResult {
    let options = Options::new("exclusive").requests_max(1);
    let client = Arc::new(client_with(options, "exclusive", 65)?);
    // Starts a thread that polls for `events` for ever, first in all queues.
    let poll = |events: EventFlags| -> CheckResult {
        let all = epoll::create(CreateFlags::empty())?;
        let (client, events) = (client.clone(), events | EventFlags::EXCLUSIVE);
        epoll::add(&all, &*client, EventData::new_u64(0), events)?;
        thread::spawn(move || loop {
            let mut found = [const { MaybeUninit::uninit() }; 1];
            if epoll::wait(&all, &mut found, None).is_err() {
                return drop(client);
            }
        });
        Ok(())
    };
    let apart = Duration::from_millis(100);
    for cookie in 0..3 {
        submit(&client, requests(cookie..cookie + 1))?;
        let first = released(&client, 1)?[0].cookie;
        poll(EventFlags::IN)?;
        thread::sleep(apart);
        let writer = client.clone();
        let (done, finished) = mpsc::channel();
        thread::spawn(move || done.send(writer.submit(&requests(10..11)).is_ok()));
        thread::sleep(apart);
        complete(&client, first)?;
        same("a writer", finished.recv_timeout(SOON), Ok(true))?;
        complete(&client, released(&client, 1)?[0].cookie)?;
    }
    poll(EventFlags::OUT | EventFlags::ET)?;
    thread::sleep(apart);
    let reader = client.clone();
    let (done, finished) = mpsc::channel();
    thread::spawn(move || done.send(reader.released(1).map_or(0, |read| read.len())));
    thread::sleep(apart);
    submit(&client, requests(20..21))?;
    same("a reader", finished.recv_timeout(SOON), Ok(1))?;
    complete(&client, 20)?;
    Ok(())
}

/// Checks that many threads can share a file, and that each request is released to one of them.
pub fn readers() -> CheckResult {
    const THREADS: usize = 4;
    const COUNT: u64 = 2000;
    let client = Arc::new(client_with(Options::new("readers"), "readers", 8)?);
    let read = |client: Arc<Client>| -> io::Result<Vec<u64>> {
        let mut seen = Vec::new();
        loop {
            for released in client.released(3)? {
                complete(&client, released.cookie)?;
                // The last requests tell the readers to end.
                if released.cookie >= COUNT {
                    return Ok(seen);
                }
                seen.push(released.cookie);
            }
        }
    };
    let readers = [(); THREADS].map(|()| {
        let client = client.clone();
        thread::spawn(move || read(client))
    });
    for chunk in requests(0..COUNT).chunks(50) {
        submit(&client, chunk)?;
    }
    let end = Instant::now() + 3 * SOON;
    while client.stats()?.completed < COUNT {
        ensure!(Instant::now() <= end, "{:?}", client.stats()?);
        thread::sleep(Duration::from_millis(5));
    }
    // One request at a time: a reader that ends must not have taken the request for another reader.
    for (index, cookie) in (COUNT..COUNT + THREADS as u64).enumerate() {
        submit(&client, requests(cookie..cookie + 1))?;
        while client.stats()?.completed < COUNT + index as u64 + 1 {
            thread::sleep(Duration::from_millis(1));
        }
    }
    let mut seen = Vec::new();
    for reader in readers {
        seen.extend(join(reader)??);
    }
    seen.sort_unstable();
    same("each once", seen, (0..COUNT).collect())
}

/// Checks that releases that cannot be copied to the reader stay queued.
pub fn fault() -> CheckResult {
    let client = client("fault", 65)?;
    submit(&client, requests(1..=4))?;
    let (read, written) = crate::nowhere::transfer(&client);
    fails("read to nowhere", read, libc::EFAULT)?;
    fails("write from nowhere", written, libc::EFAULT)?;
    same("ready", client.stats()?.ready, 4)?;
    let there = cookies(&released(&client, 4)?);
    same("released", there, vec![1, 2, 3, 4])?;
    for cookie in 1..=4 {
        complete(&client, cookie)?;
    }
    Ok(())
}

/// Checks that requests that are not completed within their lease lose their slots, and that each
/// lease is counted once.
pub fn lease() -> CheckResult {
    const SLOTS: u64 = 40;
    const LEASE: Duration = Duration::from_millis(200);
    let options = Options::new("lease").nonblocking(true).lease(LEASE);
    let client = client_with(options, "lease", SLOTS as u32)?;
    let start = Instant::now();
    submit(&client, requests(1..=2 * SLOTS))?;
    let first = cookies(&released(&client, SLOTS as usize)?);
    // No request is completed, but the others are released when the leases have expired, not
    // before.
    let second = cookies(&released(&client, SLOTS as usize)?);
    same("leases kept", start.elapsed() >= LEASE, true)?;
    let mut all = [&first[..], &second].concat();
    all.sort_unstable();
    same("each once", all, (1..=2 * SLOTS).collect())?;
    for cookie in second {
        // The lease of this request may have expired by now.
        complete(&client, cookie)?;
    }
    let reclaimed = client.stats()?.reclaimed;
    same("reclaimed", (SLOTS..=2 * SLOTS).contains(&reclaimed), true)?;
    for cookie in &first {
        complete(&client, *cookie)?;
    }
    fails("twice", complete(&client, first[0]), libc::ENOENT)?;
    let stats = client.stats()?;
    let counted = (stats.reclaimed, stats.late, stats.completed);
    same("counted", counted, (reclaimed, reclaimed, 2 * SLOTS))?;
    let left = (stats.queued, stats.ready, stats.running);
    same("none left", left, (0, 0, 0))
}

/// Checks that closing a file releases its slots and requests, and does not affect other clients.
pub fn close() -> CheckResult {
    let staying = client("close", 1)?;
    let going = client("close", 1)?;
    submit(&going, requests(0..3000))?;
    submit(&staying, requests(1..=2))?;
    released(&going, 1)?;
    let start = Instant::now();
    drop(going);
    let took = start.elapsed();
    ensure!(took <= Duration::from_secs(15), "closing took {took:?}");
    // The slots of the closed file are free, its requests are removed, and the requests of the
    // other file remain.
    let mut seen = cookies(&released(&staying, 1)?);
    complete(&staying, seen[0])?;
    seen.extend(cookies(&released(&staying, 1)?));
    same("requests of the other file", seen, vec![1, 2])?;
    complete(&staying, 2)?;
    submit(&staying, requests(3..=3))?;
    uncontended(&staying)
}
