// SPDX-License-Identifier: GPL-2.0-only

//! `nrsctl save`

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use crate::configuration::devices::{defined, in_words, lasting_disk};
use crate::configuration::files::File;
use crate::configuration::read::Wanted;
use crate::configuration::state::ServiceState;
use crate::configuration::{edit, files, module, parse, read, render, running, wanted};
use crate::failure::{failure, Result};
use crate::kernel::{self, exclude, Device, Kernel};
use crate::names::no_service;
use crate::replace::replace;

/// Arguments of `nrsctl save`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Saves this service only, without module parameters.
    #[arg(long, value_name = "NAME")]
    pub service: Option<String>,
    /// Output file, replaced if it exists (default standard output).
    pub file: Option<PathBuf>,
}

/// Writes the running state as a configuration, without defaults.
///
/// # Errors
///
/// - `NotFound`: the service does not exist.
/// - `Refused`: with the file, the configuration of its directory would be wrong.
/// - Errors of reading the running state and of writing the file.
pub fn run(args: &Args, kernel: &dyn Kernel, out: &mut dyn Write) -> Result {
    let exclusion = args.file.as_ref();
    let exclusion = exclusion.map(|_| exclude(kernel, &AtomicBool::new(false)));
    let _exclusion = exclusion.transpose()?;
    let values = module(kernel)?;
    let slots = values.get("default_slots").map_or("", String::as_str);
    let states: BTreeMap<String, ServiceState> = match &args.service {
        Some(only) => {
            let there = kernel.services()?;
            if !there.contains(only) {
                return Err(no_service(only, &there));
            }
            [(only.clone(), running::read(kernel, only)?)].into()
        }
        None => {
            let state = |name: &str| Ok((name.to_owned(), running::read(kernel, name)?));
            kernel::each(kernel, state)?.into_iter().collect()
        }
    };
    // Without the parameters of the module, the section of a service must set `slots` explicitly.
    let implied = match args.service {
        Some(_) => "",
        None => slots,
    };
    let mut parts = Vec::new();
    if args.service.is_none() {
        parts.push(render::module(&values));
    }
    parts.extend(
        states
            .iter()
            .map(|(name, state)| render::service(name, state, implied)),
    );
    let beside = args.file.as_deref().map(beside);
    let mut beside = beside.transpose()?.unwrap_or_default();
    let kept = wanted(&beside, kernel.accounts())?;
    let mut devices = Vec::new();
    for device in kernel.devices()? {
        // A section cannot describe these devices.
        if device.partial || !states.contains_key(&device.service) {
            continue;
        }
        if has_section(&kept, &device, kernel)? {
            continue;
        }
        let name = device.name.clone();
        let section = match device.scheduled {
            true => lasting_disk(kernel, device),
            false => defined(kernel, &device),
        };
        devices.push(section.map_err(|failure| {
            let hint = "remove the device, or save single services: nrsctl save --service NAME";
            failure.prefixed(&name).hint(hint)
        })?);
    }
    devices.sort_by_key(|device| !device.scheduled);
    parts.extend(devices.iter().map(render::device));
    parts.retain(|part| !part.is_empty());
    let text = format!("# Written by nrsctl save.\n\n{}", parts.join("\n"));
    prove(kernel, &text, &states, &devices, slots)?;
    let Some(path) = &args.file else {
        return Ok(out.write_all(text.as_bytes())?);
    };
    beside.push(File {
        name: path.display().to_string(),
        text: text.clone(),
    });
    let hint =
        "nothing was saved: save to the file that defines the section, or remove that section";
    let saved = wanted(&beside, kernel.accounts()).map_err(|failure| failure.hint(hint))?;
    let absent = absent(path, &saved, kernel);
    replace(path, text.as_bytes())?;
    for section in absent {
        // The file is saved even if standard error is closed.
        let _ = writeln!(
            io::stderr(),
            "nrsctl: {}: {section} is not running, its section was removed",
            path.display()
        );
    }
    Ok(())
}

/// Returns the sections of devices and disks in the old file `path` that `saved` does not have.
fn absent(path: &Path, saved: &Wanted, kernel: &dyn Kernel) -> Vec<String> {
    let old = files::read(&[path.to_path_buf()]).unwrap_or_default();
    let (old, _) = parse(&old, kernel.accounts());
    let disk = |key: &str| kernel.disk(key).unwrap_or_else(|_| key.to_owned());
    let disks: Vec<String> = saved.disks.keys().map(|key| disk(key)).collect();
    let devices = old.devices.keys();
    let devices = devices.filter(|key| !saved.devices.contains_key(*key));
    let gone = old.disks.keys().filter(|key| !disks.contains(&disk(key)));
    let gone = gone.map(|key| format!("disk {key}"));
    devices
        .map(|key| format!("device {key}"))
        .chain(gone)
        .collect()
}

