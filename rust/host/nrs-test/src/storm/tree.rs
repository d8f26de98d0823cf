// SPDX-License-Identifier: GPL-2.0-only

//! A metadata load: files come, are named anew, linked, looked at and go, and are always what they should be.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, ErrorKind},
    os::unix::fs::MetadataExt,
    path::Path,
};

use super::Run;
use crate::{random::Random, Outcome};

/// Names at a time.
const NAMES: usize = 300;

/// A file: what it holds, and under how many names.
struct Content {
    seed: u64,
    len: usize,
    links: u64,
}

impl Content {
    fn bytes(&self) -> Vec<u8> {
        let mut random = Random::new(self.seed);
        let mut bytes = Vec::with_capacity(self.len + 8);
        while bytes.len() < self.len {
            bytes.extend(random.next().to_le_bytes());
        }
        bytes.truncate(self.len);
        bytes
    }
}

/// What should be in the directory.
#[derive(Default)]
struct Model {
    names: BTreeMap<String, u64>,
    files: BTreeMap<u64, Content>,
    next: u64,
}

impl Model {
    /// A name that is not there.
    fn fresh(&mut self, random: &mut Random) -> String {
        self.next += 1;
        format!("{}/f{}", random.below(8), self.next)
    }

    fn any(&self, random: &mut Random) -> Option<(String, u64)> {
        let at = random.index(self.names.len());
        let (name, file) = self.names.iter().nth(at)?;
        Some((name.clone(), *file))
    }

    fn unlink(&mut self, name: &str) {
        let Some(file) = self.names.remove(name) else {
            return;
        };
        if let Some(content) = self.files.get_mut(&file) {
            content.links -= 1;
            if content.links == 0 {
                self.files.remove(&file);
            }
        }
    }
}

/// One operation; its name and how it ended. What differs from the model is an error without an errno.
fn step(dir: &Path, model: &mut Model, random: &mut Random) -> (&'static str, io::Result<()>) {
    let different = |what: String| Err(io::Error::other(what));
    let full = model.names.len() >= NAMES;
    let choice = if full { 8 } else { random.below(9) };
    let Some((name, file)) = model.any(random).filter(|_| choice > 2) else {
        let name = model.fresh(random);
        let most = if random.one_in(10) { 100_000 } else { 6000 };
        let content = Content {
            seed: random.next(),
            len: random.index(most),
            links: 1,
        };
        let result = fs::write(dir.join(&name), content.bytes());
        if result.is_ok() {
            model.files.insert(model.next, content);
            model.names.insert(name, model.next);
        }
        return ("create", result);
    };
    let path = dir.join(&name);
    match choice {
        3 => {
            let new = model.fresh(random);
            let result = fs::rename(&path, dir.join(&new));
            if result.is_ok() {
                model.names.remove(&name);
                model.names.insert(new, file);
            }
            ("rename", result)
        }
        4 => {
            let new = model.fresh(random);
            let result = fs::hard_link(&path, dir.join(&new));
            if result.is_ok() {
                model.names.insert(new, file);
                if let Some(content) = model.files.get_mut(&file) {
                    content.links += 1;
                }
            }
            ("link", result)
        }
        5 | 6 => {
            let result = fs::metadata(&path).and_then(|seen| match model.files.get(&file) {
                Some(content)
                    if seen.len() == content.len as u64 && seen.nlink() == content.links =>
                {
                    Ok(())
                }
                _ => different(format!(
                    "{name}: {} bytes, {} links",
                    seen.len(),
                    seen.nlink()
                )),
            });
            ("stat", result)
        }
        7 => {
            let result = fs::read(&path).and_then(|seen| match model.files.get(&file) {
                Some(content) if seen == content.bytes() => Ok(()),
                _ => different(format!("{name}: other bytes")),
            });
            ("read", result)
        }
        _ => {
            let result = fs::remove_file(&path);
            if result.is_ok() {
                model.unlink(&name);
            }
            ("unlink", result)
        }
    }
}

/// Compares all of the directory with the model; returns how many names were checked.
fn compare(dir: &Path, model: &Model) -> Outcome<u64> {
    let mut seen = 0;
    for part in 0..8 {
        for entry in fs::read_dir(dir.join(part.to_string()))? {
            let name = format!("{part}/{}", entry?.file_name().to_string_lossy());
            let content = model
                .names
                .get(&name)
                .and_then(|file| model.files.get(file));
            let content = content.ok_or_else(|| format!("{name} should not be there"))?;
            if fs::read(dir.join(&name))? != content.bytes() {
                return Err(format!("{name}: other bytes at the end").into());
            }
            seen += 1;
        }
    }
    if seen == model.names.len() as u64 {
        Ok(seen)
    } else {
        Err(format!("{seen} names are there, not {}", model.names.len()).into())
    }
}

/// Works in `dir`, which it makes and removes, until it is time.
pub fn run(run: &mut Run, dir: &Path) -> Outcome<()> {
    let Run {
        until,
        random,
        tally,
    } = run;
    let mut model = Model::default();
    for part in 0..8 {
        fs::create_dir_all(dir.join(part.to_string()))?;
    }
    while until.more() {
        let (kind, result) = step(dir, &mut model, random);
        let text = result.as_ref().err().map(ToString::to_string);
        tally.answer(&format!("tree {kind}"), &result, &[], || {
            text.unwrap_or_default()
        });
        if matches!(&result, Err(error) if error.kind() == ErrorKind::ReadOnlyFilesystem) {
            return Err("the file system is read-only".into());
        }
    }
    match compare(dir, &model) {
        Ok(names) => (0..names).for_each(|_| tally.count("tree name compared at the end", 0)),
        Err(error) => tally.finding(format!("tree: {error}")),
    }
    fs::remove_dir_all(dir)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_behind_its_back_is_found() {
        let dir = std::env::temp_dir().join(format!("nrs-storm-tree-{}", std::process::id()));
        for part in 0..8 {
            fs::create_dir_all(dir.join(part.to_string())).unwrap();
        }
        let (mut model, mut random) = (Model::default(), Random::new(5));
        for _ in 0..400 {
            let (kind, result) = step(&dir, &mut model, &mut random);
            assert!(result.is_ok(), "{kind}: {result:?}");
        }
        let names = compare(&dir, &model).unwrap();
        assert!(names > 0);
        let (name, _) = model.any(&mut random).unwrap();
        fs::remove_file(dir.join(&name)).unwrap();
        assert!(compare(&dir, &model).is_err());
        fs::write(dir.join(&name), b"other").unwrap();
        assert!(compare(&dir, &model).is_err());
        fs::remove_dir_all(&dir).unwrap();
    }
}
