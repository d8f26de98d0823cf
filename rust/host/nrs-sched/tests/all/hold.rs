// SPDX-License-Identifier: GPL-2.0-only

//! Latency of clients that send one request at a time beside clients that keep many queued; shares
//! and throughput with slots kept free, or as many as a latency takes.

use nrs_sched::{
    arena::{attrs, fair_update, reserve, Request},
    attr::{Attrs, Id},
    knee::{DeviceLoad, Knee, Totals, SAMPLE_MIN},
    policy::{
        fairshare::{
            params::{HoldPermille, HoldSlots, HoldUs, LatencyUs},
            Counts,
        },
        Config, Kind, Tunables,
    },
    rng::Rng,
    server::{Relate, Server},
    sim::{assert_shares, SECOND},
    statistics::Stats as _,
};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// Client that keeps `depth` requests outstanding and sends the next one `pause` after an end.
#[derive(Clone)]
struct Client {
    attrs: Attrs,
    depth: u32,
    pages: u32,
    pause: u64,
    /// Number of requests after which the client pauses for 100 ms; 0: it never does.
    bluff: usize,
    /// Number of times as long as others that the device takes for each request.
    times: u64,
}

impl Client {
    fn small(uid: u32) -> Self {
        Self {
            attrs: attrs(uid),
            depth: 1,
            pages: 1,
            pause: 200 * US,
            bluff: 0,
            times: 1,
        }
    }

    fn greedy(uid: u32) -> Self {
        Self {
            depth: 32,
            pages: 16,
            pause: 20 * US,
            ..Self::small(uid)
        }
    }

    fn pausing(self, pause: u64) -> Self {
        Self { pause, ..self }
    }

    fn bluffing(self, bluff: usize) -> Self {
        Self { bluff, ..self }
    }

    fn of_group(mut self, gid: u32) -> Self {
        self.attrs.gid = Id::new(gid);
        self
    }
}

/// Run of clients on a device that serves each request in about `service`.
#[derive(Clone, Copy)]
struct Run {
    mode: &'static str,
    weights: &'static str,
    limits: &'static str,
    permille: u32,
    hold_us: u32,
    hold: HoldSlots,
    latency_us: u32,
    slots: u32,
    /// True if the number of slots is searched for.
    auto: bool,
    /// Number of requests that the device serves at the same time; the others wait in it.
    places: usize,
    service: u64,
    /// Largest deviation of the times of requests and of the starts of clients, percent.
    spread: u64,
    seconds: u64,
    /// True if the parameters change each 5 ms.
    changes: bool,
}

impl Run {
    /// Creates a run on a device with eight places that takes 8 ms for each request, and on which
    /// slots are kept free for `permille` thousandths of the time.
    fn with(permille: u32) -> Self {
        Self {
            mode: "uid_fair",
            weights: "",
            limits: "",
            permille,
            hold_us: 2000,
            hold: HoldSlots::One,
            latency_us: 0,
            slots: 8,
            auto: false,
            places: 8,
            service: 8 * MS,
            spread: 5,
            seconds: 20,
            changes: false,
        }
    }

    fn of(self, mode: &'static str) -> Self {
        Self { mode, ..self }
    }

    fn limited(self, limits: &'static str) -> Self {
        Self { limits, ..self }
    }

    /// Returns the latencies of each client without and with slots kept free.
    fn both(&self, clients: &[Client]) -> [Vec<Vec<u64>>; 2] {
        let without = Run {
            permille: 0,
            ..*self
        };
        [without.go(clients), self.go(clients)]
    }

    /// Returns true if all latencies of `clients` are as without slots kept free.
    fn changes_nothing_for(&self, clients: &[Client]) -> bool {
        let [before, after] = self.both(clients);
        before == after
    }

    /// Returns the latencies of each client, ns, in increasing order.
    fn go(&self, clients: &[Client]) -> Vec<Vec<u64>> {
        self.go_and_count(clients).0
    }

