// SPDX-License-Identifier: GPL-2.0-only

//! What the token bucket filter promises, in simulated time.

mod accuracy;
mod changes;
mod hazards;
mod order;
mod sharing;
mod shown;
mod sim;
