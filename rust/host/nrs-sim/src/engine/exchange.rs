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
    queue::{Event, Queue},
    server::{Scene, Server},
    START,
};
use crate::{
    outcome,
    scenario::{Cut, Exchange as Written, Topology},
};
use nrs_agent::{Exchange, Relay, Terms};
use nrs_sched::{
    mem::Shared,
    policy::{
        fairshare::{
            factors::{AccountBuf, Factors},
            params::CrossCpt,
            Update,
        },
        AnyUpdate,
    },
    rng::{avalanche, Rng},
};

/// A datagram that somebody has yet to hear.
#[derive(Default)]
struct Datagram {
    bytes: Vec<u8>,
    /// How many have yet to hear it.
    uses: u32,
}

/// A datagram on its way.
#[derive(Clone, Copy, Default)]
struct Mail {
    to: u32,
    datagram: u32,
}

/// Speakers, the relay, and what is under way.
pub struct Talk {
    delta: u64,
    latency: u64,
    jitter: u64,
    /// In parts of 2^32.
    loss: u64,
    cuts: Vec<(u32, u64, u64)>,
    /// By server; `None`: it takes no part.
    speakers: Vec<Option<Exchange>>,
    relay: Option<Relay>,
    datagrams: Vec<Datagram>,
    free_datagrams: Vec<u32>,
    mails: Vec<Mail>,
    free_mails: Vec<u32>,
    accounts: AccountBuf,
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
        let speaker = |(policy, number): (&String, u64)| {
            let fair = policy.split_whitespace().next() == Some("fairshare");
            fair.then(|| Exchange::new(number, 1, terms(policy)))
        };
        let speakers: Vec<_> = policies.iter().zip(1u64..).map(speaker).collect();
        let first = speakers.iter().position(Option::is_some);
        let relay = match (
            written.topology,
            first.and_then(|first| policies.get(first)),
        ) {
            (Topology::Relay, Some(policy)) => {
                let number = names.len() as u64 + 1;
                Some(Relay::new(number, 1, terms(policy)))
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
            datagrams: Vec::new(),
            free_datagrams: Vec::new(),
            mails: Vec::new(),
            free_mails: Vec::new(),
            accounts: AccountBuf::new().expect("memory"),
            rng: Rng::new(seed),
            counts: outcome::Exchange::default(),
        })
    }

    /// Each speaker's first time is drawn, so that they do not all speak at once.
    pub fn begin(&mut self, queue: &mut Queue) {
        let count = self.speakers.len() as u32;
        for speaker in 0..count + u32::from(self.relay.is_some()) {
            if speaker == count || self.speakers[speaker as usize].is_some() {
                let at = START + self.rng.below(self.delta);
                queue.push(at, Event::Tell(speaker));
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
    pub fn tell(&mut self, speaker: u32, server: Option<&mut Server>, scene: &mut Scene<'_>) {
        let now = scene.now;
        self.counts.steps += 1;
        scene.queue.push(now + self.delta, Event::Tell(speaker));
        let Some(server) = server else {
            self.relay(speaker, scene);
            return;
        };
        let Some(Some(exchange)) = self.speakers.get_mut(speaker as usize) else {
            return;
        };
        for lane in server.lanes() {
            let Some(state) = lane.part().fairshare() else {
                continue;
            };
            let mut from = Some(0);
            while let Some(slot) = from {
                self.accounts.clear();
                from = state.accounts(slot, &mut self.accounts);
                for account in self.accounts.iter() {
                    exchange.note(account);
                }
            }
        }
        exchange.step(now);
        let factors = Factors::new(exchange.factors()).expect("memory");
        let factors = Shared::new(factors).expect("memory");
        let parameters = server.parameters.as_ref().expect("a policy shares fairly");
        let cross_cpt = parameters.values.policies.fairshare.cross_cpt == CrossCpt::On;
        let update = Update::new(parameters.kept.fairshare.weights.clone(), cross_cpt);
        let update = update.with_factors(Some(factors));
        let said = exchange.say(now);
        server.inform(scene, &AnyUpdate::Fairshare(update));
        let count = self.speakers.len() as u32;
        for bytes in said {
            match self.relay {
                Some(_) => self.send(scene, speaker, &bytes, std::iter::once(count)),
                None => {
                    let others = (0..count).filter(|to| *to != speaker);
                    self.send(scene, speaker, &bytes, others);
                }
            }
        }
    }

    /// The relay's time has come.
    fn relay(&mut self, speaker: u32, scene: &mut Scene<'_>) {
        let now = scene.now;
        let Some(mut relay) = self.relay.take() else {
            return;
        };
        relay.step(now);
        let servers: Vec<u64> = relay.servers(now).collect();
        for server in servers {
            let to = server as u32 - 1;
            for bytes in relay.say(server, now) {
                self.send(scene, speaker, &bytes, std::iter::once(to));
            }
        }
        self.relay = Some(relay);
    }

    /// Sends a datagram.
    fn send(
        &mut self,
        scene: &mut Scene<'_>,
        from: u32,
        bytes: &[u8],
        to: impl Iterator<Item = u32>,
    ) {
        let now = scene.now;
        let slot = self.free_datagrams.pop().unwrap_or_else(|| {
            self.datagrams.push(Datagram::default());
            self.datagrams.len() as u32 - 1
        });
        let cut = self.is_cut(from, now);
        let mut uses = 0;
        for to in to {
            if self.speakers.get(to as usize).is_some_and(Option::is_none) {
                continue;
            }
            self.counts.messages += 1;
            self.counts.bytes += bytes.len() as u64;
            let lost = self.loss > 0 && u64::from(self.rng.next_u32()) < self.loss;
            if cut || lost {
                self.counts.lost += 1;
                continue;
            }
            let delay = match self.jitter {
                0 => self.latency,
                jitter => self.latency + self.rng.below(jitter + 1),
            };
            let mail = Mail { to, datagram: slot };
            let mail_slot = match self.free_mails.pop() {
                Some(free) => {
                    self.mails[free as usize] = mail;
                    free
                }
                None => {
                    self.mails.push(mail);
                    self.mails.len() as u32 - 1
                }
            };
            uses += 1;
            scene.queue.push(now + delay, Event::Hear(mail_slot));
        }
        if uses == 0 {
            self.free_datagrams.push(slot);
            return;
        }
        let datagram = &mut self.datagrams[slot as usize];
        datagram.uses = uses;
        datagram.bytes.clear();
        datagram.bytes.extend_from_slice(bytes);
    }

    /// Mail comes to where it goes.
    pub fn hear(&mut self, slot: u32, now: u64) {
        let Mail { to, datagram } = self.mails[slot as usize];
        self.free_mails.push(slot);
        let known = &mut self.datagrams[datagram as usize];
        known.uses -= 1;
        if known.uses == 0 {
            self.free_datagrams.push(datagram);
        }
        if self.is_cut(to, now) {
            self.counts.lost += 1;
            return;
        }
        let bytes = &self.datagrams[datagram as usize].bytes;
        let heard = match self.speakers.get_mut(to as usize) {
            Some(Some(exchange)) => exchange.hear(bytes, now),
            Some(None) => return,
            None => match &mut self.relay {
                Some(relay) => relay.hear(bytes, now),
                None => return,
            },
        };
        match heard {
            Ok(()) => self.counts.heard += 1,
            Err(_) => self.counts.refused += 1,
        }
    }
}
