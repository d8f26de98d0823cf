// SPDX-License-Identifier: GPL-2.0-only

//! KUnit suites of `/dev/nrs`: what is refused, and sessions through their lives on a service of their own.

use core::cell::Cell;

use kernel::{
    prelude::*,
    str::CString,
    sync::Arc,
    time::{delay::fsleep, Delta},
};

use super::{
    about::About,
    session::{Item, Session, Terms},
    wire,
};
use crate::{
    engine::{
        parameters,
        registry::{self, Attachment},
    },
    sched::{
        attr::Priority,
        item::Direction,
        order::Level,
        units::{NSEC_PER_MSEC, NSEC_PER_SEC},
    },
    sys::misc,
};

mod early;

/// A lease that is over only when the test says so, ns.
const LEASE: u64 = 3600 * NSEC_PER_SEC;

/// Whoever looks after a millisecond again, and is later than this, was kept from it, ns.
const GAP: u64 = 20 * NSEC_PER_MSEC;

/// A session and its client.
struct Bench {
    session: Arc<Session>,
    attachment: Attachment,
    /// Whether the machine kept the test from looking in time.
    kept: Cell<bool>,
}

impl Bench {
    /// On the service `name` with `slots` slots; it may have `limit` requests.
    fn new(name: &CStr, slots: u32, limit: u32) -> Result<Self> {
        Self::at(name, Level::None, slots, limit)
    }

    /// The same, and the service has order `level`.
    fn at(name: &CStr, level: Level, slots: u32, limit: u32) -> Result<Self> {
        let attachment = registry::attach_user(name, CString::try_from(c"kunit")?)?;
        parameters::set(attachment.service(), "nrs_pop", level.name())?;
        let slots = CString::try_from_fmt(fmt!("{slots}"))?;
        let slots = slots.to_str().map_err(|_| EINVAL)?;
        parameters::set(attachment.service(), "slots", slots)?;
        let terms = Terms {
            may_pass: true,
            lease_ns: LEASE,
            limit,
        };
        Ok(Self {
            session: Session::new(&attachment, terms)?,
            attachment,
            kept: Cell::new(false),
        })
    }

    /// Brings requests `cookies`, of 4 KiB.
    fn bring(&self, cookies: core::ops::Range<u64>) -> Result {
        for cookie in cookies {
            self.bring_after(cookie, &[])?;
        }
        Ok(())
    }

    /// Brings request `cookie` after those in `before`.
    fn bring_after(&self, cookie: u64, before: &[u64]) -> Result {
        let mut request = wire::Request::new(cookie);
        request.length = 4096;
        request.uid = cookie as u32 % 7;
        for (to, from) in request.predecessor.iter_mut().zip(before) {
            *to = *from;
        }
        self.told(self.session.request(&request, true))
    }

    fn promote(&self, cookie: u64) -> Result {
        self.told(self.session.promote(&wire::Promotion::new(cookie)))
    }

    /// Reads and completes what is released until `cookie` is; whether it was within ten seconds.
    fn serve_until(&self, cookie: u64) -> bool {
        let mut seen = false;
        while !seen && self.wait_for(1) {
            for record in self.read().into_iter().flatten() {
                seen |= record.cookie == cookie;
                if self.complete(record.cookie).is_err() {
                    return false;
                }
            }
        }
        seen
    }

    /// Waits until `count` requests are ready; whether they were within ten seconds.
    fn wait_for(&self, count: u64) -> bool {
        let until = misc::now() + 10 * NSEC_PER_SEC;
        while self.session.stats().ready < count {
            if misc::now() > until {
                return false;
            }
            fsleep(Delta::from_micros(200));
        }
        true
    }

    /// Reads up to eight requests that are ready.
    fn read(&self) -> [Option<wire::Released>; 8] {
        let mut seen = [None; 8];
        if let Ok(mut taken) = self.session.take(8, true) {
            for place in &mut seen {
                *place = match taken.next() {
                    Some(Item::Request(_, record)) => Some(record),
                    _ => None,
                };
            }
        }
        seen
    }

    /// Reads as [`Self::read`]; only the cookies.
    fn cookies(&self) -> [u64; 8] {
        self.read()
            .map(|record| record.map_or(0, |record| record.cookie))
    }

    fn complete(&self, cookie: u64) -> Result {
        self.told(
            self.session
                .complete(&wire::Completion::new(cookie, 0, 4096)),
        )
    }

    /// Counts a refusal, as a call does that returns it.
    fn told(&self, result: Result) -> Result {
        result.inspect_err(|error| self.session.count_refused(*error))
    }

