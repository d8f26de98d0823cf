// SPDX-License-Identifier: GPL-2.0-only

//! KUnit suites of the core: complete lives of requests and policies, with real locks and workers.

use kernel::{
    impl_has_work, new_work,
    prelude::*,
    str::CString,
    sync::{
        atomic::{ordering, Atomic},
        Arc, Completion,
    },
    time::{delay::fsleep, Delta},
    workqueue::{Work, WorkItem},
};

use super::{
    arrival::Arrival,
    client::Client,
    partition::{KernelPart, Partition, PublishedShares},
    partitions::TargetPartitions,
    service::Service,
    target::{LowerDevice, PendingSubmission, Target, FREE_MIN},
    target_parameters::{ClientKind, ProgressHook, TargetParameters},
};
use crate::{
    sched::{
        attr::{Attrs, Id, Priority},
        order::{RecordId, Relation},
        parameters::service::ServiceParameters as Values,
        partition::{admit::AdmissionOutcome, Admission, BATCH},
        policy::{params::ClassesMax, AnyShared, Config, Kind, Part, Tunables, COUNTS_MAX},
        slots::Slots,
        units::{NSEC_PER_MSEC, NSEC_PER_SEC},
    },
    sys::{
        atomic::AtomicWord,
        misc,
        node::{
            test_request::{self, SubmitProbe},
            NodeAccount,
        },
        queue,
        series::ELOOP,
        timer::WithTimer,
    },
};

mod agent;
mod bandwidth;
mod order;
mod settings;
mod timeouts;

/// Returns the device `name` with a queue depth of `depth`.
fn lower(name: &CStr, number: u32, depth: u32) -> LowerDevice<'_> {
    LowerDevice {
        name,
        number,
        whole: number,
        depth,
        runner: None,
    }
}

/// A partition with one target, and a record of its submitted requests.
struct PartitionBench {
    partition: Arc<WithTimer<Partition>>,
    partitions: TargetPartitions,
    probe: Arc<SubmitProbe>,
    target: Arc<Target>,
    dispatch: Arc<TargetParameters>,
    client: Client,
    draining: AtomicWord,
}

/// Progress hook that counts its calls.
struct CallCounter(Atomic<u32>);

impl CallCounter {
    /// Creates the progress hook of `bench`, which stays until it is replaced.
    fn new(bench: &PartitionBench) -> Result<Arc<Self>> {
        let called = Arc::new(Self(Atomic::new(0)), GFP_KERNEL)?;
        bench.dispatch.set_progress_hook(Some(called.clone()));
        Ok(called)
    }

    fn calls(&self) -> u32 {
        self.0.load(ordering::Relaxed)
    }

    /// Waits for a call; returns true if there was one.
    fn wait(&self) -> bool {
        let until = misc::now() + 10 * NSEC_PER_SEC;
        while self.calls() == 0 && misc::now() < until {
            fsleep(Delta::from_micros(100));
        }
        self.calls() > 0
    }
}

impl ProgressHook for CallCounter {
    fn called(self: Arc<Self>) {
        self.0.fetch_add(1, ordering::Relaxed);
    }
}

/// Outcome of admitting a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RequestFate {
    Passed,
    Queued,
    Blocked,
}

impl PartitionBench {
    /// Creates a bench with `slots` slots.
    fn new(slots: u32) -> Result<Self> {
        let dispatch = dispatch(slots)?;
        let target = Target::new(0, dispatch.clone(), 1)?;
        target.attach(&lower(c"", 1, 0))?;
        let published = Arc::new(PublishedShares::new(), GFP_KERNEL)?;
        let fifo = config(Kind::Fifo)?;
        let partition = Partition::new(0, target.clone(), published.clone(), fifo, 256)?;
        let mut list = KVec::new();
        list.push(partition.clone(), GFP_KERNEL)?;
        Ok(Self {
            partitions: TargetPartitions::new(target.clone(), published, list),
            partition,
            probe: SubmitProbe::new()?,
            target,
            dispatch,
            client: Client::new(
                CString::try_from(c"test")?,
                CString::try_from(c"")?,
                1,
                0,
                None,
            )?,
            draining: AtomicWord::new(0),
        })
    }

