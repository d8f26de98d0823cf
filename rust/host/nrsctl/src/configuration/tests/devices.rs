// SPDX-License-Identifier: GPL-2.0-only

//! Devices of type nrs: sections against the running state.

use super::*;
use crate::kernel::Device;

const FILES: &str = "[device.files]\ndevice = '/dev/sdb'\nservice = 'san'\n";

#[test]
fn devices_of_the_files() {
    let module = Mock::of(&[]);
    let text = "[device.files]\ndevice = '/dev/sdb'\nservice = 'san'\noffset = 8\n\
                nid = '10.0.0.7@tcp0'\n\
                size = 4\nopportunity = 'on'\non_timeout = 'fail'\n[service.san]\n\
                policy = 'fairshare'\n";
    let shown = differs(&module, text).unwrap();
    let files = "--- files, running\n+++ files, wanted\n@@ -0,0 +1,7 @@\n+[device.files]\n\
                 +device = \"/dev/sdb\"\n\
                 +service = \"san\"\n+offset = 8\n+nid = \"10.0.0.7@tcp\"\n\
                 +on_timeout = \"fail\"\n+size = 4\n";
    has(&shown, files);
    let out = applied(&module, text);
    ends(&out, "san: created\nfiles: created on /dev/sdb\n");
    assert_eq!(differs(&module, text), None);
    // The underlying device is named by its number.
    assert_eq!(differs(&module, &text.replace("/dev/sdb", "8:16")), None);
    let device = &module.devices().unwrap()[0];
    assert_eq!((&device.target[..], device.sectors), ("8:16", 992));
    let text = saved(&module);
    ends(&text, &files[files.find("+[").unwrap()..].replace('+', ""));
    let fresh = Mock::of(&[]);
    applied(&fresh, &text);
    assert_eq!(fresh.devices(), module.devices());
    // Missing keys have their defaults.
    let out = applied(&module, FILES);
    has(&out, "\n-size = 4\n");
    ends(&out, "files: changed\n");
    assert_eq!(differs(&module, FILES), None);
    // A device without a section is left unchanged; `--service` selects the devices of one service.
    assert_eq!(
        differs(&module, "[service.san]\npolicy = 'fairshare'\n"),
        None
    );
    let file = TemporaryFile::new(&format!(
        "{FILES}[device.b]\ndevice = '/dev/sda'\nservice = 'y'\n"
    ));
    let out = passes(&module, "--service y", &file);
    ends(&out, "b: created on /dev/sda\n");
    assert!(!out.contains("files"), "{out}");
    let one = output_of(&module, "save --service y").unwrap();
    has(&one, "[device.b]");
    assert!(!one.contains("files"), "{one}");
}

/// Refuses devices that overlap.
#[test]
fn sectors_of_one_device_only() {
    let module = Mock::of(&[]);
    let first = format!("{FILES}offset = 8\nsectors = 100\n");
    let with = |target: &str, place: &str| {
        format!("{first}[device.z]\ndevice = '{target}'\nservice = 'y'\n{place}")
    };
    // The same text for the underlying device is a fault of the files.
    for (place, ok) in [
        ("", false),
        ("offset = 107", false),
        ("sectors = 9", false),
        ("offset = 108", true),
        ("sectors = 8", true),
    ] {
        let file = TemporaryFile::new(&with("/dev/sdb", place));
        let name = file.0.display();
        let checked = output_of(&module, &format!("check {name}")).map_err(|failure| failure.kind);
        assert_eq!(checked.is_ok(), ok, "{place}");
        let done = ran(&module, "--dry-run", &file).1.unwrap_err();
        let kinds = [FailureKind::Refused, FailureKind::Differs];
        assert_eq!(done.kind, kinds[usize::from(ok)]);
        let fault = format!("device.z: overlaps device.files in {name}:1:9");
        assert_eq!(done.message.ends_with(&fault), !ok, "{done}");
    }
    // Different names are compared once both devices are located, running or not.
    let failure = refused(&module, &with("8:16", ""));
    let why = "device.z: device files overlaps these sectors of 8:16";
    reports(&failure, FailureKind::Refused, why);
    let names = |module: &Mock| {
        let devices = module.devices().unwrap().into_iter();
        devices.map(|device| device.name).collect::<Vec<_>>()
    };
    assert_eq!(names(&module), ["files"]);
    for line in [
        "device add z 8:16 y",
        "device add z /dev/sdb y --offset 107",
    ] {
        let failure = output_of(&module, line).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Refused, "{failure}");
    }
    assert_eq!(names(&module), ["files"]);
    output_of(&module, "device add z /dev/sdb y --offset 108").unwrap();
    // A device must not grow into another device.
    let failure = refused(&module, &first.replace("100", "101"));
    has(&failure.message, "device z overlaps");
    // A disk and a device on the disk are two clients of one path.
    output_of(&module, "device schedule sdb other").unwrap();
    applied(&module, &first.replace("100", "99"));
}

