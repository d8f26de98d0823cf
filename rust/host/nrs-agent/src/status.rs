// SPDX-License-Identifier: GPL-2.0-only

//! Status of an agent, which its [`crate::socket`] sends as JSON.
//!
//! A row of [`numbers!`] defines a number: its key in JSON, its metric, and its help text.

use nrs_sched::statistics::{Stat, StatKind, StatUnit};
use serde::{Deserialize, Serialize};

/// Declares a table: a struct with a field per row `FIELD: KIND UNIT METRIC{LABEL=VALUE} HELP;`.
macro_rules! numbers {
    ($(#[$doc:meta])* $table:ident { $(
        $field:ident: $kind:ident $unit:ident $metric:literal
            $({ $label:ident = $value:literal })? $help:literal;
    )+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct $table {
            $(#[doc = concat!($help, ".")] pub $field: u64,)+
        }

        impl $table {
            /// Rows of the table.
            pub const ROWS: &'static [Stat] = &[$(Stat {
                name: stringify!($field),
                kind: StatKind::$kind,
                unit: StatUnit::$unit,
                metric: $metric,
                labels: &[$((stringify!($label), $value))?],
                help: $help,
            },)+];
        }
    };
}

numbers! {
    /// Numbers of a service.
    ServiceNumbers {
        bound: Gauge Plain "nrs_agent_bound" "1 if the agent is bound to the service";
        known: Gauge Plain "nrs_agent_entities" "Entities of the service on this server";
        lowered: Gauge Plain "nrs_agent_entities_lowered" "Entities with a factor below 1";
        servers: Gauge Plain "nrs_agent_peers" "Other servers from which datagrams were accepted";
        steps: Counter Plain "nrs_agent_steps_total" "Steps of the rule";
        missed: Counter Plain "nrs_agent_missed_steps_total"
            "Steps skipped because the agent did not run in time";
        instances: Counter Plain "nrs_agent_instances_total"
            "Instances of the policy that the agent has started with";
        failures: Counter Plain "nrs_agent_failures_total" "Failed commands of /dev/nrs-control";
        left_out: Counter Plain "nrs_agent_left_out_total"
            "Accounts dropped for lack of room; raise entities_max if this grows";
        sent: Counter Plain "nrs_agent_sent_datagrams_total" "Sent datagrams";
        sent_bytes: Counter Plain "nrs_agent_sent_bytes_total" "Bytes of sent datagrams";
        heard: Counter Plain "nrs_agent_received_datagrams_total"{result = "accepted"}
            "Accepted datagrams";
        stale: Counter Plain "nrs_agent_received_datagrams_total"{result = "stale"}
            "Old or duplicate datagrams";
        foreign: Counter Plain "nrs_agent_received_datagrams_total"{result = "foreign"}
            "Datagrams of another realm or mode, or with a false sender";
        malformed: Counter Plain "nrs_agent_received_datagrams_total"{result = "malformed"}
            "Malformed datagrams, or datagrams of another version";
        crowded: Counter Plain "nrs_agent_received_datagrams_total"{result = "crowded"}
            "Datagrams dropped for lack of room; raise servers_max or entities_max if this grows";
        heard_bytes: Counter Plain "nrs_agent_received_bytes_total" "Bytes of accepted datagrams";
    }
}

numbers! {
    /// Numbers of another server.
    PeerNumbers {
        connected: Gauge Plain "nrs_agent_peer_connected"
            "1 if the agent of the server is connected";
        age_us: Gauge Us "nrs_agent_peer_age_seconds" "Time since the last datagram";
        records: Gauge Plain "nrs_agent_peer_entities" "Entities in the records of the server";
        capacity: Gauge Plain "nrs_agent_peer_capacity_units_per_second"
            "Recent service of the server, in units of cost";
        datagrams: Counter Plain "nrs_agent_peer_datagrams_total"
            "Accepted datagrams of the server";
        lost: Counter Plain "nrs_agent_peer_lost_datagrams_total"
            "Lost datagrams, counted from gaps in the message numbers";
    }
}

/// Status of an agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Name of the realm.
    pub realm: String,
    /// Name of this server.
    pub server: String,
    /// Protocol of the transport.
    pub transport: String,
    /// Time between two steps, ms.
    pub delta_ms: u32,
    /// Number of events dropped between the transport and the agent.
    pub dropped: u64,
    /// Number of events of groups without a service on this server.
    pub strangers: u64,
    /// Number of datagrams that another server sent under the name of this server.
    pub own: u64,
    /// Services, by name.
    pub services: Vec<ServiceStatus>,
}

/// Status of a service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServiceStatus {
    /// Name of the service.
    pub service: String,
    /// Group of services that share.
    pub group: String,
    /// Reason of the last failure; `None` after a success.
    pub failure: Option<String>,
    /// Numbers of the service.
    #[serde(flatten)]
    pub numbers: ServiceNumbers,
    /// Other servers, by name.
    pub peers: Vec<PeerStatus>,
    /// Leaves with the lowest factors, in ascending order.
    pub entities: Vec<EntityStatus>,
}

/// Status of another server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PeerStatus {
    /// Name of the server.
    pub server: String,
    /// True if the server announced that it leaves.
    pub left: bool,
    /// Numbers of the server.
    #[serde(flatten)]
    pub numbers: PeerNumbers,
}

/// Status of an entity.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EntityStatus {
    /// Path of the entity, such as `gid:5/uid:1000`.
    pub entity: String,
    /// Multiplier of the weight.
    pub factor: f64,
    /// Service on all servers, units of cost per second, divided by the weight.
    pub level: f64,
    /// Service on this server, units of cost per second.
    pub here: u64,
    /// Service on other servers, units of cost per second.
    pub elsewhere: u64,
    /// True if the entity has queued requests on this server.
    pub waiting: bool,
}
