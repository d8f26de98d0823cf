// SPDX-License-Identifier: GPL-2.0-only

//! Reader of recordings.

use serde::de::DeserializeOwned;

use super::{Header, Recording, VERSION};
use crate::failure::{failure, Result};
use crate::stats::Snapshot;

/// Reads a recording; errors refer to the file as `name`.
///
/// # Errors
///
/// `Refused` with the line number, if a line is invalid. A truncated last line is
/// not an error.
pub fn read(text: &[u8], name: &str) -> Result<Recording> {
    let refused = |number: u64, why: &str| failure!(Refused: "{name}: line {number}: {why}");
    let mut lines = (1..).zip(text.split_inclusive(|byte| *byte == b'\n'));
    let Some((_, first)) = lines.next() else {
        return Err(refused(1, "not a recording: the file is empty").hint(MAKE));
    };
    let header: Header = match parsed(first) {
        Ok(header) => header,
        Err(why) => {
            let why = format!("not a recording: invalid header: {why}");
            return Err(refused(1, &why).hint(MAKE));
        }
    };
    if header.nrs_recording != VERSION {
        let found = header.nrs_recording;
        let why = format!("unsupported format version {found} (supported: {VERSION})");
        return Err(refused(1, &why).hint("use the version of nrsctl that wrote the recording"));
    }

    let mut recording = Recording {
        header,
        snapshots: Vec::new(),
        cut: None,
    };
    for (number, line) in lines {
        match parsed::<Snapshot>(line) {
            Ok(snapshot) if snapshot.service.is_empty() => {
                return Err(refused(number, "invalid snapshot: service is empty"));
            }
            Ok(snapshot) => recording.snapshots.push(snapshot),
            Err(_) if !line.ends_with(b"\n") => recording.cut = Some(number),
            Err(why) => return Err(refused(number, &format!("invalid snapshot: {why}"))),
        }
    }
    Ok(recording)
}

/// Hint for an input that is not a recording.
const MAKE: &str = "create a recording: nrsctl record --count 60 --out FILE";

/// Parses the value of a line; fails with the column and the reason.
fn parsed<T: DeserializeOwned>(line: &[u8]) -> std::result::Result<T, String> {
    serde_json::from_slice(line).map_err(|error| {
        // The text is one line of the file, so its own line number is dropped.
        let (column, why) = (error.column(), error.to_string());
        let why = why.split(" at line ").next().unwrap_or_default();
        format!("column {column}: {why}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::FailureKind;

    const HEADER: &str = r#"{"nrs_recording":1,"started_s":7,"interval_s":0.5}"#;
    const A: &str = r#"{"service":"a","at_ns":2}"#;
    const B: &str = r#"{"service":"b","at_ns":1}"#;

    fn of(text: &str) -> Result<Recording> {
        read(text.as_bytes(), "f")
    }

    #[test]
    fn lines_are_snapshots() {
        let whole = format!("{HEADER}\n{B}\n{A}\n");
        let recording = of(&whole).unwrap();
        assert_eq!(
            (recording.header.started_s, recording.header.interval_s),
            (7, 0.5)
        );
        assert_eq!(
            (recording.services(), recording.cut),
            (vec!["a".into(), "b".into()], None)
        );
        assert_eq!(recording.of("a").map(|s| s.at_ns).collect::<Vec<_>>(), [2]);
        // A truncated last line is left out; a missing line feed alone is no truncation.
        let second = HEADER.len() + B.len() + 2;
        for end in second + 1..whole.len() {
            let recording = of(&whole[..end]).unwrap();
            let cut = (end < whole.len() - 1).then_some(3);
            let count = if cut.is_some() { 1 } else { 2 };
            assert_eq!(
                (recording.snapshots.len(), recording.cut),
                (count, cut),
                "{end}"
            );
        }
    }

    #[test]
    fn errors_name_the_line() {
        for (text, want) in [
            (String::new(), "1: not a recording: the file is empty"),
            ("{".into(), "1: not a recording: invalid header"),
            ("\u{0}\u{1}".into(), "1: not a recording: invalid header"),
            (format!("{A}\n"), "1: not a recording: invalid header"),
            (
                HEADER.replace(":1,", ":2,"),
                "1: unsupported format version 2 (supported: 1)",
            ),
            (
                format!("{HEADER}\n{A}\n{{}}\n"),
                "3: invalid snapshot: service is empty",
            ),
            (format!("{HEADER}\n{A}\n\n{A}"), "3: invalid snapshot"),
            (
                format!("{HEADER}\n{}\n", A.replace(":2", ":-1")),
                "2: invalid snapshot",
            ),
        ] {
            let failure = of(&text).unwrap_err();
            assert_eq!(failure.kind, FailureKind::Refused, "{text}");
            assert!(
                failure.message.starts_with(&format!("f: line {want}")),
                "{failure}"
            );
        }
    }
}