/// Returns the files that are read together with `file`: the other `*.toml` of its directory, if
/// `nrs.service` or `--save` of commands reads that directory.
///
/// # Errors
///
/// Errors of reading.
fn beside(file: &Path) -> Result<Vec<File>> {
    let directory = file.parent().filter(|path| *path != Path::new(""));
    let directory = directory.unwrap_or(Path::new("."));
    let boot = fs::canonicalize(directory).is_ok_and(|path| path.starts_with(files::DIRECTORY));
    let read = boot || directory.join(edit::FILE).exists();
    if !read || !files::is_one(file) {
        return Ok(Vec::new());
    }
    let mut files = files::all(directory)?;
    files.retain(|other| Path::new(&other.name).file_name() != file.file_name());
    Ok(files)
}

/// Returns true if `kept` has the section that `device` would have.
///
/// # Errors
///
/// `Refused`: `kept` has a different section for the device.
fn has_section(kept: &Wanted, device: &Device, kernel: &dyn Kernel) -> Result<bool> {
    let name = &device.name;
    let is_disk = |key: &str| kernel.disk(key).is_ok_and(|disk| disk == *name);
    let found = match device.scheduled {
        true => kept
            .disks
            .iter()
            .find(|(key, _)| is_disk(key))
            .map(|(_, found)| found),
        false => kept.devices.get(name),
    };
    let Some((place, section)) = found else {
        return Ok(false);
    };
    let same = match device.scheduled {
        true => section.has_same_settings(device),
        false => {
            let located = kernel.locate(section);
            located.is_ok_and(|located| in_words(device, section, &located) == *section)
        }
    };
    if same {
        return Ok(true);
    }
    Err(
        failure!(Refused: "{place}: the section of {name} differs from the running state";
        "nothing was saved: use the section (nrsctl apply), or remove it to save what runs"),
    )
}

/// Verifies that `text`, read again, describes the running state.
fn prove(
    kernel: &dyn Kernel,
    text: &str,
    states: &BTreeMap<String, ServiceState>,
    devices: &[Device],
    slots: &str,
) -> Result {
    let wrong =
        |reason: String| Err(failure!(Other: "the running state cannot be saved: {reason}"));
    let (wanted, faults) = read::read([("the text", text)], kernel.accounts());
    if let Some(fault) = faults.first() {
        return wrong(fault.to_string());
    }
    for (name, state) in states {
        let again = wanted.services.get(name);
        let again = again.map(|section| section.state.clone().with_slots(slots));
        let same = again.is_some_and(|again| state.is(&again));
        if !same {
            return wrong(format!(
                "the section of service {name} would differ from the running state"
            ));
        }
    }
    for device in devices {
        let name = &device.name;
        let same = match device.scheduled {
            true => wanted
                .disks
                .get(name)
                .map(|(_, again)| again.has_same_settings(device)),
            false => wanted.devices.get(name).map(|(_, again)| again == device),
        };
        if same != Some(true) {
            return wrong(format!("{name} would differ from the running state"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::output_of;
    use crate::mock::Mock;

    #[test]
    fn sections_that_go() {
        let room = tempfile::tempdir().unwrap();
        let file = room.path().join("x.toml");
        let text = "[device.a]\ndevice = '/dev/sdb'\nservice = 'san'\n\
                    [device.b]\ndevice = '/dev/sdb'\noffset = 8\nservice = 'san'\n\
                    [disk.'/dev/sda']\nservice = 'san'\n[disk.sdx]\nservice = 'san'\n";
        fs::write(&file, text).unwrap();
        let kernel = Mock::of(&[]);
        output_of(&kernel, "device add a /dev/sdb san").unwrap();
        output_of(&kernel, "device schedule sda san").unwrap();
        let (saved, faults) = parse(
            &[File {
                name: "new".into(),
                text: output_of(&kernel, "save").unwrap(),
            }],
            kernel.accounts(),
        );
        assert!(faults.is_empty());
        assert_eq!(absent(&file, &saved, &kernel), ["device b", "disk sdx"]);
        assert!(absent(&room.path().join("none"), &saved, &kernel).is_empty());
    }
}
