// SPDX-License-Identifier: GPL-2.0-only

//! The module as directories of plain files.

use super::*;

use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};

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
struct Root(PathBuf);

impl Root {
    fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("nrsctl-live-{}-{count}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
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

impl Drop for Root {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn without_the_module() {
    let root = Root::new();
    let live = root.live();
    for kind in [
        live.services().unwrap_err().kind,
        live.get("san", "slots").unwrap_err().kind,
        live.set("san", "slots", "1").unwrap_err().kind,
        live.make("san").unwrap_err().kind,
        live.devices().unwrap_err().kind,
        live.module_parameter("default_slots").unwrap_err().kind,
    ] {
        assert_eq!(kind, Kind::NotLoaded);
    }
    // Device-mapper may be there all the same, and knows of no device then.
    root.dmsetup("No devices found");
    assert_eq!(live.services().unwrap_err().kind, Kind::NotLoaded);
    assert_eq!(live.devices().unwrap_err().kind, Kind::NotLoaded);
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
    live.set("san", "slots", "8").unwrap();
    assert_eq!(root.read("dev/nrs-control/san/slots"), "8");
    live.set("san", "nrs_qbm_config", "by uid\ngroup a")
        .unwrap();
    let plan = root.read("dev/nrs-control/san/nrs_qbm_config");
    assert_eq!(plan, "by uid\ngroup a");
    root.file("dev/nrs-control/san/cut", "");
    let cut = live.node.ask("get san cut");
    assert_eq!(cut, Err(Refused::Command(libc::EIO, None)));
    let failure = live.get("sam", "slots").unwrap_err();
    assert_eq!(failure.message, "there is no service 'sam'");
    assert_eq!(failure.hint.as_deref(), Some("did you mean: san"));
    let failure = live.set("san", "health", "1").unwrap_err();
    assert_eq!(
        (failure.kind, &failure.message[..]),
        (Kind::Refused, "san.health: it can only be read")
    );
    let failure = live.get("san", "at_stats_reset").unwrap_err();
    assert_eq!(
        (failure.kind, &failure.message[..]),
        (Kind::Refused, "san.at_stats_reset: it can only be written")
    );
}

/// The reason of the tool's own parser comes first, then what the module answers, then the errno.
#[test]
fn reasons() {
    for (errno, told, parameter, value, kind, message) in [
        (
            libc::EINVAL,
            "slots: bad",
            "slots",
            "0",
            Kind::Refused,
            "san.slots: not a number from 1 to 65535",
        ),
        (
            libc::ENOENT,
            "column 7: expected a rule",
            "nrs_tbf_rule",
            "change a rate=5",
            Kind::NotFound,
            "san.nrs_tbf_rule: column 7: expected a rule",
        ),
        (
            libc::EPERM,
            "column 5: expected another rule",
            "nrs_tbf_rule",
            "stop default",
            Kind::Refused,
            "san.nrs_tbf_rule: column 5: expected another rule",
        ),
        (
            libc::EAGAIN,
            "",
            "nrs_policies",
            "tbf uid",
            Kind::Busy,
            "san.nrs_policies: earlier policies are still stopping",
        ),
        (
            libc::EBUSY,
            "",
            "buffer_max",
            "512",
            Kind::Busy,
            "san.buffer_max: device or resource busy",
        ),
        (
            libc::ENOMEM,
            "",
            "nrs_policies",
            "tbf uid",
            Kind::Other,
            "san.nrs_policies: cannot allocate memory",
        ),
        (
            libc::EPERM,
            "",
            "slots",
            "5",
            Kind::Permission,
            "san.slots: operation not permitted",
        ),
    ] {
        let root = Root::loaded();
        root.file("dev/nrs-control/refusal", &format!("{errno} {told}"));
        let failure = root.live().set("san", parameter, value).unwrap_err();
        assert_eq!((failure.kind, &failure.message[..]), (kind, message));
        assert!(failure.hint.is_some(), "{message}");
    }
    let root = Root::loaded();
    root.file("dev/nrs-control/refusal", &format!("{} ", libc::ENODEV));
    let failure = root.live().get("san", "nrs_qbm_status").unwrap_err();
    assert_eq!(
        (failure.kind, &failure.message[..]),
        (Kind::NotFound, "san.nrs_qbm_status: qbm is not started")
    );
    assert_eq!(
        failure.hint.as_deref(),
        Some("start it: nrsctl policy set san qbm")
    );
}

/// A module without the node, a file in its place, and no rights.
#[test]
fn nodes_that_cannot_be_opened() {
    let root = Root::new();
    root.dir("sys/module/nrs");
    let live = Live::at(&root.0);
    let refused = |message: &str| {
        for failure in [
            live.services().unwrap_err(),
            live.get("san", "slots").unwrap_err(),
            live.set("san", "slots", "1").unwrap_err(),
        ] {
            assert_eq!(
                (failure.kind, &failure.message[..]),
                (Kind::NotLoaded, message)
            );
            assert!(failure.hint.unwrap().contains("older than nrsctl"));
        }
    };
    refused("/dev/nrs-control: No such file or directory");
    root.file("dev/nrs-control", "");
    refused("/dev/nrs-control: No such device");
    let failure = live.unopened(libc::EACCES);
    assert_eq!(
        (failure.kind, &failure.message[..]),
        (Kind::Permission, "/dev/nrs-control: Permission denied")
    );
    assert!(failure.hint.unwrap().starts_with("run it as root"));
}

#[test]
fn services_made_and_removed() {
    let root = Root::loaded();
    let live = root.live();
    live.make("new").unwrap();
    assert_eq!(live.is_made("new"), Ok(true));
    assert_eq!(live.is_made("san"), Ok(false));
    root.file("sys/kernel/config/nrs/new/cpts", "1\n");
    live.set_cpts("new", 2).unwrap();
    assert_eq!(live.cpts("new"), Ok(2));
    assert_eq!(live.make("new").unwrap_err().kind, Kind::Refused);
    assert_eq!(live.remove("new").unwrap_err().kind, Kind::Busy);
    fs::remove_file(root.0.join("sys/kernel/config/nrs/new/cpts")).unwrap();
    live.remove("new").unwrap();
    assert_eq!(live.remove("new").unwrap_err().kind, Kind::NotFound);
    assert_eq!(live.remove("san").unwrap_err().kind, Kind::Busy);
    assert_eq!(live.cpts("san").unwrap_err().kind, Kind::NotFound);
    fs::remove_dir_all(root.0.join("sys/kernel/config")).unwrap();
    let failure = live.make("new").unwrap_err();
    assert_eq!(failure.message, "configfs is not mounted");
}

/// The name of a service is no path.
#[test]
fn names_lead_nowhere_else() {
    let root = Root::loaded();
    root.dir("sys/kernel/config/nrs/san/rules");
    let live = root.live();
    for name in ["", ".", "..", "san/rules", "san/rules/r1", "../other"] {
        assert_eq!(live.make(name).unwrap_err().kind, Kind::Refused, "{name}");
        assert_eq!(live.remove(name).unwrap_err().kind, Kind::NotFound);
        assert_eq!(live.set_cpts(name, 1).unwrap_err().kind, Kind::NotFound);
        assert_eq!(live.is_made(name), Ok(false));
    }
    assert!(root.0.join("sys/kernel/config/nrs/san/rules").is_dir());
}

#[test]
fn words_of_tables_go_as_they_are() {
    let root = Root::loaded();
    root.dmsetup("files: 0 1000 nrs 8:16 0 san");
    let device = Device {
        name: "new".into(),
        service: "san".into(),
        target: "/dev/a\\b".into(),
        sectors: 8,
        options: [("jobid".to_owned(), "a\\b".to_owned())].into(),
        ..Device::default()
    };
    root.live().add_device(&device).unwrap();
    let log = root.read("log");
    // dmsetup does for tables what it does not for messages: it escapes them for device-mapper.
    let table = "nrs /dev/a\\b 0 san 2 jobid a\\b ";
    assert!(log.contains(table), "{log}");
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
        options: [("nid".to_owned(), "10.0.0.7@tcp".to_owned())].into(),
        ..Device::default()
    };
    live.add_device(&device).unwrap();
    let table = format!("create new --table 0 12 nrs {} 4 san 2 nid 10.0.0.7@tcp --noudevsync --noudevrules\nmknodes\n", device.target);
    assert!(root.read("log").ends_with(&table), "{}", root.read("log"));
    let beyond = Device {
        offset: 16,
        ..device.clone()
    };
    assert_eq!(live.add_device(&beyond).unwrap_err().kind, Kind::Refused);
    let missing = Device {
        target: "/nowhere".into(),
        ..device
    };
    assert_eq!(live.add_device(&missing).unwrap_err().kind, Kind::NotFound);
    live.remove_device("files").unwrap();
    assert_eq!(
        live.remove_device("other").unwrap_err().kind,
        Kind::NotFound
    );
    let names: Vec<String> = live
        .devices()
        .unwrap()
        .into_iter()
        .map(|device| device.name)
        .collect();
    assert_eq!(names, ["files"]);
}

#[test]
fn module_parameters() {
    let root = Root::loaded();
    let live = root.live();
    assert_eq!(live.module_parameter("default_slots"), Ok("64".into()));
    live.set_module_parameter("default_slots", "32").unwrap();
    assert_eq!(live.module_parameter("default_slots"), Ok("32".into()));
    assert_eq!(
        live.module_parameter("slots").unwrap_err().kind,
        Kind::NotFound
    );
    assert_eq!(
        live.set_module_parameter("slots", "1").unwrap_err().kind,
        Kind::NotFound
    );
}
