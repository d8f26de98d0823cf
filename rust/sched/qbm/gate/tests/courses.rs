// SPDX-License-Identifier: GPL-2.0-only

//! Amount and time of the inflow.

use super::*;

#[test]
fn courses() {
    // Exact to 10^-9 over a day, at any rate.
    for rate in RATES.into_iter().chain([1, 999, RATE_MAX]) {
        let course = Inflow::new(rate, 7, NOW);
        assert_eq!(course.inflow(NOW - 5), 7);
        let day = 86_400 * SECOND;
        let came = course.inflow(NOW + day) - 7;
        let want = comes(rate, day);
        assert!(came.abs_diff(want) <= want / 1_000_000_000 + 1, "{rate}");
        // The returned time is the first with this inflow, to the time of one byte.
        for bytes in [1, 512, 5 * MIB] {
            let at = course.inflow(NOW).wrapping_add(bytes);
            let mut then = NOW;
            for _ in 0..3 {
                then = course.reaches(at, then);
            }
            // Returned times are limited to 26 days.
            if nanoseconds(course.pace.span(bytes)) < 26 * day {
                assert!(course.inflow(then) >= at, "{rate} {bytes}");
                let early = nanoseconds(course.pace.span(bytes)) / 1_000_000 + 3;
                assert!(course.inflow(then - early) <= at, "{rate} {bytes}");
            }
        }
    }
    assert_eq!(Inflow::new(0, 0, 0), Inflow::new(0, 0, 0));
    assert!(!Inflow::new(UNREGULATED, 0, 0).is_regulated());
    assert!(Inflow::new(0, 0, 0).is_regulated());
}
