// SPDX-License-Identifier: GPL-2.0-only

//! The module as directories of plain files.

use super::*;

use std::cell::RefCell;

use node::Channel;
use nrs_sched::control::Command;

/// A node of plain files: a directory for each service, a file for each parameter, and `refusal` with the error number
/// and the reason that every command but `services` is refused with.
struct Files {
    path: PathBuf,
    answer: RefCell<String>,
}

impl Files {
    fn open(path: &Path) -> io::Result<Box<dyn Channel>> {
        fs::metadata(path)?;
        Ok(Box::new(Self {
            path: path.into(),
            answer: RefCell::default(),
        }))
    }

    /// The file of a parameter.
    fn file(&self, service: &str, name: &str) -> io::Result<PathBuf> {
        let directory = self.path.join(service);
        if let Ok(text) = fs::read_to_string(self.path.join("refusal")) {
            let (errno, reason) = text.split_once(' ').unwrap();
            *self.answer.borrow_mut() = reason.into();
            return Err(io::Error::from_raw_os_error(errno.parse().unwrap()));
        }
        match directory.is_dir() {
            true => Ok(directory.join(name)),
            false => Err(io::Error::from_raw_os_error(libc::ENODEV)),
        }
    }
}

impl Channel for Files {
    fn write(&self, command: &[u8]) -> io::Result<usize> {
        let text = std::str::from_utf8(command).unwrap();
        let answer = match Command::parse(text).unwrap() {
            Command::Services => {
                let entries = fs::read_dir(&self.path)?.map(|entry| entry.unwrap());
                let services = entries.filter(|entry| entry.path().is_dir());
                services
                    .map(|entry| entry.file_name().into_string().unwrap() + "\n")
                    .collect()
            }
            Command::Get { service, name } => fs::read_to_string(self.file(service, name)?)?,
            Command::Set {
                service,
                name,
                value,
            } => {
                fs::write(self.file(service, name)?, value)?;
                String::new()
            }
        };
        *self.answer.borrow_mut() = answer;
        // A write that was cut says so.
        Ok(command.len() - usize::from(text.ends_with("cut")))
    }

    /// Reads a byte or two at a time.
    fn read(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let answer = self.answer.borrow();
        let rest = &answer.as_bytes()[at as usize..];
        let len = rest.len().min(2).min(buffer.len());
        buffer[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }
}

/// A root of this test's own.
struct Root(PathBuf, #[allow(dead_code)] tempfile::TempDir);

impl Root {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self(directory.path().to_path_buf(), directory)
    }

    /// One with the module, and service `san`.
    fn loaded() -> Self {
        let root = Self::new();
        root.file("sys/module/nrs/parameters/default_slots", "64\n");
        root.file("dev/nrs-control/san/slots", "16\n");
        root.dir("sys/kernel/config/nrs/made");
        root
    }

    fn dir(&self, path: &str) {
        fs::create_dir_all(self.0.join(path)).unwrap();
    }

    fn file(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.0.join(path)).unwrap()
    }

    /// A `dmsetup` that notes what it is told, and prints `table` for a table.
    fn dmsetup(&self, table: &str) {
        let log = self.0.join("log");
        let script = format!(
            "#!/bin/sh\nprintf '%s\\n' \"$*\" >>{}\ncase $1 in table) echo '{table}' ;; esac\n",
            log.display()
        );
        self.file("sbin/dmsetup", &script);
    }

    fn live(&self) -> Live {
        Live {
            node: Node::new(&self.0, Files::open),
            ..Live::at(&self.0)
        }
    }
}

/// Kind and message of a failure.
fn said<T: std::fmt::Debug>(result: Result<T>) -> (Kind, String) {
    let failure = result.unwrap_err();
    (failure.kind, failure.message)
}

