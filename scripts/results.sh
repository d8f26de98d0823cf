#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# usage: scripts/results.sh [PART...]
#
# Measures all figures of the manual, and writes them and the pictures into the pages
# (scripts/figures.py). Takes about an hour on two cores. PARTs, default all:
#
#   machine      processor and compiler
#   demo         two users on one device
#   compare      nrs beside the kernel's schedulers
#   requests     instructions of a request
#   decisions    nanoseconds of a decision, and memory
#   experiments  ThemisIO's experiments on a disk; shares beneath layers
#   sim          all studies of the simulator, and its speed
#   cluster      two servers with agents
#
# Figures of virtual machines and of the simulator do not depend on the load of this host;
# nanoseconds of decisions do, and the page shows it.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
case ${1:-} in --help | -h) usage && exit ;; esac

cd "$NRS_TOP"
[ $# -gt 0 ] || set -- machine demo compare requests decisions experiments sim cluster
put() {
	scripts/figures.py put "$1" "$2" <"$3"
}
for part in "$@"; do
	log "results: $part"
	case $part in
	machine)
		mkdir -p build
		{
			lscpu | sed -n 's/^Model name: */* Processor: /p'
			echo "* CPUs: $(nproc)"
			scripts/in-root.sh rustc --version | sed 's/^/* Compiler: /'
		} >build/machine.md
		put machine 'make results' build/machine.md
		;;
	demo)
		scripts/demo.sh
		put demo 'make demo' build/demo.md
		cp demo.svg Documentation/demo.svg
		;;
	compare)
		scripts/compare.sh
		put compare 'make compare' build/compare/manual.md
		put compare-readme 'make compare' build/compare/readme.md
		rm -f Documentation/results/compare/*.svg
		cp build/compare/{error-1-4,mix-{band,slow,slow8,loop}}.svg Documentation/results/compare
		;;
	requests)
		scripts/bench-vm.sh --count-only
		put requests 'scripts/bench-vm.sh --count-only' build/bench-vm.txt
		;;
	decisions)
		scripts/bench.sh --quick decision/
		put decisions 'scripts/bench.sh --quick decision/' build/bench/decisions.md
		;;
	experiments)
		scripts/build-module.sh stock
		scripts/vm.sh --kernel stock --icount --more --name experiments --timeout 1800 \
			-- experiments.sh
		out=build/vm/experiments/out
		for name in experiments interference layers; do
			put $name 'scripts/results.sh experiments' $out/$name.md
		done
		;;
	sim)
		scripts/sim.sh --all
		results=build/sim/results
		put events 'scripts/sim.sh events' "$results/events.txt"
		for study in "$results"/*.md; do
			name=$(basename "$study" .md)
			put "$name" "scripts/sim.sh study $name" "$study"
		done
		;;
	cluster)
		scripts/cluster.sh
		put cluster 'make cluster' build/cluster.txt
		cp cluster.svg Documentation/cluster.svg
		;;
	*) die "unknown part '$part', see --help" ;;
	esac
done
