// SPDX-License-Identifier: GPL-2.0-only

//! Ranges of network identifiers in rules: `ADDRESSES@NETWORK`.
//!
//! A [`Pattern`] is a set of addresses of one network. A [`NumberRange`] is a sequence of numbers,
//! all of them or every n-th. A [`NidGuard`] is a test of a few bits that every identifier matching
//! a pattern passes.
//!
//! | addresses | on | meaning |
//! |---|---|---|
//! | `*` | any network | every address |
//! | `10.0.0.1`, `fe80::1`, `42` | as [`Nid::parse`] | this address |
//! | `10.1.[1-9].*` | IP networks | each part: a number, `*`, or ranges in brackets |
//! | `[1-100,200]` | numbered nodes | ranges in brackets |
//! | `10.0.0.0/8`, `2001:db8::/32` | IP networks | addresses with the same first bits |
//!
//! Ranges in brackets are `lo`, `lo-hi` or `lo-hi/stride`, separated by commas. Networks match by
//! type and number: `tcp` is not `tcp1`. Four parts match IPv4 addresses only; a single `*` matches
//! IPv4 and IPv6 addresses.

use crate::sched::{
    mem::NoMemory,
    nid::{Address, Net, Nid},
    rules::{RuleError, Scanner},
};
use core::net::IpAddr;

/// Every `stride`-th number from `lo` to `hi`.
///
/// # Invariants
///
/// `lo` is at most `hi`, and `stride` is not 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberRange {
    lo: u32,
    hi: u32,
    stride: u32,
}

impl NumberRange {
    /// Returns true if the range contains `number`.
    pub fn has(&self, number: u32) -> bool {
        let Some(from) = number.checked_sub(self.lo) else {
            return false;
        };
        number <= self.hi && from.checked_rem(self.stride) == Some(0)
    }
}

/// Range of array indices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    from: u16,
    to: u16,
}

impl Span {
    /// Creates the range from `from` to below `to`; empty if one of the two is above 65535.
    pub fn new(from: usize, to: usize) -> Self {
        match (u16::try_from(from), u16::try_from(to)) {
            (Ok(from), Ok(to)) => Self { from, to },
            _ => Self::default(),
        }
    }

    /// Returns the range from the same start to below `to`.
    #[must_use]
    pub fn up_to(self, to: usize) -> Self {
        Self::new(usize::from(self.from), to)
    }

    /// Returns the elements of `array` in the range.
    pub fn of<T>(self, array: &[T]) -> &[T] {
        let span = usize::from(self.from)..usize::from(self.to);
        array.get(span).unwrap_or_default()
    }

    /// Returns the mutable elements of `array` in the range.
    pub fn of_mut<T>(self, array: &mut [T]) -> &mut [T] {
        let span = usize::from(self.from)..usize::from(self.to);
        array.get_mut(span).unwrap_or_default()
    }
}

/// Addresses of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// All addresses.
    Any,
    /// IPv4 addresses with the same first bits.
    V4 { first: u32, bits: u8 },
    /// IPv6 addresses with the same first bits.
    V6 { first: u128, bits: u8 },
    /// IPv4 addresses by parts; a part without ranges matches any number.
    Parts([Span; 4]),
    /// Node numbers.
    Numbers(Span),
}

/// Addresses of one network. The ranges of the pattern are in an array that the caller passes to
/// each call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    net: Net,
    number: u16,
    kind: Kind,
}

/// Meaning of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// One client.
    One(Nid),
    /// Any number of clients.
    Many(Pattern),
}

/// Quick test: an identifier that does not pass does not match the pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NidGuard {
    net: u32,
    mask: u32,
    bits: u32,
}

/// Properties of an identifier that a [`NidGuard`] tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NidDigest {
    net: u32,
    bits: u32,
}

impl NidDigest {
    /// Computes the digest of `nid`.
    pub fn of(nid: &Nid) -> Self {
        let bits = match nid.address() {
            Address::V4(ip) => u32::from_be_bytes(ip),
            Address::V6(ip) => (u128::from_be_bytes(ip) >> 96) as u32,
            Address::Number(node) => node,
        };
        Self {
            net: net_word(nid.net(), nid.number()),
            bits,
        }
    }
}

impl NidGuard {
    /// Returns true if an identifier with this digest may match.
    #[inline]
    pub const fn passes(&self, digest: NidDigest) -> bool {
        self.net == digest.net && (self.bits ^ digest.bits) & self.mask == 0
    }
}

/// Packs type and number of a network into one word.
const fn net_word(net: Net, number: u16) -> u32 {
    ((net as u32) << 16) | number as u32
}

