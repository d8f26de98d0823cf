// SPDX-License-Identifier: GPL-2.0-only

//! Queues of events between the threads of a transport and the agent.
//!
//! A *sender* is a server in one group. Each sender has a queue, and the queues are served round
//! robin. A sender that sends too much loses the oldest of its datagrams, and does not delay other
//! senders.
//!
//! ```text
//!  transport ──datagram, presence──► queue of each sender ──receive, round robin──► agent
//! ```

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::transport::Event;

/// Maximum number of queued datagrams of a sender.
const DATAGRAMS_MAX: usize = 64;

/// Maximum size of the queued datagrams of a sender, bytes: two messages with the maximum number of
/// entities.
const BYTES_MAX: usize = 576 << 10;

/// Server and group.
type Name = (String, String);

/// Queued events of a sender.
#[derive(Default)]
struct Sender {
    /// Latest presence of the server: true if it joined, false if it parted; `None`: unchanged.
    joined: Option<bool>,
    datagrams: VecDeque<Vec<u8>>,
    bytes: usize,
}

/// Queues of all senders.
///
/// # Invariants
///
/// `turns` contains each key of `senders` once, and each of the `senders` has an event.
#[derive(Default)]
struct Queues {
    senders: BTreeMap<Name, Sender>,
    /// Senders in the order of service.
    turns: VecDeque<Name>,
    /// Sessions in which a server is present.
    present: BTreeMap<Name, BTreeSet<usize>>,
    dropped: u64,
}

impl Queues {
    /// Returns the queue of `name`; `None` if there are too many senders.
    fn sender(&mut self, name: Name, senders_max: usize) -> Option<&mut Sender> {
        if !self.senders.contains_key(&name) {
            if self.senders.len() >= senders_max {
                self.dropped += 1;
                return None;
            }
            self.turns.push_back(name.clone());
        }
        Some(self.senders.entry(name).or_default())
    }

    /// Records a presence; returns true if the server joined its first session or left its last.
    fn present(&mut self, session: usize, name: &Name, joined: bool, senders_max: usize) -> bool {
        let known = self.present.contains_key(name);
        if joined && !known && self.present.len() >= senders_max {
            self.dropped += 1;
            return false;
        }
        let sessions = self.present.entry(name.clone()).or_default();
        match joined {
            true => sessions.insert(session),
            false => sessions.remove(&session),
        };
        if sessions.is_empty() {
            self.present.remove(name);
        }
        known != self.present.contains_key(name)
    }

    /// Dequeues the next event of the sender whose turn it is.
    fn take(&mut self) -> Option<Event> {
        let name = self.turns.pop_front()?;
        let sender = self.senders.get_mut(&name)?;
        let (server, group) = name.clone();
        let event = match sender.joined.take() {
            Some(true) => Event::Joined { server, group },
            Some(false) => Event::Parted { server, group },
            None => {
                let bytes = sender.datagrams.pop_front()?;
                sender.bytes -= bytes.len();
                Event::Datagram {
                    server,
                    group,
                    bytes,
                }
            }
        };
        match sender.datagrams.is_empty() {
            true => drop(self.senders.remove(&name)),
            false => self.turns.push_back(name),
        }
        Some(event)
    }
}

/// Events that the agent has not received yet.
pub struct Inbox {
    queues: Mutex<Queues>,
    arrived: Condvar,
    senders_max: usize,
}

