// SPDX-License-Identifier: GPL-2.0-only

//! Status socket of an agent: each connection receives the status as a JSON document, followed by
//! the end of the stream.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::{
        fd::OwnedFd,
        unix::{
            fs::OpenOptionsExt as _,
            net::{UnixListener, UnixStream},
        },
    },
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::{
    fs::{fchmod, flock, FlockOperation, Mode},
    io::Errno,
    net::{
        bind, connect, listen, socket_with, AddressFamily, SocketAddrUnix, SocketFlags, SocketType,
    },
};

use crate::{directory::Directory, status::Status};

/// Path of the socket.
pub const PATH: &str = "/run/nrs-agent/status";

/// Maximum number of connections that are answered in one call.
const BATCH: usize = 4;

/// Maximum number of queued connections.
const BACKLOG: i32 = 64;

/// Maximum time for a client to receive the answer.
const TAKEN: Duration = Duration::from_millis(10);

/// Maximum time for which a client waits for an answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Maximum size of a status that a client reads, bytes.
const STATUS_MAX: u64 = 16 << 20;

/// Exclusive right to answer at a path; at most one agent has it.
pub struct Lock {
    path: PathBuf,
    /// Locked until the file is closed. The file is never removed: a new file would be a different
    /// lock.
    _file: File,
}

impl Lock {
    /// Acquires the lock of the socket `path`, a file next to the socket. A missing directory is
    /// created with access only for its owner.
    ///
    /// # Errors
    ///
    /// AddrInUse: another agent has the lock. Another user can change the directory. Errors of the
    /// file system.
    pub fn take(path: &Path) -> io::Result<Self> {
        Directory::create_private(path.parent().unwrap_or(Path::new("")))?;
        let mut beside = path.as_os_str().to_owned();
        beside.push(".lock");
        let mut options = OpenOptions::new();
        let options = options.create(true).truncate(false).write(true).mode(0o600);
        let file = options.open(&beside)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
            Errno::WOULDBLOCK => {
                io::Error::new(io::ErrorKind::AddrInUse, "another agent is already running")
            }
            error => error.into(),
        })?;
        Ok(Self {
            path: path.into(),
            _file: file,
        })
    }

    /// Creates the socket, and replaces the socket of an earlier agent. Only the owner can connect.
    ///
    /// # Errors
    ///
    /// Errors of the file system.
    pub fn bind(self) -> io::Result<Socket> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let address = SocketAddrUnix::new(&self.path)?;
        let stream = stream()?;
        // The file inherits the mode of the socket.
        fchmod(&stream, Mode::RUSR | Mode::WUSR)?;
        bind(&stream, &address)?;
        let socket = Socket {
            listener: stream.into(),
            lock: self,
        };
        listen(&socket.listener, BACKLOG)?;
        Ok(socket)
    }
}

/// Returns a nonblocking stream socket.
fn stream() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let stream = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    Ok(stream?)
}

/// Socket at which an agent answers; dropping it removes the file.
pub struct Socket {
    listener: UnixListener,
    lock: Lock,
}

impl Socket {
    /// Answers up to four connected clients with the result of `status`. A client that does not
    /// receive the whole answer within 10 ms gets a part of it.
    pub fn answer(&self, status: impl Fn() -> Status) {
        let mut text = None;
        for _ in 0..BATCH {
            let Ok((mut stream, _)) = self.listener.accept() else {
                return;
            };
            let text = text.get_or_insert_with(|| {
                // All types of the status can be represented in JSON.
                serde_json::to_vec(&status()).unwrap_or_default()
            });
            if stream.set_write_timeout(Some(TAKEN)).is_ok() {
                let _ = stream.write_all(text);
            }
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // The lock is still held here.
        let _ = fs::remove_file(&self.lock.path);
    }
}

/// Returns the status of the agent at `path`; `None` if no agent runs there.
///
/// # Errors
///
/// `TimedOut`: the agent does not answer. `InvalidData`: the answer is not a status. Errors of the
/// socket.
pub fn read(path: &Path) -> io::Result<Option<Status>> {
    match ask(path) {
        Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Ok(None),
            io::ErrorKind::WouldBlock => {
                let hangs = "the agent is running but does not respond";
                Err(io::Error::new(io::ErrorKind::TimedOut, hangs))
            }
            _ => Err(error),
        },
    }
}

/// Returns the answer at `path`. `WouldBlock`: too many clients are queued, or there is no answer
/// in time.
fn ask(path: &Path) -> io::Result<Vec<u8>> {
    let stream = stream()?;
    connect(&stream, &SocketAddrUnix::new(path)?)?;
    let stream = UnixStream::from(stream);
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut text = Vec::new();
    stream.take(STATUS_MAX).read_to_end(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{EntityStatus, PeerStatus, ServiceStatus};
    use std::{os::unix::fs::PermissionsExt as _, thread};

    #[test]
    fn clients_receive_the_status() {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join("status");
        assert_eq!(read(&path).unwrap(), None);
        let service = || ServiceStatus {
            service: "s".into(),
            peers: vec![PeerStatus::default()],
            entities: vec![EntityStatus::default()],
            ..ServiceStatus::default()
        };
        let status = || Status {
            realm: "r".into(),
            delta_ms: 100,
            services: vec![service()],
            ..Status::default()
        };
        let socket = Lock::take(&path).unwrap().bind().unwrap();
        let ask = || {
            let path = path.clone();
            thread::spawn(move || read(&path).unwrap())
        };
        let (one, other) = (ask(), ask());
        while !one.is_finished() || !other.is_finished() {
            socket.answer(status);
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(one.join().unwrap(), Some(status()));
        assert_eq!(other.join().unwrap(), Some(status()));
        drop(socket);
        assert!(!path.exists());
        assert_eq!(read(&path).unwrap(), None);
    }

    #[test]
    fn of_agents_that_start_at_once_one_runs() {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join("status");
        // A killed agent left its socket.
        drop(UnixListener::bind(&path).unwrap());
        let starts = || {
            let lock = Lock::take(&path);
            lock.map(|lock| lock.bind().unwrap())
                .map_err(|error| error.kind())
        };
        let mut all: Vec<_> = thread::scope(|scope| {
            let all: Vec<_> = (0..8).map(|_| scope.spawn(starts)).collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        all.retain(|one| match one {
            Ok(_) => true,
            Err(kind) => {
                assert_eq!(*kind, io::ErrorKind::AddrInUse);
                false
            }
        });
        assert_eq!(all.len(), 1);
        assert!(path.exists());
        drop(all);
        assert!(starts().is_ok());
    }

    #[test]
    fn files_are_for_the_owner_alone() {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join("run/status");
        let socket = Lock::take(&path).unwrap().bind().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(path.parent().unwrap()), 0o700);
        assert_eq!(mode(&path), 0o600);
        assert_eq!(mode(&room.path().join("run/status.lock")), 0o600);
        drop(socket);
    }

    #[test]
    fn read_times_out_if_the_agent_hangs() {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join("status");
        let address = SocketAddrUnix::new(&path).unwrap();
        let hangs = stream().unwrap();
        bind(&hangs, &address).unwrap();
        listen(&hangs, 1).unwrap();
        let connected = || {
            let client = stream().unwrap();
            connect(&client, &address).map(|()| client)
        };
        let clients: Vec<_> = std::iter::from_fn(|| connected().ok()).collect();
        assert!(!clients.is_empty());
        let error = read(&path).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(error.to_string().contains("does not respond"), "{error}");
    }
}
