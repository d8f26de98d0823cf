// SPDX-License-Identifier: GPL-2.0-only

use super::*;
use crate::sched::timeouts::terms::{AtEarlyMargin, AtExtra, AtMax, ObdTimeout};
use EarlyRefusal::{Dead, Late, Limit};
use EarlyReply::Refuse;

fn without(fixed: u32) -> TimeoutTerms {
    TimeoutTerms {
        max: AtMax::new(0).unwrap(),
        fixed: ObdTimeout::new(fixed).unwrap(),
        ..TimeoutTerms::default()
    }
}

fn with(margin: u32, extra: u32) -> TimeoutTerms {
    TimeoutTerms {
        early_margin: AtEarlyMargin::new(margin).unwrap(),
        extra: AtExtra::new(extra).unwrap(),
        ..TimeoutTerms::default()
    }
}

const fn stated(arrival: u64, deadline: u64) -> RequestTimes {
    RequestTimes { arrival, deadline }
}

const fn grant(deadline: u64, sample: u32) -> EarlyReply {
    EarlyReply::Grant { deadline, sample }
}

/// Arrival of a request, ms.
const ARRIVAL: u64 = 100_000;

#[test]
fn at_once() {
    let usual = TimeoutTerms::default();
    for (terms, timeout, estimate, want) in [
        // No early reply while the timeout covers the estimate, regardless of the factor.
        (usual, 20_000, 20_000, None),
        (usual, 19_999, 20_000, Some(30_000)),
        (usual, 1, 20_000, Some(30_000)),
        // No deadline.
        (usual, 0, 20_000, None),
        (usual, u32::MAX, u32::MAX, None),
        // An estimate of 0 counts as at_min.
        (usual, 5000, 0, None),
        (usual, 4999, 0, Some(11_250)),
        // At most at_max in all.
        (usual, 20_000, u32::MAX, Some(600_000)),
        (usual, 599_999, 600_000, Some(600_000)),
        (usual, 600_000, 600_000, None),
        (without(100), 1, 20_000, None),
        (without(0), 1, 20_000, None),
    ] {
        let want = want.map(|longer: u64| ARRIVAL + longer);
        assert_eq!(on_arrival(&terms, ARRIVAL, timeout, estimate), want);
    }
    assert_eq!(on_arrival(&usual, u64::MAX, 1, 9000), Some(u64::MAX));
}

#[test]
fn looked_at() {
    for (terms, deadline, want) in [
        (TimeoutTerms::default(), 117_500, 112_500),
        (TimeoutTerms::default(), 3000, 0),
        (with(1, 30), 117_500, 116_500),
        // The granted deadline must be later than the present one.
        (with(5, 5), 117_500, 115_000),
        (with(5, 1), 117_500, 117_000),
        (without(100), 117_500, 117_500),
        (without(0), 117_500, 117_500),
    ] {
        assert_eq!(wake(&terms, deadline), want);
    }
}

#[test]
fn near_the_deadline() {
    let after = |deadline, sample| grant(ARRIVAL + deadline, sample);
    let end = u64::MAX - ARRIVAL;
    // The deadline, the present and the deadline announced by the server, ms after the arrival.
    for (row, (deadline, now, alive, busy, want)) in [
        (17_500, 12_500, true, None, after(42_500, 17_500)),
        (17_500, 17_499, true, None, after(47_499, 22_499)),
        // The client has given up.
        (17_500, 17_500, true, None, Refuse(Late)),
        (17_500, 90_000, true, Some(95_000), Refuse(Late)),
        // No sign of life; a deadline announced by the server is one while it is in the future.
        (17_500, 12_500, false, None, Refuse(Dead)),
        (17_500, 12_500, false, Some(12_500), Refuse(Dead)),
        (17_500, 12_500, false, Some(12_501), after(42_500, 17_500)),
        (17_500, 12_500, true, Some(100_000), after(100_000, 17_500)),
        // At most at_max from the arrival, and no reply if the deadline would not move.
        (575_000, 571_000, true, None, after(600_000, 576_000)),
        (
            575_000,
            571_000,
            true,
            Some(900_000),
            after(600_000, 576_000),
        ),
        (599_999, 598_000, true, None, after(600_000, 600_000)),
        (600_000, 598_000, true, None, Refuse(Limit)),
        (755_000, 751_000, true, None, Refuse(Limit)),
        (755_000, 751_000, true, Some(end), Refuse(Limit)),
        // Called too early.
        (90_000, 10_000, true, None, Refuse(Limit)),
    ]
    .into_iter()
    .enumerate()
    {
        let request = stated(ARRIVAL, ARRIVAL + deadline);
        let busy = busy.map(|busy| ARRIVAL + busy);
        let got = at_margin(
            &TimeoutTerms::default(),
            &request,
            ARRIVAL + now,
            alive,
            busy,
        );
        assert_eq!(got, want, "row {row}");
    }
}

#[test]
fn strange_instants() {
    let (usual, end) = (TimeoutTerms::default(), u64::MAX);
    for (terms, arrival, deadline, now, want) in [
        // The present is before the arrival.
        (usual, 50_000, 31_000, 2000, grant(32_000, 0)),
        (usual, end - 9, end - 5, end - 6, grant(end, 9)),
        (usual, 0, end, end - 1, Refuse(Limit)),
        (usual, 0, 0, 0, Refuse(Late)),
        (without(100), 0, 9000, 8000, Refuse(Limit)),
        (without(0), 0, 9000, 8000, Refuse(Limit)),
    ] {
        let request = stated(arrival, deadline);
        assert_eq!(at_margin(&terms, &request, now, true, None), want);
    }
}

/// Checks that a request with signs of life has exactly `at_max`, with few messages.
#[test]
fn early_replies_until_the_limit() {
    for (margin, extra, messages) in [(5, 30, 25), (5, 5, 240), (1, 1, 1200), (5, 600, 1)] {
        let terms = with(margin, extra);
        let mut request = stated(ARRIVAL, ARRIVAL + 17_500);
        let mut sent = 0;
        let refused = loop {
            let now = wake(&terms, request.deadline);
            match at_margin(&terms, &request, now, true, None) {
                EarlyReply::Grant { deadline, sample } => {
                    assert!(deadline > request.deadline && sample <= 600_000);
                    request.deadline = deadline;
                    sent += 1;
                }
                Refuse(refusal) => break refusal,
            }
        };
        assert_eq!(refused, Limit);
        assert_eq!(request.deadline, ARRIVAL + 600_000);
        assert!(sent <= messages, "{sent} messages");
    }
}

/// Checks that a deadline never becomes earlier in a recovery window, however small the extension
/// is.
#[test]
fn while_clients_come_back() {
    for (deadline, now, extra, want) in [
        (17_500, 12_500, 4375, grant(21_875, 0)),
        (17_500, 0, 1000, grant(18_500, 0)),
        (17_500, 17_500, 4375, Refuse(Late)),
        (17_500, 12_500, 0, Refuse(Limit)),
        (u64::MAX, 5, 1000, Refuse(Limit)),
    ] {
        assert_eq!(in_recovery(&stated(0, deadline), now, extra), want);
    }
}
