#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# usage: scripts/same-module.sh [BASE]
#
# Builds nrs.ko of the commit BASE (default: HEAD) and of the checkout, and compares all sections
# that the kernel loads. For changes that must not change the module: names, comments, formatting.
# Both builds leave out the line numbers of panics. Prints the sections that differ, and fails if
# any does. Where names or the order of files have changed, compares functions one by one in place
# of the sections of code and their tables: the instructions must be the same, wherever they stand.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
case ${1:-} in --help | -h) usage && exit ;; esac
base=$(git -C "$NRS_TOP" rev-parse --verify --quiet "${1:-HEAD}^{commit}") || die "no commit '$1'"

dir=$NRS_TOP/build/same
rm -rf "$dir"
mkdir -p "$dir/before"
git -C "$NRS_TOP" archive "$base" Kbuild rust include | tar -x -C "$dir/before"
mkdir "$dir/after"
(cd "$NRS_TOP" && git ls-files -z Kbuild rust include | xargs -0 cp --parents -P -t "$dir/after")
for side in before after; do
	NRS_RUSTFLAGS=-Zlocation-detail=none "$NRS_SCRIPTS/build-module.sh" stock --source "$dir/$side"
done

"$NRS_SCRIPTS/in-root.sh" python3 - "$NRS_TOP"/build/stock-{before,after}/nrs.ko <<'EOF'
import collections
import hashlib
import re
import struct
import subprocess
import sys

ALLOC, EXECUTABLE, NOBITS = 2, 4, 8
# What names the build, and not what it does.
IGNORED = (".note", ".modinfo", "__versions", "__version_ext", ".gnu.linkonce")
# What stands in the order of the functions: tables about code, and its constants.
ORDERED = (".orc_unwind", ".call_sites", ".return_sites", "__bug_table", ".rodata")


def sections(path):
    """Yields name, flags, type, link, info and bytes of each section."""
    data = open(path, "rb").read()
    (offset,) = struct.unpack_from("<Q", data, 0x28)
    size, count, names = struct.unpack_from("<HHH", data, 0x3A)
    heads = [struct.unpack_from("<IIQQQQII", data, offset + i * size) for i in range(count)]
    strings = data[heads[names][4] :]
    for name, kind, flags, _, start, length, link, info in heads:
        body = b"" if kind == NOBITS else data[start : start + length]
        yield strings[name : strings.index(0, name)].decode(), flags, kind, link, info, body


def functions(path):
    """Returns the names of the functions by their instructions.

    Targets in the same function are offsets. Of others only the names of C are compared.
    """
    command = ["objdump", "--disassemble", "--reloc", "--demangle", "--no-show-raw-insn", path]
    listing = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    found = collections.defaultdict(list)
    name, start, lines = None, 0, []
    for line in [*listing.splitlines(), "0 <>:"]:
        if head := re.fullmatch(r"([0-9a-f]+) <(.*)>:", line):
            # The padding in front of a function has a symbol of its own.
            if name and not name.startswith("__pfx_"):
                found["\n".join(lines)].append(name)
            start, name, lines = int(head[1], 16), head[2], []
        elif reloc := re.search(r"\tR_X86_64_\w+\s+(\w+)([+-]0x[0-9a-f]+)?$", line):
            lines.append(reloc[1])
        elif step := re.fullmatch(r" *[0-9a-f]+:\t(.*?)\s*(# [0-9a-f]+ <.*)?", line):
            target = re.fullmatch(r"(\S+ +)([0-9a-f]+) <(.*?)(\+0x[0-9a-f]+)?>", step[1])
            if target:
                inside = target[3] == name
                lines.append(target[1] + (f"{int(target[2], 16) - start:x}" if inside else ""))
            elif not re.match(r"nop|cs nop|data16|xchg +%ax,%ax", step[1]):
                lines.append(step[1])
    return found


def loaded(path):
    """Returns digest and size of each section that is loaded."""
    return {
        name: (hashlib.sha256(body).hexdigest(), len(body), flags)
        for name, flags, kind, _, _, body in sections(path)
        if flags & ALLOC and not name.startswith(IGNORED)
    }


before, after = (loaded(path) for path in sys.argv[1:])
differ = sorted(n for n in before.keys() | after.keys() if before.get(n) != after.get(n))
code = [n for n in differ if (before.get(n) or after[n])[2] & EXECUTABLE]
for name in differ:
    sizes = [str(side[name][1]) if name in side else "none" for side in (before, after)]
    print(f"{name}: {sizes[0]} and {sizes[1]} bytes differ")
one, other = (functions(path) for path in sys.argv[1:])
count = [sum(map(len, side.values())) for side in (one, other)]
print(f"{count[0]} and {count[1]} functions")
same = True
for when, side, rest in (("before", one, other), ("after", other, one)):
    for text, names in sorted(side.items(), key=lambda item: item[1]):
        for name in names[len(rest.get(text, ())) :]:
            same = False
            print(f"only {when}: {name} ({text.count(chr(10)) + 1} instructions)")
print(f"{len(before)} sections, {len(differ)} differ")
sys.exit(any(n not in code and not n.startswith(ORDERED) for n in differ) or not same)
EOF
