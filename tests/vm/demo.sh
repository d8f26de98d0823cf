#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Two users on one device. Each has a client (a dm device of type nrs) of the same service on the same lower device:
#   small    user 1001, one process, 4 requests in flight
#   greedy   user 1002, 16 processes, 32 requests in flight each
# Three runs: small alone, both under fifo, both under fairshare. What fio reports goes to /out as JSON, with a file of
# facts per run; scripts/demo-report.py reads them. Started by scripts/demo.sh.
. /tests/lib.sh
set -euo pipefail

block=64k
seconds=8
half=2097152 # sectors of one client, 1 GiB
slots=8

say() {
	echo "demo: $*"
}

uid_of() {
	case $1 in small) echo 1001 ;; greedy) echo 1002 ;; esac
}

# busy: jiffies that the CPUs worked, and jiffies that passed.
busy() {
	awk '$1 == "cpu" { for (i = 2; i <= 9; i++) all += $i; print all - $5 - $6, all }' /proc/stat
}

# load RUN CLIENT PROCESSES DEPTH: random reads by that client's user.
load() {
	local uid
	uid=$(uid_of "$2")
	setpriv --reuid "$uid" --regid "$uid" --clear-groups -- \
		fio --name="$2" --filename="/dev/mapper/$2" --rw=randread --bs="$block" --direct=1 --ioengine=libaio \
		--iodepth="$4" --numjobs="$3" --group_reporting --norandommap --randrepeat=1 --invalidate=0 \
		--time_based --runtime="$seconds" --ramp_time=3 --output-format=json >"/out/$1-$2.json"
}

# run NAME POLICY CLIENT...: the clients' loads side by side, and the facts around them.
run() {
	local name=$1 policy=$2 before after pids=() pid client
	shift 2
	dmsetup message small 0 service nrs_policies "$policy"
	say "$name: $* ($seconds s, after 3 s to settle)"
	for client; do
		case $client in
		small) load "$name" small 1 4 & ;;
		greedy) load "$name" greedy 16 32 & ;;
		esac
		pids+=($!)
	done
	sleep 4
	before=$(busy)
	sleep $((seconds - 2))
	after=$(busy)
	for pid in "${pids[@]}"; do wait "$pid"; done
	{
		echo "cpus $(nproc)"
		echo "busy_percent $(awk '{ printf "%.1f", 100 * ($3 - $1) / ($4 - $2) }' <<<"$before $after")"
	} >"/out/$name.facts"
}

# Time passes on the lower device, data does not. Its own queue is much deeper than the slots, so it never decides.
null_blk_create lower size=4096 queue_mode=2 irqmode=2 completion_nsec=4000000 hw_queue_depth=1024 memory_backed=0
load_nrs
dm_create small "0 $half nrs /dev/lower 0 demo"
dm_create greedy "0 $half nrs /dev/lower $half demo"
for client in small greedy; do chown "$(uid_of "$client")" "$(readlink -f "/dev/mapper/$client")"; done
dmsetup message small 0 service slots "$slots"
say "service demo, $slots slots; clients small and greedy on one null_blk that takes 4 ms per request"

run alone fifo small
run fifo fifo small greedy
run fairshare 'fairshare uid_fair' small greedy

cat /sys/kernel/debug/nrs/demo/nrs_fairshare_stats >/out/stats
dm_remove small
dm_remove greedy
rmmod nrs
null_blk_remove lower
say done
