// SPDX-License-Identifier: GPL-2.0-only

//! Bytes, times and rates: 64-bit divisions that do not wrap and lose at most one millionth.

use crate::sched::units::{MSEC_PER_SEC, NSEC_PER_USEC, USEC_PER_MSEC, USEC_PER_SEC};

/// Returns the rate of `bytes` in `ns`, bytes/s; 0 for less than a microsecond.
pub fn rate(bytes: u64, ns: u64) -> u64 {
    let us = ns / NSEC_PER_USEC;
    match bytes.checked_mul(USEC_PER_SEC) {
        Some(product) => product.checked_div(us).unwrap_or(0),
        // More than 18 TB: calculate in milliseconds.
        None => bytes
            .checked_div((us / USEC_PER_MSEC).max(1))
            .unwrap_or(0)
            .saturating_mul(MSEC_PER_SEC),
    }
}

/// Returns the bytes that a rate of `rate` bytes/s transfers in `ns`.
pub fn amount(rate: u64, ns: u64) -> u64 {
    let us = ns / NSEC_PER_USEC;
    let whole = (rate / USEC_PER_SEC).saturating_mul(us);
    let part = (rate % USEC_PER_SEC).saturating_mul(us) / USEC_PER_SEC;
    whole.saturating_add(part)
}

/// Returns `percent` of `value`.
pub fn percent(value: u64, percent: u64) -> u64 {
    let whole = (value / 100).saturating_mul(percent);
    whole.saturating_add((value % 100).saturating_mul(percent) / 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        for bytes_per_second in [1u64, 999, 32 << 10, 1_000_000, 1 << 30, 1 << 40] {
            for ns in [200_000_000, 1_000_000_000, 30_000_000_000] {
                let bytes = amount(bytes_per_second, ns);
                let back = rate(bytes, ns);
                assert!(
                    back <= bytes_per_second
                        && bytes_per_second - back <= 5 + bytes_per_second / 1_000_000,
                    "{bytes_per_second} {ns} {back}"
                );
            }
        }
    }

    #[test]
    fn ends() {
        assert_eq!(rate(u64::MAX, 1_000_000_000), u64::MAX / 1000 * 1000);
        assert_eq!(rate(5, 0), 0);
        assert_eq!(rate(u64::MAX, 0), u64::MAX);
        assert_eq!(amount(u64::MAX, u64::MAX), u64::MAX);
        assert_eq!(amount(1 << 40, 500), 0);
        assert_eq!(percent(u64::MAX, 100), u64::MAX);
        assert_eq!(percent(u64::MAX, 130), u64::MAX);
        for (value, part, want) in [(1000, 30, 300), (99, 50, 49), (10, 0, 0), (199, 10, 19)] {
            assert_eq!(percent(value, part), want);
        }
    }
}
