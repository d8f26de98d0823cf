// SPDX-License-Identifier: GPL-2.0-only

//! Valid changes of a service that carries load.

use std::{
    error::Error,
    fs::{self, File},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use crate::{
    allowed,
    chance::Chance,
    message,
    tally::Tally,
    words::{self, BUSY, GENTLE_DELAY, WRITTEN},
    Until,
};

/// Where services have their files.
pub const DEBUGFS: &str = "/sys/kernel/debug/nrs";

/// Writes `value` to a control file, as one write.
///
/// # Errors
///
/// Those of `open` and `write`.
pub fn put(path: &Path, value: &[u8]) -> io::Result<()> {
    let mut file = File::options().write(true).open(path)?;
    match file.write(value)? {
        len if len == value.len() => Ok(()),
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}

/// Where commands can be written, with the reason of a refusal to be read.
pub const NODE: &str = "/dev/nrs-control";

/// Has the control node set `file` of `service` to `value`, and reads its answer.
///
/// # Errors
///
/// Those of `open`, `write` and `read`.
fn set(service: &str, file: &str, value: &str) -> io::Result<()> {
    let mut node = File::options().read(true).write(true).open(NODE)?;
    let done = node.write(format!("set {service} {file} {value}").as_bytes());
    let mut answer = Vec::new();
    node.read_to_end(&mut answer)?;
    done.map(drop)
}

/// What kind of file it is, for the counts.
pub fn kind_of(file: &str) -> &'static str {
    match file {
        "nrs_policies" => "policy",
        "nrs_tbf_rule" => "tbf rule",
        "nrs_qbm_config" => "qbm plan",
        "nrs_fairshare_mode" | "nrs_fairshare_weights" => "fairshare",
        "slots" | "buffer_max" | "stall_ms" => "slots",
        _ if file.ends_with("_reset") => "reset",
        _ if file.starts_with("at_") || file == "obd_timeout" => "timeout terms",
        _ if file.starts_with("nrs_pop") || file.starts_with("high_") => "order and priority",
        _ => "tunable",
    }
}

/// Changes `service` until it is time; some of it by messages to `device`.
pub fn run(
    service: &str,
    device: Option<&str>,
    until: &Until,
    chance: &mut Chance,
    tally: &mut Tally,
) -> Result<(), Box<dyn Error>> {
    let dir = PathBuf::from(DEBUGFS).join(service);
    for (file, value) in GENTLE_DELAY {
        // Without memory now, with memory later.
        while let Err(error) = put(&dir.join(file), value.as_bytes()) {
            if error.raw_os_error() != Some(libc::ENOMEM) || !until.more() {
                return Err(format!("{}: {error}", dir.join(file).display()).into());
            }
        }
    }
    while until.more() {
        let file = if chance.one_in(2) {
            chance.pick(BUSY)
        } else {
            chance.pick(WRITTEN)
        };
        let path = dir.join(file);
        if chance.one_in(8) {
            let kind = format!("read {}", kind_of(file));
            if !file.ends_with("_reset") {
                let result = fs::read(&path);
                tally.answer(&kind, &result, allowed::read(file), || file.to_owned());
            }
            continue;
        }
        let value = words::value(file, true, chance);
        match device {
            Some(device) if chance.one_in(25) && !value.starts_with('-') => {
                let value = value.replace('\n', ";");
                let kind = format!("message {}", kind_of(file));
                let words = ["service", file, &value].map(|word| word.as_bytes().to_vec());
                let result = message::send(device, &words);
                let allowed = allowed::write(file, true);
                tally.answer(&kind, &result, &allowed, || format!("{file} = {value}"));
            }
            _ => {
                let (result, way) = match Path::new(NODE).exists() && chance.one_in(2) {
                    true => (set(service, file, &value), "set"),
                    false => (put(&path, value.as_bytes()), "write"),
                };
                let kind = format!("{way} {}", kind_of(file));
                let allowed = allowed::write(file, true);
                tally.answer(&kind, &result, &allowed, || format!("{file} = {value}"));
            }
        }
    }
    Ok(())
}
