#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# usage: scripts/fio.sh [--print]
#
# Builds the fio of the test machines once, in $NRS_CACHE/fio: Debian's program without the
# libraries of storage systems that no test uses (scripts/lean.py). In an emulated machine it starts
# in an eighth of the time.
#
#   --print     only print the program's path (fails if it does not exist yet)
set -euo pipefail
. "$(dirname "$0")/lib.sh"

# Libraries of the I/O engines of the tests: libaio, psync, io_uring, null.
kept=(libc.so.6 libm.so.6 libz.so.1 libaio.so.1t64)

dir=$NRS_CACHE/fio
key=$(cat "$NRS_SCRIPTS/fio.sh" "$NRS_SCRIPTS/lean.py" | hash_of)
case ${1:-} in
--help | -h) usage && exit ;;
--print)
	stamp_is "$dir/stamp" "$key" && echo "$dir/fio" && exit
	die "no fio yet: run scripts/fio.sh"
	;;
'') ;;
*) die "unknown argument '$1', see --help" ;;
esac

stamp_is "$dir/stamp" "$key" && exit
if [ -z "${NRS_IN_ROOT:-}" ]; then
	"$NRS_SCRIPTS/root.sh"
	archive_sources
	exec "$NRS_SCRIPTS/in-root.sh" "$0" "$@"
fi
lock fio
stamp_is "$dir/stamp" "$key" && exit
tmp=$dir.tmp
rm -rf "$tmp"
mkdir -p "$tmp"
archive_apt
run_logged "fio: read the archive's index" "$NRS_CACHE/log/fio-index.log" apt-get "${apt[@]}" update
(
	cd "$tmp"
	run_logged "fio: download" "$NRS_CACHE/log/fio-download.log" apt-get "${apt[@]}" download fio
)
deb=("$tmp"/*.deb)
dpkg-deb -x "${deb[0]}" "$tmp/package"
run_logged "fio: leave out libraries" "$NRS_CACHE/log/fio-lean.log" \
	python3 "$NRS_SCRIPTS/lean.py" --fio "$tmp/package/usr/bin/fio" "$tmp/fio" "${kept[@]}"
grep 'left as it is' "$NRS_CACHE/log/fio-lean.log" >&2 || true

# Verifies that the program still does what the tests need.
run_logged "fio: try it" "$NRS_CACHE/log/fio-try.log" "$tmp/fio" --directory="$tmp" --size=64k \
	--bs=4k --rw=randwrite --verify=crc32c --verify_state_save=0 \
	--name=aio --ioengine=libaio --iodepth=4 --numjobs=2 --name=sync --ioengine=psync
rm -rf "$tmp/package" "$tmp"/*.deb "$tmp"/*.0
stamp "$tmp/stamp" "$key"
publish "$tmp" "$dir"
log "fio: $("$dir/fio" --version) ready in $dir"