    /// Returns the latencies of each client, ns, in increasing order, and the counters.
    fn go_and_count(&self, clients: &[Client]) -> (Vec<Vec<u64>>, Counts) {
        reserve(4096).unwrap();
        let mut tunables = Tunables::default();
        tunables.fairshare.hold_permille = HoldPermille::new(self.permille).unwrap();
        tunables.fairshare.hold_us = HoldUs::new(self.hold_us).unwrap();
        tunables.fairshare.hold = self.hold;
        tunables.fairshare.latency_us = LatencyUs::new(self.latency_us).unwrap();
        let config = Config::parse(Kind::Fairshare, Some(self.mode), &tunables).unwrap();
        let mut server = Server::new(&config, self.slots, 1024, 5).unwrap();
        let (weights, limits) = (self.weights, self.limits);
        server.update(&fair_update(&tunables.fairshare, weights, limits, 1024));
        let mut rng = Rng::new(11);
        let start = server.now;
        let (warm, end) = (start + SECOND, start + self.seconds * SECOND);
        // Times at which a client sends, or with the number of a request, the device ends it.
        let mut events = BinaryHeap::new();
        for (index, client) in clients.iter().enumerate() {
            for _ in 0..client.depth {
                let at = start + rng.below(1 + self.service / 5 * self.spread);
                events.push(Reverse((at, None, index)));
            }
        }
        let (mut next, mut sent) = (0, HashMap::new());
        let mut device = Device::default();
        let (mut knee, mut sampled, mut ended) = (Knee::new(), start, 0);
        let mut latencies = vec![Vec::new(); clients.len()];
        while let Some(Reverse((at, ending, index))) = events.pop() {
            if let Some(timer) = server.next_expiry().filter(|timer| *timer < at) {
                // Requests that begin then may end before this event.
                events.push(Reverse((at, ending, index)));
                server.wait(timer.saturating_sub(server.now));
                device.begin((self, clients), &mut server, &mut events, &sent, &mut rng);
                continue;
            }
            if at > end {
                break;
            }
            if self.changes && at / (5 * MS) != server.now / (5 * MS) {
                let fairshare = &mut tunables.fairshare;
                fairshare.latency_us = LatencyUs::new([0, 400][rng.below(2) as usize]).unwrap();
                (fairshare.hold, fairshare.hold_us) = match rng.below(3) {
                    0 => (HoldSlots::One, HoldUs::new(self.hold_us).unwrap()),
                    1 => (HoldSlots::All, HoldUs::new(50).unwrap()),
                    _ => (HoldSlots::All, HoldUs::new(self.hold_us).unwrap()),
                };
                server.update(&fair_update(&tunables.fairshare, weights, limits, 1024));
            }
            server.wait(at - server.now);
            if self.auto && at > sampled + SAMPLE_MIN {
                sampled = at;
                let full = server.used() + 1 >= knee.slots() - knee.slots() / 8;
                let load = if full {
                    DeviceLoad::Full
                } else {
                    DeviceLoad::Light
                };
                knee.sample(Totals::at(at).plus(ended, ended << 16), load);
                server.set_slots(knee.slots());
            }
            let client = &clients[index];
            if let Some(id) = ending {
                assert!(server.complete(id).is_some());
                device.busy -= 1;
                ended += 1;
                let (_, since) = sent.remove(&id).unwrap();
                if at > warm {
                    latencies[index].push(at - since);
                }
                let pause = match latencies[index].len() + 1 {
                    ended if client.bluff > 0 && ended % client.bluff == 0 => 100 * MS,
                    _ => client.pause / 2 + rng.below(client.pause),
                };
                events.push(Reverse((at + pause, None, index)));
            } else {
                next += 1;
                sent.insert(next, (index, at));
                let request = Request::new(index as u32, next, client.pages, at);
                assert!(server.arrive(request, &client.attrs, Relate::Not, false));
            }
            device.begin((self, clients), &mut server, &mut events, &sent, &mut rng);
        }
        for latencies in &mut latencies {
            latencies.sort_unstable();
        }
        let mut counts = Counts::ZERO;
        let mut sums = [0; Counts::ROWS.len()];
        server.add_counts(&mut sums);
        for (count, sum) in counts.values_mut().zip(sums) {
            *count = sum;
        }
        (latencies, counts)
    }
}

/// Requests at the device of a run.
#[derive(Default)]
struct Device {
    /// Number of requests that are served.
    busy: usize,
    waiting: VecDeque<u64>,
}

