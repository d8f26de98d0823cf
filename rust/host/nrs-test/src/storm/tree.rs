// SPDX-License-Identifier: GPL-2.0-only

//! Metadata load: files are created, renamed, linked, read and removed, and compared with a model.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, ErrorKind},
    os::unix::fs::MetadataExt,
    path::Path,
    rc::Rc,
};

use anyhow::{bail, ensure, Context as _};

use super::StormRun;
use crate::{
    random::{Draw, Random},
    Outcome,
};

/// Maximum number of names at a time.
const NAMES: usize = 300;

/// Content of a file.
struct Content {
    seed: u64,
    len: usize,
}

impl Content {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        Random::with_seed(self.seed).fill(&mut bytes);
        bytes
    }
}

/// Expected state of the directory. The number of links of a file is the number of references to
/// its content.
#[derive(Default)]
struct Model {
    names: BTreeMap<String, Rc<Content>>,
    next: u64,
}

impl Model {
    /// Returns a name that does not exist.
    fn fresh(&mut self, random: &mut Random) -> String {
        self.next += 1;
        format!("{}/f{}", random.u64(..8), self.next)
    }

    /// Returns the name of a random file, if a file exists.
    fn any(&self, random: &mut Random) -> Option<String> {
        random.choice(self.names.keys()).cloned()
    }
}

/// Returns an error with the text `what` unless `same`.
fn expect(same: bool, what: impl FnOnce() -> String) -> io::Result<()> {
    match same {
        true => Ok(()),
        false => Err(io::Error::other(what())),
    }
}

/// Makes one change or one check; returns its name and result. A difference from the model is an
/// error without an errno.
fn step(dir: &Path, model: &mut Model, random: &mut Random) -> (&'static str, io::Result<()>) {
    let full = model.names.len() >= NAMES;
    let choice = if full { 8 } else { random.u64(..9) };
    let new = model.fresh(random);
    let to = dir.join(&new);
    let Some(name) = model.any(random).filter(|_| choice > 2) else {
        let most = if random.one_in(10) { 100_000 } else { 6000 };
        let content = Content {
            seed: random.u64(..),
            len: random.usize(..most),
        };
        let result = fs::write(to, content.bytes());
        if result.is_ok() {
            model.names.insert(new, Rc::new(content));
        }
        return ("create", result);
    };
    let path = dir.join(&name);
    let content = &model.names[&name];
    match choice {
        3 => {
            let (result, content) = (fs::rename(path, to), content.clone());
            if result.is_ok() {
                model.names.remove(&name);
                model.names.insert(new, content);
            }
            ("rename", result)
        }
        4 => {
            let (result, content) = (fs::hard_link(path, to), content.clone());
            if result.is_ok() {
                model.names.insert(new, content);
            }
            ("link", result)
        }
        5 | 6 => {
            let result = fs::metadata(path).and_then(|seen| {
                let same = (seen.len(), seen.nlink())
                    == (content.len as u64, Rc::strong_count(content) as u64);
                expect(same, || {
                    format!("{name}: {} bytes, {} links", seen.len(), seen.nlink())
                })
            });
            ("stat", result)
        }
        7 => {
            let result = fs::read(path).and_then(|seen| {
                expect(seen == content.bytes(), || format!("{name}: wrong content"))
            });
            ("read", result)
        }
        _ => {
            let result = fs::remove_file(path);
            if result.is_ok() {
                model.names.remove(&name);
            }
            ("unlink", result)
        }
    }
}

/// Compares the whole directory with the model; returns the number of names compared.
fn compare(dir: &Path, model: &Model) -> Outcome<u64> {
    let mut seen = 0;
    for part in 0..8 {
        for entry in fs::read_dir(dir.join(part.to_string()))? {
            let name = format!("{part}/{}", entry?.file_name().to_string_lossy());
            let content = model.names.get(&name);
            let content = content.with_context(|| format!("unexpected file {name}"))?;
            let same = fs::read(dir.join(&name))? == content.bytes();
            ensure!(same, "{name}: wrong content at the end");
            seen += 1;
        }
    }
    let expected = model.names.len() as u64;
    ensure!(seen == expected, "{seen} names exist, expected {expected}");
    Ok(seen)
}

/// Runs the load in `dir`, which is created and removed, until the end.
pub fn run(run: &mut StormRun, dir: &Path) -> Outcome<()> {
    let StormRun(until, random, tally) = run;
    let mut model = Model::default();
    for part in 0..8 {
        fs::create_dir_all(dir.join(part.to_string()))?;
    }
    while until.more() {
        let (kind, result) = step(dir, &mut model, random);
        let text = result
            .as_ref()
            .err()
            .map(ToString::to_string)
            .unwrap_or_default();
        tally.answer(&format!("tree {kind}"), &result, &[], text);
        if matches!(&result, Err(error) if error.kind() == ErrorKind::ReadOnlyFilesystem) {
            bail!("the file system is read-only");
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
        let (mut model, mut random) = (Model::default(), Random::with_seed(5));
        for _ in 0..400 {
            let (kind, result) = step(&dir, &mut model, &mut random);
            assert!(result.is_ok(), "{kind}: {result:?}");
        }
        let names = compare(&dir, &model).unwrap();
        assert!(names > 0);
        let name = model.any(&mut random).unwrap();
        fs::remove_file(dir.join(&name)).unwrap();
        assert!(compare(&dir, &model).is_err());
        fs::write(dir.join(&name), b"other").unwrap();
        assert!(compare(&dir, &model).is_err());
        fs::remove_dir_all(&dir).unwrap();
    }
}