impl Inbox {
    /// Creates an empty inbox for up to `senders_max` senders.
    pub fn new(senders_max: usize) -> Self {
        Self {
            queues: Mutex::default(),
            arrived: Condvar::new(),
            senders_max,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a datagram that the transport dropped.
    pub fn refuse(&self) {
        self.lock().dropped += 1;
    }

    /// Queues a datagram. If the queue of the sender is full, the oldest datagrams are dropped.
    pub fn datagram(&self, server: String, group: String, bytes: Vec<u8>) {
        let mut queues = self.lock();
        let Some(sender) = queues.sender((server, group), self.senders_max) else {
            return;
        };
        sender.bytes += bytes.len();
        sender.datagrams.push_back(bytes);
        let mut dropped = 0;
        while sender.datagrams.len() > DATAGRAMS_MAX || sender.bytes > BYTES_MAX {
            let oldest = sender.datagrams.pop_front();
            sender.bytes -= oldest.map_or(0, |oldest| oldest.len());
            dropped += 1;
        }
        queues.dropped += dropped;
        self.arrived.notify_one();
    }

    /// Records the presence of `server` in `group` in the session number `session`. Queues the
    /// first presence in any session, and the absence in all; the last state replaces earlier ones.
    pub fn presence(&self, session: usize, server: String, group: String, joined: bool) {
        let mut queues = self.lock();
        let name = (server, group);
        if !queues.present(session, &name, joined, self.senders_max) {
            return;
        }
        if let Some(sender) = queues.sender(name, self.senders_max) {
            sender.joined = Some(joined);
            self.arrived.notify_one();
        }
    }

    /// Returns the next event; waits for up to `timeout`.
    pub fn receive(&self, timeout: Duration) -> Option<Event> {
        let until = Instant::now() + timeout;
        let mut queues = self.lock();
        loop {
            if let Some(event) = queues.take() {
                return Some(event);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            let waited = self.arrived.wait_timeout(queues, left);
            queues = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Returns the number of dropped events.
    pub fn dropped(&self) -> u64 {
        self.lock().dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(inbox: &Inbox, server: &str, bytes: &[u8]) {
        inbox.datagram(server.into(), "g".into(), bytes.into());
    }

    /// Receives all events. Returns for each the sender, and the first byte of the datagram or the
    /// presence.
    fn all(inbox: &Inbox) -> Vec<(String, Result<u8, bool>)> {
        let event = |event| match event {
            Event::Datagram { server, bytes, .. } => (server, Ok(bytes[0])),
            Event::Joined { server, .. } => (server, Err(true)),
            Event::Parted { server, .. } => (server, Err(false)),
        };
        let next = || inbox.receive(Duration::ZERO);
        std::iter::from_fn(next).map(event).collect()
    }

    #[test]
    fn a_sender_that_floods_silences_no_other() {
        let inbox = Inbox::new(2);
        for number in 0..=255 {
            put(&inbox, "a", &[number]);
        }
        inbox.presence(0, "b".into(), "g".into(), false);
        put(&inbox, "b", b"1");
        inbox.presence(0, "b".into(), "g".into(), true);
        // The maximum of two senders is reached.
        inbox.presence(0, "c".into(), "g".into(), true);
        put(&inbox, "c", b"2");
        assert_eq!(inbox.dropped(), 256 - 64 + 2);
        let events = all(&inbox);
        let name = |name: &str| name.to_owned();
        let first = [
            (name("a"), Ok(192)),
            (name("b"), Err(true)),
            (name("a"), Ok(193)),
            (name("b"), Ok(b'1')),
        ];
        assert_eq!(events[..4], first);
        assert_eq!(events.len(), 64 + 2);
        // Senders without events are removed, so that there is room for other senders.
        put(&inbox, "c", b"2");
        assert_eq!(all(&inbox), [(name("c"), Ok(b'2'))]);
    }

    #[test]
    fn bytes_are_bounded() {
        let inbox = Inbox::new(2);
        for number in 0..40 {
            put(&inbox, "a", &[number; 16_384]);
        }
        let events = all(&inbox);
        assert_eq!((events.len(), inbox.dropped()), (36, 4));
        assert_eq!(events[0].1, Ok(4));
    }

    #[test]
    fn a_server_parts_when_it_left_all_sessions() {
        let inbox = Inbox::new(1);
        let change = |server: &str, session, joined| {
            inbox.presence(session, server.into(), "g".into(), joined);
            all(&inbox)
        };
        let event = |joined| vec![("a".to_owned(), Err(joined))];
        assert_eq!(change("a", 1, false), []);
        assert_eq!(change("a", 0, true), event(true));
        assert_eq!(change("a", 1, true), []);
        assert_eq!(change("a", 1, true), []);
        assert_eq!(change("a", 0, false), []);
        // The maximum of one server is reached until the server has left.
        assert_eq!(change("b", 0, true), []);
        assert_eq!(inbox.dropped(), 1);
        assert_eq!(change("a", 1, false), event(false));
        assert_eq!(change("b", 0, true), [("b".to_owned(), Err(true))]);
    }

    #[test]
    fn an_event_wakes_the_receiver() {
        let inbox = Inbox::new(1);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| inbox.receive(Duration::from_secs(60)));
            inbox.presence(0, "a".into(), "g".into(), true);
            assert!(waiting.join().unwrap().is_some());
        });
    }
}
