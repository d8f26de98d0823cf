// SPDX-License-Identifier: GPL-2.0-only

//! `nrsctl device`

use std::collections::BTreeMap;
use std::io::{self, Write};

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::Subcommand;
use nrs_sched::attr::SIZE_MAX;
use serde::Serialize;

use crate::configuration::devices::{
    alone, lasting, lasting_disk, plain, refused, SECTOR_MAX, STREAMS,
};
use crate::configuration::edit::{CheckedFiles, SaveOption};
use crate::configuration::keys::Table;
use crate::failure::{failure, Failure, FailureKind, Result};
use crate::kernel::{self, Device, Kernel};
use crate::live::HidingLayer;
use crate::names::no_client;
use crate::{show, stats};

/// Actions of `nrsctl device`.
#[derive(Subcommand, Debug)]
pub enum DeviceAction {
    /// Lists devices, disks and other clients.
    List {
        /// Name of the service (default: all).
        service: Option<String>,
        /// Prints JSON.
        #[arg(long)]
        json: bool,
    },
    /// Shows one client and its counters.
    Show {
        /// Name of the client.
        name: String,
        /// Prints JSON.
        #[arg(long)]
        json: bool,
    },
    /// Creates /dev/mapper/NAME, a client of SERVICE on DEVICE.
    Add(Box<New>),
    /// Creates /dev/mapper/nrs-DEVICE, a client on all of DEVICE.
    Above {
        /// Block device below, which hides whose requests are: md0, a path or MAJOR:MINOR.
        device: String,
        /// Name of the service; created if it does not exist (default: the device's name).
        service: Option<String>,
        #[command(flatten)]
        kept: SaveOption,
    },
    /// Removes /dev/mapper/NAME; data on the device below is kept.
    Remove {
        /// Name of the device.
        name: String,
        #[command(flatten)]
        kept: SaveOption,
    },
    /// Makes nrs the I/O scheduler of DISK, or changes its options.
    Schedule(Scheduled),
    /// Selects another I/O scheduler for a disk.
    Unschedule {
        /// Name or path of the disk: sda.
        disk: String,
        /// Name of the I/O scheduler.
        #[arg(default_value = "none")]
        scheduler: String,
        #[command(flatten)]
        kept: SaveOption,
    },
}

/// Returns a parser of `words`, pairs of a word and its help.
fn words<const N: usize>(words: [(&'static str, &'static str); N]) -> PossibleValuesParser {
    words
        .map(|(word, help)| PossibleValue::new(word).help(help))
        .into()
}

/// Arguments of `nrsctl device add`.
#[derive(clap::Args, Debug)]
pub struct New {
    /// Name of the device.
    pub name: String,
    /// Block device below: a path or MAJOR:MINOR.
    pub device: String,
    /// Name of the service; created if it does not exist.
    pub service: String,
    /// First sector on the device, in sectors of 512 bytes.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=SECTOR_MAX))]
    pub offset: u64,
    /// Length in sectors (default: the rest of the device).
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=SECTOR_MAX))]
    pub sectors: Option<u64>,
    /// Network identifier of all requests: 10.0.0.7@tcp.
    #[arg(long)]
    pub nid: Option<String>,
    /// Job identifier of all requests.
    #[arg(long)]
    pub jobid: Option<String>,
    /// Format of job identifiers, with %e %u %g %p %h %H %j.
    #[arg(long, value_name = "FORMAT")]
    pub jobid_name: Option<String>,
    /// Job size, 1 to 4096, for the level size of fairshare.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=u64::from(SIZE_MAX)))]
    pub size: Option<u64>,
    /// Dispatches requests without the policy while slots are free.
    #[arg(
        long,
        value_parser = words([("on", "default"), ("off", "the policy sees every request")]),
    )]
    pub opportunity: Option<String>,
    /// Source of offset streams, for orr.
    #[arg(long, value_parser = words(STREAMS))]
    pub stream: Option<String>,
    /// Behaviour while the device does not respond.
    #[arg(
        long,
        value_parser = words([("wait", "default"), ("fail", "fail requests with a timeout")]),
    )]
    pub on_timeout: Option<String>,
    #[command(flatten)]
    kept: SaveOption,
}

