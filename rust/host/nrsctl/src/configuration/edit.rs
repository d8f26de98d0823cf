// SPDX-License-Identifier: GPL-2.0-only

//! Writing and removal of sections of devices and disks in the files of a directory; comments are
//! kept.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use toml_edit::{DocumentMut, Item, Table as Section, Value};

use super::files::{self, File, DIRECTORY};
use super::keys::Table;
use super::read::Wanted;
use super::{parse, render};
use crate::accounts::Accounts;
use crate::failure::{failure, Failure, FailureKind, Result};
use crate::kernel::{exclude, Device, Exclusion, Kernel};
use crate::replace::replace;

/// Name of the file that receives new sections.
pub const FILE: &str = "devices.toml";

/// Subdirectory for devices on disks of the network, see operations.md.
const NET: &str = "net";

/// Option to save a change.
#[derive(clap::Args, Debug)]
pub struct SaveOption {
    /// Saves the change for the next boot, in its section of the files in DIR.
    #[arg(
        long,
        value_name = "DIR",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = DIRECTORY,
    )]
    pub save: Option<PathBuf>,
}

impl SaveOption {
    /// Returns the files in which to save the change of the section in `table` whose name is
    /// `named`; `None` without `--save`.
    ///
    /// # Errors
    ///
    /// - [`FailureKind::Refused`]: the files are wrong already, or the section is in the directory
    ///   for network disks, whose files are applied separately.
    /// - Errors of reading the files.
    pub fn files<'a>(
        &self,
        kernel: &'a dyn Kernel,
        table: Table,
        named: impl Fn(&str) -> bool,
    ) -> Result<Option<CheckedFiles<'a>>> {
        let Some(directory) = &self.save else {
            return Ok(None);
        };
        let exclusion = exclude(kernel, &AtomicBool::new(false))?;
        let files = files::all(directory)?;
        super::wanted(&files, kernel.accounts())?;
        let net = directory.join(NET);
        if net.is_dir() && find(&files, table, &named)?.is_none() {
            if let Some((file, name)) = find(&files::all(&net)?, table, &named)? {
                return Err(failure!(Refused:
                    "{}: has the section {}.{name}", file.name, table.key();
                    "--save={}", net.display()));
            }
        }
        Ok(Some(CheckedFiles {
            _exclusion: exclusion,
            directory: directory.clone(),
            files,
            accounts: kernel.accounts(),
        }))
    }
}

/// Valid files of a directory.
pub struct CheckedFiles<'a> {
    _exclusion: Exclusion,
    directory: PathBuf,
    files: Vec<File>,
    accounts: &'a Accounts,
}