    /// Submits request `name` as user `uid`.
    fn bring(
        &self,
        name: u64,
        uid: u32,
        priority: Priority,
        must_pass: bool,
    ) -> Result<RequestFate> {
        Ok(self.bring_after(name, uid, priority, must_pass, None)?.0)
    }

    /// Submits a request with a `relation`; also returns its record.
    fn bring_after(
        &self,
        name: u64,
        uid: u32,
        priority: Priority,
        must_pass: bool,
        relation: Option<Relation>,
    ) -> Result<(RequestFate, Option<RecordId>)> {
        self.bring_as(name, uid, priority, (must_pass, false), relation)
    }

    /// Submits a request that may also free memory.
    fn bring_as(
        &self,
        name: u64,
        uid: u32,
        priority: Priority,
        (must_pass, reclaims): (bool, bool),
        relation: Option<Relation>,
    ) -> Result<(RequestFate, Option<RecordId>)> {
        let held = test_request::request(&self.probe, name, 4096, priority)?;
        let draining = || self.draining.get() != 0;
        let arrival = Arrival {
            ident: Some([uid.into(), 0, 0, 0, 0]),
            load: self.client.load(),
            target: &self.target,
            must_pass,
            reclaims,
            may_pass: true,
            draining: Some(&draining),
            relation: relation.as_ref(),
            may_sleep: true,
            may_overflow: true,
            domain: None,
        };
        let attrs = || Attrs {
            uid: Id::new(uid),
            priority,
            ..Attrs::UNKNOWN
        };
        let (arrived, mut kick) = self.partition.arrive(held, &arrival, &attrs);
        if arrived.others {
            self.partition.decide_more(BATCH, &mut kick);
        }
        self.target.kick(kick);
        let came = match arrived.went {
            AdmissionOutcome::Passed(held) => {
                test_request::discard(held);
                RequestFate::Passed
            }
            AdmissionOutcome::Queued => RequestFate::Queued,
            AdmissionOutcome::Blocked => RequestFate::Blocked,
            AdmissionOutcome::Refused(held) => {
                test_request::discard(held);
                return Err(EAGAIN);
            }
        };
        Ok((came, arrived.record))
    }

    /// Ends a request that was dispatched on arrival.
    fn end_passed(&self, priority: Priority) {
        self.target.slot_pool().put(priority);
        let mut kick = PendingSubmission::none();
        self.partition.decide_more(BATCH, &mut kick);
        self.target.kick(kick);
    }

    /// Ends a forced request that was dispatched on arrival.
    fn end_forced(&self) {
        self.target
            .kick(self.target.leave(Admission::Forced, Priority::Regular, 0));
    }

    /// Ends request `index` in the order of submission, after it was submitted; returns its name.
    fn end_submitted(&self, index: usize) -> Option<u64> {
        if !self.probe.wait_for(index as u64 + 1) {
            return None;
        }
        let (name, account) = self.probe.seen(index)?;
        self.give_back(&account);
        let cost = crate::sched::item::Cost::of_bytes(4096);
        let mut kick = PendingSubmission::none();
        self.partition.end(&account, cost, Some(BATCH), &mut kick);
        self.target.kick(kick);
        Some(name)
    }

    /// Releases the admission of a request.
    fn give_back(&self, account: &NodeAccount) {
        let placement = &account.placement;
        self.target.kick(
            self.target
                .leave(placement.admission, placement.priority, 0),
        );
    }

    /// Makes `kind` the primary of the regular head.
    fn start(&self, kind: Kind) -> Result<bool> {
        self.install(config(kind)?)
    }

    /// Makes a policy with `config` the primary of the regular head.
    fn install(&self, config: Config) -> Result<bool> {
        let shared = AnyShared::new(&config, 1, 1).map_err(|_| ENOMEM)?;
        let part = KernelPart::new(&config, 1, &shared).map_err(|_| ENOMEM)?;
        let refused = self
            .partition
            .with(|inner| inner.head(Priority::Regular).install(part, config).err());
        Ok(refused.is_none())
    }

    /// Returns the number of slots in use.
    fn active(&self) -> u32 {
        self.target.pool().active()
    }
}

/// Returns the shared state of a service with `slots` slots.
fn dispatch(slots: u32) -> Result<Arc<TargetParameters>> {
    let values = Values {
        slots: Slots::new(slots).ok_or(EINVAL)?,
        ..Values::default()
    };
    TargetParameters::new(None, &values)
}

