// SPDX-License-Identifier: GPL-2.0-only

//! A module for tests: it keeps what it is told, and refuses what the parameters' own checks refuse.

use std::cell::RefCell;
use std::collections::BTreeMap;

use crate::failure::{Failure, Kind, Result};
use crate::kernel::{Device, Kernel};
use crate::refusal;

/// A service of it.
#[derive(Clone, Debug, Default)]
struct Service {
    made: bool,
    cpts: u32,
    values: BTreeMap<String, String>,
}

/// The module.
#[derive(Debug, Default)]
pub struct Fake {
    services: RefCell<BTreeMap<String, Service>>,
    module: RefCell<BTreeMap<String, String>>,
    devices: RefCell<BTreeMap<String, Device>>,
    /// What was set, in order: service, parameter, value.
    log: RefCell<Vec<(String, String, String)>>,
    /// A service that is listed once more, and gone then.
    leaving: RefCell<Option<String>>,
}

impl Fake {
    /// One with these services, and these values in them.
    pub fn with(services: &[(&str, &[(&str, &str)])]) -> Self {
        let fake = Self::default();
        for (name, values) in services {
            let values = values.iter().map(|(k, v)| (k.to_string(), v.to_string()));
            let service = Service {
                made: false,
                cpts: 1,
                values: values.collect(),
            };
            fake.services.borrow_mut().insert(name.to_string(), service);
        }
        fake
    }

    /// Has `service` go away once it was listed.
    pub fn leave(&self, service: &str) {
        *self.leaving.borrow_mut() = Some(service.into());
    }

    /// What was set since it was made, in order.
    pub fn log(&self) -> Vec<(String, String, String)> {
        self.log.borrow().clone()
    }

    fn on<T>(&self, name: &str, act: impl FnOnce(&mut Service) -> Result<T>) -> Result<T> {
        match self.services.borrow_mut().get_mut(name) {
            Some(service) => act(service),
            None => Err(Failure::new(Kind::NotFound, format!("no service '{name}'"))),
        }
    }
}

impl Kernel for Fake {
    fn services(&self) -> Result<Vec<String>> {
        let names = self.services.borrow().keys().cloned().collect();
        if let Some(name) = self.leaving.borrow_mut().take() {
            self.services.borrow_mut().remove(&name);
        }
        Ok(names)
    }

    fn get(&self, service: &str, parameter: &str) -> Result<String> {
        self.on(service, |service| {
            let value = service.values.get(parameter).cloned();
            value.ok_or_else(|| Failure::new(Kind::NotFound, format!("no parameter '{parameter}'")))
        })
    }

    fn set(&self, service: &str, parameter: &str, value: &str) -> Result {
        let entry = (service.into(), parameter.into(), value.into());
        refusal::check(parameter, value)?;
        self.on(service, |service| {
            service
                .values
                .insert(parameter.into(), format!("{value}\n"));
            Ok(())
        })?;
        self.log.borrow_mut().push(entry);
        Ok(())
    }

    fn make(&self, service: &str) -> Result {
        let mut services = self.services.borrow_mut();
        if services.contains_key(service) {
            return Err(Failure::new(
                Kind::Busy,
                format!("service '{service}' exists"),
            ));
        }
        let made = Service {
            made: true,
            cpts: 1,
            ..Service::default()
        };
        services.insert(service.into(), made);
        Ok(())
    }

    fn remove(&self, service: &str) -> Result {
        self.on(service, |_| Ok(()))?;
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
        self.on(service, |service| {
            service.cpts = cpts;
            Ok(())
        })
    }

    fn module_parameter(&self, name: &str) -> Result<String> {
        let value = self.module.borrow().get(name).cloned();
        value.ok_or_else(|| Failure::new(Kind::NotFound, format!("no module parameter '{name}'")))
    }

    fn set_module_parameter(&self, name: &str, value: &str) -> Result {
        self.module.borrow_mut().insert(name.into(), value.into());
        Ok(())
    }

    fn devices(&self) -> Result<Vec<Device>> {
        Ok(self.devices.borrow().values().cloned().collect())
    }

    fn add_device(&self, device: &Device) -> Result {
        let name = device.name.clone();
        if self.devices.borrow().contains_key(&name) {
            return Err(Failure::new(Kind::Busy, format!("client '{name}' exists")));
        }
        self.services
            .borrow_mut()
            .entry(device.service.clone())
            .or_default();
        self.devices.borrow_mut().insert(name, device.clone());
        Ok(())
    }

    fn remove_device(&self, name: &str) -> Result {
        match self.devices.borrow_mut().remove(name) {
            Some(_) => Ok(()),
            None => Err(Failure::new(Kind::NotFound, format!("no client '{name}'"))),
        }
    }
}
