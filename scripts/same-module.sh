#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# usage: scripts/same-module.sh [BASE]
#
# Builds nrs.ko of the commit BASE (default: HEAD) and of the checkout, and compares all sections
# that the kernel loads. For changes that must not change the module: names, comments, formatting.
# Both builds leave out the line numbers of panics; the line numbers of bug!() are not compared.
# Prints the sections that differ, and fails if any does. Where names or the order of files have
# changed, compares functions one by one in place of the sections of code: their instructions must
# be the same, wherever they stand.
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
import struct
import sys

ALLOC, EXECUTABLE, NOBITS, RELA, SYMBOLS = 2, 4, 8, 4, 2
# Bytes of struct bug_entry: three offsets, then the line number and flags of 2 bytes each.
BUG_ENTRY = 16
# What names the build, and not what it does.
IGNORED = (".note", ".modinfo", "__versions", "__version_ext", ".gnu.linkonce")


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


def without_lines(name, body):
    """Returns the bytes of a section without the line numbers of bug!()."""
    if name != "__bug_table":
        return body
    starts = range(0, len(body), BUG_ENTRY)
    return b"".join(body[i : i + 12] + body[i + 14 : i + BUG_ENTRY] for i in starts)


def functions(path):
    """Returns how often each function occurs, by a digest of its bytes; relocations are zero."""
    all_sections = list(sections(path))
    found = collections.Counter()
    for _, _, kind, _, _, body in all_sections:
        if kind != SYMBOLS:
            continue
        for _, info, _, index, value, size in struct.iter_unpack("<IBBHQQ", body):
            if info & 15 == 2 and 0 < index < len(all_sections):
                code = all_sections[index][5][value : value + size]
                found[hashlib.sha256(code).hexdigest()] += 1
    return found


def loaded(path):
    """Returns digest and size of each section that is loaded."""
    return {
        name: (hashlib.sha256(without_lines(name, body)).hexdigest(), len(body), flags)
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
print(f"{sum(one.values())} and {sum(other.values())} functions,"
      f" {sum((one - other).values())} only before, {sum((other - one).values())} only after")
print(f"{len(before)} sections, {len(differ)} differ")
sys.exit(bool(set(differ) - set(code)) or one != other)
EOF