    /// Closes it; whether nothing is left.
    fn close(self) -> bool {
        self.session.close();
        let stats = self.session.stats();
        let left = stats.queued + stats.ready + stats.running + u64::from(stats.peers);
        left == 0 && self.attachment.client().held() == 0
    }
}

#[kunit_tests(nrs_chardev)]
mod life {
    use super::*;

    #[test]
    fn records_come_back_as_they_were() {
        let mut request = wire::Request::new(0x0123_4567_89ab_cdef);
        request.net_number = 0x1234;
        request.jobid = [7; 32];
        request.predecessor = [9; 8];
        (request.job_size, request.target) = (3, 4);
        let bytes = request.encode();
        let cookie = bytes.get(8..10) == Some(&[0xef, 0xcd]);
        let decoded = wire::Request::decode(&bytes);
        assert!(cookie && decoded == Ok(request));
        let mut longer = [0; wire::Request::SIZE + 8];
        for (to, from) in longer.iter_mut().zip(bytes) {
            *to = from;
        }
        let same = wire::Request::decode(&longer);
        if let Some(last) = longer.last_mut() {
            *last = 1;
        }
        let unknown = wire::Request::decode(&longer);
        assert!(same == Ok(request) && unknown == Err(wire::Malformed::Unknown));
    }

    #[test]
    fn what_is_malformed_is_refused() {
        type Change = fn(&mut wire::Request);
        let cases: [(bool, Change); 25] = [
            (true, |_| ()),
            (true, |r| r.header.flags = wire::REQUEST_HIGH),
            (false, |r| r.header.flags = 4),
            (true, |r| r.length = wire::CHARGE_MAX),
            (false, |r| r.length = wire::CHARGE_MAX + 1),
            (false, |r| r.charge = 1),
            (true, |r| {
                (r.header.flags, r.length, r.charge) = (wire::REQUEST_CHARGE, u64::MAX, 1);
            }),
            (false, |r| {
                (r.header.flags, r.charge) = (wire::REQUEST_CHARGE, u64::MAX);
            }),
            (false, |r| (r.offset, r.length) = (u64::MAX, 1)),
            (true, |r| r.stream = u64::MAX),
            (true, |r| r.target = u32::MAX),
            (true, |r| r.job_size = u32::MAX),
            (true, |r| r.predecessor = [0, 0, 0, 0, 0, 0, 0, 1]),
            (false, |r| r.header.flags = 1 << 31),
            (false, |r| r.jobid = [b'a'; 32]),
            (false, |r| {
                r.jobid = [0; 32];
                let [.., last] = &mut r.jobid;
                *last = b'a';
            }),
            (true, |r| (r.net, r.address_len) = (wire::NET_TCP, 4)),
            (true, |r| (r.net, r.address_len) = (wire::NET_O2IB, 16)),
            (false, |r| (r.net, r.address_len) = (wire::NET_TCP, 5)),
            (false, |r| (r.net, r.address_len) = (wire::NET_TCP, 17)),
            (false, |r| (r.net, r.address_len) = (wire::NET_KFI, 16)),
            (false, |r| (r.net, r.address_len) = (1, 4)),
            (false, |r| r.address_len = 4),
            (false, |r| r.address = [1; 16]),
            (false, |r| {
                (r.net, r.address_len, r.net_number) = (wire::NET_LO, 4, 1);
            }),
        ];
        for (fine, change) in cases {
            let mut request = wire::Request::new(1);
            change(&mut request);
            assert!(About::of(&request).is_ok() == fine);
        }
    }