impl Device {
    /// Begins the requests that were dispatched, as far as there are places.
    fn begin(
        &mut self,
        (run, clients): (&Run, &[Client]),
        server: &mut Server,
        events: &mut BinaryHeap<Reverse<(u64, Option<u64>, usize)>>,
        sent: &HashMap<u64, (usize, u64)>,
        rng: &mut Rng,
    ) {
        self.waiting.extend(std::mem::take(&mut server.started));
        while self.busy < run.places {
            let Some(id) = self.waiting.pop_front() else {
                break;
            };
            self.busy += 1;
            let spread = run.service / 100 * run.spread;
            let takes = run.service - spread + rng.below(1 + 2 * spread);
            let index = sent[&id].0;
            let ends = server.now + clients[index].times * takes;
            events.push(Reverse((ends, Some(id), index)));
        }
    }
}

/// Returns the latency that all but `one_of` one of the requests stay below, ms.
fn tail(latencies: &[u64], one_of: usize) -> f64 {
    latencies[latencies.len() - 1 - latencies.len() / one_of] as f64 / MS as f64
}

/// Returns the number of requests, each as large as those of a greedy client: all take equal time.
fn total(all: &[Vec<u64>]) -> f64 {
    all.iter().map(Vec::len).sum::<usize>() as f64
}

/// Returns the number of requests of each client.
fn counts(all: &[Vec<u64>]) -> Vec<u64> {
    all.iter().map(|one| one.len() as u64).collect()
}

/// Returns `greedy` clients of user 1, and then `others`.
fn beside(greedy: usize, others: &[Client]) -> Vec<Client> {
    let mut clients = vec![Client::greedy(1); greedy];
    clients.extend_from_slice(others);
    clients
}

/// Runs `clients` without and with slots kept free. Verifies that throughput is lost by no more
/// than the credit, and returns the latency of the last client, ms, that all but one of `one_of`
/// requests stay below.
#[track_caller]
fn compare(run: &Run, clients: &[Client], one_of: usize) -> [f64; 2] {
    let [before, after] = run.both(clients);
    let (lost, most) = (
        1.0 - total(&after) / total(&before),
        f64::from(run.permille) / 1000.0,
    );
    assert!(
        lost < most + 0.002,
        "{lost} of {} requests lost",
        total(&before)
    );
    [&before, &after].map(|all| tail(all.last().unwrap(), one_of))
}

/// Verifies that a client that sends one request at a time beside six greedy ones has nearly the
/// latency of the device, in all positions of a tree, and while others have limits.
#[test]
fn a_small_client_waits_less_than_a_gap() {
    let [own, of_2] = [Client::small(2), Client::small(2).of_group(2)];
    let in_groups = beside(5, &[Client::greedy(3).of_group(3), of_2]);
    let run = Run::with(10);
    for (run, clients) in [
        (Run::with(10), beside(6, &[own.clone()])),
        (run.of("gid_then_uid_fair"), in_groups.clone()),
        (run.of("uid_then_gid_fair"), in_groups),
        (
            run.limited("uid:3:max=20"),
            beside(5, &[Client::greedy(3), own.clone()]),
        ),
        (run.limited("uid:2:min=200"), beside(6, &[own])),
    ] {
        let [before, after] = compare(&run, &clients, 100);
        let what = (run.mode, run.limits);
        assert!(
            before > 9.5 && after < 8.8,
            "{what:?}: {before} and {after} ms"
        );
    }
}

/// Verifies shares of greedy users beside a small one, in each tenth of a percent.
#[test]
fn shares_stay_exact() {
    let greedy = |uid| vec![Client::greedy(uid); 2];
    for weights in ["", "uid:3:2", "uid:3:2 uid:4:5"] {
        let clients = [greedy(3), greedy(4), greedy(5), vec![Client::small(2)]].concat();
        let run = Run {
            weights,
            ..Run::with(10)
        };
        let all = run.go(&clients);
        let served: Vec<u64> = all.chunks(2).take(3).map(|two| total(two) as u64).collect();
        let weight = |uid: &str| if weights.contains(uid) { 1.0 } else { 0.0 };
        let wanted = [1.0 + weight("uid:3:2"), 1.0 + 4.0 * weight("uid:4:5"), 1.0];
        assert_shares(&served, &wanted, 0.3, weights);
    }
}

