// SPDX-License-Identifier: GPL-2.0-only

//! Parameters by name: settings, refusals and displayed values.

use core::fmt;

use kernel::{prelude::*, str::CString};

use crate::{
    engine::{parameters, registry, service::Service},
    sched::{
        parameters::{all, AccessMode},
        slots::Slots,
    },
};

/// Content of `clients` for an unused service with 7 slots.
const CLIENTS: &str =
    "service: { slots: 7, limit: 7, active: 0, overflow: 0, no_memory: 0, stalls: 0, \
    factors_written: 0, factors_stale: 0, factors_lapsed: 0 }\n\
    clients: []\ntargets: []\n";

/// A mode with weights, and the displayed values of both afterwards.
const PAIR: &str = "gid_then_uid_fair weight=uid:1:2,gid:9:3";
const MODE: &str = "gid_then_uid_fair\n";
const WEIGHTS: &str = "uid:1:2\ngid:9:3\n";

/// Content of `nrs_tbf_rule` after one rule was started.
const RULES: &str = "regular_requests:\nCPT 0:\na uid={1} 5, ref 0\ndefault * 10000, ref 0\n\
    high_priority_requests:\nCPT 0:\na uid={1} 5, ref 0\ndefault * 10000, ref 0\n";

/// Displayed values of parameters with a value for each head.
const QUANTA: &str = "reg_quantum:16   \nhp_quantum:16   \n";
const OFFSETS: &str = "reg_offset_type:logical\nhp_offset_type:logical\n";
const SUPPORTED: &str = "reg_supported:reads\nhp_supported:writes\n";

/// A configuration of `qbm`, and its displayed form.
const PLAN: &str = "by uid # who\n\ngroup a  capacity=1M; ; client 5 class=fc min=50%\n";
const SHOWN_PLAN: &str = "by uid\ngroup a capacity=1MB/s\nclient 5 class=first_come min=50%\n";

/// Maximum length of the text of a parameter, bytes.
const TEXT_MAX: usize = 3456;

/// A text of limited length.
struct ShortText {
    bytes: [u8; TEXT_MAX],
    len: usize,
}

impl Default for ShortText {
    fn default() -> Self {
        Self {
            bytes: [0; TEXT_MAX],
            len: 0,
        }
    }
}

impl ShortText {
    fn is(&self, text: &str) -> bool {
        self.bytes.get(..self.len) == Some(text.as_bytes())
    }
}

impl fmt::Write for ShortText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.len.saturating_add(text.len());
        let place = self.bytes.get_mut(self.len..end).ok_or(fmt::Error)?;
        place.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}

#[kunit_tests(nrs_settings)]
mod names {
    use super::*;

    /// Verifies that a change of a service that was replaced meanwhile is refused, not lost.
    #[test]
    fn a_replaced_service_refuses_changes() -> Result {
        let old = registry::create(c"kunit-replaced", Some(1))?;
        parameters::set(&old, "slots", "5")?;
        let new = registry::recreate(&old, 1)?;
        let late = [
            ("slots", "6"),
            ("nrs_policies", "crrn"),
            ("buffer_max", "512"),
        ];
        let refused = late.map(|(name, text)| parameters::set(&old, name, text).err());
        let slots = new.values().service.slots;
        registry::remove(&new)?;
        assert!(refused
            .into_iter()
            .all(|error| error.map(|e| e.errno()) == Some(ENODEV)));
        assert!(slots == Slots::from_bits(5));
        Ok(())
    }

