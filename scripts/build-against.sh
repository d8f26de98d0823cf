#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# usage: scripts/build-against.sh stock|SERIES|debug DIR [MAKE-ARGUMENT...]
#
# Builds the modules of DIR, which use include/nrs.h, against the nrs.ko that scripts/build-module.sh makes for the same kernel.
# Warnings are errors. Results: build/FLAVOUR/*.ko.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
case ${1:-} in --help | -h) usage && exit ;; stock | debug | [0-9]*) flavour=$1 ;; *) die "say stock, debug or a series, see --help" ;; esac
[ -f "${2:-}/Kbuild" ] || die "'${2:-}' has no Kbuild"
dir=$(cd "$2" && pwd -P) name=$(basename "$2")

if [ -z "${NRS_IN_ROOT:-}" ]; then
	"$NRS_SCRIPTS/build-module.sh" "$flavour"
	exec "$NRS_SCRIPTS/in-root.sh" "$0" "$flavour" "$dir" "${@:3}"
fi

vars=$("$NRS_SCRIPTS/kernel.sh" $(case $flavour in [0-9]*) echo "$flavour" ;; esac) --print)
eval "$vars"
make=(ARCH=x86_64)
if [ "$flavour" = debug ]; then
	vars=$("$NRS_SCRIPTS/debug-kernel.sh" --print)
	eval "$vars"
	NRS_KBUILD=$NRS_DBG_KBUILD
	make+=(LLVM=1)
fi
out=$NRS_TOP/build/$flavour nrs=$NRS_CACHE/module/$flavour/src work=$NRS_CACHE/module/$flavour-$name
lock "module/$flavour"
mkdir -p "$out" "$work"
rsync -rl --checksum --delete --filter='P *.o' --filter='P *.cmd' "$dir/" "$work/"
if ! make -C "$NRS_KBUILD" M="$work" "${make[@]}" KCFLAGS="-Werror -I$nrs/include" KBUILD_EXTRA_SYMBOLS="$nrs/Module.symvers" \
	"-j$(nproc)" "${@:3}" modules >"$work.log" 2>&1; then
	grep -E 'error|warning|ERROR' "$work.log" | head -n 100 >&2
	die "$name ($flavour): build failed, whole output in $work.log"
fi
for module in "$work"/*.ko; do strip -g "$module" -o "$out/$(basename "$module")"; done
log "$name ($flavour): $out"
