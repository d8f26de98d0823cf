// SPDX-License-Identifier: GPL-2.0-only

//! Valid changes of a service under load.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use nrs_sched::parameters;

use super::{
    allowed, message,
    words::{self, BUSY, GENTLE_DELAY},
    StormRun,
};
use crate::{random::Draw, Outcome};
use anyhow::bail;

/// Directory of services in debugfs.
pub const DEBUGFS: &str = "/sys/kernel/debug/nrs";

/// Writes `value` to a control file in one call.
///
/// # Errors
///
/// Errors of `open` and `write`.
pub fn put(path: &Path, value: &[u8]) -> io::Result<()> {
    let mut file = File::options().write(true).open(path)?;
    match file.write(value)? {
        len if len == value.len() => Ok(()),
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}

/// Path of the control node.
const NODE: &str = "/dev/nrs-control";

/// Sets `file` of `service` to `value` through the control node, and reads the answer.
///
/// # Errors
///
/// Errors of `open`, `write` and `read`.
fn set(service: &str, file: &str, value: &str) -> io::Result<()> {
    let mut node = File::options().read(true).write(true).open(NODE)?;
    let done = node.write(format!("set {service} {file} {value}").as_bytes());
    let mut answer = Vec::new();
    node.read_to_end(&mut answer)?;
    done.map(drop)
}

/// Returns the kind of a parameter, for the counts: the page that describes it.
pub fn kind_of(file: &str) -> &'static str {
    let parameter = parameters::named(file);
    parameter.map_or("other", |parameter| parameter.page.trim_end_matches(".md"))
}

/// Changes `service`, sometimes by messages to `device`.
pub fn run(run: &mut StormRun, service: &str, device: Option<&str>) -> Outcome<()> {
    let StormRun(until, random, tally) = run;
    let dir = PathBuf::from(DEBUGFS).join(service);
    for (file, value) in GENTLE_DELAY.lines().filter_map(|line| line.split_once(' ')) {
        // A lack of memory may be temporary.
        while let Err(error) = put(&dir.join(file), value.as_bytes()) {
            if error.raw_os_error() != Some(libc::ENOMEM) || !until.more() {
                bail!("{}: {error}", dir.join(file).display());
            }
        }
    }
    let written = words::written();
    while until.more() {
        let files = if random.one_in(2) { BUSY } else { &written };
        let file = random.pick(files);
        let path = dir.join(file);
        if random.one_in(8) {
            if parameters::named(file).is_none_or(|one| one.access.reads()) {
                let kind = format!("read {}", kind_of(file));
                let result = fs::read(&path);
                tally.answer(&kind, &result, allowed::read(file), file);
            }
            continue;
        }
        let value = words::value(file, true, random);
        let (result, way) = match device {
            Some(device) if random.one_in(25) && !value.starts_with('-') => {
                let value = value.replace('\n', ";");
                (message::send(device, &["service", file, &value]), "message")
            }
            _ if Path::new(NODE).exists() && random.one_in(2) => {
                (set(service, file, &value), "set")
            }
            _ => (put(&path, value.as_bytes()), "write"),
        };
        let kind = format!("{way} {}", kind_of(file));
        let allowed = allowed::write(file, true);
        tally.answer(&kind, &result, &allowed, format_args!("{file} = {value}"));
    }
    Ok(())
}
