// SPDX-License-Identifier: GPL-2.0-only

//! Main loop of the agent: in each delta it reads accounts, makes a step, writes factors, and sends
//! a message to the other servers.
//!
//! # Terms
//!
//! - *Bound*: the agent has `/dev/nrs-control` open for the service. The module resets factors to 1
//!   when the file is closed, or when the factors were not renewed for the lease.
//! - *Instance*: one run of the module's policy, from start to end. After a change of instance all
//!   nodes are read again.
//! - *Group*: services that share with each other, on any servers. Each combination of group, mode
//!   and cost model is a realm of its own in the protocol: servers with different terms reject each
//!   other's datagrams.
//!
//! ```text
//!            ┌──────────── each delta, for each service ────────────┐
//!  module ──read──► Nodes ──accounts──► Exchange ──factors──► Nodes ──write──► module
//!                               hear ──────┤
//!  others ──receive────────────────────────┴──say──► send ──► others
//! ```
//!
//! All of this runs in one thread. A failed operation is retried at the next step, a failed file
//! after a second. A separate thread saves corrections ([`Store`]).

use std::{
    collections::{BTreeMap, BTreeSet},
    io, mem,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use crate::{
    config::Config,
    kernel::{errno, is_transient, Kernel, Reading, REMOVED, STALE},
    nodes::Nodes,
    pace::Pace,
    secret::Secret,
    status::{EntityStatus, PeerNumbers, PeerStatus, ServiceNumbers, ServiceStatus, Status},
    store::Store,
    transport::{Clock, Event, Transport},
    Exchange,
};

/// Time between two attempts to bind a service, ns.
const RETRY_NS: u64 = 1_000_000_000;

/// Time between two saves of corrections, ns.
const SAVE_NS: u64 = 10_000_000_000;

/// Minimum time between two reads of all nodes, ns.
const ALL_NS: u64 = 1_000_000_000;

/// Maximum time to save corrections when the agent ends.
const LEAVE: Duration = Duration::from_secs(2);

/// Maximum number of names requested from the module in one step.
const NAMES_MAX: usize = 2048;

/// Maximum difference between the clocks of module and agent, ns; with a larger difference the
/// agent's clock is used.
const CLOCK_NS: u64 = 1_000_000_000;

/// Weight that the module reports for an entity without a configured weight.
const WEIGHT_ONE: u32 = 4096;

/// Maximum number of entities in a status.
const SHOWN: usize = 100;

/// Service that the agent handles.
struct Served<K> {
    service: String,
    group: String,
    kernel: Option<K>,
    /// Time of the next attempt to bind, ns.
    retry: u64,
    /// Instance to which `nodes` and `written` belong; 0: none.
    instance: u64,
    /// Terms of the module for which `exchange` was created.
    terms: u64,
    nodes: Nodes,
    exchange: Option<Exchange>,
    /// Factors last written to the module.
    written: Vec<(u64, u32)>,
    /// Time of the last read of all nodes, ns.
    read_all: u64,
    /// Time of the last step of `exchange`, ns.
    stepped: u64,
    /// Time of the first failure since the last successful step, ns.
    failing: Option<u64>,
    /// Time of the last renewal of the lease, ns.
    renewed: u64,
    /// Time of the last save of corrections, ns.
    saved: u64,
    /// Names of the servers from which datagrams were accepted, by server number.
    names: BTreeMap<u64, String>,
    /// Names of the servers that the transport reports as present.
    connected: BTreeSet<String>,
    failure: Option<String>,
    numbers: ServiceNumbers,
}

/// Agent; `F` binds a service.
pub struct Daemon<K, F> {
    config: Config,
    secret: Secret,
    store: Store,
    bind: F,
    served: Vec<Served<K>>,
    /// Number of received events of groups without a local service.
    strangers: u64,
    /// Number of received datagrams that another server sent under the name of this server.
    own: u64,
}

impl<K: Kernel, F: FnMut(&str) -> io::Result<K>> Daemon<K, F> {
    /// Creates the agent of `config` in the realm with `secret`; `bind` binds a service of the
    /// module.
    pub fn new(config: Config, secret: Secret, store: Store, bind: F) -> Self {
        let served = |(service, group): (&String, &String)| Served {
            service: service.clone(),
            group: group.clone(),
            kernel: None,
            retry: 0,
            instance: 0,
            terms: 0,
            nodes: Nodes::new(secret.clone(), config.entities_max),
            exchange: None,
            written: Vec::new(),
            read_all: 0,
            stepped: 0,
            failing: None,
            renewed: 0,
            saved: 0,
            names: BTreeMap::new(),
            connected: BTreeSet::new(),
            failure: None,
            numbers: ServiceNumbers::default(),
        };
        Self {
            served: config.services.iter().map(served).collect(),
            config,
            secret,
            store,
            bind,
            strangers: 0,
            own: 0,
        }
    }

    /// Processes `event`, which arrived at `now`, ns.
    pub fn handle_event(&mut self, event: Event, now: u64) {
        let (server, group) = match &event {
            Event::Datagram { server, group, .. } => (server, group),
            Event::Joined { server, group } | Event::Parted { server, group } => (server, group),
        };
        if *server == self.config.server {
            if matches!(event, Event::Datagram { .. }) {
                if self.own == 0 {
                    eprintln!(
                        "nrs-agent: warning: another server in the realm is also named {server}"
                    );
                }
                self.own += 1;
            }
            return;
        }
        let all = self.served.iter_mut();
        let mut all = all.filter(|served| served.group == *group).peekable();
        if all.peek().is_none() {
            self.strangers += 1;
        }
        let most = self.config.servers_max as usize;
        for served in all {
            match &event {
                Event::Datagram { bytes, .. } => {
                    let number = self.secret.server(server);
                    served.receive(number, server, bytes, now);
                }
                Event::Joined { .. } if served.connected.len() < most => {
                    served.connected.insert(server.clone());
                }
                Event::Joined { .. } => {}
                Event::Parted { .. } => {
                    served.connected.remove(server);
                }
            }
        }
    }

    /// Makes a step of each service; `missed` steps before this step were skipped.
    pub fn step(&mut self, transport: &mut impl Transport, clock: &impl Clock, missed: u64) {
        for served in &mut self.served {
            served.numbers.missed += missed;
            let mut context = Context {
                config: &self.config,
                secret: &self.secret,
                store: &self.store,
                transport: &mut *transport,
                clock,
            };
            if served.kernel.is_none() {
                let now = clock.now();
                if now < served.retry {
                    continue;
                }
                served.retry = now + RETRY_NS;
                match (self.bind)(&served.service) {
                    Ok(kernel) => {
                        served.kernel = Some(kernel);
                        served.instance = 0;
                    }
                    Err(error) => {
                        served.fail(&error, &mut context);
                        continue;
                    }
                }
            }
            served.step(&mut context);
        }
    }

    /// Notifies the other servers that this server leaves, and saves its corrections.
    pub fn leave(&mut self, transport: &mut impl Transport, clock: &impl Clock) {
        for served in &mut self.served {
            served.save(&self.store, clock);
            served.part(transport, clock);
            served.kernel = None;
        }
        self.store.flush(LEAVE);
    }

    /// Returns the status at `now`, ns; `dropped` is the number of datagrams that the transport
    /// dropped.
    pub fn status(&self, now: u64, dropped: u64) -> Status {
        Status {
            realm: self.config.realm.clone(),
            server: self.config.server.clone(),
            transport: self.config.transport.name().into(),
            delta_ms: self.config.delta_ms,
            dropped,
            strangers: self.strangers,
            own: self.own,
            services: self
                .served
                .iter()
                .map(|one| one.status(&self.config, now))
                .collect(),
        }
    }
}

/// Environment of a step, shared by all services.
struct Context<'a, T, C> {
    config: &'a Config,
    secret: &'a Secret,
    store: &'a Store,
    transport: &'a mut T,
    clock: &'a C,
}

