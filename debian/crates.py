#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""usage: crates.py MANIFEST PACKAGE TARGET

Lists the crates that are linked into PACKAGE, with their licences, and the licences' texts, each once.
"""
import json
import pathlib
import subprocess
import sys

TEXTS = ("LICENSE", "LICENCE", "COPYING", "NOTICE", "COPYRIGHT", "UNLICENSE")


def linked(metadata, package):
    """The packages that the package needs at run time, itself left out."""
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    packages = {found["id"]: found for found in metadata["packages"]}
    start = next(found["id"] for found in packages.values() if found["name"] == package)
    seen, todo = set(), [start]
    while todo:
        here = todo.pop()
        if here in seen:
            continue
        seen.add(here)
        for dep in nodes[here]["deps"]:
            if any(kind["kind"] is None for kind in dep["dep_kinds"]):
                todo.append(dep["pkg"])
    # Those of this project have no registry.
    return sorted((packages[i] for i in seen if packages[i]["source"]), key=lambda p: (p["name"], p["version"]))


def main():
    manifest, package, target = sys.argv[1:]
    metadata = json.loads(subprocess.check_output(
        ["cargo", "metadata", "--format-version", "1", "--locked", "--manifest-path", manifest, "--filter-platform", target]))
    crates = linked(metadata, package)
    texts = {}
    print("Crates that are linked into %s, which is itself under GPL-2.0-only:\n" % package)
    for crate in crates:
        name = "%s %s" % (crate["name"], crate["version"])
        print("%-32s %s" % (name, crate["license"] or "see below"))
        for file in sorted(pathlib.Path(crate["manifest_path"]).parent.iterdir()):
            if file.is_file() and file.name.upper().startswith(TEXTS):
                texts.setdefault(file.read_text(errors="replace").strip(), []).append(name)
    for text, names in texts.items():
        print("\n%s\nOf %s:\n\n%s" % ("-" * 79, ", ".join(sorted(set(names))), text))


main()
