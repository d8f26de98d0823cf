// SPDX-License-Identifier: GPL-2.0-only

//! KUnit suite of deadlines and early replies; `nrs-test check` covers the rest.

use kernel::{
    prelude::*,
    str::CString,
    sync::Arc,
    time::{delay::fsleep, Delta},
};

use super::{
    session::{ReadItem, Session, SessionState, SessionTerms},
    wire,
};
use crate::{
    engine::{
        parameters,
        registry::{self, Attachment},
    },
    sched::units::{NSEC_PER_MSEC, NSEC_PER_SEC},
    sys::{misc, timer::TimerCallback},
};

/// Lease that expires only in simulated time, ns.
const LEASE: u64 = 3600 * NSEC_PER_SEC;

/// A session and its client.
struct SessionBench {
    session: Arc<Session>,
    attachment: Attachment,
}

impl SessionBench {
    /// Creates a session of `limit` requests on the service `name` with `slots` slots.
    fn new(name: &CStr, slots: u32, limit: u32) -> Result<Self> {
        Self::leasing(name, slots, limit, LEASE)
    }

    /// Creates a session with leases of `lease_ns`.
    fn leasing(name: &CStr, slots: u32, limit: u32, lease_ns: u64) -> Result<Self> {
        let attachment = registry::attach_user(name, CString::try_from(c"kunit")?)?;
        let slots = CString::try_from_fmt(fmt!("{slots}"))?;
        let slots = slots.to_str().map_err(|_| EINVAL)?;
        parameters::set(attachment.service(), "slots", slots)?;
        let terms = SessionTerms {
            may_pass: true,
            lease_ns,
            limit,
        };
        Ok(Self {
            session: Session::open(&attachment, terms, None)?,
            attachment,
        })
    }

    /// Creates a session with an estimate of one second and an `at_max` of `max` seconds, in steps
    /// of a second.
    fn quick(name: &CStr, max: u32) -> Result<Self> {
        let bench = Self::new(name, 1, 1000)?;
        let most = CString::try_from_fmt(fmt!("{max}"))?;
        let most = most.to_str().map_err(|_| EINVAL)?;
        for (name, value) in [
            ("at_early_margin", "1"),
            ("at_min", "1"),
            ("at_initial", "1"),
            ("at_extra", "1"),
            ("at_max", most),
            ("at_factor", "100"),
            ("at_increment", "0"),
            ("at_history", "3600"),
        ] {
            parameters::set(bench.attachment.service(), name, value)?;
        }
        Ok(bench)
    }

    /// Submits request `cookie`, whose client has a timeout of `timeout` ms, `elapsed` of which
    /// have passed.
    fn bring_for(&self, cookie: u64, timeout: u32, elapsed: u32) -> Result {
        let mut request = wire::Request::new(cookie);
        (request.timeout_ms, request.elapsed_ms) = (timeout, elapsed);
        self.checked(self.session.request(&request, true))
    }

    /// Reads up to eight ready requests.
    fn read(&self) -> [Option<wire::Released>; 8] {
        let mut seen = [None; 8];
        if let Ok(mut taken) = self.session.take(8, true) {
            for place in &mut seen {
                *place = match taken.next() {
                    Some(ReadItem::Request(_, record)) => Some(record),
                    _ => None,
                };
            }
        }
        seen
    }

    fn complete(&self, cookie: u64) -> Result {
        self.checked(
            self.session
                .complete(&wire::Completion::new(cookie, 0, 4096)),
        )
    }

    /// Counts a refusal, as a call does that returns it.
    fn checked(&self, result: Result) -> Result {
        result.inspect_err(|error| self.session.count_refused(*error))
    }

    /// Closes the session; returns true if no request is left.
    fn close(self) -> bool {
        self.session.close();
        let stats = self.session.stats();
        let left = stats.queued + stats.ready + stats.running + u64::from(stats.peers);
        left == 0 && self.attachment.client().load().held() == 0
    }

    /// Returns the next item to read, within five seconds.
    fn item(&self) -> Option<ReadItem> {
        let mut next = None;
        let look = || {
            next = self.session.take(1, true).ok().and_then(|mut t| t.next());
            next.is_some()
        };
        self.wait(5000, look);
        next
    }

    /// Polls each millisecond for up to `ms` until `f` returns true.
    fn wait(&self, ms: u64, mut f: impl FnMut() -> bool) -> bool {
        let until = misc::now() + ms * NSEC_PER_MSEC;
        while !f() {
            if misc::now() >= until {
                return false;
            }
            fsleep(Delta::from_millis(1));
        }
        true
    }

    /// Returns the next early reply: request, timeout, flags.
    fn early(&self) -> Option<(u64, u32, u32)> {
        match self.item()? {
            ReadItem::Early(reply) => {
                let record = reply.record;
                Some((record.cookie, record.timeout_ms, record.header.flags))
            }
            _ => None,
        }
    }

