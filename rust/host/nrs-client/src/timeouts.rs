// SPDX-License-Identifier: MIT OR Apache-2.0

//! Adaptive timeouts, the client's half: how long a client of a server waits for it.
//!
//! The server's half is in the module. Each request states a timeout ([`Portal::stated`]), which the
//! server passes on with [`crate::Request::timeout`]; each reply tells the service time of the
//! request and the estimate of the service ([`crate::Released::estimate`]), and each
//! [`crate::Event::Early`] becomes an early reply. `examples/timeouts.rs` has both ends of such a
//! protocol.
//!
//! ```
//! use nrs_client::timeouts::{Portal, Rule};
//!
//! let mut portal = Portal::new(Rule::default());
//! // A reply at 5 s, after 21 s, of which the request was at the service for 20 s.
//! portal.replied(5_000, 21_000, 20_000, 0);
//! assert_eq!(portal.stated(5_000), 30_000);
//! assert_eq!(portal.timeout(5_000), 31_000);
//! ```

pub mod estimator;
mod portal;

pub use estimator::{Rule, Seen};
pub use portal::Portal;
