// SPDX-License-Identifier: GPL-2.0-only

//! Life of the factors of an agent: set, renewed, lapsed, dropped with their parts.

use nrs_sched::{
    agent::{FactorPairs, STEPS},
    error::Code,
    mem::fail_after,
    service::{agent::AgentCounters, ServiceHost},
    service_world::ServiceWorld,
    units::{NSEC_PER_MSEC, NSEC_PER_SEC},
};

/// Sets the factors of `list` for `instance` and `lease_ms`.
fn set_factors<const N: usize>(
    world: &ServiceWorld,
    instance: u64,
    lease_ms: u32,
    list: [(u64, u32); N],
) -> Result<(), Code> {
    let set = FactorPairs::of(list).and_then(|pairs| {
        world.settings(|settings| settings.set_factors(world, instance, lease_ms, pairs))
    });
    set.map_err(|error| error.code)
}

/// Sets one factor of an unknown class of `instance` for one second.
fn set_factor(world: &ServiceWorld, instance: u64) -> Result<(), Code> {
    set_factors(world, instance, 1000, [(1, 1)])
}

/// Creates a service with one factor in force; returns the instance, too.
fn with_factor() -> (ServiceWorld, u64) {
    let world = ServiceWorld::new(1, 1);
    world
        .set("nrs_policies", "fairshare uid_fair")
        .expect("a policy");
    let (instance, _) = world.settings(|settings| settings.instance(&world));
    set_factor(&world, instance).expect("current");
    (world, instance)
}

/// Returns the counters of written, stale and lapsed factors of `world`.
fn counted(world: &ServiceWorld) -> (u64, u64, u64) {
    world.agent(|agent| agent.poll(world.now.get()));
    let AgentCounters {
        written,
        stale,
        lapsed,
    } = world.agent.borrow().counters();
    (written, stale, lapsed)
}

/// Returns the steps of the factors of `world` since the last call.
fn steps(world: &ServiceWorld) -> Vec<u32> {
    let steps = world.steps.take();
    steps.iter().map(|state| state.step).collect()
}

#[test]
fn factors_are_for_one_start_of_the_policy() {
    let world = ServiceWorld::new(1, 2);
    let instance = || world.settings(|settings| settings.instance(&world));
    let (before, runs) = instance();
    assert!(before != 0 && !runs);
    // No part takes factors.
    assert_eq!(set_factor(&world, before), Err(Code::Stale));
    let set = |name, text| world.set(name, text).expect("valid");
    set("nrs_policies", "fairshare uid_fair");
    let (started, runs) = instance();
    assert!(started != before && runs);
    assert_eq!(set_factor(&world, before), Err(Code::Stale));
    assert_eq!(set_factor(&world, started), Ok(()));
    // Changes of running parts keep the instance and the lease.
    set("nrs_fairshare_weights", "uid:5:7");
    set("nrs_fairshare_delta_ms", "50");
    set("slots", "5");
    assert_eq!(set_factor(&world, started), Ok(()));
    assert_eq!(counted(&world), (2, 2, 0));
    assert_eq!(steps(&world), [0, 0]);
    // A restart drops the factors at once, which is no lapse.
    set("nrs_fairshare_cost_model", "rpcs");
    assert_eq!(steps(&world), [STEPS]);
    assert_eq!(set_factor(&world, started), Err(Code::Stale));
    world.now.set(world.now.get() + 3 * NSEC_PER_SEC);
    assert_eq!(counted(&world), (2, 3, 0));
    assert_eq!(set_factor(&world, instance().0), Ok(()));
    set("nrs_policies", "fifo");
    assert_eq!(counted(&world), (3, 3, 0));
    assert_eq!(steps(&world), [0, STEPS]);
}

#[test]
fn a_lapse_counts_once_in_any_order_of_clock_readings() {
    let (world, _) = with_factor();
    let start = world.now.get();
    for (ms, step) in [(999, None), (1000, Some(1)), (1250, Some(3)), (1100, None)] {
        let polled = world.agent.borrow_mut().poll(start + ms * NSEC_PER_MSEC);
        assert_eq!(polled.map(|state| state.step), step, "{ms} ms");
    }
    world.now.set(start + 5 * NSEC_PER_SEC);
    assert_eq!(counted(&world), (1, 0, 1));
    // All factors have returned to one: nothing is left to report.
    assert_eq!(steps(&world), [0, STEPS]);
    assert_eq!(counted(&world), (1, 0, 1));
    assert_eq!(steps(&world), []);
}

#[test]
fn a_failed_renewal_keeps_the_lease_and_its_end() {
    let (world, instance) = with_factor();
    let end = world.now.get() + NSEC_PER_SEC;
    world.now.set(end - 1);
    let failures = (0..).take_while(|&count| {
        fail_after(count);
        let set = set_factor(&world, instance);
        fail_after(u32::MAX);
        assert!(matches!(set, Ok(()) | Err(Code::NoMemory)));
        world.agent.borrow().counters().written == 1
    });
    assert!(failures.count() > 3);
    assert_eq!(steps(&world), [0, 0]);
    // The renewal that succeeded ends a second later, the one before did not lapse.
    world.now.set(end);
    assert_eq!(counted(&world), (2, 0, 0));
    // Whichever allocation of the next renewal fails, this lease ends in time.
    for count in 0..3 {
        fail_after(count);
        let refused = set_factors(&world, instance, 9000, []);
        fail_after(u32::MAX);
        assert!(refused.is_err(), "{count}");
    }
    world.now.set(end - 1 + NSEC_PER_SEC);
    assert_eq!(counted(&world), (2, 0, 1));
}

#[test]
fn the_lease_ends_when_the_file_is_closed() {
    let (world, _) = with_factor();
    let bind = || world.agent.borrow_mut().bind();
    assert!(bind() && !bind());
    world.agent(|agent| agent.unbind(world.now.get()));
    assert_eq!(steps(&world), [0, 1]);
    assert_eq!(counted(&world), (1, 0, 1));
    assert!(bind());
}
