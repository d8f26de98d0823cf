// SPDX-License-Identifier: GPL-2.0-only

//! Tests of `Live` with directories of plain files instead of a module.

use super::*;

use std::cell::RefCell;

use node::Channel;
use nrs_sched::control::NodeCommand;

/// Node of plain files: a directory for each service and a file for each parameter. A file
/// `refusal` holds the error number and the reason with which all commands except `services` are
/// refused.
struct FileNode {
    path: PathBuf,
    answer: RefCell<String>,
}

impl FileNode {
    fn open(path: &Path) -> io::Result<Box<dyn Channel>> {
        fs::metadata(path)?;
        Ok(Box::new(Self {
            path: path.into(),
            answer: RefCell::default(),
        }))
    }

    /// Returns the path of a parameter's file.
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

impl Channel for FileNode {
    fn write(&self, command: &[u8]) -> io::Result<usize> {
        let text = std::str::from_utf8(command).unwrap();
        let answer = match NodeCommand::parse(command).unwrap() {
            NodeCommand::Services => {
                let entries = fs::read_dir(&self.path)?.map(|entry| entry.unwrap());
                let services = entries.filter(|entry| entry.path().is_dir());
                services
                    .map(|entry| entry.file_name().into_string().unwrap() + "\n")
                    .collect()
            }
            NodeCommand::Get { service, name } => fs::read_to_string(self.file(service, name)?)?,
            NodeCommand::Set {
                service,
                name,
                value,
            } => {
                fs::write(self.file(service, name)?, value)?;
                String::new()
            }
            other => panic!("{other:?}"),
        };
        *self.answer.borrow_mut() = answer;
        // A value that ends in `cut` simulates a short write.
        Ok(command.len() - usize::from(text.ends_with("cut")))
    }

    /// Reads at most two bytes at a time.
    fn read(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let answer = self.answer.borrow();
        let rest = &answer.as_bytes()[at as usize..];
        let len = rest.len().min(2).min(buffer.len());
        buffer[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }
}

/// Temporary root directory of a test.
struct Root(PathBuf, #[allow(dead_code)] tempfile::TempDir);

impl Root {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self(directory.path().to_path_buf(), directory)
    }

    /// Creates a root with the module and the service `san`.
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

    /// Creates a symbolic link to `target`.
    fn link(&self, path: &str, target: impl AsRef<Path>) {
        std::os::unix::fs::symlink(target, self.0.join(path)).unwrap();
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.0.join(path)).unwrap()
    }

    /// Installs a `dmsetup` that logs its arguments and prints `table` for the verb `table`. A file
    /// named after a verb holds the number of runs that still fail.
    fn dmsetup(&self, table: &str) {
        let root = self.0.display();
        let script = format!(
            "printf '%s\\n' \"$*\" >>{root}/log\n\
             case $1 in table) echo '{table}' ;; info) echo 1 ;; esac\n\
             read -r left <{root}/$1 && [ $left -gt 0 ] || exit 0\n\
             echo $((left - 1)) >{root}/$1\n\
             echo 'device-mapper: ioctl failed: No space left on device' >&2\nexit 1\n"
        );
        self.file("sbin/dmsetup", &script);
    }

    /// Creates a block device `8:16` with `sectors` sectors and the node `node`.
    fn block(&self, node: &str, sectors: u64) -> String {
        self.file("sys/dev/block/8:16/size", &format!("{sectors}\n"));
        self.file(node, "8:16");
        self.0.join(node).display().to_string()
    }

    /// Creates a disk with a partition and three schedulers; `none` is active.
    fn disk(&self, name: &str) {
        let disk = format!("sys/block/{name}");
        self.file(
            &format!("{disk}/queue/scheduler"),
            "[none] mq-deadline nrs\n",
        );
        self.file(&format!("{disk}/{name}1/partition"), "1\n");
        self.file(&format!("{disk}/dev"), "8:0\n");
        self.file(&format!("{disk}/size"), "1000\n");
    }

