// SPDX-License-Identifier: GPL-2.0-only

//! The control node `/dev/nrs-control`: a command is one write, its answer is read from the beginning.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};

use super::transport::{Refused, Result, Transport};
use crate::errno;

/// Bytes of an answer that are read at once.
const CHUNK: usize = 64 << 10;

/// The node, by its path.
#[derive(Debug)]
pub struct Node(PathBuf);

/// Something that takes a command and then has an answer.
trait Channel {
    fn write(&self, command: &[u8]) -> io::Result<usize>;
    fn read(&self, buffer: &mut [u8], at: u64) -> io::Result<usize>;
}

impl Channel for File {
    fn write(&self, command: &[u8]) -> io::Result<usize> {
        self.write_at(command, 0)
    }

    fn read(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        self.read_at(buffer, at)
    }
}

/// The answer of the last command.
fn answer(channel: &dyn Channel) -> io::Result<String> {
    let mut bytes = Vec::new();
    let mut chunk = vec![0; CHUNK];
    loop {
        match channel.read(&mut chunk, bytes.len() as u64) {
            Ok(0) => return Ok(String::from_utf8_lossy(&bytes).into_owned()),
            Ok(len) => bytes.extend_from_slice(&chunk[..len]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Has `command` carried out; returns its answer.
fn ask(channel: &dyn Channel, command: &str) -> Result<String> {
    match channel.write(command.as_bytes()) {
        Ok(len) if len == command.len() => {
            answer(channel).map_err(|error| Refused::errno(errno::of(&error)))
        }
        Ok(_) => Err(Refused::errno(errno::EIO)),
        Err(error) => {
            // Why is told where there is a reason; without one the errno has to do.
            let reason = answer(channel).unwrap_or_default();
            let reason = reason.lines().next().map(str::to_owned);
            Err(Refused::Errno(errno::of(&error), reason))
        }
    }
}

impl Node {
    /// That of the system at `root`.
    pub fn new(root: &Path) -> Self {
        Self(root.join("dev/nrs-control"))
    }

    fn open(&self) -> Result<File> {
        let file = OpenOptions::new().read(true).write(true).open(&self.0);
        let file = file.map_err(|error| Refused::entering(&error))?;
        match file.metadata() {
            Ok(data) if data.file_type().is_char_device() => Ok(file),
            _ => Err(Refused::ABSENT),
        }
    }
}

impl Transport for Node {
    fn services(&self) -> Result<Vec<String>> {
        let answer = ask(&self.open()?, "services")?;
        Ok(answer.lines().map(str::to_owned).collect())
    }

    fn get(&self, service: &str, parameter: &str) -> Result<String> {
        let file = self.open()?;
        match ask(&file, &format!("get {service} {parameter}")) {
            Err(refused) => Err(self.told(&file, service, refused)),
            done => done,
        }
    }

    fn set(&self, service: &str, parameter: &str, value: &str) -> Result {
        let file = self.open()?;
        match ask(&file, &format!("set {service} {parameter} {value}")) {
            Err(refused) => Err(self.told(&file, service, refused)),
            done => done.map(|_| ()),
        }
    }
}

impl Node {
    /// What a refusal means: `ENODEV` may be that there is no such service, or of a policy that is not started.
    fn told(&self, file: &File, service: &str, refused: Refused) -> Refused {
        if !matches!(refused, Refused::Errno(errno::ENODEV, _)) {
            return refused;
        }
        match ask(file, "services") {
            Ok(names) if names.lines().any(|name| name == service) => refused,
            _ => Refused::NoService,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// Answers as told.
    struct Told {
        refusal: Option<i32>,
        answer: &'static str,
        short: bool,
        commands: RefCell<Vec<String>>,
    }

    impl Channel for Told {
        fn write(&self, command: &[u8]) -> io::Result<usize> {
            let text = String::from_utf8(command.to_vec()).unwrap();
            self.commands.borrow_mut().push(text);
            match self.refusal {
                Some(errno) => Err(io::Error::from_raw_os_error(errno)),
                None if self.short => Ok(command.len() - 1),
                None => Ok(command.len()),
            }
        }

        fn read(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
            // A byte or two at a time.
            let rest = &self.answer.as_bytes()[at as usize..];
            let len = rest.len().min(2).min(buffer.len());
            buffer[..len].copy_from_slice(&rest[..len]);
            Ok(len)
        }
    }

    fn told(refusal: Option<i32>, answer: &'static str) -> Told {
        Told {
            refusal,
            answer,
            short: false,
            commands: RefCell::default(),
        }
    }

    #[test]
    fn answers_and_refusals() {
        let channel = told(None, "ost_io\nsan\n");
        assert_eq!(ask(&channel, "services").unwrap(), "ost_io\nsan\n");
        assert_eq!(*channel.commands.borrow(), ["services"]);

        let channel = told(Some(errno::EINVAL), "slots: expected a number\n");
        let refused = ask(&channel, "set a slots x").unwrap_err();
        let reason = Some("slots: expected a number".to_owned());
        assert_eq!(refused, Refused::Errno(errno::EINVAL, reason));

        let channel = told(Some(errno::EAGAIN), "");
        let refused = ask(&channel, "set a slots 1").unwrap_err();
        assert_eq!(refused, Refused::errno(errno::EAGAIN));

        let channel = Told {
            short: true,
            ..told(None, "")
        };
        assert_eq!(ask(&channel, "services"), Err(Refused::errno(errno::EIO)));
    }

    #[test]
    fn what_is_no_device_is_no_node() {
        let root = std::env::temp_dir().join(format!("nrsctl-node-{}", std::process::id()));
        std::fs::create_dir_all(root.join("dev")).unwrap();
        assert_eq!(Node::new(&root).services(), Err(Refused::ABSENT));
        std::fs::write(root.join("dev/nrs-control"), "").unwrap();
        assert_eq!(Node::new(&root).services(), Err(Refused::ABSENT));
        std::fs::remove_dir_all(root).unwrap();
    }
}