    #[test]
    fn parameters_are_set_and_shown() -> Result {
        let service = Service::new(c"kunit", Some(1))?;
        // Name, value, result, and displayed value if it is short. Host tests cover values out of
        // range.
        let cases: [(&str, &str, Result, &str); 56] = [
            ("slots", "7", Ok(()), "7\n"),
            ("stall_ms", "500\n", Ok(()), "500\n"),
            ("high_priority_ratio", "0", Ok(()), "0\n"),
            ("nrs_fairshare_delta_ms", "10", Ok(()), "10\n"),
            ("nrs_fairshare_mode", " uid_fair ", Ok(()), "uid_fair\n"),
            ("nrs_fairshare_weights", "-uid:1", Err(ENOENT), ""),
            ("nrs_fairshare_mode", PAIR, Ok(()), "gid_then_uid_fair\n"),
            ("nrs_fairshare_weights", "-uid:2", Err(ENOENT), WEIGHTS),
            (
                "nrs_fairshare_mode",
                "uid_fair weight=-gid:7",
                Err(ENOENT),
                MODE,
            ),
            ("nrs_fairshare_weights", "-uid:1,uid:1:2", Ok(()), WEIGHTS),
            ("nrs_fairshare_locality", "1", Ok(()), "1\n"),
            ("nrs_fairshare_slice_kib", "512", Ok(()), "512\n"),
            ("nrs_fairshare_cross_cpt", "0", Ok(()), "0\n"),
            ("nrs_fairshare_size_source", "suffix", Ok(()), "suffix\n"),
            ("nrs_fairshare_size_window_s", "60", Ok(()), "60\n"),
            ("nrs_fairshare_size_max", "64", Ok(()), "64\n"),
            ("nrs_policies", "fairshare size_fair", Ok(()), ""),
            ("nrs_fairshare_stats_reset", "1", Ok(()), "-"),
            ("nrs_fairshare_cross_cpt", "1", Ok(()), "1\n"),
            ("nrs_fairshare_weights", "clear", Ok(()), ""),
            ("nrs_tbf_stats_reset", "1", Ok(()), "-"),
            ("nrs_owners", "/b=3:4 /a=1:2", Ok(()), "/a=1:2\n/b=3:4\n"),
            ("nrs_owners", "-/c", Err(ENOENT), "/a=1:2\n/b=3:4\n"),
            ("nrs_owners", "clear", Ok(()), ""),
            ("nrs_fairshare_select", "paper", Ok(()), "paper\n"),
            ("nrs_fairshare_stats", "1", Err(EACCES), ""),
            ("clients", "1", Err(EACCES), CLIENTS),
            ("nrs_tbf_rule_error", "x", Err(EACCES), ""),
            ("nrs_policies", "tbf uid+nid", Ok(()), ""),
            ("nrs_tbf_rule", "start a uid={1} rate=5", Ok(()), RULES),
            ("nrs_tbf_rule", "change b rate=5", Err(ENOENT), RULES),
            ("nrs_tbf_rule", "stop b", Ok(()), RULES),
            ("nrs_tbf_rule_error", "x", Err(EACCES), ""),
            ("nrs_tbf_global_rate", "0", Ok(()), "0\n"),
            ("nrs_tbf_rule", "start a uid={1} rate=5", Err(EEXIST), RULES),
            ("nrs_crrn_quantum", "16", Ok(()), QUANTA),
            (
                "nrs_crrn_quantum",
                "reg_quantum:16 hp_quantum: 16",
                Ok(()),
                QUANTA,
            ),
            ("nrs_orr_offset_type", "logical", Ok(()), OFFSETS),
            (
                "nrs_trr_supported",
                "hp_supported:writes",
                Ok(()),
                SUPPORTED,
            ),
            ("nrs_delay_max", "4", Err(EINVAL), ""),
            ("nrs_policies", "delay", Ok(()), ""),
            ("nrs_delay_pct", "50", Ok(()), ""),
            ("nrs_policies", "orr reg", Ok(()), ""),
            ("nrs_orr_quantum", "1", Ok(()), ""),
            ("nrs_qbm_clients_max", "16", Ok(()), "16\n"),
            ("nrs_qbm_config", PLAN, Ok(()), SHOWN_PLAN),
            ("nrs_qbm_config", "by\ngroup a", Err(EINVAL), SHOWN_PLAN),
            ("nrs_policies", "qbm", Ok(()), ""),
            ("nrs_qbm_config", "group a", Err(EINVAL), SHOWN_PLAN),
            ("nrs_qbm_config", "by device", Ok(()), "by device\n"),
            ("nrs_qbm_config", PLAN, Ok(()), SHOWN_PLAN),
            ("nrs_qbm_stats_reset", "1", Ok(()), "-"),
            ("nrs_pop", "overlap", Ok(()), "overlap\n"),
            ("buffer_max", "256", Ok(()), "256\n"),
            ("high_priority_sources", "meta prio", Ok(()), "meta prio\n"),
            ("health", "1", Err(EACCES), "healthy\nnothing is queued\n"),
        ];
        for (name, value, came, shown) in cases {
            let got = parameters::set(&service, name, value);
            assert!(got.map_err(|refused| refused.errno()) == came);
            if shown == "-" {
                continue;
            }
            let mut text = ShortText::default();
            parameters::show(&service, name, &mut text)?;
            assert!(shown.is_empty() || text.is(shown));
        }
        parameters::set(&service, "nrs_policies", "fifo")?;
        for (name, want) in [("nrs_tbf_rule", ENODEV), ("no_such", ENOENT)] {
            let refused = parameters::set(&service, name, "stop a").err();
            assert!(refused.map(|refused| refused.errno()) == Some(want));
        }
        let write_only = parameters::show(
            &service,
            "nrs_fairshare_stats_reset",
            &mut ShortText::default(),
        );
        assert!(write_only == Err(EACCES));
        Ok(())
    }