/// Creates a target with `slots` slots and `cpts` partitions.
fn target(slots: u32, cpts: u16) -> Result<Arc<Target>> {
    Target::new(0, dispatch(slots)?, cpts)
}

fn config(kind: Kind) -> Result<Config> {
    Config::parse(kind, None, &Tunables::default()).map_err(|_| EINVAL)
}

#[kunit_tests(nrs_core)]
mod life {
    use super::*;

    #[test]
    fn a_target_has_no_more_slots_than_its_device_keeps_in_flight() -> Result {
        // Slots, depth of the device; slots in effect.
        for (slots, depth, limit) in [(64, 0, 64), (64, 8, 8), (4, 8, 4), (1, 1, 1)] {
            let target = target(slots, 1)?;
            target.attach(&lower(c"", 1, depth))?;
            assert!(target.limit() == limit);
        }
        Ok(())
    }

    /// Verifies that a program is measured at the target that it uses: one without a number, which
    /// a refused block device has left behind.
    #[test]
    fn a_program_counts_at_its_target() -> Result {
        let name = || CString::try_from(c"kunit");
        let service = Service::new(c"kunit", Some(1))?;
        service.use_begin(ClientKind::Block)?;
        let device = CString::try_from(c"8:0")?;
        let (client, target) = service.join(name()?, device, lower(c"", 8, 0))?;
        let refused = service.join(name()?, name()?, lower(c"8:0", 9, 0)).err();
        service.leave(&client, &target);
        service.use_end();
        service.use_begin(ClientKind::User)?;
        let (program, target) = service.join(name()?, name()?, LowerDevice::NONE)?;
        let (index, used) = (program.target(), target.index());
        service.leave(&program, &target);
        service.use_end();
        assert!(refused == Some(ELOOP) && index == used && used == 1);
        Ok(())
    }

    #[test]
    fn every_policy_serves_what_is_queued() -> Result {
        let mut counted = false;
        for &kind in Kind::ALL {
            let bench = PartitionBench::new(1)?;
            let started = kind == Kind::FALLBACK || bench.start(kind)?;
            bench.bring(0, 1, Priority::Regular, false)?;
            for name in 1..=20 {
                bench.bring(name, name as u32 % 3, Priority::Regular, false)?;
            }
            let mut counts = [0; COUNTS_MAX];
            bench.partition.drain();
            bench.partition.with(|inner| {
                for status in inner.head(Priority::Regular).instances() {
                    status.part.add_counts(&mut counts);
                }
            });
            let all = bench.probe.wait_for(20);
            bench.end_passed(Priority::Regular);
            assert!(started && all);
            counted |= counts.iter().any(|count| *count > 0);
        }
        // At least one policy counts each decision.
        assert!(counted);
        Ok(())
    }

    /// Verifies that a timer calls the progress hook for requests of another partition. The slot
    /// was in use when the request arrived, and no other event triggers a dispatch.
    #[test]
    fn timer_calls_the_progress_hook_for_other_partitions() -> Result {
        let bench = PartitionBench::new(1)?;
        let progress_hook = CallCounter::new(&bench)?;
        let published = Arc::new(PublishedShares::new(), GFP_KERNEL)?;
        let other = Partition::new(1, bench.target.clone(), published, config(Kind::Fifo)?, 1)?;
        bench
            .target
            .slot_pool()
            .take(Priority::Regular, &bench.target.limits());
        let came = bench.bring(1, 1, Priority::Regular, false)?;
        bench.target.notify_other_partitions(1);
        let full = progress_hook.calls();
        bench.target.slot_pool().put(Priority::Regular);
        other.arm(misc::now());
        let called = progress_hook.wait();
        bench.partitions.apply_pending();
        let served = bench.end_submitted(0);
        bench.target.notify_other_partitions(1);
        bench.dispatch.set_progress_hook(None);
        assert!(came == RequestFate::Queued && served == Some(1));
        assert!(full == 0 && called && progress_hook.calls() == 1);
        Ok(())
    }

