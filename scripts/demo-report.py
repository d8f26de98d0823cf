#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""usage: scripts/demo-report.py DIR SVG

Reads what tests/vm/demo.sh left in DIR, prints the table of the demo and draws it as SVG.
Every figure and every word about them is made from the measurement.
"""

import json
import sys
import textwrap
from html import escape
from pathlib import Path

RUNS = ("alone", "fifo", "fairshare", "tbf")
USERS = {"small": ("small",), "greedy": ("large", "medium")}  # jobs of each user; a client of the service for each
BUSY_LIMIT = 60  # per cent; above, the CPUs decide and not the device
DEVICE = "null_blk, which takes 8 ms per request (timer interrupt) and stores no data."
TOLERANCE = 0.05  # how far from half, or from its limit, what a client got may be


class Job:
    """What one job got in one run: its share from nrs's counters, its latency from fio."""

    def __init__(self, got, seconds, report):
        (job,) = report["jobs"]
        if job["error"]:
            raise SystemExit(f"fio failed with error {job['error']}")
        self.mb_per_s = got["bytes"] / seconds / 1e6
        self.iops = got["requests"] / seconds
        percentiles = job["read"]["clat_ns"]["percentile"]
        self.p50_ms = percentiles["50.000000"] / 1e6
        self.p99_ms = percentiles["99.000000"] / 1e6


class Run:
    """One run: its jobs by name, and how busy the CPU was, per cent."""

    def __init__(self, directory, name):
        before, after = (read_facts(directory / f"{name}.{when}") for when in ("before", "after"))
        change = {fact: after[fact] - before[fact] for fact in after}
        self.busy = 100 - 100 * change["idle_seconds"] / change["seconds"]
        self.jobs = {}
        for job in (job for jobs in USERS.values() for job in jobs):
            if f"{job}_bytes" in change:
                got = {fact: change[f"{job}_{fact}"] for fact in ("requests", "bytes")}
                report = json.loads((directory / f"{name}-{job}.json").read_text())
                self.jobs[job] = Job(got, change["seconds"], report)

    def of(self, user):
        """MB/s of a user's jobs together."""
        return sum(self.jobs[job].mb_per_s for job in USERS[user] if job in self.jobs)

    def total(self):
        """MB/s of all."""
        return sum(job.mb_per_s for job in self.jobs.values())

    def share(self, user):
        """Part of the throughput that went to `user`, per cent."""
        return 100 * self.of(user) / self.total()

    def share_within(self, user, job):
        """Part of what `user` got that went to its `job`, per cent."""
        return 100 * self.jobs[job].mb_per_s / self.of(user)


class Rule:
    """The rule that limited the greedy user under tbf: its text, and its rate in MB/s."""

    def __init__(self, path):
        self.text = path.read_text().strip()
        (self.rate,) = (word.removeprefix("rate=") for word in self.text.split() if word.startswith("rate="))
        self.mb_per_s = float(self.rate.removesuffix("MB/s"))


def read_facts(path):
    """Numbers by name."""
    pairs = (line.split() for line in path.read_text().splitlines())
    return {name: float(value) for name, value in pairs}


def milliseconds(value):
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"


def slowdown(runs, name):
    """How many times less the small job got than alone."""
    return runs["alone"].jobs["small"].iops / runs[name].jobs["small"].iops


def table(runs):
    """The lines of the table."""
    head = f"{'run':<11}{'user':<8}{'job':<7}{'MB/s':>7}{'IOPS':>6}{'p50 ms':>9}{'p99 ms':>9}{'user gets':>11}{'job of it':>11}"
    measured = len(head)
    head += "  small against alone"
    lines = [head, "-" * len(head)]
    for name in RUNS:
        run = runs[name]
        for user, jobs in USERS.items():
            first = True
            for job in jobs:
                got = run.jobs.get(job)
                if got is None:
                    continue
                line = (
                    f"{name:<11}{user:<8}{job:<7}{got.mb_per_s:>7.1f}{got.iops:>6.0f}"
                    f"{milliseconds(got.p50_ms):>9}{milliseconds(got.p99_ms):>9}"
                    + (f"{run.share(user):>10.1f}%" if first else " " * 11)
                    + (f"{run.share_within(user, job):>10.1f}%" if len(jobs) > 1 else "")
                )
                if user == "small" and name != "alone":
                    line = f"{line:<{measured}}  {slowdown(runs, name):.1f} times slower"
                lines.append(line)
                first = False
    return lines


