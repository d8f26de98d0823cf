// SPDX-License-Identifier: GPL-2.0-only

//! The mover strategy: movers do not affect regular clients, and use the bandwidth that these
//! leave.

use super::sim::{Load, QbmSim, GREEDY, MB};
use nrs_sched::units::NSEC_PER_SEC as SECOND;

/// Returns the throughput of user 1 and of both movers, MB/s. User 1 repeats the loads of `turns`
/// four times, each for the given number of seconds.
fn measure(turns: &[(Load, u64)], slots: usize, movers: Load) -> (f64, f64) {
    let plan = "by uid; group all capacity=100MB strategy=mover
        client 8 class=mover min=10MB
        client 9 class=mover min=10MB";
    let mut sim = QbmSim::new(plan, 100, 64);
    sim.slots = slots;
    sim.load(8, movers);
    sim.load(9, movers);
    sim.run(10 * SECOND);
    let (mut sum, mut time) = ([0.0; 3], 0.0);
    for (load, seconds) in turns.iter().cycle().take(turns.len() * 4) {
        sim.load(1, *load);
        let rates = sim.rates(seconds * SECOND, [1, 8, 9]);
        for (sum, rate) in sum.iter_mut().zip(rates) {
            *sum += rate * *seconds as f64;
        }
        time += *seconds as f64;
    }
    (sum[0] / time, (sum[1] + sum[2]) / time)
}

#[test]
fn regular_clients_do_not_notice() {
    let many = Load::Greedy(32);
    let rate = |mb| Load::Rate(mb * MB);
    for (turns, slots) in [
        (&[(GREEDY, 20)][..], 4),
        (&[(GREEDY, 20)], 1),
        (&[(many, 20)], 64),
        (&[(rate(93), 20)], 4),
        (&[(many, 20), (Load::Off, 20)], 64),
        (&[(rate(50), 15), (Load::Off, 15)], 4),
        (&[(rate(80), 15), (rate(20), 15), (rate(60), 15)], 4),
    ] {
        let (alone, _) = measure(turns, slots, Load::Off);
        let (beside, movers) = measure(turns, slots, GREEDY);
        let what = format!("{turns:?}: {alone}, {beside} beside movers with {movers}");
        let left = 100.0 - alone;
        assert!(beside >= alone * 0.97, "{what}");
        assert!(left < 10.0 || movers >= left * 0.9, "{what}");
    }
}
