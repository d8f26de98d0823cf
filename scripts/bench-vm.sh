#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# usage: scripts/bench-vm.sh [--count-only | --profile DEVICE [BATCH]]
#
# Measures the cost of a request through nrs, against dm-linear, mq-deadline and BFQ, in virtual
# machines with the stock kernel. First, instructions per request on one CPU whose clock counts
# instructions (repeatable). Then, throughput on 1, 2 and 4 free-running CPUs (only ratios are
# reported). Prints tables and writes build/bench-vm.txt.
#
#   --count-only   measure only the instructions
#   --profile DEVICE [BATCH]
#                  print the instructions of a request by function, through DEVICE of
#                  tests/vm/bench.sh (raw, linear, nrs-64, nrs-8-fair, ...), with BATCH requests
#                  submitted at a time (default 32): the difference of two runs under a plugin of
#                  QEMU; writes build/profile-DEVICE-BATCH.txt
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cpus=(1 2 4) profiled=''
case ${1:-} in
--help | -h) usage && exit ;;
--count-only) cpus=() ;;
--profile)
	[ -n "${2:-}" ] || die "no device, see --help"
	profiled=$2 batch=${3:-32}
	;;
'') ;;
*) die "unknown argument '$1', see --help" ;;
esac

"$NRS_SCRIPTS/build-module.sh" stock
if [ -n "$profiled" ]; then
	results=$NRS_TOP/build/profile
	rm -rf "$results"
	mkdir -p "$results"
	"$NRS_SCRIPTS/in-root.sh" cc -O2 -Wall -Wextra -shared -fPIC -o "$results/plugin.so" \
		"$NRS_SCRIPTS/profile.c"
	for requests in 10000 50000; do
		printf '#!/bin/sh\nexec qemu-system-x86_64 -plugin %s,out=%s "$@"\n' \
			"$results/plugin.so" "$results/$requests.blocks" >"$results/qemu"
		chmod 755 "$results/qemu"
		NRS_QEMU=$results/qemu "$NRS_SCRIPTS/vm.sh" --kernel stock --icount --timeout 600 \
			--name bench-profile -- bench.sh profile "$requests" "$profiled" "$batch"
		mv "$NRS_TOP/build/vm/bench-profile/out/symbols" "$results/$requests.symbols"
	done
	"$NRS_SCRIPTS/report.sh" profile "$results" | tee "$NRS_TOP/build/profile-$profiled-$batch.txt"
	exit
fi
results=$NRS_TOP/build/bench-vm
rm -rf "$results"
mkdir -p "$results"
"$NRS_SCRIPTS/vm.sh" --kernel stock --icount --timeout 600 --name bench-count -- bench.sh count
mv "$NRS_TOP/build/vm/bench-count/out" "$results/count"
for n in "${cpus[@]}"; do
	"$NRS_SCRIPTS/vm.sh" --kernel stock --cpus "$n" --timeout 300 --name "bench-free-$n" \
		-- bench.sh free
	mv "$NRS_TOP/build/vm/bench-free-$n/out" "$results/free-$n"
done
"$NRS_SCRIPTS/report.sh" vm "$results" | tee "$NRS_TOP/build/bench-vm.txt"
log "bench-vm: the tables are in build/bench-vm.txt"