    #[test]
    fn what_is_said_is_heard() {
        let mut request = wire::Request::new(1);
        request.header.flags = wire::REQUEST_HIGH | wire::REQUEST_CHARGE;
        (request.length, request.charge, request.job_size) = (10, 8192, 12);
        (request.uid, request.gid, request.projid, request.nodemap) = (1, 2, 3, 4);
        (request.opcode, request.net, request.address_len) = (36, wire::NET_KFI, 4);
        (request.stream, request.target) = (5, 6);
        request.address = [0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        for (to, from) in request.jobid.iter_mut().zip(b"dd.0") {
            *to = *from;
        }
        let about = About::of(&request);
        assert!(about.is_ok());
        if let Ok(About { attrs, cost }) = about {
            assert!(attrs.priority == Priority::High && cost.pages == 2 && attrs.length == 10);
            assert!(attrs.size == 12 && cost.direction == Direction::Other);
            assert!((attrs.stream, attrs.target) == (5, 6));
            assert!([attrs.uid, attrs.gid, attrs.projid, attrs.nodemap]
                .map(|id| id.get())
                .into_iter()
                .eq([Some(1), Some(2), Some(3), Some(4)]));
            assert!(attrs.opcode.number() == 36 && attrs.jobid.as_bytes() == b"dd.0");
            let address = attrs.nid.map(|nid| nid.address());
            assert!(address == Some(crate::sched::nid::Address::Number(0x102)));
        }
    }

    #[test]
    fn requests_are_released_read_and_completed() -> Result {
        let bench = Bench::new(c"kunit-life", 1, 64)?;
        // The first has the slot, and the others wait.
        bench.bring(1..4)?;
        let stats = bench.session.stats();
        let before = (stats.requests, stats.passed, stats.queued, stats.ready);
        let early = bench.complete(1);
        let first = bench.read();
        let second = bench.complete(1).is_ok() && bench.wait_for(1);
        let twice = bench.complete(1);
        let next = bench.read();
        let third = bench.complete(2).is_ok()
            && bench.wait_for(1)
            && bench.cookies() == [3, 0, 0, 0, 0, 0, 0, 0];
        let last = bench.complete(3);
        let stats = bench.session.stats();
        let closed = bench.close();
        assert!(before == (3, 1, 2, 1));
        assert!(early == Err(ENOENT) && twice == Err(ENOENT) && last.is_ok());
        assert!(second && third && closed);
        let passed = first.first().copied().flatten();
        assert!(passed.map(|r| (r.cookie, r.wait_ns, r.header.flags)) == Some((1, 0, 1)));
        let waited = next.first().copied().flatten();
        assert!(waited.is_some_and(|r| r.cookie == 2 && r.wait_ns > 0 && r.header.flags == 0));
        assert!((stats.completed, stats.unknown, stats.bytes) == (3, 2, 3 * 4096));
        Ok(())
    }

    #[test]
    fn cookies_are_unique_while_in_use() -> Result {
        let bench = Bench::new(c"kunit-life", 1, 64)?;
        bench.bring(1..3)?;
        let running = bench.bring(1..2);
        let queued = bench.bring(2..3);
        bench.read();
        bench.complete(1)?;
        let again = bench.bring(1..2);
        let duplicates = bench.session.stats().duplicates;
        let closed = bench.close();
        assert!(running == Err(EEXIST) && queued == Err(EEXIST) && again.is_ok());
        assert!(duplicates == 2 && closed);
        Ok(())
    }

    #[test]
    fn there_are_only_so_many_requests() -> Result {
        let bench = Bench::new(c"kunit-life", 1, 4)?;
        let full = bench.bring(1..6);
        bench.read();
        bench.complete(1)?;
        let room = bench.bring(6..7);
        let closed = bench.close();
        assert!(full == Err(EAGAIN) && room.is_ok() && closed);
        Ok(())
    }

    #[test]
    fn what_was_not_told_is_told_again_in_order() -> Result {
        let bench = Bench::new(c"kunit-life", 65, 64)?;
        bench.bring(1..5)?;
        let mut taken = bench.session.take(3, true)?;
        let told = taken.next().map(drop);
        if let Some(item) = taken.next() {
            bench.session.put_back(item, taken);
        }
        let early = bench.complete(3);
        let seen = bench.cookies();
        let stats = bench.session.stats();
        let closed = bench.close();
        assert!(told.is_some() && early == Err(ENOENT));
        assert!(seen == [2, 3, 4, 0, 0, 0, 0, 0] && stats.running == 4 && closed);
        Ok(())
    }

    #[test]
    fn a_lease_gives_the_slot_back_once() -> Result {
        let bench = Bench::new(c"kunit-life", 1, 64)?;
        bench.bring(1..3)?;
        let none = bench.session.reclaim(0, misc::now());
        let kept = bench.session.stats().reclaimed;
        let first = bench.cookies();
        bench.session.reclaim(0, misc::now() + LEASE);
        // Its slot goes to the next one.
        let next = bench.wait_for(1);
        let reclaimed = bench.session.stats().reclaimed;
        let late = bench.complete(1);
        let stats = bench.session.stats();
        let closed = bench.close();
        assert!(none.is_none() && kept == 0 && first == [1, 0, 0, 0, 0, 0, 0, 0]);
        assert!(next && reclaimed == 1 && late.is_ok());
        assert!((stats.late, stats.completed, stats.reclaimed) == (1, 1, 1) && closed);
        Ok(())
    }

    #[test]
    fn many_leases_end_in_parts() -> Result {
        let bench = Bench::new(c"kunit-life", 1001, 1000)?;
        bench.bring(0..1000)?;
        let (mut from, mut rounds) = (Some(0), 0);
        while let Some(cookie) = from {
            from = bench.session.reclaim(cookie, misc::now() + LEASE);
            rounds += 1;
        }
        let stats = bench.session.stats();
        let closed = bench.close();
        assert!(stats.reclaimed == 1000 && rounds >= 1000 / 16 && closed);
        Ok(())
    }

    #[test]
    fn closing_ends_everything_and_frees_the_slots() -> Result {
        let bench = Bench::new(c"kunit-life", 1, 1000)?;
        let other = Bench::new(c"kunit-life", 1, 1000)?;
        bench.bring(1..500)?;
        bench.read();
        let closed = bench.close();
        other.bring(1..2)?;
        let passed = other.session.stats().passed;
        let alone = Bench::new(c"kunit-alone", 1, 1000)?;
        alone.bring(1..500)?;
        let drained = alone.close();
        let closed = closed && other.close();
        assert!(closed && passed == 1 && drained);
        Ok(())
    }

    #[test]
    fn a_service_serves_one_kind_of_client() -> Result {
        let bench = Bench::new(c"kunit-life", 1, 64)?;
        let block = registry::attach(c"kunit-life", c"one", c"254:9", c"254:8", 8, 0).err();
        let closed = bench.close();
        // The next first client decides anew.
        let block_first = registry::attach(c"kunit-life", c"one", c"254:9", c"254:8", 8, 0)?;
        let user = Bench::new(c"kunit-life", 1, 64).err();
        drop(block_first);
        assert!(block == Some(EBUSY) && user == Some(EBUSY) && closed);
        Ok(())
    }
}

#[kunit_tests(nrs_chardev_order)]
mod order {
    use super::*;