/// Arguments of `nrsctl device schedule`.
#[derive(clap::Args, Debug)]
pub struct Scheduled {
    /// Name or path of the disk: sda.
    pub disk: String,
    /// Name of the service; created if it does not exist (default: the disk's name).
    pub service: Option<String>,
    /// Format of job identifiers, with %e %u %g %p %h %H %j.
    #[arg(long, value_name = "FORMAT")]
    pub jobid_name: Option<String>,
    /// Source of offset streams, for orr.
    #[arg(long, value_parser = words(STREAMS))]
    pub stream: Option<String>,
    #[command(flatten)]
    kept: SaveOption,
}

/// Client, as shown.
#[derive(Clone, Debug, Serialize)]
pub struct ListedDevice {
    /// Name of the client.
    pub name: String,
    /// Name of the service.
    pub service: String,
    /// Underlying device; `None` for a program.
    pub device: Option<String>,
    /// First sector on the underlying device.
    pub offset: Option<u64>,
    /// Length in sectors.
    pub sectors: Option<u64>,
    /// Other options of the table line.
    pub options: BTreeMap<String, String>,
    /// Counters and the state of the client.
    pub counters: BTreeMap<String, serde_json::Value>,
}

/// Headings of the columns of [`ListedDevice::row`].
const HEADINGS: [&str; 7] = [
    "CLIENT", "SERVICE", "DEVICE", "PASSED", "QUEUED", "HELD", "FAILED",
];

impl ListedDevice {
    /// Returns the row of the client in a table.
    fn row(&self) -> [String; 7] {
        let [passed, queued, held, failed] =
            ["passed", "queued", "held", "failed"].map(|name| self.counter(name));
        let device = self.device.clone().unwrap_or_else(|| "a program".into());
        let (name, service) = (self.name.clone(), self.service.clone());
        [name, service, device, passed, queued, held, failed]
    }

    /// Returns the counter `name` as text, `-` if it is unknown.
    fn counter(&self, name: &str) -> String {
        match self.counters.get(name) {
            Some(serde_json::Value::String(text)) => text.clone(),
            Some(value) => value.to_string(),
            None => "-".into(),
        }
    }
}

/// Returns the counters in `numbers` and the state of a client.
fn counters(numbers: stats::Counters, lost: bool) -> BTreeMap<String, serde_json::Value> {
    let state = match lost {
        true => "lost",
        false => "live",
    };
    let numbers = numbers.into_iter().map(|(name, n)| (name.into(), n.into()));
    numbers.chain([("state".into(), state.into())]).collect()
}

/// Returns the clients of `service`, or of all services.
fn clients(kernel: &dyn Kernel, service: Option<&str>) -> Result<Vec<ListedDevice>> {
    let devices = kernel.devices()?;
    let of = |service: &str| {
        let clients = stats::summary(kernel, service)?.clients.into_iter();
        let clients = clients.map(|client| {
            let mut devices = devices.iter();
            let device =
                devices.find(|device| device.name == client.name && device.service == service);
            ListedDevice {
                name: client.name,
                service: service.into(),
                device: device.map(|device| device.target.clone()),
                offset: device.map(|device| device.offset),
                sectors: device.map(|device| device.sectors),
                options: device
                    .map(|device| device.options.clone())
                    .unwrap_or_default(),
                counters: counters(client.counters, client.lost),
            }
        });
        Ok(clients.collect())
    };
    let mut clients: Vec<ListedDevice> = match service {
        Some(service) => of(service)?,
        None => kernel::each(kernel, of)?.concat(),
    };
    clients.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(clients)
}