    /// Verifies that forced requests are dispatched after a stall, a batch each time, as long as no
    /// request ends.
    #[test]
    fn forced_requests_are_dispatched_after_a_stall() -> Result {
        const STALL: u64 = NSEC_PER_MSEC;
        let bench = PartitionBench::new(2)?;
        for name in 0..u64::from(BATCH) + 3 {
            bench.bring(name, 1, Priority::Regular, true)?;
        }
        let (early, _) = bench.target.unstall(3600 * NSEC_PER_SEC);
        fsleep(Delta::from_millis(2));
        let (late, kick) = bench.target.unstall(STALL);
        bench.target.kick(kick);
        let first = bench.target.forced();
        let (again, kick) = bench.target.unstall(STALL);
        bench.target.kick(kick);
        let second = bench.target.forced();
        let (idle, _) = bench.target.unstall(0);
        for index in 0..BATCH as usize + 2 {
            bench.end_submitted(index);
        }
        bench.end_forced();
        assert!(!early && late && again && !idle);
        assert!((first, second) == (BATCH + 1, BATCH + 3) && bench.target.forced() == 0);
        Ok(())
    }

    /// Verifies that drained requests do not count against the limit of requests that free memory.
    #[test]
    fn a_drain_uses_up_no_bound() -> Result {
        const MANY: u64 = FREE_MIN as u64 + 8;
        let bench = PartitionBench::new(2)?;
        for name in 1..=MANY + 2 {
            bench.bring(name, 1, Priority::Regular, false)?;
        }
        let metadata = bench.bring(200, 1, Priority::Regular, true)?;
        bench.partition.drain();
        let gone = bench.probe.wait_for(MANY);
        let swap = bench.target.admit(true);
        let at_device = bench.target.forced();
        for index in 0..MANY as usize {
            bench.end_submitted(index);
        }
        assert!(gone && metadata == RequestFate::Passed);
        assert!(swap == Some(Admission::Free) && at_device == MANY as u32 + 2);
        assert!(bench.target.forced() == 2);
        Ok(())
    }

    /// Verifies that requests which free memory are not delayed, and do not count against the limit
    /// of forced requests.
    #[test]
    fn reclaim_requests_are_not_delayed() -> Result {
        let bench = PartitionBench::new(2)?;
        let metadata = bench.bring(1, 1, Priority::Regular, true)?;
        let waits = bench.bring(2, 1, Priority::Regular, true)?;
        let swap: [_; FREE_MIN as usize] = core::array::from_fn(|_| bench.target.admit(true));
        let busy = bench.target.forced();
        let more = bench.target.admit(true);
        bench.end_forced();
        let next = bench.end_submitted(0);
        for admission in swap.into_iter().flatten() {
            bench
                .target
                .kick(bench.target.leave(admission, Priority::Regular, 0));
        }
        assert!(metadata == RequestFate::Passed && waits == RequestFate::Queued);
        assert!(busy == FREE_MIN + 1 && more.is_none());
        assert!(next == Some(2) && bench.target.active() == 0);
        Ok(())
    }

    /// Verifies that forced requests have no slot. Half as many as there are slots are in flight,
    /// the rest queues.
    #[test]
    fn what_must_pass_passes_without_a_slot() -> Result {
        let bench = PartitionBench::new(4)?;
        let mut came = [RequestFate::Blocked; 4];
        let first = bench.bring(1, 1, Priority::Regular, false)?;
        for (name, came) in (2..).zip(came.iter_mut()) {
            *came = bench.bring(name, 1, Priority::Regular, true)?;
        }
        let (slots, forced) = (bench.active(), bench.target.forced());
        bench.end_forced();
        let next = bench.end_submitted(0);
        let last = bench.end_submitted(1);
        bench.end_forced();
        bench.end_passed(Priority::Regular);
        let left = (bench.active(), bench.target.active());
        assert!(first == RequestFate::Passed);
        assert!(
            came == [
                RequestFate::Passed,
                RequestFate::Passed,
                RequestFate::Queued,
                RequestFate::Queued
            ]
        );
        assert!(slots == 1 && forced == 2 && next == Some(4) && last == Some(5));
        assert!(left == (0, 0));
        Ok(())
    }

