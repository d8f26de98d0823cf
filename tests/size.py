#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Compares the number of lines of each room with tests/size.toml.

usage: tests/size.py

A room is a folder, with the .rs file beside it; a file of git belongs to the innermost room, or to
"rest". Prints lines and limit of each room, and fails if

  a room has more lines than its limit;
  a room has fewer lines than its limit, by more than 1 % and 20 lines: the limit is to be lowered;
  a commit raised a limit without the line "Weight: +N ROOM because REASON" in its message, and the
  limit was not lowered again since.
"""

import re
import subprocess
import sys
import tomllib

LIMITS = "tests/size.toml"


def git(*args):
    """Returns the output of git; nothing if git fails, as in a repository without commits."""
    return subprocess.run(["git", *args], stdout=subprocess.PIPE, encoding="utf-8").stdout


def count(rooms):
    """Returns the number of lines of each room."""
    lines = dict.fromkeys(rooms, 0)
    for path in git("ls-files", "-z").split("\0")[:-1]:
        try:
            with open(path, encoding="utf-8") as file:
                text = file.read()
        except (FileNotFoundError, IsADirectoryError, UnicodeDecodeError):
            continue
        around = (room for room in rooms if path.startswith((f"{room}/", f"{room}.rs")))
        lines[max(around, key=len, default="rest")] += len(text.splitlines())
    return lines


def raises(limits):
    """Yields the commits that raised a limit without a reason, if the present one profits."""
    lowest = dict(limits)
    log = git("log", "-p", "-U0", "--no-color", "--format=%x00%h%n%B%x01", "--", LIMITS)
    for commit in log.split("\0")[1:]:
        message, _, diff = commit.partition("\1")
        # The first limits, or the oldest commit of a shallow clone.
        if "\nnew file mode" in diff:
            return
        before, after = (
            {room: int(n) for room, n in re.findall(rf'^\{sign}"?([^ "]+)"? = (\d+)', diff, re.M)}
            for sign in "-+"
        )
        for room, limit in after.items():
            more = limit - before.get(room, 0)
            reason = rf"^Weight: \+{more} {re.escape(room)} because \S"
            profits = more > 0 and limit - more < lowest.get(room, 0)
            if profits and not re.search(reason, message, re.M):
                yield f"{message.split()[0]}: no line 'Weight: +{more} {room} because ...'"
            lowest[room] = min(limit, lowest.get(room, 0))


def main():
    with open(LIMITS, "rb") as file:
        limits = tomllib.load(file)
    lines = count(limits)
    faults = list(raises(limits))
    for room, limit in limits.items():
        more = lines[room] - limit
        print(f"{room:24}{lines[room]:8} lines; limit {limit}")
        if more > 0:
            faults.append(
                f"{room}: {more} lines over the limit: remove lines, or raise the limit in a commit"
                f" with 'Weight: +{more} {room} because ...'"
            )
        elif -more > max(20, limit // 100):
            faults.append(f"{room}: {-more} lines under the limit: lower it to {lines[room]}")
    print(f"{'all':24}{sum(lines.values()):8} lines")
    for fault in faults:
        print(fault)
    return len(faults) > 0


if __name__ == "__main__":
    sys.exit(main())