/// Returns a mask of the first `bits` bits of a 32-bit word.
const fn mask32(bits: u8) -> u32 {
    match u32::MAX.checked_shl(32u32.saturating_sub(bits as u32)) {
        Some(mask) => mask,
        None => 0,
    }
}

/// Returns a mask of the first `bits` bits of a 128-bit word.
const fn mask128(bits: u8) -> u128 {
    match u128::MAX.checked_shl(128u32.saturating_sub(bits as u32)) {
        Some(mask) => mask,
        None => 0,
    }
}

/// Returns a mask of the bits that all numbers of `ranges` have in common, and their values.
fn common(ranges: &[NumberRange]) -> (u32, u32) {
    let lo = ranges.iter().map(|range| range.lo).min().unwrap_or(0);
    let hi = ranges
        .iter()
        .map(|range| range.hi)
        .max()
        .unwrap_or(u32::MAX);
    let same = (lo ^ hi).leading_zeros();
    let mask = mask32(same as u8);
    (mask, lo & mask)
}

impl Pattern {
    /// Parses `ADDRESSES@NETWORK`. `keep` stores a range and returns its index.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: no `@`, an unknown network, or an address that is invalid for the network.
    /// - `EINVAL`: a range that is empty or descending, a stride of 0, or a number that is too
    ///   large.
    /// - `ENOMEM`: `keep` failed.
    pub fn parse(
        text: &str,
        keep: &mut dyn FnMut(NumberRange) -> Result<usize, NoMemory>,
    ) -> Result<Parsed, RuleError> {
        let (addresses, name) = text.rsplit_once('@').ok_or(RuleError::invalid(
            text.len(),
            "'@' and a network, such as @tcp",
        ))?;
        let (net, number) = Net::parse(name).map_err(|_| {
            RuleError::invalid(
                addresses.len().saturating_add(1),
                "a network: tcp, o2ib, lo, gni, gip, ptlf or kfi, and its number",
            )
        })?;
        let many = |kind| Ok(Parsed::Many(Self { net, number, kind }));
        if addresses == "*" {
            return many(Kind::Any);
        }
        if let Ok(nid) = Nid::parse(text) {
            return Ok(Parsed::One(nid));
        }
        if !net.is_ip() {
            let mut scan = Scanner::part(addresses);
            if scan.peek() != Some(b'[') {
                return Err(scan.expected(if net == Net::Lo {
                    "0 or '*'"
                } else {
                    "a node number, '*' or '[' and ranges of node numbers"
                }));
            }
            let max = if net == Net::Lo { 0 } else { u32::MAX };
            let span = ranges(&mut scan, max, keep)?;
            end(&scan)?;
            return many(Kind::Numbers(span));
        }
        if let Some((ip, bits)) = addresses.split_once('/') {
            if !ip.contains('[') {
                return many(Self::prefix(ip, bits)?);
            }
        }
        if addresses.contains(':') {
            return Err(RuleError::invalid(0, "an IPv6 address, with /BITS or not"));
        }
        many(Self::parts(addresses, keep)?)
    }

    /// Parses an address with a number of prefix bits.
    fn prefix(ip: &str, text: &str) -> Result<Kind, RuleError> {
        let at = ip.len().saturating_add(1);
        let bits = |max: u8, expected| {
            let digits = text.bytes().all(|b| b.is_ascii_digit());
            match text.parse() {
                Ok(bits) if digits && bits <= max => Ok(bits),
                _ => Err(RuleError::invalid(at, expected)),
            }
        };
        match ip.parse::<IpAddr>() {
            Ok(IpAddr::V4(ip)) => {
                let bits = bits(32, "a number of bits, 0 to 32")?;
                let first = u32::from_be_bytes(ip.octets()) & mask32(bits);
                Ok(Kind::V4 { first, bits })
            }
            Ok(IpAddr::V6(ip)) => {
                let bits = bits(128, "a number of bits, 0 to 128")?;
                let first = u128::from_be_bytes(ip.octets()) & mask128(bits);
                Ok(Kind::V6 { first, bits })
            }
            Err(_) => Err(RuleError::invalid(0, "an IPv4 or IPv6 address before '/'")),
        }
    }

