// SPDX-License-Identifier: GPL-2.0-only

//! State that an agent keeps over restarts: its epoch, and the corrections of each service.
//!
//! A separate thread writes the files, so that a stalled disk does not delay steps. If files cannot
//! be written, the agent continues without them.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use crate::directory::Directory;

/// Size of the timestamp in front of saved corrections, bytes.
const TIME: usize = 8;

/// Name of the file with the epoch.
const EPOCH: &str = "epoch";

/// Maximum time to wait for an epoch to be written before it is used.
const EPOCH_KEPT: Duration = Duration::from_millis(50);

/// Files that are not written yet.
#[derive(Default)]
struct Pending {
    /// Content of the files, by name; a later content replaces an earlier one.
    files: BTreeMap<String, Vec<u8>>,
    /// True while a file is being written.
    busy: bool,
    /// True if the store was dropped.
    ended: bool,
}

/// State shared with the writer thread.
struct Shared {
    directory: PathBuf,
    pending: Mutex<Pending>,
    changed: Condvar,
}

/// Directory with the files of an agent.
pub struct Store {
    shared: Arc<Shared>,
    /// Last epoch.
    epoch: Mutex<u64>,
}

impl Store {
    /// Creates the store in `directory`. A missing directory is created with access only for its
    /// owner. A directory that another user can change is not used.
    pub fn new(directory: &Path) -> Self {
        let shared = Arc::new(Shared {
            directory: directory.into(),
            pending: Mutex::default(),
            changed: Condvar::new(),
        });
        let epoch = shared.path(EPOCH);
        let epoch = epoch.and_then(|path| match fs::read_to_string(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
            text => Ok(text?.trim().parse().unwrap_or(0)),
        });
        let mut failing = false;
        log_once(&mut failing, epoch.as_ref().err(), directory);
        let writer = Arc::clone(&shared);
        thread::spawn(move || writer.run(failing));
        Self {
            shared,
            epoch: Mutex::new(epoch.unwrap_or(0)),
        }
    }

    /// Returns an epoch larger than all earlier ones: the seconds of `shared`, ns, unless the clock
    /// was set back. An epoch that cannot be written is used until the agent ends.
    pub fn epoch(&self, shared: u64) -> u64 {
        let mut last = self.epoch.lock().unwrap_or_else(PoisonError::into_inner);
        let epoch = (shared / 1_000_000_000).max(last.saturating_add(1));
        *last = epoch;
        self.shared.put(EPOCH.into(), format!("{epoch}\n").into());
        self.flush(EPOCH_KEPT);
        epoch
    }

    /// Saves the corrections `saved` of `service` at the time `shared`, ns, without waiting for the
    /// disk.
    pub fn save(&self, service: &str, saved: &[u8], shared: u64) {
        let bytes = [&shared.to_le_bytes(), saved].concat();
        self.shared.put(file(service), bytes);
    }

    /// Returns the corrections of `service` and their age at the time `shared`, ns, if corrections
    /// were saved.
    pub fn load(&self, service: &str, shared: u64) -> Option<(Vec<u8>, u64)> {
        let name = file(service);
        let pending = self.shared.lock().files.get(&name).cloned();
        let bytes = pending.or_else(|| fs::read(self.shared.path(&name).ok()?).ok())?;
        let (time, saved) = bytes.split_first_chunk::<TIME>()?;
        let age = shared.checked_sub(u64::from_le_bytes(*time))?;
        Some((saved.to_vec(), age))
    }

