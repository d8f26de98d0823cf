// SPDX-License-Identifier: GPL-2.0-only

//! Checks of the order of requests: promotions, streams, predecessors.

use super::*;

/// Service with an ordering level. The first client creates the service for its parameters; files
/// attached later use them.
struct Ordered {
    name: &'static str,
    _first: Client,
}

impl Ordered {
    fn new(name: &'static str, slots: u32, settings: &[(&str, &str)]) -> Outcome<Self> {
        let _first = client(name, slots)?;
        for (file, value) in settings {
            set(name, file, value)?;
        }
        Ok(Self { name, _first })
    }

    fn options(&self) -> Options {
        Options::new(self.name).nonblocking(true)
    }

    fn client(&self) -> io::Result<Client> {
        self.options().open()
    }
}

const GRAPH: [(&str, &str); 1] = [("nrs_pop", "graph")];
const STREAM: [(&str, &str); 1] = [("nrs_pop", "stream")];

fn request(cookie: u64) -> Request {
    requests([cookie])[0]
}

/// Time within which no request may be released.
const WHILE: Duration = Duration::from_millis(300);

/// Completes the next released request, and returns its cookie.
fn serve(client: &Client) -> Outcome<u64> {
    let cookie = released(client, 1)?[0].cookie;
    complete(client, cookie)?;
    Ok(cookie)
}

/// Completes the next `count` released requests, and returns their cookies.
fn serve_set(client: &Client, count: usize) -> Outcome<BTreeSet<u64>> {
    (0..count).map(|_| serve(client)).collect()
}

/// Checks that a request promoted to high priority overtakes others, and that only existing
/// requests can be promoted.
pub fn promote() -> CheckResult {
    let client = client("promote", 1)?;
    submit(&client, requests(1..=6))?;
    same("first", cookies(&released(&client, 1)?), vec![1])?;
    fails("unknown", client.promote(&[99]), libc::ENOENT)?;
    same("running", client.promote(&[1])?, 1)?;
    quiet("no effect", &client, WHILE)?;
    same("queued", client.promote(&[4])?, 1)?;
    complete(&client, 1)?;
    let next = released(&client, 1)?;
    same("overtakes", cookies(&next), vec![4])?;
    same("released", client.promote(&[4])?, 1)?;
    complete(&client, 4)?;
    fails("completed", client.promote(&[4]), libc::ENOENT)?;
    same("then", cookies(&released(&client, 1)?), vec![2])?;
    // Two promotions, one of a request with high priority, before one of an unknown request.
    let high = [7, 8].map(|cookie| request(cookie).high_priority(true));
    submit(&client, high)?;
    same("some", client.promote(&[8, 6, 99, 3])?, 2)?;
    quiet("all wait", &client, WHILE)?;
    complete(&client, 2)?;
    for (what, wanted) in [("high", 7), ("before", 8), ("behind", 6)] {
        same(what, serve(&client)?, wanted)?;
    }
    let mut flagged = wire::Promotion::new(3);
    flagged.header.flags = 1;
    fails("a flag", client.write(&flagged.encode()), libc::EINVAL)?;
    let stats = client.stats()?;
    same("counted", (stats.promoted, stats.unknown), (2, 2))?;
    same("the rest", serve_set(&client, 2)?, [3, 5].into())
}

/// Checks that the promotion of a request promotes its predecessors as well.
pub fn come_along() -> CheckResult {
    let service = Ordered::new("come-along", 1, &GRAPH)?;
    let client = service.client()?;
    submit(&client, requests(1..=4))?;
    let chain = [request(5).after(&[4]), request(6).after(&[5, 1, 4])];
    submit(&client, chain)?;
    same("first", cookies(&released(&client, 1)?), vec![1])?;
    same("the last", client.promote(&[6])?, 1)?;
    quiet("one is running", &client, WHILE)?;
    complete(&client, 1)?;
    same("predecessor 4", serve(&client)?, 4)?;
    same("predecessor 5", serve(&client)?, 5)?;
    same("then", serve_set(&client, 3)?, [2, 3, 6].into())?;
    // A request that arrives with high priority promotes its predecessors as well.
    submit(&client, requests(11..=14))?;
    same("first", cookies(&released(&client, 1)?), vec![11])?;
    submit(&client, [request(15).after(&[13]).high_priority(true)])?;
    complete(&client, 11)?;
    same("predecessor 13", serve(&client)?, 13)?;
    same("itself", serve(&client)?, 15)?;
    same("blocked", client.stats()?.blocked >= 3, true)
}

