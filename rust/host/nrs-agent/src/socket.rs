// SPDX-License-Identifier: GPL-2.0-only

//! The socket of an agent: whoever connects gets its status, one JSON document, and the end of the stream.

use std::{
    fs,
    io::{self, Read as _, Write as _},
    os::unix::net::{UnixListener, UnixStream},
    path::Path,
    time::Duration,
};

use crate::status::Status;

/// Path of the socket.
pub const PATH: &str = "/run/nrs-agent/status";

/// Connections that are answered at a time.
const BATCH: usize = 4;

/// Time that a client gets to take the answer.
const TAKEN: Duration = Duration::from_millis(10);

/// Time for an answer, as a client waits for it.
const PATIENCE: Duration = Duration::from_secs(2);

/// Bytes of a status, at most, as a client takes them.
const STATUS_MAX: u64 = 16 << 20;

/// The socket that an agent answers at.
pub struct Socket {
    listener: UnixListener,
}

impl Socket {
    /// Creates the socket `path`, in the place of one that an earlier agent left.
    ///
    /// # Errors
    ///
    /// AddrInUse: an agent answers there. Others of the file system.
    pub fn bind(path: &Path) -> io::Result<Self> {
        if UnixStream::connect(path).is_ok() {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(path)?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener })
    }

    /// Answers up to four clients that have connected, with what `status` returns. A client that does not take the
    /// answer within 10 ms gets a part.
    pub fn answer(&self, status: impl Fn() -> Status) {
        let mut text = None;
        for _ in 0..BATCH {
            let Ok((mut stream, _)) = self.listener.accept() else {
                return;
            };
            let text = text.get_or_insert_with(|| {
                // There is nothing in it that JSON has not.
                serde_json::to_vec(&status()).unwrap_or_default()
            });
            if stream.set_write_timeout(Some(TAKEN)).is_ok() {
                let _ = stream.write_all(text);
            }
        }
    }
}

/// Returns the status of the agent at `path`; none if no agent runs there.
///
/// # Errors
///
/// Those of the socket; `InvalidData`: the answer is no status.
pub fn read(path: &Path) -> io::Result<Option<Status>> {
    let stream = match UnixStream::connect(path) {
        Ok(stream) => stream,
        Err(error) => {
            return match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Ok(None),
                _ => Err(error),
            }
        }
    };
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut text = Vec::new();
    stream.take(STATUS_MAX).read_to_end(&mut text)?;
    Ok(Some(serde_json::from_slice(&text)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{EntityStatus, PeerStatus, ServiceStatus};
    use std::thread;

    #[test]
    fn whoever_connects_gets_the_status() {
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
        let socket = Socket::bind(&path).unwrap();
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
        // Another agent does not take its place, unless it has ended.
        let error = Socket::bind(&path).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        drop(socket);
        assert_eq!(read(&path).unwrap(), None);
        Socket::bind(&path).unwrap();
    }
}
