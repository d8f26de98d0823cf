#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# usage: scripts/build-against.sh stock|SERIES|debug DIR...
#
# Builds the modules of each DIR, which use include/nrs.h, against the nrs.ko that
# scripts/build-module.sh makes for the same kernel. Modules of a later DIR may use symbols, and
# headers in include/, of an earlier DIR. Warnings are errors. Results: build/FLAVOUR/*.ko.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
case ${1:-} in
--help | -h) usage && exit ;;
stock | debug) flavour=$1 series='' ;;
[0-9]*) flavour=$1 series=$1 ;;
*) die "expected stock, debug or a series, see --help" ;;
esac
shift

if [ -z "${NRS_IN_ROOT:-}" ]; then
	"$NRS_SCRIPTS/build-module.sh" "$flavour"
	exec "$NRS_SCRIPTS/in-root.sh" "$0" "$flavour" "$@"
fi

vars=$("$NRS_SCRIPTS/kernel.sh" $series --print)
eval "$vars"
make=(ARCH=x86_64)
if [ "$flavour" = debug ]; then
	vars=$("$NRS_SCRIPTS/debug-kernel.sh" --print)
	eval "$vars"
	NRS_KBUILD=$NRS_DBG_KBUILD
	make+=(LLVM=1)
fi
nrs=$NRS_CACHE/module/$flavour/src
headers="-I$nrs/include" symbols=$nrs/Module.symvers
lock "module/$flavour"
for dir; do
	[ -f "$NRS_TOP/$dir/Kbuild" ] || die "'$dir' has no Kbuild"
	work=$NRS_CACHE/module/$flavour-${dir//\//-}
	mkdir -p "$work" "$NRS_TOP/build/$flavour"
	rsync -rl --checksum --delete --filter='P *.o' --filter='P *.cmd' "$NRS_TOP/$dir/" "$work/"
	[ ! -d "$work/include" ] || headers+=" -I$work/include"
	if ! make -C "$NRS_KBUILD" M="$work" "${make[@]}" KCFLAGS="-Werror $headers" \
		KBUILD_EXTRA_SYMBOLS="$symbols" "-j$(nproc)" modules >"$work.log" 2>&1; then
		grep -E 'error|warning|ERROR' "$work.log" | head -n 100 >&2
		die "$dir ($flavour): build failed, whole output in $work.log"
	fi
	symbols+=" $work/Module.symvers"
	for module in "$work"/*.ko; do
		strip -g "$module" -o "$NRS_TOP/build/$flavour/$(basename "$module")"
	done
done
log "$* ($flavour): $NRS_TOP/build/$flavour"
