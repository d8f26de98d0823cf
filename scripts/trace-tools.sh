#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# usage: scripts/trace-tools.sh
#
# Makes a directory with trace-cmd, bpftrace and the libraries that test machines lack, 200 MB, kept
# in $NRS_CACHE, and prints its path: scripts/vm.sh --mem 2048 --file
# "$(scripts/trace-tools.sh):/trace" ... In the machine, /trace/run TOOL ARG... runs one of the
# tools.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
case ${1:-} in --help | -h) usage && exit ;; esac
[ -n "${NRS_IN_ROOT:-}" ] || exec "$NRS_SCRIPTS/in-root.sh" "$0" "$@"

key=$({ cat "$0" && cat "$NRS_CACHE/root.stamp" 2>/dev/null; } | hash_of)
dir=$NRS_CACHE/trace-tools
[ -f "$dir/$key/run" ] && echo "$dir/$key" && exit
lock trace-tools
[ -f "$dir/$key/run" ] && echo "$dir/$key" && exit
log "trace-tools: making the directory"
rm -rf "$dir"
tree=$dir/new
mkdir -p "$tree"/{bin,lib}
for tool in trace-cmd bpftrace; do
	path=$(PATH=/usr/sbin:/usr/bin:/sbin:/bin command -v "$tool") ||
		die "no $tool in the toolchain root"
	cp -L "$path" "$tree/bin/$tool"
	ldd "$path" | grep -oE '/[^ ]+' | while read -r lib; do cp -L "$lib" "$tree/lib/"; done
done
cat >"$tree/run" <<'END'
#!/bin/bash
# Runs the tool $1 with its own libraries.
dir=$(dirname "$0")
tool=$1
shift
exec "$dir/lib/ld-linux-x86-64.so.2" --library-path "$dir/lib" "$dir/bin/$tool" "$@"
END
chmod +x "$tree/run"
mv "$tree" "$dir/$key"
echo "$dir/$key"