    /// Reads the next request to be served.
    fn released(&self) -> Option<wire::Released> {
        match self.item()? {
            ReadItem::Request(_, record) => Some(record),
            _ => None,
        }
    }

    /// Returns the numbers of early replies read, refused and late, and of requests expired.
    fn counts(&self) -> (u64, u64, u64, u64) {
        let stats = self.session.stats();
        (
            stats.early_sent,
            stats.early_refused,
            stats.early_late,
            stats.expired,
        )
    }
}

fn near(ms: u32, wanted: u32) -> bool {
    // The machine may be busy; a tick is 10 ms at most.
    (wanted.saturating_sub(12)..wanted + 400).contains(&ms)
}

#[kunit_tests(nrs_chardev_early)]
mod deadlines {
    use super::*;

    #[test]
    fn a_timeout_under_the_estimate_is_reported_immediately() -> Result {
        let bench = SessionBench::new(c"kunit-early", 1, 64)?;
        let brought = misc::now();
        bench.bring_for(1, 9_999, 0)?;
        let early = bench.early();
        let released = bench.released();
        let took = misc::now().saturating_sub(brought) / NSEC_PER_MSEC;
        bench.bring_for(2, 10_000, 0)?;
        let counts = bench.counts();
        bench.complete(1)?;
        let second = bench.released();
        let closed = bench.close();
        // 10 s * 125 % + 5 s, less the time needed to get here; a tick is 10 ms at most.
        let left = |r: &wire::Released| {
            r.left_ms <= 17_500 && u64::from(r.left_ms).saturating_add(took) >= 17_488
        };
        assert!(early == Some((1, 17_500, wire::EARLY_AT_ONCE)));
        assert!(
            released.is_some_and(|r| r.header.flags & wire::RELEASED_EXPIRED == 0
                && r.estimate_ms == 10_000
                && left(&r))
        );
        assert!(counts == (1, 0, 0, 0) && closed);
        assert!(second.is_some_and(|r| r.cookie == 2));
        Ok(())
    }

    #[test]
    fn unread_early_replies_are_late_and_bounded() -> Result {
        let bench = SessionBench::quick(c"kunit-early", 600)?;
        for cookie in 1..=200 {
            bench.bring_for(cookie, 700, 0)?;
        }
        let all = bench.wait(20_000, || bench.counts().3 == 200);
        let counts = bench.counts();
        let mut expired = 0;
        for _ in 0..200 {
            if let Some(ReadItem::Request(_, record)) = bench.item() {
                expired += u32::from(record.header.flags & wire::RELEASED_EXPIRED != 0);
                bench.complete(record.cookie)?;
            }
        }
        assert!(bench.close() && all && expired == 200);
        assert!(counts == (0, 0, 200, 200));
        Ok(())
    }

    #[test]
    fn busy_server_extends_the_deadline() -> Result {
        let bench = SessionBench::quick(c"kunit-early", 600)?;
        let busy = |cookie, ms| bench.session.busy(&wire::Busy::new(cookie, ms));
        bench.bring_for(1, 1500, 0)?;
        bench.bring_for(2, 0, 0)?;
        let unread = busy(1, 5000);
        let first = bench.released();
        let wrong = [busy(1, 0), busy(1, wire::LEASE_MAX + 1), busy(1, u32::MAX)];
        let moved = busy(1, 5000).is_ok() && busy(1, 6000).is_ok();
        // One early reply, however often the server reports.
        let early = bench.early();
        let shorter = busy(1, 10);
        // The lease is extended as well.
        bench.session.check_deadlines(misc::now() + LEASE);
        let kept = bench.session.stats().reclaimed;
        bench
            .session
            .check_deadlines(misc::now() + LEASE + 7000 * NSEC_PER_MSEC);
        let ended = bench.session.stats().reclaimed;
        bench.complete(1)?;
        let gone = busy(1, 5000);
        // Without a deadline only the lease is extended.
        let second = bench.released();
        let plain = busy(2, 5000);
        let nothing = bench.session.take(1, true).err();
        let counts = bench.counts();
        let closed = bench.close();
        assert!(unread == Err(ENOENT) && gone == Err(ENOENT) && wrong == [Err(EINVAL); 3]);
        assert!(first.is_some() && second.is_some() && moved && shorter.is_ok() && plain.is_ok());
        assert!(early.is_some_and(|(cookie, timeout, flags)| {
            cookie == 1 && near(timeout, 6000) && flags == wire::EARLY_BUSY
        }));
        assert!((kept, ended) == (0, 1) && nothing == Some(EAGAIN));
        assert!(counts == (1, 1, 0, 0) && closed);
        Ok(())
    }

