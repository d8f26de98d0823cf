#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# usage: scripts/fio.sh [--print]
#
# Makes the fio of the test machines once, in $NRS_CACHE/fio: Debian's program as it is, and one
# library in place of those of storage systems that no test uses. With all of its 60 libraries, a
# start takes longer than many a test in an emulated machine.
#
#   --print     only print the program's path (fails if it does not exist yet)
set -euo pipefail
. "$(dirname "$0")/lib.sh"

dir=$NRS_CACHE/fio
key=$(hash_of <"$NRS_SCRIPTS/fio.sh")
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
dpkg-deb -x "$tmp"/*.deb "$tmp/package"
mv "$tmp/package/usr/bin/fio" "$tmp/fio"

# unused: Prints symbol and version of the functions that libraries of storage systems define.
unused() {
	nm --dynamic --undefined-only "$tmp/fio" | sed -nE \
		's/^ *U ([a-z0-9_]+)@((IBVERBS|RDMACM|GFAPI|LIBNBD|LIBPMEM)_.*)/\1 \2/p
		s/^ *U ((nfs|rados|rbd)_.*)/\1/p'
}
unused | awk '{ print "void " $1 "(void) { __builtin_trap(); }" }' >"$tmp/unused.c"
unused | awk 'NF == 2 { of[$2] = of[$2] " " $1 ";" }
	END { for (v in of) print v " {" of[v] " };" }' >"$tmp/unused.map"
run_logged "fio: library" "$NRS_CACHE/log/fio-library.log" cc -shared -fPIC -fno-builtin -nostdlib \
	-Wl,--version-script="$tmp/unused.map" -o "$tmp/unused.so" "$tmp/unused.c"
mkdir "$tmp/lib"
for name in ibverbs.so.1 rdmacm.so.1 gfapi.so.0 nbd.so.0 pmem.so.1 nfs.so.14 rados.so.2 rbd.so.1; do
	ln "$tmp/unused.so" "$tmp/lib/lib$name"
done

# Verifies that the program still does what the tests need.
run_logged "fio: try it" "$NRS_CACHE/log/fio-try.log" \
	env LD_LIBRARY_PATH="$tmp/lib" "$tmp/fio" --directory="$tmp" --size=64k \
	--bs=4k --rw=randwrite --verify=crc32c --verify_state_save=0 \
	--name=aio --ioengine=libaio --iodepth=4 --numjobs=2 --name=sync --ioengine=psync
rm -rf "$tmp/package" "$tmp"/*.deb "$tmp"/*.0 "$tmp"/unused.*
stamp "$tmp/stamp" "$key"
publish "$tmp" "$dir"
log "fio: ready in $dir"
