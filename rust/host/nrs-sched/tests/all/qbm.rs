// SPDX-License-Identifier: GPL-2.0-only

//! Properties of bandwidth management in simulated time: parts, gates, allocator, plan and manager
//! together.

mod many;
mod movers;
mod random;
mod rules;
pub mod sim;
mod storm;
mod texts;
