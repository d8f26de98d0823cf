// SPDX-License-Identifier: GPL-2.0-only

//! Adaptive timeouts: how long requests take, how long clients wait, and who says "still busy" in time.
//!
//! # Vocabulary
//!
//! - *Service time*: from a request's arrival at the service to its end, without what the network takes.
//! - *Withheld* time: the part of it for which a policy kept the request on purpose, for its rate or its
//!   delay.
//! - *Deadline*: when the request was sent, plus the timeout.
//!
//! ```text
//!             stated >= estimate                  margin is left
//!   arrival ────────────────────► waits ◄──────────────────────────► judged
//!      │                          ▲   │ ▲    early reply: later         │
//!      │ stated < estimate        │   │ └───────────────────────────────┤
//!      └── early reply at once ───┘   │                                 │ refused: late, dead,
//!                                     │ ends                            │ or at the limit
//!                                     ▼                                 ▼
//!                          replied: measured                     deadline passes: expired
//! ```
//!
//! Every reply is measured; the worst of the history is the estimate, and from it follow the timeouts that
//! clients state next. So timeouts grow with the time that a loaded server takes, and a dead one is noticed
//! soon as long as the load is light. A request that the server cannot end in time asks for more of it
//! before the client gives up; nothing gets more than `at_max` in all.
//!
//! The method is that of Eric Barton and Nathan Rutman, *Adaptive RPC Timeouts*, 2007, as Lustre has it;
//! where this one differs it is said.
//!
//! # Units
//!
//! Instants are milliseconds of any monotonic clock in `u64`, durations milliseconds in `u32`, tunables
//! seconds. Clocks may be coarse, and may seem to run backwards between processors.

pub mod early;
pub mod estimator;
pub mod in_flight;
pub mod recovery;
pub mod report;
pub mod service_times;
pub mod terms;
