// SPDX-License-Identifier: GPL-2.0-only

//! Mock of the module for tests.
//!
//! Services with given texts show these texts and accept the values that the parameters' parsers
//! accept. Other services are the module's own, in a host without devices ([`ServiceWorld`]).

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use nrs_agent::status::Status;
use nrs_sched::error::Error;
use nrs_sched::parameters;
use nrs_sched::report::Report;
use nrs_sched::service_world::ServiceWorld;

use crate::accounts::Accounts;
use crate::configuration::devices::DEFAULTS;
use crate::configuration::keys::MODULE;
use crate::failure::{Failure, FailureKind as Trouble, Result};
use crate::kernel::{Device, Exclusion, Kernel};
use crate::refusal;

/// A service.
struct MockService {
    made: bool,
    cpts: u32,
    /// Number of added clients, without clients in a given text.
    clients: usize,
    values: MockParameters,
}

/// Parameters of a service.
enum MockParameters {
    /// Given texts.
    Texts(BTreeMap<String, String>),
    /// A service of the module.
    World(Box<ServiceWorld>),
}

/// Mock of the module.
#[derive(Default)]
pub struct Mock {
    services: RefCell<BTreeMap<String, MockService>>,
    parameters: RefCell<BTreeMap<&'static str, String>>,
    devices: RefCell<BTreeMap<String, Device>>,
    /// Successful writes in order: service, parameter, value.
    log: RefCell<Vec<(String, String, String)>>,
    /// Service that is removed after it is listed once more.
    pub leaving: RefCell<Option<String>>,
    /// Number of writes that succeed, number of writes that are then refused, and kind of their
    /// failures; `None`: no writes are refused.
    pub refused: Cell<Option<(usize, usize, Trouble)>>,
    /// Module parameter whose writes are refused.
    pub stubborn: RefCell<&'static str>,
    /// Number of writes until `told` is set.
    pub tell: Cell<usize>,
    /// Request to end; set when `tell` reaches 0.
    pub told: AtomicBool,
    /// Number of look-ups of a disk that fail before the disk appears.
    pub late: Cell<usize>,
    accounts: Accounts,
    /// Status of the agent; `None` if no agent runs.
    pub agent: RefCell<Option<Status>>,
    /// True if disk `8:16` has the path [`LINK`].
    pub linked: Cell<bool>,
    /// Weights of cgroups.
    pub cgroup_weights: RefCell<BTreeMap<String, u32>>,
    /// Name of the open device.
    pub open: RefCell<&'static str>,
    /// Name of a device-mapper device of another type.
    pub foreign: RefCell<&'static str>,
}

/// Names of the existing disks, `8:0` and `8:16`.
const DISKS: [&str; 2] = ["sda", "sdb"];

/// Path of disk `8:16` that persists over a reboot.
pub const LINK: &str = "/dev/disk/by-id/wwn-0x5";

/// Existing users.
const USERS: &str = "alice:x:2001:3001::/:/bin/sh\nbob:x:2002:3001::/:/bin/sh\n";

/// Paths of the cgroups.
const CGROUPS: [&str; 4] = [
    "/system.slice",
    "/system.slice/web.service",
    "/system.slice/q'uoted.service",
    "/user.slice",
];

/// Existing groups.
const GROUPS: &str = "staff:x:3001:alice\n";

/// Length of each disk, sectors.
const SECTORS: u64 = 1000;

/// Number of partitions of a service, unless it is set.
const CPTS: u32 = 2;

/// Returns the failure of the module's `error`.
fn failure(error: Error) -> Failure {
    Failure::new(refusal::kind(error.code), error.to_string())
}

fn refuse<T>(reason: impl ToString) -> Result<T> {
    Err(Failure::new(Trouble::Refused, reason.to_string()))
}

fn missing<T>(reason: impl ToString) -> Result<T> {
    Err(Failure::new(Trouble::NotFound, reason.to_string()))
}

fn busy<T>(reason: &str) -> Result<T> {
    Err(Failure::new(Trouble::Busy, reason))
}

impl MockService {
    fn new(values: MockParameters) -> Self {
        Self {
            made: false,
            cpts: CPTS,
            clients: 0,
            values,
        }
    }

    fn set(&mut self, name: &str, value: &str) -> Result {
        match &mut self.values {
            MockParameters::Texts(texts) => {
                refusal::check(name, value)?;
                texts.insert(name.into(), format!("{value}\n"));
                Ok(())
            }
            MockParameters::World(world) => {
                assert!(value.len() <= 4095 || ["config", "nrs_qbm_config"].contains(&name));
                world.set(name, value).map_err(failure)
            }
        }
    }

