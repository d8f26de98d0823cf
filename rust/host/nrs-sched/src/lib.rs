// SPDX-License-Identifier: GPL-2.0-only

//! The scheduling part of nrs for the host: the files that `nrs.ko` is made of, the same ones, and a
//! request type to drive them with ([`arena`]).
//!
//! Tests beside the code run here; those that take the whole part are in `tests/`.

/// The directory of the kernel module.
#[path = "../../.."]
mod module {
    pub(crate) mod sched;
}

pub(crate) use module::sched;

/// Makes the public items of modules of `sched` public here.
macro_rules! export {
    ($($module:ident),+ $(,)?) => {
        $(
            #[doc = concat!("See `rust/sched/", stringify!($module), ".rs`.")]
            pub mod $module {
                pub use crate::sched::$module::*;
            }
        )+
    };
}

export!(
    atomic, attr, class, control, credits, error, head, health, heap, item, jobid, key, leftist,
    mem, nid, order, parameters, ranges, rng, rules, slab, slots, sources, statistics, text, turns,
    units
);

/// See `rust/sched/qbm.rs`.
pub mod qbm {
    /// See `rust/sched/qbm/allocator.rs`.
    pub mod allocator {
        pub use crate::sched::qbm::allocator::*;
    }

    /// See `rust/sched/qbm/gate.rs`.
    pub mod gate {
        pub use crate::sched::qbm::gate::*;
    }

    /// See `rust/sched/qbm/manager.rs`.
    pub mod manager {
        pub use crate::sched::qbm::manager::*;
    }

    /// See `rust/sched/qbm/plan.rs`.
    pub mod plan {
        pub use crate::sched::qbm::plan::*;
    }

    /// See `rust/sched/qbm/terms.rs`.
    pub mod terms {
        pub use crate::sched::qbm::terms::*;
    }
}

/// See `rust/sched/timeouts.rs`.
pub mod timeouts {
    /// See `rust/sched/timeouts/in_flight.rs`.
    pub mod in_flight {
        pub use crate::sched::timeouts::in_flight::*;
    }

    /// See `rust/sched/timeouts/early.rs`.
    pub mod early {
        pub use crate::sched::timeouts::early::*;
    }

    /// See `rust/sched/timeouts/estimator.rs`.
    pub mod estimator {
        pub use crate::sched::timeouts::estimator::*;
    }

    /// See `rust/sched/timeouts/portal.rs`.
    pub mod portal {
        pub use crate::sched::timeouts::portal::*;
    }

    /// See `rust/sched/timeouts/recovery.rs`.
    pub mod recovery {
        pub use crate::sched::timeouts::recovery::*;
    }

    /// See `rust/sched/timeouts/report.rs`.
    pub mod report {
        pub use crate::sched::timeouts::report::*;
    }

    /// See `rust/sched/timeouts/terms.rs`.
    pub mod terms {
        pub use crate::sched::timeouts::terms::*;
    }
}

/// See `rust/sched/partition.rs`.
pub mod partition {
    pub use crate::sched::partition::*;
}

/// See `rust/sched/policy.rs`.
pub mod policy {
    pub use crate::sched::policy::*;

    /// See `rust/sched/policy/params.rs`.
    pub mod params {
        pub use crate::sched::policy::params::*;

        /// See `rust/sched/policy/params/heads.rs`.
        pub mod heads {
            pub use crate::sched::policy::params::heads::*;
        }
    }

    /// See `rust/sched/policy/robin.rs`.
    pub mod robin {
        pub use crate::sched::policy::robin::*;
    }

    /// See `rust/sched/policy/crrn.rs`.
    pub mod crrn {
        pub use crate::sched::policy::crrn::*;
    }

    /// See `rust/sched/policy/delay.rs`.
    pub mod delay {
        pub use crate::sched::policy::delay::*;

        /// See `rust/sched/policy/delay/params.rs`.
        pub mod params {
            pub use crate::sched::policy::delay::params::*;
        }
    }

    /// See `rust/sched/policy/orr.rs`.
    pub mod orr {
        pub use crate::sched::policy::orr::*;
    }

    /// See `rust/sched/policy/trr.rs`.
    pub mod trr {
        pub use crate::sched::policy::trr::*;
    }

    /// See `rust/sched/policy/fifo.rs`.
    pub mod fifo {
        pub use crate::sched::policy::fifo::*;
    }

    /// See `rust/sched/policy/fairshare.rs`.
    pub mod fairshare {
        pub use crate::sched::policy::fairshare::*;

        /// See `rust/sched/policy/fairshare/factors.rs`.
        pub mod factors {
            pub use crate::sched::policy::fairshare::factors::*;
        }

        /// See `rust/sched/policy/fairshare/ledger.rs`.
        pub mod ledger {
            pub use crate::sched::policy::fairshare::ledger::*;
        }

        /// See `rust/sched/policy/fairshare/locality.rs`.
        pub mod locality {
            pub use crate::sched::policy::fairshare::locality::*;
        }

        /// See `rust/sched/policy/fairshare/mode.rs`.
        pub mod mode {
            pub use crate::sched::policy::fairshare::mode::*;
        }

        /// See `rust/sched/policy/fairshare/params.rs`.
        pub mod params {
            pub use crate::sched::policy::fairshare::params::*;
        }

        /// See `rust/sched/policy/fairshare/shared.rs`.
        pub mod shared {
            pub use crate::sched::policy::fairshare::shared::*;
        }

        /// See `rust/sched/policy/fairshare/size.rs`.
        pub mod size {
            pub use crate::sched::policy::fairshare::size::*;
        }

        /// See `rust/sched/policy/fairshare/stats.rs`.
        pub mod stats {
            pub use crate::sched::policy::fairshare::stats::*;
        }

        /// See `rust/sched/policy/fairshare/weights.rs`.
        pub mod weights {
            pub use crate::sched::policy::fairshare::weights::*;
        }
    }

    /// See `rust/sched/policy/qbm.rs`.
    pub mod qbm {
        pub use crate::sched::policy::qbm::*;

        /// See `rust/sched/policy/qbm/params.rs`.
        pub mod params {
            pub use crate::sched::policy::qbm::params::*;
        }
    }

    /// See `rust/sched/policy/tbf.rs`.
    pub mod tbf {
        pub use crate::sched::policy::tbf::*;

        /// See `rust/sched/policy/tbf/params.rs`.
        pub mod params {
            pub use crate::sched::policy::tbf::params::*;
        }

        /// See `rust/sched/policy/tbf/plan.rs`.
        pub mod plan {
            pub use crate::sched::policy::tbf::plan::Count;
        }

        /// See `rust/sched/policy/tbf/record.rs`.
        pub mod record {
            pub use crate::sched::policy::tbf::record::ClassCounts;
        }

        /// See `rust/sched/policy/tbf/stats.rs`.
        pub mod stats {
            pub use crate::sched::policy::tbf::stats::*;
        }
    }
}

pub mod arena;
pub mod bandwidth;
pub mod crowd;
pub mod disk;
pub mod network;
pub mod scale;
pub mod server;
pub mod sim;
