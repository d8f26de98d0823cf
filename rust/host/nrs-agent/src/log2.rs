// SPDX-License-Identifier: GPL-2.0-only

//! Logarithms and powers of two in fixed point.
//!
//! *Q16* is a number times 2^16, used for logarithms. *Q31* is a number times 2^31, used for
//! factors of at most 1 ([`ONE`]).
//!
//! The error of a logarithm is at most 2^-17, that of a power 2^-32. Equal arguments have the same
//! error, so equal levels remain equal.

use nrs_sched::policy::fairshare::factors::ONE;

/// One in Q16.
pub const Q16: i32 = 1 << 16;

/// Returns `log2(x)` in Q16, from 0 to 64; 0 for `x` = 0.
pub fn log2(x: u64) -> i32 {
    ((x.max(1) as f64).log2() * f64::from(Q16)).round() as i32
}

/// Returns `2^x` for `x` in Q16.
fn exp2(x: i32) -> f64 {
    (f64::from(x) / f64::from(Q16)).exp2()
}

/// Returns `2^x` in Q31 for `x` in Q16: at least the value 1, and [`ONE`] for `x` above 0.
pub fn power(x: i32) -> u32 {
    (exp2(x.min(0)) * f64::from(ONE)).round().max(1.0) as u32
}

/// Returns `x` times `2^by`, rounded down; `by` is in Q16 and clamped to -4 to 4.
pub fn scale(x: u64, by: i32) -> u64 {
    (x as f64 * exp2(by.clamp(-4 * Q16, 4 * Q16))) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithms() {
        for (x, expected) in [
            (0, 0),
            (1, 0),
            (2, Q16),
            (3, 103_872),
            (525, 592_195),
            (1 << 48, 48 * Q16),
            (1 << 63, 63 * Q16),
            (u64::MAX, 64 * Q16),
        ] {
            assert_eq!(log2(x), expected, "{x}");
        }
    }

    #[test]
    fn powers_down_to_one() {
        for (x, expected) in [
            (i32::MAX, ONE),
            (0, ONE),
            (-1, 2_147_460_935),
            (-Q16 / 2, 1_518_500_250),
            (-Q16, ONE / 2),
            (-10 * Q16, ONE >> 10),
            (-30 * Q16, 2),
            (-32 * Q16, 1),
            (i32::MIN, 1),
        ] {
            assert_eq!(power(x), expected, "{x}");
        }
    }

    #[test]
    fn scaling_is_a_power_within_four_octaves() {
        for (x, by, expected) in [
            (0, Q16, 0),
            (7, -Q16, 3),
            (1000, 0, 1000),
            (1000, Q16, 2000),
            (1000, Q16 / 2, 1414),
            (1000, -2 * Q16, 250),
            (1000, 9 * Q16, 16_000),
            (1600, i32::MIN / 2, 100),
            (1 << 48, -1, 281_471_999_681_927),
            (u64::MAX, Q16, u64::MAX),
        ] {
            assert_eq!(scale(x, by), expected, "{x} {by}");
        }
    }
}
