// SPDX-License-Identifier: GPL-2.0-only

//! Agents with simulated module, transport and clocks.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    io,
    rc::Rc,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use nrs_agent::{
    config,
    daemon::{run, Daemon},
    kernel::{Kernel, Node, NodeName, Reading, STALE},
    secret::Secret,
    status::ServiceStatus,
    store::Store,
    transport::{Clock, Event, Transport},
};
use tempfile::TempDir;

const SECOND: u64 = 1_000_000_000;

const DELTA: u64 = SECOND / 10;

/// Error of a removed service.
const ENODEV: i32 = 19;

/// Error of a failed file.
const EIO: i32 = 5;

/// Error of a failed allocation.
const ENOMEM: i32 = 12;

/// Simulated service of the module.
#[derive(Default)]
struct Module {
    instance: u64,
    terms: u64,
    /// Nodes and their keys, by local id.
    nodes: BTreeMap<u64, (Node, String)>,
    changed: BTreeSet<u64>,
    now: u64,
    /// Nodes whose names are not reported.
    nameless: BTreeSet<u64>,
    /// Error of the next command.
    error: Option<i32>,
    factors: Vec<(u64, u32)>,
    /// True if each instance ends between its first read and the write of factors.
    ends: bool,
    /// True for each read of all nodes, false for each read of changes.
    reads: Vec<bool>,
    asked: Vec<Vec<u64>>,
    leases: Vec<Duration>,
    open: bool,
    /// Number of files that were opened.
    binds: u32,
}

impl Module {
    /// Creates a service whose leaves are the users `uids`; local ids are `first` plus uid.
    fn new(first: u64, uids: &[u64]) -> Self {
        let mut module = Self {
            instance: 1,
            terms: 7,
            ..Self::default()
        };
        for uid in uids {
            let node = Node {
                id: first + uid,
                weight: 4096,
                leaf: true,
                active: true,
                waiting: true,
                ..Node::default()
            };
            module.nodes.insert(node.id, (node, format!("uid:{uid}")));
            module.changed.insert(node.id);
        }
        module
    }

    /// Divides `units` in proportion to weights times factors, and returns the units of each leaf.
    fn serve(&mut self, units: u64) -> Vec<(u64, u64)> {
        let factor = |id: &u64| {
            let found = self.factors.iter().find(|(one, _)| one == id);
            u64::from(found.map_or(1 << 31, |(_, factor)| *factor))
        };
        let weight = |(id, (node, _)): (&u64, &(Node, String))| {
            (*id, ((u64::from(node.weight) * factor(id)) >> 31).max(1))
        };
        let weights: Vec<(u64, u64)> = self.nodes.iter().map(weight).collect();
        let all: u64 = weights.iter().map(|(_, weight)| weight).sum();
        let got = |(id, weight): (u64, u64)| (id, units * weight / all);
        let got: Vec<(u64, u64)> = weights.into_iter().map(got).collect();
        for (id, units) in &got {
            if let Some((node, _)) = self.nodes.get_mut(id) {
                node.service += units;
                self.changed.insert(*id);
            }
        }
        got
    }

    fn fail(&mut self) -> io::Result<()> {
        match self.error.take() {
            Some(error) => Err(io::Error::from_raw_os_error(error)),
            None => Ok(()),
        }
    }
}

/// Open file of the module.
struct File(Rc<RefCell<Module>>);

impl Drop for File {
    fn drop(&mut self) {
        self.0.borrow_mut().open = false;
    }
}

impl Kernel for File {
    fn read(&mut self, all: bool) -> io::Result<Reading> {
        let mut module = self.0.borrow_mut();
        module.fail()?;
        module.reads.push(all);
        let changed = std::mem::take(&mut module.changed);
        let nodes = module.nodes.iter();
        let nodes = nodes.filter(|(id, _)| all || changed.contains(id));
        Ok(Reading {
            instance: module.instance,
            time_ns: module.now,
            terms: module.terms,
            list: nodes.map(|(_, (node, _))| *node).collect(),
        })
    }

