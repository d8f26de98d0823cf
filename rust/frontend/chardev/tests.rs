// SPDX-License-Identifier: GPL-2.0-only

//! KUnit suites of `/dev/nrs`: what is refused, and sessions through their lives on a service of their own.

use kernel::{
    prelude::*,
    str::CString,
    sync::Arc,
    time::{delay::fsleep, Delta},
};

use super::{
    about::About,
    lease::MS,
    session::{Session, Terms},
    wire,
};
use crate::{
    core::registry::{self, Attachment},
    sched::{attr::Priority, item::Direction},
    sys::misc,
};

/// A lease that is over only when the test says so, ns.
const LEASE: u64 = 3600 * 1000 * MS;

/// A session and its client.
struct Bench {
    session: Arc<Session>,
    attachment: Attachment,
}

impl Bench {
    /// On the service `name` with `slots` slots; it may have `limit` requests.
    fn new(name: &CStr, slots: u32, limit: u32) -> Result<Self> {
        let attachment = registry::attach_user(name, CString::try_from(c"kunit")?)?;
        attachment.service().set_slots(slots)?;
        let terms = Terms {
            may_pass: true,
            lease_ns: LEASE,
            limit,
        };
        Ok(Self {
            session: Session::new(&attachment, terms)?,
            attachment,
        })
    }

    /// Brings requests `cookies`, of 4 KiB.
    fn bring(&self, cookies: core::ops::Range<u64>) -> Result {
        for cookie in cookies {
            let mut request = wire::Request::new(cookie);
            request.length = 4096;
            request.uid = cookie as u32 % 7;
            self.told(self.session.request(&request, true))?;
        }
        Ok(())
    }

    /// Waits until `count` requests are ready; whether they were within ten seconds.
    fn wait_for(&self, count: u64) -> bool {
        let until = misc::now() + 10_000 * MS;
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
                *place = taken.next().map(|(_, record)| record);
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
        let left = stats.queued + stats.ready + stats.running;
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
        request.job_size = 3;
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
        let cases: [(bool, Change); 24] = [
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
            (false, |r| r.stream = 1),
            (false, |r| r.reserved = 1),
            (true, |r| r.job_size = u32::MAX),
            (false, |r| r.predecessor = [0, 0, 0, 0, 0, 0, 0, 1]),
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
        request.address = [0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        for (to, from) in request.jobid.iter_mut().zip(b"dd.0") {
            *to = *from;
        }
        let about = About::of(&request);
        assert!(about.is_ok());
        if let Ok(About { attrs, cost }) = about {
            assert!(attrs.priority == Priority::High && cost.pages == 2 && attrs.length == 10);
            assert!(attrs.size == 12 && cost.direction == Direction::Other);
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
        let bench = Bench::new(c"kunit-life", 2, 64)?;
        // One of two slots is kept for high priority, so the first passes and the others wait.
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
        let bench = Bench::new(c"kunit-life", 2, 64)?;
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
        let bench = Bench::new(c"kunit-life", 2, 4)?;
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
        let told = taken.next().map(|(boxed, _)| drop(boxed));
        if let Some((boxed, _)) = taken.next() {
            bench.session.put_back(boxed, taken);
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
        let bench = Bench::new(c"kunit-life", 2, 64)?;
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
        let bench = Bench::new(c"kunit-life", 2, 1000)?;
        let other = Bench::new(c"kunit-life", 2, 1000)?;
        bench.bring(1..500)?;
        bench.read();
        let closed = bench.close();
        other.bring(1..2)?;
        let passed = other.session.stats().passed;
        let alone = Bench::new(c"kunit-alone", 2, 1000)?;
        alone.bring(1..500)?;
        let drained = alone.close();
        let closed = closed && other.close();
        assert!(closed && passed == 1 && drained);
        Ok(())
    }

    #[test]
    fn a_service_serves_one_kind_of_client() -> Result {
        let bench = Bench::new(c"kunit-life", 2, 64)?;
        let block = registry::attach(c"kunit-life", c"254:9", c"254:8", 8, 0).err();
        let closed = bench.close();
        // The next first client decides anew.
        let block_first = registry::attach(c"kunit-life", c"254:9", c"254:8", 8, 0)?;
        let user = Bench::new(c"kunit-life", 2, 64).err();
        drop(block_first);
        assert!(block == Some(EBUSY) && user == Some(EBUSY) && closed);
        Ok(())
    }
}
