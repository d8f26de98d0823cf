// SPDX-License-Identifier: GPL-2.0-only

//! Every parameter of the schema. The first byte selects a parameter that stores a value; each line
//! of the rest is a value for it. The whole text is a value for the parameters that are texts.

use nrs_sched::parameters::{all, Parameter, ValueAccessors, Values};

use crate::check_reason;

/// Returns the text of parameter `stored` of `values`.
fn shown(stored: &ValueAccessors, values: &Values) -> String {
    let mut text = String::new();
    (stored.show)(values, &mut text).expect("strings take all");
    text
}

/// Checks the value `text` of `parameter`; sets it in `values` if it is accepted.
fn set(parameter: &Parameter, stored: &ValueAccessors, values: &mut Values, text: &str) {
    let (name, before) = (parameter.name(), *values);
    match values.set(stored, text) {
        Ok(()) => {
            let check = parameter.check.expect("stored parameters have a check");
            assert_eq!(check(text), Ok(()), "{name} {text:?}");
            assert_eq!(values.check(), Ok(()), "{name} {text:?}");
            let text = shown(stored, values);
            assert_eq!(
                text.lines().count(),
                1 + usize::from(parameter.heads),
                "{name}"
            );
            // The printed text is accepted, a line at a time, and yields the same value.
            let mut again = *values;
            for line in text.lines() {
                assert_eq!(
                    again.set(stored, line.trim_end()),
                    Ok(()),
                    "{name} {line:?}"
                );
            }
            assert_eq!(again, *values, "{name} {text:?}");
        }
        Err(error) => {
            assert_eq!(*values, before, "{name} {text:?}");
            check_reason(&error);
        }
    }
}

/// Checks the lines of `text` as values of the parameter that the first byte selects.
pub fn run(first: u8, text: &str) {
    let stored: Vec<_> = all()
        .filter_map(|one| Some((one, one.value.as_ref()?)))
        .collect();
    let mut values = Values::default();
    for (at, line) in text.split_inclusive('\n').take(32).enumerate() {
        // Values of adjacent parameters may contradict each other.
        let which = (usize::from(first) + at % 3) % stored.len();
        let (parameter, stored) = stored[which];
        set(parameter, stored, &mut values, line);
    }
    for check in all()
        .filter(|one| one.value.is_none())
        .filter_map(|one| one.check)
    {
        if let Err(error) = check(text) {
            check_reason(&error);
        }
    }
}
