// SPDX-License-Identifier: GPL-2.0-only

//! Numbers with units: rates of rules, names, and bandwidths, percentages and targets as the settings of groups and
//! clients of plans. The first byte names a setting, the rest is the text for all of them.

use nrs_sched::{
    qbm::{
        plan::{Promise, Setting, Settings, Value},
        terms::Class,
    },
    rules::{Name, Rate, Unit, NAME_MAX},
};

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
    if let Some(setting) = Setting::parse(text) {
        assert_eq!(setting.name(), text);
    }
    let setting = Setting::ALL[usize::from(first) % Setting::ALL.len()];
    let mut settings = Settings::default();
    match settings.set(setting, text) {
        Ok(()) => {
            let shown = Value(&settings, setting).to_string();
            let mut again = Settings::default();
            assert_eq!(again.set(setting, &shown), Ok(()), "{text:?} {shown:?}");
            assert_eq!(again, settings);
            assert_eq!(settings.set(setting, ""), Ok(()));
            assert_eq!(settings, Settings::default());
        }
        Err(reason) => {
            assert!(!reason.is_empty() && !reason.contains('\n'));
            assert_eq!(settings, Settings::default());
        }
    }
    let mut promise = Promise::default();
    if promise.set(setting, text).is_ok() {
        let shown = Value(&promise, setting).to_string();
        let mut again = Promise::default();
        assert_eq!(again.set(setting, &shown), Ok(()));
        assert_eq!(again, promise);
    }
}