    /// Reports the clients.
    fn report(&self, map: &mut Report<'_>) -> std::fmt::Result {
        map.inline("service", |map| map.field("slots", 1))?;
        map.entries("clients", |list| {
            (0..self.clients).try_for_each(|_| list.entry(|client| client.text("client", "c")))
        })
    }

    fn get(&self, name: &str) -> Result<String> {
        match &self.values {
            MockParameters::Texts(texts) => match texts.get(match name {
                "summary" => "snapshot",
                name => name,
            }) {
                Some(text) => Ok(text.clone()),
                None => missing(format!("no parameter '{name}'")),
            },
            MockParameters::World(world) if ["snapshot", "summary"].contains(&name) => {
                let mut out = String::new();
                let written = Report::json(&mut out).map(|map| {
                    map.part("clients", |map| map.map(|map| self.report(map)))?;
                    world.report(map)
                });
                written.unwrap();
                Ok(out)
            }
            MockParameters::World(world) => world.get(name).map_err(failure),
        }
    }
}

/// Returns a service of the module with `cpts` partitions and the parameter `slots`.
fn world(cpts: u32, slots: &str) -> MockParameters {
    let world = ServiceWorld::new(1, cpts.try_into().unwrap());
    world.set("slots", slots).unwrap();
    MockParameters::World(world.into())
}

impl Mock {
    fn new(services: impl Iterator<Item = (String, MockService)>) -> Self {
        let parameters = MODULE.iter();
        let parameters = parameters.map(|(name, .., value)| (*name, value.to_string()));
        Self {
            services: RefCell::new(services.collect()),
            parameters: RefCell::new(parameters.collect()),
            tell: Cell::new(usize::MAX),
            accounts: Accounts::of(USERS, GROUPS),
            ..Self::default()
        }
    }

    /// Creates a module whose services show the given texts.
    pub fn with(services: &[(&str, &[(&str, &str)])]) -> Self {
        Self::new(services.iter().map(|(name, texts)| {
            let texts = texts.iter().map(|(k, v)| (k.to_string(), v.to_string()));
            let service = MockService::new(MockParameters::Texts(texts.collect()));
            (name.to_string(), service)
        }))
    }

    /// Creates a module whose services behave like real services and have one client each.
    pub fn of(services: &[&str]) -> Self {
        Self::new(services.iter().map(|name| {
            let service = MockService {
                clients: 1,
                ..MockService::new(world(CPTS, "auto"))
            };
            (name.to_string(), service)
        }))
    }

    /// Returns the successful writes in order: service, parameter, value.
    pub fn log(&self) -> Vec<(String, String, String)> {
        self.log.borrow().clone()
    }

    /// Refuses `count` writes after `taken` more writes have succeeded.
    pub fn refuse(&self, taken: usize, count: usize, trouble: Trouble) {
        self.refused.set(Some((taken, count, trouble)));
    }

    /// Lets a framework drive the policies of the service.
    pub fn drive(&self, service: &str) {
        if let MockParameters::World(world) = &self.services.borrow()[service].values {
            world.driven.set(true);
        }
    }

    /// Adds a client to the service.
    pub fn add_client(&self, service: &str) {
        self.services.borrow_mut().get_mut(service).unwrap().clients += 1;
    }

    /// Returns the values of all parameters of all services.
    pub fn shown(&self) -> Vec<String> {
        let services = self.services.borrow();
        let mut out = Vec::new();
        for (name, service) in services.iter() {
            out.push(format!("{name} {} {}", service.made, service.cpts));
            for parameter in parameters::all() {
                let value = service.get(parameter.name());
                out.extend(
                    value
                        .ok()
                        .map(|value| format!("{} {value}", parameter.name())),
                );
            }
        }
        out
    }

    fn on<T>(&self, name: &str, act: impl FnOnce(&mut MockService) -> Result<T>) -> Result<T> {
        match self.services.borrow_mut().get_mut(name) {
            Some(service) => act(service),
            None => missing(format!("no service '{name}'")),
        }
    }

    /// Creates the service if it does not exist, as for a first client.
    fn create_if_missing(&self, service: &str) {
        let mut services = self.services.borrow_mut();
        let service = services.entry(service.into());
        service.or_insert_with(|| MockService::new(world(CPTS, "auto")));
    }

