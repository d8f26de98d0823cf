// SPDX-License-Identifier: GPL-2.0-only

//! Scripts for the tests of the allocator.

use super::*;

mod random;
mod rules;

/// Bytes/s per MB/s.
const MB: u64 = 1_000_000;
/// Floor, bytes/s.
const FLOOR: u64 = 32 << 10;
/// Grant threshold, bytes/s.
const GRANT: u64 = 256 << 10;

/// Creates the parameters of a group with `capacity` and `reserves`, MB/s.
fn parameters(capacity: u64, reserves: [u64; CLASSES]) -> AllocatorParameters {
    AllocatorParameters {
        capacity: capacity * MB,
        reserves: reserves.map(|reserve| reserve * MB),
        floor: FLOOR,
        grant: GRANT,
    }
}

fn entitlement(class: BandwidthClass, min: u64, max: u64) -> Entitlement {
    Entitlement { class, min, max }
}

/// Parses sums of amounts, such as `400+1g-1f`, as bytes/s. The units are MB/s, `f` for the floor,
/// `g` for the grant threshold, and `b` for bytes/s.
fn amount(text: &str) -> u64 {
    let one = |text: &str| {
        let units = [("f", FLOOR), ("g", GRANT), ("b", 1), ("", MB)];
        let found = units
            .iter()
            .find_map(|(name, unit)| Some((text.strip_suffix(name)?, unit)));
        let (number, unit) = found.unwrap();
        number.parse::<u64>().unwrap() * unit
    };
    let sum = |text: &str| text.split('+').map(one).sum::<u64>();
    let (more, less) = text.split_once('-').unwrap_or((text, "0"));
    sum(more) - sum(less)
}

/// Group of 1000 MB/s with named clients.
///
/// | step | |
/// |---|---|
/// | `group CAPACITY [CLASS=RESERVE]…` | sets the parameters |
/// | `CLASS NAME MIN[/MAX]` | registers a client; the default of MAX is 1000 |
/// | `NAME CLASS MIN[/MAX]` | sets the terms |
/// | `NAME +BY whole`, `partly` or `none` | requests an increase, with this answer |
/// | `NAME -BY`, `NAME restore`, `NAME leave` | decreases, restores, leaves |
///
/// | state | |
/// |---|---|
/// | `NAME=AMOUNT`, `NAME==AMOUNT` | allocation, rounded to MB/s or exact |
/// | `NAME.given=AMOUNT` | given bandwidth |
/// | `CLASS=AMOUNT`, `free=AMOUNT`, `over=AMOUNT` | rest of the reserve, pool, oversubscription |
/// | `unmet=NAMES`, `wants=NAMES` | all clients of this state, separated by commas |
/// | `changed=NAME:MB,…` | allocations that changed since the last such check |
struct Scene {
    allocator: Allocator,
    names: Vec<(String, ClientId)>,
}

impl Scene {
    /// Performs the `steps`, separated by commas.
    fn of(steps: &str) -> Self {
        let mut scene = Self {
            allocator: Allocator::new(parameters(1000, [0; CLASSES])),
            names: Vec::new(),
        };
        steps.split(',').for_each(|step| scene.step(step));
        scene
    }

    fn id(&self, name: &str) -> ClientId {
        let found = self.names.iter().rev().find(|(known, _)| known == name);
        found.unwrap_or_else(|| panic!("no client {name}")).1
    }

    fn step(&mut self, step: &str) {
        let words: Vec<&str> = step.split_whitespace().collect();
        let terms = |class, rates: &str| {
            let (min, max) = rates.split_once('/').unwrap_or((rates, "1000"));
            entitlement(class, amount(min), amount(max))
        };
        let allocator = &mut self.allocator;
        match *words {
            [] => {}
            ["group", capacity, ref reserves @ ..] => {
                let mut new = parameters(0, [0; CLASSES]);
                new.capacity = amount(capacity);
                for reserve in reserves {
                    let (class, reserve) = reserve.split_once('=').unwrap();
                    new.reserves[BandwidthClass::parse(class).unwrap().index()] = amount(reserve);
                }
                allocator.set_parameters(new);
            }
            [name, "leave"] => self.allocator.leave(self.id(name)),
            [name, "restore"] => self.allocator.restore(self.id(name)),
            [name, by] => self.allocator.decrease(self.id(name), amount(&by[1..])),
            [class, name, rates] if BandwidthClass::parse(class).is_some() => {
                let class = BandwidthClass::parse(class).unwrap();
                let id = allocator.register(terms(class, rates)).unwrap();
                self.names.push((name.into(), id));
            }
            [name, by, answer] if by.starts_with('+') => {
                let id = self.id(name);
                let got = self.allocator.increase(id, amount(&by[1..]));
                let has = self.allocator.allocation(id);
                let want = match answer {
                    "whole" => Ok(Increase::Whole(has)),
                    "partly" => Ok(Increase::Partly(has)),
                    "none" => Err(NoBandwidth),
                    _ => panic!("unknown answer {answer}"),
                };
                assert_eq!(got, want, "{step}");
            }
            [name, class, rates] => {
                let class = BandwidthClass::parse(class).unwrap();
                self.allocator.set_terms(self.id(name), terms(class, rates));
            }
            _ => panic!("unknown step {step}"),
        }
        random::check(&self.allocator);
    }

    /// Returns the names of the clients for which `is` holds.
    fn all(&self, is: fn(&Allocator, ClientId) -> bool) -> String {
        let names = self.names.iter().filter(|(_, id)| is(&self.allocator, *id));
        let names: Vec<&str> = names.map(|(name, _)| name.as_str()).collect();
        names.join(",")
    }

    /// Returns the allocations that changed since the last call.
    fn changed(&mut self) -> String {
        let (mut changed, names) = (Vec::new(), &self.names);
        self.allocator.drain_changed(|id, rate| {
            let (name, _) = names.iter().find(|known| known.1 == id).unwrap();
            changed.push(format!("{name}:{}", rate / MB));
        });
        changed.join(",")
    }

    /// Checks the `states`, separated by blanks.
    fn check(&mut self, states: &str) {
        let states = states.split_whitespace();
        states.for_each(|state| self.check_one(state));
    }

    fn check_one(&mut self, state: &str) {
        let (key, want) = state.split_once('=').unwrap();
        let text = match key {
            "unmet" => Some(self.all(Allocator::is_unmet)),
            "wants" => Some(self.all(Allocator::wants)),
            "changed" => Some(self.changed()),
            _ => None,
        };
        if let Some(have) = text {
            return assert_eq!(have, want, "{key}");
        }
        let allocator = &self.allocator;
        let have = match (key, BandwidthClass::parse(key)) {
            ("free", _) => allocator.free(),
            ("over", _) => allocator.oversubscribed(),
            (_, Some(class)) => allocator.reserve_left(class),
            _ => match key.strip_suffix(".given") {
                Some(name) => allocator.given(self.id(name)),
                None if want.starts_with('=') => allocator.allocation(self.id(key)),
                None => (allocator.allocation(self.id(key)) + MB / 2) / MB * MB,
            },
        };
        assert_eq!(have, amount(want.trim_start_matches('=')), "{key}");
    }
}

/// Plays cases ([`crate::script`]) of lines `STEP, STEP, … | STATE STATE …`.
fn play(text: &str) {
    crate::script::play(
        text,
        || Scene::of(""),
        |scene, line| {
            let (steps, states) = line.split_once('|').unwrap_or((line, ""));
            steps.split(',').for_each(|step| scene.step(step));
            scene.check(states);
        },
    );
}
