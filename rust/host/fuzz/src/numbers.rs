// SPDX-License-Identifier: GPL-2.0-only

//! Numbers with units: rates of rules, names, and bandwidths, percentages and targets as the settings of groups of
//! plans. The first byte names a setting, the rest is the text for all of them.

use nrs_sched::{
    qbm::terms::Class,
    rules::{Name, Rate, Unit, NAME_MAX},
};

use super::plan;

/// Settings of a group, with what they need before them.
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

/// Takes the text as each of them.
pub fn run(data: &[u8]) {
    let Some((&first, rest)) = data.split_first() else {
        return;
    };
    let Ok(text) = core::str::from_utf8(rest) else {
        return;
    };
    if let Some(rate) = Rate::parse(text) {
        let shown = rate.to_string();
        assert_eq!(Rate::parse(&shown), Some(rate), "{text:?} {shown:?}");
        assert_eq!(Rate::new(rate.per_second(), rate.unit()), Some(rate));
        // A number without a unit has no unit.
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        assert_eq!(rate.unit() == Unit::Plain, digits, "{text:?}");
    }
    if let Some(name) = Name::new(text) {
        assert_eq!(name.as_str(), text);
        assert!(text.len() <= NAME_MAX && text.bytes().all(Name::takes));
    }
    if let Some(class) = Class::parse(text) {
        assert_eq!(Class::parse(class.name()), Some(class));
    }
    let setting = SETTINGS[usize::from(first) % SETTINGS.len()];
    plan::run(format!("group g {setting}={text}").as_bytes());
}