def is_half(part):
    """Whether `part`, per cent, is a half."""
    return abs(part - 50) < 50 * TOLERANCE


def is_fair(runs):
    """Whether each user got half under fairshare, and each of the greedy one's jobs half of that."""
    run = runs["fairshare"]
    return is_half(run.share("small")) and is_half(run.share_within("greedy", "large"))


def is_limited(runs, rule):
    """Whether the greedy user got what its rule says under tbf."""
    return abs(runs["tbf"].of("greedy") / rule.mb_per_s - 1) < TOLERANCE


def fair_sentence(runs):
    """What the reader sees of sharing."""
    fifo, fair = slowdown(runs, "fifo"), slowdown(runs, "fairshare")
    p99 = {name: runs[name].jobs["small"].p99_ms for name in RUNS}
    large = {name: runs[name].share_within("greedy", "large") for name in ("fifo", "fairshare")}
    text = (
        f"Beside the greedy user the small one runs {fifo:.1f} times slower than alone under fifo "
        f"(p99 {milliseconds(p99['fifo'])} ms instead of {milliseconds(p99['alone'])} ms), and {fair:.1f} times slower "
        f"under fairshare (p99 {milliseconds(p99['fairshare'])} ms)"
    )
    text += f"; together they get {100 * runs['fairshare'].total() / runs['fifo'].total():.0f} % of what they got under fifo."
    text += (
        f" The mode is uid_then_jobid_fair: each user gets half, and each of the greedy user's two jobs half of that, though "
        f"one has three times the other's processes (under fifo it got {large['fifo']:.0f} % of its user's part)."
        if is_fair(runs)
        else f" Each user should get half and each of the greedy user's two jobs half of that, but the small user got "
        f"{runs['fairshare'].share('small'):.1f} % and the large job {large['fairshare']:.1f} % of its user's part, which is NOT that."
    )
    return text


def limit_sentence(runs, rule):
    """What the reader sees of limiting."""
    run = runs["tbf"]
    text = f'Under tbf the rule "{rule.text}" keeps the greedy user, with both jobs, at {run.of("greedy"):.1f} MB/s'
    if not is_limited(runs, rule):
        text += ", which is NOT what the rule says,"
    small = run.jobs["small"]
    text += (
        f" and leaves the rest of the device to the small one: {small.mb_per_s:.1f} MB/s, "
        f"{slowdown(runs, 'tbf'):.1f} times slower than alone (p99 {milliseconds(small.p99_ms)} ms)."
    )
    return text


def notes(runs):
    """How it was measured, and whether that holds."""
    busy = {name: runs[name].busy for name in RUNS}
    worst = max(busy.values())
    text = [
        f"Device model: {DEVICE} 8 slots. Time in the virtual machine is counted in instructions, so the figures repeat and "
        "do not depend on this machine's load.",
        "The virtual machine's one CPU was busy "
        + ", ".join(f"{name} {max(busy[name], 0):.0f} %" for name in RUNS)
        + (
            f": below {BUSY_LIMIT} %, so the device was the bottleneck."
            if worst < BUSY_LIMIT
            else f": NOT below {BUSY_LIMIT} %, so these figures say nothing."
        ),
    ]
    return text, worst < BUSY_LIMIT


STYLE = """
  text { font: 14px system-ui, sans-serif; fill: #24292f }
  .title { font-size: 17px; font-weight: 600 }
  .note { font-size: 12px; fill: #57606a }
  .back { fill: #ffffff; stroke: #d0d7de }
  .small { fill: #0b6bcb }
  .large { fill: #b8c0c9 }
  .medium { fill: #d5dae0 }
  .fair { stroke: #24292f; stroke-dasharray: 4 3 }
  .on { fill: #ffffff }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 }
    .note { fill: #9aa4af }
    .back { fill: #0d1117; stroke: #30363d }
    .small { fill: #4ea1ff }
    .large { fill: #3d444d }
    .medium { fill: #2a3038 }
    .fair { stroke: #e6edf3 }
    .on { fill: #0d1117 }
  }
"""