    fn names(&mut self, ids: &[u64]) -> io::Result<Vec<NodeName>> {
        let mut module = self.0.borrow_mut();
        module.asked.push(ids.into());
        let name = |id: &u64| {
            let (node, key) = module.nodes.get(id)?;
            let level = if node.parent == 0 { "gid" } else { "uid" };
            Some(NodeName {
                id: *id,
                level: level.into(),
                key: key.clone(),
            })
        };
        let told = ids.iter().filter(|id| !module.nameless.contains(id));
        Ok(told.filter_map(name).collect())
    }

    fn write(&mut self, instance: u64, lease: Duration, factors: &[(u64, u32)]) -> io::Result<()> {
        let mut module = self.0.borrow_mut();
        if instance != module.instance || module.ends {
            return Err(io::Error::from_raw_os_error(STALE));
        }
        assert!(factors.windows(2).all(|pair| pair[0].0 < pair[1].0));
        module.leases.push(lease);
        module.factors = factors.into();
        Ok(())
    }
}

/// Transport that stores the datagrams sent; no events arrive.
#[derive(Default)]
struct Outbox(Vec<(String, Vec<u8>)>);

impl Transport for Outbox {
    fn send(&mut self, group: &str, bytes: &[u8]) {
        self.0.push((group.into(), bytes.into()));
    }

    fn receive(&mut self, _: Duration) -> Option<Event> {
        None
    }

    fn dropped(&self) -> u64 {
        0
    }
}

/// Settable clock; the shared clock is an hour ahead.
#[derive(Clone, Default)]
struct Fake(Rc<Cell<u64>>);

impl Clock for Fake {
    fn now(&self) -> u64 {
        self.0.get()
    }

    fn shared(&self) -> u64 {
        self.0.get() + 3600 * SECOND
    }
}

type Bind = Box<dyn FnMut(&str) -> io::Result<File>>;

/// Agent with its module.
struct Site {
    name: String,
    module: Rc<RefCell<Module>>,
    daemon: Daemon<File, Bind>,
    outbox: Outbox,
    clock: Fake,
    room: Rc<TempDir>,
}

impl Site {
    fn new(name: &str, module: Module) -> Self {
        let clock = Fake(Rc::new(Cell::new(5 * SECOND)));
        let room = Rc::new(tempfile::tempdir().unwrap());
        Self::again(name, Rc::new(RefCell::new(module)), clock, room)
    }

    /// Creates an agent with `more` in its configuration, whose files are in `state`.
    fn with(name: &str, module: Module, more: &str, state: &str) -> Self {
        let site = Self::new(name, module);
        let state = Store::new(&site.room.path().join(state));
        Self::build(name, site.module, site.clock, site.room, more, state)
    }

    /// Creates an agent that starts with the directory of an earlier one.
    fn again(name: &str, module: Rc<RefCell<Module>>, clock: Fake, room: Rc<TempDir>) -> Self {
        let store = Store::new(room.path());
        Self::build(name, module, clock, room, "", store)
    }

    fn build(
        name: &str,
        module: Rc<RefCell<Module>>,
        clock: Fake,
        room: Rc<TempDir>,
        more: &str,
        store: Store,
    ) -> Self {
        let text = format!(
            "realm = \"r\"\nserver = \"{name}\"\nsecret = \"/s\"\ntransport = \"tcp\"\n\
             entities_max = 8\nservers_max = 4\n[service.svc]\ngroup = \"all\"\n{more}"
        );
        let config = config::parse("f", &text, "").unwrap();
        let secret = Secret::parse("000102030405060708090a0b0c0d0e0f").unwrap();
        let file = Rc::clone(&module);
        let bind: Bind = Box::new(move |service| {
            assert_eq!(service, "svc");
            file.borrow_mut().fail()?;
            file.borrow_mut().open = true;
            file.borrow_mut().binds += 1;
            Ok(File(Rc::clone(&file)))
        });
        Self {
            name: name.into(),
            module,
            daemon: Daemon::new(config, secret, store, bind),
            outbox: Outbox::default(),
            clock,
            room,
        }
    }

