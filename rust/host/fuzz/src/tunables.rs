// SPDX-License-Identifier: GPL-2.0-only

//! Every parameter of every policy and of services. The first byte names one, the rest is the text for it.

use nrs_sched::{
    error::Result,
    health::Factor,
    order::{Level, PopWindow},
    policy::{
        crrn, delay,
        delay::params as delays,
        fairshare::params as fair,
        params::{
            heads::{PerHead, Value},
            BufferMax, ClassesMax,
        },
        qbm::params::ClientsMax,
        robin::params as robin,
        tbf::params as tbf,
    },
    qbm::plan::By,
    text,
    timeouts::terms,
};

/// Reads a text, and tells how the value is shown.
type Read = fn(&str) -> Result<String>;

/// Parameters that are one word or one number.
macro_rules! words {
    ($($type:ty),+ $(,)?) => {
        &[$((stringify!($type), |text| <$type>::parse(text).map(|value| value.to_string()))),+]
    };
}

const WORDS: &[(&str, Read)] = words!(
    BufferMax,
    ClassesMax,
    ClientsMax,
    crrn::Quantum,
    robin::Quantum,
    robin::OffsetType,
    robin::Supported,
    tbf::Rate,
    tbf::Depth,
    tbf::CostModel,
    tbf::GlobalRate,
    tbf::CacheSize,
    tbf::RulesMax,
    fair::CostModel,
    fair::Select,
    fair::Locality,
    fair::CrossCpt,
    fair::SizeSource,
    fair::OppThreshold,
    fair::DeltaMs,
    fair::SizeWindowS,
    fair::SizeMax,
    delays::Min,
    delays::Max,
    delays::Pct,
    By,
    Level,
    PopWindow,
    Factor,
    terms::AtMin,
    terms::AtMax,
    terms::AtHistory,
    terms::AtExtra,
    terms::AtEarlyMargin,
    terms::AtFactor,
    terms::AtIncrement,
    terms::AtInitial,
    terms::AtDeviations,
    terms::ObdTimeout,
    terms::AtEstimator,
    terms::AtCountPolicyDelay,
);

/// Parameters of services, which may have blanks around them.
const LOOSE: &[(&str, Read)] = &[
    ("high_priority_ratio", |text| {
        text::parse_ratio(text).map(|value| value.to_string())
    }),
    ("stall_ms", |text| {
        text::parse_stall_ms(text).map(|value| value.to_string())
    }),
    ("slots", |text| {
        text::parse_slots(text).map(|value| value.to_string())
    }),
    ("a switch", |text| {
        text::parse_yes_no(text, "a switch").map(|value| text::yes_no(value).to_owned())
    }),
    ("a number", |text| {
        text::parse_u32(text, 7..=u32::MAX - 7, "a number").map(|value| value.to_string())
    }),
];

/// What holds for a parameter that is one word or one number.
fn word(name: &str, read: Read, text: &str, strict: bool) {
    match read(text) {
        Ok(shown) => {
            assert_eq!(read(&shown), Ok(shown.clone()), "{name} {text:?}");
            assert_eq!(read(&format!("{shown}\n")), Ok(shown.clone()), "{name}");
            let bare = if strict {
                text.strip_suffix('\n').unwrap_or(text)
            } else {
                text.trim()
            };
            let same = match (bare.parse::<u64>(), shown.parse::<u64>()) {
                // Zeros may stand before a number.
                (Ok(number), Ok(shown)) => number == shown && !bare.starts_with('+'),
                _ => bare == shown || !strict,
            };
            assert!(same, "{name}: {text:?} is shown as {shown:?}");
        }
        Err(error) => assert!(!error.reason.is_empty() && !error.reason.contains('\n')),
    }
}

/// What holds for a parameter with a value for each head.
fn heads<T: Value + PartialEq + core::fmt::Debug>(
    old: PerHead<T>,
    (name, longest): robin::Form,
    text: &str,
) {
    match old.with(name, longest, text) {
        Ok(new) => {
            let mut shown = String::new();
            new.write(name, &mut shown).expect("strings take all");
            // Columns are filled up, and each head has a line.
            let lines: Vec<&str> = shown.lines().map(str::trim_end).collect();
            assert_eq!(lines.len(), 2);
            let again = lines
                .iter()
                .try_fold(old, |old, line| old.with(name, longest, line));
            assert_eq!(again, Ok(new), "{text:?} {shown:?}");
            // Both on one line fit, too.
            assert_eq!(
                old.with(name, longest, &lines.join(" ")),
                Ok(new),
                "{shown:?}"
            );
            assert!(text.trim_end().len() <= longest);
        }
        Err(error) => assert!(!error.reason.is_empty() && !error.reason.contains('\n')),
    }
}

/// What holds for the delays: the least one is never above the largest one.
fn delays(text: &str) {
    let mut tunables = delay::Tunables::default();
    for (at, line) in text.split('\n').take(32).enumerate() {
        let before = tunables;
        let set = match line
            .as_bytes()
            .first()
            .copied()
            .unwrap_or(b'0')
            .wrapping_add(at as u8)
            % 3
        {
            0 => tunables.set_min(line),
            1 => tunables.set_max(line),
            _ => tunables.set_pct(line),
        };
        assert!(set.is_ok() || tunables == before, "{line:?}");
        assert!(tunables.min.regular.get() <= tunables.max.regular.get());
        assert!(tunables.min.high.get() <= tunables.max.high.get());
        heads(before.min, delays::MIN, line);
        heads(before.max, delays::MAX, line);
        heads(before.pct, delays::PCT, line);
    }
}

/// Takes the first byte as the name of a parameter, the rest as the text for it.
pub fn run(data: &[u8]) {
    let Some((&first, rest)) = data.split_first() else {
        return;
    };
    let Ok(text) = core::str::from_utf8(rest) else {
        return;
    };
    let which = usize::from(first) % (WORDS.len() + LOOSE.len() + 5);
    if let Some((name, read)) = WORDS.get(which) {
        return word(name, *read, text, true);
    }
    let which = which - WORDS.len();
    if let Some((name, read)) = LOOSE.get(which) {
        return word(name, *read, text, false);
    }
    let orr = robin::Tunables::default();
    match which - LOOSE.len() {
        0 => heads(orr.quantum, robin::QUANTUM, text),
        1 => heads(orr.offset_type, robin::OFFSET_TYPE, text),
        2 => heads(orr.supported, robin::SUPPORTED, text),
        3 => heads(crrn::Tunables::default().quantum, robin::QUANTUM, text),
        _ => delays(text),
    }
}
