#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# usage: scripts/bench.sh [CRITERION-OPTION...]
#
# Measures the scheduling code (rust/sched) on this host: nanoseconds per decision, with the toolchain root's compiler.
# Output of an earlier run is what criterion compares with; it is kept in build/bench.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
case ${1:-} in --help | -h) usage && exit ;; esac

if [ -z "${NRS_IN_ROOT:-}" ]; then
	"$NRS_SCRIPTS/root.sh"
	exec "$NRS_SCRIPTS/in-root.sh" "$0" "$@"
fi
cd "$NRS_TOP/rust/host"
CARGO_TARGET_DIR=$NRS_TOP/build/bench exec cargo bench --bench sched --bench rules --bench scale --bench timeouts -- "$@"