    /// Makes a step one delta later; returns the datagrams sent.
    fn step(&mut self) -> Vec<(String, Vec<u8>)> {
        let now = self.clock.0.get() + DELTA;
        self.clock.0.set(now);
        self.module.borrow_mut().now = now;
        self.daemon.step(&mut self.outbox, &self.clock, 0);
        std::mem::take(&mut self.outbox.0)
    }

    /// Delivers datagrams whose sender is `server` according to the transport.
    fn deliver(&mut self, server: &str, sent: &[(String, Vec<u8>)]) {
        for (group, bytes) in sent {
            let event = Event::Datagram {
                server: server.into(),
                group: group.clone(),
                bytes: bytes.clone(),
            };
            self.daemon.handle_event(event, self.clock.0.get());
        }
    }

    fn status(&self) -> ServiceStatus {
        let mut status = self.daemon.status(self.clock.0.get(), 0);
        assert_eq!((&*status.realm, &status.server), ("r", &self.name));
        status.services.remove(0)
    }
}

#[test]
fn a_steady_state_asks_for_no_more_than_changes() {
    let mut site = Site::new("a", Module::new(100, &[1, 2, 3]));
    for _ in 0..20 {
        site.step();
    }
    {
        let module = site.module.borrow();
        assert_eq!(module.reads[..3], [true, false, false]);
        assert_eq!(module.asked, [[101, 102, 103]]);
        // Nothing changes, so the lease of 3.2 s is renewed every quarter, which is eight deltas.
        assert_eq!(module.leases, [Duration::from_millis(3200); 3]);
        assert!(module.open && module.factors.is_empty());
    }
    // Changed nodes are read, and the names of new nodes are requested.
    site.module.borrow_mut().serve(3000);
    let node = Node {
        id: 7,
        ..site.module.borrow().nodes[&101].0
    };
    let new = (node, "uid:9".into());
    site.module.borrow_mut().nodes.insert(7, new);
    site.module.borrow_mut().changed.insert(7);
    site.step();
    assert_eq!(site.module.borrow().asked.last(), Some(&vec![7]));
    let status = site.status();
    let numbers = status.numbers;
    assert_eq!((numbers.bound, numbers.known, numbers.steps), (1, 4, 21));
    assert_eq!((numbers.instances, numbers.failures), (1, 0));
    let names: BTreeSet<&str> = status.entities.iter().map(|one| &*one.entity).collect();
    assert_eq!(names, ["uid:1", "uid:2", "uid:3", "uid:9"].into());
}

/// Makes steps of "a" and of `peer`, until the factor of user 1, who gets more than user 2, is
/// below one.
fn correct(site: &mut Site, peer: &mut Site) {
    for _ in 0..3 {
        for (id, units) in [(101, 9000), (102, 1000)] {
            let mut module = site.module.borrow_mut();
            module.nodes.get_mut(&id).unwrap().0.service += units;
            module.changed.insert(id);
        }
        let sent = site.step();
        peer.step();
        peer.deliver("a", &sent);
    }
}

#[test]
fn another_instance_is_read_again() {
    let mut site = Site::new("a", Module::new(100, &[1, 2]));
    let mut peer = Site::new("b", Module::new(200, &[1, 2]));
    correct(&mut site, &mut peer);
    let before = site.module.borrow().factors.clone();
    assert_eq!(before.len(), 1, "{before:?}");
    assert_eq!(before[0].0, 101);
    // The policy was restarted: other local ids, no factors.
    *site.module.borrow_mut() = Module {
        instance: 2,
        open: true,
        ..Module::new(300, &[1, 2])
    };
    let sent = site.step();
    assert_eq!(site.module.borrow().reads, [false, true]);
    let factors = site.module.borrow().factors.clone();
    assert_eq!(factors, [(301, before[0].1)]);
    assert_eq!(site.status().numbers.instances, 2);
    // For the peer it is the same server, restarted.
    assert!(sent.is_empty());
    let sent = site.step();
    peer.deliver("a", &sent);
    let counts = peer.status().numbers;
    assert_eq!((counts.foreign, counts.stale, counts.servers), (0, 0, 1));
    // The instance ends between read and write as well: the next step reads all nodes.
    site.module.borrow_mut().instance = 3;
    let stale = Rc::clone(&site.module);
    let before = stale.borrow().reads.len();
    site.step();
    assert_eq!(stale.borrow().reads[before..], [false, true]);
    // With another mode the server sends a farewell, and its later datagrams are from another
    // realm.
    stale.borrow_mut().instance = 4;
    stale.borrow_mut().terms = 8;
    let sent = site.step();
    assert_eq!(sent.len(), 1);
    peer.deliver("a", &sent);
    assert!(peer.status().peers[0].left);
    let sent = site.step();
    peer.deliver("a", &sent);
    assert_eq!(peer.status().numbers.foreign, 1);
    // Under another policy nothing is shared, until fairshare runs again.
    stale.borrow_mut().instance = 5;
    stale.borrow_mut().terms = 0;
    assert_eq!((site.step().len(), site.step().len()), (1, 0));
    assert_eq!(
        (site.status().failure, site.status().numbers.known),
        (None, 0)
    );
    stale.borrow_mut().terms = 7;
    assert_eq!((site.step().len(), site.step().len()), (0, 1));
}

