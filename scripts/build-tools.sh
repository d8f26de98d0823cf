#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# usage: scripts/build-tools.sh
#
# Builds nrsctl, and the programs of rust/host/nrs-client, nrs-load, nrs-check, nrs-overlap and nrs-storm, linked statically so that
# they run in the test machines too. Result: in build/tools.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
case ${1:-} in --help | -h) usage && exit ;; '') ;; *) die "unknown argument '$1', see --help" ;; esac
[ -n "${NRS_IN_ROOT:-}" ] || exec "$NRS_SCRIPTS/in-root.sh" "$0"

dir=$NRS_TOP/build/tools
mkdir -p "$dir"
release_build
# One by one, as the packages do it, or crates that both need would have other features.
cargo build "${release[@]}" --package nrsctl --bins
cargo build "${release[@]}" --package nrs-client --bins
for name in nrs-load nrs-check nrs-overlap nrs-storm nrsctl; do
	[ "$programs/$name" -nt "$dir/$name" ] || continue
	strip "$programs/$name" -o "$dir/$name.tmp"
	mv "$dir/$name.tmp" "$dir/$name"
done
log "tools: $dir"