#[test]
fn without_the_module() {
    let root = Root::new();
    let live = root.live();
    // Device-mapper may exist all the same, and knows of no device then.
    root.dmsetup("No devices found");
    for (kind, _) in [
        said(live.services()),
        said(live.get("san", "slots")),
        said(live.set("san", "slots", "1")),
        said(live.make("san")),
        said(live.devices()),
        said(live.module_parameter("default_slots")),
    ] {
        assert_eq!(kind, Kind::NotLoaded);
    }
    let hint = live.services().unwrap_err().hint;
    assert_eq!(hint.as_deref(), Some("load it: modprobe nrs"));
}

#[test]
fn parameters_by_the_node() {
    let root = Root::loaded();
    root.dir("dev/nrs-control/a.b");
    let live = root.live();
    assert_eq!(live.services().unwrap(), ["a.b", "san"]);
    assert_eq!(live.get("san", "slots").unwrap(), "16\n");
    for (name, value) in [("slots", "8"), ("nrs_qbm_config", "by uid\ngroup a")] {
        live.set("san", name, value).unwrap();
        assert_eq!(root.read(&format!("dev/nrs-control/san/{name}")), value);
    }
    root.file("dev/nrs-control/san/cut", "");
    let cut = live.node.ask("get san cut");
    assert_eq!(cut, Err(Refused::Command(libc::EIO, None)));
    let failure = live.get("sam", "slots").unwrap_err();
    assert_eq!(
        failure.to_string(),
        "there is no service 'sam'\n  did you mean: san"
    );
    let only = |how: &str| (Kind::Refused, format!("san.{how}"));
    let set = said(live.set("san", "health", "1"));
    assert_eq!(set, only("health: it can only be read"));
    let got = said(live.get("san", "at_stats_reset"));
    assert_eq!(got, only("at_stats_reset: it can only be written"));
}

/// The reason of the tool's own parser comes first, then what the module answers, then the errno.
#[test]
fn reasons() {
    use libc::{EAGAIN, EBUSY, EINVAL, ENODEV, ENOENT, ENOMEM, EPERM};
    for (errno, told, write, kind, want) in [
        (
            EINVAL,
            "bad",
            "slots=0",
            Kind::Refused,
            "not a number from 1 to 65535",
        ),
        (
            ENOENT,
            "no rule",
            "nrs_tbf_rule=change a rate=5",
            Kind::NotFound,
            "no rule",
        ),
        (
            EPERM,
            "default",
            "nrs_tbf_rule=stop default",
            Kind::Refused,
            "default",
        ),
        (
            EAGAIN,
            "",
            "nrs_policies=tbf uid",
            Kind::Busy,
            "earlier policies are still stopping",
        ),
        (
            EBUSY,
            "",
            "buffer_max=512",
            Kind::Busy,
            "device or resource busy",
        ),
        (
            ENOMEM,
            "",
            "nrs_policies=tbf uid",
            Kind::Other,
            "cannot allocate memory",
        ),
        (
            EPERM,
            "",
            "slots=5",
            Kind::Permission,
            "operation not permitted",
        ),
    ] {
        let root = Root::loaded();
        root.file("dev/nrs-control/refusal", &format!("{errno} {told}"));
        let (name, value) = write.split_once('=').unwrap();
        let failure = root.live().set("san", name, value).unwrap_err();
        assert_eq!(
            (failure.kind, failure.message),
            (kind, format!("san.{name}: {want}"))
        );
        assert!(failure.hint.is_some(), "{want}");
    }
    let root = Root::loaded();
    root.file("dev/nrs-control/refusal", &format!("{ENODEV} "));
    let failure = root.live().get("san", "nrs_qbm_status").unwrap_err();
    let want = "san.nrs_qbm_status: qbm is not started\n  start it: nrsctl policy set san qbm";
    assert_eq!(
        (failure.kind, failure.to_string()),
        (Kind::NotFound, want.into())
    );
}