    /// Verifies that a lock hold ends at most 12 leases, the next check continues, and each lease
    /// counts once.
    #[test]
    fn leases_that_end_together_take_several_lock_holds() -> Result {
        let bench = SessionBench::new(c"kunit-lease", 65, 64)?;
        for cookie in 1..=40 {
            bench.bring_for(cookie, 0, 0)?;
        }
        let released = bench.wait(5000, || bench.session.stats().ready == 40);
        let over = misc::now() + LEASE;
        let ended = [(); 5].map(|()| {
            bench.session.check_deadlines(over);
            bench.session.stats().reclaimed
        });
        let mut read = 0;
        for _ in 0..5 {
            read += bench.read().into_iter().flatten().count();
        }
        for cookie in 1..=40 {
            bench.complete(cookie)?;
        }
        let late = bench.session.stats().late;
        let closed = bench.close();
        assert!(released && read == 40 && closed);
        assert!(ended == [12, 24, 36, 40, 40] && late == 40);
        Ok(())
    }

    /// Verifies that an expiry of the timer ends 12 of the leases that expire together, and process
    /// context the rest. The timer is not armed again here.
    #[test]
    fn leases_that_end_together_are_ended_in_process_context() -> Result {
        const COUNT: u64 = 300;
        let lease = 2 * NSEC_PER_SEC;
        let bench = SessionBench::leasing(c"kunit-early", 400, 400, lease)?;
        for cookie in 1..=COUNT {
            bench.bring_for(cookie, 0, 0)?;
        }
        let released = bench.wait(5000, || bench.session.stats().ready == COUNT);
        bench.session.stop_timer();
        let over = misc::now() + lease;
        let late = bench.wait(5000, || misc::now() > over);
        SessionState::expired(&bench.session);
        let all = bench.wait(5000, || bench.session.stats().reclaimed == COUNT);
        assert!(bench.close() && released && late && all);
        Ok(())
    }

    /// Verifies that an early reply whose deadline has passed is not read, although the timer has
    /// not removed it.
    #[test]
    fn a_late_reply_is_not_readable() -> Result {
        let bench = SessionBench::new(c"kunit-early", 1, 64)?;
        bench.bring_for(1, 0, 0)?;
        let first = bench.released();
        bench.bring_for(2, 9_999, 9_900)?;
        bench.session.stop_timer();
        bench.session.cancel();
        let over = misc::now() + 200 * NSEC_PER_MSEC;
        let passed = bench.wait(5000, || misc::now() > over);
        let read = bench.session.take(8, true).err();
        let (sent, _, late, expired) = bench.counts();
        bench.complete(1)?;
        let closed = bench.close();
        assert!(first.map(|r| r.cookie) == Some(1) && passed && read == Some(EAGAIN));
        assert!((sent, late, expired) == (0, 1, 1) && closed);
        Ok(())
    }

    #[test]
    fn undelivered_early_replies_are_delivered_again() -> Result {
        let bench = SessionBench::new(c"kunit-early", 65, 64)?;
        bench.bring_for(1, 1000, 0)?;
        bench.bring_for(2, 2000, 0)?;
        let mut taken = bench.session.take(8, true)?;
        if let Some(item) = taken.next() {
            bench.session.put_back(item, taken);
        }
        let again = [bench.early(), bench.early()];
        let released = [bench.released(), bench.released()];
        let closed = bench.close();
        let cookies = again.map(|early| early.map(|(cookie, timeout, _)| (cookie, timeout)));
        assert!(cookies == [Some((1, 17_500)), Some((2, 17_500))]);
        assert!(released.map(|r| r.map(|r| r.cookie)) == [Some(1), Some(2)] && closed);
        Ok(())
    }

    #[test]
    fn what_arrived_long_ago_has_expired() -> Result {
        let bench = SessionBench::new(c"kunit-early", 65, 64)?;
        let cases = [
            (1, 1, 1),
            (2, u32::MAX, u32::MAX),
            (3, 5, u32::MAX),
            (4, u32::MAX, 0),
            (5, 0, u32::MAX),
        ];
        for (cookie, timeout, elapsed) in cases {
            bench.bring_for(cookie, timeout, elapsed)?;
        }
        let counts = bench.counts();
        let seen = bench.read().map(|record| {
            record.map(|r| {
                (
                    r.header.flags & wire::RELEASED_EXPIRED != 0,
                    r.left_ms > 1 << 31,
                )
            })
        });
        let closed = bench.close();
        let (gone, long, none) = (
            Some((true, false)),
            Some((false, true)),
            Some((false, false)),
        );
        assert!(seen == [gone, gone, gone, long, none, None, None, None]);
        assert!(counts == (0, 0, 0, 3) && closed);
        Ok(())
    }
}