/// Verifies that pauses of 1 ms cost no more than the credit and still help. A client alone, and
/// all clients with one slot, are served as without slots kept free.
#[test]
fn pauses_decide_about_holds() {
    let run = Run::with(10);
    let [before, after] = compare(&run, &beside(6, &[Client::small(2).pausing(MS)]), 2);
    assert!(before > 8.7 && after < 8.2, "{before} and {after} ms");
    let alone = vec![Client::small(2)];
    assert!(run.changes_nothing_for(&alone));
    let run = Run { slots: 1, ..run };
    assert!(run.changes_nothing_for(&beside(6, &alone)));
}

/// Verifies that no slot is kept free for pauses that are much longer than the time until the next
/// end, and that one is for shorter ones.
#[test]
fn pauses_of_several_gaps_have_no_slot() {
    let run = Run {
        service: 2 * MS,
        ..Run::with(20)
    };
    for (pause, is_held) in [(200 * US, true), (1400 * US, false)] {
        let clients = beside(6, &[Client::small(2).pausing(pause)]);
        let [_, after] = compare(&run, &clients, 100);
        let (_, counts) = run.go_and_count(&clients);
        assert_eq!(after < 2.3, is_held, "{pause} ns: {after} ms");
        // The gap is not known at first.
        assert_eq!(counts.holds_used > 20, is_held, "{pause} ns: {counts:?}");
    }
}

/// Verifies that requests that begin together do not end together for long beside a client that
/// sends few requests at any time.
#[test]
fn waves_are_spread() {
    let rare = beside(6, &[Client::small(2).pausing(10 * MS)]);
    let run = Run {
        spread: 0,
        ..Run::with(10)
    };
    let [before, after] = compare(&run, &rare, 100);
    assert!(before > 15.0 && after < 10.5, "{before} and {after} ms");
    // Not where requests are about as short as the time in which they are handled.
    let run = Run { service: MS, ..run };
    assert!(run.changes_nothing_for(&rare));
}

/// Verifies that many clients that send one request at a time lose no throughput beyond the credit,
/// and have equal shares.
#[test]
fn many_small_clients_share_the_credit() {
    for small in [2, 5, 64] {
        let others: Vec<Client> = (2..2 + small).map(Client::small).collect();
        let clients = beside(4, &others);
        compare(&Run::with(10), &clients, 2);
        let all = Run::with(10).go(&clients);
        let counts = counts(&all[4..]);
        assert_shares(&counts, &vec![1.0; counts.len()], 3.0, "small clients");
    }
}

/// Verifies that a client for which all slots are kept free has the latency of an idle device. On a
/// device that serves requests in less than the longest hold, the client has its share, too, as if
/// its next request was queued; on others this costs only the time of its pauses.
#[test]
fn latency_is_that_of_an_idle_device_if_all_slots_are_held() {
    let (fast, slow) = (300 * US, 8 * MS);
    for (service, weights, share) in [(slow, "", 0.0), (fast, "", 1.0), (fast, "uid:2:4", 4.0)] {
        let run = Run {
            hold: HoldSlots::All,
            service,
            weights,
            ..Run::with(1000)
        };
        let [without, all] = run.both(&beside(6, &[Client::small(2)]));
        let small = all.last().unwrap();
        let latency = tail(small, 100) * MS as f64 / service as f64;
        assert!(latency < 1.06, "{latency} times {service} ns");
        if share > 0.0 {
            // Requests of greedy clients have 16 pages.
            let pages = [small.len() as u64, 16 * total(&all[..6]) as u64];
            assert_shares(&pages, &[share, 1.0], 2.0, weights);
        } else {
            assert!(total(&all) > 0.97 * total(&without));
        }
    }
}

/// Verifies that several clients for which all slots are kept free do not wait for each other, nor
/// long for one that pretends to send at once.
#[test]
fn several_clients_with_all_slots_are_faster_than_without() {
    for (service, bluff) in [(300 * US, 0), (300 * US, 12), (1400 * US, 0)] {
        for small in [2, 4, 8] {
            let run = Run {
                hold: HoldSlots::All,
                service,
                seconds: 5,
                ..Run::with(1000)
            };
            let pretender = |uid| Client::small(uid).bluffing(bluff);
            let mut others: Vec<Client> = (3..2 + small).map(pretender).collect();
            others.push(Client::small(2));
            let [before, after] = run.both(&beside(6, &others));
            let [before, after] = [&before, &after].map(|all| all.last().unwrap());
            let what = (service, bluff, small);
            assert!(after.len() > before.len(), "{what:?}: {}", after.len());
            let [half, most] = [2, 100].map(|of| (tail(before, of), tail(after, of)));
            assert!(half.1 < 0.95 * half.0, "{what:?}: {half:?} ms");
            // A pretender can delay others for the longest hold.
            let delay = if bluff > 0 { 2.0 } else { 0.0 };
            assert!(most.1 < 1.05 * most.0 + delay, "{what:?}: {most:?} ms");
        }
    }
}

