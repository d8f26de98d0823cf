// SPDX-License-Identifier: GPL-2.0-only

//! Random sequences of more than 10^6 requests, with checks of the invariants.

use crate::sched::qbm::allocator::{accounts::ClassTally, *};
use crate::sched::rng::Rng;
use BandwidthClass::{FairShare, FirstCome, LowShare, Mover};

/// Asserts the invariants between two requests.
pub(super) fn check(allocator: &Allocator) {
    let parameters = allocator.parameters;
    let mut sum = 0;
    let mut unmet_below = false;
    for class in BandwidthClass::ALL {
        let tally = *allocator.tally(class);
        let mut want = ClassTally {
            reserve: tally.reserve,
            lent: tally.lent,
            ..ClassTally::default()
        };
        for client in allocator.members(class) {
            want.clients += 1;
            want.empty += u64::from(client.is_empty());
            want.allocated += client.allocation;
            want.goals += client.goal;
            want.missing += client.missing();
            want.extra += client.extra();
            want.wanting += u64::from(client.wants());
            check_client(client, &parameters);
        }
        assert_eq!(tally, want, "sums of {class:?}");
        sum += tally.allocated + tally.reserve;
        check_reserve(&tally, parameters.reserves[class.index()]);
        unmet_below |= tally.missing > 0 && class != FirstCome;
    }
    // Bandwidth is neither created nor lost.
    assert_eq!(sum + allocator.pool, parameters.capacity + allocator.over);
    assert!(allocator.over == 0 || allocator.pool == 0);
    assert_eq!(
        allocator.all_goals_met(),
        !unmet_below && allocator.over == 0
    );
    check_unmet(allocator);
    check_left(allocator);
}

/// Asserts that the allocation is at least the floor and at most the maximum.
fn check_client(client: &AllocatorClient, parameters: &AllocatorParameters) {
    let most = client.terms.max.min(RATE_MAX).max(parameters.floor);
    assert!(client.allocation >= parameters.floor, "{client:?}");
    assert!(
        client.allocation <= client.cap && client.cap <= most,
        "{client:?}"
    );
    assert!(parameters.floor <= client.goal && client.goal <= client.cap);
    assert!(client.goal <= client.terms.min.max(parameters.floor));
    assert!(client.wish == 0 || client.wish > client.allocation && client.wish <= client.cap);
    assert!(client.allocation <= client.given());
}

/// Asserts that the reserve is complete, and that the class holds the drawn part.
fn check_reserve(tally: &ClassTally, reserve: u64) {
    assert_eq!(tally.reserve + tally.lent, reserve);
    assert!(tally.allocated >= tally.lent);
}

/// Asserts that no bandwidth is left that an unmet client could get.
fn check_unmet(allocator: &Allocator) {
    if !allocator.all_goals_met() {
        for class in BandwidthClass::ALL {
            assert_eq!(allocator.tally(class).extra, 0, "{class:?} has extra");
        }
    }
    for class in BandwidthClass::ALL {
        let reach = allocator.available_to(class);
        if class == FirstCome {
            let unmet = allocator.members(class).filter(|client| client.is_unmet());
            unmet.for_each(|client| assert!(client.missing() > reach, "{client:?} {reach}"));
        } else if allocator.tally(class).missing > 0 {
            assert_eq!(reach, 0, "{class:?}");
            check_shares(allocator, class);
        }
    }
}

/// Asserts that a class with unmet clients shares in proportion to goals.
fn check_shares(allocator: &Allocator, class: BandwidthClass) {
    let floor = allocator.parameters.floor;
    let above = || {
        allocator
            .members(class)
            .filter(|client| client.allocation > floor)
    };
    let Some(first) = above().next() else {
        return;
    };
    // allocation / goal is equal for all clients above the floor, to a few bytes.
    for client in above() {
        let a = u128::from(client.allocation) * u128::from(first.goal);
        let b = u128::from(first.allocation) * u128::from(client.goal);
        let slack = 4 * u128::from(first.goal.max(client.goal));
        assert!(a.abs_diff(b) <= slack, "{client:?} {first:?}");
    }
    // Clients at the floor would get less in proportion.
    for client in allocator
        .members(class)
        .filter(|client| client.allocation == floor)
    {
        let share = u128::from(first.allocation) * u128::from(client.goal);
        let least = u128::from(floor + 4) * u128::from(first.goal);
        assert!(
            share <= least + 4 * u128::from(client.goal),
            "{client:?} {first:?}"
        );
    }
}