    /// Parses four parts separated by dots.
    fn parts(
        text: &str,
        keep: &mut dyn FnMut(NumberRange) -> Result<usize, NoMemory>,
    ) -> Result<Kind, RuleError> {
        let mut scan = Scanner::part(text);
        let mut parts = [Span::default(); 4];
        for (i, part) in parts.iter_mut().enumerate() {
            if i > 0 && !scan.skip(b'.') {
                return Err(scan.expected("'.' (an IPv4 address has four parts)"));
            }
            *part = match scan.peek() {
                Some(b'*') => {
                    scan.skip(b'*');
                    Span::default()
                }
                Some(b'[') => ranges(&mut scan, 255, keep)?,
                _ => {
                    let expected = "an IP address; each part 0 to 255, '*' or '['";
                    let lo = number(&mut scan, 255, expected)?;
                    let at = keep(NumberRange {
                        lo,
                        hi: lo,
                        stride: 1,
                    })?;
                    Span::new(at, at.saturating_add(1))
                }
            };
        }
        end(&scan)?;
        Ok(Kind::Parts(parts))
    }

    /// Returns true if the pattern matches `nid`; `ranges` is the array that the pattern was parsed
    /// with.
    pub fn has(&self, nid: &Nid, ranges: &[NumberRange]) -> bool {
        if (self.net, self.number) != (nid.net(), nid.number()) {
            return false;
        }
        match (self.kind, nid.address()) {
            (Kind::Any, _) => true,
            (Kind::V4 { first, bits }, Address::V4(ip)) => {
                u32::from_be_bytes(ip) & mask32(bits) == first
            }
            (Kind::V6 { first, bits }, Address::V6(ip)) => {
                u128::from_be_bytes(ip) & mask128(bits) == first
            }
            (Kind::Parts(parts), Address::V4(ip)) => parts.iter().zip(ip).all(|(part, number)| {
                let ranges = part.of(ranges);
                ranges.is_empty() || ranges.iter().any(|range| range.has(u32::from(number)))
            }),
            (Kind::Numbers(span), Address::Number(node)) => {
                span.of(ranges).iter().any(|range| range.has(node))
            }
            _ => false,
        }
    }

    /// Computes the guard that every matching identifier passes; `ranges` is the array that the
    /// pattern was parsed with.
    pub fn guard(&self, ranges: &[NumberRange]) -> NidGuard {
        let (mask, bits) = match self.kind {
            Kind::Any => (0, 0),
            Kind::V4 { first, bits } => (mask32(bits), first),
            Kind::V6 { first, bits } => (mask32(bits.min(32)), (first >> 96) as u32),
            Kind::Parts(parts) => parts.iter().fold((0, 0), |(masks, words), part| {
                let ranges = part.of(ranges);
                let (mask, bits) = if ranges.is_empty() {
                    (0, 0)
                } else {
                    common(ranges)
                };
                ((masks << 8) | (mask & 0xff), (words << 8) | (bits & 0xff))
            }),
            Kind::Numbers(span) => common(span.of(ranges)),
        };
        NidGuard {
            net: net_word(self.net, self.number),
            mask,
            bits,
        }
    }
}

/// Returns an error unless the text is at its end.
fn end(scan: &Scanner<'_>) -> Result<(), RuleError> {
    match scan.peek() {
        None => Ok(()),
        Some(_) => Err(scan.expected("'@' here")),
    }
}

/// Parses a decimal number up to `max`.
fn number(scan: &mut Scanner<'_>, max: u32, expected: &'static str) -> Result<u32, RuleError> {
    let refused = scan.expected(expected);
    let number = scan.take(|byte| byte.is_ascii_digit()).parse().ok();
    number.filter(|number| *number <= max).ok_or(refused)
}

/// Parses ranges up to `max` in brackets.
fn ranges(
    scan: &mut Scanner<'_>,
    max: u32,
    keep: &mut dyn FnMut(NumberRange) -> Result<usize, NoMemory>,
) -> Result<Span, RuleError> {
    let expected = if max == 255 {
        "a number, 0 to 255"
    } else {
        "a node number"
    };
    scan.skip(b'[');
    let mut first = None;
    loop {
        let lo = number(scan, max, expected)?;
        let (mut hi, mut stride) = (lo, 1);
        if scan.skip(b'-') {
            let backwards = scan.expected("a number not below the first number of the range");
            hi = number(scan, max, expected)?;
            if hi < lo {
                return Err(backwards);
            }
            if scan.skip(b'/') {
                let none = scan.expected(STRIDE);
                stride = number(scan, u32::MAX, STRIDE)?;
                if stride == 0 {
                    return Err(none);
                }
            }
        }
        // INVARIANT: `lo <= hi` and `stride > 0` were checked.
        let at = keep(NumberRange { lo, hi, stride })?;
        let first = *first.get_or_insert(at);
        if scan.skip(b']') {
            return Ok(Span::new(first, at.saturating_add(1)));
        }
        if !scan.skip(b',') {
            return Err(scan.expected("',' or ']'"));
        }
    }
}

/// Error text for an invalid stride.
const STRIDE: &str = "a stride, 1 or more";

#[cfg(test)]
mod tests;
