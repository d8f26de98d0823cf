// SPDX-License-Identifier: GPL-2.0-only

//! Datagrams in any order and of any content: the corpus of the fuzz target `exchange`, and changes of it.

#[expect(dead_code, reason = "other targets take more of it")]
#[path = "../../../fuzz/src/bytes.rs"]
mod bytes;
#[path = "../../../fuzz/src/exchange.rs"]
mod exchange;
#[path = "../../../fuzz/src/replay.rs"]
mod replay;

#[test]
fn two_servers() {
    replay::bounded("exchange", 1_000, 600, exchange::run);
}
