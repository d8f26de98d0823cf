// SPDX-License-Identifier: GPL-2.0-only

//! Properties of the token bucket filter, in simulated time.

mod accuracy;
mod cgroups;
mod changes;
mod hazards;
mod order;
mod refused;
mod sharing;
mod shown;
mod sim;
