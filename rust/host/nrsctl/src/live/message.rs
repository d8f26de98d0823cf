// SPDX-License-Identifier: GPL-2.0-only

//! Messages to a client of a service, for kernels that are locked down: `dmsetup message DEVICE 0 service NAME VALUE`.

use super::dmsetup::Dmsetup;
use super::transport::{Refused, Result, Transport};

/// Messages, by `dmsetup`.
#[derive(Debug)]
pub struct Message<'a>(pub &'a Dmsetup);

/// `value` as one line: what has several lines there has statements.
fn one_line(value: &str) -> String {
    let lines = value.lines().map(|line| match comment(line) {
        Some(at) => &line[..at],
        None => line,
    });
    let lines: Vec<&str> = lines
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    lines.join(" ; ")
}

/// Where the comment of a line begins.
fn comment(line: &str) -> Option<usize> {
    let bytes = line.as_bytes();
    (0..bytes.len()).find(|&at| {
        let before = at.checked_sub(1).map_or(b' ', |before| bytes[before]);
        bytes[at] == b'#' && matches!(before, b' ' | b'\t' | b';')
    })
}

/// `word` so that device-mapper, which takes backslashes away, has it as it is.
fn escape(word: &str) -> String {
    word.replace('\\', "\\\\")
}

/// The words of `value`, so that device-mapper takes them as they are.
fn words(parameter: &str, value: &str) -> Vec<String> {
    let text = match parameter {
        "nrs_qbm_config" => one_line(value),
        _ => value.to_owned(),
    };
    let words = text.split_ascii_whitespace();
    let mut words: Vec<String> = words.map(escape).collect();
    if words.is_empty() {
        // A message without a value asks for one. These take the empty text and anything.
        words.push(
            if parameter == "nrs_qbm_config" {
                ";"
            } else {
                "1"
            }
            .into(),
        );
    }
    words
}

impl Message<'_> {
    /// A client of `service`.
    fn device(&self, service: &str) -> Result<String> {
        let devices = self.0.devices()?;
        let mut devices = devices.into_iter();
        let found = devices.find(|device| device.service == service);
        found.map(|device| device.name).ok_or(Refused::ABSENT)
    }
}

impl Transport for Message<'_> {
    fn services(&self) -> Result<Vec<String>> {
        let devices = self.0.devices()?;
        Ok(devices.into_iter().map(|device| device.service).collect())
    }

    fn get(&self, service: &str, parameter: &str) -> Result<String> {
        self.0
            .message(&self.device(service)?, &["service", parameter])
    }

    fn set(&self, service: &str, parameter: &str, value: &str) -> Result {
        let words = words(parameter, value);
        let mut message = vec!["service", parameter];
        message.extend(words.iter().map(String::as_str));
        self.0.message(&self.device(service)?, &message).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_become_words() {
        for (parameter, value, want) in [
            ("slots", "16\n", &["16"][..]),
            ("nrs_policies", "tbf  uid", &["tbf", "uid"]),
            ("nrs_fairshare_weights", "jobid:a\\b:2", &["jobid:a\\\\b:2"]),
            ("at_stats_reset", "", &["1"]),
            ("nrs_qbm_config", "\n", &[";"]),
            (
                "nrs_qbm_config",
                "by uid # who\n\n# all\ngroup a#b capacity=1MB/s\n",
                &["by", "uid", ";", "group", "a#b", "capacity=1MB/s"],
            ),
        ] {
            assert_eq!(words(parameter, value), want, "{value:?}");
        }
    }
}