/// Runs `nrsctl device`.
///
/// # Errors
///
/// - [`FailureKind::NotFound`]: the service, client or device does not exist.
/// - [`FailureKind::Refused`]: a name or value is wrong, or another device overlaps the sectors.
/// - [`FailureKind::Busy`]: the client exists already, or is in use.
pub fn run(action: &DeviceAction, kernel: &dyn Kernel, out: &mut dyn Write) -> Result {
    match action {
        DeviceAction::List { service, json } => {
            let clients = clients(kernel, service.as_deref())?;
            show::list(out, *json, &clients, HEADINGS, ListedDevice::row)
        }
        DeviceAction::Show { name, json } => {
            let clients = clients(kernel, None)?;
            let names = clients.iter().map(|client| &client.name[..]);
            let Some(client) = clients.iter().find(|client| client.name == *name) else {
                return Err(no_client(name, names));
            };
            match json {
                true => show::json(out, client),
                false => one(client, out),
            }
        }
        DeviceAction::Add(new) => add(&device(new)?, &new.kept, kernel),
        DeviceAction::Above {
            device,
            service,
            kept,
        } => add(&above(device, service.as_deref())?, kept, kernel),
        DeviceAction::Remove { name, kept } => {
            let same = |key: &str| key == name;
            let files = kept.files(kernel, Table::Device, same)?;
            let done = kernel.remove_device(name);
            forget(files, Table::Device, done, same)
        }
        DeviceAction::Schedule(new) => {
            let disk = disk(new, kernel)?;
            let same = |key: &str| kernel.disk(key).is_ok_and(|name| name == disk.name);
            let files = new.kept.files(kernel, Table::Disk, same)?;
            kernel.schedule(&disk)?;
            for HidingLayer { path, kind } in kernel.hiding_layers(&disk.name) {
                let _ = writeln!(
                    io::stderr(),
                    "nrsctl: warning: {path} ({kind}) hides from {} whose requests are\n\
                     nrsctl: see servers.md; nrsctl device above {path} SERVICE --save",
                    disk.name,
                );
            }
            let Some(files) = files else {
                return Ok(());
            };
            let now = kernel.disks()?;
            let now = now.into_iter().find(|now| now.name == disk.name);
            let now = now.map(|now| Device {
                name: new.disk.clone(),
                ..now
            });
            let write = |now: Device| files.write(&lasting_disk(kernel, now)?, same);
            let gone = || Err(failure!(Busy: "{}: the I/O scheduler has changed again", disk.name));
            now.map_or_else(gone, write).map_err(unsaved)
        }
        DeviceAction::Unschedule {
            disk,
            scheduler,
            kept,
        } => {
            let found = kernel.disk(disk);
            let same = |key: &str| {
                let name = kernel.disk(key);
                key == disk || name.is_ok() && name == found
            };
            let files = kept.files(kernel, Table::Disk, same)?;
            let done = found
                .clone()
                .and_then(|name| kernel.unschedule(&name, scheduler));
            forget(files, Table::Disk, done, same)
        }
    }
}

/// Adds a device.
fn add(device: &Device, kept: &SaveOption, kernel: &dyn Kernel) -> Result {
    let same = |key: &str| key == device.name;
    let files = kept.files(kernel, Table::Device, same)?;
    let (located, running) = (kernel.locate(device)?, kernel.devices()?);
    alone(&located, &running)?;
    let kept = lasting(kernel, device, &located)?;
    // A device that was added, but not saved, is saved by the same command.
    let wanted = plain(located.clone());
    let runs = |device: Device| files.is_some() && plain(device) == wanted;
    if !running.into_iter().any(runs) {
        kernel.add_device(&located)?;
    }
    let write = |files: CheckedFiles<'_>| files.write(&kept, same);
    files.map_or(Ok(()), write).map_err(unsaved)
}

/// Returns `failure` with the addition that the change was made, but not saved.
fn unsaved(failure: Failure) -> Failure {
    failure.prefixed("the change was made, but not saved")
}

/// Removes the section in `table` whose name is `named` from `files` once the removal is `done`. A
/// device that does not exist any more may still have a section.
fn forget(
    files: Option<CheckedFiles<'_>>,
    table: Table,
    done: Result,
    named: impl Fn(&str) -> bool,
) -> Result {
    let missing = matches!(&done, Err(failure) if failure.kind == FailureKind::NotFound);
    let Some(files) = files.filter(|_| done.is_ok() || missing) else {
        return done;
    };
    match files.remove(table, named) {
        Ok(true) => Ok(()),
        Ok(false) => done,
        Err(failure) => Err(unsaved(failure)),
    }
}

