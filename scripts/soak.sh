#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# usage: scripts/soak.sh [--minutes N] [--kernel debug|stock] [--seed N]
#
# Runs a mixed stress test in a virtual machine for N minutes (default 10, on the debug kernel;
# start and final checks take a few more). Loads verify all data that they read. Meanwhile policies,
# rules, plans and devices change, programs start, crash and exit, all kinds of invalid calls are
# made, and allocations fail. Prints the calls and their results, and keeps them in
# build/soak/soak.md. Status 0: no lost request, no wrong data, no error in the kernel log, no leak,
# and only documented results. The same seed draws the same calls; their effects differ from run to
# run.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

minutes=10 kernel=debug seed=1
while [ $# -gt 0 ]; do
	case $1 in
	--help | -h) usage && exit ;;
	--minutes) minutes=$2 && shift ;;
	--kernel) kernel=$2 && shift ;;
	--seed) seed=$2 && shift ;;
	*) die "unknown argument '$1', see --help" ;;
	esac
	shift
done
[[ $minutes =~ ^[0-9]+(\.[0-9])?$ ]] || die "--minutes: expected a number"
[[ $seed =~ ^[0-9]+$ ]] || die "--seed: expected a number"
[ "$kernel" = stock ] || [ "$kernel" = debug ] || die "--kernel: expected stock or debug"
seconds=$(awk -v m="$minutes" 'BEGIN { printf "%d", m * 60 }')

"$NRS_SCRIPTS/build-module.sh" "$kernel"
"$NRS_SCRIPTS/build-tools.sh"
results=$NRS_TOP/build/soak
name=soak-$kernel-$seed
mkdir -p "$results"
status=0
"$NRS_SCRIPTS/vm.sh" --kernel "$kernel" --more --name "$name" --timeout $((seconds + 1500)) \
	--file "$NRS_TOP/build/tools/nrs-test:/bin/nrs-test" -- soak.sh "$seconds" "$seed" || status=$?

out=$NRS_TOP/build/vm/$name
splats=$(wc -l <"$out/trouble" 2>/dev/null || echo unknown)
# Leaks are counted only if the machine ran to its end.
leaks='not looked for'
if [ "$kernel" = debug ] && [ -f "$out/status" ]; then
	leaks=$(grep -c '^unreferenced object' "$out/kmemleak" 2>/dev/null || true)
fi
{
	cat "$out/out/soak.md" 2>/dev/null || echo "The machine did not finish: status $status."
	echo
	echo "Error lines in the kernel log: $splats. Leaks: ${leaks:-0}. Status: $status."
} >"$results/soak.md"
cp "$results/soak.md" "$results/$name.md"
tail -n 1 "$results/soak.md"
log "soak: the tables are in build/soak/soak.md"
exit "$status"