    #[test]
    fn stalled_requests_are_dispatched() -> Result {
        let bench = PartitionBench::new(1)?;
        // Takes the slot and does not end.
        bench.bring(1, 1, Priority::Regular, false)?;
        let idle = bench.partition.unstall(0);
        for name in 2..=5 {
            bench.bring(name, 1, Priority::Regular, false)?;
        }
        let early = bench.partition.unstall(3600 * NSEC_PER_SEC);
        let before = bench.probe.submitted();
        let stalled = bench.partition.unstall(0);
        let all = bench.probe.wait_for(4);
        let (slots, places) = (bench.active(), bench.target.active());
        let again = bench.partition.unstall(0);
        let mut ended = 0;
        for index in 0..4 {
            ended += u64::from(bench.end_submitted(index).is_some());
        }
        bench.end_passed(Priority::Regular);
        let left = bench.active();
        assert!(!idle && !early && before == 0);
        assert!(stalled && all && !again);
        assert!(slots == 1 && places == 5);
        assert!(ended == 4 && left == 0);
        Ok(())
    }

    #[test]
    fn draining_dispatches_all_requests() -> Result {
        let bench = PartitionBench::new(1)?;
        bench.start(Kind::Fairshare)?;
        bench.bring(1, 1, Priority::Regular, false)?;
        for name in 2..=100 {
            bench.bring(name, name as u32 % 7, Priority::Regular, false)?;
        }
        bench.partition.drain();
        let all = bench.probe.wait_for(99);
        // Drained requests take no slot, so that a hung device blocks no other device.
        let (slots, places) = (bench.active(), bench.target.active());
        let mut ended = 0;
        for index in 0..99 {
            ended += u64::from(bench.end_submitted(index).is_some());
        }
        bench.end_passed(Priority::Regular);
        let left = bench.active();
        assert!(all && slots == 1 && places == 100);
        assert!(ended == 99 && left == 0);
        Ok(())
    }
}

/// Work item that submits requests of many users on a CPU of its own.
#[pin_data]
struct ArrivalLoad {
    bench: Arc<PartitionBench>,
    seed: u32,
    failures: Atomic<u64>,
    #[pin]
    done: Completion,
    #[pin]
    work: Work<Self>,
}

impl_has_work! {
    impl HasWork<Self> for ArrivalLoad { self.work }
}

/// Number of requests of one load.
const CROWD: u64 = 400;

impl WorkItem for ArrivalLoad {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        for name in 0..CROWD {
            let uid = (name as u32).wrapping_mul(this.seed) % 150;
            if this
                .bench
                .bring(name, uid, Priority::Regular, false)
                .is_err()
            {
                this.failures.fetch_add(1, ordering::Relaxed);
            }
            misc::cond_resched();
        }
        this.done.complete_all();
    }
}

#[kunit_tests(nrs_sched)]
mod many {
    use super::*;

    #[test]
    fn classes_come_and_go_while_many_ask() -> Result {
        let bench = Arc::new(PartitionBench::new(1)?, GFP_KERNEL)?;
        let mut tunables = Tunables::default();
        tunables.fairshare.classes_max = ClassesMax::new(64).ok_or(EINVAL)?;
        let config =
            Config::parse(Kind::Fairshare, Some("uid_fair"), &tunables).map_err(|_| EINVAL)?;
        let started = bench.install(config)?;
        // The slot is taken, so all requests are queued.
        bench.bring(0, 1, Priority::Regular, false)?;
        let mut loads: KVec<Arc<ArrivalLoad>> = KVec::new();
        for seed in [7, 11, 13] {
            let its_bench = bench.clone();
            let load = Arc::pin_init(
                pin_init!(ArrivalLoad {
                    bench: its_bench,
                    seed,
                    failures: Atomic::new(0),
                    done <- Completion::new(),
                    work <- new_work!("nrs_submitters"),
                }),
                GFP_KERNEL,
            )?;
            let _ = queue::upkeep().enqueue(load.clone());
            loads.push(load, GFP_KERNEL)?;
        }
        let mut failures = 0;
        for load in loads.iter() {
            load.done.wait_for_completion();
            failures += load.failures.load(ordering::Relaxed);
        }
        let queued = bench
            .partition
            .with(|inner| inner.head(Priority::Regular).queued());
        bench.partition.drain();
        let all = bench.probe.wait_for(3 * CROWD);
        bench.end_passed(Priority::Regular);
        assert!(started && failures == 0);
        assert!(u64::from(queued) == 3 * CROWD && all);
        Ok(())
    }
}
