// SPDX-License-Identifier: MIT OR Apache-2.0

//! Adaptive timeouts, client side: the time for which a client waits for a server.
//!
//! The module contains the server side. Each request states a timeout ([`Portal::stated`]), which
//! the server passes to the module with [`crate::Request::timeout`]. Each reply contains the
//! service time of the request and the estimate of the service ([`crate::Released::estimate`]).
//! Each [`crate::Event::Early`] becomes an early reply. `examples/timeouts.rs` has both ends of
//! such a protocol.
//!
//! ```
//! use nrs_client::timeouts::{Portal, EstimateRule};
//!
//! let mut portal = Portal::new(EstimateRule::default());
//! // A reply at 5 s, after 21 s, of which the request was at the service for 20 s.
//! portal.replied(5_000, 21_000, 20_000, 0);
//! assert_eq!(portal.stated(5_000), 30_000);
//! assert_eq!(portal.timeout(5_000), 31_000);
//! ```

pub mod estimator;
mod portal;

pub use estimator::{EstimateRule, EstimatorView};
pub use portal::Portal;
