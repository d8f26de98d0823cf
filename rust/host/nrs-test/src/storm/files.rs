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
use crate::{random::Random, Outcome};

/// Directory of services and rules in configfs.
const CONFIGFS: &str = "/sys/kernel/config/nrs";

/// Returns the entries of `dir`, sorted, because the order in directories is not reproducible.
fn list(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut all: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    all.sort();
    all
}

/// Returns a random element of `all`.
fn one(mut all: Vec<PathBuf>, random: &mut Random) -> Option<PathBuf> {
    let at = random.index(all.len());
    (at < all.len()).then(|| all.swap_remove(at))
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
        let offset = match random.below(3) {
            0 => 0,
            1 => random.below(5000),
            _ => random.odd_number() >> 1,
        };
        let len = match random.below(3) {
            0 => random.below(8),
            1 => random.below(70_000),
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
    let services = list(Path::new(DEBUGFS));
    let services = services.into_iter();
    let services = services.filter(|dir| name_of(dir).starts_with(prefix));
    let Some(dir) = one(services.collect(), random) else {
        return;
    };
    // Services created in configfs are removed while their files are open.
    let gone = if name_of(&dir) == prefix {
        &[][..]
    } else {
        allowed::GONE
    };
    if random.one_in(4) {
        let Some(path) = one(list(&dir), random) else {
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
        tally.answer("debugfs read", &result, &all, || file.clone());
        return;
    }
    let file = if random.one_in(10) {
        match one(list(&dir), random) {
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
    tally.answer(&kind, &result, &all, || {
        format!("{file} = {}", String::from_utf8_lossy(&text))
    });
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
    let number = random.below(3);
    let service = Path::new(CONFIGFS).join(format!("{prefix}{number}"));
    match random.below(10) {
        0 => {
            let result = fs::create_dir(&service);
            let said = || name_of(&service);
            tally.answer("configfs mkdir", &result, allowed::MKDIR, said);
        }
        1 | 2 => {
            let number = random.below(4);
            let rule = name(&format!("r{number}"), random);
            let path = service.join("rules").join(rule);
            let result = fs::create_dir(&path);
            let said = || path.display().to_string();
            tally.answer("configfs mkdir", &result, allowed::MKDIR, said);
        }
        3 => {
            // Deep directories first, because only empty directories can be removed.
            let all = directories(prefix);
            let rest = all.len() - random.index(all.len().min(4));
            if let Some(path) = all.get(rest.saturating_sub(1)) {
                let result = fs::remove_dir(path);
                let said = || path.display().to_string();
                tally.answer("configfs rmdir", &result, allowed::RMDIR, said);
            }
        }
        _ => {
            let Some(dir) = one(directories(prefix), random) else {
                return;
            };
            let attributes = list(&dir).into_iter().filter(|path| !path.is_dir());
            let Some(path) = one(attributes.collect(), random) else {
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
                let said = || path.display().to_string();
                tally.answer("configfs read", &result, &all, said);
                return;
            }
            let mut text = attribute(&name_of(&path), random).into_bytes();
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
            tally.answer("configfs write", &result, &all, || {
                format!("{} = {}", path.display(), String::from_utf8_lossy(&text))
            });
        }
    }
}

/// Returns a value for an attribute.
fn attribute(name: &str, random: &mut Random) -> String {
    match name {
        "cpts" => random.within(1, 3).to_string(),
        "slots" => random.within(1, 200).to_string(),
        "match" => random
            .pick(&["uid={1000}", "jobid={a b}", "uid={1}&gid={2}"])
            .into(),
        "head" => random.pick(&["reg", "hp", "all"]).into(),
        "enabled" | "realtime" | "borrow" => random.below(2).to_string(),
        "rank" | "also" => random.pick(&["", "r0", "r1", "r2", "default"]).into(),
        "rate" => random.pick(&["100", "20MiB/s", "500iops"]).into(),
        "minrate" => random.pick(&["0", "1", "10"]).into(),
        _ => "idle".into(),
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
            tally.answer(&kind, &result, &allowed, || "fifo".into());
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
