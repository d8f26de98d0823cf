// SPDX-License-Identifier: GPL-2.0-only

//! What adaptive timeouts promise, in simulated time: many clients, a network, a server, and both halves of
//! the timeouts.

mod death;
mod load;
mod others;
mod start;

use nrs_sched::timeouts::terms::{AtEstimator, Terms};
use nrs_sim::timeouts::{story::server, Setup, SECOND};

/// Clients of a small server.
const CLIENTS: u32 = 300;

/// Requests that it can do, 1/s.
const RATE: u64 = 30;

const ESTIMATORS: [AtEstimator; 2] = [AtEstimator::Worst, AtEstimator::Average];

/// A server that all of the clients together keep waiting for 5 s.
fn small(terms: Terms) -> Setup {
    Setup {
        slots: 4,
        service: 4 * SECOND / RATE,
        ..server(CLIENTS, RATE, terms)
    }
}