/// Verifies that `save` omits sections that `--save` wrote to another file of the directory.
#[test]
fn save_omits_sections_of_other_files() {
    let module = Mock::of(&[]);
    let room = tempfile::tempdir().unwrap();
    let directory = room.path().display();
    output_of(&module, &format!("device add a 8:0 x --save={directory}")).unwrap();
    output_of(&module, "device add b /dev/sdb x").unwrap();
    output_of(&module, &format!("save {directory}/nrs.toml")).unwrap();
    let text = std::fs::read_to_string(room.path().join("nrs.toml")).unwrap();
    has(&text, "[device.b]");
    assert!(!text.contains("[device.a]"), "{text}");
    output_of(&module, &format!("check {directory}")).unwrap();
    let all = output_of(&module, "save").unwrap();
    has(&all, "[device.a]");
    has(&all, "[device.b]");
    // A section that differs from the running device would be lost.
    let mut device = module.devices().unwrap()[0].clone();
    device.options.insert("size".into(), "4".into());
    module.change_device(&device).unwrap();
    let failure = output_of(&module, &format!("save {directory}/nrs.toml")).unwrap_err();
    let why = "devices.toml:1:9: the section of a differs from the running state";
    reports(&failure, FailureKind::Refused, why);
    let kept = std::fs::read_to_string(room.path().join("nrs.toml")).unwrap();
    assert_eq!(kept, text);
}

/// Refuses to write a file that makes the configuration of its directory wrong; directories and
/// files that nrs does not read are not checked.
#[test]
fn saved_beside_other_files() {
    let module = Mock::of(&["a"]);
    let room = tempfile::tempdir().unwrap();
    let path = |name: &str| room.path().join(name);
    let save = |name: &str| output_of(&module, &format!("save {}", path(name).display()));
    std::fs::write(path("10-a.toml"), "[service.a]\n").unwrap();
    save("nrs.toml").unwrap();
    std::fs::remove_file(path("nrs.toml")).unwrap();
    std::fs::write(path("devices.toml"), "").unwrap();
    let failure = save("nrs.toml").unwrap_err();
    let other = path("10-a.toml").display().to_string();
    let why = format!("service.a: already defined in {other}:1:10");
    reports(&failure, FailureKind::Refused, &why);
    assert!(!path("nrs.toml").exists());
    for name in ["10-a.toml", "nrs.txt", ".nrs.toml"] {
        save(name).unwrap();
        assert!(path(name).exists());
    }
    // The directory is wrong already.
    std::fs::write(path("wrong.toml"), "[service]\nx = 1\n").unwrap();
    assert_eq!(save("10-a.toml").unwrap_err().kind, FailureKind::Refused);
}

/// Verifies that an open device may grow and change its service, but not move or shrink.
#[test]
fn devices_in_use() {
    let module = Mock::of(&[]);
    let text = format!("{FILES}offset = 8\nsectors = 100\n");
    applied(&module, &text);
    *module.open.borrow_mut() = "files";
    let before = module.devices();
    for (old, new) in [
        ("/dev/sdb", "/dev/sda"),
        ("offset = 8", "offset = 7"),
        ("sectors = 100", "sectors = 99"),
    ] {
        let text = text.replace(old, new);
        for options in ["", "--dry-run"] {
            let failure = ran(&module, options, &TemporaryFile::new(&text))
                .1
                .unwrap_err();
            let why = "device.files: the device is in use and can only grow";
            reports(&failure, FailureKind::Busy, why);
        }
        assert_eq!(module.devices(), before);
    }
    let grown = text.replace("100", "200").replace("'san'", "'other'");
    applied(&module, &grown);
    let device = &module.devices().unwrap()[0];
    assert_eq!((&device.service[..], device.sectors), ("other", 200));
    *module.open.borrow_mut() = "";
    applied(&module, &text.replace("/dev/sdb", "/dev/sda"));
    assert_eq!(module.devices().unwrap()[0].target, "8:0");
}

