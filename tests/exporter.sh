#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# usage: tests/exporter.sh [DIR...]
#
# Checks pages of nrsctl exporter with promtool, the checker of Prometheus. The pages are those of
# the snapshots that are kept with its tests, with all entities and with few of them. Each DIR adds
# its *.prom files, such as build/vm/NAME/out/pages of tests/vm/nrsctl-stats.sh. Without a DIR, also
# tests the alert rules.
set -euo pipefail
. "$(dirname "$0")/../scripts/lib.sh"
case ${1:-} in --help | -h) usage && exit ;; esac
[ -n "${NRS_IN_ROOT:-}" ] || exec "$NRS_SCRIPTS/in-root.sh" "$NRS_TOP/tests/exporter.sh" "$@"

pages=$(mktemp -d)
trap 'rm -rf "$pages"' EXIT
"$NRS_SCRIPTS/build-tools.sh"
nrsctl=$NRS_TOP/build/tools/nrsctl
for top in 0 2 100; do
	"$nrsctl" exporter --once --top $top --from "$NRS_TOP/rust/host/nrsctl/tests/snapshots.json" \
		>"$pages/top-$top.prom"
done
files=("$pages"/*.prom)
for dir; do
	found=("$dir"/*.prom)
	[ -f "${found[0]}" ] || die "no *.prom in $dir"
	files+=("${found[@]}")
done

failed=0
for file in "${files[@]}"; do
	# Lint counts, too: any output of promtool is a failure.
	if said=$(promtool check metrics <"$file" 2>&1) && [ -z "$said" ]; then
		echo "ok - $(basename "$file"): $(grep -vc '^#' "$file") samples"
	else
		echo "not ok - $file: $said"
		failed=1
	fi
done
# Verifies that promtool finds errors.
if printf 'nrs_x{a="1"} 1\nnrs_x{a="1"} 2\n' | promtool check metrics >/dev/null 2>&1; then
	echo "not ok - promtool takes anything"
	failed=1
fi
if [ $# = 0 ]; then
	if said=$(promtool test rules "$NRS_TOP/tests/alerts.yml" 2>&1); then
		echo "ok - alert rules"
	else
		echo "not ok - alert rules: $said"
		failed=1
	fi
fi
exit $failed