/// Serves `count` requests in random order, up to `servers` at a time; `early` returns true if a
/// release is too early.
fn serve_all(
    client: &Client,
    random: &mut Random,
    count: usize,
    servers: usize,
    mut early: impl FnMut(u64, &BTreeSet<u64>) -> bool,
) -> CheckResult {
    let (mut running, mut done) = (Vec::new(), BTreeSet::new());
    let mut end = Instant::now() + SOON;
    while done.len() < count {
        let room = servers - running.len();
        let wait = Duration::from_millis(if running.is_empty() { 100 } else { 0 });
        if room > 0 && client.wait(false, Some(wait))?.readable {
            for released in client.released(random.usize(1..=room))? {
                let cookie = released.cookie;
                ensure!(!early(cookie, &done), "{cookie} was released too early");
                running.push(cookie);
            }
            end = Instant::now() + SOON;
        }
        let (late, served) = (Instant::now() > end, done.len());
        ensure!(
            !late,
            "{served} of {count} were served: {:?}",
            client.stats()?
        );
        if !running.is_empty() && (random.one_in(3) || running.len() == servers) {
            let cookie = running.swap_remove(random.usize(..running.len()));
            // Requests that depend on this one are released only after its completion.
            done.insert(cookie);
            complete(client, cookie)?;
        }
    }
    Ok(())
}

/// Checks that the requests of each stream are served one after the other, in the order in which
/// they were written.
pub fn stream() -> CheckResult {
    const STREAMS: u64 = 5;
    const COUNT: u64 = 600;
    let service = Ordered::new("stream", 16, &STREAM)?;
    let client = service.client()?;
    let mut random = Random::with_seed(7);
    let mut all = Vec::new();
    for cookie in 1..=COUNT {
        let plain = request(cookie)
            .object(random.u64(..9))
            .offset(random.u64(..1 << 30));
        let plain = plain.stream(cookie % STREAMS);
        all.push(plain.high_priority(random.one_in(10)));
    }
    submit(&client, &all)?;
    client.promote(&[COUNT, COUNT / 2])?;
    serve_all(&client, &mut random, COUNT as usize, 12, |cookie, done| {
        let before = cookie.saturating_sub(STREAMS);
        cookie % STREAMS != 0 && before != 0 && !done.contains(&before)
    })?;
    same("blocked", client.stats()?.blocked > COUNT / 2, true)?;
    // Streams of different files are independent.
    let other = service.client()?;
    for file in [&client, &other] {
        submit(file, [request(1).stream(1), request(2).stream(1)])?;
        same("one of each", cookies(&released(file, 1)?), vec![1])?;
    }
    quiet("the second", &client, WHILE)
}

/// Checks with a random graph that no request is served before its predecessors are completed.
pub fn graph() -> CheckResult {
    const COUNT: u64 = 800;
    let service = Ordered::new("graph", 16, &GRAPH)?;
    let client = service.client()?;
    let mut random = Random::with_seed(11);
    let mut before: Vec<Vec<u64>> = vec![Vec::new()];
    let mut all = Vec::new();
    for cookie in 1..=COUNT {
        let earlier = (cookie - 1).min(60);
        let count = if earlier == 0 { 0 } else { random.u64(..9) };
        let named: Vec<u64> = (0..count)
            .map(|_| cookie - 1 - random.u64(..earlier))
            .collect();
        let plain = request(cookie)
            .object(random.u64(..9))
            .offset(random.u64(..1 << 30));
        all.push(plain.after(&named).high_priority(random.one_in(10)));
        before.push(named);
    }
    submit(&client, &all)?;
    for _ in 0..5 {
        client.promote(&[1 + random.u64(..COUNT)])?;
    }
    serve_all(&client, &mut random, COUNT as usize, 12, |cookie, done| {
        let named = &before[cookie as usize];
        named.iter().any(|cookie| !done.contains(cookie))
    })
}