impl CheckedFiles<'_> {
    /// Writes the section of `device`, replacing the section whose name is `named`, if any.
    ///
    /// # Errors
    ///
    /// Errors of [`CheckedFiles::change`].
    pub fn write(&self, device: &Device, named: impl Fn(&str) -> bool) -> Result {
        let table = Table::of(device);
        let new = File {
            name: self.directory.join(FILE).display().to_string(),
            text: String::new(),
        };
        let other = self.files.iter().find(|file| file.name == new.name);
        let found = find(&self.files, table, named)?;
        let (file, name) = found.unwrap_or((other.unwrap_or(&new), device.name.clone()));
        let mut document = document(&file.text)?;
        let is_first = document.is_empty();
        let mut parent = Section::new();
        parent.set_implicit(true);
        let sections = document
            .entry(table.key())
            .or_insert(Item::Table(parent))
            .as_table_like_mut();
        let sections = sections.ok_or_else(|| unwritable(file))?;
        let mut section = Section::new();
        if is_first {
            section.decor_mut().set_prefix("");
        }
        let section = sections
            .entry(&name)
            .or_insert(Item::Table(section))
            .as_table_like_mut();
        let section = section.ok_or_else(|| unwritable(file))?;
        let keys = render::keys(device);
        let old: Vec<String> = section.iter().map(|(key, _)| key.to_owned()).collect();
        for key in old
            .iter()
            .filter(|old| keys.iter().all(|(key, _)| key != old))
        {
            section.remove(key);
        }
        for (key, text) in keys {
            let mut value: Value = text.parse().map_err(|_| unwritable(file))?;
            match section.get_mut(key).and_then(Item::as_value_mut) {
                Some(old) => {
                    // A comment after the value is kept.
                    *value.decor_mut() = old.decor().clone();
                    *old = value;
                }
                None => _ = section.insert(key, Item::Value(value)),
            }
        }
        self.change(file, &document.to_string(), |wanted| {
            // A section cannot be added to an inline table.
            let devices = match device.scheduled {
                true => &wanted.disks,
                false => &wanted.devices,
            };
            let again = devices.get(&name).map(|(_, again)| again);
            again.is_some_and(|again| {
                let same_target = device.scheduled || again.target == device.target;
                same_target && again.has_same_settings(device)
            })
        })
    }

    /// Removes the section in `table` whose name is `named`; returns false if there is none.
    ///
    /// # Errors
    ///
    /// Errors of [`CheckedFiles::change`].
    pub fn remove(&self, table: Table, named: impl Fn(&str) -> bool) -> Result<bool> {
        let Some((file, name)) = find(&self.files, table, named)? else {
            return Ok(false);
        };
        let mut document = document(&file.text)?;
        let sections = document
            .get_mut(table.key())
            .and_then(Item::as_table_like_mut);
        sections.ok_or_else(|| unwritable(file))?.remove(&name);
        let text = document.to_string();
        self.change(file, &text, |_| true)?;
        Ok(true)
    }

    /// Replaces the text of `file`.
    ///
    /// # Errors
    ///
    /// - [`FailureKind::Busy`]: the file changed since it was read.
    /// - [`FailureKind::Other`]: the files would be wrong.
    /// - Errors of replacing the file.
    fn change(&self, file: &File, text: &str, is_right: impl Fn(&Wanted) -> bool) -> Result {
        let path = Path::new(&file.name);
        let now = match path.exists() {
            true => files::read(&[path.to_path_buf()])?.pop(),
            false => None,
        };
        if now.map_or(String::new(), |now| now.text) != file.text {
            return Err(
                failure!(Busy: "{}: the file changed during the command", file.name;
                "retry"),
            );
        }
        let changed = File {
            text: text.to_owned(),
            ..file.clone()
        };
        let others = self.files.iter().filter(|other| other.name != file.name);
        let all: Vec<File> = others.cloned().chain([changed]).collect();
        let (wanted, faults) = parse(&all, self.accounts);
        if let Some(fault) = faults.first() {
            return Err(Failure::new(FailureKind::Other, fault.to_string()));
        }
        if !is_right(&wanted) {
            return Err(unwritable(file));
        }
        replace(path, text.as_bytes())
    }
}

/// Returns the file and the key of the section in `table` whose name is `named`.
fn find(
    files: &[File],
    table: Table,
    named: impl Fn(&str) -> bool,
) -> Result<Option<(&File, String)>> {
    for file in files {
        let document = document(&file.text)?;
        let sections = document.get(table.key()).and_then(Item::as_table_like);
        let mut names = sections.into_iter().flat_map(|sections| sections.iter());
        if let Some((name, _)) = names.find(|(name, _)| named(name)) {
            return Ok(Some((file, name.to_owned())));
        }
    }
    Ok(None)
}

/// Parses a text that was parsed before.
fn document(text: &str) -> Result<DocumentMut> {
    text.parse()
        .map_err(|error: toml_edit::TomlError| Failure::new(FailureKind::Other, error.message()))
}