impl<K: Kernel> Served<K> {
    /// Processes a datagram of the server `name` with the number `number`.
    fn receive(&mut self, number: u64, name: &str, bytes: &[u8], now: u64) {
        let Some(exchange) = &mut self.exchange else {
            return;
        };
        if exchange.receive(number, bytes, now).is_ok() && !self.names.contains_key(&number) {
            // INVARIANT: at most as many names as the protocol keeps servers.
            let known: BTreeSet<u64> = exchange.peers(now).map(|peer| peer.server).collect();
            self.names.retain(|number, _| known.contains(number));
            self.names.insert(number, name.into());
        }
    }

    /// Makes a step. A failed file is closed, and bound again after a second. With a transient
    /// failure the file stays open for up to the duration of the lease.
    fn step<T: Transport, C: Clock>(&mut self, context: &mut Context<'_, T, C>) {
        let Some(mut kernel) = self.kernel.take() else {
            return;
        };
        match self.round(&mut kernel, context) {
            Ok(()) => {
                self.failure = None;
                self.failing = None;
                self.kernel = Some(kernel);
            }
            Err(error) if errno(&error) == Some(STALE) => {
                self.instance = 0;
                self.kernel = Some(kernel);
            }
            Err(error) => {
                self.fail(&error, context);
                let now = context.clock.now();
                let since = *self.failing.get_or_insert(now);
                let lease = context.config.lease().as_nanos() as u64;
                if is_transient(&error) && now.saturating_sub(since) < lease {
                    self.kernel = Some(kernel);
                } else {
                    self.failing = None;
                    self.retry = now + RETRY_NS;
                }
            }
        }
    }

