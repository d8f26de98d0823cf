#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Keeps the figures of the manual.

usage: scripts/figures.py put NAME COMMAND <RESULT.md
       scripts/figures.py check

Pages contain figures in blocks that a command has printed:

  <!-- figures NAME DIGEST -->
  ...
  <!-- end of figures -->

put replaces the block NAME by standard input, and adds the date and COMMAND. check fails if a block
is not as put has written it, so that no figure is changed by hand.
"""

import datetime
import hashlib
import re
import subprocess
import sys
import textwrap

BLOCK = re.compile(
    r"<!-- figures (?P<name>\S+)(?: (?P<digest>\S+))? -->\n(?P<text>.*?)<!-- end of figures -->",
    re.DOTALL,
)
RANGE = re.compile(r" \((?:[-+0-9.,]+–[-+0-9.,]+|lowest–highest|least–greatest)\)")


def digest(text):
    """Returns the digest of a block's text."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def pages():
    """Yields path and text of each Markdown file of git."""
    files = subprocess.check_output(["git", "ls-files", "*.md"], text=True)
    for path in files.split():
        with open(path) as page:
            yield path, page.read()


def formatted(text):
    """Returns Markdown with lines of at most 100 columns, and tables without padding and ranges."""
    lines = []
    for line in RANGE.sub("", text).strip().splitlines():
        if line.startswith("|"):
            line = re.sub(r" {2,}", " ", line)
            if set(line) <= set("|-: "):
                line = re.sub(r"-{3,}", "---", line).replace(" ", "")
            lines.append(line)
        elif line:
            indent = "  " if line.startswith("* ") else ""
            lines += textwrap.wrap(line, 100, subsequent_indent=indent, break_on_hyphens=False)
        else:
            lines.append("")
    return "\n".join(lines) + "\n"


def put(name, command, result):
    """Replaces the blocks with this name; returns their number."""
    date = datetime.date.today().strftime("%d %B %Y").lstrip("0")
    text = f"\nMeasured on {date} by `{command}`:\n\n{formatted(result)}\n"
    found = 0
    for path, page in pages():

        def replace(match):
            nonlocal found
            if match["name"] != name:
                return match[0]
            found += 1
            return f"<!-- figures {name} {digest(text)} -->\n{text}<!-- end of figures -->"

        changed = BLOCK.sub(replace, page)
        if changed != page:
            with open(path, "w") as file:
                file.write(changed)
    return found


def check():
    """Prints the blocks that were changed by hand; returns the numbers of good and bad blocks."""
    good = bad = 0
    for path, page in pages():
        for match in BLOCK.finditer(page):
            if match["digest"] == digest(match["text"]):
                good += 1
                continue
            bad += 1
            print(f"{path}: figures {match['name']} are not as a command printed them")
    return good, bad


def main(arguments):
    """Runs the command of the usage above; returns the exit status."""
    match arguments:
        case ["put", name, command]:
            if put(name, command, sys.stdin.read()) == 0:
                print(f"figures.py: no page has figures {name}", file=sys.stderr)
                return 1
            return 0
        case ["check"]:
            good, bad = check()
            print(f"figures: {good} blocks as printed, {bad} changed by hand")
            return bad > 0 or good == 0
        case ["--help" | "-h"]:
            print(__doc__.strip())
            return 0
    print(__doc__.strip(), file=sys.stderr)
    return 2


sys.exit(main(sys.argv[1:]))