#[test]
fn an_instance_that_ends_meanwhile_is_no_failure() {
    let mut module = Module::new(100, &[1]);
    module.ends = true;
    let mut site = Site::new("a", module);
    for _ in 0..3 {
        site.step();
    }
    let numbers = site.status().numbers;
    assert_eq!(
        (numbers.bound, numbers.failures, numbers.instances),
        (1, 0, 3)
    );
    assert_eq!(site.module.borrow().reads, [true; 3]);
}

#[test]
fn a_node_without_a_name_is_asked_for_until_it_has_one() {
    let mut module = Module::new(100, &[1, 2]);
    module.nameless.insert(102);
    let mut site = Site::new("a", module);
    for _ in 0..3 {
        site.step();
    }
    assert_eq!(
        site.module.borrow().asked,
        [vec![101, 102], vec![102], vec![102]]
    );
    assert_eq!(site.status().numbers.known, 1);
    site.module.borrow_mut().nameless.clear();
    site.step();
    site.step();
    assert_eq!(site.module.borrow().asked.len(), 4);
    assert_eq!(site.status().numbers.known, 2);
    // The name of a removed node is not requested again.
    {
        let module = &mut *site.module.borrow_mut();
        let node = Node {
            id: 103,
            gone: true,
            ..module.nodes[&101].0
        };
        module.nodes.insert(103, (node, "uid:3".into()));
        module.nameless.insert(103);
        module.changed.insert(103);
    }
    site.step();
    site.module.borrow_mut().nodes.remove(&103);
    site.step();
    assert_eq!(site.module.borrow().asked.len(), 5);
}

#[test]
fn no_more_nodes_than_entities_max() {
    let uids: Vec<u64> = (1..=10).collect();
    let mut site = Site::new("a", Module::new(100, &uids));
    site.step();
    let numbers = site.status().numbers;
    assert_eq!((numbers.known, numbers.left_out), (8, 2));
    for _ in 0..20 {
        site.step();
    }
    assert_eq!(site.module.borrow().reads[1..], [false; 20]);
    // With room for one node all nodes are read once, because the unchanged nodes are not reported
    // otherwise.
    let remove = |site: &Site, id: u64| {
        let mut module = site.module.borrow_mut();
        module.nodes.get_mut(&id).unwrap().0.gone = true;
        module.changed.insert(id);
    };
    remove(&site, 101);
    site.step();
    site.module.borrow_mut().nodes.remove(&101);
    for _ in 0..20 {
        site.step();
    }
    let whole = |site: &Site| {
        site.module
            .borrow()
            .reads
            .iter()
            .filter(|all| **all)
            .count()
    };
    assert_eq!(whole(&site), 2);
    // With room for two nodes all nodes are read again, but not before a second has passed.
    for id in [102, 103] {
        remove(&site, id);
    }
    site.step();
    site.module
        .borrow_mut()
        .nodes
        .retain(|_, (node, _)| !node.gone);
    for _ in 0..20 {
        site.step();
    }
    assert_eq!(whole(&site), 3);
    let keys: Vec<u64> = site.module.borrow().nodes.keys().copied().collect();
    assert_eq!(keys, [104, 105, 106, 107, 108, 109, 110]);
    // The protocol keeps removed entities for 128 deltas.
    for _ in 0..128 {
        site.step();
    }
    assert_eq!(whole(&site), 3);
    assert_eq!(site.status().entities.len(), 7);
}

