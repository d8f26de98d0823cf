// SPDX-License-Identifier: GPL-2.0-only

//! Exchange of service accounts between servers.
//!
//! - *Participant*: a server that takes part, because its policy is fairshare; it runs its own rule
//!   ([`nrs_agent::Exchange`]).
//! - *Datagram*: bytes that one participant sent; it is in transit once for each receiver.
//!
//! ```text
//!   every delta, each participant at its own time
//!   accounts of all parts ─▶ note, step ─┬─▶ factors ─▶ parts
//!                                        └─▶ say ─▶ lost, cut, or in transit ─▶ hear
//! ```

use super::{
    network::delay,
    queue::{Event, Queue, SimState, Slab, START},
    server::SimServer,
};
use crate::{
    outcome,
    scenario::{Cut, Exchange as Written},
};
use nrs_agent::{Exchange, Terms};
use nrs_sched::{
    agent::FactorPairs,
    mem::Shared,
    policy::{
        fairshare::{factors::Factors, Update},
        AnyUpdate, Part as _, ReportBuf,
    },
    rng::{avalanche, Rng},
};
use std::rc::Rc;

/// Participants and datagrams in transit.
pub struct SimExchange {
    delta: u64,
    latency: u64,
    jitter: u64,
    /// Loss rate in units of 2^-32.
    loss: u64,
    cuts: Vec<(u32, u64, u64)>,
    /// Participants by server; `None` if a server takes no part.
    participants: Vec<Option<Exchange>>,
    /// Datagrams in transit: sender, receiver and bytes.
    in_transit: Slab<(u32, u32, Rc<[u8]>)>,
    reports: ReportBuf,
    rng: Rng,
    counts: outcome::ExchangeOutcome,
}

/// Returns the realm: a number that servers with the same policy line share.
fn realm(policy: &str) -> u64 {
    let mix = |realm, byte| avalanche(realm ^ u64::from(byte));
    policy.bytes().fold(1, mix).max(1)
}

impl SimExchange {
    /// Creates the exchange of `written` between servers with these `names` and `policies`.
    ///
    /// # Errors
    ///
    /// A cut names a server that does not exist.
    ///
    /// # Panics
    ///
    /// Panics if memory is exhausted.
    pub fn new(
        written: &Written,
        names: &[String],
        policies: &[String],
        seed: u64,
    ) -> Result<Self, String> {
        let terms = |policy: &str| Terms {
            realm: realm(policy),
            delta_ns: written.delta.0.max(1),
            hold: written.hold,
            servers_max: names.len() as u32,
            ..Terms::default()
        };
        let participant = |(policy, number): (&String, u64)| {
            let fair = policy.split_whitespace().next() == Some("fairshare");
            fair.then(|| Exchange::new(number, 1, terms(policy)))
        };
        let cut = |cut: &Cut| {
            let found = names.iter().position(|name| *name == cut.server);
            let found =
                found.ok_or_else(|| format!("exchange: unknown server `{}`", cut.server))?;
            Ok((found as u32, START + cut.from.0, START + cut.to.0))
        };
        Ok(Self {
            delta: written.delta.0.max(1),
            latency: written.latency.0,
            jitter: written.jitter.0,
            loss: (written.loss.clamp(0.0, 1.0) * (1u64 << 32) as f64) as u64,
            cuts: written.cut.iter().map(cut).collect::<Result<_, String>>()?,
            participants: policies.iter().zip(1u64..).map(participant).collect(),
            in_transit: Slab::default(),
            reports: ReportBuf::new().expect("memory"),
            rng: Rng::new(seed),
            counts: outcome::ExchangeOutcome::default(),
        })
    }

    /// Schedules each participant's first step at a random time, so that not all send at once.
    pub fn begin(&mut self, queue: &mut Queue) {
        for (number, participant) in (0..).zip(&self.participants) {
            if participant.is_some() {
                let at = START + self.rng.below(self.delta);
                queue.push(at, Event::Exchange(number));
            }
        }
    }

    /// Returns the counts of messages and steps.
    pub fn counts(&self) -> outcome::ExchangeOutcome {
        self.counts
    }

    /// Returns true if `participant` is cut off at `now`.
    fn is_cut(&self, participant: u32, now: u64) -> bool {
        let cuts = &mut self.cuts.iter();
        cuts.any(|(server, from, to)| *server == participant && (*from..*to).contains(&now))
    }

    /// Runs a step of `participant`, which belongs to `server`, and sends its datagrams.
    ///
    /// # Panics
    ///
    /// Panics if memory is exhausted.
    pub fn step(&mut self, participant: u32, server: &mut SimServer, state: &mut SimState) {
        let now = state.now;
        self.counts.steps += 1;
        state
            .queue
            .push(now + self.delta, Event::Exchange(participant));
        if let Some(exchange) = &mut self.participants[participant as usize] {
            for bytes in share(exchange, &mut self.reports, server, state) {
                self.send(state, participant, &bytes);
            }
        }
    }

    /// Sends a datagram to all other participants.
    fn send(&mut self, state: &mut SimState, from: u32, bytes: &[u8]) {
        let now = state.now;
        let bytes: Rc<[u8]> = bytes.into();
        let cut = self.is_cut(from, now);
        for to in 0..self.participants.len() as u32 {
            if to == from || self.participants[to as usize].is_none() {
                continue;
            }
            self.counts.messages += 1;
            self.counts.bytes += bytes.len() as u64;
            let lost = self.loss > 0 && u64::from(self.rng.next_u32()) < self.loss;
            if cut || lost {
                self.counts.lost += 1;
                continue;
            }
            let delay = delay(self.latency, self.jitter, &mut self.rng);
            let idx = self.in_transit.insert((from, to, Rc::clone(&bytes)));
            state.queue.push(now + delay, Event::Deliver(idx));
        }
    }

    /// Delivers the datagram at index `idx`.
    pub fn deliver(&mut self, idx: u32, now: u64) {
        let (from, to, bytes) = self.in_transit.remove(idx);
        let from = u64::from(from) + 1;
        if self.is_cut(to, now) {
            self.counts.lost += 1;
            return;
        }
        let Some(exchange) = &mut self.participants[to as usize] else {
            return;
        };
        match exchange.receive(from, &bytes, now) {
            Ok(()) => self.counts.heard += 1,
            Err(_) => self.counts.refused += 1,
        }
    }
}

/// Runs a step of the rule of `server`, applies the factors; returns datagrams for other servers.
fn share(
    exchange: &mut Exchange,
    reports: &mut ReportBuf,
    server: &mut SimServer,
    state: &mut SimState,
) -> Vec<Vec<u8>> {
    for partition in &mut server.partitions {
        let Some(part) = partition.part().fairshare() else {
            continue;
        };
        let mut from = Some(0);
        while let Some(class) = from {
            reports.clear();
            from = part.reports(class, reports);
            for report in reports.iter() {
                exchange.record(&report.account);
            }
        }
    }
    exchange.step(state.now);
    let pairs = FactorPairs::of(exchange.factors()).expect("valid factors");
    let factors = Factors::new(pairs, None).expect("memory");
    let factors = Shared::new(factors).expect("memory");
    let tunables = &server.parameters.values.policies.fairshare;
    let update = Update::new(server.parameters.kept.fairshare.weights.clone(), tunables);
    let update = update.with_factors(Some(factors));
    let datagrams = exchange.encode(state.now);
    server.inform(state, &AnyUpdate::Fairshare(update));
    datagrams
}
