// SPDX-License-Identifier: GPL-2.0-only

//! The tunables of a service by name: one table for every way to reach them.
//!
//! debugfs makes one file per line ([`crate::control::debugfs`]); device-mapper messages go through
//! [`command`] and [`show`]. A value is one line of text; blanks around it do not count. Only a configuration
//! of `qbm` may have several lines.
//!
//! # Context
//!
//! Everything here may sleep, and must not be called with the registry locked: it is waited for under that
//! lock.

use core::fmt::{Display, Write};

use kernel::prelude::*;

use super::{errno, service::Service};
use crate::sched::{
    error::Result as Refusable,
    health::Factor,
    order::{Level, PopWindow},
    parameters::{self, Parameter, PARAMETERS},
    policy::{
        crrn, delay,
        fairshare::params::{
            CostModel, CrossCpt, DeltaMs, Locality, OppThreshold, Select, SizeMax, SizeSource,
            SizeWindowS,
        },
        orr,
        params::BufferMax,
        qbm::params as qbm,
        robin::params as robin,
        tbf::params as tbf,
        trr, Kind,
    },
    qbm::plan,
    sources::Sources,
    text,
    timeouts::terms::{
        AtCountPolicyDelay, AtDeviations, AtEarlyMargin, AtEstimator, AtExtra, AtFactor, AtHistory,
        AtIncrement, AtInitial, AtMax, AtMin, ObdTimeout,
    },
};

/// Bytes that most values may have.
const COMMAND_MAX: usize = 4095;

/// Writes a value.
type Show = fn(&Service, &mut dyn Write) -> Result;

/// Takes a value.
type Store = fn(&Service, &str) -> Result;

/// A tunable.
pub(crate) struct Tunable {
    /// Its name.
    pub(crate) name: &'static CStr,
    /// Writes its value, if it can be read.
    pub(crate) show: Option<Show>,
    /// Takes a value, if it can be written.
    pub(crate) store: Option<Store>,
    /// Bytes that a value may have.
    pub(crate) most: usize,
    /// Says whether a value may be taken of which there are only the first lines so far. With it, what is
    /// written to a file is taken when the file is closed; without, each write is a value.
    pub(crate) check: Option<Store>,
}

impl Tunable {
    /// The parameter `name` of the table, which says whether it has to have these; evaluated when the module is
    /// compiled.
    const fn new(name: &'static CStr, show: Option<Show>, store: Option<Store>) -> Self {
        let Some(parameter) = parameters::find(name.to_bytes()) else {
            panic!("not in the table of parameters")
        };
        assert!(parameter.access.reads() == show.is_some());
        assert!(parameter.access.writes() == store.is_some());
        Self {
            name: parameter.name,
            show,
            store,
            most: COMMAND_MAX,
            check: None,
        }
    }

    /// One that can be read and written.
    const fn both(name: &'static CStr, show: Show, store: Store) -> Self {
        Self::new(name, Some(show), Some(store))
    }

    /// One that can be read.
    const fn shown(name: &'static CStr, show: Show) -> Self {
        Self::new(name, Some(show), None)
    }

    /// One that does something when it is written, whatever that is.
    const fn done(name: &'static CStr, act: Store) -> Self {
        Self::new(name, None, Some(act))
    }

    /// The same for values of several lines and up to `most` bytes.
    const fn in_lines(self, most: usize, check: Store) -> Self {
        Self {
            most,
            check: Some(check),
            ..self
        }
    }
}

/// One tunable of a policy: the policy, the name, the field, and how text becomes a value of it.
macro_rules! tunable {
    ($policy:ident, $name:literal, $field:ident, $parse:expr) => {
        Tunable::both(
            $name,
            |service, out| line(out, service.tunables().$policy.$field),
            |service, value| {
                service.update_tunables(|tunables| {
                    tunables.$policy.$field = $parse(value.trim())?;
                    Ok(())
                })
            },
        )
    };
}

