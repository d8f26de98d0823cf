// SPDX-License-Identifier: GPL-2.0-only

//! What servers tell each other, and how it gets there.
//!
//! # Vocabulary
//!
//! - *Speaker*: a server that takes part: it shares fairly, and has a rule of its own
//!   ([`nrs_agent::Exchange`]).
//! - *Datagram*: bytes that one speaker sent; *mail*: a datagram on its way to one of those who hear it.
//! - *Relay*: hears everybody and tells each server the sum of the others.
//!
//! ```text
//!   every delta, each speaker at its own time
//!   accounts of all parts ─▶ note, step ─┬─▶ factors ─▶ parts
//!                                        └─▶ say ─▶ lost, cut, or mail ─▶ hear
//! ```

use super::{
    network::delay,
    queue::{Event, Queue, Scene, Slab},
    server::Server,
    START,
};
use crate::{
    outcome,
    scenario::{Cut, Exchange as Written, Topology},
};
use nrs_agent::{Exchange, Relay, Terms};
use nrs_sched::{
    agent::{Pairs, ReportBuf},
    mem::Shared,
    policy::{
        fairshare::{factors::Factors, Update},
        AnyUpdate, Part as _,
    },
    rng::{avalanche, Rng},
};
use std::{ops::Range, rc::Rc};

/// Somebody who hears datagrams.
enum Speaker {
    /// A server that takes no part.
    Silent,
    /// A server that shares fairly.
    Server(Exchange),
    /// The relay; behind all servers.
    Relay(Relay),
}

/// Speakers, and what is under way.
pub struct Talk {
    delta: u64,
    latency: u64,
    jitter: u64,
    /// In parts of 2^32.
    loss: u64,
    cuts: Vec<(u32, u64, u64)>,
    /// By server, and behind these the relay.
    speakers: Vec<Speaker>,
    /// Index of the relay.
    relay: Option<u32>,
    /// Datagrams on their way: from, to, and the bytes.
    mails: Slab<(u32, u32, Rc<[u8]>)>,
    reports: ReportBuf,
    rng: Rng,
    counts: outcome::Exchange,
}

/// What servers with the same policy line have in common.
fn realm(policy: &str) -> u64 {
    let mix = |realm, byte| avalanche(realm ^ u64::from(byte));
    policy.bytes().fold(1, mix).max(1)
}

impl Talk {
    /// What `written` says, between servers with these `names` and `policies`.
    ///
    /// # Errors
    ///
    /// A cut names a server that is none.
    ///
    /// # Panics
    ///
    /// There is no memory.
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
            servers_max: (names.len() as u32).saturating_add(1),
            ..Terms::default()
        };
        let speaker = |(policy, number): (&String, u64)| match policy.split_whitespace().next()
            == Some("fairshare")
        {
            true => Speaker::Server(Exchange::new(number, 1, terms(policy))),
            false => Speaker::Silent,
        };
        let mut speakers: Vec<_> = policies.iter().zip(1u64..).map(speaker).collect();
        let fair = |speaker: &Speaker| matches!(speaker, Speaker::Server(_));
        let relay = match (written.topology, speakers.iter().position(fair)) {
            (Topology::Relay, Some(first)) => {
                let number = names.len() as u64 + 1;
                let relay = Relay::new(number, 1, terms(&policies[first]));
                speakers.push(Speaker::Relay(relay));
                Some(names.len() as u32)
            }
            _ => None,
        };
        let cut = |cut: &Cut| {
            let found = names.iter().position(|name| *name == cut.server);
            let found = found.ok_or_else(|| format!("exchange: no server `{}`", cut.server))?;
            Ok((found as u32, START + cut.from.0, START + cut.to.0))
        };
        Ok(Self {
            delta: written.delta.0.max(1),
            latency: written.latency.0,
            jitter: written.jitter.0,
            loss: (written.loss.clamp(0.0, 1.0) * (1u64 << 32) as f64) as u64,
            cuts: written.cut.iter().map(cut).collect::<Result<_, String>>()?,
            speakers,
            relay,
            mails: Slab::default(),
            reports: ReportBuf::new().expect("memory"),
            rng: Rng::new(seed),
            counts: outcome::Exchange::default(),
        })
    }

    /// Each speaker's first time is drawn, so that they do not all speak at once.
    pub fn begin(&mut self, queue: &mut Queue) {
        for (number, speaker) in (0..).zip(&self.speakers) {
            if !matches!(speaker, Speaker::Silent) {
                let at = START + self.rng.below(self.delta);
                queue.push(at, Event::Tell(number));
            }
        }
    }

    /// What was said and heard.
    pub fn counts(&self) -> outcome::Exchange {
        self.counts
    }

    /// Whether `speaker` is cut off at `now`.
    fn is_cut(&self, speaker: u32, now: u64) -> bool {
        let cuts = &mut self.cuts.iter();
        cuts.any(|(who, from, to)| *who == speaker && (*from..*to).contains(&now))
    }

    /// The time of `speaker` has come; `server` is its server, if it has one.
    ///
    /// # Panics
    ///
    /// There is no memory.
    pub fn tell(&mut self, speaker: u32, server: Option<&mut Server>, scene: &mut Scene) {
        let now = scene.now;
        self.counts.steps += 1;
        scene.queue.push(now + self.delta, Event::Tell(speaker));
        let servers = self.speakers.len() as u32 - u32::from(self.relay.is_some());
        match (&mut self.speakers[speaker as usize], server) {
            (Speaker::Server(exchange), Some(server)) => {
                let said = share(exchange, &mut self.reports, server, scene);
                let to = match self.relay {
                    Some(relay) => relay..relay + 1,
                    None => 0..servers,
                };
                for bytes in said {
                    self.send(scene, speaker, &bytes, to.clone());
                }
            }
            (Speaker::Relay(relay), _) => {
                relay.step(now);
                let known: Vec<u64> = relay.servers(now).collect();
                let say = |server| (server as u32 - 1, relay.say(server));
                let said: Vec<_> = known.into_iter().map(say).collect();
                for (to, datagrams) in said {
                    for bytes in datagrams {
                        self.send(scene, speaker, &bytes, to..to + 1);
                    }
                }
            }
            _ => {}
        }
    }

    /// Sends a datagram to those of `to` that hear it.
    fn send(&mut self, scene: &mut Scene, from: u32, bytes: &[u8], to: Range<u32>) {
        let now = scene.now;
        let bytes: Rc<[u8]> = bytes.into();
        let cut = self.is_cut(from, now);
        for to in to {
            if to == from || matches!(self.speakers[to as usize], Speaker::Silent) {
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

    /// Mail comes to where it goes.
    pub fn hear(&mut self, slot: u32, now: u64) {
        let (from, to, bytes) = self.mails.remove(slot);
        let from = u64::from(from) + 1;
        if self.is_cut(to, now) {
            self.counts.lost += 1;
            return;
        }
        let heard = match &mut self.speakers[to as usize] {
            Speaker::Server(exchange) => exchange.hear(from, &bytes, now),
            Speaker::Relay(relay) => relay.hear(from, &bytes, now),
            Speaker::Silent => return,
        };
        match heard {
            Ok(()) => self.counts.heard += 1,
            Err(_) => self.counts.refused += 1,
        }
    }
}

/// A step of the rule of `server`: its parts are told factors. The datagrams for the others.
fn share(
    exchange: &mut Exchange,
    reports: &mut ReportBuf,
    server: &mut Server,
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
    let pairs = Pairs::of(exchange.factors()).expect("valid factors");
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