/// Asserts that the remaining bandwidth is with the movers, or below the grant threshold.
fn check_left(allocator: &Allocator) {
    if !allocator.all_goals_met() {
        return;
    }
    let free = allocator.pool + allocator.tally(Mover).reserve;
    for client in allocator.members(Mover) {
        assert!(
            free == 0 || client.allocation == client.cap,
            "{client:?} {free}"
        );
    }
    for class in [FirstCome, FairShare, LowShare] {
        let tally = allocator.tally(class);
        let mut members = allocator.members(class);
        if members.any(|client| client.wants() && !client.is_unmet()) {
            assert!(allocator.pool < allocator.parameters.grant.max(1));
            assert_eq!(tally.reserve, 0);
        }
    }
}

/// Parameters of a random sequence.
#[derive(Clone, Copy, Debug)]
struct Case {
    seed: u64,
    steps: u32,
    clients: usize,
    /// Divisor: the highest rate of terms is the capacity divided by this.
    part: u64,
    /// True if classes have reserves.
    reserves: bool,
    /// Classes of the clients.
    classes: &'static [BandwidthClass],
    /// Number of steps between two checks.
    every: u32,
}

struct Run {
    rng: Rng,
    case: Case,
    allocator: Allocator,
    ids: Vec<ClientId>,
}

impl Run {
    fn new(case: Case) -> Self {
        let mut rng = Rng::new(case.seed);
        let parameters = Self::parameters(&mut rng, case);
        Self {
            rng,
            case,
            allocator: Allocator::new(parameters),
            ids: Vec::new(),
        }
    }

    fn parameters(rng: &mut Rng, case: Case) -> AllocatorParameters {
        // Rates of up to terabytes/s.
        let capacity = match case.seed % 3 {
            0 => (1 << 20) + rng.below(1 << 30),
            1 => (1 << 20) + rng.below(1 << 43),
            _ => 1 << (30 + rng.below(14)),
        };
        let mut reserve = || match case.reserves && rng.below(2) == 0 {
            true => rng.below(capacity / 3),
            false => 0,
        };
        AllocatorParameters {
            capacity,
            reserves: [reserve(), reserve(), reserve(), reserve()],
            floor: 1 << rng.below(17),
            grant: 1 << rng.below(22),
        }
        .bounded()
    }

    fn terms(&mut self) -> Entitlement {
        let most = self.allocator.parameters().capacity / self.case.part + 1;
        let classes = self.case.classes;
        // Powers of two, because 64-bit products of them would wrap to small values.
        let min = match self.case.seed % 3 {
            2 => (1 << self.rng.below(44)).min(most),
            _ => self.rng.below(most),
        };
        Entitlement {
            class: classes[self.rng.below(classes.len() as u64) as usize],
            min,
            max: min + self.rng.below(most) * self.rng.below(3),
        }
    }

    fn any(&mut self) -> ClientId {
        self.ids[self.rng.below(self.ids.len() as u64) as usize]
    }

    /// Registers and removes several clients before one settle.
    fn change_several(&mut self) {
        for _ in 0..self.rng.below(5) {
            if self.rng.below(2) == 0 && self.ids.len() < self.case.clients {
                let terms = self.terms();
                self.ids.push(self.allocator.enter(terms).unwrap());
            } else if !self.ids.is_empty() {
                let id = self.any();
                self.ids.retain(|other| *other != id);
                self.allocator.withdraw(id);
            }
        }
        self.allocator.apply_rules();
    }

