// SPDX-License-Identifier: GPL-2.0-only

//! Records and arguments of `/dev/nrs` whatever is in them: the corpus of the fuzz target `wire`, and changes of it.

#[path = "../../../fuzz/src/replay.rs"]
mod replay;
#[path = "../../../fuzz/src/wire.rs"]
mod wire;

#[test]
fn records_of_all_lengths() {
    replay::bounded("wire", 6_000, 1_024, wire::run);
}