#[test]
fn leaving_agent_sends_a_farewell() {
    let mut site = Site::new("a", Module::new(100, &[1]));
    let mut peer = Site::new("b", Module::new(200, &[1]));
    for _ in 0..3 {
        site.module.borrow_mut().serve(1000);
        let sent = site.step();
        peer.step();
        peer.deliver("a", &sent);
    }
    let status = peer.status();
    assert_eq!(status.peers.len(), 1);
    let seen = &status.peers[0];
    assert_eq!(
        (&*seen.server, seen.left, seen.numbers.records),
        ("a", false, 1)
    );
    assert_eq!((seen.numbers.datagrams, seen.numbers.lost), (2, 0));
    site.daemon.leave(&mut site.outbox, &site.clock);
    let sent = std::mem::take(&mut site.outbox.0);
    assert_eq!(sent.len(), 1);
    assert!(!site.module.borrow().open);
    peer.deliver("a", &sent);
    let seen = peer.status().peers.remove(0);
    assert_eq!((seen.left, seen.numbers.records), (true, 0));
}

#[test]
fn connected_servers_are_shown() {
    let mut site = Site::new("a", Module::new(100, &[1]));
    site.step();
    let (server, group) = (String::from("b"), String::from("all"));
    let joined = |server: &str| Event::Joined {
        server: server.into(),
        group: group.clone(),
    };
    site.daemon.handle_event(joined("b"), 0);
    // The maximum number of servers, without the agent itself.
    for other in ["a", "c", "d", "e", "f"] {
        site.daemon.handle_event(joined(other), 0);
    }
    let peers = site.status().peers;
    let names: Vec<&str> = peers.iter().map(|peer| &*peer.server).collect();
    assert_eq!(names, ["b", "c", "d", "e"]);
    assert_eq!(
        (peers[0].numbers.connected, peers[0].numbers.datagrams),
        (1, 0)
    );
    site.daemon.handle_event(Event::Parted { server, group }, 0);
    assert_eq!(site.status().peers.len(), 3);
}

#[test]
fn what_is_no_message_of_its_sender_is_refused() {
    let mut site = Site::new("a", Module::new(100, &[1]));
    let mut peer = Site::new("b", Module::new(200, &[1]));
    site.step();
    site.step();
    peer.step();
    let sent = peer.step();
    assert_eq!(sent.len(), 1);
    site.deliver("c", &sent);
    site.deliver("b", &[("all".into(), b"nonsense".into())]);
    site.deliver("b", &[("all".into(), Vec::new())]);
    site.deliver("b", &[("other".into(), sent[0].1.clone())]);
    // Another server has the name of the agent.
    site.deliver("a", &sent);
    assert_eq!(site.daemon.status(0, 0).own, 1);
    let numbers = site.status().numbers;
    assert_eq!((numbers.foreign, numbers.malformed), (1, 2));
    assert_eq!((numbers.heard, numbers.servers), (0, 0));
    assert_eq!(site.daemon.status(0, 0).strangers, 1);
    site.deliver("b", &sent);
    site.deliver("b", &sent);
    let numbers = site.status().numbers;
    assert_eq!((numbers.heard, numbers.stale), (1, 1));
}

#[test]
fn a_file_that_fails_is_opened_again_after_a_second() {
    let mut module = Module::new(100, &[1]);
    module.error = Some(ENODEV);
    let mut site = Site::new("a", module);
    for step in 1..=10 {
        site.step();
        assert_eq!(site.status().numbers.bound, 0, "{step}");
        assert!(site.status().failure.is_some(), "{step}");
    }
    site.step();
    let status = site.status();
    assert_eq!((status.numbers.bound, status.numbers.failures), (1, 1));
    assert_eq!(status.failure, None);
    site.module.borrow_mut().error = Some(ENODEV);
    site.step();
    assert!(!site.module.borrow().open);
    assert_eq!(site.status().numbers.failures, 2);
    for _ in 0..10 {
        site.step();
    }
    assert_eq!(site.module.borrow().reads.last(), Some(&true));
    assert!(site.module.borrow().open);
}

