// SPDX-License-Identifier: GPL-2.0-only

//! Adaptive timeouts: estimates of service times, timeouts of clients, and early replies.
//!
//! # Terms
//!
//! - *Service time*: time from the arrival of a request at the service to its end, without network
//!   time.
//! - *Withheld* time: the part of the service time for which a policy throttled or delayed the
//!   request.
//! - *Deadline*: the time at which the request was sent, plus the timeout.
//!
//! ```text
//!             stated >= estimate                 margin reached
//!   arrival ────────────────────► pending ◄───────────────────────► checked
//!      │                          ▲   │ ▲    early reply: later         │
//!      │ stated < estimate        │   │ └───────────────────────────────┤
//!      └── early reply at once ───┘   │                                 │ refused: late, dead,
//!                                     │ ends                            │ or at the limit
//!                                     ▼                                 ▼
//!                          replied: measured                     deadline passed: expired
//! ```
//!
//! Every reply is measured. The worst service time of the history is the estimate, from which
//! clients derive their next timeouts. So timeouts grow with the load of a server, and a dead
//! server is detected early while the load is light. The server extends the deadline of a request
//! that cannot end in time before the client gives up, up to `at_max` in all.
//!
//! The method is that of Eric Barton and Nathan Rutman, *Adaptive RPC Timeouts*, 2007, as
//! implemented in Lustre; differences are documented.
//!
//! # Units
//!
//! Instants are milliseconds of any monotonic clock in `u64`, durations are milliseconds in `u32`,
//! parameters are seconds. Clocks may be coarse, and may appear to run backwards between
//! processors.

pub mod early;
pub mod estimator;
pub mod in_flight;
pub mod recovery;
pub mod report;
pub mod service_times;
pub mod terms;