/// Returns the failure that a section cannot be written in `file`.
fn unwritable(file: &File) -> Failure {
    failure!(Other: "{}: the section cannot be written", file.name)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::cli::output_of;
    use crate::mock::Mock;

    /// Directory with files.
    struct Room(tempfile::TempDir);

    impl Room {
        fn new(files: &[(&str, &str)]) -> Self {
            let room = Self(tempfile::tempdir().unwrap());
            for (name, text) in files {
                fs::write(room.0.path().join(name), text).unwrap();
            }
            room
        }

        fn run(&self, module: &Mock, line: &str) -> Result<String> {
            output_of(
                module,
                &format!("{line} --save={}", self.0.path().display()),
            )
        }

        fn fails(&self, module: &Mock, line: &str) -> FailureKind {
            self.run(module, line).unwrap_err().kind
        }

        fn text(&self, name: &str) -> String {
            fs::read_to_string(self.0.path().join(name)).unwrap_or_default()
        }
    }

    #[test]
    fn written_and_removed() {
        let (room, module) = (Room::new(&[]), Mock::of(&[]));
        room.run(
            &module,
            "device add a.b /dev/sdb san --size 4 --nid 10.0.0.7@tcp0",
        )
        .unwrap();
        let first = "[device.\"a.b\"]\ndevice = \"/dev/sdb\"\nservice = \"san\"\n\
                     nid = \"10.0.0.7@tcp\"\nsize = 4\n";
        assert_eq!(room.text("devices.toml"), first);
        room.run(&module, "device schedule /dev/sda").unwrap();
        let disk = "\n[disk.\"/dev/sda\"]\nservice = \"sda\"\n";
        assert_eq!(room.text("devices.toml"), format!("{first}{disk}"));
        let name = room.0.path().display();
        let out = output_of(&module, &format!("apply --dry-run --wait 0 {name}")).unwrap();
        assert_eq!(out, "nothing to change\n");
        // A device number or name that may change with a reboot is not saved.
        room.run(&module, "device add n 8:0 san").unwrap();
        let kept = room.text("devices.toml");
        assert!(
            kept.contains("[device.n]\ndevice = \"/dev/sda\"\n"),
            "{kept}"
        );
        room.run(&module, "device remove n").unwrap();
        // Another name of the same disk refers to the same section.
        room.run(&module, "client schedule sda other --jobid-name %j")
            .unwrap();
        let disk = "\n[disk.\"/dev/sda\"]\nservice = \"other\"\njobid_name = \"%j\"\n";
        assert_eq!(room.text("devices.toml"), format!("{first}{disk}"));
        room.run(&module, "device remove a.b").unwrap();
        assert_eq!(room.text("devices.toml"), disk);
        room.run(&module, "device unschedule sda").unwrap();
        assert_eq!(room.text("devices.toml"), "");
        assert!(module.devices().unwrap().is_empty());
        assert_eq!(fs::read_dir(room.0.path()).unwrap().count(), 1);
    }

    /// Verifies that a section is found in any file, and that its file and comments are kept.
    #[test]
    fn comments_stay() {
        let mine = "# mine\n[service.san]\nslots = 5 # few\n\n# the files\n[device.files]\n\
                    service = 'san' # ours\n\
                    device = \"/dev/sda\"\nsize = 2\n\n[device.z]\ndevice = '/dev/sdc'\n\
                    service = 'z'\n";
        let room = Room::new(&[
            ("mine.toml", mine),
            (
                "other.toml",
                "device.x = { device = '/dev/sdd', service = 'x' }\n",
            ),
        ]);
        let module = Mock::of(&[]);
        room.run(&module, "device add files /dev/sdb new").unwrap();
        let want = mine
            .replace("'san' # ours", "\"new\" # ours")
            .replacen("/dev/sda", "/dev/sdb", 1)
            .replace("size = 2\n", "");
        assert_eq!(room.text("mine.toml"), want);
        room.run(&module, "device add x /dev/sda y").unwrap();
        assert_eq!(
            room.text("other.toml"),
            "device.x = { device = \"/dev/sda\", service = \"y\" }\n"
        );
        // The section of a device that does not exist any more is removed; without a section,
        // removal is an error.
        room.run(&module, "device remove z").unwrap();
        assert_eq!(
            room.text("mine.toml"),
            want[..want.find("\n[device.z]").unwrap()]
        );
        assert_eq!(
            room.fails(&module, "device remove z"),
            FailureKind::NotFound
        );
        assert_eq!(room.text("devices.toml"), "");
    }

    /// Verifies that a device that was added, but not saved, is saved by the same command.
    #[test]
    fn saved_later() {
        let (room, module) = (Room::new(&[]), Mock::of(&[]));
        output_of(&module, "device add a /dev/sdb san").unwrap();
        let again = output_of(&module, "device add a /dev/sdb san").unwrap_err();
        assert_eq!(again.kind, FailureKind::Busy);
        let other = room.fails(&module, "device add a /dev/sdb other");
        assert_eq!(other, FailureKind::Busy);
        room.run(&module, "device add a /dev/sdb san").unwrap();
        assert!(room.text("devices.toml").contains("[device.a]"));
    }

    /// Verifies that sections of network disks are not changed from the other directory.
    #[test]
    fn network_disks() {
        let (room, module) = (Room::new(&[]), Mock::of(&[]));
        fs::create_dir(room.0.path().join(NET)).unwrap();
        let text = "[device.a]\ndevice = '/dev/sdb'\nservice = 'san'\n\
                    [disk.'/dev/sda']\nservice = 'san'\n";
        fs::write(room.0.path().join("net/x.toml"), text).unwrap();
        output_of(&module, "device add a /dev/sdb san").unwrap();
        for line in [
            "device add a /dev/sdb san",
            "device remove a",
            "device schedule sda",
            "device unschedule sda",
        ] {
            let failure = room.run(&module, line).unwrap_err();
            assert_eq!(failure.kind, FailureKind::Refused, "{line}");
            let hint = failure.hint.unwrap();
            assert_eq!(hint, format!("--save={}/net", room.0.path().display()));
        }
        assert_eq!(module.devices().unwrap().len(), 1);
        output_of(&module, "device remove a").unwrap();
    }

    /// Verifies that nothing is changed if the files are wrong, and that nothing is saved if the
    /// change is refused.
    #[test]
    fn neither_nor() {
        let wrong = "[device.a]\ndevice = 'sdb'\n";
        let (room, module) = (Room::new(&[("a.toml", wrong)]), Mock::of(&[]));
        for line in ["device add b /dev/sdb san", "device schedule sda"] {
            assert_eq!(room.fails(&module, line), FailureKind::Refused);
        }
        assert!(module.devices().unwrap().is_empty());
        let room = Room::new(&[("a.toml", "")]);
        *module.foreign.borrow_mut() = "b";
        assert_eq!(
            room.fails(&module, "device add b /dev/sdb san"),
            FailureKind::Busy
        );
        assert_eq!(fs::read_dir(room.0.path()).unwrap().count(), 1);
        let c = "[device.c]\ndevice = '/dev/sdb'\nservice = 'san'\n";
        output_of(&module, "device add c /dev/sdb san").unwrap();
        *module.open.borrow_mut() = "c";
        let room = Room::new(&[("a.toml", c)]);
        assert_eq!(room.fails(&module, "device remove c"), FailureKind::Busy);
        assert!(room.text("a.toml").contains("device.c"));
        // A section that cannot be written leaves the file unchanged.
        let inline = "device = {}\n";
        let room = Room::new(&[("devices.toml", inline)]);
        let failure = room.run(&module, "device add e /dev/sda san").unwrap_err();
        let why = "the change was made, but not saved: ";
        assert!(failure.message.starts_with(why), "{failure}");
        assert_eq!(room.text("devices.toml"), inline);
        // The directory does not exist; a file the file changed during the command.
        let failure = output_of(&module, "device add d /dev/sda san --save=/nowhere").unwrap_err();
        assert_eq!(failure.kind, FailureKind::NotFound);
        let room = Room::new(&[("a.toml", c)]);
        let save = Some(room.0.path().into());
        let named = |name: &str| name == "c";
        let files = SaveOption { save }.files(&module, Table::Device, named);
        let files = files.unwrap().unwrap();
        fs::write(room.0.path().join("a.toml"), "# another\n").unwrap();
        let device = module.devices().unwrap()[0].clone();
        let failure = files.write(&device, named).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Busy);
        assert_eq!(room.text("a.toml"), "# another\n");
    }
}