    /// Counts a write, and fails if the write is to be refused.
    fn counts(&self) -> Result {
        self.tell.set(self.tell.get().saturating_sub(1));
        if self.tell.get() == 0 {
            self.told.store(true, Ordering::Relaxed);
        }
        match self.refused.get() {
            None | Some((0, 0, _)) => Ok(()),
            Some((0, count, kind)) => {
                self.refused.set(Some((0, count - 1, kind)));
                Err(Failure::new(kind, "no"))
            }
            Some((taken, count, kind)) => {
                self.refused.set(Some((taken - 1, count, kind)));
                Ok(())
            }
        }
    }
}

impl Kernel for Mock {
    fn services(&self) -> Result<Vec<String>> {
        let names = self.services.borrow().keys().cloned().collect();
        if let Some(name) = self.leaving.borrow_mut().take() {
            self.services.borrow_mut().remove(&name);
        }
        Ok(names)
    }

    fn get(&self, service: &str, parameter: &str) -> Result<String> {
        self.on(service, |service| service.get(parameter))
    }

    fn set(&self, service: &str, parameter: &str, value: &str) -> Result {
        self.counts()?;
        self.on(service, |service| service.set(parameter, value))?;
        let entry = (service.into(), parameter.into(), value.into());
        self.log.borrow_mut().push(entry);
        Ok(())
    }

    fn make(&self, service: &str) -> Result {
        let mut services = self.services.borrow_mut();
        if services.contains_key(service) {
            return busy("it is there");
        }
        let slots = &self.parameters.borrow()["default_slots"];
        let made = MockService {
            made: true,
            ..MockService::new(world(CPTS, slots))
        };
        services.insert(service.into(), made);
        Ok(())
    }

    fn remove(&self, service: &str) -> Result {
        self.on(service, |service| match service.clients {
            0 => Ok(()),
            _ => busy("it has clients"),
        })?;
        self.services.borrow_mut().remove(service);
        Ok(())
    }

    fn is_made(&self, service: &str) -> Result<bool> {
        self.on(service, |service| Ok(service.made))
    }

    fn cpts(&self, service: &str) -> Result<u32> {
        self.on(service, |service| Ok(service.cpts))
    }

    fn set_cpts(&self, service: &str, cpts: u32) -> Result {
        self.counts()?;
        self.on(service, |service| {
            if service.clients > 0 {
                return busy("it has clients");
            }
            service.cpts = cpts;
            if let MockParameters::World(old) = &service.values {
                let text = old.text();
                let of_policies = ["nrs_policies", "nrs_tbf_rule"];
                let stays = |line: &&str| !of_policies.iter().any(|name| line.starts_with(name));
                let lines: Vec<&str> = text.lines().filter(stays).collect();
                service.values = world(cpts, "auto");
                service.set("config", &lines.join("\n"))?;
            }
            Ok(())
        })
    }

    fn module_parameter(&self, name: &str) -> Result<String> {
        Ok(format!("{}\n", self.parameters.borrow()[name]))
    }

    fn set_module_parameter(&self, name: &str, value: &str) -> Result {
        if *self.stubborn.borrow() == name {
            return refuse("no");
        }
        let mut parameters = self.parameters.borrow_mut();
        *parameters.get_mut(name).unwrap() = value.to_string();
        Ok(())
    }

    fn devices(&self) -> Result<Vec<Device>> {
        Ok(self.devices.borrow().values().cloned().collect())
    }

    /// Resolves a target that is a disk or an added device.
    fn locate(&self, device: &Device) -> Result<Device> {
        let target = &device.target;
        let name = target.strip_prefix("/dev/").unwrap_or(target);
        let number = |index: usize| format!("8:{}", 16 * index);
        let mapped = name.strip_prefix("mapper/");
        let late = self.late.get();
        self.late.set(late.saturating_sub(1));
        let disk = |(index, disk): &(usize, &str)| *disk == name || number(*index) == *target;
        let found = match DISKS.into_iter().enumerate().find(disk) {
            Some((index, _)) => number(index),
            None if mapped.is_some_and(|name| self.devices.borrow().contains_key(name)) => {
                "253:0".into()
            }
            None => return missing(format!("{target}: no such device")),
        };
        if late > 0 {
            return missing(format!("{target}: no such device"));
        }
        let left = SECTORS.saturating_sub(device.offset);
        if left == 0 || device.sectors > left {
            return refuse(format!("{target} has {SECTORS} sectors"));
        }
        Ok(Device {
            target: found,
            sectors: [device.sectors, left][usize::from(device.sectors == 0)],
            ..device.clone()
        })
    }

