#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# usage: scripts/compare.sh [--quick] [--repeats N] [--time PERCENT] [--check] [--out DIR]
#                           [DEVICE...]
#
# Compares nrs with the kernel's schedulers: none, mq-deadline, kyber, BFQ, io.max, io.cost and
# dm-linear against dm-nrs with fifo, tbf, fairshare and qbm. Runs virtual machines of the stock
# kernel whose clock counts instructions, two at a time, one per device: fast (null_blk without
# limit), band (limited bandwidth), slow (2 ms per request, 8 at a time), loop (a file on ext4 on
# such a disk). tests/vm/compare.sh describes the clients. Prints the page and writes it to
# build/compare: compare.md, compare.json and pictures. The page also says where another scheduler
# is better.
#
#   --quick        one repeat, shorter runs: approximate figures in a quarter of the time
#   --repeats N    repeats of each peer, 1 to 99, in alternating order (default 3)
#   --time PERCENT length of each run, percent of the full length, 10 to 1000 (default 60)
#   --check        test this script: three peers on one device, short runs; prints "ok" and "not ok"
#                  lines, and fails if there is a "not ok" line
#   --out DIR      directory of the page (default build/compare)
set -euo pipefail
. "$(dirname "$0")/lib.sh"
repeats=3 time=60 check='' out=$NRS_TOP/build/compare devices=() peers=() limit=7200
while [ $# -gt 0 ]; do
	case $1 in
	--help | -h) usage && exit ;;
	--quick) repeats=1 time=25 ;;
	--repeats) shift && repeats=${1:-} ;;
	--time) shift && time=${1:-} ;;
	--check) check=1 repeats=1 time=30 devices=(slow) limit=900
		peers=(measures=mix,equal,four,lone none io.max nrs-fairshare)
		;;
	--out) shift && out=${1:?--out needs a directory} ;;
	fast | band | slow | loop) devices+=("$1") ;;
	*) die "unknown argument '$1', see --help" ;;
	esac
	shift
done
[[ $repeats =~ ^[1-9][0-9]?$ ]] || die "--repeats is not a number from 1 to 99"
[[ $time =~ ^[1-9][0-9]{1,3}$ ]] && [ "$time" -le 1000 ] ||
	die "--time is not a number from 10 to 1000"
[ ${#devices[@]} -gt 0 ] || devices=(slow loop band fast)

cd "$NRS_TOP"
scripts/build-module.sh stock
results=$NRS_TOP/build/compare-results
[ -z "$check" ] || results+=-check
rm -rf "$results"
mkdir -p "$results"

# boot DEVICE: Boots the machine that measures the device.
boot() {
	local name=compare${check:+-check}-$1
	scripts/vm.sh --kernel stock --icount --mem 1024 --timeout "$limit" --name "$name" \
		-- compare.sh "$1" "$repeats" "$time" "${peers[@]}" &&
		mv "build/vm/$name/out" "$results/$1"
}

# Two machines run at a time; the next one starts as soon as one ends. An interruption ends them.
running=0 failed=''
trap 'trap - INT TERM && kill $(jobs -p) 2>/dev/null; exit 130' INT TERM
for device in "${devices[@]}"; do
	if [ "$running" = 2 ]; then
		wait -n || failed=1
		running=1
	fi
	boot "$device" &
	running=$((running + 1))
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
