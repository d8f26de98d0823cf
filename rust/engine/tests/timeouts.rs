// SPDX-License-Identifier: GPL-2.0-only

//! Deadlines: measurement, refusals, loss and recovery of clients, with real clock and timer.

use kernel::{
    cpu::nr_cpu_ids,
    prelude::*,
    str::CString,
    sync::Arc,
    time::{delay::fsleep, Delta},
};

use crate::{
    engine::{
        client::{deadlines::Deadlines, Client},
        partitions::Partitions,
        target::Target,
        timeouts::Timeouts,
    },
    sched::{
        attr::Priority,
        error,
        timeouts::terms::{
            AtCountPolicyDelay, AtEarlyMargin, AtExtra, AtFactor, AtHistory, AtIncrement,
            AtInitial, AtMax, AtMin, ObdTimeout, TimeoutTerms,
        },
    },
    sys::{misc, node::NodeAccount, timer::WithTimer},
};

/// Sets terms for estimates of at least one second, without any margin.
fn brief(terms: &mut TimeoutTerms) -> error::Result {
    terms.min = AtMin::parse("1")?;
    terms.early_margin = AtEarlyMargin::parse("1")?;
    terms.extra = AtExtra::parse("1")?;
    terms.initial = AtInitial::parse("1")?;
    terms.factor = AtFactor::parse("100")?;
    terms.increment = AtIncrement::parse("0")?;
    Ok(())
}

/// Disables deadlines.
fn off(terms: &mut TimeoutTerms) -> error::Result {
    terms.max = AtMax::parse("0")?;
    terms.fixed = ObdTimeout::parse("0")?;
    Ok(())
}

/// Applies `f` to the terms.
fn change(timeouts: &Timeouts, f: impl FnOnce(&mut TimeoutTerms) -> error::Result) -> Result {
    let mut terms = timeouts.terms();
    f(&mut terms).map_err(|_| EINVAL)?;
    timeouts.set(&terms);
    Ok(())
}

/// A client and its device.
struct ClientBench {
    timeouts: Arc<Timeouts>,
    target: Arc<Target>,
    client: Client,
}

impl ClientBench {
    fn new() -> Result<Self> {
        let target = super::target(1, 1)?;
        target.attach(&super::lower(c"", 1, 0))?;
        let partitions = Partitions::new()?;
        let timeouts = Timeouts::new(1)?;
        change(&timeouts, brief)?;
        let name = || CString::try_from(c"test");
        let client = Client::new(name()?, name()?, 1, 0, None)?;
        Ok(Self {
            client: client.with_deadlines(target.clone(), timeouts.clone(), c"svc", partitions)?,
            timeouts,
            target,
        })
    }

    fn deadlines(&self) -> Result<&Arc<WithTimer<Deadlines>>> {
        self.client.deadlines().ok_or(ENODEV)
    }

    /// Submits a request.
    fn send(&self) -> Result<NodeAccount> {
        self.send_on(0)
    }

    /// Submits a request that arrived on `cpu`.
    fn send_on(&self, cpu: u16) -> Result<NodeAccount> {
        let mut account = NodeAccount::new(Priority::Regular, cpu);
        self.deadlines()?.enter(&mut account);
        Ok(account)
    }

    fn counts(&self) -> [u64; 3] {
        let counts = self.timeouts.counts();
        [counts.timeouts.get(), counts.lost.get(), counts.found.get()]
    }
}

/// Waits up to ten seconds for `f` to return true.
fn wait_for(mut f: impl FnMut() -> bool) -> bool {
    for _ in 0..1000 {
        if f() {
            return true;
        }
        fsleep(Delta::from_millis(10));
    }
    false
}

#[kernel::prelude::kunit_tests(nrs_timeouts)]
mod tests {
    use super::*;