#[test]
fn servers_that_are_listed_are_shown() {
    let listed = "[servers]\na = \"a:1\"\nb = \"b:1\"\nc = \"c:1\"\n";
    let mut site = Site::with("a", Module::new(100, &[1]), listed, "state");
    let (server, group) = (String::from("c"), String::from("all"));
    site.daemon.handle_event(Event::Joined { server, group }, 0);
    let seen = || {
        let peers = site.status().peers.into_iter();
        peers.map(|peer| (peer.server, peer.numbers.connected))
    };
    assert!(seen().eq([("b".into(), 0), ("c".into(), 1)]));
}

#[test]
fn a_failure_that_passes_does_not_close_the_file() {
    let mut site = Site::new("a", Module::new(100, &[1]));
    site.step();
    let fail = |site: &mut Site| {
        site.module.borrow_mut().error = Some(ENOMEM);
        site.step();
    };
    fail(&mut site);
    let status = site.status();
    assert_eq!((status.numbers.bound, status.numbers.failures), (1, 1));
    assert!(status.failure.is_some());
    site.step();
    assert_eq!(site.status().failure, None);
    assert_eq!(site.module.borrow().binds, 1);
    // A failure that lasts longer than the lease of 32 deltas closes the file.
    for _ in 0..32 {
        fail(&mut site);
    }
    assert!(site.module.borrow().open);
    fail(&mut site);
    assert!(!site.module.borrow().open);
    for _ in 0..10 {
        site.step();
    }
    assert_eq!(site.module.borrow().binds, 2);
}

#[test]
fn a_service_that_is_removed_leaves() {
    let mut site = Site::new("a", Module::new(100, &[1, 2]));
    let mut peer = Site::new("b", Module::new(200, &[1, 2]));
    correct(&mut site, &mut peer);
    let factors = site.module.borrow().factors.clone();
    site.module.borrow_mut().error = Some(ENODEV);
    let sent = site.step();
    assert_eq!(sent.len(), 1);
    peer.deliver("a", &sent);
    assert!(peer.status().peers[0].left);
    // The farewell is sent once. After the next bind the corrections are restored.
    site.module.borrow_mut().factors.clear();
    for _ in 0..9 {
        assert!(site.step().is_empty());
    }
    site.step();
    assert_eq!(site.module.borrow().factors, factors);
}

#[test]
fn corrections_that_come_back_have_an_age() {
    for (seconds, back) in [(59, true), (61, false)] {
        let mut site = Site::new("a", Module::new(100, &[1, 2]));
        let mut peer = Site::new("b", Module::new(200, &[1, 2]));
        correct(&mut site, &mut peer);
        let factors = site.module.borrow().factors.clone();
        site.module.borrow_mut().error = Some(EIO);
        site.step();
        let now = site.clock.0.get();
        site.clock.0.set(now + seconds * SECOND);
        site.module.borrow_mut().factors.clear();
        site.step();
        let again = site.module.borrow().factors.clone();
        assert_eq!(again == factors, back, "{seconds}");
        assert_eq!(site.status().numbers.instances, 2);
    }
}

#[test]
fn corrections_and_epochs_outlive_the_agent() {
    let mut site = Site::new("a", Module::new(100, &[1, 2]));
    let mut peer = Site::new("b", Module::new(200, &[1, 2]));
    correct(&mut site, &mut peer);
    let factors = site.module.borrow().factors.clone();
    assert_eq!(factors.len(), 1);
    site.daemon.leave(&mut site.outbox, &site.clock);
    site.module.borrow_mut().factors.clear();
    let (module, clock, room) = (site.module, site.clock, site.room);
    let mut site = Site::again("a", module, clock, room);
    site.step();
    assert_eq!(site.module.borrow().factors, factors);
    let sent = site.step();
    peer.deliver("a", &sent);
    let seen = peer.status().peers.remove(0);
    assert!(!seen.left && seen.numbers.records == 2, "{seen:?}");
    assert_eq!(peer.status().numbers.stale, 0);
}