/// Removes, with `--prune`, unused devices that no file defines, and the services left without
/// clients.
#[test]
fn devices_that_no_file_mentions() {
    let module = Mock::of(&[]);
    let text = "[service.san]\n[device.a]\ndevice = '/dev/sda'\nservice = 'san'\n\
                [device.b]\ndevice = '/dev/sdb'\nservice = 'san'\n[disk.sdb]\nservice = 'other'\n";
    applied(&module, text);
    let partial = Device {
        name: "part".into(),
        partial: true,
        ..module.devices().unwrap()[0].clone()
    };
    module.change_device(&partial).unwrap();
    let names = || {
        let devices = module.devices().unwrap().into_iter();
        devices.map(|device| device.name).collect::<Vec<_>>()
    };
    let file = TemporaryFile::new("[service.kept]\n");
    *module.open.borrow_mut() = "a";
    let (out, done) = ran(&module, "--prune --dry-run", &file);
    assert_eq!(done.unwrap_err().kind, FailureKind::Differs);
    let b = "--- b, running\n+++ b, wanted\n@@ -1,3 +0,0 @@\n-[device.b]\n\
             -device = \"/dev/sdb\"\n-service = \"san\"\n";
    assert!(out.contains(b) && !out.contains("device.a"), "{out}");
    passes(&module, "--prune", &file);
    assert_eq!(names(), ["a", "part", "sdb"]);
    *module.open.borrow_mut() = "";
    let out = passes(&module, "--prune", &file);
    ends(&out, "a: removed\n");
    assert_eq!(names(), ["part", "sdb"]);
}

/// Waits for an underlying device that appears late, as at boot, while the other devices are
/// created.
#[test]
fn devices_that_are_late() {
    let module = Mock::of(&[]);
    let file = TemporaryFile::new("[device.files]\ndevice = '/dev/sdb'\nservice = 'san'\n");
    module.late.set(2);
    let (out, done) = ran(&module, "--dry-run --wait 60", &file);
    assert_eq!(
        (out.as_str(), done.unwrap_err().kind),
        ("", FailureKind::NotFound)
    );
    module.late.set(3);
    let out = passes(&module, "--wait 60", &file);
    has(&out, "--- files, running\n");
    // A device on another device, in any order.
    let module = Mock::of(&[]);
    let file = TemporaryFile::new(
        "[device.a]\ndevice = '/dev/mapper/b'\nservice = 'x'\n[device.b]\ndevice = '/dev/sda'\n\
         service = 'y'\n",
    );
    let out = passes(&module, "--wait 60", &file);
    ends(&out, "a: created on /dev/mapper/b\n");
    // A device that never appears does not delay the others.
    let text = format!("[device.a]\ndevice = '/dev/sdx'\nservice = 'x'\n{FILES}");
    let (out, done) = apply(&module, &text);
    let failure = done.unwrap_err();
    let why = ":1:9: device.a: /dev/sdx: no such device";
    reports(&failure, FailureKind::NotFound, why);
    assert!(out.ends_with("files: created on /dev/sdb\n"), "{out}");
    // After an interruption, missing devices are not waited for.
    let module = Mock::of(&[]);
    module.told.store(true, Ordering::Relaxed);
    let (_, done) = ran(&module, "--wait 60", &TemporaryFile::new(&text));
    let why = "interrupted; not changed: files, a";
    assert_eq!(done.unwrap_err().message, why);
    assert!(module.devices().unwrap().is_empty());
}

/// Verifies that devices of other types or with several targets are not changed, and that a refusal
/// changes nothing.
#[test]
fn devices_that_are_not_ours() {
    let module = Mock::of(&[]);
    *module.foreign.borrow_mut() = "files";
    for options in ["", "--dry-run"] {
        let failure = ran(&module, options, &TemporaryFile::new(FILES))
            .1
            .unwrap_err();
        assert_eq!(failure.kind, FailureKind::Busy);
    }
    *module.foreign.borrow_mut() = "";
    module.refuse(0, 1, FailureKind::Refused);
    assert_eq!(refused(&module, FILES).message, "no");
    assert!(module.devices().unwrap().is_empty());
    applied(&module, FILES);
    let partial = Device {
        partial: true,
        ..module.devices().unwrap()[0].clone()
    };
    module.change_device(&partial).unwrap();
    let failure = refused(&module, &format!("{FILES}size = 2\n"));
    assert!(
        failure
            .message
            .ends_with("device.files: the device has several targets"),
        "{failure}"
    );
    assert_eq!(module.devices(), Ok(vec![partial]));
    assert!(!saved(&module).contains("[device"));
}
