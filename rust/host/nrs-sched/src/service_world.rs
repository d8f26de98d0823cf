// SPDX-License-Identifier: GPL-2.0-only

//! A service whose host is a test: partitions without devices, and a clock that the test sets.

use crate::{
    arena::{lone_part, Request},
    attr::Priority,
    error::{Code, Error, Result},
    head::Head,
    mem::Shared,
    owners::Owners,
    parameters::{self, Parameter, Values},
    policy::{control, AnyOverseer, Config, Kind, Nothing, PoliciesData, Tunables},
    report::Report,
    service::{
        agent::{AgentState, FactorState},
        policies, upkeep, HeadAccess, Primaries, ServiceHead, ServiceHost, ServiceParts,
        ServiceSettings,
    },
    text::PolicyCommand,
};
use std::{
    cell::{Cell, RefCell},
    fmt,
};

/// Seed of the service.
const SEED: u64 = 7;

/// One head of one partition.
pub struct WorldHead {
    target: u16,
    cpt: u16,
    priority: Priority,
    head: RefCell<ServiceHead<Request>>,
}

impl WorldHead {
    fn new(target: u16, cpt: u16, priority: Priority) -> Self {
        let config = Config::parse(Kind::FALLBACK, None, &Tunables::default());
        let config = config.expect("no argument");
        let fallback = lone_part(&config, SEED).expect("memory");
        Self {
            target,
            cpt,
            priority,
            head: RefCell::new(Head::new(fallback, config)),
        }
    }
}

impl HeadAccess for &WorldHead {
    type Item = Request;

    fn target(&self) -> u16 {
        self.target
    }

    fn cpt(&self) -> u16 {
        self.cpt
    }

    fn priority(&self) -> Priority {
        self.priority
    }

    fn with<R>(&self, f: impl FnOnce(&mut ServiceHead<Request>) -> R) -> R {
        f(&mut self.head.borrow_mut())
    }
}

/// A service in a test.
pub struct ServiceWorld {
    cpts: u16,
    heads: Vec<WorldHead>,
    settings: RefCell<ServiceSettings>,
    overseer: RefCell<Option<AnyOverseer>>,
    random: Cell<u64>,
    /// The agent.
    pub agent: RefCell<AgentState>,
    /// Steps of the agent's factors.
    pub steps: RefCell<Vec<FactorState>>,
    /// Time, ns.
    pub now: Cell<u64>,
    /// True if a framework drives the policies.
    pub driven: Cell<bool>,
    /// True while ordered requests exist, so that their tables cannot grow.
    pub ordered: Cell<bool>,
    /// Number of records of the order tables.
    pub records: Cell<u32>,
    /// Values that the service applied last.
    pub values: Cell<Values>,
    /// Owners of cgroups that the service applied last.
    pub owners: RefCell<Option<Shared<Owners>>>,
    /// Number of changes of the primaries.
    pub primaries_changed: Cell<u32>,
    /// Number of times that decisions were retried.
    pub retries: Cell<u32>,
}

impl ServiceWorld {
    /// Creates a service with `targets` targets of `cpts` partitions each.
    pub fn new(targets: u16, cpts: u16) -> Self {
        let values = Values::default();
        let mut world = Self {
            cpts,
            heads: Vec::new(),
            settings: RefCell::new(ServiceSettings::new(values).expect("memory")),
            overseer: RefCell::new(None),
            random: Cell::new(0),
            agent: RefCell::default(),
            steps: RefCell::default(),
            now: Cell::new(1),
            driven: Cell::new(false),
            ordered: Cell::new(false),
            records: Cell::new(values.service.buffer_max.get()),
            values: Cell::new(values),
            owners: RefCell::new(None),
            primaries_changed: Cell::new(0),
            retries: Cell::new(0),
        };
        for _ in 0..targets {
            world.add_target().expect("memory");
        }
        world
    }