    fn path(&self, target: &str) -> Result<String> {
        let devices = self.devices.borrow();
        let mapped = devices.values().find(|device| !device.scheduled);
        Ok(match (target, mapped) {
            ("8:0", _) => "/dev/sda".into(),
            ("8:16", _) if self.linked.get() => LINK.into(),
            ("253:0", Some(device)) => format!("/dev/mapper/{}", device.name),
            _ => "/dev/sdb".into(),
        })
    }

    /// Returns disk `8:0` for its partition `8:1`, and other numbers unchanged.
    fn whole(&self, number: &str) -> String {
        match number {
            "8:1" => "8:0".into(),
            _ => number.into(),
        }
    }

    fn vacant(&self, name: &str) -> Result {
        match *self.foreign.borrow() == name || self.devices.borrow().contains_key(name) {
            true => busy("a device-mapper device with this name exists"),
            false => Ok(()),
        }
    }

    fn add_device(&self, device: &Device) -> Result {
        self.vacant(&device.name)?;
        self.change_device(device)
    }

    /// Replaces the device; missing options get the defaults of the kernel's table.
    fn change_device(&self, device: &Device) -> Result {
        self.counts()?;
        let mut shown = device.clone();
        let name = shown.options.entry("jobid_name".into());
        name.or_insert_with(|| DEFAULTS[0].1.into());
        self.devices.borrow_mut().insert(device.name.clone(), shown);
        self.create_if_missing(&device.service);
        Ok(())
    }

    fn in_use(&self, name: &str) -> Result<bool> {
        Ok(*self.open.borrow() == name)
    }

    fn remove_device(&self, name: &str) -> Result {
        if *self.open.borrow() == name {
            return busy("the device is in use");
        }
        match self.devices.borrow_mut().remove(name) {
            Some(_) => Ok(()),
            None => missing(format!("no client '{name}'")),
        }
    }

    fn disks(&self) -> Result<Vec<Device>> {
        let devices = self.devices.borrow();
        let disks = devices.values().filter(|device| device.scheduled);
        Ok(disks.cloned().collect())
    }

    fn disk(&self, path: &str) -> Result<String> {
        let name = match path {
            LINK if self.linked.get() => DISKS[1],
            _ => path.strip_prefix("/dev/").unwrap_or(path),
        };
        let late = self.late.get();
        self.late.set(late.saturating_sub(1));
        match late == 0 && DISKS.contains(&name) {
            true => Ok(name.into()),
            false => missing(format!("no disk '{name}'")),
        }
    }

    /// Schedules a disk, which is first a client of the service with the disk's name.
    fn schedule(&self, disk: &Device) -> Result {
        let mut devices = self.devices.borrow_mut();
        let device = devices.entry(disk.name.clone());
        let device = device.or_insert_with(|| Device {
            name: disk.name.clone(),
            service: disk.name.clone(),
            target: ["8:0", "8:16"][usize::from(disk.name == DISKS[1])].into(),
            options: DEFAULTS
                .map(|(name, value)| (name.into(), value.into()))
                .into(),
            scheduled: true,
            ..Device::default()
        });
        device.options.extend(disk.options.clone());
        if !disk.service.is_empty() {
            device.service.clone_from(&disk.service);
        }
        self.create_if_missing(&device.service);
        Ok(())
    }

    fn unschedule(&self, disk: &str, _scheduler: &str) -> Result {
        self.remove_device(disk)
    }

    fn try_exclude(&self) -> Option<Exclusion> {
        Some(Exclusion::none())
    }

    fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    fn cgroups(&self, path: &str) -> Vec<String> {
        let below = CGROUPS
            .iter()
            .filter_map(|all| all.strip_prefix(path.trim_end_matches('/')));
        let names = below.filter_map(|rest| rest.strip_prefix('/'));
        let direct = names.filter(|name| !name.is_empty() && !name.contains('/'));
        direct.map(str::to_owned).collect()
    }

    fn cgroup_weight(&self, path: &str) -> Option<u32> {
        self.cgroup_weights.borrow().get(path).copied()
    }

    fn agent(&self, _socket: &Path) -> Result<Option<Status>> {
        Ok(self.agent.borrow().clone())
    }
}