    fn live(&self) -> Live {
        Live {
            node: ModuleNode::new(&self.0, FileNode::open),
            disks: Disks::new(&self.0, sysfs),
            number: |path| fs::read_to_string(path),
            ..Live::at(&self.0)
        }
    }
}

/// Writes a file as sysfs does; the files in `iosched` belong to the scheduler. `FILE.refusal`
/// holds an error number, the refused text, and the number of writes to refuse.
fn sysfs(path: &Path, text: &str) -> io::Result<()> {
    let refusal = path.with_extension("refusal");
    if let Ok(refused) = fs::read_to_string(&refusal) {
        let words: Vec<&str> = refused.split(' ').collect();
        let left: u32 = words[2].parse().unwrap();
        if left > 0 && words[1] == text {
            fs::write(&refusal, format!("{} {text} {}", words[0], left - 1)).unwrap();
            return Err(io::Error::from_raw_os_error(words[0].parse().unwrap()));
        }
    }
    if !path.ends_with("scheduler") {
        fs::metadata(path)?;
        return fs::write(path, format!("{text}\n"));
    }
    let all = fs::read_to_string(path)?.replace(['[', ']'], "");
    if !all.split_ascii_whitespace().any(|word| word == text) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    fs::write(path, all.replace(text, &format!("[{text}]")))?;
    let (queue, iosched) = (path.parent().unwrap(), path.with_file_name("iosched"));
    if text != "nrs" {
        return fs::remove_dir_all(iosched).or(Ok(()));
    }
    let disk = queue.parent().unwrap().file_name().unwrap();
    fs::create_dir_all(&iosched)?;
    for (name, value) in [
        ("service", disk.to_str().unwrap()),
        ("jobid_name", "%e.%u"),
        ("stream", "hint"),
    ] {
        fs::write(iosched.join(name), format!("{value}\n"))?;
    }
    Ok(())
}

/// Returns the kind and the message of a failure.
fn err<T: std::fmt::Debug>(result: Result<T>) -> (FailureKind, String) {
    let failure = result.unwrap_err();
    (failure.kind, failure.message)
}

#[test]
fn without_the_module() {
    let root = Root::new();
    let live = root.live();
    // Device-mapper may exist without the module; it lists no devices then.
    root.dmsetup("No devices found");
    for (kind, _) in [
        err(live.services()),
        err(live.get("san", "slots")),
        err(live.set("san", "slots", "1")),
        err(live.make("san")),
        err(live.devices()),
        err(live.locate(&Device::default())),
        err(live.module_parameter("default_slots")),
    ] {
        assert_eq!(kind, FailureKind::NotLoaded);
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
    let missing = failure!(NotFound: "service 'sam' does not exist"; "did you mean: san");
    assert_eq!(live.get("sam", "slots"), Err(missing));
    let only = |how: &str| (FailureKind::Refused, format!("san.{how}"));
    let set = err(live.set("san", "health", "1"));
    assert_eq!(set, only("health: read-only parameter"));
    let got = err(live.get("san", "at_stats_reset"));
    assert_eq!(got, only("at_stats_reset: write-only parameter"));
}

/// Refused writes: what the module says; then the write, the kind of the failure and its reason.
const REASONS: &str = r#"
EINVAL bad
    slots=0 | Refused | not a number from 1 to 65535, or auto
ENOENT no rule
    nrs_tbf_rule=change a rate=5 | NotFound | no rule
EPERM default
    nrs_tbf_rule=stop default | Refused | default
EAGAIN
    nrs_policies=tbf uid | Busy | earlier policies are still stopping
EBUSY
    buffer_max=512 | Busy | device or resource busy
ENOMEM
    nrs_policies=tbf uid | Other | cannot allocate memory
EPERM
    slots=5 | Permission | operation not permitted
"#;

/// Returns the error with this name.
fn errno(name: &str) -> i32 {
    macro_rules! names {
        ($($name:ident)+) => {
            [$((stringify!($name), libc::$name)),+]
        };
    }
    let known = names! {
        EAGAIN EBUSY EINVAL EIO ELOOP ENOENT ENOMEM ENOSPC EPERM ETIMEDOUT
    };
    known
        .into_iter()
        .find(|(known, _)| *known == name)
        .unwrap()
        .1
}

/// Compares the sources of a reason: the tool's parser, then the module's answer, then the errno.
#[test]
fn reasons() {
    let lines: Vec<&str> = REASONS.trim().lines().collect();
    for pair in lines.chunks(2) {
        let (name, told) = pair[0].split_once(' ').unwrap_or((pair[0], ""));
        let [write, kind, want] = pair[1].trim().split(" | ").collect::<Vec<_>>()[..] else {
            panic!("{pair:?}");
        };
        let root = Root::loaded();
        root.file(
            "dev/nrs-control/refusal",
            &format!("{} {told}", errno(name)),
        );
        let (name, value) = write.split_once('=').unwrap();
        let failure = root.live().set("san", name, value).unwrap_err();
        assert_eq!(
            (&*format!("{:?}", failure.kind), failure.message),
            (kind, format!("san.{name}: {want}"))
        );
        assert!(failure.hint.is_some(), "{want}");
    }
    let root = Root::loaded();
    root.file("dev/nrs-control/refusal", &format!("{} ", libc::ENODEV));
    let failure = root.live().get("san", "nrs_qbm_status").unwrap_err();
    let want = failure!(NotFound: "san.nrs_qbm_status: qbm is not started";
        "start it: nrsctl policy set san qbm");
    assert_eq!(failure, want);
}

/// Covers a module that is being unloaded, whose node can no longer be opened.
#[test]
fn a_module_that_goes() {
    let root = Root::new();
    root.dir("sys/module/nrs");
    root.file("sys/module/nrs/initstate", "going\n");
    root.file("dev/nrs-control", "");
    assert_eq!(Live::at(&root.0).get("san", "slots"), Err(not_loaded()));
}

/// Covers a module without a node, a file instead of the node, and missing privileges.
#[test]
fn nodes_that_cannot_be_opened() {
    let root = Root::new();
    root.dir("sys/module/nrs");
    let live = Live::at(&root.0);
    for why in ["No such file or directory", "No such device"] {
        let want = (FailureKind::NotLoaded, format!("/dev/nrs-control: {why}"));
        assert_eq!(err(live.services()), want);
        assert_eq!(err(live.get("san", "slots")), want);
        assert_eq!(err(live.set("san", "slots", "1")), want);
        root.file("dev/nrs-control", "");
    }
    let failure = live.open_failure(libc::EACCES);
    assert_eq!(failure.kind, FailureKind::Permission);
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
    let exists = failure!(Refused: "new: a service with this name exists";
        "see: nrsctl service list");
    assert_eq!(live.make("new"), Err(exists));
    assert_eq!(err(live.remove("new")).0, FailureKind::Busy);
    fs::remove_file(root.0.join("sys/kernel/config/nrs/new/cpts")).unwrap();
    live.remove("new").unwrap();
    assert_eq!(err(live.remove("new")).0, FailureKind::NotFound);
    assert_eq!(err(live.remove("san")).0, FailureKind::Busy);
    assert_eq!(err(live.cpts("san")).0, FailureKind::NotFound);
    // A service name is not a path.
    root.dir("sys/kernel/config/nrs/san/rules");
    for name in ["", ".", "..", "san/rules", "san/rules/r1", "../other"] {
        assert_eq!(err(live.make(name)).0, FailureKind::Refused, "{name}");
        assert_eq!(err(live.remove(name)).0, FailureKind::NotFound);
        assert_eq!(err(live.set_cpts(name, 1)).0, FailureKind::NotFound);
        assert_eq!(live.is_made(name), Ok(false));
    }
    assert!(root.0.join("sys/kernel/config/nrs/san/rules").is_dir());
    fs::remove_dir_all(root.0.join("sys/kernel/config")).unwrap();
    assert_eq!(err(live.make("new")).1, "configfs is not mounted");
}

#[test]
fn devices() {
    let root = Root::loaded();
    root.dmsetup("files: 0 1000 nrs 8:16 0 san");
    let live = root.live();
    let device = Device {
        name: "new".into(),
        service: "san".into(),
        target: root.block("dev/s db", 16),
        offset: 4,
        // The table is passed unchanged: dmsetup escapes it for device-mapper.
        options: [("jobid".to_owned(), "a\\b".to_owned())].into(),
        ..Device::default()
    };
    let located = live.locate(&device).unwrap();
    assert_eq!((&located.target[..], located.sectors), ("8:16", 12));
    live.add_device(&located).unwrap();
    let table = "create new --table 0 12 nrs 8:16 4 san 2 jobid a\\b";
    let log = root.read("log");
    assert!(
        log.ends_with(&format!("{table} --noudevsync --noudevrules\nmknodes\n")),
        "{log}"
    );
    let with = |offset, sectors| Device {
        offset,
        sectors,
        ..device.clone()
    };
    for beyond in [with(16, 0), with(4, 13), with(u64::MAX, 1)] {
        assert_eq!(err(live.locate(&beyond)).0, FailureKind::Refused);
    }
    assert_eq!(live.locate(&with(4, 12)), Ok(located.clone()));
    for (target, want) in [
        ("/nowhere", "No such file or directory"),
        ("8:17", "no such block device"),
    ] {
        let missing = Device {
            target: target.into(),
            ..device.clone()
        };
        let want = (FailureKind::NotFound, format!("{target}: {want}"));
        assert_eq!(err(live.locate(&missing)), want);
    }
    // A disk that is not ready has no sectors.
    root.block("dev/s db", 0);
    let (kind, message) = err(live.locate(&device));
    assert_eq!(kind, FailureKind::NotFound);
    assert!(message.ends_with(": block device of length 0"), "{message}");
    assert_eq!(live.in_use("files"), Ok(true));
    live.remove_device("files").unwrap();
    let removed = "remove --retry files --noudevsync --noudevrules\nmknodes\n";
    assert!(root.read("log").ends_with(removed));
    assert_eq!(err(live.remove_device("other")).0, FailureKind::NotFound);
    assert_eq!(live.devices().unwrap()[0].name, "files");
    // A device of another type has the name, or the device has another target.
    root.file("sys/block/dm-0/dm/name", "new\n");
    assert_eq!(err(live.add_device(&located)).0, FailureKind::Busy);
    root.dmsetup("files: 0 8 linear 8:16 0\nfiles: 8 8 nrs 8:16 8 san\na: 0 8 nrs 8:16 0 san");
    let partial = |device: Device| (device.name, device.partial);
    let found: Vec<_> = live.devices().unwrap().into_iter().map(partial).collect();
    assert_eq!(found, [("a".into(), false), ("files".into(), true)]);
}

/// Verifies that a failed change restores the device's table and resumes the device.
#[test]
fn tables_changed() {
    let root = Root::loaded();
    root.dmsetup("a: 0 8 nrs 8:16 0 san");
    let live = root.live();
    let device = Device {
        name: "a".into(),
        service: "other".into(),
        target: "8:16".into(),
        sectors: 8,
        ..Device::default()
    };
    let full = "a: too many targets of the service (limit: 64) or services (limit: 1024)";
    let reload = "reload a --table 0 8 nrs 8:16 0 other\n";
    let resume = "resume a --noudevsync --noudevrules\n";
    let clear = "clear a\n";
    for (reloads, resumes, said, steps) in [
        (0, 0, None, vec![reload, resume, "mknodes\n"]),
        (1, 0, Some(full), vec![reload]),
        (
            0,
            1,
            Some(full),
            vec![reload, resume, clear, resume, "mknodes\n"],
        ),
        (
            0,
            2,
            Some(
                "a: device-mapper: ioctl failed: No space left on device; resuming the old table \
                  failed, too: the device may be suspended",
            ),
            vec![reload, resume, clear, resume],
        ),
    ] {
        root.file("log", "");
        root.file("reload", &format!("{reloads}\n"));
        root.file("resume", &format!("{resumes}\n"));
        let failure = live.change_device(&device).err();
        assert_eq!(failure.map(|failure| failure.message).as_deref(), said);
        assert_eq!(root.read("log"), steps.concat());
    }
}

/// Verifies that paths are stable across reboots.
#[test]
fn paths_that_stay() {
    let root = Root::loaded();
    for (number, name) in [("8:16", "sdb"), ("8:17", "sdb/sdb1"), ("253:0", "dm-0")] {
        root.dir(&format!("sys/devices/{name}"));
        root.dir("sys/dev/block");
        let target = root.0.join("sys/devices").join(name);
        root.link(&format!("sys/dev/block/{number}"), target);
    }
    root.file("sys/devices/dm-0/dm/name", "vg-lv\n");
    let live = root.live();
    assert_eq!(live.path("8:16").unwrap(), "/dev/sdb");
    root.file("dev/sdb", "");
    root.file("dev/sdb1", "");
    root.dir("dev/disk/by-id");
    for (id, name) in [
        ("ata-x", "sdb"),
        ("wwn-0x5", "sdb"),
        ("lvm-pv-uuid-1", "sdb1"),
        ("nvme-x-part1", "sdb1"),
        ("a", "gone"),
    ] {
        root.link(&format!("dev/disk/by-id/{id}"), format!("../../{name}"));
    }
    for (number, want) in [
        ("8:16", "/dev/disk/by-id/wwn-0x5"),
        ("8:17", "/dev/disk/by-id/nvme-x-part1"),
        ("253:0", "/dev/mapper/vg-lv"),
    ] {
        assert_eq!(live.path(number).unwrap(), want);
    }
    assert_eq!(err(live.path("9:0")).0, FailureKind::NotFound);
    // Without a name of the disk, that of its place is used.
    root.dir("dev/disk/by-path");
    root.link("dev/disk/by-path/pci-0", "../../sdb");
    assert_eq!(live.path("8:16").unwrap(), "/dev/disk/by-id/wwn-0x5");
    fs::remove_dir_all(root.0.join("dev/disk/by-id")).unwrap();
    assert_eq!(live.path("8:16").unwrap(), "/dev/disk/by-path/pci-0");
    root.dir("dev/disk/by-id");
    root.link("dev/disk/by-id/wwn-0x5", "../../sdb");
    // A given path is kept if it is equally stable.
    for (given, number, want) in [
        ("/dev/sdb", "8:16", "/dev/disk/by-id/wwn-0x5"),
        ("8:16", "8:16", "/dev/disk/by-id/wwn-0x5"),
        ("/dev/disk/by-path/x", "8:16", "/dev/disk/by-path/x"),
        ("/dev/vg/lv", "253:0", "/dev/vg/lv"),
        ("/dev/mapper/vg-lv", "253:0", "/dev/mapper/vg-lv"),
        ("/dev/dm-0", "253:0", "/dev/mapper/vg-lv"),
        ("253:0", "253:0", "/dev/mapper/vg-lv"),
    ] {
        let on = |target: &str| Device {
            target: target.into(),
            ..Device::default()
        };
        let kept = devices::lasting(&live, &on(given), &on(number)).unwrap();
        assert_eq!(kept.target, want, "{given}");
    }
    // A partition and its disk.
    root.file("sys/devices/sdb/sdb1/partition", "1\n");
    root.file("sys/devices/sdb/dev", "8:16\n");
    for (number, want) in [("8:17", "8:16"), ("8:16", "8:16"), ("9:0", "9:0")] {
        assert_eq!(live.whole(number), want);
    }
}

#[test]
fn module_parameters() {
    let root = Root::loaded();
    let live = root.live();
    for value in ["64", "32"] {
        assert_eq!(live.module_parameter("default_slots"), Ok(value.into()));
        live.set_module_parameter("default_slots", "32").unwrap();
    }
    assert_eq!(err(live.module_parameter("slots")).0, FailureKind::NotFound);
    assert_eq!(
        err(live.set_module_parameter("slots", "1")).0,
        FailureKind::NotFound
    );
}

/// Returns a disk with a service and options.
fn scheduled(name: &str, service: &str, jobid_name: &str) -> Device {
    let options = [("jobid_name", jobid_name), ("stream", "cgroup")];
    Device {
        name: name.into(),
        service: service.into(),
        options: options
            .map(|(name, value)| (name.into(), value.into()))
            .into(),
        ..Device::default()
    }
}

#[test]
fn names_of_disks() {
    let root = Root::loaded();
    root.disk("sda");
    root.disk("cciss!c0d0");
    root.dir("dev/disk/by-id");
    root.file("dev/sda", "");
    root.file("dev/sda1", "");
    root.link("dev/disk/by-id/wwn-1", "../../sda");
    root.link("dev/disk/by-id/wwn-1-part1", "../../sda1");
    let live = root.live();
    for (path, want) in [
        ("sda", "sda"),
        ("/dev/sda", "sda"),
        ("/dev/disk/by-id/wwn-1", "sda"),
        ("/dev/cciss/c0d0", "cciss!c0d0"),
        ("cciss/c0d0", "cciss!c0d0"),
    ] {
        assert_eq!(live.disk(path), Ok(want.into()), "{path}");
    }
    for path in ["sda1", "/dev/sda1", "/dev/disk/by-id/wwn-1-part1"] {
        let message = format!("{path}: is a partition; set the scheduler of its disk, sda");
        assert_eq!(err(live.disk(path)), (FailureKind::Refused, message));
    }
    for path in [
        "sdb",
        "/dev/sdb",
        "",
        ".",
        "..",
        "/dev",
        "/dev/disk/by-id/x",
    ] {
        assert_eq!(err(live.disk(path)).0, FailureKind::NotFound, "{path}");
    }
}

#[test]
fn layers_that_hide_owners() {
    let root = Root::loaded();
    root.disk("sda");
    let live = root.live();
    assert_eq!(live.hiding_layers("sda"), []);
    for (device, holder, file, text) in [
        ("sda/sda1", "md0", "md/level", "raid5"),
        ("sda", "md1", "md/level", "raid1"),
        ("md0", "dm-0", "dm/name", "vg-a"),
        ("dm-0", "dm-1", "dm/name", "b"),
        ("sda", "dm-2", "dm/name", "vg-r"),
        // Two members of one array.
        ("sda", "md0", "md/level", "raid5"),
    ] {
        root.file(&format!("sys/block/{device}/holders/{holder}"), "");
        root.file(&format!("sys/block/{holder}/{file}"), &format!("{text}\n"));
    }
    root.dmsetup(
        "vg-a: 0 100 linear 9:0 0\nb: 0 9 integrity 254:0 0 4 D 0\nvg-r: 0 9 raid raid5_ls 2 64\n\
         other: 0 9 integrity 8:0 0 4 D 0",
    );
    let layer = |path: &str, kind: &str| HidingLayer {
        path: path.into(),
        kind: kind.into(),
    };
    let wanted = [
        layer("/dev/mapper/b", "dm-integrity"),
        layer("/dev/mapper/vg-r", "raid5_ls"),
        layer("/dev/md0", "raid5"),
    ];
    assert_eq!(live.hiding_layers("sda"), wanted);
}

#[test]
fn disks_scheduled() {
    let root = Root::loaded();
    root.disk("sda");
    root.disk("sdb");
    root.file("sys/block/sda/queue/nr_requests", "64\n");
    root.file("sys/block/sdb/queue/nr_requests", "1000\n");
    root.dmsetup("files: 0 1000 nrs 8:16 0 san");
    let live = root.live();
    let wanted = scheduled("sda", "san", "%j");
    live.schedule(&wanted).unwrap();
    assert_eq!(root.read("sys/block/sda/queue/nr_requests").trim(), "256");
    let found = live.devices().unwrap();
    let names: Vec<&str> = found.iter().map(|device| &device.name[..]).collect();
    assert_eq!(names, ["files", "sda"]);
    let sda = Device {
        target: "8:0".into(),
        sectors: 1000,
        scheduled: true,
        ..wanted
    };
    assert_eq!(found[1], sda);
    // Settings that are not given are kept, or have the kernel's default.
    let plain = |name: &str| Device {
        name: name.into(),
        ..Device::default()
    };
    live.schedule(&plain("sda")).unwrap();
    live.schedule(&plain("sdb")).unwrap();
    assert_eq!(root.read("sys/block/sdb/queue/nr_requests").trim(), "1000");
    let disks = live.disks().unwrap();
    assert_eq!((&disks[0], &disks[1].service[..]), (&sda, "sdb"));
    let is_disk = failure!(Refused: "sda: is a disk, not a device-mapper device of type nrs";
        "nrsctl device unschedule sda");
    assert_eq!(live.remove_device("sda"), Err(is_disk));
    let unknown = failure!(Refused: "sda: unknown I/O scheduler 'bfq'";
        "available: none mq-deadline [nrs]");
    assert_eq!(live.unschedule("sda", "bfq"), Err(unknown));
    live.unschedule("sda", "mq-deadline").unwrap();
    let shown = root.read("sys/block/sda/queue/scheduler");
    assert_eq!(shown, "none [mq-deadline] nrs\n");
    let other = failure!(NotFound: "sda: nrs is not the I/O scheduler of the disk";
        "see: nrsctl device list");
    assert_eq!(live.unschedule("sda", "none"), Err(other));
    // A device without schedulers, and a device whose only scheduler is `none`.
    root.dir("sys/block/dm-0/queue");
    root.file("sys/block/zram0/queue/scheduler", "none\n");
    for (name, why) in [
        ("dm-0", "the disk does not support I/O schedulers"),
        ("zram0", "unknown I/O scheduler 'nrs'"),
    ] {
        let want = (FailureKind::Refused, format!("{name}: {why}"));
        assert_eq!(err(live.schedule(&plain(name))), want);
    }
    // Disks are listed even if dmsetup is not installed.
    let bare = Live {
        dmsetup: Dmsetup::missing(),
        ..root.live()
    };
    assert_eq!(bare.devices(), live.disks());
    // With devices there is a program; a list without them would remove their sections.
    root.dir("sys/block/dm-0/dm");
    assert_eq!(bare.devices().unwrap_err().kind, FailureKind::NotFound);
    // The paths of a multipath NVMe disk have no device number.
    root.disk("nvme0c0n1");
    fs::remove_file(root.0.join("sys/block/nvme0c0n1/dev")).unwrap();
    live.schedule(&plain("nvme0c0n1")).unwrap();
    let hidden = live.disks().unwrap().remove(0);
    assert_eq!(hidden.target, "nvme0c0n1");
    let kept = devices::lasting_disk(&live, hidden).unwrap();
    assert_eq!(kept.name, "nvme0c0n1");
}

/// Verifies that tables are listed although a device disappears meanwhile, and that `dmsetup` is
/// found without its directory in `PATH`.
#[test]
fn tables_that_change() {
    let root = Root::loaded();
    root.file(
        "sbin/dmsetup",
        &format!(
            "case $PATH in *:/usr/sbin:/sbin) ;; *) exit 1 ;; esac\n\
             read -r left <{0}/left; echo $((left - 1)) >{0}/left\n\
             [ $left -gt 0 ] || {{ echo 'files: 0 1000 nrs 8:16 0 san'; exit; }}\n\
             echo 'device-mapper: table ioctl on gone failed: No such device or address' >&2\n\
             exit 1\n",
            root.0.display()
        ),
    );
    for (left, found) in [("0", true), ("3", true), ("100", false)] {
        root.file("left", left);
        assert_eq!(root.live().devices().is_ok(), found, "{left}");
    }
}

/// Verifies that one command at a time changes the configuration.
#[test]
fn one_command_at_a_time() {
    let root = Root::loaded();
    let (one, other) = (root.live(), root.live());
    // Without the directory nothing is excluded.
    assert!(one.try_exclude().is_some());
    root.dir("run");
    let exclusion = one.try_exclude().unwrap();
    assert!(other.try_exclude().is_none());
    let told = std::sync::atomic::AtomicBool::new(true);
    let failure = crate::kernel::exclude(&other, &told).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Busy);
    drop(exclusion);
    assert!(other.try_exclude().is_some());
}

/// Refused writes to files of a disk: the file, the text and the error; then the kind of the
/// failure and its reason.
const RESTORED: &str = r#"
scheduler nrs EBUSY
    Busy | another change of the disk's queue is in progress
scheduler nrs EPERM
    Permission | permission denied
iosched/jobid_name %j EIO
    Other | jobid_name: input/output error
iosched/jobid_name %j EAGAIN
    Busy | another change of the disk's queue is in progress
iosched/service san ETIMEDOUT
    Busy | service: requests in flight did not complete within 1 s
iosched/service san EINVAL
    Refused | invalid service name
iosched/service san EBUSY
    Busy | service san serves programs or kernel modules
iosched/service san ELOOP
    Refused | a device of type nrs on the disk is a client of service san
iosched/service san ENOSPC
    Refused | too many services, or clients or targets of the service
"#;

/// Verifies that a refused change restores the disk and that the reason is reported.
#[test]
fn disks_put_back() {
    use libc::{EAGAIN, EBUSY, EINVAL, EIO, ENOSPC};
    let before = scheduled("sda", "old", "%u");
    let lines: Vec<&str> = RESTORED.trim().lines().collect();
    for pair in lines.chunks(2) {
        let [file, refused, name] = pair[0].split(' ').collect::<Vec<_>>()[..] else {
            panic!("{pair:?}");
        };
        let (errno, (kind, why)) = (errno(name), pair[1].trim().split_once(" | ").unwrap());
        for running in [false, true] {
            if running && file == "scheduler" {
                continue;
            }
            let root = Root::loaded();
            root.disk("sda");
            let live = root.live();
            if running {
                live.schedule(&before).unwrap();
            }
            let state = || (root.read("sys/block/sda/queue/scheduler"), live.disks());
            let was = state();
            let refusal = format!("sys/block/sda/queue/{file}");
            let refusal = Path::new(&refusal).with_extension("refusal");
            let refusal = refusal.to_str().unwrap();
            root.file(refusal, &format!("{errno} {refused} 99"));
            let wanted = scheduled("sda", "san", "%j");
            let (found, message) = err(live.schedule(&wanted));
            assert_eq!(
                (&*format!("{found:?}"), message),
                (kind, format!("sda: {why}"))
            );
            assert_eq!(state(), was);
        }
    }
    // The busy queue becomes free within the retries.
    let root = Root::loaded();
    root.disk("sda");
    let live = root.live();
    root.file(
        "sys/block/sda/queue/scheduler.refusal",
        &format!("{EBUSY} nrs 3"),
    );
    root.file(
        "sys/block/sda/queue/iosched/service.refusal",
        &format!("{EAGAIN} san 3"),
    );
    live.schedule(&scheduled("sda", "san", "%j")).unwrap();
    assert_eq!(live.disks().unwrap()[0].service, "san");
    live.unschedule("sda", "mq-deadline").unwrap();
    // A failed undo is reported.
    root.file(
        "sys/block/sda/queue/scheduler.refusal",
        &format!("{EIO} mq-deadline 9"),
    );
    root.file(
        "sys/block/sda/queue/iosched/service.refusal",
        &format!("{ENOSPC} san 9"),
    );
    let why = err(live.schedule(&scheduled("sda", "san", "%j"))).1;
    assert!(
        why.ends_with("; restoring the old settings failed, too: Input/output error"),
        "{why}"
    );
    // Without the module.
    let root = Root::new();
    root.disk("sda");
    root.file(
        "sys/block/sda/queue/scheduler.refusal",
        &format!("{EINVAL} nrs 9"),
    );
    let kind = err(root.live().schedule(&scheduled("sda", "san", "%j"))).0;
    assert_eq!(kind, FailureKind::NotLoaded);
}

#[test]
fn weights_of_cgroups() {
    let root = Root::loaded();
    root.file("sys/fs/cgroup/a/io.weight", "default 400\n8:0 200\n");
    root.file("sys/fs/cgroup/a/io.bfq.weight", "default 300\n");
    root.file("sys/fs/cgroup/b.slice/io.bfq.weight", "default 50\n");
    root.file("sys/fs/cgroup/c/io.weight", "8:0 200\n");
    root.dir("sys/fs/cgroup/d");
    let live = root.live();
    let weight = |path: &str| live.cgroup_weight(path);
    let found = ["/a", "/b.slice", "/c", "/d", "/e"].map(weight);
    assert_eq!(found, [Some(400), Some(50), None, None, None]);
    // Cgroups below one that is no slice may be delegated; paths may be too long.
    let long = format!("b.slice/{}.slice", "x".repeat(200));
    for path in [
        "a/delegated",
        "b.slice/x y",
        "b.slice/p*",
        &long,
        &format!("{long}/{long}"),
    ] {
        root.file(&format!("sys/fs/cgroup/{path}/io.weight"), "default 9\n");
    }
    root.file("dev/nrs-control/san/nrs_fairshare_weights", "");
    crate::cli::output_of(&live, "weight follow san --once").unwrap();
    let set = root.read("dev/nrs-control/san/nrs_fairshare_weights");
    assert_eq!(
        set,
        format!(
            "cgroup:\"/b.slice/x y\":9 cgroup:*:100 cgroup:/a:400 cgroup:/b.slice:50 \
             cgroup:/{long}:9 cgroup:\"\":100"
        )
    );
}
