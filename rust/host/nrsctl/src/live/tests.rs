// SPDX-License-Identifier: GPL-2.0-only

//! The module as directories of plain files.

use super::*;

use std::sync::atomic::{AtomicUsize, Ordering};

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
        root.file("sys/kernel/debug/nrs/san/slots", "16\n");
        root.file("sys/kernel/debug/nrs/san/nrs_qbm_config", "\n");
        root.file("sys/kernel/debug/nrs/san/nrs_qbm_config_error", "");
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

    /// A `dmsetup` that notes what it is told, prints `table` for a table, and does `message` for a message.
    fn dmsetup(&self, table: &str, message: &str) {
        let log = self.0.join("log");
        let script = format!(
            "#!/bin/sh\nprintf '%s\\n' \"$*\" >>{}\ncase $1 in table) echo '{table}' ;; message) {message} ;; esac\n",
            log.display()
        );
        self.file("sbin/dmsetup", &script);
    }

    fn live(&self) -> Live {
        Live::at(&self.0)
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
    root.dmsetup("No devices found", ":");
    assert_eq!(live.services().unwrap_err().kind, Kind::NotLoaded);
    assert_eq!(live.devices().unwrap_err().kind, Kind::NotLoaded);
    let hint = live.services().unwrap_err().hint;
    assert_eq!(hint.as_deref(), Some("load it: modprobe nrs"));
}

#[test]
fn by_debugfs() {
    let root = Root::loaded();
    let live = root.live();
    assert_eq!(live.services().unwrap(), ["made", "san"]);
    assert_eq!(live.get("san", "slots").unwrap(), "16\n");
    live.set("san", "slots", "8").unwrap();
    assert_eq!(root.read("sys/kernel/debug/nrs/san/slots"), "8\n");
    let failure = live.get("sam", "slots").unwrap_err();
    assert_eq!(failure.message, "there is no service 'sam'");
    assert_eq!(failure.hint.as_deref(), Some("did you mean: san"));
    let failure = live.get("san", "slot").unwrap_err();
    assert_eq!(
        (failure.kind, &failure.message[..]),
        (Kind::NotFound, "san.slot: there is no such parameter")
    );
    assert_eq!(failure.hint.as_deref(), Some("did you mean: slots"));
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

/// What fails when the file is closed is told by another one.
#[test]
fn a_configuration_that_is_not_carried_out() {
    let root = Root::loaded();
    let live = root.live();
    live.set("san", "nrs_qbm_config", "by uid").unwrap();
    for (reason, kind) in [
        (
            "not carried out: earlier policies are still stopping, write it again\n",
            Kind::Busy,
        ),
        ("out of memory\n", Kind::Refused),
    ] {
        root.file("sys/kernel/debug/nrs/san/nrs_qbm_config_error", reason);
        let failure = live.set("san", "nrs_qbm_config", "by uid").unwrap_err();
        assert_eq!(
            (failure.kind, failure.message),
            (kind, format!("san.nrs_qbm_config: {}", reason.trim_end()))
        );
    }
}

#[test]
fn by_messages() {
    let root = Root::new();
    root.dir("sys/module/nrs");
    root.dmsetup("files: 0 1000 nrs 8:16 0 san 2 jobid_name %e.%u", "echo 16");
    let live = root.live();
    assert_eq!(live.services().unwrap(), ["san"]);
    assert_eq!(live.get("san", "slots").unwrap(), "16\n");
    live.set("san", "nrs_fairshare_weights", "-uid:5 uid:6:2")
        .unwrap();
    let log = root.read("log");
    assert!(log.contains("message files 0 service slots\n"), "{log}");
    assert!(
        log.contains("message files 0 service nrs_fairshare_weights -- -uid:5 uid:6:2\n"),
        "{log}"
    );
    assert_eq!(live.get("nan", "slots").unwrap_err().kind, Kind::NotFound);
}

/// The reason of the parameter's own parser comes first, then what the module keeps, then the errno.
#[test]
fn reasons() {
    let said = |errno: &str| {
        format!("case $5 in nrs_tbf_rule_error) echo column 7: expected the name of a rule that is there ;; *) echo 'message ioctl failed: {errno}' >&2; exit 1 ;; esac")
    };
    for (errno, parameter, value, kind, message) in [
        (
            "Invalid argument",
            "slots",
            "0",
            Kind::Refused,
            "san.slots: expected a number, 1 to 65535",
        ),
        (
            "No such file or directory",
            "nrs_tbf_rule",
            "change a rate=5",
            Kind::NotFound,
            "san.nrs_tbf_rule: column 7: expected the name of a rule that is there",
        ),
        (
            "Operation not permitted",
            "nrs_tbf_rule",
            "stop default",
            Kind::Refused,
            "san.nrs_tbf_rule: column 7: expected the name of a rule that is there",
        ),
        (
            "Resource temporarily unavailable",
            "nrs_policies",
            "tbf uid",
            Kind::Busy,
            "san.nrs_policies: earlier policies are still stopping",
        ),
        (
            "Device or resource busy",
            "buffer_max",
            "512",
            Kind::Busy,
            "san.buffer_max: device or resource busy",
        ),
        (
            "Cannot allocate memory",
            "nrs_policies",
            "tbf uid",
            Kind::Other,
            "san.nrs_policies: cannot allocate memory",
        ),
        (
            "Operation not permitted",
            "slots",
            "5",
            Kind::Permission,
            "san.slots: operation not permitted",
        ),
    ] {
        let root = Root::new();
        root.dir("sys/module/nrs");
        root.dmsetup("files: 0 1000 nrs 8:16 0 san", &said(errno));
        let failure = root.live().set("san", parameter, value).unwrap_err();
        assert_eq!(
            (failure.kind, &failure.message[..]),
            (kind, message),
            "{errno}"
        );
        assert!(failure.hint.is_some(), "{message}");
    }
    let root = Root::new();
    root.dir("sys/module/nrs");
    root.dmsetup("files: 0 1000 nrs 8:16 0 san", &said("No such device"));
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

#[test]
fn no_way() {
    let root = Root::new();
    root.dir("sys/module/nrs");
    root.dir("sys/kernel/config/nrs/made");
    let live = root.live();
    assert_eq!(live.services().unwrap(), ["made"]);
    let failure = live.get("made", "slots").unwrap_err();
    assert_eq!(
        (failure.kind, &failure.message[..]),
        (Kind::Permission, "no way leads to made.slots")
    );
    assert!(failure.hint.unwrap().contains("mount -t debugfs"));
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
    root.dmsetup("files: 0 1000 nrs 8:16 0 san", ":");
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
    root.dmsetup("files: 0 1000 nrs 8:16 0 san", ":");
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