    #[test]
    fn each_partition_has_its_estimate() -> Result {
        let timeouts = Timeouts::new(2)?;
        // There are no samples yet.
        assert_eq!(timeouts.estimate(), 10_000);
        let now = misc::millis();
        for (partition, service) in [(0, 6_000), (1, 20_000), (1, 1), (0, 5), (7, 90_000)] {
            timeouts.measured(partition, service, now);
        }
        assert_eq!(timeouts.estimate(), 20_000);
        timeouts.expect(40_000);
        assert_eq!(timeouts.estimate(), 40_000);
        // New terms take effect immediately.
        change(&timeouts, |terms| {
            terms.max = AtMax::parse("30")?;
            Ok(())
        })?;
        assert_eq!(timeouts.estimate(), 30_000);
        Ok(())
    }

    /// Verifies that old samples, and samples of other clients, do not extend the timeout of an
    /// idle client's device.
    #[test]
    fn an_idle_client_forgets() -> Result {
        let bench = ClientBench::new()?;
        let now = misc::millis();
        bench.timeouts.measured(0, 90_000, now);
        let history = bench.deadlines()?.history();
        history.add_sample(60_000, now);
        assert_eq!(history.outlook(now).timeout, 60_000);
        // The history covers 600 s.
        assert_eq!(history.outlook(now + 400_000).timeout, 60_000);
        assert_eq!(history.outlook(now + 600_000).timeout, 1_000);
        assert_eq!(history.last_timeout(), 1_000);
        Ok(())
    }

    /// Verifies that the timer does not keep an old timeout. A device that was congested and then
    /// idle for a history is lost as soon as any other, though the timer was armed during the
    /// congestion.
    #[test]
    fn a_timer_of_a_congestion_is_forgotten() -> Result {
        let bench = ClientBench::new()?;
        let deadlines = bench.deadlines()?;
        change(&bench.timeouts, |terms| {
            terms.history = AtHistory::parse("4")?;
            Ok(())
        })?;
        deadlines.sync();
        deadlines.history().add_sample(60_000, misc::millis());
        let quick = bench.send()?;
        deadlines.leave(&quick);
        assert!(!deadlines.is_asleep());
        fsleep(Delta::from_millis(4_100));
        assert!(deadlines.is_asleep());
        assert_eq!(
            deadlines.history().outlook(misc::millis()).seen.current,
            1_000
        );
        let hung = bench.send()?;
        assert!(wait_for(|| deadlines.is_lost()));
        deadlines.leave(&hung);
        Ok(())
    }

    /// Verifies that a discard longer than the timeout does not make the client lost, and is no
    /// sample.
    #[test]
    fn a_discard_has_its_own_time() -> Result {
        let bench = ClientBench::new()?;
        let deadlines = bench.deadlines()?;
        let mut discard = NodeAccount::new(Priority::Regular, 0);
        discard.lengthy = true;
        deadlines.enter(&mut discard);
        let read = bench.send()?;
        fsleep(Delta::from_millis(2_500));
        assert!(!deadlines.is_lost() && !deadlines.is_asleep());
        deadlines.leave(&discard);
        assert_eq!(deadlines.history().outlook(misc::millis()).seen.worst, None);
        // The device owes the read since then.
        assert!(wait_for(|| bench.counts() == [1, 1, 0]));
        deadlines.leave(&read);
        Ok(())
    }

    #[test]
    fn withheld_time_counts_if_it_should() -> Result {
        let timeouts = Timeouts::new(1)?;
        assert_eq!(timeouts.queued(5_000, 0), 5_000);
        assert_eq!(timeouts.queued(5_000, 4_000), 1_000);
        assert_eq!(timeouts.queued(5_000, 6_000), 0);
        change(&timeouts, |terms| {
            terms.count_policy_delay = AtCountPolicyDelay::On;
            Ok(())
        })?;
        assert_eq!(timeouts.queued(5_000, 4_000), 5_000);
        assert_eq!(timeouts.counts().withheld_ms.get(), 14_000);
        Ok(())
    }

