#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# usage: scripts/sim.sh [ARG...]
#        scripts/sim.sh --all [ARG...]
#
# Builds the simulator, build/sim/nrs-sim, and runs it with ARGs (Documentation/simulator.md);
# without ARGs, prints its help. Studies of the project may be given by name, as in `study disk`.
# With --all, runs all of them with ARGs (--seeds N, --quick) and writes tables, JSON and pictures
# to build/sim/results.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
case ${1:-} in -h) usage && exit ;; esac
if [ -z "${NRS_IN_ROOT:-}" ]; then
	"$NRS_SCRIPTS/root.sh"
	exec "$NRS_SCRIPTS/in-root.sh" "$0" "$@"
fi

dir=$NRS_TOP/build/sim
mkdir -p "$dir"
release_build
cargo build "${release[@]}" --package nrs-sim --bins
cp "$programs/nrs-sim" "$dir/nrs-sim.tmp"
mv "$dir/nrs-sim.tmp" "$dir/nrs-sim"
flock -u "$tree_lock"

studies=$NRS_TOP/rust/host/nrs-sim/scenarios/studies
if [ "${1:-}" != --all ]; then
	[ $# -gt 0 ] || set -- --help
	[ ! -f "$studies/${2:-}.toml" ] || set -- "$1" "$studies/$2.toml" "${@:3}"
	exec "$dir/nrs-sim" "$@"
fi
shift
results=$dir/results
mkdir -p "$results"
"$dir/nrs-sim" events | tee "$results/events.txt"
"$dir/nrs-sim" study "$studies"/*.toml --out "$results" "$@"
log "results: $results"