def text_at(x, y, words, css="", anchor="start"):
    return f'<text x="{x:.0f}" y="{y:.0f}" class="{css}" text-anchor="{anchor}">{words}</text>'


def bar(x, y, width, css, height=34):
    return f'<rect x="{x:.1f}" y="{y}" width="{max(width, 1.5):.1f}" height="{height}" rx="2" class="{css}"/>'


def draw(runs, rule):
    """The picture: who got what share, and how long the small job waited."""
    left, width, step = 110, 560, 46
    names = RUNS[1:]
    out = [text_at(24, 36, "Two users on one device: a small one, and a greedy one with two jobs", "title")]

    out.append(text_at(24, 72, "Share of the throughput"))
    for row, name in enumerate(names):
        run = runs[name]
        y = 88 + row * step
        part = run.share("small")
        small = width * part / 100
        large = width * run.jobs["large"].mb_per_s / run.total()
        out.append(text_at(left - 12, y + 22, name, anchor="end"))
        out.append(bar(left, y, small, "small"))
        out.append(bar(left + small, y, large, "large"))
        medium = width - small - large
        out.append(bar(left + small + large, y, medium, "medium"))
        if small > 110:
            out.append(text_at(left + 10, y + 22, f"small {part:.1f} %", "on"))
        else:
            out.append(text_at(left + small + 10, y + 22, f"small {part:.1f} %"))
        # Each of its jobs, as far as there is room.
        for end, length, job in ((width - medium, large, "large"), (width, medium, "medium")):
            words = f"{100 * run.jobs[job].mb_per_s / run.total():.1f} %"
            if length > (220 if small <= 110 else 120):
                words = f"greedy {words}"
            if length > 60:
                out.append(text_at(left + end - 10, y + 22, words, anchor="end"))
    half = left + width / 2
    below = 80 + len(names) * step
    out.append(f'<line x1="{half}" y1="84" x2="{half}" y2="{below}" class="fair"/>')
    out.append(text_at(half, below + 16, "half each", "note", "middle"))

    below += 54
    out.append(text_at(24, below, "Latency of the small user, 99th percentile"))
    rows = ("alone",) + names
    longest = max(runs[name].jobs["small"].p99_ms for name in rows)
    for row, name in enumerate(rows):
        value = runs[name].jobs["small"].p99_ms
        y = below + 16 + row * step
        length = (width - 90) * value / longest
        out.append(text_at(left - 12, y + 22, name, anchor="end"))
        out.append(bar(left, y, length, "small"))
        out.append(text_at(left + length + 10, y + 22, f"{milliseconds(value)} ms"))

    method = (
        "64 KiB random reads. small: 1 process, 16 requests in flight; greedy: jobs of 12 and of 4 processes, 32 each.",
        "8 slots. The device (null_blk) takes 8 ms per request and stores nothing.",
        f"fairshare: by users, then by their jobs. tbf: one rule, which keeps the greedy user at {rule.rate}.",
    )
    below += 40 + len(rows) * step
    for row, words in enumerate(method):
        out.append(text_at(24, below + row * 18, words, "note"))
    height = below + len(method) * 18
    body = "\n".join(out)
    said = f"{fair_sentence(runs)} {limit_sentence(runs, rule)}"
    label = escape(f"Share of throughput and latency of a small user beside a greedy one. {said}", quote=True)
    return (
        "<!-- SPDX-License-Identifier: GPL-2.0-only -->\n"
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 {height}" width="720" height="{height}" role="img" '
        f'aria-label="{label}">\n<style>{STYLE}</style>\n'
        f'<rect x="0.5" y="0.5" width="719" height="{height - 1}" rx="8" class="back"/>\n{body}\n</svg>\n'
    )


def main():
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    directory, picture = Path(sys.argv[1]), Path(sys.argv[2])
    runs = {name: Run(directory, name) for name in RUNS}
    rule = Rule(directory / "rule")
    text, valid = notes(runs)
    words = (fair_sentence(runs), limit_sentence(runs, rule), *text)
    paragraphs = [textwrap.fill(said, 100) for said in words]
    print("\n".join(table(runs)), *paragraphs, sep="\n\n")
    picture.write_text(draw(runs, rule))
    return 0 if valid and is_fair(runs) and is_limited(runs, rule) else 1


if __name__ == "__main__":
    sys.exit(main())
