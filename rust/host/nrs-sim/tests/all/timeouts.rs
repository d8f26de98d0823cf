// SPDX-License-Identifier: GPL-2.0-only

//! Tests of adaptive timeouts in simulated time: many clients, a network, a server, and both halves
//! of the timeouts.

mod death;
mod load;
mod others;
mod start;

use nrs_sched::timeouts::terms::{AtEstimator, TimeoutTerms};
use nrs_sim::timeouts::{story::server, Setup, SECOND};

/// Number of clients of the small server.
const CLIENTS: u32 = 300;

/// Capacity of the small server, requests/s.
const RATE: u64 = 30;

const ESTIMATORS: [AtEstimator; 2] = [AtEstimator::Worst, AtEstimator::Average];

/// Returns a server with a queue time of 5 s if all clients are active.
fn small(terms: TimeoutTerms) -> Setup {
    Setup {
        slots: 4,
        service: 4 * SECOND / RATE,
        ..server(CLIENTS, RATE, terms)
    }
}
