#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Fails if a function of a kernel module takes too much of the stack.

usage: tests/frames.py FILE.ko

The stack of a kernel task has 16 KiB, and the kernel warns of large frames in C only. Prints the
functions above LIMIT bytes. What runs deep below a system call must stay far below the limit.
"""

import re
import subprocess
import sys

LIMIT = 3200


def frames(path):
    """Returns the stack frame of each function, bytes."""
    listing = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", path],
        stdout=subprocess.PIPE,
        encoding="utf-8",
        check=True,
    ).stdout
    sizes, function = {}, ""
    for line in listing.splitlines():
        if start := re.match(r"[0-9a-f]+ <(.*)>:$", line):
            function = start[1]
        elif taken := re.search(r"sub +\$0x([0-9a-f]+),%rsp", line):
            sizes[function] = max(sizes.get(function, 0), int(taken[1], 16))
    return sizes


sizes = frames(sys.argv[1])
largest = sorted(sizes.items(), key=lambda item: -item[1])
for function, size in largest:
    if size > LIMIT:
        print(f"{function}: {size} bytes of stack; limit {LIMIT}")
if not sizes or largest[0][1] > LIMIT:
    sys.exit(1)
print(f"{len(sizes)} functions with a stack frame, at most {largest[0][1]} bytes")