/// Verifies that parameters may change at any time: each client is served as its share says.
#[test]
fn holds_follow_their_parameters() {
    let pair = |uid| Client {
        depth: 2,
        ..Client::small(uid)
    };
    for service in [100 * US, 300 * US, 2 * MS] {
        let run = Run {
            changes: true,
            hold: HoldSlots::All,
            service,
            ..Run::with(500)
        };
        let others = [Client::small(2), pair(3), Client::small(4), pair(5)];
        let all = run.go(&beside(4, &others));
        let counts = counts(&all[4..]);
        assert!(counts.iter().all(|count| *count > 1000), "{counts:?}");
    }
}

/// Verifies that clients that pretend to send their next request at once, and do not, cost others
/// no more than the credit.
#[test]
fn pretended_pauses_cost_no_more_than_the_credit() {
    for (permille, hold_us) in [(10, 2000), (10, 20_000), (100, 2000)] {
        for clients in 1..=6 {
            let pretender = |uid| Client::small(uid).bluffing(12);
            let others: Vec<Client> = (2..2 + clients).map(pretender).collect();
            let run = Run {
                permille,
                hold_us,
                ..Run::with(permille)
            };
            compare(&run, &beside(4, &others), 2);
        }
    }
}

/// Device with four places, in which requests wait, for 8 ms and up to a half more or less, and a
/// latency to aim for, ms.
fn aiming(aim: u32) -> Run {
    Run {
        latency_us: aim * 1000,
        hold_us: 10_000,
        slots: 16,
        places: 4,
        spread: 50,
        seconds: 60,
        ..Run::with(1000)
    }
}

/// Verifies that 99 of 100 requests of a client meet a latency that is aimed for, whatever its
/// pauses, and that this costs the less the longer the latency is.
#[test]
fn a_latency_is_aimed_for() {
    for pause in [200 * US, MS, 5 * MS] {
        let clients = beside(6, &[Client::small(2).pausing(pause)]);
        let before = total(
            &Run {
                permille: 0,
                ..aiming(0)
            }
            .go(&clients),
        );
        let mut held = u64::MAX;
        for (aim, least) in [(12, 0.6), (15, 0.75), (20, 0.99), (30, 0.995), (50, 0.999)] {
            let (all, counts) = aiming(aim).go_and_count(&clients);
            let (most, part) = (tail(all.last().unwrap(), 100), total(&all) / before);
            let aim = f64::from(aim);
            // 41 ms without an aim.
            let is_met = (0.95 * aim.min(41.0)..1.02 * aim).contains(&most);
            assert!(is_met, "{pause} ns, {aim} ms: {most} ms");
            assert!(part > least, "{pause} ns, {aim} ms: {part} of requests");
            assert!(counts.held_ns < held, "{aim} ms: {counts:?}");
            held = counts.held_ns;
            assert_eq!(counts.latency_given_up, 0, "{aim} ms");
            // An aim that is met anyway costs nothing.
            assert!(aim < 50.0 || counts.held_permille == 0, "{counts:?}");
        }
    }
}

/// Verifies that a latency that is out of reach is given up: clients are served as without.
#[test]
fn a_latency_out_of_reach_is_given_up() {
    let clients = beside(6, &[Client::small(2)]);
    let before = total(
        &Run {
            permille: 0,
            ..aiming(0)
        }
        .go(&clients),
    );
    let (all, counts) = aiming(4).go_and_count(&clients);
    assert_eq!((counts.latency_given_up, counts.latency_within), (1, 0));
    // Slots are spread as without.
    assert!(counts.latency_slots == 1 && counts.held_permille <= 20);
    assert!(total(&all) > 0.97 * before);
    // A client with two requests at a time has no such latency.
    let pair = Client {
        depth: 2,
        ..Client::small(2)
    };
    let (_, counts) = aiming(4).go_and_count(&beside(6, &[pair]));
    assert_eq!((counts.latency_within, counts.latency_beyond), (0, 0));
    // With several such clients and little credit, nothing is lost beyond it.
    let many: Vec<Client> = (2..8).map(|uid| Client::small(uid).bluffing(12)).collect();
    for permille in [10, 100] {
        let run = Run {
            permille,
            ..aiming(9)
        };
        compare(&run, &beside(4, &many), 2);
    }
}

