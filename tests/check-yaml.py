#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""usage: check-yaml.py DIR

Checks what tests/vm/stats.sh, tests/vm/tbf-files.sh and tests/vm/qbm.sh left in DIR: all *.yaml files parse, the statistics have their
fields, and the entities are those that DIR/expected names (hexadecimal bytes of the job, requests) and, by levels,
DIR/levels-expected (hexadecimal bytes of the job, group, user, requests), the classes of tbf those of DIR/tbf-expected
(hexadecimal bytes of the job, requests, cost, rule, unit, head), the clients of qbm those of DIR/qbm-expected (hexadecimal
bytes of the job, requests, reads, writes, all of 4 KiB)."""
import collections
import pathlib
import sys

import yaml

FIELDS = {
    "entity": str, "type": str, "active": bool, "range": str, "dispatched": int, "cost_pages": int,
    "opportunity": int, "fairness_debt": float, "queue_depth": int, "queue": str, "weight": float, "time_us": int,
    "opportunity_ratio": float, "forced": int, "share_wanted": float, "share_1s": float, "share_60s": float,
    "borrowed": float, "debt_histogram": dict, "wait_us": dict,
}
QUEUES = ("regular", "high_priority")
FRACTIONS = ("opportunity_ratio", "share_wanted", "share_1s", "share_60s", "borrowed")
WAITS = ("p50", "p90", "p99", "max")
COUNTERS = {
    "rule": str, "head": str, "rate": str, "unit": str, "queued": int, "dispatched": int, "cost": int, "throttled_ns": int,
    "limit_hits": int, "forced": int, "borrowed": int,
}
RULE_FIELDS = {**COUNTERS, "classes": int}
QBM_GROUP_FIELDS = {
    "group": str, "strategy": str, "capacity": int, "free": int, "oversubscribed": int, "reserves": dict, "registered": int, "clients": list,
}
QBM_CLIENT_FIELDS = {
    "client": str, "class": str, "min": int, "max": int, "allocated": int, "given": int, "wants": bool, "unmet": bool, "used_fast": int,
    "used_slow": int, "sleeps": int,
}
QBM_COUNTERS = dict.fromkeys((
    "requests", "read_bytes", "written_bytes", "sleeps", "restores", "increases_asked", "increases_whole", "increases_partly",
    "increases_refused", "decreases", "losses", "taken_by_others"), int)
CLASS_FIELDS = {**COUNTERS, "class": str, "active": int, "debt_ns": int}


def check_fields(path, row, fields):
    for field, kind in fields.items():
        assert type(row.get(field)) is kind, f"{path.name}: {field} of {row}"


def job(name):
    """The key of a job's name, given in hexadecimal: what does not print, and blanks, are underscores."""
    return "jobid:" + "".join(chr(byte) if 32 < byte < 127 else "_" for byte in bytes.fromhex(name))


def rows(path):
    """The statistics in a file by entity, those of the regular queue."""
    found = {queue: {} for queue in QUEUES}
    for row in yaml.safe_load(path.read_text()):
        check_fields(path, row, FIELDS)
        low, high = (float(end) for end in row["range"].strip("[)").split(","))
        assert 0 <= low <= high <= 1, f"{path.name}: range of {row}"
        assert abs(high - low - row["share_wanted"]) < 0.0011, f"{path.name}: range and share of {row}"
        assert all(0 <= row[field] <= 1 for field in FRACTIONS), f"{path.name}: fractions of {row}"
        waits = [row["wait_us"][name] for name in WAITS]
        assert waits == sorted(waits) and waits[0] >= 0, f"{path.name}: waits of {row}"
        debts = row["debt_histogram"].values()
        assert all(count >= 0 for count in debts) and sum(debts) <= row["dispatched"], f"{path.name}: debts of {row}"
        entities = found[row["queue"]]
        assert row["entity"] not in entities, f"{path.name}: {row['entity']} twice"
        entities[row["entity"]] = row
    for queue, entities in found.items():
        received = sum(row["share_1s"] for row in entities.values())
        assert received < 1 + 0.001 * len(entities), f"{path.name}: {received} of the service of {queue}"
    return found["regular"]


def check_entities(path, stats, expected):
    """Each entity that is expected is there, with that many requests."""
    for entity, count in expected.items():
        assert entity in stats, f"{path.name}: no {entity!r} among {sorted(stats)}"
        assert stats[entity]["dispatched"] == count, f"{path.name}: {entity!r}: {stats[entity]}, not {count}"
    print(f"{path.name}: {len(stats)} entities as expected")


def check_fairshare(folder):
    path = folder / "stats.yaml"
    expected = collections.Counter()
    for line in (folder / "expected").read_text().splitlines():
        name, count = line.split()
        expected[job(name)] += int(count)
    check_entities(path, rows(path), expected)
    clients = yaml.safe_load((folder / "clients.yaml").read_text())
    assert clients["clients"][0]["counters"]["ended"] > 0, clients
    policies = yaml.safe_load((folder / "policies.yaml").read_text())
    names = [row["name"] for row in policies["regular_requests"]]
    assert "fifo" in names and "fairshare jobid_fair" in names, policies