    #[test]
    fn a_promotion_finds_what_is_queued() -> Result {
        let bench = Bench::new(c"kunit-order", 1, 64)?;
        bench.bring(1..5)?;
        let known = bench.promote(9) == Err(ENOENT) && bench.promote(1).is_ok();
        let moved = bench.promote(3).is_ok() && bench.promote(3).is_ok();
        let first = bench.cookies();
        bench.complete(1)?;
        let next = bench.wait_for(1) && bench.cookies() == [3, 0, 0, 0, 0, 0, 0, 0];
        let ended = bench.complete(3).is_ok() && bench.promote(3) == Err(ENOENT);
        let stats = bench.session.stats();
        let closed = bench.close();
        assert!(known && moved && next && ended && closed);
        assert!(first == [1, 0, 0, 0, 0, 0, 0, 0] && (stats.promoted, stats.unknown) == (1, 2));
        Ok(())
    }

    #[test]
    fn a_request_waits_for_its_predecessors() -> Result {
        let bench = Bench::at(c"kunit-order", Level::Graph, 65, 64)?;
        bench.bring(1..3)?;
        let refused = [&[3][..], &[9], &[1, 9]].map(|before| bench.bring_after(3, before));
        bench.bring_after(3, &[1, 2])?;
        bench.bring_after(4, &[3])?;
        let first = bench.cookies();
        bench.complete(2)?;
        let none = bench.session.stats().ready;
        bench.complete(1)?;
        let third = bench.wait_for(1) && bench.cookies() == [3, 0, 0, 0, 0, 0, 0, 0];
        // Completed ones may be named, too.
        bench.bring_after(5, &[1, 2])?;
        let fifth = bench.wait_for(1) && bench.cookies() == [5, 0, 0, 0, 0, 0, 0, 0];
        let stats = bench.session.stats();
        let closed = bench.close();
        assert!(refused == [Err(EINVAL); 3] && first == [1, 2, 0, 0, 0, 0, 0, 0]);
        assert!(none == 0 && third && fifth && closed);
        assert!((stats.requests, stats.blocked, stats.refused) == (5, 2, 3));
        Ok(())
    }

    #[test]
    fn so_many_completions_are_remembered() -> Result {
        let bench = Bench::at(c"kunit-order", Level::Graph, 65, 64)?;
        let window = u64::from(bench.attachment.service().pop_window());
        for cookie in 1..window + 3 {
            bench.bring(cookie..cookie + 1)?;
            bench.read();
            bench.complete(cookie)?;
        }
        let forgotten = [1, 2].map(|cookie| bench.bring_after(5000, &[cookie]));
        let oldest = bench.bring_after(5000, &[3, window + 2]);
        // Using a cookie again names the newer one.
        let again = bench
            .bring(4..5)
            .and_then(|()| bench.bring_after(5001, &[4]));
        let ready = bench.session.stats().ready;
        let closed = bench.close();
        assert!(forgotten == [Err(EINVAL); 2] && oldest.is_ok() && again.is_ok());
        assert!(ready == 2 && closed);
        Ok(())
    }

