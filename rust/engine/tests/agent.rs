// SPDX-License-Identifier: GPL-2.0-only

//! Life of an agent: bind, set factors, close.

use kernel::{prelude::*, sync::Arc};

use crate::{
    engine::{
        parameters,
        service::{agent::Binding, Service},
    },
    sched::{agent::FactorPairs, units::NSEC_PER_SEC},
    sys::{misc, series::ESTALE},
};

/// Returns the number of reported accounts, and their instance.
fn reported(binding: &mut Binding) -> Result<(usize, u64)> {
    binding.accounts(true, |head, changes| Ok((changes.count(), head.instance)))
}

/// Sets `count` factors of unknown ids; returns the result.
fn set(service: &Service, instance: u64, count: usize) -> Result {
    let mut pairs = FactorPairs::new(count).map_err(|_| ENOMEM)?;
    for id in 1..=count as u64 {
        pairs.push(id, 1).map_err(|_| EINVAL)?;
    }
    let set = service.set_factors(instance, 60_000, pairs);
    set.map_err(|refused| refused.errno())
}

#[kunit_tests(nrs_agent)]
mod life {
    use super::*;

    #[test]
    fn one_file_is_bound() -> Result {
        let service = Service::new(c"kunit", Some(2))?;
        let first = Binding::new(service.clone())?;
        let second = Binding::new(service.clone()).err();
        assert!(second.map(|refused| refused.errno()) == Some(EBUSY));
        assert!(Arc::ptr_eq(first.service(), &service));
        drop(first);
        let _third = Binding::new(service)?;
        Ok(())
    }

    #[test]
    fn factors_are_for_one_instance() -> Result {
        let service = Service::new(c"kunit", Some(2))?;
        let mut binding = Binding::new(service.clone())?;
        let (count, instance) = reported(&mut binding)?;
        assert!(count == 0 && instance != 0);
        // No part takes factors.
        assert!(set(&service, instance, 1) == Err(ESTALE));
        parameters::set(&service, "nrs_policies", "fairshare uid_fair")?;
        let (_, started) = reported(&mut binding)?;
        assert!(started != 0 && started != instance);
        assert!(set(&service, instance, 1) == Err(ESTALE));
        set(&service, started, 1)?;
        // Changes of running parts keep the instance.
        parameters::set(&service, "nrs_fairshare_weights", "uid:5:7")?;
        parameters::set(&service, "nrs_fairshare_delta_ms", "50")?;
        parameters::set(&service, "slots", "5")?;
        set(&service, started, 0)?;
        assert!(reported(&mut binding)?.1 == started);
        let counted = service.agent().counted(misc::now());
        assert!((counted.written, counted.stale, counted.lapsed) == (2, 2, 0));
        parameters::set(&service, "nrs_fairshare_cost_model", "rpcs")?;
        assert!(set(&service, started, 1) == Err(ESTALE));
        let (_, again) = reported(&mut binding)?;
        assert!(again != started);
        // The factors of the previous instance were dropped, and did not lapse.
        assert!(service.agent().counted(misc::now()).lapsed == 0);
        set(&service, again, 1)?;
        drop(binding);
        let counted = service.agent().counted(misc::now());
        assert!((counted.written, counted.stale, counted.lapsed) == (3, 3, 1));
        Ok(())
    }

    /// Verifies that a lapsed lease of one minute counts once.
    #[test]
    fn a_lapse_counts_once() -> Result {
        let service = Service::new(c"kunit", Some(2))?;
        let mut binding = Binding::new(service.clone())?;
        parameters::set(&service, "nrs_policies", "fairshare uid_fair")?;
        let (_, started) = reported(&mut binding)?;
        set(&service, started, 1)?;
        let agent = service.agent();
        let now = misc::now();
        let later = now.saturating_add(61 * NSEC_PER_SEC);
        // The lease ends during a timely renewal, which fails.
        let failed = agent.renew(|| {
            agent.look(later);
            Err(ENOMEM)
        });
        assert!(failed == Err(ENOMEM) && agent.counted(now).lapsed == 0);
        // Concurrent calls: the caller that read the clock first comes last.
        for at in [later, now, later] {
            assert!(agent.counted(at).lapsed == 1);
        }
        Ok(())
    }
}
