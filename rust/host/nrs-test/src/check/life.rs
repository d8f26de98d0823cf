// SPDX-License-Identifier: GPL-2.0-only

//! Requests through their lives: order, waiting, leases, closing.

use super::*;

/// Releases are in the order of the policy; high priority has its own queue and slot.
pub fn order() -> Done {
    let client = client("order", 1)?;
    // High priority has a queue of its own, and goes first.
    submit(&client, &requests(1..=5))?;
    submit(&client, &[Request::new(9).high_priority(true)])?;
    same("first", cookies(&released(&client, 1)?), vec![1])?;
    same("withheld", client.stats()?.queued, 5)?;
    complete(&client, 1)?;
    for wanted in [9, 2, 3, 4, 5] {
        let next = released(&client, 1)?;
        same("next", cookies(&next), vec![wanted])?;
        let waited = (next[0].wait_ns > 0, next[0].header.flags);
        same("it waited", waited, (true, 0))?;
        fails("nothing else", client.released(1), libc::EAGAIN)?;
        complete(&client, wanted)?;
    }
    // With this flag nothing passes.
    let all = Options::new("order")
        .nonblocking(true)
        .queue_all(true)
        .open()?;
    submit(&all, &requests(1..=1))?;
    same("queued", released(&all, 1)?[0].header.flags, 0)?;
    same("passed", all.stats()?.passed, 0)
}

/// Reads and polls wait, and wake.
pub fn waiting() -> Done {
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
    writer.join().map_err(|_| "panic")??;
    complete(&client, 1)?;
    quiet("nothing", &client, Duration::from_millis(20))?;
    let writer = later();
    same("polled", client.wait(false, Some(SOON))?.readable, true)?;
    writer.join().map_err(|_| "panic")??;
    same("both", client.wait(true, Some(SOON))?.writable, true)
}

/// Many threads share a file; each request goes to one of them.
pub fn readers() -> Done {
    const THREADS: usize = 4;
    const COUNT: u64 = 2000;
    let client = Arc::new(client_with(Options::new("readers"), "readers", 8)?);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let readers: Vec<_> = (0..THREADS)
        .map(|_| {
            let (client, seen) = (client.clone(), seen.clone());
            thread::spawn(move || -> io::Result<()> {
                loop {
                    for released in client.released(3)? {
                        complete(&client, released.cookie)?;
                        // The last ones tell the readers to end.
                        if released.cookie >= COUNT {
                            return Ok(());
                        }
                        seen.lock()
                            .map_err(|_| io::ErrorKind::Other)?
                            .push(released.cookie);
                    }
                }
            })
        })
        .collect();
    for chunk in requests(0..COUNT).chunks(50) {
        submit(&client, chunk)?;
    }
    let end = Instant::now() + 3 * SOON;
    while client.stats()?.completed < COUNT {
        if Instant::now() > end {
            return Err(format!("{:?}", client.stats()?).into());
        }
        thread::sleep(Duration::from_millis(5));
    }
    // One at a time: a reader that ends must not have taken another's.
    for (index, cookie) in (COUNT..COUNT + THREADS as u64).enumerate() {
        submit(&client, &requests(cookie..cookie + 1))?;
        while client.stats()?.completed < COUNT + index as u64 + 1 {
            thread::sleep(Duration::from_millis(1));
        }
    }
    for reader in readers {
        reader.join().map_err(|_| "panic")??;
    }
    let mut seen = seen.lock().map_err(|_| "poisoned")?.clone();
    seen.sort_unstable();
    same("each once", seen, (0..COUNT).collect())
}

/// What cannot be copied to the reader stays.
pub fn fault() -> Done {
    let client = client("fault", 65)?;
    submit(&client, &requests(1..=4))?;
    let (read, written) = crate::nowhere::transfer(&client);
    fails("read to nowhere", read, libc::EFAULT)?;
    fails("write from nowhere", written, libc::EFAULT)?;
    same("not told", client.stats()?.ready, 4)?;
    let there = cookies(&released(&client, 4)?);
    same("still there", there, vec![1, 2, 3, 4])?;
    for cookie in 1..=4 {
        complete(&client, cookie)?;
    }
    Ok(())
}

/// Requests that are not completed in time cost their slots no longer; each lease counts once.
pub fn lease() -> Done {
    const SLOTS: u64 = 40;
    const LEASE: Duration = Duration::from_millis(200);
    let options = Options::new("lease").nonblocking(true).lease(LEASE);
    let client = client_with(options, "lease", SLOTS as u32)?;
    let start = Instant::now();
    submit(&client, &requests(1..=2 * SLOTS))?;
    let first = cookies(&released(&client, SLOTS as usize)?);
    // None is completed, and yet the others come; not before the leases are over.
    let second = cookies(&released(&client, SLOTS as usize)?);
    same("leases kept", start.elapsed() >= LEASE, true)?;
    let mut all = [&first[..], &second].concat();
    all.sort_unstable();
    same("each once", all, (1..=2 * SLOTS).collect())?;
    for cookie in second {
        // Its own lease may have ended by now.
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

/// Closing a file leaves nothing of it behind, and other clients alone.
pub fn close() -> Done {
    let staying = client("close", 1)?;
    let going = client("close", 1)?;
    submit(&going, &requests(0..3000))?;
    submit(&staying, &requests(1..=2))?;
    released(&going, 1)?;
    let start = Instant::now();
    drop(going);
    if start.elapsed() > Duration::from_secs(15) {
        return Err(format!("closing took {:?}", start.elapsed()).into());
    }
    // Its slots are free, its requests are gone, and those of the other are still there.
    let mut seen = cookies(&released(&staying, 1)?);
    complete(&staying, seen[0])?;
    seen.extend(cookies(&released(&staying, 1)?));
    same("the other's", seen, vec![1, 2])?;
    complete(&staying, 2)?;
    submit(&staying, &requests(3..=3))?;
    calm(&staying)
}