    #[test]
    fn without_deadlines_nothing_is_looked_at() -> Result {
        let bench = ClientBench::new()?;
        change(&bench.timeouts, off)?;
        bench.deadlines()?.sync();
        let account = bench.send()?;
        assert!(account.submitted.is_none());
        assert!(bench.deadlines()?.is_asleep());
        bench.deadlines()?.leave(&account);
        // Fixed timeouts are in effect.
        change(&bench.timeouts, |terms| {
            terms.fixed = ObdTimeout::parse("7")?;
            Ok(())
        })?;
        bench.deadlines()?.sync();
        let account = bench.send()?;
        assert!(!account.submitted.is_none() && !bench.deadlines()?.is_asleep());
        bench.deadlines()?.leave(&account);
        Ok(())
    }

    #[test]
    fn lost_and_found() -> Result {
        let bench = ClientBench::new()?;
        let deadlines = bench.deadlines()?;
        assert!(deadlines.is_asleep());
        let (one, two) = (bench.send()?, bench.send()?);
        assert!(!deadlines.is_asleep());
        assert!(wait_for(|| deadlines.is_lost()));
        assert!(wait_for(|| bench.counts() == [2, 1, 0]));
        // Requests are submitted to a lost client whose requests do not fail.
        let mut queued = NodeAccount::new(Priority::Regular, 0);
        assert!(!deadlines.is_failing() && deadlines.begin_queued(&mut queued));
        deadlines.leave(&one);
        assert!(!deadlines.is_lost());
        assert_eq!(bench.counts(), [2, 1, 1]);
        deadlines.leave(&two);
        deadlines.leave(&queued);
        assert!(wait_for(|| deadlines.is_asleep()));
        assert_eq!(bench.counts(), [2, 1, 1]);
        // Their service times are known.
        assert!(bench.timeouts.estimate() >= 1_000);
        Ok(())
    }

    /// Verifies that a request that never ends makes its client lost once, not in each pause of
    /// other requests.
    #[test]
    fn a_client_is_lost_once_for_each_request() -> Result {
        let bench = ClientBench::new()?;
        let deadlines = bench.deadlines()?;
        let hung = bench.send()?;
        assert!(wait_for(|| deadlines.is_lost()));
        // Requests submitted in the same tick are given up together.
        fsleep(Delta::from_millis(20));
        for _ in 0..2 {
            let other = bench.send()?;
            deadlines.leave(&other);
            assert!(!deadlines.is_lost());
            assert!(wait_for(|| deadlines.is_asleep()));
        }
        assert_eq!(bench.counts(), [1, 1, 1]);
        let also = bench.send()?;
        assert!(wait_for(|| deadlines.is_lost()));
        assert_eq!(bench.counts(), [2, 2, 1]);
        deadlines.leave(&hung);
        // The other request is given up, too.
        assert!(wait_for(|| deadlines.is_asleep()));
        assert_eq!(bench.counts(), [2, 2, 2]);
        deadlines.leave(&also);
        Ok(())
    }

    /// Verifies that requests that arrived on several CPUs are owed together. Requests that one CPU
    /// gave up do not hide requests of another CPU.
    #[test]
    fn requests_of_several_cpus() -> Result {
        let bench = ClientBench::new()?;
        let deadlines = bench.deadlines()?;
        let last = (nr_cpu_ids() - 1) as u16;
        let (hung, early) = (bench.send_on(0)?, bench.send_on(last)?);
        assert!(wait_for(|| deadlines.is_lost()));
        assert!(wait_for(|| bench.counts() == [2, 1, 0]));
        fsleep(Delta::from_millis(20));
        // Whichever CPU the request arrived on, it is no longer given up.
        deadlines.leave(&early);
        assert!(!deadlines.is_lost());
        assert!(wait_for(|| deadlines.is_asleep()));
        let late = bench.send_on(last)?;
        assert!(wait_for(|| deadlines.is_lost()));
        assert_eq!(bench.counts(), [3, 2, 1]);
        deadlines.leave(&hung);
        assert!(wait_for(|| deadlines.is_asleep()));
        // The device owes the remaining request since the last sign of life.
        let (one, two) = (bench.send_on(0)?, bench.send_on(last)?);
        for sent in [one, two] {
            fsleep(Delta::from_millis(700));
            assert!(!deadlines.is_lost());
            deadlines.leave(&sent);
        }
        assert_eq!(bench.counts(), [3, 2, 2]);
        deadlines.leave(&late);
        assert!(wait_for(|| deadlines.is_asleep()));
        Ok(())
    }

