#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# usage: scripts/compare.sh [--quick] [--boots N] [--time PERCENT] [--check] [--out DIR]
#                           [DEVICE...]
#
# Compares nrs with the kernel's schedulers: none, mq-deadline, kyber, BFQ, io.max and io.cost
# against nrs as I/O scheduler and as device-mapper target. Runs virtual machines of the stock
# kernel whose clock counts instructions, two at a time, some per device: fast (null_blk without
# limit), band (limited bandwidth), slow (2 ms per request, 8 at a time), slow8 (8 ms), loop (a file
# on ext4 on such a disk). tests/vm/compare.sh describes the clients. Prints the page and writes it
# to build/compare: compare.md, compare.json and pictures. The page also says where another
# scheduler is better.
#
#   --quick        one boot, shorter runs: approximate figures in a tenth of the time
#   --boots N      boots of each device, 1 to 9 (default 3)
#   --time PERCENT length of each run, percent of the full length, 10 to 1000 (default 100)
#   --check        test this script: three peers on one device, short runs; prints "ok" and "not ok"
#                  lines, and fails if there is a "not ok" line
#   --out DIR      directory of the page (default build/compare)
set -euo pipefail
. "$(dirname "$0")/lib.sh"
boots=3 time=100 check='' out=$NRS_TOP/build/compare devices=() peers=() limit=7200
while [ $# -gt 0 ]; do
	case $1 in
	--help | -h) usage && exit ;;
	--quick) boots=1 time=30 ;;
	--boots) shift && boots=${1:-} ;;
	--time) shift && time=${1:-} ;;
	--check) check=1 boots=1 time=40 devices=(slow8) limit=900
		peers=(measures=mix,equal,four,lone none io.max nrs)
		;;
	--out) shift && out=${1:?--out needs a directory} ;;
	fast | band | slow | slow8 | loop) devices+=("$1") ;;
	*) die "unknown argument '$1', see --help" ;;
	esac
	shift
done
[[ $boots =~ ^[1-9]$ ]] || die "--boots is not a number from 1 to 9"
[[ $time =~ ^[1-9][0-9]{1,3}$ ]] && [ "$time" -le 1000 ] ||
	die "--time is not a number from 10 to 1000"
[ ${#devices[@]} -gt 0 ] || devices=(slow band loop slow8 fast)

cd "$NRS_TOP"
scripts/build-module.sh stock
scripts/build-tools.sh
results=$NRS_TOP/build/compare-results
[ -z "$check" ] || results+=-check
rm -rf "$results"
mkdir -p "$results"

# boot DEVICE N: Boots the machine that measures the device for the Nth time.
boot() {
	local name=compare${check:+-check}-$1-$2
	scripts/vm.sh --kernel stock --icount --mem 1024 --timeout "$limit" --name "$name" \
		--file build/tools/nrs-test:/bin/nrs-test \
		-- compare.sh "$1" "$2" "$time" "${peers[@]}" &&
		mkdir -p "$results/$1" && mv "build/vm/$name/out" "$results/$1/$2"
}

# Two machines run at a time; the next one starts as soon as one ends. An interruption ends them.
running=0 failed=''
trap 'trap - INT TERM && kill $(jobs -p) 2>/dev/null; exit 130' INT TERM
for n in $(seq "$boots"); do
	for device in "${devices[@]}"; do
		if [ "$running" = 2 ]; then
			wait -n || failed=1
			running=1
		fi
		boot "$device" "$n" &
		running=$((running + 1))
	done
done
while [ "$running" -gt 0 ]; do
	wait -n || failed=1
	running=$((running - 1))
done
[ -z "$failed" ] || die "compare: a machine failed, see above"

report=(scripts/report.sh compare "$results")
if [ -n "$check" ]; then
	"${report[@]}" --out "$results" --check
	exit
fi
"${report[@]}" --out "$out" --took "$SECONDS"
log "compare: the page is $out/compare.md"
