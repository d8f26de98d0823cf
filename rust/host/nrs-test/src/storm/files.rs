// SPDX-License-Identifier: GPL-2.0-only

//! Valid and mutated texts written to every file of debugfs and configfs, and reads of any part of
//! the files.

use std::{
    ffi::OsString,
    fs::{self, File},
    io,
    os::unix::{
        ffi::OsStringExt,
        fs::{FileExt, PermissionsExt},
    },
    path::{Path, PathBuf},
};

use super::{
    allowed,
    change::{kind_of, put, DEBUGFS},
    tally::Tally,
    words, StormRun,
};
use crate::{
    random::{Draw, Random},
    Outcome,
};

/// Directory of services and rules in configfs.
const CONFIGFS: &str = "/sys/kernel/config/nrs";

/// Returns the entries of `dir`, sorted, because the order in directories is not reproducible.
fn list(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut all: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    all.sort();
    all
}

fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// Part of a file, bytes.
struct Part {
    offset: u64,
    len: u64,
}

impl Part {
    fn draw(random: &mut Random) -> Self {
        let offset = match random.u64(..3) {
            0 => 0,
            1 => random.u64(..5000),
            _ => random.odd_number() >> 1,
        };
        let len = match random.u64(..3) {
            0 => random.u64(..8),
            1 => random.u64(..70_000),
            _ => 4096,
        };
        Self { offset, len }
    }

    /// Reads the part, and up to two following parts.
    fn read(&self, path: &Path) -> io::Result<()> {
        let file = File::open(path)?;
        let mut buffer = vec![0; self.len as usize];
        for part in 0..3 {
            let offset = self.offset.saturating_add(part * self.len);
            if file.read_at(&mut buffer, offset)? == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Returns the errnos with which a read of this part may fail for any file: its end may exceed
    /// the maximum offset.
    fn allowed(&self) -> &'static [i32] {
        if self.offset.saturating_add(self.len) > i64::MAX as u64 {
            &[libc::EINVAL, libc::EOVERFLOW]
        } else {
            &[]
        }
    }
}

/// Reads or writes a control file of one of the services.
fn debugfs(prefix: &str, random: &mut Random, tally: &mut Tally) {
    let mut services = list(Path::new(DEBUGFS));
    services.retain(|dir| name_of(dir).starts_with(prefix));
    let Some(dir) = random.choice(services) else {
        return;
    };
    // Services created in configfs are removed while their files are open.
    let gone = if name_of(&dir) == prefix {
        &[][..]
    } else {
        allowed::GONE
    };
    if random.one_in(4) {
        let Some(path) = random.choice(list(&dir)) else {
            return;
        };
        let file = name_of(&path);
        let mode = fs::metadata(&path).map_or(0, |data| data.permissions().mode());
        let part = Part::draw(random);
        let result = part.read(&path);
        let mut all = [allowed::read(&file), gone, part.allowed()].concat();
        if mode & 0o400 == 0 {
            all.extend([libc::EINVAL, libc::EACCES, libc::EPERM]);
        }
        tally.answer("debugfs read", &result, &all, file);
        return;
    }
    let file = if random.one_in(10) {
        match random.choice(list(&dir)) {
            Some(path) => name_of(&path),
            None => return,
        }
    } else {
        random.pick(&words::written()).to_owned()
    };
    let mut text = words::value(&file, false, random).into_bytes();
    let known = words::written().contains(&file.as_str());
    let valid = known && random.one_in(2);
    if !valid {
        random.mutate(&mut text);
    }
    let result = put(&dir.join(&file), &text);
    let mut all = [&allowed::write(&file, valid), gone].concat();
    if !known {
        all.extend([libc::EINVAL, libc::EACCES, libc::EPERM]);
    }
    let kind = format!("debugfs write {}", kind_of(&file));
    let text = String::from_utf8_lossy(&text);
    tally.answer(&kind, &result, &all, format_args!("{file} = {text}"));
}

/// Returns a name for a directory, which may be invalid but can be passed to mkdir.
fn name(valid: &str, random: &mut Random) -> OsString {
    let mut bytes = valid.as_bytes().to_vec();
    if random.one_in(4) {
        random.mutate(&mut bytes);
    }
    bytes.retain(|byte| !matches!(byte, 0 | b'/'));
    bytes.truncate(255);
    if matches!(&bytes[..], b"" | b"." | b"..") {
        bytes = b"x".to_vec();
    }
    OsString::from_vec(bytes)
}

/// Returns all directories of services with the prefix, deepest last.
fn directories(prefix: &str) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = list(Path::new(CONFIGFS));
    all.retain(|dir| name_of(dir).starts_with(prefix));
    let mut next = 0;
    while next < all.len() {
        let inner = list(&all[next]);
        all.extend(inner.into_iter().filter(|path| path.is_dir()));
        next += 1;
    }
    all
}

