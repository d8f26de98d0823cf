// SPDX-License-Identifier: GPL-2.0-only

//! Checks of the limits on requests of clients: credits, and the buffer of a service.

use super::*;

/// Returns a request of the client `client`.
fn of(client: u32, cookie: u64) -> Request {
    let [_, b, c, d] = client.to_be_bytes();
    let nid = format!("10.{b}.{c}.{d}@tcp").parse();
    let request = requests([cookie])[0];
    nid.map_or(request, |nid| request.nid(&nid))
}

/// Returns a number from the file that shows the credits of a service.
fn stat(service: &str, name: &str) -> Outcome<u64> {
    let text = get(service, "nrs_concurrency")?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    Ok(line
        .with_context(|| format!("no {name} in {text}"))?
        .parse()?)
}

/// Checks that few clients get many credits each, many clients few, and none of them no credits.
pub fn credits() -> CheckResult {
    const SLOTS: u64 = 16;
    let client = client("credits", SLOTS as u32)?;
    submit(&client, [of(1, 1)])?;
    let alone = released(&client, 1)?[0];
    same("alone", alone.fan_out, 1)?;
    same("full speed", u64::from(alone.credits) >= 2 * SLOTS, true)?;
    let pool = alone.credits;
    complete(&client, 1)?;
    let fan_out = |count| same("shown fan-out", stat("credits", "fan_out")?, count);
    fan_out(0)?;
    for count in [2, 8, 64, 1000] {
        for n in 1..=count {
            submit(&client, [of(n, n.into())])?;
        }
        let stats = client.stats()?;
        same("fan-out", (stats.fan_out, stats.peers), (count, count))?;
        fan_out(count.into())?;
        same("credits", stats.credits, (pool / count).max(1))?;
        // Each release reports the credits.
        let mut left = count;
        let mut least = u32::MAX;
        while left > 0 {
            for released in released(&client, 1)? {
                least = least.min(released.credits);
                same("active", released.fan_out, left)?;
                let some = (1..=pool).contains(&released.credits);
                same("some", some, true)?;
                complete(&client, released.cookie)?;
                left -= 1;
            }
        }
        same("least", least, (pool / count).max(1))?;
    }
    fan_out(0)?;
    // Without a network identifier each file counts as one client.
    let other = Options::new("credits").nonblocking(true).open()?;
    submit(&client, requests(1..=3))?;
    submit(&other, requests(1..=3))?;
    let stats = other.stats()?;
    same("two files", (stats.fan_out, stats.peers), (2, 1))?;
    drop(other);
    same("one file", client.stats()?.fan_out, 1)?;
    // Requests above the credits are accepted, and counted.
    same("not over", client.stats()?.over, 0)?;
    for cookie in 10..10 + u64::from(pool) + 5 {
        submit(&client, requests([cookie]))?;
    }
    same("over", client.stats()?.over, 8)?;
    same("over in nrs_concurrency", stat("credits", "over")?, 8)
}

/// Checks that a new client lowers the credits of the others, and that an urgent client gets more
/// credits.
pub fn newcomer() -> CheckResult {
    let client = client("newcomer", 1)?;
    submit(&client, (1..=6).map(|n| of(1, n)).collect::<Vec<_>>())?;
    let first = released(&client, 1)?[0];
    let late: Vec<Request> = (2..=8).map(|n| of(n, 100 + u64::from(n))).collect();
    submit(&client, &late)?;
    complete(&client, first.cookie)?;
    let second = released(&client, 1)?[0];
    same("alone", first.fan_out, 1)?;
    same("many", second.fan_out, 8)?;
    same("fewer", second.credits < first.credits, true)?;
    complete(&client, second.cookie)?;
    let third = released(&client, 1)?[0];
    // A request of the client becomes urgent: all of its requests may go faster.
    let (plain, high) = (client.stats()?.credits, client.stats()?.credits_high);
    same("more", high > plain, true)?;
    client.promote(&[107])?;
    complete(&client, third.cookie)?;
    let urgent = released(&client, 1)?[0];
    same("urgent", (urgent.cookie, urgent.credits), (107, high))?;
    complete(&client, 107)?;
    // No urgent request is left.
    let next = released(&client, 1)?[0];
    let before = next.fan_out > 4 && next.credits < high;
    same("as before", before, true)?;
    complete(&client, next.cookie)?;
    for _ in 0..6 + 7 - 5 {
        let cookie = released(&client, 1)?[0].cookie;
        complete(&client, cookie)?;
    }
    same("fan-out of the idle service", client.stats()?.fan_out, 0)
}

/// Checks that all files of a service together have at most `buffer_max` requests.
pub fn buffer() -> CheckResult {
    const ROOM: u64 = 256;
    let one = client("buffer", 65)?;
    set("buffer", "buffer_max", &ROOM.to_string())?;
    let two = Options::new("buffer").nonblocking(true).open()?;
    submit(&one, requests(1..=200))?;
    same("accepted requests", two.submit(&requests(1..=100))?, 56)?;
    fails("full service", two.submit(&requests(57..=57)), libc::EAGAIN)?;
    fails("full buffer", one.submit(&requests([201])), libc::EAGAIN)?;
    let room = |client: &Client| has_room(client, Duration::ZERO);
    same("writable", (room(&one)?, room(&two)?), (false, false))?;
    same("waits", two.stats()?.room_waits > 0, true)?;
    same("full", stat("buffer", "requests")?, ROOM)?;
    // A completion of another file wakes waiting writers and pollers.
    let polled = Options::new("buffer").nonblocking(true).open()?;
    let poller = thread::spawn(move || has_room(&polled, SOON));
    let blocking = Options::new("buffer").open()?;
    let writer = thread::spawn(move || blocking.submit(&requests(1..=1)).map(|_| blocking));
    thread::sleep(Duration::from_millis(100));
    same("the writer waits", writer.is_finished(), false)?;
    for released in released(&one, 2)? {
        complete(&one, released.cookie)?;
    }
    let blocking = join(writer)??;
    same("polled", join(poller)??, true)?;
    same("room for one", two.submit(&requests(57..=60))?, 1)?;
    // Closing a file makes room.
    drop(one);
    same("room again", room(&two)?, true)?;
    submit(&two, requests(58..=255))?;
    let left = stat("buffer", "requests")?;
    same("nearly full", left, ROOM)?;
    // A smaller buffer affects only later requests.
    set("buffer", "buffer_max", "300").or_else(|_| set("buffer", "buffer_max", "256"))?;
    drop((two, blocking));
    same("nothing", stat("buffer", "requests").unwrap_or(0), 0)
}