/// A module without the node, a file in its place, and no rights.
#[test]
fn nodes_that_cannot_be_opened() {
    let root = Root::new();
    root.dir("sys/module/nrs");
    let live = Live::at(&root.0);
    for why in ["No such file or directory", "No such device"] {
        let want = (Kind::NotLoaded, format!("/dev/nrs-control: {why}"));
        assert_eq!(said(live.services()), want);
        assert_eq!(said(live.get("san", "slots")), want);
        assert_eq!(said(live.set("san", "slots", "1")), want);
        root.file("dev/nrs-control", "");
    }
    let failure = live.unopened(libc::EACCES);
    assert_eq!(failure.kind, Kind::Permission);
    assert!(failure.hint.unwrap().starts_with("run it as root"));
}

#[test]
fn services_made_and_removed() {
    let root = Root::loaded();
    let live = root.live();
    live.make("new").unwrap();
    assert_eq!(
        (live.is_made("new"), live.is_made("san")),
        (Ok(true), Ok(false))
    );
    root.file("sys/kernel/config/nrs/new/cpts", "1\n");
    live.set_cpts("new", 2).unwrap();
    assert_eq!(live.cpts("new"), Ok(2));
    assert_eq!(said(live.make("new")).0, Kind::Refused);
    assert_eq!(said(live.remove("new")).0, Kind::Busy);
    fs::remove_file(root.0.join("sys/kernel/config/nrs/new/cpts")).unwrap();
    live.remove("new").unwrap();
    assert_eq!(said(live.remove("new")).0, Kind::NotFound);
    assert_eq!(said(live.remove("san")).0, Kind::Busy);
    assert_eq!(said(live.cpts("san")).0, Kind::NotFound);
    // The name of a service is no path.
    root.dir("sys/kernel/config/nrs/san/rules");
    for name in ["", ".", "..", "san/rules", "san/rules/r1", "../other"] {
        assert_eq!(said(live.make(name)).0, Kind::Refused, "{name}");
        assert_eq!(said(live.remove(name)).0, Kind::NotFound);
        assert_eq!(said(live.set_cpts(name, 1)).0, Kind::NotFound);
        assert_eq!(live.is_made(name), Ok(false));
    }
    assert!(root.0.join("sys/kernel/config/nrs/san/rules").is_dir());
    fs::remove_dir_all(root.0.join("sys/kernel/config")).unwrap();
    assert_eq!(said(live.make("new")).1, "configfs is not mounted");
}

#[test]
fn devices() {
    let root = Root::loaded();
    root.dmsetup("files: 0 1000 nrs 8:16 0 san");
    root.file("disk", &"x".repeat(8192));
    let live = root.live();
    let device = Device {
        name: "new".into(),
        service: "san".into(),
        target: root.0.join("disk").display().to_string(),
        offset: 4,
        // The words of a table go as they are: dmsetup escapes them for device-mapper.
        options: [("jobid".to_owned(), "a\\b".to_owned())].into(),
        ..Device::default()
    };
    live.add_device(&device).unwrap();
    let table = format!(
        "create new --table 0 12 nrs {} 4 san 2 jobid a\\b",
        device.target
    );
    let log = root.read("log");
    assert!(
        log.ends_with(&format!("{table} --noudevsync --noudevrules\nmknodes\n")),
        "{log}"
    );
    let beyond = Device {
        offset: 16,
        ..device.clone()
    };
    assert_eq!(said(live.add_device(&beyond)).0, Kind::Refused);
    let missing = Device {
        target: "/nowhere".into(),
        ..device
    };
    assert_eq!(said(live.add_device(&missing)).0, Kind::NotFound);
    live.remove_device("files").unwrap();
    assert_eq!(said(live.remove_device("other")).0, Kind::NotFound);
    assert_eq!(live.devices().unwrap()[0].name, "files");
}

#[test]
fn module_parameters() {
    let root = Root::loaded();
    let live = root.live();
    for value in ["64", "32"] {
        assert_eq!(live.module_parameter("default_slots"), Ok(value.into()));
        live.set_module_parameter("default_slots", "32").unwrap();
    }
    assert_eq!(said(live.module_parameter("slots")).0, Kind::NotFound);
    assert_eq!(
        said(live.set_module_parameter("slots", "1")).0,
        Kind::NotFound
    );
}
