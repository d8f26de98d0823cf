// SPDX-License-Identifier: GPL-2.0-only

//! Order of requests: under any policy, no request starts before its predecessors have ended.

mod cost;
mod life;