    /// Reads accounts, makes a step of the rule, writes factors, and sends the message to the other
    /// servers.
    fn round<T: Transport, C: Clock>(
        &mut self,
        kernel: &mut K,
        context: &mut Context<'_, T, C>,
    ) -> io::Result<()> {
        let now = context.clock.now();
        let more = self.nodes.wants_all() && now.saturating_sub(self.read_all) >= ALL_NS;
        let all = self.instance == 0 || more;
        let mut reading = kernel.read(all)?;
        if reading.instance != self.instance {
            if mem::take(&mut self.instance) != 0 && !all {
                reading = kernel.read(true)?;
            }
            if reading.terms == 0 {
                // A policy other than fairshare is running.
                self.part(context.transport, context.clock);
                return Ok(());
            }
            self.begin(&reading, context);
        } else if all {
            self.nodes.retain(&reading.list);
            self.read_all = now;
        }
        let Some(exchange) = &mut self.exchange else {
            return Ok(());
        };
        self.numbers.left_out += self.nodes.take(reading.list);
        let unnamed = self.nodes.unnamed(NAMES_MAX);
        if !unnamed.is_empty() {
            self.nodes.name(kernel.names(&unnamed)?);
        }
        for account in self.nodes.accounts() {
            exchange.record(&account);
        }
        let (now, shared) = (context.clock.now(), context.clock.shared());
        let time = match reading.time_ns.abs_diff(now) < CLOCK_NS {
            true => reading.time_ns,
            false => now,
        };
        exchange.sync(now, shared);
        exchange.step(time);
        self.stepped = now;
        self.numbers.steps += 1;
        let factors = self.nodes.factors(&exchange.factors());
        let lease = context.config.lease();
        let old = Duration::from_nanos(now.saturating_sub(self.renewed)) >= lease / 4;
        if old || factors != self.written {
            kernel.write(self.instance, lease, &factors)?;
            self.written = factors;
            self.renewed = now;
        }
        for bytes in exchange.encode(time) {
            context.transport.send(&self.group, &bytes);
        }
        if now.saturating_sub(self.saved) >= SAVE_NS {
            self.saved = now;
            self.save(context.store, context.clock);
        }
        Ok(())
    }

    /// Starts with the instance of `reading`, which contains all nodes. Corrections are kept if the
    /// terms are unchanged.
    fn begin<T: Transport, C: Clock>(
        &mut self,
        reading: &Reading,
        context: &mut Context<'_, T, C>,
    ) {
        let (config, secret) = (context.config, context.secret);
        let (now, shared) = (context.clock.now(), context.clock.shared());
        let epoch = context.store.epoch(shared);
        let realm = secret.realm(&config.realm, &self.group, reading.terms);
        let server = secret.server(&config.server);
        let mut exchange = Exchange::new(server, epoch, config.terms(realm));
        match self.exchange.take() {
            Some(before) if self.terms == reading.terms => {
                exchange.restore(&before.save(), now.saturating_sub(self.stepped));
            }
            Some(mut before) => context.transport.send(&self.group, &before.bye(now)),
            None => {
                if let Some((saved, age)) = context.store.load(&self.service, shared) {
                    exchange.restore(&saved, age);
                }
            }
        }
        self.exchange = Some(exchange);
        self.instance = reading.instance;
        self.terms = reading.terms;
        self.nodes.clear();
        self.names.clear();
        self.written.clear();
        self.read_all = now;
        self.renewed = 0;
        self.saved = now;
        self.numbers.instances += 1;
    }

    /// Notifies the other servers that this server leaves the group.
    fn part(&mut self, transport: &mut impl Transport, clock: &impl Clock) {
        if let Some(mut exchange) = self.exchange.take() {
            transport.send(&self.group, &exchange.bye(clock.now()));
        }
    }

    /// Saves the corrections of the last step.
    fn save(&self, store: &Store, clock: &impl Clock) {
        if let Some(exchange) = &self.exchange {
            let age = clock.now().saturating_sub(self.stepped);
            let time = clock.shared().saturating_sub(age);
            store.save(&self.service, &exchange.save(), time);
        }
    }

