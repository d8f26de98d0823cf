// SPDX-License-Identifier: GPL-2.0-only

//! Life of an agent's file: bind, read accounts, set factors, close.

use kernel::{prelude::*, sync::Arc};

use crate::{
    engine::{
        parameters,
        service::{agent::Binding, Service},
    },
    sched::agent::FactorPairs,
    sys::series::ESTALE,
};

/// Returns the number of reported accounts, and their instance.
fn reported(binding: &mut Binding) -> Result<(usize, u64)> {
    binding.accounts(true, |head, changes| Ok((changes.count(), head.instance)))
}

/// Sets no factors; returns the result.
fn set(service: &Service, instance: u64) -> Result {
    let pairs = FactorPairs::new(0).map_err(|_| ENOMEM)?;
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
    fn accounts_and_factors_have_the_instance_of_the_policy() -> Result {
        let service = Service::new(c"kunit", Some(2))?;
        let mut binding = Binding::new(service.clone())?;
        let (count, instance) = reported(&mut binding)?;
        assert!(count == 0 && instance != 0);
        assert!(set(&service, instance) == Err(ESTALE));
        parameters::set(&service, "nrs_policies", "fairshare uid_fair")?;
        let (_, started) = reported(&mut binding)?;
        assert!(started != 0 && started != instance);
        set(&service, started)
    }
}
