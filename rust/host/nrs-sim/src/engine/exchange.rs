// SPDX-License-Identifier: GPL-2.0-only

//! Exchange of service accounts between servers.
//!
//! - *Speaker*: a server that takes part, because its policy is fairshare; it runs its own rule
//!   ([`nrs_agent::Exchange`]).
//! - *Datagram*: bytes that one speaker sent; *mail*: a datagram in transit to one receiver.
//!
//! ```text
//!   every delta, each speaker at its own time
//!   accounts of all parts ─▶ note, step ─┬─▶ factors ─▶ parts
//!                                        └─▶ say ─▶ lost, cut, or mail ─▶ hear
//! ```

use super::{
    network::delay,
    queue::{Event, Queue, Scene, Slab, START},
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

/// Speakers and mails in transit.
pub struct Talk {
    delta: u64,
    latency: u64,
    jitter: u64,
    /// Loss rate in units of 2^-32.
    loss: u64,
    cuts: Vec<(u32, u64, u64)>,
    /// Speakers by server; `None` if a server takes no part.
    speakers: Vec<Option<Exchange>>,
    /// Datagrams in transit: sender, receiver and bytes.
    mails: Slab<(u32, u32, Rc<[u8]>)>,
    reports: ReportBuf,
    rng: Rng,
    counts: outcome::ExchangeOutcome,
}

/// Returns the realm: a number that servers with the same policy line share.
fn realm(policy: &str) -> u64 {
    let mix = |realm, byte| avalanche(realm ^ u64::from(byte));
    policy.bytes().fold(1, mix).max(1)
}

impl Talk {
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
        let speaker = |(policy, number): (&String, u64)| {
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
            speakers: policies.iter().zip(1u64..).map(speaker).collect(),
            mails: Slab::default(),
            reports: ReportBuf::new().expect("memory"),
            rng: Rng::new(seed),
            counts: outcome::ExchangeOutcome::default(),
        })
    }

    /// Schedules each speaker's first step at a random time, so that not all speak at once.
    pub fn begin(&mut self, queue: &mut Queue) {
        for (number, speaker) in (0..).zip(&self.speakers) {
            if speaker.is_some() {
                let at = START + self.rng.below(self.delta);
                queue.push(at, Event::Tell(number));
            }
        }
    }

    /// Returns the counts of messages and steps.
    pub fn counts(&self) -> outcome::ExchangeOutcome {
        self.counts
    }

    /// Returns true if `speaker` is cut off at `now`.
    fn is_cut(&self, speaker: u32, now: u64) -> bool {
        let cuts = &mut self.cuts.iter();
        cuts.any(|(who, from, to)| *who == speaker && (*from..*to).contains(&now))
    }

    /// Runs a step of `speaker`, which belongs to `server`, and sends its datagrams.
    ///
    /// # Panics
    ///
    /// Panics if memory is exhausted.
    pub fn tell(&mut self, speaker: u32, server: &mut SimServer, scene: &mut Scene) {
        let now = scene.now;
        self.counts.steps += 1;
        scene.queue.push(now + self.delta, Event::Tell(speaker));
        if let Some(exchange) = &mut self.speakers[speaker as usize] {
            for bytes in share(exchange, &mut self.reports, server, scene) {
                self.send(scene, speaker, &bytes);
            }
        }
    }

    /// Sends a datagram to all other speakers.
    fn send(&mut self, scene: &mut Scene, from: u32, bytes: &[u8]) {
        let now = scene.now;
        let bytes: Rc<[u8]> = bytes.into();
        let cut = self.is_cut(from, now);
        for to in 0..self.speakers.len() as u32 {
            if to == from || self.speakers[to as usize].is_none() {
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
            let mail = self.mails.insert((from, to, Rc::clone(&bytes)));
            scene.queue.push(now + delay, Event::Hear(mail));
        }
    }

    /// Delivers a mail.
    pub fn hear(&mut self, slot: u32, now: u64) {
        let (from, to, bytes) = self.mails.remove(slot);
        let from = u64::from(from) + 1;
        if self.is_cut(to, now) {
            self.counts.lost += 1;
            return;
        }
        let Some(exchange) = &mut self.speakers[to as usize] else {
            return;
        };
        match exchange.hear(from, &bytes, now) {
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
    scene: &mut Scene,
) -> Vec<Vec<u8>> {
    for lane in server.lanes() {
        let Some(state) = lane.part().fairshare() else {
            continue;
        };
        let mut from = Some(0);
        while let Some(slot) = from {
            reports.clear();
            from = state.reports(slot, reports);
            for report in reports.iter() {
                exchange.note(&report.account);
            }
        }
    }
    exchange.step(scene.now);
    let pairs = FactorPairs::of(exchange.factors()).expect("valid factors");
    let factors = Factors::new(pairs, None).expect("memory");
    let factors = Shared::new(factors).expect("memory");
    let parameters = server.parameters.as_ref().expect("a policy shares fairly");
    let tunables = &parameters.values.policies.fairshare;
    let update = Update::new(parameters.kept.fairshare.weights.clone(), tunables);
    let update = update.with_factors(Some(factors));
    let said = exchange.say(scene.now);
    server.inform(scene, &AnyUpdate::Fairshare(update));
    said
}