/// Creates or removes a directory, or reads or writes an attribute.
fn configfs(prefix: &str, random: &mut Random, tally: &mut Tally) {
    let number = random.u64(..3);
    let service = Path::new(CONFIGFS).join(format!("{prefix}{number}"));
    match random.u64(..10) {
        0 => {
            let result = fs::create_dir(&service);
            tally.answer("configfs mkdir", &result, allowed::MKDIR, name_of(&service));
        }
        1 | 2 => {
            let number = random.u64(..4);
            let rule = name(&format!("r{number}"), random);
            let path = service.join("rules").join(rule);
            let result = fs::create_dir(&path);
            tally.answer("configfs mkdir", &result, allowed::MKDIR, path.display());
        }
        3 => {
            // Deep directories first, because only empty directories can be removed.
            let all = directories(prefix);
            let rest = all.len() - random.usize(..all.len().clamp(1, 4));
            if let Some(path) = all.get(rest.saturating_sub(1)) {
                let result = fs::remove_dir(path);
                tally.answer("configfs rmdir", &result, allowed::RMDIR, path.display());
            }
        }
        _ => {
            let mut attributes = random
                .choice(directories(prefix))
                .map_or(vec![], |dir| list(&dir));
            attributes.retain(|path| !path.is_dir());
            let Some(path) = random.choice(attributes) else {
                return;
            };
            if random.one_in(3) {
                let part = Part::draw(random);
                let result = part.read(&path);
                let mut all = [allowed::SHOWN, part.allowed()].concat();
                if part.len == 0 {
                    // configfs itself returns EFAULT for an empty read of an attribute with
                    // content.
                    all.push(libc::EFAULT);
                }
                tally.answer("configfs read", &result, &all, path.display());
                return;
            }
            let name = name_of(&path);
            let template = match &*name {
                "cpts" => "<1-3>",
                "slots" => "<1-200>",
                "match" => "uid={1000}|jobid={a b}|uid={1}&gid={2}",
                "head" => "reg|hp|all",
                "enabled" | "realtime" | "borrow" => "0|1",
                "rank" | "also" => "|r0|r1|r2|default",
                "rate" => "100|20MiB/s|500iops",
                "minrate" => "0|1|10",
                "burst" => "0|1s|5s",
                _ => "idle",
            };
            let mut text = words::expand(template, false, random).into_bytes();
            if random.one_in(3) {
                random.mutate(&mut text);
            }
            // configfs does not accept more at a time.
            text.truncate(4095);
            let result = put(&path, &text);
            // A missing write permission is reported before (EACCES), and for root by the file
            // system.
            let mut all = [allowed::ATTRIBUTE, &[libc::EACCES, libc::EIO]].concat();
            if text.is_empty() {
                // configfs itself returns EFAULT before the attribute is called.
                all.push(libc::EFAULT);
            }
            let (path, text) = (path.display(), String::from_utf8_lossy(&text));
            tally.answer(
                "configfs write",
                &result,
                &all,
                format_args!("{path} = {text}"),
            );
        }
    }
}

/// Makes random calls on services with `prefix` until the end.
pub fn run(run: &mut StormRun, prefix: &str) -> Outcome<()> {
    let StormRun(until, random, tally) = run;
    let policies = PathBuf::from(DEBUGFS).join(prefix).join("nrs_policies");
    let mut round = 0_u64;
    while until.more() {
        round += 1;
        // Resumes requests that the current policy delays, whatever its parameters are.
        if round % 50 == 0 {
            let result = put(&policies, b"fifo");
            let allowed = [libc::EAGAIN, libc::ENOMEM];
            let kind = format!("debugfs write {}", kind_of("nrs_policies"));
            tally.answer(&kind, &result, &allowed, "fifo");
        }
        if random.one_in(3) {
            configfs(prefix, random, tally);
        } else {
            debugfs(prefix, random, tally);
        }
    }
    // All directories must be removable; a removal in one round may depend on a removal in an
    // earlier one.
    for _ in 0..20 {
        for dir in directories(prefix).iter().rev() {
            let _ = fs::remove_dir(dir);
        }
    }
    for dir in directories(prefix) {
        tally.finding(format!(
            "configfs rmdir: {} cannot be removed",
            dir.display()
        ));
    }
    Ok(())
}