/// Checks which requests can be named as predecessors.
pub fn predecessors() -> CheckResult {
    let service = Ordered::new("predecessors", 65, &GRAPH)?;
    let client = service.client()?;
    let other = service.client()?;
    submit(&client, requests(1..=2))?;
    submit(&other, requests(50..=50))?;
    let taken = client.stats()?.requests;
    for (what, named) in [
        ("never written", vec![9]),
        ("itself", vec![3]),
        ("one of two", vec![1, 4]),
        ("the last place", vec![0, 0, 0, 0, 0, 0, 0, 4]),
        ("another file's", vec![50]),
    ] {
        let third = request(3).after(&named);
        fails(what, client.submit(&[third]), libc::EINVAL)?;
    }
    let stats = client.stats()?;
    same("nothing taken", (stats.requests, stats.refused), (taken, 5))?;
    // A later request cannot be named, so the call takes only the requests before it.
    let both = [request(3).after(&[4]), request(4)];
    fails("a later one", client.submit(&both), libc::EINVAL)?;
    let third = request(3).after(&[1, 2, 1, 0, 2]);
    submit(&client, [third, request(4).after(&[0, 3])])?;
    same("free", cookies(&released(&client, 2)?), vec![1, 2])?;
    quiet("both are running", &client, WHILE)?;
    complete(&client, 2)?;
    quiet("one is running", &client, WHILE)?;
    // A failed completion satisfies the order like a successful one.
    client.complete(&[Completion::new(1, 5, 0)])?;
    same("both ended", serve(&client)?, 3)?;
    same("the next", serve(&client)?, 4)?;
    // All predecessors are completed.
    submit(&client, [request(5).after(&[1, 2, 3, 4])])?;
    uncontended(&client)?;
    // Predecessors in the same call, and a predecessor that is not released yet.
    let seventh = request(7).after(&[6]);
    submit(&client, [request(6), seventh, request(8).after(&[7, 6])])?;
    for cookie in 6..=8 {
        same("one by one", serve(&client)?, cookie)?;
    }
    Ok(())
}

/// Checks that completed requests are known for a limited time, and that a cookie refers to its
/// latest request.
pub fn window() -> CheckResult {
    let settings = [GRAPH[0], ("nrs_pop_window", "4")];
    let service = Ordered::new("window", 65, &settings)?;
    let client = service.client()?;
    let end = |cookie| -> CheckResult { same("served", serve(&client)?, cookie) };
    for cookie in 1..=6 {
        submit(&client, [request(cookie)])?;
        end(cookie)?;
    }
    for cookie in 1..=2 {
        let named = [request(9).after(&[cookie])];
        fails("forgotten", client.submit(&named), libc::EINVAL)?;
    }
    submit(&client, [request(9).after(&[3, 4, 5, 6])])?;
    end(9)?;
    // Now 4, 5, 6 and 9 are known. A reused cookie refers to the new request.
    submit(&client, [request(6), request(7).after(&[6, 5])])?;
    same("again", cookies(&released(&client, 1)?), vec![6])?;
    quiet("blocked by the newer", &client, WHILE)?;
    complete(&client, 6)?;
    end(7)?;
    // Request 9 was the third to last: the older completion of 6 does not count separately.
    submit(&client, [request(10).after(&[9, 6, 7])])?;
    end(10)?;
    fails("4", client.submit(&[request(11).after(&[4])]), libc::EINVAL)?;
    // Two cookies are reused repeatedly.
    for _ in 0..20 {
        submit(&client, [request(12).after(&[10])])?;
        end(12)?;
        submit(&client, [request(10).after(&[12])])?;
        end(10)?;
    }
    submit(&client, [request(13).after(&[12, 10])])?;
    end(13)
}

/// Checks that an expired lease frees the slot, but that dependent requests wait for the
/// completion.
pub fn late() -> CheckResult {
    const LEASE: Duration = Duration::from_millis(600);
    let service = Ordered::new("late", 1, &GRAPH)?;
    let client = service.options().lease(LEASE).open()?;
    submit(&client, [request(1), request(2).after(&[1]), request(3)])?;
    same("first", cookies(&released(&client, 1)?), vec![1])?;
    same("request with a slot", serve(&client)?, 3)?;
    same("reclaimed", client.stats()?.reclaimed, 1)?;
    quiet("not completed", &client, WHILE)?;
    submit(&client, [request(4).after(&[1])])?;
    quiet("named when it was late", &client, WHILE)?;
    complete(&client, 1)?;
    same("then", serve_set(&client, 2)?, [2, 4].into())?;
    // Dependent requests are also released by the end of the file.
    submit(&client, [request(5), request(6).after(&[5])])?;
    released(&client, 1)?;
    thread::sleep(2 * LEASE);
    drop(client);
    let client = service.client()?;
    submit(&client, [request(1)])?;
    uncontended(&client)
}

