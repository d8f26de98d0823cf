// SPDX-License-Identifier: GPL-2.0-only

//! Statistics of the module: one row declares one number.
//!
//! [`stats!`] generates a struct with a field for each row of a table. A row defines the counter
//! field, the line in the text of the module, and the key in snapshots and JSON of `nrsctl`. It
//! also defines the metric of the exporter, and the line of `Documentation/metrics.md`. A new
//! counter is a row and the line of code that counts; see `Documentation/design.md`, "How to add a
//! counter".
//!
//! The tables of policies are in the modules of the policies; all other tables are in this file.

use crate::sched::count::Count;
/// Behaviour of a number over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatKind {
    /// Increases until a reset.
    Counter,
    /// Increases and decreases.
    Gauge,
    /// Gauge of which the largest of several counts, and not the sum.
    Maximum,
}

impl StatKind {
    /// Adds the number `more` of another object to `sum`.
    fn merge(self, sum: &mut u64, more: u64) {
        match self {
            Self::Counter | Self::Gauge => sum.count(more),
            Self::Maximum => *sum = more.max(*sum),
        }
    }
}

/// Unit of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatUnit {
    /// Requests, bytes, events: exported unchanged.
    Plain,
    /// Cost in the unit of a rule or policy: key `cost` in snapshots, exported in bytes if the unit
    /// allows.
    Cost,
    /// Nanoseconds, exported in seconds.
    Ns,
    /// Microseconds, exported in seconds.
    Us,
    /// Milliseconds, exported in seconds.
    Ms,
}

/// Row of a table: properties of one number.
#[derive(Debug, PartialEq, Eq)]
pub struct Stat {
    /// Name in texts.
    pub name: &'static str,
    /// Behaviour over time.
    pub kind: StatKind,
    /// Unit.
    pub unit: StatUnit,
    /// Name of the metric; `*` stands for the kind of exported object (`rule`, `entity`); empty if
    /// the number is not exported.
    pub metric: &'static str,
    /// Label that distinguishes the number from others of its metric; at most one.
    pub labels: &'static [(&'static str, &'static str)],
    /// Help text without the full stop.
    pub help: &'static str,
}

impl Stat {
    /// Returns the key in snapshots and JSON of nrsctl.
    #[cfg(not(MODULE))]
    pub fn key(&self) -> &'static str {
        match self.unit {
            StatUnit::Cost => "cost",
            _ => self.name,
        }
    }
}

/// Numbers of a table, read at one time.
pub trait Stats {
    /// Rows of the table.
    const ROWS: &'static [Stat];

    /// Returns the numbers in the order of the rows.
    fn values(&self) -> impl Iterator<Item = u64>;

    /// Returns the numbers in the order of the rows, for writing.
    fn values_mut(&mut self) -> impl Iterator<Item = &mut u64>;

    /// Adds the numbers of `other`.
    fn merge(&mut self, other: &Self) {
        for (sum, (stat, more)) in self.values_mut().zip(other.pairs()) {
            stat.kind.merge(sum, more);
        }
    }

    /// Adds the numbers to `sums`, which are in the order of the rows.
    fn add_to(&self, sums: &mut [u64]) {
        for (sum, (stat, value)) in sums.iter_mut().zip(self.pairs()) {
            stat.kind.merge(sum, value);
        }
    }

    /// Returns the rows and their numbers.
    fn pairs(&self) -> impl Iterator<Item = (&'static Stat, u64)> {
        Self::ROWS.iter().zip(self.values())
    }
}