/// Checks values of a command by the rules for the corresponding keys of a section.
///
/// # Errors
///
/// [`FailureKind::Refused`]: the module would not accept a value.
fn check<'a>(values: impl IntoIterator<Item = (&'a str, Option<&'a str>)>, hint: &str) -> Result {
    for (key, value) in values {
        if let Some(reason) = value.and_then(|value| refused(key, value)) {
            let what = match key {
                "name" | "device" | "service" => key.to_uppercase(),
                key => format!("--{}", key.replace('_', "-")),
            };
            return Err(failure!(Refused: "{what}: {reason}"; "{hint}"));
        }
    }
    Ok(())
}

/// Options of a table line or a scheduler, with their names.
type Options<'a, const N: usize> = [(&'a str, Option<&'a str>); N];

/// Returns the options that have a value.
fn given<const N: usize>(options: Options<'_, N>) -> BTreeMap<String, String> {
    let given = options.into_iter();
    given
        .filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())))
        .collect()
}

/// Returns the disk that `new` describes.
///
/// # Errors
///
/// - [`FailureKind::Refused`]: the module would not accept a value.
/// - Errors of [`Kernel::disk`].
fn disk(new: &Scheduled, kernel: &dyn Kernel) -> Result<Device> {
    const HINT: &str = "see: nrsctl help device schedule; iosched.md";
    let options = [
        ("jobid_name", new.jobid_name.as_deref()),
        ("stream", new.stream.as_deref()),
    ];
    let service = new.service.as_deref();
    check([("service", service)].into_iter().chain(options), HINT)?;
    Ok(Device {
        name: kernel.disk(&new.disk)?,
        service: new.service.clone().unwrap_or_default(),
        options: given(options),
        scheduled: true,
        ..Device::default()
    })
}

/// Returns the device that `new` describes.
///
/// # Errors
///
/// [`FailureKind::Refused`]: the module would not accept a value.
fn device(new: &New) -> Result<Device> {
    const HINT: &str = "see: nrsctl help device add; dm-nrs.md";
    let words = [
        ("name", Some(&new.name[..])),
        ("device", Some(&new.device[..])),
        ("service", Some(&new.service[..])),
    ];
    let size = new.size.map(|size| size.to_string());
    let options = [
        ("nid", new.nid.as_deref()),
        ("jobid", new.jobid.as_deref()),
        ("jobid_name", new.jobid_name.as_deref()),
        ("size", size.as_deref()),
        ("opportunity", new.opportunity.as_deref()),
        ("stream", new.stream.as_deref()),
        ("on_timeout", new.on_timeout.as_deref()),
    ];
    check(words.into_iter().chain(options), HINT)?;
    Ok(Device {
        name: new.name.clone(),
        service: new.service.clone(),
        target: new.device.clone(),
        offset: new.offset,
        sectors: new.sectors.unwrap_or_default(),
        options: given(options),
        ..Device::default()
    })
}

/// Returns the device above all of `target`, named after it.
///
/// # Errors
///
/// [`FailureKind::Refused`]: the module would not accept a value.
fn above(target: &str, service: Option<&str>) -> Result<Device> {
    const HINT: &str = "see: nrsctl help device above; use nrsctl device add";
    let (path, base) = match target.rsplit_once('/') {
        Some((_, base)) => (target.into(), base),
        None if target.contains(':') => (target.into(), target),
        None => (format!("/dev/{target}"), target),
    };
    let name = format!("nrs-{}", base.replace(':', "-"));
    let service = service.unwrap_or(base);
    let words = [("name", &name[..]), ("device", &path), ("service", service)];
    check(words.map(|(key, word)| (key, Some(word))), HINT)?;
    Ok(Device {
        name,
        service: service.into(),
        target: path,
        ..Device::default()
    })
}

/// Shows one client.
fn one(client: &ListedDevice, out: &mut dyn Write) -> Result {
    let device = client.device.as_deref().unwrap_or("a program");
    writeln!(
        out,
        "client:   {}\nservice:  {}\ndevice:   {device}",
        client.name, client.service
    )?;
    if let (Some(offset), Some(sectors)) = (client.offset, client.sectors) {
        writeln!(out, "sectors:  {sectors} from {offset}")?;
    }
    for (name, value) in &client.options {
        writeln!(out, "{:<9} {value}", format!("{name}:"))?;
    }
    writeln!(out, "counters:")?;
    for name in client.counters.keys() {
        writeln!(out, "  {name}: {}", client.counter(name))?;
    }
    Ok(())
}
