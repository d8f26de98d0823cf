#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# usage: scripts/bench-vm.sh [--count-only]
#
# Measures what a request costs through nrs, against dm-linear, mq-deadline and BFQ, in virtual machines with the stock
# kernel: instructions per request on one CPU whose clock counts instructions (repeatable), then throughput on 1, 2 and 4
# free-running CPUs (ratios only, reported). Prints tables and writes build/bench-vm.txt.
#
#   --count-only   only the instructions
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cpus=(1 2 4)
case ${1:-} in
--help | -h) usage && exit ;;
--count-only) cpus=() ;;
'') ;;
*) die "unknown argument '$1', see --help" ;;
esac

"$NRS_SCRIPTS/build-module.sh" stock
results=$NRS_TOP/build/bench-vm
rm -rf "$results"
mkdir -p "$results"
"$NRS_SCRIPTS/vm.sh" --kernel stock --icount --timeout 600 --name bench-count -- bench.sh count
mv "$NRS_TOP/build/vm/bench-count/out" "$results/count"
for n in "${cpus[@]}"; do
	"$NRS_SCRIPTS/vm.sh" --kernel stock --cpus "$n" --timeout 300 --name "bench-free-$n" -- bench.sh free
	mv "$NRS_TOP/build/vm/bench-free-$n/out" "$results/free-$n"
done
"$NRS_SCRIPTS/report.sh" vm "$results" | tee "$NRS_TOP/build/bench-vm.txt"
log "bench-vm: the tables are in build/bench-vm.txt"
