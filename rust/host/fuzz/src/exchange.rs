// SPDX-License-Identifier: GPL-2.0-only

//! Two servers that exchange accounts of their service over a network that modifies, repeats,
//! truncates and forges datagrams. Each byte is an operation, followed by its operands.

use nrs_agent::{
    message::{parse, HEADER, RECORD},
    Account, Exchange, Refusal, Terms,
};
use nrs_sched::policy::fairshare::factors::ONE;

use crate::bytes::Bytes;

impl<'a> Bytes<'a> {
    /// Returns the next `count` bytes, or the rest if there are fewer.
    fn run(&mut self, count: usize) -> &'a [u8] {
        let (first, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        first
    }

    /// Returns a number, small or very large.
    fn number(&mut self) -> u64 {
        let byte = self.byte();
        u64::from(byte | 1) << (byte % 60)
    }
}

/// Maximum number of entities of a server.
const ENTITIES: u32 = 8;

/// Maximum size of a datagram, bytes: three records.
const LONGEST: usize = HEADER + 3 * RECORD;

/// Both servers.
struct ExchangeModel {
    servers: [Exchange; 2],
    /// Last datagrams of each server.
    said: [Vec<Vec<u8>>; 2],
    now: u64,
}

impl ExchangeModel {
    /// Passes an account of a node to `server`.
    fn note(&mut self, server: usize, bytes: &mut Bytes<'_>) {
        let (which, flags) = (bytes.byte(), bytes.byte());
        let account = Account {
            id: u64::from(which % 16) + 1,
            parent: u64::from(which / 16 % 4),
            weight: u32::from(bytes.byte()),
            leaf: flags & 1 != 0,
            service: bytes.number(),
            active: flags & 2 != 0,
            waiting: flags & 4 != 0,
        };
        self.servers[server].note(&account);
    }

    /// Runs a step of `server` and collects its datagrams.
    fn step(&mut self, server: usize) {
        let exchange = &mut self.servers[server];
        exchange.step(self.now);
        let list = exchange.factors();
        assert!(list.windows(2).all(|two| two[0].0 < two[1].0));
        assert!(list.iter().all(|(_, factor)| (1..=ONE).contains(factor)));
        assert!(list.len() <= 16);
        assert!(exchange.servers() <= 3 && exchange.entities() <= ENTITIES as usize);
        let said = exchange.say(self.now);
        for datagram in &said {
            assert!((HEADER..=LONGEST).contains(&datagram.len()));
            assert_eq!((datagram.len() - HEADER) % RECORD, 0);
        }
        assert!(said.len() * 3 <= ENTITIES as usize + 3);
        self.said[server] = said;
    }

    /// Delivers each datagram of `server` twice.
    fn carry(&mut self, server: usize) {
        let other = &mut self.servers[1 - server];
        let from = server as u64 + 1;
        for datagram in &self.said[server] {
            // An old datagram may have arrived before, or after a newer one.
            let first = other.hear(from, datagram, self.now);
            assert!(
                !matches!(
                    first,
                    Err(Refusal::Malformed
                        | Refusal::Version
                        | Refusal::Foreign
                        | Refusal::Own
                        | Refusal::Forged)
                ),
                "{first:?}"
            );
            let again = other.hear(from, datagram, self.now);
            assert!(again.is_err(), "{again:?}");
            for end in 0..datagram.len() {
                assert_eq!(
                    other.hear(from, &datagram[..end], self.now),
                    Err(Refusal::Malformed)
                );
            }
        }
        for datagram in &self.said[server] {
            assert_eq!(
                self.servers[server].hear(from, datagram, self.now),
                Err(Refusal::Own)
            );
        }
    }

    /// Delivers a modified datagram of `server`.
    fn forge(&mut self, server: usize, bytes: &mut Bytes<'_>) {
        let which = usize::from(bytes.byte());
        let count = self.said[server].len().max(1);
        let mut datagram = self.said[server]
            .get(which % count)
            .cloned()
            .unwrap_or_default();
        for _ in 0..1 + which / 64 {
            let (at, value) = (usize::from(bytes.byte()), bytes.byte());
            if let Some(byte) = datagram.get_mut(at) {
                *byte = value;
            }
        }
        self.hear(1 - server, &datagram);
    }

    /// Delivers an arbitrary `datagram`; checks that it is counted once.
    fn hear(&mut self, server: usize, datagram: &[u8]) {
        let exchange = &mut self.servers[server];
        let sum = |exchange: &Exchange| {
            let counts = exchange.counts();
            counts.heard + counts.malformed + counts.foreign + counts.stale + counts.crowded
        };
        let before = sum(exchange);
        // The sender that the datagram names, if any.
        let from = parse(datagram).map_or(1, |(header, _)| header.server);
        let _ = exchange.hear(from, datagram, self.now);
        assert_eq!(sum(exchange), before + 1);
    }
}

/// Interprets the bytes as operations.
pub fn run(data: &[u8]) {
    let terms = Terms {
        realm: 7,
        servers_max: 3,
        entities_max: ENTITIES,
        datagram_max: LONGEST as u32,
        ..Terms::default()
    };
    let server = |number| Exchange::new(number, 1, terms);
    let mut model = ExchangeModel {
        servers: [server(1), server(2)],
        said: [Vec::new(), Vec::new()],
        now: 1_000_000_000,
    };
    let bytes = &mut Bytes(data);
    for _ in 0..400 {
        let Some(operation) = bytes.next() else {
            break;
        };
        let server = usize::from(operation / 8 % 2);
        match operation % 8 {
            0..=2 => model.note(server, bytes),
            3 => model.step(server),
            4 => model.carry(server),
            5 => model.forge(server, bytes),
            6 => {
                let length = usize::from(bytes.byte()) % 128;
                let datagram = bytes.run(length);
                model.hear(server, datagram);
            }
            _ => model.now += 1 + bytes.number() % (1 << 40),
        }
    }
    model.step(0);
    model.step(1);
}