    /// Performs one random request.
    fn step(&mut self) {
        let dice = self.rng.below(1000);
        if dice < 20 {
            return self.change_several();
        }
        if self.ids.is_empty() || (dice < 140 && self.ids.len() < self.case.clients) {
            let terms = self.terms();
            self.first_come_keeps(None, terms.class, |run| {
                let id = run.allocator.register(terms).unwrap();
                run.ids.push(id);
            });
            return;
        }
        let id = self.any();
        let class = self.allocator.client(id).unwrap().terms.class;
        let allocation = self.allocator.allocation(id);
        match dice {
            0..200 => self.oldest_first(|run| {
                run.ids.retain(|other| *other != id);
                run.allocator.leave(id);
                assert_eq!(run.allocator.allocation(id), 0);
            }),
            200..450 => self.first_come_keeps(Some(id), class, |run| {
                run.allocator.restore(id);
                assert_eq!(run.allocator.given(id), run.allocator.allocation(id));
            }),
            450..700 => {
                let by = match self.rng.below(3) {
                    0 => allocation / 10 * 3,
                    1 => self.rng.below(allocation + 1),
                    _ => self.rng.below(self.allocator.parameters().capacity),
                };
                self.first_come_keeps(Some(id), class, |run| {
                    let answer = run.allocator.increase(id, by);
                    run.check_increase(id, allocation, by, answer);
                });
            }
            700..970 => {
                let by = match self.rng.below(3) {
                    0 => allocation / 10,
                    _ => self.rng.below(allocation + 1),
                };
                self.oldest_first(|run| {
                    run.allocator.decrease(id, by);
                    let now = run.allocator.allocation(id);
                    assert!(now <= allocation || class == Mover);
                });
            }
            970..980 => self.reallocate(),
            980..990 => {
                let terms = self.terms();
                self.allocator.set_terms(id, terms);
            }
            _ => {
                let mut parameters = Self::parameters(&mut self.rng, self.case);
                if self.rng.below(2) == 0 {
                    parameters.floor = self.allocator.parameters().floor;
                }
                self.allocator.set_parameters(parameters);
            }
        }
    }

    fn check_increase(
        &self,
        id: ClientId,
        before: u64,
        by: u64,
        answer: Result<Increase, NoBandwidth>,
    ) {
        let client = self.allocator.client(id).unwrap();
        let now = client.allocation;
        let max = client.terms.max.max(client.goal);
        match answer {
            Ok(Increase::Whole(got)) => {
                let wish = (before + by).min(max);
                // The result is larger if the client requested more before, or is a mover.
                assert!(got == now && got >= wish);
            }
            Ok(Increase::Partly(got)) => assert!(got == now && before < got && got < before + by),
            Err(NoBandwidth) => assert!(now <= before && client.wants()),
        }
    }

    /// Returns the first come clients except `id`.
    fn first_come(&self, id: Option<ClientId>) -> Vec<(ClientId, AllocatorClient)> {
        let clients = self.allocator.clients();
        clients
            .filter(|(other, client)| client.terms.class == FirstCome && Some(*other) != id)
            .map(|(other, client)| (other, *client))
            .collect()
    }

    /// Runs `step`, which releases bandwidth, and asserts the order of first come clients. Older
    /// clients that remain unmet must be missing more than a younger client whose goal was met.
    fn oldest_first(&mut self, step: impl FnOnce(&mut Self)) {
        let before = self.first_come(None);
        step(self);
        let waiting = || before.iter().filter(|(_, client)| client.is_unmet());
        let served = |(id, before): &&(ClientId, AllocatorClient)| {
            let now = self.allocator.client(*id);
            now.is_some_and(|now| !now.is_unmet() && now.goal == before.goal)
        };
        for (_, young) in waiting().filter(served) {
            for (id, old) in waiting().filter(|old| old.1.since < young.since) {
                let ok = !self.allocator.is_unmet(*id) || old.missing() > young.missing();
                assert!(ok, "{young:?} before {old:?}");
            }
        }
    }

