#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# usage: scripts/measure.sh [--write] [--seconds N] [--name NAME] DEVICE
#
# Measures the bandwidth of a block device or a file with fio, and proposes a group for nrs_qbm_config.
#
#   --write        writes as well; whatever is on the device is lost
#   --seconds N    time of each run, 1 to 600 (default 10)
#   --name NAME    name of the group (default: that of the device)
#
# Each run keeps 4 times 16 requests of 1 MiB waiting, past the page cache. The capacity that is proposed is 95 % of
# the slowest run: a capacity that the device cannot keep up with is one that nobody can be promised a part of. It goes
# to standard output, as one line; what was measured goes before it, as comments.
set -euo pipefail

say() { echo "measure.sh: $*" >&2; }
die() { say "$*" && exit 1; }

write='' seconds=10 name='' device=''
while [ $# -gt 0 ]; do
	case $1 in
	--help | -h) sed -n '4,16s/^# \{0,1\}//p' "$0" && exit ;;
	--write) write=1 ;;
	--seconds) shift && seconds=${1:-} ;;
	--name) shift && name=${1:-} ;;
	-*) die "unknown option '$1', see --help" ;;
	*) [ -z "$device" ] || die "one device, see --help" && device=$1 ;;
	esac
	shift
done
[ -n "$device" ] || die "which device? See --help"
[ -b "$device" ] || [ -f "$device" ] || die "$device is neither a block device nor a file"
[ -r "$device" ] || die "$device cannot be read"
[ -z "$write" ] || [ -w "$device" ] || die "$device cannot be written"
[[ $seconds =~ ^[1-9][0-9]{0,2}$ ]] && [ "$seconds" -le 600 ] || die "--seconds is not a number from 1 to 600"
command -v fio >/dev/null || die "fio is not installed"
name=${name:-$(basename "$device")}
[[ $name =~ ^[A-Za-z0-9_.:-]{1,31}$ ]] || die "'$name' cannot name a group, see --name"
for path in "$device" "$(readlink -f "$device")"; do
	if [ -n "$write" ] && grep -q "^$path " /proc/mounts; then die "$device is mounted"; fi
done

# run PATTERN FIELD: bytes per second, by field FIELD of fio's terse report (KiB/s).
run() {
	local report
	report=$(fio --name=measure --filename="$device" --rw="$1" --bs=1m --direct=1 --ioengine=libaio --iodepth=16 --numjobs=4 \
		--time_based --runtime="$seconds" --ramp_time=1 --norandommap --group_reporting --minimal) || die "fio failed: $report"
	awk -F';' -v f="$2" '$1 == 3 { printf "%.0f", $f * 1024 }' <<<"$report"
}

runs=("read 7" "randread 7")
[ -z "$write" ] || runs+=("write 48" "randwrite 48")
least=''
for how in "${runs[@]}"; do
	say "${how% *}, $((seconds + 1)) s ..."
	rate=$(run "${how% *}" "${how#* }")
	[[ $rate =~ ^[0-9]+$ ]] && [ "$rate" -gt 0 ] || die "${how% *}: nothing was done"
	awk -v n="${how% *}" -v r="$rate" 'BEGIN { printf "# %-9s %10.1f MB/s\n", n, r / 1e6 }'
	if [ -z "$least" ] || [ "$rate" -lt "$least" ]; then least=$rate; fi
done
target=''
if [ -b "$device" ]; then
	# The file's own numbers are hexadecimal.
	read -r major minor < <(stat -Lc '%t %T' "$device")
	target=" target=$((16#$major)):$((16#$minor))"
fi
echo "group $name capacity=$((least / 1000 * 95 / 100))KB/s$target"