    #[test]
    fn a_lease_that_is_over_does_not_let_successors_in() -> Result {
        let bench = Bench::at(c"kunit-order", Level::Graph, 65, 64)?;
        bench.bring(1..2)?;
        bench.bring_after(2, &[1])?;
        bench.read();
        bench.session.reclaim(0, misc::now() + LEASE);
        let (reclaimed, ready) = (bench.session.stats().reclaimed, bench.session.stats().ready);
        bench.complete(1)?;
        let second = bench.wait_for(1) && bench.cookies() == [2, 0, 0, 0, 0, 0, 0, 0];
        let closed = bench.close();
        assert!((reclaimed, ready) == (1, 0) && second && closed);
        Ok(())
    }

    #[test]
    fn predecessors_are_promoted_with_it() -> Result {
        let bench = Bench::at(c"kunit-order", Level::Graph, 1, 64)?;
        bench.bring(1..4)?;
        bench.bring_after(4, &[3])?;
        bench.bring_after(5, &[4])?;
        let first = bench.cookies();
        bench.promote(5)?;
        bench.complete(1)?;
        let third = bench.wait_for(1) && bench.cookies() == [3, 0, 0, 0, 0, 0, 0, 0];
        bench.complete(3)?;
        let last = bench.serve_until(5);
        // The slot is free then, so what was left goes by itself: one request, which nobody promoted.
        let left = bench.wait_for(1) && bench.cookies() == [2, 0, 0, 0, 0, 0, 0, 0];
        let queued = bench.session.stats().queued;
        let closed = bench.close();
        assert!(first == [1, 0, 0, 0, 0, 0, 0, 0] && third && last && closed);
        assert!(left && queued == 0);
        Ok(())
    }

    #[test]
    fn a_chain_ends_with_its_file() -> Result {
        let bench = Bench::at(c"kunit-order", Level::Graph, 1, 1000)?;
        let other = Bench::at(c"kunit-order", Level::Graph, 1, 1000)?;
        bench.bring(1..2)?;
        other.bring(1..2)?;
        for cookie in 2..500 {
            bench.bring_after(cookie, &[cookie - 1])?;
        }
        bench.read();
        let closed = bench.close();
        let served = other.serve_until(1);
        assert!(closed && served && other.close());
        Ok(())
    }

    #[test]
    fn clients_are_told_apart_by_their_addresses() -> Result {
        let bench = Bench::new(c"kunit-order", 16, 64)?;
        let of = |cookie, address: u8| {
            let mut request = wire::Request::new(cookie);
            (request.net, request.address_len) = (wire::NET_TCP, 4);
            if let Some(last) = request.address.get_mut(3) {
                *last = address;
            }
            bench.session.request(&request, true)
        };
        of(1, 1)?;
        let alone = bench.session.stats();
        for cookie in 2..10 {
            of(cookie, cookie as u8 % 4)?;
        }
        let many = bench.session.stats();
        while bench.session.stats().completed < 9 && bench.wait_for(1) {
            for record in bench.read().into_iter().flatten() {
                bench.complete(record.cookie)?;
            }
        }
        let none = bench.session.stats();
        let closed = bench.close();
        assert!((alone.peers, many.peers, none.peers) == (1, 4, 0));
        assert!((alone.fan_out, many.fan_out, none.fan_out) == (1, 4, 0));
        assert!(alone.credits > many.credits && many.credits > 1 && closed);
        Ok(())
    }

    #[test]
    fn a_service_has_room_for_so_many_requests() -> Result {
        let bench = Bench::new(c"kunit-order", 1, 1000)?;
        let other = Bench::new(c"kunit-order", 1, 1000)?;
        bench.attachment.service().concurrency().set_buffer_max(300);
        bench.bring(1..201)?;
        let full = other.bring(1..201);
        let room = bench.attachment.service().concurrency().has_room();
        let taken = other.session.stats().requests;
        let waits = other.session.stats().room_waits;
        let closed = bench.close();
        let again = other.bring(101..102);
        assert!(full == Err(EAGAIN) && !room && (taken, waits) == (100, 1));
        assert!(closed && again.is_ok() && other.close());
        Ok(())
    }
}
