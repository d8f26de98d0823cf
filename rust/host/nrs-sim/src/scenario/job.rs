// SPDX-License-Identifier: GPL-2.0-only

//! Jobs: sources of requests.

use serde::de::{value::SeqAccessDeserializer, Deserializer, Error, SeqAccess, Visitor};
use serde::Deserialize;

use super::units::{Size, Time};

/// Job with `nodes` clients of `procs` processes each.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// Name of the job.
    pub name: String,
    /// Jobid in requests; the name by default.
    #[serde(default)]
    pub jobid: Option<String>,
    /// User id in requests.
    #[serde(default)]
    pub uid: u32,
    /// Group id in requests.
    #[serde(default)]
    pub gid: u32,
    /// Project id in requests.
    #[serde(default)]
    pub projid: u32,
    /// Number of clients, each with its own NID.
    #[serde(default = "one")]
    pub nodes: u32,
    /// Job size in requests, nodes; the number of nodes by default.
    #[serde(default)]
    pub size: Option<u32>,
    /// Number of processes on each node, each with its own file.
    #[serde(default = "one")]
    pub procs: u32,
    /// Closed loop: outstanding requests of each process.
    #[serde(default = "one")]
    pub depth: u32,
    /// Start time.
    #[serde(default)]
    pub start: Time,
    /// Time after which no request is sent; the end of the run by default.
    #[serde(default)]
    pub stop: Option<Time>,
    /// Active and idle phases from the start on; always active by default.
    #[serde(default)]
    pub phases: Option<Phases>,
    /// Trigger of the next request.
    #[serde(rename = "loop", default)]
    pub kind: Loop,
    /// Closed loop: time between an answer and the next request of a process.
    #[serde(default)]
    pub think: Time,
    /// Open loop: requests per second of each node.
    #[serde(default)]
    pub rate: Option<u64>,
    /// Open loop: distribution of arrivals.
    #[serde(default)]
    pub arrival: Arrival,
    /// Weights of reads, writes and metadata operations.
    #[serde(default)]
    pub mix: Mix,
    /// Sizes of requests that move data: a size, or a list of `{ size, weight }`.
    #[serde(default = "mebibyte", deserialize_with = "one_or_many")]
    pub io: Vec<Io>,
    /// Access pattern on the device.
    #[serde(default)]
    pub access: Access,
    /// Servers of the job.
    #[serde(default)]
    pub servers: Servers,
    /// Bytes after which the job ends; unlimited by default.
    #[serde(default)]
    pub work: Option<Size>,
    /// Rounds of a bulk-synchronous application.
    #[serde(default)]
    pub burst: Option<Burst>,
}

impl Job {
    /// Returns the jobid in requests.
    pub fn jobid(&self) -> &str {
        self.jobid.as_deref().unwrap_or(&self.name)
    }

    /// Returns the job size in requests, nodes.
    pub fn stated_size(&self) -> u32 {
        self.size.unwrap_or(self.nodes)
    }
}

/// Alternating active and idle phases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phases {
    /// Length of the active phase.
    pub on: Time,
    /// Length of the idle phase.
    pub off: Time,
}

/// Trigger of the next request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Loop {
    /// The answer to the last request.
    #[default]
    Closed,
    /// A rate, regardless of answers.
    Open,
}

/// Distribution of arrivals in an open loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arrival {
    /// Exponentially distributed intervals.
    #[default]
    Poisson,
    /// Equal intervals.
    Even,
}

/// Weights of reads, writes and metadata operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mix {
    /// Weight of reads.
    #[serde(default)]
    pub read: u32,
    /// Weight of writes.
    #[serde(default)]
    pub write: u32,
    /// Weight of metadata operations.
    #[serde(default)]
    pub metadata: u32,
}

impl Default for Mix {
    fn default() -> Self {
        Self {
            read: 0,
            write: 1,
            metadata: 0,
        }
    }
}

/// Size of requests with the weight with which it is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Io {
    /// Size of a request.
    pub size: Size,
    /// Weight of this size relative to the sum of weights.
    #[serde(default = "one")]
    pub weight: u32,
}

/// Access pattern on the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// Sequential offsets for each process.
    #[default]
    Sequential,
    /// Random offsets.
    Random,
}

/// Servers to which a job sends requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "Written")]
pub enum Servers {
    /// All servers in turn.
    #[default]
    All,
    /// This number of consecutive servers; the seed determines the first one.
    Count(u32),
    /// Servers with these names.
    Names(Vec<String>),
}

/// Bulk-synchronous application: the processes together move `bytes`, wait for each other, compute,
/// and repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Burst {
    /// Bytes of a round, moved by all processes of all nodes together.
    pub bytes: Size,
    /// Time without requests after the data of a round.
    pub compute: Time,
}

fn one() -> u32 {
    1
}

fn mebibyte() -> Vec<Io> {
    vec![Io {
        size: Size(1 << 20),
        weight: 1,
    }]
}

/// Representation of [`Servers`] in TOML.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected \"all\", a number or a list of names")]
enum Written {
    Word(Word),
    Count(u32),
    Names(Vec<String>),
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Word {
    All,
}

impl From<Written> for Servers {
    fn from(written: Written) -> Self {
        match written {
            Written::Word(Word::All) => Self::All,
            Written::Count(count) => Self::Count(count),
            Written::Names(names) => Self::Names(names),
        }
    }
}

impl std::str::FromStr for Io {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(|size| Self { size, weight: 1 })
    }
}

/// Parses a string or a list.
pub(super) fn one_or_many<'de, D, T>(from: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + std::str::FromStr<Err: std::fmt::Display>,
{
    struct Several<T>(std::marker::PhantomData<T>);

    impl<'de, T> Visitor<'de> for Several<T>
    where
        T: Deserialize<'de> + std::str::FromStr<Err: std::fmt::Display>,
    {
        type Value = Vec<T>;

        fn expecting(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            to.write_str("a string or a list")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Vec<T>, E> {
            text.parse().map(|one| vec![one]).map_err(E::custom)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Vec<T>, A::Error> {
            Vec::deserialize(SeqAccessDeserializer::new(list))
        }
    }

    from.deserialize_any(Several(std::marker::PhantomData))
}
