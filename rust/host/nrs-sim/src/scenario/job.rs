// SPDX-License-Identifier: GPL-2.0-only

//! Jobs: who sends requests, which, when and where.

use serde::de::{value::SeqAccessDeserializer, Deserializer, Error, SeqAccess, Visitor};
use serde::Deserialize;

use super::units::{Size, Time};

/// A job: `nodes` clients with `procs` processes each.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// Its name.
    pub name: String,
    /// The jobid told with its requests; its name unless given.
    #[serde(default)]
    pub jobid: Option<String>,
    /// The user of its requests.
    #[serde(default)]
    pub uid: u32,
    /// The group of its requests.
    #[serde(default)]
    pub gid: u32,
    /// The project of its requests.
    #[serde(default)]
    pub projid: u32,
    /// Clients, each with its own NID.
    #[serde(default = "one")]
    pub nodes: u32,
    /// The size told with its requests; the number of nodes unless given.
    #[serde(default)]
    pub size: Option<u32>,
    /// Processes on each node, each with a file of its own.
    #[serde(default = "one")]
    pub procs: u32,
    /// Closed loop: requests that each process has outstanding.
    #[serde(default = "one")]
    pub depth: u32,
    /// When it begins.
    #[serde(default)]
    pub start: Time,
    /// When it sends no more; the end of the run unless given.
    #[serde(default)]
    pub stop: Option<Time>,
    /// Alternately active and idle, from its start on; always active unless given.
    #[serde(default)]
    pub phases: Option<Phases>,
    /// When the next request follows.
    #[serde(rename = "loop", default)]
    pub kind: Loop,
    /// Closed loop: the time between an answer and the next request of a process.
    #[serde(default)]
    pub think: Time,
    /// Open loop: requests per second of each node.
    #[serde(default)]
    pub rate: Option<u64>,
    /// Open loop: how arrivals are spread.
    #[serde(default)]
    pub arrival: Arrival,
    /// Reads, writes and operations on metadata, in parts of their sum.
    #[serde(default)]
    pub mix: Mix,
    /// Sizes of requests that move data: a size, or a list of `{ size, weight }`.
    #[serde(default = "mebibyte", deserialize_with = "one_or_many")]
    pub io: Vec<Io>,
    /// Where the requests go on the device.
    #[serde(default)]
    pub access: Access,
    /// Which servers they go to.
    #[serde(default)]
    pub servers: Servers,
    /// The job ends when it has moved so much.
    #[serde(default)]
    pub work: Option<Size>,
    /// A bulk-synchronous application.
    #[serde(default)]
    pub burst: Option<Burst>,
}

impl Job {
    /// The jobid told with its requests.
    pub fn jobid(&self) -> &str {
        self.jobid.as_deref().unwrap_or(&self.name)
    }

    /// The size told with its requests, in nodes.
    pub fn told_size(&self) -> u32 {
        self.size.unwrap_or(self.nodes)
    }
}

/// Alternately active and idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phases {
    /// How long it is active.
    pub on: Time,
    /// How long it is idle.
    pub off: Time,
}

/// When the next request follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Loop {
    /// After the answer to the last one.
    #[default]
    Closed,
    /// At a rate, whatever the answers.
    Open,
}

/// How the arrivals of an open loop are spread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arrival {
    /// Exponential times between them.
    #[default]
    Poisson,
    /// Equal times between them.
    Even,
}

/// Parts of reads, writes and operations on metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mix {
    /// Reads.
    #[serde(default)]
    pub read: u32,
    /// Writes.
    #[serde(default)]
    pub write: u32,
    /// Operations on metadata.
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

/// A size of requests and how often it is drawn, in parts of the sum of weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Io {
    /// The size.
    pub size: Size,
    /// Its weight.
    #[serde(default = "one")]
    pub weight: u32,
}

/// Where requests go on the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// One behind the other, for each process.
    #[default]
    Sequential,
    /// Anywhere.
    Random,
}

/// Which servers a job's requests go to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "Written")]
pub enum Servers {
    /// All of them, in turns.
    #[default]
    All,
    /// So many, one behind the other from a start that the seed draws.
    Count(u32),
    /// These.
    Names(Vec<String>),
}

/// A bulk-synchronous application: all processes move `bytes` in all, wait for each other, compute, and
/// begin anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Burst {
    /// Moved by all processes of all nodes together.
    pub bytes: Size,
    /// Then so long without requests.
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

/// [`Servers`] as they are written.
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

/// A string that is parsed, or a list.
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
            to.write_str("one, or a list")
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
