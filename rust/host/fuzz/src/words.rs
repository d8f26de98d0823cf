// SPDX-License-Identifier: GPL-2.0-only

//! Words and numbers with units. The first byte selects a setting of groups of plans; the rest is
//! the text for this setting, and for all types parsed from words.

use nrs_sched::{
    attr::Opcode,
    key::Field,
    policy::fairshare::mode::{Level, Mode, DEPTH_MAX},
    priority_sources::PrioritySources,
    qbm::terms::BandwidthClass,
    rules::{Fields, Name, Rate, Unit, NAME_MAX},
};

use crate::{check_reason, plan, read_back};

/// Settings of a group, each after the settings that it requires.
const SETTINGS: [&str; 10] = [
    "capacity",
    "capacity=1TiB target",
    "capacity=1TiB strategy",
    "capacity=1TiB class",
    "capacity=1TiB min",
    "capacity=1TiB max",
    "capacity=1TiB reserve_first_come",
    "capacity=1TiB reserve_fair_share",
    "capacity=1TiB reserve_low_share",
    "capacity=1TiB reserve_mover",
];

/// Checks modes of `fairshare`.
fn mode(text: &str) {
    let Some(mode) = read_back(text, |text| {
        Mode::parse(text).inspect_err(check_reason).ok()
    }) else {
        return;
    };
    let levels = mode.levels();
    // A mode has a long form, and a short form if it has several levels.
    let names: Vec<_> = levels.iter().map(|level| level.name()).collect();
    let said = text.strip_suffix('\n').unwrap_or(text);
    assert!(said == mode.to_string() || names.len() > 1 && said == names.join("+"));
    assert!((1..=DEPTH_MAX).contains(&levels.len()));
    assert_eq!(levels.len(), mode.depth());
    assert_eq!(mode.has_size(), levels.contains(&Level::Size));
    for (at, level) in levels.iter().enumerate() {
        let mut before = levels[..at].iter();
        assert!(before.all(|other| other.field() != level.field()));
    }
}

/// Checks sets of fields.
fn fields(text: &str) {
    let Some(fields) = read_back(text, |text| {
        Fields::parse(text).inspect_err(check_reason).ok()
    }) else {
        return;
    };
    let count = fields.iter().count();
    assert!(count >= 1 && fields.to_string().len() <= 64);
    let words: Vec<Field> = text.split('+').filter_map(Field::parse).collect();
    assert!(text == "generic" || words.iter().all(|field| fields.has(*field)));
    assert!(text == "generic" || words.len() >= count);
    assert_eq!(fields.single().is_some(), count == 1);
}

/// Checks sources of high priority.
fn sources(text: &str) {
    let Some(sources) = read_back(text, |text| {
        PrioritySources::parse(text).inspect_err(check_reason).ok()
    }) else {
        return;
    };
    assert_eq!(PrioritySources::from_bits(sources.bits()), sources);
    let words = text.split_ascii_whitespace().count();
    let shown = sources.to_string();
    assert!(
        words == shown.split(' ').count() || text.trim() == "none",
        "{text:?}"
    );
}

/// Checks the text as each type.
pub fn run(first: u8, text: &str) {
    mode(text);
    fields(text);
    sources(text);
    if let Some(rate) = read_back(text, Rate::parse) {
        assert_eq!(Rate::new(rate.per_second(), rate.unit()), Some(rate));
        // A rate without a unit is a number.
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        assert_eq!(rate.unit() == Unit::Plain, digits, "{text:?}");
    }
    if let Some(name) = read_back(text, Name::new) {
        assert_eq!(name.as_str(), text);
        assert!(text.len() <= NAME_MAX && text.bytes().all(Name::takes));
    }
    if let Some(opcode) = read_back(text, Opcode::parse) {
        assert_eq!(opcode.name(), Some(text));
    }
    if let Some(field) = Field::parse(text) {
        assert_eq!(field.name(), text);
    }
    if let Some(class) = BandwidthClass::parse(text) {
        assert_eq!(BandwidthClass::parse(class.name()), Some(class));
    }
    let setting = SETTINGS[usize::from(first) % SETTINGS.len()];
    plan::run(&format!("group g {setting}={text}"));
}
