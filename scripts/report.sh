#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# usage: scripts/report.sh [ARG...]
#
# Builds nrs-report, which makes tables and pictures of measurements, and runs it with ARGs.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
case ${1:-} in -h) usage && exit ;; esac
[ -n "${NRS_IN_ROOT:-}" ] || exec "$NRS_SCRIPTS/in-root.sh" "$0" "$@"

mkdir -p "$NRS_TOP/build"
release_build
cargo build "${release[@]}" --package nrs-report --bins
flock -u "$tree_lock"
exec "$programs/nrs-report" "$@"