    /// Adds a target, on which the primaries start.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn add_target(&mut self) -> Result {
        let target = self.heads.len() as u16 / (2 * self.cpts).max(1);
        let cpts = 0..self.cpts;
        let new: Vec<WorldHead> = cpts
            .flat_map(|cpt| Priority::ALL.map(|priority| WorldHead::new(target, cpt, priority)))
            .collect();
        self.settings.borrow_mut().install_parts(self, new.iter())?;
        self.heads.extend(new);
        Ok(())
    }

    /// Runs `f` on the head of `priority` of partition `cpt` of `target`.
    ///
    /// # Panics
    ///
    /// There is no such head.
    pub fn head<R>(
        &self,
        (target, cpt, priority): (u16, u16, Priority),
        f: impl FnOnce(&mut ServiceHead<Request>) -> R,
    ) -> R {
        let same =
            |one: &&WorldHead| one.target == target && one.cpt == cpt && one.priority == priority;
        let head = self.heads.iter().find(same).expect("a head");
        f(&mut head.head.borrow_mut())
    }

    /// Sets the parameter `name` to `text`, as the control node does.
    ///
    /// # Errors
    ///
    /// `ENOENT`: no such parameter; `EACCES` as `EPERM`. Any error of the parameter.
    pub fn set(&self, name: &str, text: &str) -> Result {
        if name == "config" {
            let draft = self.settings(|settings| settings.draft())?;
            draft.write(text)?;
            return self.settings(|settings| settings.apply(self, draft));
        }
        if name == "nrs_policies" {
            let command = PolicyCommand::parse(text)?;
            return self.settings(|settings| settings.start_policy(self, &command, false));
        }
        let none = Error::new(Code::NoEntry, "no such parameter");
        let parameter = parameters::named(name).ok_or(none)?;
        if let Some(stored) = &parameter.value {
            return self.settings(|settings| settings.set(self, stored, text));
        }
        let mut texts = PoliciesData::texts::<Self>();
        let found = texts.find(|one| one.name == name).ok_or(none)?;
        let denied = Error::new(Code::Permission, "the parameter is not writable");
        found.store.ok_or(denied)?(self, text)
    }

    /// Returns what the parameter `name` shows.
    ///
    /// # Errors
    ///
    /// `ENOENT`: no such parameter; `EPERM`: it cannot be read. Any error of the parameter.
    pub fn get(&self, name: &str) -> Result<String> {
        let mut out = String::new();
        match name {
            "config" => return Ok(self.text()),
            "nrs_policies" => {
                // Removes policies that have stopped.
                upkeep::maintain(self).expect("memory");
                let primaries = *self.settings.borrow().primaries();
                policies::write_policies(self, &primaries, &mut out)?;
                return Ok(out);
            }
            _ => {}
        }
        let none = Error::new(Code::NoEntry, "no such parameter");
        if let Some(stored) = &parameters::named(name).ok_or(none)?.value {
            let values = self.settings.borrow().parameters().values;
            (stored.show)(&values, &mut out)?;
        } else {
            let mut texts = PoliciesData::texts::<Self>();
            let found = texts.find(|one| one.name == name).ok_or(none)?;
            found.show(self, &mut out)?;
        }
        Ok(out)
    }

    /// Reports the policies, as the parameter `snapshot` does.
    ///
    /// # Errors
    ///
    /// Any error of `map`.
    ///
    /// # Panics
    ///
    /// Out of memory.
    pub fn report(&self, map: &mut Report<'_>) -> fmt::Result {
        upkeep::maintain(self).expect("memory");
        let primaries = *self.settings.borrow().primaries();
        let done = map.part("nrs_policies", |map| {
            policies::report_policies(self, &primaries, map)
        });
        done.map_err(|_| fmt::Error)?;
        for text in PoliciesData::texts::<Self>() {
            if let Some(report) = text.report {
                match map.part(text.name, |map| report(self, map)) {
                    Err(error) if error.code != Code::NoDevice => return Err(fmt::Error),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Returns the text of the service.
    ///
    /// # Panics
    ///
    /// Never: a string takes any text.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let written = self.settings(|settings| settings.write_text(&mut out));
        written.expect("text");
        out
    }

    /// Returns all settings as text: each parameter that can be read, but the reason of the last
    /// refusal, which is not a setting.
    pub fn show(&self) -> String {
        let names = parameters::all().map(Parameter::name);
        let names = names.filter(|name| *name != "config" && !name.ends_with("_error"));
        names
            .filter_map(|name| {
                let shown = self.get(name);
                let denied = |error: &Error| matches!(error.code, Code::NoEntry | Code::Permission);
                if shown.as_ref().is_err_and(denied) {
                    return None;
                }
                let shown = shown.unwrap_or_else(|error| error.to_string());
                Some(format!("{name}\n{shown}"))
            })
            .collect()
    }
}

impl ServiceParts for ServiceWorld {
    type Item = Request;

    fn now(&self) -> u64 {
        self.now.get()
    }

    fn heads(&self) -> impl Iterator<Item = impl HeadAccess<Item = Request>> {
        self.heads.iter()
    }

    fn overseer<R>(
        &self,
        f: impl FnOnce(&mut Option<AnyOverseer>, &dyn control::OverseerContext) -> R,
    ) -> R {
        f(&mut self.overseer.borrow_mut(), &Nothing)
    }
}

impl ServiceHost for ServiceWorld {
    type Refusal = Error;

    fn random(&self) -> u64 {
        self.random.set(self.random.get() + 1);
        self.random.get()
    }

    fn seed(&self) -> u64 {
        SEED
    }

    fn cpts(&self) -> u16 {
        self.cpts
    }

    fn settings<R>(&self, f: impl FnOnce(&mut ServiceSettings) -> R) -> R {
        f(&mut self.settings.borrow_mut())
    }

    fn agent(&self, f: impl FnOnce(&mut AgentState) -> Option<FactorState>) {
        self.steps
            .borrow_mut()
            .extend(f(&mut self.agent.borrow_mut()));
    }

    fn is_driven(&self) -> bool {
        self.driven.get()
    }

    fn set_records(&self, max: u32) -> Result {
        if max > self.records.get() && self.ordered.get() {
            return Err(Error::new(Code::Busy, "ordered requests exist"));
        }
        self.records.set(max);
        Ok(())
    }

    fn values_changed(&self, old: &Values, new: &Values) {
        assert!(self.values.get() == *old && old != new, "a change");
        self.values.set(*new);
    }

    fn owners_changed(&self, owners: &Shared<Owners>) {
        *self.owners.borrow_mut() = Some(owners.clone());
    }

    fn primaries_changed(&self, old: &Primaries, new: &Primaries) {
        assert_ne!(old, new, "a change");
        self.primaries_changed.set(self.primaries_changed.get() + 1);
    }

    fn retry_decisions(&self) {
        self.retries.set(self.retries.get() + 1);
    }
}