    /// Waits for up to `timeout` until all files are written.
    pub fn flush(&self, timeout: Duration) {
        let busy = |pending: &mut Pending| pending.busy || !pending.files.is_empty();
        let waited = self
            .shared
            .changed
            .wait_timeout_while(self.shared.lock(), timeout, busy);
        drop(waited);
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.shared.lock().ended = true;
        self.shared.changed.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the path of the file `name` in the directory, which is created if it is missing.
    fn path(&self, name: &str) -> io::Result<PathBuf> {
        Directory::create_private(&self.directory)?;
        Ok(self.directory.join(name))
    }

    /// Queues the file `name` for writing, with `bytes` as its content.
    fn put(&self, name: String, bytes: Vec<u8>) {
        self.lock().files.insert(name, bytes);
        self.changed.notify_all();
    }

    /// Writes files until the store is dropped; `failing` is true if a failure was logged already.
    fn run(&self, mut failing: bool) {
        let mut pending = self.lock();
        while !pending.ended {
            let Some((name, bytes)) = pending.files.pop_first() else {
                let waited = self.changed.wait(pending);
                pending = waited.unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            pending.busy = true;
            drop(pending);
            let path = self.path(&name);
            let written = path.and_then(|path| write(&path, &bytes, name == EPOCH));
            log_once(&mut failing, written.err().as_ref(), &self.directory);
            pending = self.lock();
            pending.busy = false;
            self.changed.notify_all();
        }
    }
}

/// Replaces the file `path` atomically by one with `bytes`; if `synced`, the new file survives a
/// power failure.
fn write(path: &Path, bytes: &[u8], synced: bool) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let mut file = File::create(&beside)?;
    file.write_all(bytes)?;
    if synced {
        file.sync_all()?;
    }
    fs::rename(&beside, path)
}

/// Logs `error` of the directory `path`, once until a file is written successfully. Returns true if
/// `error` was logged.
fn log_once(failing: &mut bool, error: Option<&io::Error>, path: &Path) -> bool {
    let before = std::mem::replace(failing, error.is_some());
    match error {
        Some(error) if !before => {
            let path = path.display();
            eprintln!(
                "nrs-agent: warning: {path}: {error}; corrections are not saved over restarts"
            );
            true
        }
        _ => false,
    }
}

/// Returns the name of the file with the corrections of `service`.
fn file(service: &str) -> String {
    format!("{service}.thetas")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{symlink, PermissionsExt as _};

    const SECOND: u64 = 1_000_000_000;

    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn an_epoch_never_falls() {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join("state");
        let store = Store::new(&path);
        for (shared, epoch) in [(50, 50), (50, 51), (40, 52)] {
            assert_eq!(store.epoch(shared * SECOND), epoch);
        }
        store.flush(PATIENCE);
        let store = Store::new(&path);
        for (shared, epoch) in [(40, 53), (60, 60)] {
            assert_eq!(store.epoch(shared * SECOND), epoch);
        }
        store.flush(PATIENCE);
        fs::write(path.join(EPOCH), "none").unwrap();
        assert_eq!(Store::new(&path).epoch(7 * SECOND), 7);
    }

    #[test]
    fn corrections_have_an_age() {
        let room = tempfile::tempdir().unwrap();
        let store = Store::new(room.path());
        assert_eq!(store.load("a", 0), None);
        store.save("a", b"thetas", 5 * SECOND);
        store.save("b", b"", 9 * SECOND);
        let kept = Some((b"thetas".to_vec(), 2 * SECOND));
        store.flush(PATIENCE);
        assert_eq!(store.load("a", 7 * SECOND), kept);
        // The clock was set back: the age of the corrections is unknown.
        assert_eq!(store.load("a", 4 * SECOND), None);
        assert_eq!(store.load("b", 9 * SECOND), Some((Vec::new(), 0)));
        fs::write(room.path().join("a.thetas"), "short").unwrap();
        assert_eq!(store.load("a", 7 * SECOND), None);
    }

    #[test]
    fn a_directory_that_cannot_be_used_stops_nothing() {
        let room = tempfile::tempdir().unwrap();
        fs::write(room.path().join("file"), "").unwrap();
        let store = Store::new(&room.path().join("file/state"));
        assert_eq!((store.epoch(SECOND), store.epoch(SECOND)), (1, 2));
        store.save("a", b"thetas", SECOND);
        store.flush(PATIENCE);
        assert_eq!(store.load("a", SECOND), None);
    }

    #[test]
    fn the_directory_of_another_user_is_not_used() {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join("theirs");
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        symlink("../own", path.join("epoch.new")).unwrap();
        fs::write(path.join("epoch"), "1000").unwrap();
        fs::write(path.join("a.thetas"), [0; TIME]).unwrap();
        let store = Store::new(&path);
        assert_eq!(store.epoch(SECOND), 1);
        store.flush(PATIENCE);
        assert_eq!(store.load("a", SECOND), None);
        assert!(!room.path().join("own").exists());
    }

    #[test]
    fn failure_is_logged_once() {
        let error = io::Error::from(io::ErrorKind::StorageFull);
        let mut failing = false;
        let mut said = |error| log_once(&mut failing, error, Path::new("/state"));
        assert!(said(Some(&error)));
        assert!(!said(Some(&error)) && !said(None));
        assert!(said(Some(&error)));
    }
}