/// One tunable of a policy with a value for each head: the policy, the name, the field, and its text form.
macro_rules! per_head {
    ($policy:ident, $name:literal, $field:ident, $form:expr) => {
        per_head!($policy, $name, $field, $form, |tunables, value| {
            let (name, longest) = $form;
            tunables.$field = tunables.$field.with(name, longest, value)?;
            Ok(())
        })
    };
    ($policy:ident, $name:literal, $field:ident, $form:expr, $set:expr) => {
        Tunable::both(
            $name,
            |service, out| {
                let tunables = service.tunables().$policy;
                tunables.$field.write($form.0, out).map_err(|_| ENOSPC)
            },
            |service, value| {
                let set: fn(&mut $policy::Tunables, &str) -> Refusable = $set;
                service.update_tunables(|tunables| set(&mut tunables.$policy, value))
            },
        )
    };
}

/// One of the terms of timeouts: the name, the field, and how text becomes a value of it.
macro_rules! term {
    ($name:literal, $field:ident, $parse:expr) => {
        Tunable::both(
            $name,
            |service, out| line(out, service.timeouts().terms().$field),
            |service, value| {
                service.change_terms(|terms| {
                    terms.$field = $parse(value.trim())?;
                    Ok(())
                })
            },
        )
    };
}

/// One tunable of the service itself: the name, how it is read, how text becomes a value, how that is set.
macro_rules! own {
    ($name:literal, $get:ident, $parse:expr, $set:expr) => {
        Tunable::both(
            $name,
            |service, out| line(out, service.$get()),
            |service, value| $set(service, $parse(value.trim()).map_err(errno)?),
        )
    };
}

