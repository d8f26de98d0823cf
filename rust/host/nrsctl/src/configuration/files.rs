// SPDX-License-Identifier: GPL-2.0-only

//! Selection and reading of the files of a configuration.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::failure::{failure, Failure, FailureKind, Result};

/// Default directory of configurations.
pub const DIRECTORY: &str = "/etc/nrs";

/// Name of the file for the agent, which defines no services.
pub const AGENT: &str = "agent.toml";

/// File with its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Name, as given or found.
    pub name: String,
    /// Content of the file.
    pub text: String,
}

/// Reads the files that `paths` name, or those of [`DIRECTORY`] if `paths` is empty. Of a
/// directory, all `*.toml` are read in the order of their names. Each file is read once.
///
/// # Errors
///
/// - [`FailureKind::NotFound`]: a path does not exist, or a directory has no such file.
/// - Errors of reading.
pub fn read(paths: &[PathBuf]) -> Result<Vec<File>> {
    let default = [PathBuf::from(DIRECTORY)];
    let paths = match paths {
        [] => &default,
        paths => paths,
    };
    let mut names: Vec<PathBuf> = Vec::new();
    for path in paths {
        let found = match fs::metadata(path)
            .map_err(|error| failure(path, &error))?
            .is_dir()
        {
            true => directory(path)?,
            false => vec![path.clone()],
        };
        for name in found {
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    names.iter().map(|path| file(path)).collect()
}

/// Reads the agent files that `paths` name or contain, or that of [`DIRECTORY`] if `paths` is
/// empty.
///
/// # Errors
///
/// Errors of reading.
pub fn agents(paths: &[PathBuf]) -> Result<Vec<File>> {
    let default = [PathBuf::from(DIRECTORY)];
    let paths = match paths {
        [] => &default,
        paths => paths,
    };
    let within = |path: &PathBuf| match is_agent(path) {
        true => path.clone(),
        false => path.join(AGENT),
    };
    let found = paths.iter().map(within).filter(|path| path.is_file());
    found.map(|path| file(&path)).collect()
}

/// Reads the file `path`.
fn file(path: &Path) -> Result<File> {
    let text = fs::read_to_string(path).map_err(|error| failure(path, &error))?;
    Ok(File {
        name: path.display().to_string(),
        text,
    })
}

/// Returns true if `path` has the name of an agent file.
pub fn is_agent(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == AGENT)
}

/// Reads the files of `directory`, which may be empty.
///
/// # Errors
///
/// Errors of [`read`].
pub fn all(directory: &Path) -> Result<Vec<File>> {
    match read(&[directory.to_path_buf()]) {
        Err(failure) if failure.kind == FailureKind::NotFound && directory.is_dir() => {
            Ok(Vec::new())
        }
        files => files,
    }
}

/// Returns true if `path` has the name of a file that is read with its directory.
pub fn is_one(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy());
    let shown = name.is_some_and(|name| !name.starts_with('.') && name != AGENT);
    shown && path.extension().is_some_and(|end| end == "toml")
}

/// Lists the files of a directory.
fn directory(path: &Path) -> Result<Vec<PathBuf>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path).map_err(|error| failure(path, &error))? {
        let path = entry?.path();
        // A link to a missing file is an error of reading.
        if is_one(&path) && !path.is_dir() {
            names.push(path);
        }
    }
    names.sort();
    if names.is_empty() && !path.join(AGENT).is_file() {
        return Err(
            failure!(NotFound: "{}: no *.toml file in this directory", path.display();
            "create a file, or save the running state: nrsctl save {}",
            path.join("nrs.toml").display()),
        );
    }
    Ok(names)
}

/// Returns the failure of reading `path`.
fn failure(path: &Path, error: &io::Error) -> Failure {
    let kind = FailureKind::of_file(error);
    let reason = match error.kind() {
        io::ErrorKind::NotFound => "no such file or directory".to_string(),
        io::ErrorKind::InvalidData => "not UTF-8".to_string(),
        _ => error.to_string(),
    };
    let failure = Failure::new(kind, format!("{}: {reason}", path.display()));
    match kind {
        FailureKind::NotFound if path == Path::new(DIRECTORY) => {
            let hint = "create the directory and save the running state: \
                        nrsctl save /etc/nrs/nrs.toml";
            failure.hint(hint)
        }
        FailureKind::Permission => failure.hint("run it as root"),
        _ => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_in_the_order_of_names() {
        let room = tempfile::tempdir().unwrap();
        let path = |name: &str| room.path().join(name);
        let error = read(&[path("")]).unwrap_err();
        assert!(error.kind == FailureKind::NotFound && error.hint.unwrap().contains("nrsctl save"));
        let names = "20-b.toml 10-a.toml .hidden.toml x.toml.bak x.conf y.toml~";
        for name in names.split(' ') {
            fs::write(path(name), &name[..4]).unwrap();
        }
        fs::create_dir(path("d.toml")).unwrap();
        let texts = |paths: &[PathBuf]| {
            let files = read(paths).unwrap().into_iter();
            files.map(|file| file.text).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(texts(&[path("")]), "10-a 20-b");
        assert_eq!(
            texts(&[path("20-b.toml"), path(""), path("20-b.toml")]),
            "20-b 10-a"
        );
        fs::write(path("x.toml"), b"\xff").unwrap();
        for (name, why) in [
            ("none.toml", "no such file or directory"),
            ("x.toml", "not UTF-8"),
        ] {
            let error = read(&[path(name)]).unwrap_err();
            let why = format!("{name}: {why}");
            assert!(error.message.ends_with(&why), "{error}");
        }
        // A link to a missing file is not left out.
        std::os::unix::fs::symlink("gone", path("link.toml")).unwrap();
        let error = read(&[path("")]).unwrap_err();
        let why = "link.toml: no such file or directory";
        assert!(error.message.ends_with(why), "{error}");
    }
}
