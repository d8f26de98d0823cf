#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""usage: check-yaml.py DIR

Checks what tests/vm/stats.sh left in DIR: all *.yaml files parse, the statistics have their fields, and
the entities are those that DIR/expected names (hexadecimal bytes of the job, requests)."""
import collections
import pathlib
import sys

import yaml

FIELDS = {
    "entity": str, "type": str, "active": bool, "range": str, "dispatched": int, "cost_pages": int,
    "opportunity": int, "forced": int, "fairness_debt": float, "queue_depth": int,
}


def rows(path):
    """The statistics in a file by entity."""
    found = {}
    for row in yaml.safe_load(path.read_text()):
        for field, kind in FIELDS.items():
            assert isinstance(row.get(field), kind), f"{path.name}: {field} of {row}"
        low, high = row["range"].strip("[)").split(",")
        assert 0 <= float(low) <= float(high) <= 1, f"{path.name}: range of {row}"
        assert row["entity"] not in found, f"{path.name}: {row['entity']} twice"
        found[row["entity"]] = row
    return found


def main():
    if len(sys.argv) != 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        return
    folder = pathlib.Path(sys.argv[1])
    stats = rows(folder / "stats.yaml")
    rows(folder / "many.yaml")
    expected = collections.Counter()
    for line in (folder / "expected").read_text().splitlines():
        name, count = line.split()
        # What does not print, and blanks, are underscores in a job's name.
        clean = "".join(chr(byte) if 32 < byte < 127 else "_" for byte in bytes.fromhex(name))
        expected["jobid:" + clean] += int(count)
    for entity, count in expected.items():
        assert entity in stats, f"no {entity!r} among {sorted(stats)}"
        assert stats[entity]["dispatched"] == count, f"{entity!r}: {stats[entity]}, not {count}"
    clients = yaml.safe_load((folder / "clients.yaml").read_text())
    assert clients["clients"][0]["counters"]["ended"] > 0, clients
    policies = yaml.safe_load((folder / "policies.yaml").read_text())
    names = [row["name"] for row in policies["regular_requests"]]
    assert names == ["fifo", "fairshare jobid_fair"], policies
    print(f"{len(stats)} entities as expected")


if __name__ == "__main__":
    try:
        main()
    except (AssertionError, OSError, KeyError, TypeError, ValueError, yaml.YAMLError) as error:
        sys.exit(f"{type(error).__name__}: {error}")
