#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""usage: crates.py MANIFEST PACKAGE TARGET [FEATURE]

Lists the crates that are linked into PACKAGE, as built with FEATURE, with their licences, and the
texts of these licences, each once.
"""
import json
import pathlib
import subprocess
import sys

TEXTS = ("LICENSE", "LICENCE", "COPYING", "NOTICE", "COPYRIGHT", "UNLICENSE")


def cargo(command, *arguments):
    """Returns the output of the command, for exactly the versions of the lock file."""
    return subprocess.check_output(["cargo", command, "--locked", *arguments], text=True)


def linked(manifest, package, target, *features):
    """Returns the crates of other projects that are linked into the package, by cargo metadata."""
    options = ["--manifest-path", manifest]
    options += ["--features=%s/%s" % (package, feature) for feature in features]
    # cargo metadata merges the features of all packages. cargo tree lists the crates of one
    # package, and excludes crates that only run in the compiler.
    selection = ["--package", package, "--target", target, "--edges", "normal,no-proc-macro"]
    tree = cargo("tree", *options, *selection, "--prefix", "none")
    names = {tuple(line.split()[:2]) for line in tree.splitlines() if line}
    metadata = json.loads(
        cargo("metadata", *options, "--format-version", "1", "--filter-platform", target)
    )
    # Crates of this project have no source registry.
    found = [
        crate
        for crate in metadata["packages"]
        if crate["source"] and (crate["name"], "v" + crate["version"]) in names
    ]
    return sorted(found, key=lambda one: (one["name"], one["version"]))


def main():
    package = sys.argv[2]
    crates = linked(*sys.argv[1:])
    texts = {}
    print("Crates that are linked into %s, which is itself under GPL-2.0-only:\n" % package)
    for crate in crates:
        name = "%s %s" % (crate["name"], crate["version"])
        print("%-32s %s" % (name, crate["license"] or "(licence text below)"))
        for file in sorted(pathlib.Path(crate["manifest_path"]).parent.iterdir()):
            if file.is_file() and file.name.upper().startswith(TEXTS):
                texts.setdefault(file.read_text(errors="replace").strip(), []).append(name)
    for text, names in texts.items():
        print("\n%s\nOf %s:\n\n%s" % ("-" * 79, ", ".join(sorted(set(names))), text))


main()