/// Checks that closing a file removes its blocked requests, and does not affect the requests of
/// other files.
pub fn close_blocked() -> CheckResult {
    const COUNT: u64 = 3000;
    for level in ["graph", "stream"] {
        let service = Ordered::new("close-blocked", 1, &[("nrs_pop", level)])?;
        let chained = |cookie| match level {
            "graph" if cookie > 1 => request(cookie).after(&[cookie - 1]),
            "graph" => request(cookie),
            _ => request(cookie).stream(1),
        };
        let going = service.client()?;
        let staying = service.client()?;
        submit(&staying, (1..=4).map(chained).collect::<Vec<_>>())?;
        let chain: Vec<Request> = (1..=COUNT).map(chained).collect();
        submit(&going, &chain)?;
        going.promote(&[COUNT / 2])?;
        let start = Instant::now();
        drop(going);
        let took = start.elapsed();
        ensure!(took <= SOON, "closing took {took:?}");
        for cookie in 1..=4 {
            same(level, serve(&staying)?, cookie)?;
        }
    }
    Ok(())
}

/// Checks that many threads can write to one file and name each other's requests.
pub fn writers() -> CheckResult {
    const THREADS: u64 = 4;
    const COUNT: u64 = 300;
    // A busy host may delay a writer, so that the named request was completed long ago.
    let settings = [GRAPH[0], ("nrs_pop_window", "2048")];
    let service = Ordered::new("writers", 16, &settings)?;
    let client = Arc::new(service.client()?);
    let written = Arc::new(Mutex::new(vec![0_u64]));
    let before = Arc::new(Mutex::new(vec![0_u64; (THREADS * COUNT) as usize + 1]));
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let (client, written, before) = (client.clone(), written.clone(), before.clone());
            thread::spawn(move || -> CheckResult {
                let mut random = Random::with_seed(thread + 1);
                for n in 0..COUNT {
                    let cookie = 1 + thread * COUNT + n;
                    let named = random
                        .choice(&*locked(&written))
                        .copied()
                        .unwrap_or_default();
                    locked(&before)[cookie as usize] = named;
                    let taken = client.submit(&[request(cookie).after(&[named])]);
                    taken.with_context(|| format!("{cookie} after {named}"))?;
                    locked(&written).push(cookie);
                }
                Ok(())
            })
        })
        .collect();
    let all = (THREADS * COUNT) as usize;
    serve_all(
        &client,
        &mut Random::with_seed(99),
        all,
        8,
        |cookie, done| {
            let named = locked(&before)[cookie as usize];
            named != 0 && !done.contains(&named)
        },
    )?;
    for thread in threads {
        join(thread)??;
    }
    Ok(())
}

/// Checks the features of each ordering level; fields without a meaning at a level are ignored.
pub fn levels() -> CheckResult {
    for (level, order, named) in [
        ("none", false, false),
        ("stream", true, false),
        ("graph", false, true),
    ] {
        let service = Ordered::new("levels", 65, &[("nrs_pop", level)])?;
        let client = service.client()?;
        submit(&client, requests(1..=1))?;
        let both = [(2, 7), (3, 8)].map(|(n, target)| request(n).stream(9).target(target));
        submit(&client, both)?;
        let free = if order { 2 } else { 3 };
        same(level, released(&client, free)?.len(), free)?;
        let result = client.submit(&[request(4).after(&[1])]);
        match named {
            true => same(level, result?, 1)?,
            false => fails(level, result, libc::EINVAL)?,
        }
    }
    // Changes of the level while requests are queued.
    let service = Ordered::new("levels", 4, &[])?;
    let client = service.client()?;
    let mut random = Random::with_seed(3);
    let mut cookie = 0;
    let end = Instant::now() + Duration::from_secs(2);
    while Instant::now() < end {
        let level = random.pick(&["none", "stream", "graph"]);
        match set("levels", "nrs_pop", level) {
            Err(error) if format!("{error:#}").contains("busy") => {}
            done => done?,
        }
        for _ in 0..50 {
            cookie += 1;
            let plain = request(cookie).stream(random.u64(..3));
            let named = plain.after(&[cookie.saturating_sub(1 + random.u64(..5)).max(1)]);
            // A request that one level refuses may be accepted at another level.
            if client.submit(&[named]).is_err() {
                let _ = client.submit(&[plain]);
            }
        }
        for released in client.released(40).unwrap_or_default() {
            complete(&client, released.cookie)?;
        }
    }
    loop {
        let stats = client.stats()?;
        if stats.queued + stats.ready + stats.running == 0 {
            return Ok(());
        }
        serve(&client)?;
    }
}