    /// Verifies that a completion of a request submitted without deadlines is a sign of life.
    #[test]
    fn what_is_not_counted_is_a_sign_of_life() -> Result {
        let bench = ClientBench::new()?;
        let deadlines = bench.deadlines()?;
        let counted = bench.send()?;
        let uncounted = NodeAccount::new(Priority::Regular, 0);
        for _ in 0..20 {
            fsleep(Delta::from_millis(100));
            assert!(!deadlines.is_lost());
            deadlines.leave(&uncounted);
        }
        assert!(wait_for(|| deadlines.is_lost()));
        deadlines.leave(&counted);
        Ok(())
    }

    #[test]
    fn what_is_queued_for_a_lost_client_fails() -> Result {
        let bench = ClientBench::new()?;
        let deadlines = bench.deadlines()?;
        deadlines.set_fails(true);
        let sent = bench.send()?;
        let mut queued = NodeAccount::new(Priority::Regular, 0);
        assert!(!deadlines.is_failing());
        assert!(wait_for(|| deadlines.is_failing()));
        assert!(!deadlines.begin_queued(&mut queued) && queued.placement.refused);
        // The end of a request that was not submitted is no sign of life.
        deadlines.leave(&queued);
        assert!(deadlines.is_failing());
        deadlines.leave(&sent);
        assert!(!deadlines.is_failing());
        assert!(wait_for(|| deadlines.is_asleep()));
        Ok(())
    }

    #[test]
    fn a_sign_of_life_gives_time() -> Result {
        let bench = ClientBench::new()?;
        let deadlines = bench.deadlines()?;
        let (one, other) = (bench.send()?, bench.send()?);
        // Completions of other clients, for twice the timeout.
        for _ in 0..20 {
            fsleep(Delta::from_millis(100));
            assert!(!deadlines.is_lost());
            bench.target.note_completion(0, misc::millis());
        }
        // A completion of this client; the other request is still owed.
        deadlines.leave(&one);
        assert!(!deadlines.is_lost());
        assert!(wait_for(|| deadlines.is_lost()));
        assert_eq!(bench.counts(), [1, 1, 0]);
        // A completion of another client is a sign of life for all clients.
        bench.target.note_completion(0, misc::millis());
        assert!(wait_for(|| !deadlines.is_lost()));
        deadlines.leave(&other);
        Ok(())
    }

    #[test]
    fn a_shorter_timeout_is_in_effect_at_once() -> Result {
        let bench = ClientBench::new()?;
        let deadlines = bench.deadlines()?;
        let initial = |terms: &mut TimeoutTerms, seconds| {
            terms.initial = AtInitial::parse(seconds)?;
            Ok(())
        };
        change(&bench.timeouts, |terms| initial(terms, "3600"))?;
        deadlines.sync();
        let sent = bench.send()?;
        fsleep(Delta::from_millis(1_200));
        assert!(!deadlines.is_lost());
        change(&bench.timeouts, |terms| initial(terms, "1"))?;
        deadlines.sync();
        assert!(wait_for(|| deadlines.is_lost()));
        // Without timeouts no client is lost.
        change(&bench.timeouts, off)?;
        deadlines.sync();
        assert!(wait_for(|| !deadlines.is_lost()));
        deadlines.leave(&sent);
        assert!(wait_for(|| deadlines.is_asleep()));
        Ok(())
    }
}