    /// Verifies that each declared parameter is implemented: it can be read, or else written.
    #[test]
    fn all_parameters_are_served() -> Result {
        let service = Service::new(c"kunit", Some(1))?;
        parameters::set(&service, "nrs_policies", "tbf reg uid")?;
        parameters::set(&service, "nrs_policies", "qbm hp")?;
        for parameter in all() {
            assert!(parameters::serves(parameter) == Some(parameter.access));
            let done = if parameter.access.reads() {
                parameters::load(&service, parameter, &mut ShortText::default())
            } else {
                parameters::store(&service, parameter, "1").map_err(|refused| refused.errno())
            };
            if done.is_err() {
                pr_err!("{}: {:?}\n", parameter.name(), done);
            }
            assert!(done.is_ok());
        }
        Ok(())
    }

    /// Verifies that a service that replaces another one adopts all its values.
    #[test]
    fn all_values_are_adopted() -> Result {
        let service = Service::new(c"kunit", Some(1))?;
        for (name, value) in [
            ("nrs_crrn_quantum", "reg_quantum:3"),
            ("nrs_delay_min", "1"),
            ("nrs_fairshare_mode", "uid_fair weight=uid:5:7"),
            ("nrs_fairshare_delta_ms", "250"),
            ("nrs_qbm_config", PLAN),
            ("nrs_pop", "stream"),
            ("nrs_pop_window", "77"),
            ("buffer_max", "100000"),
            ("nrs_enforce_credits", "1"),
            ("at_min", "7"),
            ("at_count_policy_delay", "1"),
            ("at_unhealthy_factor", "9"),
            ("high_priority_sources", "meta"),
            ("high_priority_ratio", "4"),
            ("stall_ms", "0"),
            ("slots", "5"),
        ] {
            parameters::set(&service, name, value)?;
        }
        let other = Service::new(c"kunit", Some(1))?;
        other.adopt(&service);
        for parameter in all().filter(|parameter| parameter.access == AccessMode::Both) {
            let name = parameter.name();
            if ["config", "nrs_policies", "nrs_tbf_rule"].contains(&name) {
                continue;
            }
            let (mut own, mut adopted) = (ShortText::default(), ShortText::default());
            parameters::load(&service, parameter, &mut own)?;
            parameters::load(&other, parameter, &mut adopted)?;
            assert!(own.len == adopted.len && own.bytes == adopted.bytes);
        }
        // State that is read without the settings' mutex follows the values, too.
        let (new, old) = (other.dispatch(), service.dispatch());
        assert!(new.level() == old.level() && new.sources() == old.sources());
        assert!(new.pop_window() == 77 && new.slots().count() == 5);
        assert!(other.timeouts().terms() == service.timeouts().terms());
        Ok(())
    }

    #[test]
    fn a_client_name_is_escaped() -> Result {
        let service = Service::new(c"kunit", Some(1))?;
        let name = CString::try_from(c"a\nportal 0")?;
        let device = CString::try_from(c"7:0")?;
        let (client, target) = service.join(name, device, super::super::lower(c"7:1", 7, 1))?;
        let mut text = ShortText::default();
        let shown = parameters::show(&service, "client_timeouts", &mut text);
        service.leave(&client, &target);
        let expected = b"client: a\\x0aportal 0\nlast reply : ";
        assert!(shown.is_ok() && text.bytes.starts_with(expected));
        Ok(())
    }
}