def check_many(folder):
    print(f"{len(rows(folder / 'many.yaml'))} entities of many.yaml")


def check_levels(folder):
    path = folder / "levels.yaml"
    stats = rows(path)
    expected = {}
    for line in (folder / "levels-expected").read_text().splitlines():
        name, gid, uid, count = line.split()
        expected[f"gid:{gid}/{job(name)}/uid:{uid}"] = int(count)
    check_entities(path, stats, expected)
    kinds = {row["type"] for row in stats.values()}
    assert kinds <= {"uid", "default"}, f"{path.name}: types {kinds}"


def check_tbf(folder):
    path = folder / "tbf.yaml"
    stats = yaml.safe_load(path.read_text())
    assert set(stats) == {"rules", "classes"}, f"{path.name}: {sorted(stats)}"
    found = collections.Counter()
    by_rule = {}
    for row in stats["classes"]:
        check_fields(path, row, CLASS_FIELDS)
        key = (row["class"], row["rule"], row["unit"], row["head"])
        found[key, "dispatched"] += row["dispatched"]
        found[key, "cost"] += row["cost"]
        sums = by_rule.setdefault((row["rule"], row["head"]), collections.Counter())
        for field in ("dispatched", "cost", "queued", "limit_hits", "forced", "borrowed", "throttled_ns"):
            sums[field] += row[field]
        sums["classes"] += 1
    expected = collections.Counter()
    for line in (folder / "tbf-expected").read_text().splitlines():
        name, requests, cost, rule, unit, head = line.split()
        expected[(job(name), rule, unit, head), "dispatched"] += int(requests)
        expected[(job(name), rule, unit, head), "cost"] += int(cost)
    for (key, field), count in expected.items():
        assert found[key, field] == count, f"{key}: {field} is {found[key, field]}, not {count}"
    names = [(row["rule"], row["head"]) for row in stats["rules"]]
    assert len(names) == len(set(names)) and set(names) == set(by_rule), names
    for row in stats["rules"]:
        check_fields(path, row, RULE_FIELDS)
        for field, count in by_rule[row["rule"], row["head"]].items():
            assert row[field] == count, f"rule {row}: {field} is not {count}"
    print(f"{len(stats['classes'])} classes as expected")


def check_qbm(folder):
    """Clients of bandwidth: each has its fields, and the requests that its line of qbm-expected says; their group the sum."""
    expected = {}
    for line in (folder / "qbm-expected").read_text().splitlines():
        name, *counts = line.split()
        expected["jobid:" + bytes.fromhex(name).decode()] = [int(count) for count in counts]
    (group,) = yaml.safe_load((folder / "qbm-status.yaml").read_text())
    check_fields(folder / "qbm-status.yaml", group, QBM_GROUP_FIELDS)
    for row in group["clients"]:
        check_fields(folder / "qbm-status.yaml", row, QBM_CLIENT_FIELDS)
        assert row["min"] <= row["max"] and row["allocated"] <= row["max"], row
    given = sum(row["allocated"] for row in group["clients"]) + group["free"] + sum(group["reserves"].values())
    assert given == group["capacity"] + group["oversubscribed"], f"{given} of {group}"
    assert {row["client"] for row in group["clients"]} == set(expected), group["clients"]
    (group,) = yaml.safe_load((folder / "qbm-stats.yaml").read_text())
    for row in [group, *group["clients"]]:
        check_fields(folder / "qbm-stats.yaml", row, QBM_COUNTERS)
    for row in group["clients"]:
        requests, reads, writes = expected[row["client"]]
        found = (row["requests"], row["read_bytes"], row["written_bytes"])
        assert requests == reads + writes and found[0] == requests, f"{row}, not {requests}"
        assert found[1] == reads * 4096 and found[2] == writes * 4096, f"{row}, not {reads} reads and {writes} writes"
    for field in ("requests", "read_bytes", "written_bytes"):
        assert group[field] == sum(row[field] for row in group["clients"]), f"{field} of {group}"
    print(f"{len(expected)} clients of bandwidth as expected")


def main():
    if len(sys.argv) != 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        return
    folder = pathlib.Path(sys.argv[1])
    checks = {
        "expected": check_fairshare, "many.yaml": check_many, "levels-expected": check_levels, "tbf-expected": check_tbf,
        "qbm-expected": check_qbm,
    }
    there = [check for name, check in checks.items() if (folder / name).exists()]
    assert there, f"{folder}: nothing to check"
    for check in there:
        check(folder)


if __name__ == "__main__":
    try:
        main()
    except (AssertionError, OSError, KeyError, TypeError, ValueError, yaml.YAMLError) as error:
        sys.exit(f"{type(error).__name__}: {error}")
