#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""usage: scripts/bench-report.py DIR

Prints what tests/vm/bench.sh left in DIR: `count` (instructions per request) and `free-N` (N CPUs, free-running).
"""

import json
import statistics
import sys
from pathlib import Path

NS_PER_INSTRUCTION = 8  # -icount shift=3
CONFIGURATIONS = {
    "raw": "null_blk",
    "linear": "dm-linear",
    "deadline": "mq-deadline on null_blk, no dm",
    "bfq": "BFQ on null_blk, no dm",
    "nrs-64": "dm-nrs, 64 slots, fifo",
    "nrs-64-off": "the same without timeouts",
    "nrs-64-fair": "dm-nrs, 64 slots, fairshare",
    "nrs-8-fifo": "dm-nrs, 8 slots, fifo",
    "nrs-8-off": "the same without timeouts",
    "nrs-8-fair": "dm-nrs, 8 slots, fairshare",
}
# Rows that have to reach a part of dm-linear's throughput, with the way of submission it is asked for.
WANTED = {("nrs-64-fair", 1): 0.95, ("nrs-64", 1): 0.95, ("nrs-8-fair", 32): 0.80, ("nrs-8-fifo", 32): 0.80}
# What adaptive timeouts may cost: with them, and without.
TIMED = {"nrs-64": "nrs-64-off", "nrs-8-fifo": "nrs-8-off"}
TIMED_WANTED = 0.98


def read(path):
    """fio's one job, and how many of its requests waited in nrs."""
    (job,) = json.loads(path.read_text())["jobs"]
    if job["error"]:
        raise SystemExit(f"{path}: fio failed with error {job['error']}")
    queued = int(path.with_suffix(".queued").read_text())
    return job["read"], queued / job["read"]["total_ios"]


def counted(directory, batch):
    """Instructions per request and part that waited, for each configuration."""
    result = {}
    for name in CONFIGURATIONS:
        got, waited = read(directory / f"{name}.{batch}.json")
        result[name] = (got["runtime"] * 1e6 / NS_PER_INSTRUCTION / got["total_ios"], waited)
    return result


def print_counts(directory):
    for batch in (1, 32):
        rows = counted(directory, batch)
        base = rows["linear"][0]
        print(f"Submitted {batch} at a time{'' if batch == 1 else ' (one io_submit each)'}:\n")
        print(f"  {'':<32}{'instructions':>13}{'to dm-linear':>14}{'waited':>8}")
        for name, (instructions, waited) in rows.items():
            ratio = base / instructions
            wanted = WANTED.get((name, batch))
            verdict = "" if wanted is None else f"  wanted {wanted:.2f}: {'yes' if ratio >= wanted else 'NO'}"
            shown = f"{100 * waited:.0f} %" if name.startswith("nrs") else "-"
            print(f"  {CONFIGURATIONS[name]:<32}{instructions:>13.0f}{ratio:>14.3f}{shown:>8}{verdict}")
        for timed, untimed in TIMED.items():
            ratio = rows[untimed][0] / rows[timed][0]
            verdict = "yes" if ratio >= TIMED_WANTED else "NO"
            print(f"  timeouts on to off, {CONFIGURATIONS[timed] + ':':<26}{ratio:.3f}  wanted {TIMED_WANTED:.2f}: {verdict}")
        print()


def print_free(directories):
    names = [name for name in CONFIGURATIONS if name != "linear"]
    print("Free-running, IOPS as a part of dm-linear's, median of the rounds (lowest to highest); reported only:\n")
    print(f"  {'':<32}" + "".join(f"{d.name.removeprefix('free-') + ' CPUs':>22}" for d in directories))
    for name in names:
        line = f"  {CONFIGURATIONS[name]:<32}"
        for directory in directories:
            ratios = []
            for path in sorted(directory.glob(f"{name}.[1-9]*.json")):
                linear, _ = read(directory / f"linear{path.name.removeprefix(name)}")
                ratios.append(read(path)[0]["iops"] / linear["iops"])
            line += f"{statistics.median(ratios):>8.2f} ({min(ratios):.2f} to {max(ratios):.2f})".rjust(22)
        print(line)
    print()


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    directory = Path(sys.argv[1])
    print("Cost of a request through the whole stack, fio included: 4 KiB random reads, libaio, 32 in flight,")
    print("null_blk irqmode 0. Attributes of every request are counted.\n")
    print("Instructions per request, one emulated CPU, -icount (time is instructions, repeatable):\n")
    print_counts(directory / "count")
    free = sorted(directory.glob("free-*"), key=lambda d: int(d.name.removeprefix("free-")))
    if free:
        print_free(free)


if __name__ == "__main__":
    main()
