// SPDX-License-Identifier: GPL-2.0-only

//! Logarithms and powers of two in fixed point.
//!
//! *Q16* is a number times 2^16, used for logarithms. *Q31* is a number times 2^31, used for
//! factors of at most 1 ([`ONE`]).
//!
//! Both functions use a table with 64 steps per octave, computed at compile time, and interpolate
//! linearly. The absolute error of a logarithm is below 2^-14, the relative error of a power below
//! 2^-14. Equal arguments have the same error, so equal levels remain equal.

use nrs_sched::policy::fairshare::factors::ONE;

/// One in Q16.
pub const Q16: i32 = 1 << 16;

/// Number of bits that select a step of an octave.
const STEP_BITS: u32 = 6;

/// Number of table entries: the steps of an octave, and the start of the next octave.
const STEPS: usize = (1 << STEP_BITS) + 1;

/// `log2(1 + k/64)` in Q16.
const LOGS: [u32; STEPS] = logs();

/// `2^(k/64)` in Q31; the last entry is twice the first.
const POWERS: [u64; STEPS] = powers();

/// `2^(1/2)`, `2^(1/4)` and so on to `2^(1/64)`, in Q31.
const ROOTS: [u64; STEP_BITS as usize] = [
    3_037_000_500,
    2_553_802_834,
    2_341_847_524,
    2_242_560_872,
    2_194_507_417,
    2_170_868_212,
];

/// Computes logarithms by repeated squaring: each square yields one bit, 1 if the square reaches
/// two.
const fn logs() -> [u32; STEPS] {
    let mut table = [0u32; STEPS];
    let mut k = 0;
    while k < STEPS {
        // Q31, from 1 to 2.
        let mut x = (1u64 << 31) + ((k as u64) << (31 - STEP_BITS));
        let mut log = 0u32;
        if x >= 1 << 32 {
            log = 1;
            x >>= 1;
        }
        let mut bit = 0;
        while bit < 17 {
            x = (x * x) >> 31;
            log <<= 1;
            if x >= 1 << 32 {
                log |= 1;
                x >>= 1;
            }
            bit += 1;
        }
        // 17 bits were computed; the last one is for rounding.
        table[k] = (log + 1) >> 1;
        k += 1;
    }
    table
}

/// Computes powers: multiplies the roots that correspond to the bits of the step.
const fn powers() -> [u64; STEPS] {
    let mut table = [0u64; STEPS];
    let mut k = 0;
    while k < STEPS {
        let mut power = ONE as u64;
        let mut bit = 0;
        while bit < STEP_BITS {
            if (k >> (STEP_BITS - 1 - bit)) & 1 == 1 {
                power = (power * ROOTS[bit as usize]) >> 31;
            }
            bit += 1;
        }
        table[k] = if k >> STEP_BITS == 1 {
            (ONE as u64) << 1
        } else {
            power
        };
        k += 1;
    }
    table
}

/// Returns `log2(x)` in Q16, from 0 to 64; 0 for `x` = 0.
pub fn log2(x: u64) -> i32 {
    let zeros = x.leading_zeros();
    if zeros >= u64::BITS {
        return 0;
    }
    let whole = u64::BITS - 1 - zeros;
    // Shifts out the leading one.
    let rest = x << zeros << 1;
    let step = (rest >> (u64::BITS - STEP_BITS)) as usize;
    let line = (rest >> (u64::BITS - STEP_BITS - 16)) as u32 & 0xffff;
    let (low, high) = (LOGS[step], LOGS[step + 1]);
    let part = ((high - low) * line) >> 16;
    ((whole << 16) + low + part) as i32
}

/// Returns `2^x` in Q31 for `x` in Q16: at least the value 1, and [`ONE`] for `x` above 0.
pub fn power(x: i32) -> u32 {
    if x >= 0 {
        return ONE;
    }
    // Rounds down, so the rest is at least 0 and below 1.
    let down = (x >> 16).unsigned_abs();
    let rest = x as u32 & 0xffff;
    let step = (rest >> (16 - STEP_BITS)) as usize;
    let line = u64::from(rest) & ((1 << (16 - STEP_BITS)) - 1);
    let (low, high) = (POWERS[step], POWERS[step + 1]);
    let part = ((high - low) * line) >> (16 - STEP_BITS);
    let power = (low + part).checked_shr(down).unwrap_or(0);
    (power as u32).max(1)
}

/// Returns `x` times `2^by`; `by` is in Q16 and clamped to -4 to 4.
pub fn scale(x: u64, by: i32) -> u64 {
    let by = by.clamp(-4 * Q16, 4 * Q16);
    let product = u128::from(x) * u128::from(power(by - 4 * Q16));
    (product >> 27).min(u64::MAX.into()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithms_are_near_and_rise() {
        let mut before = 0;
        for x in (1..70_000)
            .chain((17..64).map(|n| 1 << n))
            .chain([u64::MAX])
        {
            let ours = log2(x);
            let exact = (x as f64).log2() * 65536.0;
            assert!((f64::from(ours) - exact).abs() < 4.0, "{x}: {ours} {exact}");
            assert!(ours >= before);
            before = ours;
        }
        assert_eq!(log2(0), 0);
        assert_eq!(log2(1), 0);
        assert_eq!(log2(2), Q16);
        assert_eq!(log2(1 << 63), 63 * Q16);
    }

    #[test]
    fn scaling_is_a_power_within_four_octaves() {
        for (x, by, expected) in [
            (1000, 0, 1000),
            (1000, Q16, 2000),
            (1000, -2 * Q16, 250),
            (1000, 9 * Q16, 16_000),
            (1600, i32::MIN / 2, 100),
            (u64::MAX, Q16, u64::MAX),
        ] {
            assert_eq!(scale(x, by), expected, "{x} {by}");
        }
    }

    #[test]
    fn powers_are_near_and_fall() {
        let mut before = ONE;
        for x in 0..40 * Q16 / 7 {
            let x = -7 * x;
            let ours = power(x);
            let exact = (f64::from(x) / 65536.0).exp2() * f64::from(ONE);
            let allowed = (exact / 16384.0).max(1.0);
            assert!(
                (f64::from(ours) - exact).abs() <= allowed,
                "{x}: {ours} {exact}"
            );
            assert!(ours <= before && ours >= 1);
            before = ours;
        }
        assert_eq!(power(0), ONE);
        assert_eq!(power(1), ONE);
        assert_eq!(power(-Q16), ONE / 2);
        assert_eq!(power(-10 * Q16), ONE >> 10);
        assert_eq!(power(i32::MIN), 1);
    }
}
