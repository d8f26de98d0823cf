// SPDX-License-Identifier: GPL-2.0-only

//! Achieved rates: within 1 % of the rules on both sides, with any delay of the timer.

use super::sim::{near, one, play, TbfSim, SECOND};
use nrs_sched::policy::{
    tbf::{params::GlobalRate, Tunables},
    Decision,
};

const ACCURACY: &str = "
# requests from 1 to a million per second [LATE: 0s, 5us, 50us] [RATE WARM TIME SERVED: \
1 10s 1000s 1000, 3 3334ms 333s 999, 7 1429ms 142s 994, 100 0.1s 10s 1000, 999 11ms 1s 999, \
10000 1ms 1s 10000, 100000 0.1ms 0.4s 40000, 1000000 10us 40ms 40000]
late LATE
start a uid={1} rate=RATE
queue 1 64
// Saved tokens are spent after the time of ten tokens.
run WARM
in TIME: 1=SERVED~1

# bytes with requests of 4 KiB and 1 MiB [NEXT: one, large, mixed] [RATE WARM TIME: \
65536 1000s 4000s, 1048576 62.5s 250s, 209715200 312.5ms 1250ms, \
1073741824 61035us 244140625ns, 68719476736 954us 3814697ns]
start a uid={1} rate=RATEB/s
queue 1 64
run WARM NEXT
// 250 MiB: 250 large requests, or 64,000 small ones.
in TIME NEXT: 1.pages=64000~1

# a burst is the depth [DEPTH QUEUED: 1 51, 3 53, 100 150] [RATE IDLE: 1 1000.02s, 100 10.02s, \
100000 30ms]
// Over idle time of any length, including the tokens kept over a pause of 10 ms.
with uid depth=DEPTH
start a uid={1} rate=RATE
run IDLE; queue 1 QUEUED; burst DEPTH
// The debt of a forced drain is paid before the next burst.
drain; wait 200s
run 3600s; queue 1 QUEUED; burst DEPTH
drain; wait 200s
run 315360000s; queue 1 QUEUED; burst DEPTH

# a rule has a burst of its own, whatever the depth [BURST MANY QUEUED: 10s 1000 1200, \
500 500 700, 1s 100 300, 0 3 53]
with uid depth=3
start a uid={1} rate=100 burst=BURST
run 10.02s; queue 1 QUEUED; burst MANY
drain; wait 200s
run 3600s; queue 1 QUEUED; burst MANY

# a burst in bytes [BURST PAGES: 64MiB 16384, 10s 25600]
start a uid={1} rate=10MiB/s burst=BURST
run 20s; queue 1 30000
in 1ms none: 1=PAGES~1

# a request larger than the depth waits for a full bucket, later requests until its debt is paid
late 0
start a uid={1} rate=1MiB/s
queue 1 3 1024
in 1ms none: 1=1
in 3998ms none: 1=0
in 2ms none: 1=1
in 3998ms none: 1=0
in 2ms none: 1=1
in 20s none: 1=0

# a rate counts pages where the cost model says so [RATE SERVED: 25600 1.pages=512000~1, \
200iops 1=4000~1, 100MiB/s 1.pages=512000~1]
with uid cost_model=pages
start a uid={1} rate=RATE
queue 1 8
run 1s mixed
in 20s mixed: SERVED

# a paused partition leaves the whole rate to the other, and gets its part again afterwards
with uid parts=2
start a uid={1} rate=1000
queue 1 8; run 0.1s; in 1s: 1=1000~1.5; queue 1 8 @1; in 1s: 1=1000~1.5; run 1s none
queue 1 8 @1; run 0.1s; in 1s: 1=1000~1.5; queue 1 8; in 1s: 1=1000~1.5; run 1s none
queue 1 8; run 0.1s; in 1s: 1=1000~1.5; queue 1 8 @1; in 1s: 1=1000~1.5; run 1s none
queue 1 8 @1; run 0.1s; in 1s: 1=1000~1.5; queue 1 8; in 1s: 1=1000~1.5; run 1s none
queue 1 8; run 0.1s; in 1s: 1=1000~1.5; queue 1 8 @1; in 1s: 1=1000~1.5; run 1s none

# a jump of the clock is no burst [REAL MOST: realtime=0 1014, realtime=1 2004]
// After hours, with requests queued, follow the depth and the delay that is made up for.
start a uid={1} rate=1000 REAL
queue 1 8
run 1s
wait 18000s
in 1s: 1=1000..MOST
";

#[test]
fn accuracy() {
    play(ACCURACY);
}

/// Checks that all partitions of a service share the rate, and that each has its own without
/// `global_rate`.
#[test]
fn global_or_per_partition() {
    for (global_rate, factor) in [(GlobalRate::On, 1), (GlobalRate::Off, 2)] {
        for rate in [10, 1000, 20_000] {
            let tunables = Tunables {
                global_rate,
                ..Tunables::default()
            };
            let mut sim = TbfSim::new("uid", 2, &tunables);
            sim.rule(&format!("start a uid={{1}} rate={rate}"));
            sim.queue(0, 1, 32, 1);
            sim.queue(1, 1, 32, 1);
            sim.run(sim.now + SECOND, one);
            let time = (10_000 / rate).clamp(1, 100);
            let before: Vec<u64> = sim
                .rows()
                .iter()
                .map(|row| row.counters.dispatched)
                .collect();
            let got = sim.count(1, time * SECOND, one);
            near(
                got,
                factor * time * rate,
                1.0,
                &format!("{rate} {global_rate}"),
            );
            // Both partitions get about half.
            for (row, before) in sim.rows().iter().zip(before) {
                let part = row.counters.dispatched - before;
                near(part, got / 2, 5.0, &format!("{rate} {global_rate} by part"));
            }
            assert_eq!(sim.shared.full(), 0);
        }
    }
}

/// Checks that a synchronous client with short pauses gets its rate, although its queue is empty in
/// between.
#[test]
fn short_pauses_lose_nothing() {
    for rate in [100, 10_000, 50_000] {
        let mut sim = TbfSim::by_uid();
        sim.rule(&format!("start a uid={{1}} rate={rate}"));
        let (start, mut served) = (sim.now, 0);
        while sim.now < start + SECOND {
            // Eight requests at a time, after all earlier ones were served.
            sim.queue(0, 1, 8, 1);
            loop {
                match sim.get(0, false) {
                    Decision::Item(_) => served += 1,
                    Decision::Throttled { until } => sim.now = until + 50_000,
                    Decision::Empty => break,
                }
            }
            sim.now += 20_000;
        }
        near(served, rate, 8.0, &format!("{rate}"));
    }
}