    /// Records a failure, and logs it if it differs from the previous one. Announces the departure
    /// from the group if the service was removed.
    fn fail<T: Transport, C: Clock>(&mut self, error: &io::Error, context: &mut Context<'_, T, C>) {
        if errno(error) == Some(REMOVED) {
            self.save(context.store, context.clock);
            self.part(context.transport, context.clock);
        }
        self.numbers.failures += 1;
        let failure = error.to_string();
        if self.failure.as_ref() != Some(&failure) {
            eprintln!("nrs-agent: {}: {failure}", self.service);
        }
        self.failure = Some(failure);
    }

    /// Returns the status at `now`, ns.
    fn status(&self, config: &Config, now: u64) -> ServiceStatus {
        let mut status = ServiceStatus {
            service: self.service.clone(),
            group: self.group.clone(),
            failure: self.failure.clone(),
            numbers: ServiceNumbers {
                bound: self.kernel.is_some().into(),
                lowered: self.written.len() as u64,
                ..self.numbers
            },
            peers: self.peers(config, now),
            entities: Vec::new(),
        };
        let Some(exchange) = &self.exchange else {
            return status;
        };
        let counts = exchange.counts();
        status.numbers = ServiceNumbers {
            known: exchange.entities() as u64,
            servers: exchange.servers() as u64,
            left_out: status.numbers.left_out + counts.left_out,
            sent: counts.said,
            sent_bytes: counts.said_bytes,
            heard: counts.heard,
            stale: counts.stale,
            foreign: counts.foreign,
            malformed: counts.malformed,
            crowded: counts.crowded,
            heard_bytes: counts.heard_bytes,
            ..status.numbers
        };
        let mut leaves: Vec<_> = exchange.states().filter(|state| state.leaf).collect();
        leaves.sort_by_key(|state| (state.factor, state.id));
        let paths = self.nodes.paths();
        let shown = leaves.iter().filter_map(|state| {
            let all = state.here as f64 + state.elsewhere as f64;
            Some(EntityStatus {
                entity: paths.get(&state.id)?.clone(),
                factor: f64::from(state.factor) / f64::from(1u32 << 31),
                level: all * f64::from(WEIGHT_ONE) / f64::from(state.weight.max(1)),
                here: state.here,
                elsewhere: state.elsewhere,
                waiting: state.waiting,
            })
        });
        status.entities = shown.take(SHOWN).collect();
        status
    }

    /// Returns the status of the other servers at `now`, ns, by name. It includes servers that
    /// `config` lists, servers present in the transport, and servers with accepted datagrams.
    fn peers(&self, config: &Config, now: u64) -> Vec<PeerStatus> {
        let silent = |name: &String| PeerStatus {
            server: name.clone(),
            left: false,
            numbers: PeerNumbers {
                connected: self.connected.contains(name).into(),
                ..PeerNumbers::default()
            },
        };
        let listed = config.servers.keys().filter(|name| **name != config.server);
        let silent = listed
            .chain(&self.connected)
            .map(|name| (name.clone(), silent(name)));
        let mut all: BTreeMap<String, PeerStatus> = silent.collect();
        for peer in self
            .exchange
            .iter()
            .flat_map(|exchange| exchange.peers(now))
        {
            let Some(name) = self.names.get(&peer.server) else {
                continue;
            };
            let heard = PeerStatus {
                server: name.clone(),
                left: peer.left,
                numbers: PeerNumbers {
                    connected: self.connected.contains(name).into(),
                    age_us: peer.age_ns / 1000,
                    records: peer.records as u64,
                    capacity: peer.capacity,
                    datagrams: peer.datagrams,
                    lost: peer.lost,
                },
            };
            all.insert(name.clone(), heard);
        }
        all.into_values().collect()
    }
}

/// Runs `daemon` until `ended` is set; calls `after` after each step. Between two steps all pending
/// events are processed, for at most a quarter of a delta if the next step is due.
pub fn run<K: Kernel, F: FnMut(&str) -> io::Result<K>, T: Transport>(
    daemon: &mut Daemon<K, F>,
    transport: &mut T,
    clock: &impl Clock,
    ended: &AtomicBool,
    mut after: impl FnMut(&Daemon<K, F>, &T),
) {
    let delta = u64::from(daemon.config.delta_ms) * 1_000_000;
    let mut pace = Pace::new(clock.now(), delta);
    // Time until which events precede a step that is due, ns.
    let mut until = 0;
    while !ended.load(Ordering::Relaxed) {
        let now = clock.now();
        let left = pace.left(now);
        if left.is_none() && now >= until {
            let missed = pace.take(now);
            daemon.step(transport, clock, missed);
            after(daemon, transport);
            until = clock.now() + delta / 4;
            continue;
        }
        match transport.receive(left.unwrap_or_default()) {
            Some(event) => daemon.handle_event(event, clock.now()),
            None => until = 0,
        }
    }
    daemon.leave(transport, clock);
}
