// SPDX-License-Identifier: GPL-2.0-only

//! What an agent keeps over restarts: its epoch, and the corrections of each service.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

/// Bytes of the time before saved corrections.
const TIME: usize = 8;

/// A directory with the files of an agent.
#[derive(Clone, Debug)]
pub struct Store {
    directory: PathBuf,
}

impl Store {
    /// Creates the store in `directory`, which exists.
    pub fn new(directory: &Path) -> Self {
        Self {
            directory: directory.into(),
        }
    }

    /// Returns an epoch that no earlier call returned, and larger than all of them: the seconds of `shared`, ns, if the
    /// clock did not fall.
    ///
    /// # Errors
    ///
    /// The epoch cannot be kept.
    pub fn epoch(&self, shared: u64) -> io::Result<u64> {
        let path = self.directory.join("epoch");
        let last = match fs::read_to_string(&path) {
            Ok(text) => text.trim().parse().unwrap_or(0),
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0u64,
            Err(error) => return Err(error),
        };
        let epoch = (shared / 1_000_000_000).max(last.saturating_add(1));
        self.put("epoch", format!("{epoch}\n").as_bytes(), true)?;
        Ok(epoch)
    }

    /// Keeps the corrections `saved` of `service` at the time `shared`, ns.
    ///
    /// # Errors
    ///
    /// They cannot be kept; those before are.
    pub fn save(&self, service: &str, saved: &[u8], shared: u64) -> io::Result<()> {
        let bytes = [&shared.to_le_bytes(), saved].concat();
        self.put(&file(service), &bytes, false)
    }

    /// Returns the corrections of `service` and their age at the time `shared`, ns, if there are any.
    pub fn load(&self, service: &str, shared: u64) -> Option<(Vec<u8>, u64)> {
        let bytes = fs::read(self.directory.join(file(service))).ok()?;
        let (time, saved) = bytes.split_first_chunk::<TIME>()?;
        let age = shared.checked_sub(u64::from_le_bytes(*time))?;
        Some((saved.to_vec(), age))
    }

    /// Puts a file with `bytes` in the place of `name`, whole; `synced`: it survives a loss of power.
    fn put(&self, name: &str, bytes: &[u8], synced: bool) -> io::Result<()> {
        let (path, beside) = (
            self.directory.join(name),
            self.directory.join(format!("{name}.new")),
        );
        let written = || {
            let mut file = File::create(&beside)?;
            file.write_all(bytes)?;
            if synced {
                file.sync_all()?;
            }
            fs::rename(&beside, &path)
        };
        written()
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
    }
}

/// Returns the name of the file with the corrections of `service`.
fn file(service: &str) -> String {
    format!("{service}.thetas")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn an_epoch_never_falls() {
        let room = tempfile::tempdir().unwrap();
        let store = Store::new(room.path());
        for (shared, epoch) in [(50, 50), (50, 51), (40, 52), (60, 60)] {
            assert_eq!(store.epoch(shared * SECOND).unwrap(), epoch);
        }
        fs::write(room.path().join("epoch"), "none").unwrap();
        assert_eq!(store.epoch(7 * SECOND).unwrap(), 7);
        assert!(Store::new(Path::new("/nowhere")).epoch(1).is_err());
    }

    #[test]
    fn corrections_have_an_age() {
        let room = tempfile::tempdir().unwrap();
        let store = Store::new(room.path());
        assert_eq!(store.load("a", 0), None);
        store.save("a", b"thetas", 5 * SECOND).unwrap();
        store.save("b", b"", 9 * SECOND).unwrap();
        let kept = Some((b"thetas".to_vec(), 2 * SECOND));
        assert_eq!(store.load("a", 7 * SECOND), kept);
        // The clock was set back: nobody knows how old they are.
        assert_eq!(store.load("a", 4 * SECOND), None);
        assert_eq!(store.load("b", 9 * SECOND), Some((Vec::new(), 0)));
        fs::write(room.path().join("a.thetas"), "short").unwrap();
        assert_eq!(store.load("a", 7 * SECOND), None);
    }
}
