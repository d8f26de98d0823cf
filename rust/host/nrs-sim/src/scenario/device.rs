// SPDX-License-Identifier: GPL-2.0-only

//! Models of disks.

use serde::Deserialize;

use super::units::{Rate, Time};

/// A model of a disk, as it is written; [`Device::model`] is what it says.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// What kind of model.
    pub kind: Kind,
    /// Uniform, on top of and below the service time, as a fraction of it: 0 to 1.
    #[serde(default)]
    pub jitter: f64,
    /// Of a pipe and a disk.
    #[serde(default)]
    pub bandwidth: Option<Rate>,
    /// Of a pipe: on top of each request, others are served meanwhile.
    #[serde(default)]
    pub latency: Time,
    /// Of a pipe and a disk: the device's time for an operation on metadata.
    #[serde(default)]
    pub operation: Option<Time>,
    /// Of flash: how many requests are served side by side.
    #[serde(default)]
    pub channels: Option<u32>,
    /// Of flash: one channel reads.
    #[serde(default)]
    pub read: Option<Side>,
    /// Of flash: one channel writes.
    #[serde(default)]
    pub write: Option<Side>,
    /// Of flash: one channel's time for an operation on metadata.
    #[serde(default)]
    pub metadata: Option<Time>,
    /// Of a disk: an average seek, over a third of it.
    #[serde(default)]
    pub seek: Option<Time>,
    /// Of a disk: one turn.
    #[serde(default)]
    pub rotation: Option<Time>,
}

/// Kinds of models.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// One request after the other at a bandwidth.
    Pipe,
    /// Channels that serve side by side.
    Flash,
    /// One head that moves.
    Disk,
}

/// How one channel of flash serves one direction: a base, and bytes at a bandwidth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Side {
    /// Time of every request.
    pub base: Time,
    /// On top, for its bytes.
    pub bandwidth: Rate,
}

/// What a [`Device`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// One request after the other.
    Pipe {
        /// Of all requests together.
        bandwidth: Rate,
        /// On top of each request, while others are served.
        latency: Time,
        /// The pipe is taken for so long by an operation on metadata.
        operation: Time,
    },
    /// Channels that serve side by side.
    Flash {
        /// How many.
        channels: u32,
        /// One channel reads.
        read: Side,
        /// One channel writes.
        write: Side,
        /// One channel serves an operation on metadata.
        metadata: Time,
    },
    /// One head that moves.
    Disk {
        /// An average seek.
        seek: Time,
        /// One turn.
        rotation: Time,
        /// Of the medium.
        bandwidth: Rate,
        /// An operation on metadata.
        operation: Time,
    },
}

impl Device {
    /// The model.
    ///
    /// # Errors
    ///
    /// A key that its kind needs is missing, or one that it does not have is there: the key and the reason.
    pub fn model(&self) -> Result<Model, (&'static str, String)> {
        let (kind, allowed): (&str, &[&str]) = match self.kind {
            Kind::Pipe => ("pipe", &["bandwidth", "latency", "operation"]),
            Kind::Flash => ("flash", &["channels", "read", "write", "metadata"]),
            Kind::Disk => ("disk", &["seek", "rotation", "bandwidth", "operation"]),
        };
        for (key, there) in [
            ("bandwidth", self.bandwidth.is_some()),
            ("latency", self.latency != Time(0)),
            ("operation", self.operation.is_some()),
            ("channels", self.channels.is_some()),
            ("read", self.read.is_some()),
            ("write", self.write.is_some()),
            ("metadata", self.metadata.is_some()),
            ("seek", self.seek.is_some()),
            ("rotation", self.rotation.is_some()),
        ] {
            if there && !allowed.contains(&key) {
                return Err((key, format!("is not a key of a {kind}")));
            }
        }
        fn need<T>(value: Option<T>, key: &'static str) -> Result<T, (&'static str, String)> {
            value.ok_or((key, "is missing".to_string()))
        }
        // Unless given, an operation on metadata takes as long as 4 KiB at the bandwidth.
        let page = |rate: Rate| Time(4096 * 1_000_000_000 / rate.0.max(1));
        Ok(match self.kind {
            Kind::Pipe => {
                let bandwidth = need(self.bandwidth, "bandwidth")?;
                Model::Pipe {
                    bandwidth,
                    latency: self.latency,
                    operation: self.operation.unwrap_or(page(bandwidth)),
                }
            }
            Kind::Flash => {
                let read = need(self.read, "read")?;
                Model::Flash {
                    channels: need(self.channels, "channels")?,
                    read,
                    write: self.write.unwrap_or(read),
                    metadata: self.metadata.unwrap_or(read.base),
                }
            }
            Kind::Disk => {
                let seek = need(self.seek, "seek")?;
                Model::Disk {
                    seek,
                    rotation: need(self.rotation, "rotation")?,
                    bandwidth: need(self.bandwidth, "bandwidth")?,
                    operation: self.operation.unwrap_or(seek),
                }
            }
        })
    }
}
