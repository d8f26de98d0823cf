// SPDX-License-Identifier: GPL-2.0-only

//! Device models.

use serde::Deserialize;

use super::units::{Rate, Time};

/// Device as written in a scenario; [`Device::model`] returns the model.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// Name of the device.
    pub name: String,
    /// Kind of the model.
    pub kind: Kind,
    /// Uniform variation of the service time as a fraction of it: 0 to 1.
    #[serde(default)]
    pub jitter: f64,
    /// Pipe and disk: bandwidth.
    #[serde(default)]
    pub bandwidth: Option<Rate>,
    /// Pipe: time added to each request, during which other requests are served.
    #[serde(default)]
    pub latency: Time,
    /// Pipe and disk: service time of a metadata operation.
    #[serde(default)]
    pub operation: Option<Time>,
    /// Flash: number of requests served in parallel.
    #[serde(default)]
    pub channels: Option<u32>,
    /// Flash: reads by one channel.
    #[serde(default)]
    pub read: Option<Side>,
    /// Flash: writes by one channel.
    #[serde(default)]
    pub write: Option<Side>,
    /// Flash: service time of a metadata operation by one channel.
    #[serde(default)]
    pub metadata: Option<Time>,
    /// Disk: average seek time, over a third of the disk.
    #[serde(default)]
    pub seek: Option<Time>,
    /// Disk: time of one revolution.
    #[serde(default)]
    pub rotation: Option<Time>,
}

/// Kinds of device models.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Serves one request after another at a bandwidth.
    Pipe,
    /// Serves requests in parallel on channels.
    Flash,
    /// Serves requests with one arm that moves.
    Disk,
}

/// Service time of one flash channel in one direction: a base plus a time per byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Side {
    /// Time of every request.
    pub base: Time,
    /// Bandwidth for the bytes of a request.
    pub bandwidth: Rate,
}

/// Checked model of a [`Device`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// Serves one request after another.
    Pipe {
        /// Bandwidth of all requests together.
        bandwidth: Rate,
        /// Time added to each request, during which other requests are served.
        latency: Time,
        /// Service time of a metadata operation.
        operation: Time,
    },
    /// Serves requests in parallel on channels.
    Flash {
        /// Number of channels.
        channels: u32,
        /// Reads by one channel.
        read: Side,
        /// Writes by one channel.
        write: Side,
        /// Service time of a metadata operation by one channel.
        metadata: Time,
    },
    /// Serves requests with one arm that moves.
    Disk {
        /// Average seek time.
        seek: Time,
        /// Time of one revolution.
        rotation: Time,
        /// Bandwidth of the medium.
        bandwidth: Rate,
        /// Service time of a metadata operation.
        operation: Time,
    },
}

impl Device {
    /// Returns the model.
    ///
    /// # Errors
    ///
    /// The key and the reason: a key that the kind requires is missing, or a key is not allowed for
    /// the kind.
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
                return Err((key, format!("not allowed for kind = \"{kind}\"")));
            }
        }
        fn need<T>(value: Option<T>, key: &'static str) -> Result<T, (&'static str, String)> {
            value.ok_or((key, "is missing".to_string()))
        }
        // The default time of a metadata operation is the time of 4 KiB at the bandwidth.
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