/// Verifies that a latency is met on a device whose queue takes half a second to empty: slots stay
/// free until then, as that is how long requests take there.
#[test]
fn a_long_queue_is_emptied() {
    let run = Run {
        slots: 64,
        places: 1,
        ..aiming(40)
    };
    let clients = beside(6, &[Client::small(2)]);
    let [before, after] = [
        Run {
            latency_us: 0,
            permille: 0,
            ..run
        },
        run,
    ]
    .map(|run| run.go(&clients));
    assert!(total(&after) > 0.95 * total(&before));
    let [before, after] = [before, after].map(|all| tail(all.last().unwrap(), 100));
    assert!(before > 400.0 && after < 50.0, "{before} and {after} ms");
}

/// Verifies that a client whose requests take longer than the aim by themselves changes nothing for
/// another one.
#[test]
fn each_client_has_its_own_aim() {
    let slow = Client {
        times: 4,
        ..Client::small(3)
    };
    let clients = beside(6, &[slow, Client::small(2)]);
    let (all, counts) = aiming(20).go_and_count(&clients);
    // They miss it while the number of slots for the slow one is searched for.
    let most = tail(all.last().unwrap(), 50);
    assert!(most < 1.05 * 20.0, "{most} ms");
    assert_eq!(counts.latency_given_up, 1);
}

/// Verifies that no slot is kept free for a client whose next request will be throttled, and that
/// the time for which it is does not count as latency.
#[test]
fn a_client_at_its_maximum_is_not_expected() {
    let clients = beside(6, &[Client::small(2)]);
    for hold in [HoldSlots::One, HoldSlots::All] {
        let run = Run {
            hold,
            ..Run::with(1000).limited("uid:2:max=20")
        };
        let (all, counts) = run.go_and_count(&clients);
        let served = all.last().unwrap().len();
        assert!((370..=380).contains(&served), "{served} in 19 s");
        assert!(counts.holds_used < 10, "{counts:?}");
    }
    let run = aiming(20).limited("uid:2:max=20");
    let (_, counts) = run.go_and_count(&clients);
    // The first ones wait in the device.
    assert!(counts.latency_beyond < 20, "{counts:?}");
    assert_eq!(counts.latency_given_up, 0);
}

/// Verifies that parameters of holds change without another instance of the policy.
#[test]
fn parameters_of_holds_change_in_place() {
    let config = |permille, us, hold, latency| {
        let mut tunables = Tunables::default();
        let fairshare = &mut tunables.fairshare;
        fairshare.hold_permille = HoldPermille::new(permille).unwrap();
        fairshare.hold_us = HoldUs::new(us).unwrap();
        fairshare.hold = hold;
        fairshare.latency_us = LatencyUs::new(latency).unwrap();
        Config::parse(Kind::Fairshare, Some("uid_fair"), &tunables).unwrap()
    };
    let before = config(20, 2000, HoldSlots::One, 0);
    assert!(config(1000, 2000, HoldSlots::One, 0) == before);
    assert!(config(20, 100, HoldSlots::One, 0) == before);
    assert!(config(20, 2000, HoldSlots::All, 0) == before);
    assert!(config(20, 2000, HoldSlots::One, 100) == before);
}

/// Verifies that automatic slots are few on a disk that serves one request at a time, beside a
/// client that sends one at a time: its latency is about half of that with four slots.
#[test]
fn automatic_slots_suit_small_clients() {
    let disk = Run {
        service: 7 * MS,
        spread: 71,
        places: 1,
        slots: 4,
        seconds: 60,
        ..Run::with(20)
    };
    let clients = beside(6, &[Client::small(2)]);
    let auto = Run { auto: true, ..disk };
    let [fixed, auto] = [disk, auto].map(|run| run.go(&clients));
    assert!(total(&auto) > 0.99 * total(&fixed));
    let [fixed, auto] = [fixed, auto].map(|all| tail(all.last().unwrap(), 100));
    assert!(auto < 0.56 * fixed, "{auto} ms, {fixed} ms with four slots");
}
