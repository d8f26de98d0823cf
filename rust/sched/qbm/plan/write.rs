// SPDX-License-Identifier: GPL-2.0-only

//! Conversion of a plan to text.

use super::{settings::EntitlementSpec, tune, By, Plan};
use core::fmt;

impl Plan {
    /// Writes the plan, one statement per line, without defaults.
    ///
    /// # Errors
    ///
    /// Any error of `out`.
    pub fn write(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        if self.by() != By::default() {
            writeln!(out, "by {}", self.by())?;
        }
        tune::write(self.tuning(), out)?;
        if self.defaults != EntitlementSpec::NONE {
            out.write_str("default")?;
            self.defaults.write(out)?;
            out.write_char('\n')?;
        }
        for group in self.groups() {
            write!(out, "group {}", group.name())?;
            group.settings().write(out)?;
            out.write_char('\n')?;
        }
        for client in self.clients.as_slice() {
            let name = client.name(self.names.as_slice());
            let name = core::str::from_utf8(name).unwrap_or_default();
            write!(out, "client {name}")?;
            client.promise.write(out)?;
            let group = client.group.map(|group| group as usize);
            if let Some(group) = group.and_then(|group| self.groups().get(group)) {
                write!(out, " group={}", group.name())?;
            }
            out.write_char('\n')?;
        }
        Ok(())
    }
}