/// All tunables, those of [`PARAMETERS`] in the same order.
pub(crate) static TUNABLES: [Tunable; PARAMETERS.len()] = [
    Tunable::both(
        c"nrs_policies",
        |service, out| service.write_policies(out),
        |service, value| service.set_policy(value.trim()),
    ),
    per_head!(crrn, c"nrs_crrn_quantum", quantum, robin::QUANTUM),
    per_head!(orr, c"nrs_orr_quantum", quantum, robin::QUANTUM),
    per_head!(orr, c"nrs_orr_offset_type", offset_type, robin::OFFSET_TYPE),
    per_head!(orr, c"nrs_orr_supported", supported, robin::SUPPORTED),
    per_head!(trr, c"nrs_trr_quantum", quantum, robin::QUANTUM),
    per_head!(trr, c"nrs_trr_offset_type", offset_type, robin::OFFSET_TYPE),
    per_head!(trr, c"nrs_trr_supported", supported, robin::SUPPORTED),
    per_head!(
        delay,
        c"nrs_delay_min",
        min,
        delay::params::MIN,
        delay::Tunables::set_min
    ),
    per_head!(
        delay,
        c"nrs_delay_max",
        max,
        delay::params::MAX,
        delay::Tunables::set_max
    ),
    per_head!(
        delay,
        c"nrs_delay_pct",
        pct,
        delay::params::PCT,
        delay::Tunables::set_pct
    ),
    Tunable::both(
        c"nrs_fairshare_mode",
        |service, out| line(out, service.tunables().fairshare.mode),
        |service, value| service.set_mode(value.trim()),
    ),
    Tunable::both(
        c"nrs_fairshare_weights",
        |service, out| service.write_weights(out),
        |service, value| service.set_weights(value.trim()),
    ),
    tunable!(
        fairshare,
        c"nrs_fairshare_delta_ms",
        delta_ms,
        DeltaMs::parse
    ),
    tunable!(
        fairshare,
        c"nrs_fairshare_opp_threshold",
        opp_threshold,
        OppThreshold::parse
    ),
    tunable!(
        fairshare,
        c"nrs_fairshare_cost_model",
        cost_model,
        CostModel::parse
    ),
    tunable!(fairshare, c"nrs_fairshare_select", select, Select::parse),
    tunable!(
        fairshare,
        c"nrs_fairshare_locality",
        locality,
        Locality::parse
    ),
    tunable!(
        fairshare,
        c"nrs_fairshare_cross_cpt",
        cross_cpt,
        CrossCpt::parse
    ),
    tunable!(
        fairshare,
        c"nrs_fairshare_size_source",
        size_source,
        SizeSource::parse
    ),
    tunable!(
        fairshare,
        c"nrs_fairshare_size_window_s",
        size_window_s,
        SizeWindowS::parse
    ),
    tunable!(
        fairshare,
        c"nrs_fairshare_size_max",
        size_max,
        SizeMax::parse
    ),
    Tunable::shown(c"nrs_fairshare_stats", |service, out| {
        service.write_stats(out)
    }),
    Tunable::done(c"nrs_fairshare_stats_reset", |service, _| {
        service.reset_stats(Kind::Fairshare);
        Ok(())
    }),
    Tunable::both(
        c"nrs_tbf_rule",
        |service, out| service.write_rules(out),
        |service, value| service.command_rules(value),
    ),
    Tunable::shown(c"nrs_tbf_rule_error", |service, out| {
        service.write_rule_error(out)
    }),
    tunable!(tbf, c"nrs_tbf_rate", rate, tbf::Rate::parse),
    tunable!(tbf, c"nrs_tbf_depth", depth, tbf::Depth::parse),
    tunable!(
        tbf,
        c"nrs_tbf_cost_model",
        cost_model,
        tbf::CostModel::parse
    ),
    tunable!(
        tbf,
        c"nrs_tbf_global_rate",
        global_rate,
        tbf::GlobalRate::parse
    ),
    tunable!(tbf, c"nrs_tbf_rules_max", rules_max, tbf::RulesMax::parse),
    tunable!(
        tbf,
        c"nrs_tbf_cache_size",
        cache_size,
        tbf::CacheSize::parse
    ),
    Tunable::shown(c"nrs_tbf_stats", |service, out| {
        service.write_tbf_stats(out)
    }),
    Tunable::done(c"nrs_tbf_stats_reset", |service, _| {
        service.reset_stats(Kind::Tbf);
        Ok(())
    }),
    Tunable::both(
        c"nrs_qbm_config",
        |service, out| service.write_plan(out),
        |service, value| service.set_plan(value),
    )
    .in_lines(plan::TEXT_MAX, |service, value| service.check_plan(value)),
    Tunable::shown(c"nrs_qbm_config_error", |service, out| {
        service.write_plan_error(out)
    }),
    tunable!(
        qbm,
        c"nrs_qbm_clients_max",
        clients_max,
        qbm::ClientsMax::parse
    ),
    Tunable::shown(c"nrs_qbm_status", |service, out| {
        service.write_bandwidth(out)
    }),
    Tunable::shown(c"nrs_qbm_stats", |service, out| {
        service.write_bandwidth_stats(out)
    }),
    Tunable::done(c"nrs_qbm_stats_reset", |service, _| {
        service.reset_bandwidth_stats();
        Ok(())
    }),
    own!(
        c"nrs_pop",
        level,
        Level::parse,
        |service: &Service, level| {
            service.set_level(level);
            Ok(())
        }
    ),
    own!(
        c"nrs_pop_window",
        pop_window,
        PopWindow::parse,
        |service: &Service, window| {
            service.set_pop_window(window);
            Ok(())
        }
    ),
    own!(
        c"buffer_max",
        buffer_max,
        BufferMax::parse,
        Service::set_buffer_max
    ),
    Tunable::shown(c"nrs_concurrency", |service, out| {
        service.write_concurrency(out)
    }),
    Tunable::shown(c"health", |service, out| service.write_health(out)),
    term!(c"at_min", min, AtMin::parse),
    term!(c"at_max", max, AtMax::parse),
    term!(c"at_history", history, AtHistory::parse),
    term!(c"at_extra", extra, AtExtra::parse),
    term!(c"at_early_margin", early_margin, AtEarlyMargin::parse),
    term!(c"at_factor", factor, AtFactor::parse),
    term!(c"at_increment", increment, AtIncrement::parse),
    term!(c"at_initial", initial, AtInitial::parse),
    term!(c"at_deviations", deviations, AtDeviations::parse),
    term!(c"at_estimator", estimator, AtEstimator::parse),
    term!(
        c"at_count_policy_delay",
        count_policy_delay,
        AtCountPolicyDelay::parse
    ),
    term!(c"obd_timeout", fixed, ObdTimeout::parse),
    Tunable::shown(c"timeouts", |service, out| service.timeouts().write(out)),
    Tunable::shown(c"client_timeouts", |service, out| {
        service.write_client_timeouts(out)
    }),
    Tunable::shown(c"at_stats", |service, out| {
        service.timeouts().write_counts(out)
    }),
    Tunable::done(c"at_stats_reset", |service, _| {
        service.timeouts().reset();
        Ok(())
    }),
    own!(
        c"at_unhealthy_factor",
        unhealthy_factor,
        Factor::parse,
        |service: &Service, factor| {
            service.set_unhealthy_factor(factor);
            Ok(())
        }
    ),
    own!(
        c"high_priority_sources",
        sources,
        Sources::parse,
        |service: &Service, sources| {
            service.set_sources(sources);
            Ok(())
        }
    ),
    Tunable::both(
        c"high_priority_ratio",
        |service, out| line(out, service.ratio()),
        |service, value| {
            service.set_ratio(text::parse_ratio(value).map_err(errno)?);
            Ok(())
        },
    ),
    Tunable::both(
        c"stall_ms",
        |service, out| line(out, service.stall_ms()),
        |service, value| {
            service.set_stall_ms(text::parse_stall_ms(value).map_err(errno)?);
            Ok(())
        },
    ),
    Tunable::both(
        c"slots",
        |service, out| line(out, service.slots()),
        |service, value| service.set_slots(text::parse_slots(value).map_err(errno)?),
    ),
    Tunable::shown(c"clients", |service, out| service.write_clients(out)),
];