/// Transport whose events a function returns for the time that the agent waits.
struct Scripted<F>(F);

impl<F: FnMut(Duration) -> Option<Event>> Transport for Scripted<F> {
    fn send(&mut self, _: &str, _: &[u8]) {}

    fn receive(&mut self, timeout: Duration) -> Option<Event> {
        self.0(timeout)
    }

    fn dropped(&self) -> u64 {
        3
    }
}

/// Returns a malformed datagram.
fn malformed() -> Event {
    Event::Datagram {
        server: "b".into(),
        group: "all".into(),
        bytes: vec![0],
    }
}

/// Runs `site` for four steps, each of which takes one and a half deltas; returns the number of
/// malformed datagrams after each step.
fn slow(site: &mut Site, receive: impl FnMut(Duration) -> Option<Event>) -> Vec<u64> {
    let (clock, ended) = (site.clock.clone(), AtomicBool::new(false));
    let mut heard = Vec::new();
    run(
        &mut site.daemon,
        &mut Scripted(receive),
        &site.clock,
        &ended,
        |daemon, _| {
            clock.0.set(clock.0.get() + DELTA * 3 / 2);
            heard.push(daemon.status(0, 0).services[0].numbers.malformed);
            ended.store(heard.len() == 4, Ordering::Relaxed);
        },
    );
    heard
}

/// Checks that an agent that was stopped, as time shows that passes once by a large amount, leaves
/// out the steps that it missed.
#[test]
fn steps_that_were_missed_are_left_out() {
    let mut site = Site::new("a", Module::new(100, &[1]));
    let (waited, mut waits, mut stop) = (site.clock.clone(), 0, 2 * SECOND + DELTA / 2);
    let mut transport = Scripted(|timeout: Duration| {
        let mut now = waited.now() + timeout.as_nanos() as u64;
        if now >= 6 * SECOND {
            now += std::mem::take(&mut stop);
        }
        waited.0.set(now);
        waits += 1;
        None
    });
    let ended = AtomicBool::new(false);
    let mut times = Vec::new();
    let clock = site.clock.clone();
    let module = Rc::clone(&site.module);
    run(
        &mut site.daemon,
        &mut transport,
        &site.clock,
        &ended,
        |daemon, transport| {
            times.push(clock.now());
            module.borrow_mut().now = clock.now();
            let status = daemon.status(clock.now(), transport.dropped());
            assert_eq!(status.dropped, 3);
            ended.store(times.len() == 21, Ordering::Relaxed);
        },
    );
    // One step immediately, and the next one at its regular time.
    let mut want: Vec<u64> = (50..60).map(|tenth| tenth * DELTA).collect();
    want.push(80 * DELTA + DELTA / 2);
    want.extend((81..91).map(|tenth| tenth * DELTA));
    assert_eq!(times, want);
    assert_eq!(site.status().numbers.missed, 20);
    assert!(waits <= 22 && !site.module.borrow().open);
}

#[test]
fn slow_agent_processes_events() {
    let mut site = Site::new("a", Module::new(100, &[1]));
    let mut left = 100;
    let heard = slow(&mut site, |timeout| {
        assert_eq!(timeout, Duration::ZERO, "steps are always due");
        left -= 1;
        (left >= 0).then(malformed)
    });
    assert_eq!(heard, [0, 100, 100, 100]);
}

/// Checks that an agent still steps with an endless sequence of events, each of which takes a
/// hundredth of a delta.
#[test]
fn agent_steps_during_endless_events() {
    let mut site = Site::new("a", Module::new(100, &[1]));
    let clock = site.clock.clone();
    let heard = slow(&mut site, |_| {
        clock.0.set(clock.0.get() + DELTA / 100);
        Some(malformed())
    });
    assert_eq!(heard, [0, 25, 50, 75]);
}
