// SPDX-License-Identifier: GPL-2.0-only

//! Two servers that exchange accounts of their service over a network that modifies, repeats,
//! truncates and forges datagrams. Each byte is an operation, followed by its operands.

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use nrs_agent::{
    message::{parse, HEADER, RECORD},
    Account, Exchange, Refusal, Terms,
};
use nrs_sched::policy::fairshare::factors::ONE;

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

/// Returns a number, small or very large.
fn number(bytes: &mut Unstructured<'_>) -> Result<u64> {
    let byte: u8 = bytes.arbitrary()?;
    Ok(u64::from(byte | 1) << (byte % 60))
}

impl ExchangeModel {
    /// Passes an account of a node to `server`.
    fn record(&mut self, server: usize, bytes: &mut Unstructured<'_>) -> Result<()> {
        let (which, flags, weight): (u8, u8, u8) = bytes.arbitrary()?;
        self.servers[server].record(&Account {
            id: u64::from(which % 16) + 1,
            parent: u64::from(which / 16 % 4),
            weight: weight.into(),
            leaf: flags & 1 != 0,
            service: number(bytes)?,
            active: flags & 2 != 0,
            waiting: flags & 4 != 0,
        });
        Ok(())
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
        let said = exchange.encode(self.now);
        for datagram in &said {
            assert!((HEADER..=LONGEST).contains(&datagram.len()));
            assert_eq!((datagram.len() - HEADER) % RECORD, 0);
        }
        assert!(said.len() * 3 <= ENTITIES as usize + 3);
        self.said[server] = said;
    }

    /// Delivers each datagram of `server` twice, cut at each byte, and to `server` itself.
    fn carry(&mut self, server: usize) {
        use Refusal::{Foreign, Forged, Malformed, Own, Version};
        let from = server as u64 + 1;
        for datagram in &self.said[server] {
            let mut receive = |bytes| self.servers[1 - server].receive(from, bytes, self.now);
            // An old datagram may have arrived before, or after a newer one.
            let first = receive(datagram);
            let wrong = matches!(first, Err(Malformed | Version | Foreign | Own | Forged));
            assert!(!wrong, "{first:?}");
            assert!(receive(datagram).is_err());
            for end in 0..datagram.len() {
                assert_eq!(receive(&datagram[..end]), Err(Malformed));
            }
            let own = self.servers[server].receive(from, datagram, self.now);
            assert_eq!(own, Err(Own));
        }
    }

    /// Delivers a modified datagram of `server`.
    fn forge(&mut self, server: usize, bytes: &mut Unstructured<'_>) -> Result<()> {
        let which = usize::from(bytes.arbitrary::<u8>()?);
        let said = &self.said[server];
        let mut datagram = said
            .get(which % said.len().max(1))
            .cloned()
            .unwrap_or_default();
        for _ in 0..1 + which / 64 {
            let (at, value): (u8, u8) = bytes.arbitrary()?;
            if let Some(byte) = datagram.get_mut(usize::from(at)) {
                *byte = value;
            }
        }
        self.deliver(1 - server, &datagram);
        Ok(())
    }

    /// Delivers an arbitrary `datagram`; checks that it is counted once.
    fn deliver(&mut self, server: usize, datagram: &[u8]) {
        let exchange = &mut self.servers[server];
        let sum = |exchange: &Exchange| {
            let counts = exchange.counts();
            counts.heard + counts.malformed + counts.foreign + counts.stale + counts.crowded
        };
        let before = sum(exchange);
        // The sender that the datagram names, if any.
        let from = parse(datagram).map_or(1, |(header, _)| header.server);
        let _ = exchange.receive(from, datagram, self.now);
        assert_eq!(sum(exchange), before + 1);
    }

    /// Interprets the next byte as an operation.
    fn operate(&mut self, bytes: &mut Unstructured<'_>) -> Result<()> {
        let operation: u8 = bytes.arbitrary()?;
        let server = usize::from(operation / 8 % 2);
        match operation % 8 {
            0..=2 => self.record(server, bytes)?,
            3 => self.step(server),
            4 => self.carry(server),
            5 => self.forge(server, bytes)?,
            6 => {
                let length = usize::from(bytes.arbitrary::<u8>()? % 128);
                self.deliver(server, bytes.bytes(length.min(bytes.len()))?);
            }
            _ => self.now += 1 + number(bytes)? % (1 << 40),
        }
        Ok(())
    }
}

/// Interprets the bytes as operations.
pub(crate) fn exchange(data: &[u8]) {
    let terms = Terms {
        realm: 7,
        servers_max: 3,
        entities_max: ENTITIES,
        datagram_max: LONGEST as u32,
        ..Terms::default()
    };
    let mut model = ExchangeModel {
        servers: [1, 2].map(|number| Exchange::new(number, 1, terms)),
        said: [Vec::new(), Vec::new()],
        now: 1_000_000_000,
    };
    let bytes = &mut Unstructured::new(data);
    for _ in 0..400 {
        if !bytes.is_empty() {
            model.operate(bytes).expect("zeros follow the last byte");
        }
    }
    model.step(0);
    model.step(1);
}
