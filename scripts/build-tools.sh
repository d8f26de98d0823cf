#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# usage: scripts/build-tools.sh [--agent]
#
# Builds nrsctl, nrs-test and the example servers, statically linked so that they also run in the
# test machines, and the filter of nbdkit. Results: in build/tools.
#
#   --agent     build nrs-agent instead, whose zenoh takes longer than all the others
set -euo pipefail
. "$(dirname "$0")/lib.sh"
case ${1:-} in
--help | -h) usage && exit ;;
'' | --agent) ;;
*) die "unknown argument '$1', see --help" ;;
esac
[ -n "${NRS_IN_ROOT:-}" ] || exec "$NRS_SCRIPTS/in-root.sh" "$0" "$@"

dir=$NRS_TOP/build/tools
mkdir -p "$dir"
release_build
# tool PROGRAM: Copies the program to the result directory, stripped.
tool() {
	local to=$dir/${1##*/}
	[ "$1" -nt "$to" ] || return 0
	strip "$1" -o "$to.tmp"
	mv "$to.tmp" "$to"
}
if [ $# != 0 ]; then
	rules=(make -s -f "$tree/debian/rules" -C "$tree")
	"${rules[@]}" build-agent
	tool "$("${rules[@]}" print-agent)"
	log "tools: $dir/nrs-agent"
	exit
fi
for name in nrsctl nrs-test; do
	# One package at a time, as in the Debian packages; otherwise shared crates would be built with
	# other features.
	cargo build "${release[@]}" --package "$name" --bins
	tool "$programs/$name"
done
cargo build "${release[@]}" --package nrs-client --features tokio --examples
for name in server tokio fallback timeouts; do
	cp "$programs/examples/$name" "$dir/example-$name"
done
c=(gcc -std=gnu11 -O2 -Wall -Wextra -Werror -I "$tree/include/uapi")
"${c[@]}" -static -o "$dir/example-server-c" "$tree/examples/server.c"
"${c[@]}" -shared -fPIC -o "$dir/nbdkit-nrs-filter.so" "$tree/examples/nbdkit-nrs-filter.c"
log "tools: $dir"
