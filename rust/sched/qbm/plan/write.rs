// SPDX-License-Identifier: GPL-2.0-only

//! Writing a plan as the text that makes it.

use super::{
    settings::{write_promise, Promise, Setting, Settings, Value},
    tune, By, Plan,
};
use core::fmt;

impl Plan {
    /// Writes the plan, one statement per line; nothing for what is as it is by default.
    ///
    /// # Errors
    ///
    /// What `out` answers.
    pub fn write(&self, out: &mut (impl fmt::Write + ?Sized)) -> fmt::Result {
        if self.by() != By::default() {
            writeln!(out, "by {}", self.by())?;
        }
        tune::write(self.tuning(), out)?;
        if *self.defaults() != Promise::NONE {
            out.write_str("default")?;
            write_promise(self.defaults(), out)?;
            out.write_char('\n')?;
        }
        for group in self.groups() {
            write!(out, "group {}", group.name())?;
            for setting in Setting::ALL.into_iter() {
                if is_set(group.settings(), setting) {
                    write!(
                        out,
                        " {}={}",
                        setting.name(),
                        Value(group.settings(), setting)
                    )?;
                }
            }
            out.write_char('\n')?;
        }
        for (index, client) in (0u32..).zip(self.clients()) {
            write!(out, "client {}", self.client_name(index))?;
            write_promise(client.promise(), out)?;
            let group = client.group();
            let group = group.and_then(|group| self.groups().get(group as usize));
            if let Some(group) = group {
                write!(out, " group={}", group.name())?;
            }
            out.write_char('\n')?;
        }
        Ok(())
    }
}

/// Whether `setting` is not what it is by default.
fn is_set(settings: &Settings, setting: Setting) -> bool {
    match setting {
        Setting::Capacity => settings.capacity.is_some(),
        Setting::Target => settings.target.is_some(),
        Setting::Strategy => settings.mover,
        Setting::Class => settings.promise.class.is_some(),
        Setting::Min => settings.promise.min.is_some(),
        Setting::Max => settings.promise.max.is_some(),
        Setting::Reserve(class) => settings.reserve(class).is_some(),
    }
}
