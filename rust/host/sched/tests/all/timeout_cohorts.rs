// SPDX-License-Identifier: GPL-2.0-only

//! Cohorts against a list of requests, in a sequence of random events.

use nrs_sched::timeouts::cohorts::{Cohorts, Token, SPAN};
use proptest::prelude::*;

/// Where the clock starts: shortly before the lower half of instants begins again.
const START: u64 = (3 << 32) - 200_000;

/// How much later the last deadline of a cohort is than that of any member, at most, as long as nothing is
/// older than 17 min: the length of an old one.
const COARSE: u64 = 4096;

#[derive(Clone, Debug)]
enum Op {
    /// Time passes, ms.
    Pass(u64),
    /// As many requests are sent, with this timeout.
    Enter(u32, u32),
    /// As many end, from this one on.
    Leave(usize, u32),
    /// Those that expire within this time have their deadlines moved by another.
    Extend(u64, u64),
    /// Those that expired are declared so.
    Expire,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0..1000_u64).prop_map(Op::Pass),
        2 => (0..100_000_u64).prop_map(Op::Pass),
        8 => (1..20_u32, 1..100_000_u32).prop_map(|(count, timeout)| Op::Enter(count, timeout)),
        8 => (any::<usize>(), 1..25_u32).prop_map(|(from, count)| Op::Leave(from, count)),
        2 => (0..30_000_u64, 1..60_000_u64).prop_map(|(within, by)| Op::Extend(within, by)),
        2 => Just(Op::Expire),
    ]
}

/// A request as the list has it.
#[derive(Clone, Copy)]
struct Request {
    token: Token,
    sent: u64,
    deadline: u64,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Requests are counted, and nobody expires early.
    #[test]
    fn like_a_list(ops in prop::collection::vec(op(), 1..200)) {
        let cohorts = Cohorts::new().expect("memory");
        let mut list: Vec<Request> = Vec::new();
        let mut now = START;
        let mut moved = false;
        for op in ops {
            match op {
                Op::Pass(time) => now += time,
                Op::Enter(count, timeout) => {
                    for _ in 0..count {
                        let token = cohorts.enter(now, timeout);
                        let deadline = now + u64::from(timeout);
                        list.push(Request { token, sent: now, deadline });
                    }
                }
                Op::Leave(from, count) => {
                    for _ in 0..count {
                        if !list.is_empty() {
                            let request = list.swap_remove(from % list.len());
                            cohorts.leave(request.token);
                        }
                    }
                }
                Op::Extend(within, by) => {
                    moved = true;
                    cohorts.visit(|cohort| {
                        let near = cohort.deadline <= now.saturating_add(within);
                        near.then(|| now.max(cohort.deadline).saturating_add(by))
                    });
                }
                Op::Expire => {
                    moved = true;
                    cohorts.visit(|cohort| (cohort.deadline <= now).then_some(u64::MAX));
                }
            }
            prop_assert_eq!(cohorts.len() as usize, list.len());
            let oldest = list.iter().map(|request| request.sent).min();
            match (cohorts.oldest(), oldest) {
                (Some(shown), Some(oldest)) => prop_assert!(shown <= oldest && now - shown < 1 << 32),
                (shown, oldest) => prop_assert_eq!(shown, oldest),
            }
            let mut sum = 0;
            let mut wrong = None;
            cohorts.visit(|cohort| {
                sum += cohort.count as usize;
                if cohort.count == 0 || cohort.sent > cohort.last || cohort.last > now + COARSE {
                    wrong = Some(cohort);
                }
                None
            });
            prop_assert_eq!(wrong, None);
            prop_assert_eq!(sum, list.len());
            let earliest = list.iter().map(|request| request.deadline).min();
            let recent = list.iter().all(|request| now - request.sent < 1_000_000);
            if let (false, true, Some(earliest), Some(next)) = (moved, recent, earliest, cohorts.next()) {
                prop_assert!(next >= earliest, "{next} is before {earliest}");
                // That of one which has left may still count for its cohort.
                prop_assert!(next < now + 100_000 + COARSE, "{next} is after all");
            }
        }
        for request in list {
            cohorts.leave(request.token);
        }
        prop_assert_eq!((cohorts.len(), cohorts.next(), cohorts.oldest()), (0, None, None));
    }

    /// A steady stream to a device that is dead: the first to expire is known in time.
    #[test]
    fn a_dead_device(timeout in 1000..1_200_000_u32, gap in 50..3000_u64) {
        let cohorts = Cohorts::new().expect("memory");
        let mut now = START;
        let end = START + u64::from(timeout) + COARSE + 2 * SPAN;
        while now < end {
            cohorts.enter(now, timeout);
            now += gap;
        }
        let next = cohorts.next().expect("requests");
        prop_assert!(next >= START + u64::from(timeout) && next < end, "{next} {end}");
        prop_assert_eq!(cohorts.oldest().map(|oldest| oldest / COARSE), Some(START / COARSE));
    }
}