/// Declares a table: a struct with a field of type `T` for each row `FIELD: KIND UNIT
/// METRIC{LABEL=VALUE} HELP;`.
macro_rules! stats {
    ($(#[$doc:meta])* $table:ident { $(
        $field:ident: $kind:ident $unit:ident $metric:literal
            $({ $label:ident = $value:literal })? $help:literal;
    )+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $table<T = u64> {
            $(#[doc = concat!($help, ".")] pub $field: T,)+
        }

        impl $table {
            /// Table with all numbers 0.
            #[allow(dead_code, reason = "some tables need none")]
            pub const ZERO: Self = Self { $($field: 0,)+ };
        }

        impl<T> $table<T> {
            /// Applies `f` to each number.
            #[allow(dead_code, reason = "some tables need no numbers of another type")]
            pub fn map<U>(&self, f: impl Fn(&T) -> U) -> $table<U> {
                $table { $($field: f(&self.$field),)+ }
            }
        }

        impl $crate::sched::statistics::Stats for $table {
            const ROWS: &'static [$crate::sched::statistics::Stat] =
                &[$($crate::sched::statistics::Stat {
                    name: stringify!($field),
                    kind: $crate::sched::statistics::StatKind::$kind,
                    unit: $crate::sched::statistics::StatUnit::$unit,
                    metric: $metric,
                    labels: &[$((stringify!($label), $value))?],
                    help: $help,
                },)+];

            fn values(&self) -> impl Iterator<Item = u64> {
                [$(self.$field,)+].into_iter()
            }

            fn values_mut(&mut self) -> impl Iterator<Item = &mut u64> {
                [$(&mut self.$field,)+].into_iter()
            }
        }
    };
}
pub(crate) use stats;

stats! {
    /// Numbers of a service (`clients`).
    ServiceCounts {
        slots: Gauge Plain "nrs_service_slots" "Configured slots";
        limit: Gauge Plain "nrs_service_slots_limit" "Effective slots";
        active: Gauge Plain "nrs_service_slots_used" "Slots in use";
        overflow: Counter Plain "nrs_service_overflow_requests_total"
            "Requests in a shared class for lack of space or memory";
        no_memory: Counter Plain "nrs_service_allocation_failures_total"
            "Failed allocations for new classes";
        stalls: Counter Plain "nrs_service_stalls_total" "Dispatches without slots after stall_ms";
        factors_written: Counter Plain "nrs_service_factors_total"{result="written"}
            "Writes of factors by an agent";
        factors_stale: Counter Plain "nrs_service_factors_total"{result="stale"}
            "Refused writes of factors for another instance";
        factors_lapsed: Counter Plain "nrs_service_factor_leases_lapsed_total"
            "Expired leases of factors";
    }
}

stats! {
    /// Counters of the timeouts of a service (`at_stats`).
    TimeoutCounts {
        early_sent: Counter Plain "nrs_timeout_early_replies_total"{result="sent"}
            "Deadlines extended by early replies";
        early_refused: Counter Plain "nrs_timeout_early_replies_total"{result="refused"}
            "Deadlines that could not be extended";
        early_late: Counter Plain "nrs_timeout_early_replies_total"{result="late"}
            "Deadlines extended after they passed";
        timeouts: Counter Plain "nrs_timeout_requests_total"
            "Requests past their deadline, or in flight when a client was lost";
        lost: Counter Plain "nrs_timeout_clients_lost_total" "Lost clients";
        found: Counter Plain "nrs_timeout_clients_found_total" "Recovered clients";
        withheld_ms: Counter Ms "nrs_timeout_withheld_seconds_total"
            "Policy delays, excluded from service times";
    }
}

stats! {
    /// Numbers of the requests of programs (`nrs_concurrency`).
    ConcurrencyCounts {
        fan_out: Gauge Plain "nrs_concurrency_clients" "Active clients";
        credits: Gauge Plain "nrs_concurrency_credits"{priority="normal"}
            "Request limit of a client";
        credits_high: Gauge Plain "nrs_concurrency_credits"{priority="urgent"}
            "Request limit of an urgent client";
        pool: Gauge Plain "nrs_concurrency_pool_requests" "Requests distributed as credits";
        buffer_max: Gauge Plain "nrs_buffer_limit_requests"
            "Limit of requests of /dev/nrs, buffer_max";
        requests: Gauge Plain "nrs_buffer_requests" "Requests of /dev/nrs";
        waits: Counter Plain "nrs_buffer_waits_total" "Requests that waited for buffer space";
        over: Counter Plain "nrs_buffer_over_total" "Requests in excess of credits";
    }
}

stats! {
    /// Numbers of the records of requests (`nrs_concurrency`).
    OrderCounts {
        records: Gauge Plain "nrs_order_records" "Records of ordered or sorted requests";
        blocked: Gauge Plain "nrs_order_blocked_requests" "Requests blocked by predecessors";
        overflowed: Gauge Plain "nrs_order_overflowed_requests" "Requests waiting for a record";
        overflows: Counter Plain "nrs_order_overflows_total" "Requests that waited for a record";
    }
}

stats! {
    /// Numbers of a client (`clients`).
    ClientCounts {
        passed: Counter Plain "nrs_client_passed_requests_total" "Requests dispatched immediately";
        queued: Counter Plain "nrs_client_queued_requests_total" "Requests that were queued";
        held: Gauge Plain "nrs_client_held_requests" "Queued requests";
        ended: Counter Plain "nrs_client_ended_requests_total" "Completed requests";
        failed: Counter Plain "nrs_client_failed_requests_total" "Requests completed with an error";
        bytes: Counter Plain "nrs_client_served_bytes_total" "Bytes of completed requests";
        forced: Counter Plain "nrs_client_forced_requests_total"
            "Requests dispatched without queueing";
        anonymous: Counter Plain "nrs_client_anonymous_requests_total"
            "Requests without a known owner";
        by_cgroup: Counter Plain "nrs_client_cgroup_requests_total"
            "Requests whose owner is known by the cgroup";
        by_map: Counter Plain "nrs_client_mapped_requests_total"
            "Requests whose owner is that of the cgroup in nrs_owners";
        ost_read: Counter Plain "nrs_client_operations_total"{operation="read"} "Reads";
        ost_write: Counter Plain "nrs_client_operations_total"{operation="write"} "Writes";
        ost_punch: Counter Plain "nrs_client_operations_total"{operation="punch"} "Punches";
        ost_sync: Counter Plain "nrs_client_operations_total"{operation="sync"} "Flushes";
        other: Counter Plain "nrs_client_operations_total"{operation="other"} "Other operations";
        credits: Gauge Plain "nrs_client_credits_requests"
            "Request limit of the client, or of each client of the file";
    }
}

stats! {
    /// Counters of the deadlines of a client that is a block device (`clients`).
    DeadlineCounts {
        timeouts: Counter Plain "nrs_client_timeouts_total"
            "Requests in flight when the client was lost";
        lost: Counter Plain "nrs_client_losses_total" "Losses of the client";
        found: Counter Plain "" "Recoveries of the client";
    }
}

stats! {
    /// Numbers of a target device (`clients`).
    TargetCounts {
        users: Gauge Plain "nrs_target_clients" "Clients on the device";
        limit: Gauge Plain "nrs_target_limit_requests" "Request limit of the device";
        active: Gauge Plain "nrs_target_active_requests" "Requests in flight";
        knee: Gauge Plain "nrs_target_knee_requests"
            "Requests that keep the device busy, with slots=auto";
        searching: Gauge Plain "nrs_target_knee_searching" "1 during a search for the knee";
        knee_rate: Gauge Plain "nrs_target_knee_requests_per_second"
            "Request rate at the knee (0 before the first search has completed)";
        knee_bytes: Gauge Plain "nrs_target_knee_bytes_per_second" "Byte rate at the knee";
    }
}

stats! {
    /// Numbers of a client of qbm, as in snapshots of nrsctl.
    BandwidthCounts {
        dispatched: Counter Plain "nrs_entity_dispatched_requests_total" "Dispatched requests";
        cost: Counter Cost "nrs_entity_served_bytes_total" "Bytes of the dispatched requests";
        limit_hits: Counter Plain "nrs_entity_limit_hits_total"
            "Number of times the client was throttled";
    }
}