// Each line of the table is here once, at its place.
const _: () = {
    let (mut tunables, mut parameters): (&[Tunable], &[Parameter]) = (&TUNABLES, &PARAMETERS);
    while let ([tunable, others @ ..], [parameter, rest @ ..]) = (tunables, parameters) {
        assert!(parameter.is(tunable.name.to_bytes()));
        (tunables, parameters) = (others, rest);
    }
};

/// Sets the tunable `name` of `service` to `value`.
///
/// # Errors
///
/// - `ENOENT`: there is no such tunable.
/// - `EACCES`: it cannot be written.
/// - `E2BIG`: the value has more bytes than the tunable takes.
/// - What the tunable says of the value, mostly `EINVAL`.
pub(crate) fn command(service: &Service, name: &str, value: &str) -> Result {
    let tunable = find(name)?;
    let store = tunable.store.ok_or(EACCES)?;
    if value.len() > tunable.most {
        return Err(E2BIG);
    }
    store(service, value)
}

/// Writes the value of the tunable `name` of `service` to `out`.
///
/// # Errors
///
/// - `ENOENT`: there is no such tunable.
/// - `EACCES`: it cannot be read.
/// - `ENOSPC`: `out` is full.
/// - What the tunable returns.
pub(crate) fn show(service: &Service, name: &str, out: &mut dyn Write) -> Result {
    let show = find(name)?.show.ok_or(EACCES)?;
    show(service, out)
}

fn find(name: &str) -> Result<&'static Tunable> {
    TUNABLES
        .iter()
        .find(|tunable| tunable.name.to_bytes() == name.as_bytes())
        .ok_or(ENOENT)
}

fn line(out: &mut dyn Write, value: impl Display) -> Result {
    writeln!(out, "{value}").map_err(|_| ENOSPC)
}