    /// Redistributes everything after a minimal change, and asserts that no client loses bandwidth
    /// below its goal.
    fn reallocate(&mut self) {
        let before = self.first_come(None);
        let was_content = self.allocator.all_goals_met();
        let mut parameters = *self.allocator.parameters();
        parameters.grant ^= 1;
        self.allocator.set_parameters(parameters);
        for (id, before) in before {
            let now = self.allocator.allocation(id);
            assert!(before.is_unmet() || now >= before.goal, "{before:?} {now}");
        }
        assert!(!was_content || self.allocator.all_goals_met());
    }

    /// Runs `step`, a request of client `id` of `class`; `None` for a new client. Asserts that no
    /// other first come client loses bandwidth below its goal.
    fn first_come_keeps(
        &mut self,
        id: Option<ClientId>,
        class: BandwidthClass,
        step: impl FnOnce(&mut Self),
    ) {
        let before = match class {
            FirstCome => self.first_come(id),
            _ => Vec::new(),
        };
        step(self);
        for (other, before) in before {
            let now = self.allocator.allocation(other);
            assert!(
                now >= before.allocation.min(before.goal),
                "{before:?} {now}"
            );
        }
    }
}

/// Runs a random sequence.
fn run(case: Case) {
    let mut run = Run::new(case);
    // Start with nearly the maximum number of clients.
    while run.ids.len() + run.ids.len() / 50 < case.clients {
        let terms = run.terms();
        run.ids.push(run.allocator.register(terms).unwrap());
    }
    for step in 0..case.steps {
        run.step();
        if step % case.every == 0 {
            check(&run.allocator);
        }
    }
    check(&run.allocator);
    // All bandwidth is returned.
    for id in std::mem::take(&mut run.ids) {
        run.allocator.leave(id);
    }
    check(&run.allocator);
    let parameters = *run.allocator.parameters();
    assert_eq!(run.allocator.oversubscribed(), 0);
    for class in BandwidthClass::ALL {
        let reserve = parameters.reserves[class.index()];
        assert_eq!(run.allocator.reserve_left(class), reserve);
    }
    let kept: u64 = parameters.reserves.iter().sum();
    assert_eq!(run.allocator.free(), parameters.capacity - kept);
}

/// Many requests of few clients, to reach all corner cases of the rules.
const FEW: Case = Case {
    seed: 0,
    steps: 15_000,
    clients: 8,
    part: 2,
    reserves: false,
    classes: &BandwidthClass::ALL,
    every: 1,
};

fn of_few_clients(reserves: bool) {
    for n in 0..30 {
        let (seed, clients) = (n + 100 * u64::from(reserves), 2 + n as usize % 11);
        let part = 1 + n % 4;
        run(Case {
            seed,
            clients,
            part,
            reserves,
            ..FEW
        });
    }
}

#[test]
fn random_histories_of_few_clients() {
    of_few_clients(false);
}

#[test]
fn random_histories_of_few_clients_with_reserves() {
    of_few_clients(true);
}

/// Runs each pair of classes.
#[test]
fn random_histories_of_two_classes() {
    for (seed, classes) in (1000..).zip([
        &[FirstCome, FairShare],
        &[FirstCome, LowShare],
        &[FirstCome, Mover],
        &[FairShare, LowShare],
        &[FairShare, Mover],
        &[LowShare, Mover],
    ]) {
        let reserves = seed % 2 == 0;
        run(Case {
            seed,
            reserves,
            classes,
            ..FEW
        });
    }
}

#[test]
fn random_histories_of_a_thousand_clients() {
    for (seed, part) in (2000..).zip([1, 10, 300, 2000]) {
        run(Case {
            seed,
            steps: 4_000,
            clients: 1000,
            part,
            reserves: seed % 2 == 0,
            every: 16,
            ..FEW
        });
    }
}
