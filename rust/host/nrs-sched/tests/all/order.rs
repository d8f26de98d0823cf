// SPDX-License-Identifier: GPL-2.0-only

//! Order of requests: whatever the policy, nothing starts before those that come before it have ended.

mod cost;
mod life;
